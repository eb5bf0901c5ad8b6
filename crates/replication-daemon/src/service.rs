//! A daemon with its interfaces as a process, until a signal ends it (feature `http`).

use core::fmt;
use core::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lull_transport::raise_descriptors;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::unbounded_channel;

use crate::daemon::{
    Clock, DaemonError, OriginDaemon, OriginEvent, OriginOptions, ReplicaDaemon, ReplicaEvent,
    ReplicaHandle, ReplicaOptions,
};
use crate::fuse::{Ended, MountError, Mounted};
use crate::http::{BUCKET, Blocked, OriginHttp, ReplicaHttp, ReplicaS3, Serving};
use crate::nfs::ReplicaNfs;
use crate::remedies;
use crate::shared_log::LogEvent;
use crate::watch::{WatchError, WatchEvent, WatchOptions, Watched};

/// An event of a running daemon.
#[derive(Debug)]
pub enum ServiceEvent {
    /// Replicas may connect at this address.
    Listening(SocketAddr),
    /// It serves HTTP at this address.
    Http(SocketAddr),
    /// A replica serves clients of S3 at this address.
    S3(SocketAddr),
    /// A replica exports its files by NFS at this address.
    Nfs(SocketAddr),
    /// A replica shows its status at this address.
    Metrics(SocketAddr),
    /// Its files are in this folder.
    Mounted(PathBuf),
    /// The mount has ended, because it was unmounted externally.
    Unmounted(PathBuf),
    /// An event of its watched folder.
    Watch(WatchEvent),
    /// An event of the origin.
    Origin(OriginEvent),
    /// An event of the replica.
    Replica(ReplicaEvent),
    /// It begins to end.
    Ending,
    /// It has ended without an error.
    Stopped,
}

impl ServiceEvent {
    /// Its name in one word.
    pub fn name(&self) -> &'static str {
        match self {
            ServiceEvent::Listening(_) => "listening",
            ServiceEvent::Http(_) => "http",
            ServiceEvent::S3(_) => "s3",
            ServiceEvent::Nfs(_) => "nfs",
            ServiceEvent::Metrics(_) => "metrics",
            ServiceEvent::Mounted(_) => "mounted",
            ServiceEvent::Unmounted(_) => "unmounted",
            ServiceEvent::Watch(event) => match event {
                WatchEvent::Watching(_) => "watching",
                WatchEvent::Skipped { .. } => "skipped",
                WatchEvent::Lost => "overflow",
                WatchEvent::Repaired(_) => "repaired",
                WatchEvent::Empty(_) => "empty",
                WatchEvent::Waits(_) => "waits",
                WatchEvent::Gone(_) | WatchEvent::Failed(_) => "unwatched",
            },
            ServiceEvent::Origin(event) => match event {
                OriginEvent::Connected { .. } => "connected",
                OriginEvent::Disconnected { .. } => "disconnected",
                OriginEvent::Rejected { .. } => "rejected",
                OriginEvent::Crowded { .. } => "crowded",
                OriginEvent::Joined { .. } => "joined",
                OriginEvent::Turned { .. } => "refused",
                OriginEvent::Lost { .. } => "lost",
                OriginEvent::DiskFull => "full",
                OriginEvent::StoreAway(_) => "store-away",
                OriginEvent::StoreBack => "store-back",
                OriginEvent::Log(event) => match event {
                    LogEvent::Away { .. } => "log-away",
                    LogEvent::Back => "log-back",
                    LogEvent::Standby(_) => "standby",
                    LogEvent::Unconfirmed(_) => "unconfirmed",
                    LogEvent::Writing(_) => "writing",
                },
                OriginEvent::Identity { .. } => "identity",
            },
            ServiceEvent::Replica(event) => match event {
                ReplicaEvent::Connected => "connected",
                ReplicaEvent::Parent(_) => "parent",
                ReplicaEvent::WrongBytes(_) => "wrong-bytes",
                ReplicaEvent::Disconnected { .. } => "disconnected",
                ReplicaEvent::Refused(_) => "refused",
                ReplicaEvent::SkewExceeded(_) => "skew",
                ReplicaEvent::Unmatched(_) => "unmatched",
                ReplicaEvent::DiskFull => "full",
                ReplicaEvent::Lost(_) => "lost",
                ReplicaEvent::NotRenewed(_) => "not-renewed",
                ReplicaEvent::Relaying(_) => "listening",
                ReplicaEvent::Sharing(_) => "sharing",
                ReplicaEvent::NeighbourDropped { .. } => "neighbour-dropped",
                ReplicaEvent::WrongPiece { .. } => "wrong-piece",
                ReplicaEvent::ChildConnected { .. } => "child-connected",
                ReplicaEvent::ChildDisconnected { .. } => "child-disconnected",
                ReplicaEvent::Cut(_) => "cut",
                ReplicaEvent::ChildRejected { .. } => "rejected",
            },
            ServiceEvent::Ending => "ending",
            ServiceEvent::Stopped => "stopped",
        }
    }

    /// The listening address, if the event contains one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            ServiceEvent::Listening(address)
            | ServiceEvent::Http(address)
            | ServiceEvent::S3(address)
            | ServiceEvent::Nfs(address)
            | ServiceEvent::Metrics(address)
            | ServiceEvent::Replica(
                ReplicaEvent::Relaying(address) | ReplicaEvent::Sharing(address),
            ) => Some(*address),
            _ => None,
        }
    }
}

impl fmt::Display for ServiceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceEvent::Listening(address) => write!(f, "replicas may connect to {address}"),
            ServiceEvent::Http(address) => write!(f, "listening on http://{address}"),
            ServiceEvent::S3(address) => {
                write!(f, "the S3 endpoint is http://{address}, with the bucket {BUCKET}")
            }
            ServiceEvent::Nfs(address) => write!(f, "the NFS export is at {address}"),
            ServiceEvent::Metrics(address) => {
                write!(f, "metrics are at http://{address}/.lull/metrics")
            }
            ServiceEvent::Mounted(folder) => write!(f, "the files are in {}", folder.display()),
            ServiceEvent::Unmounted(folder) => write!(
                f,
                "{} was unmounted by another process: restart the replica to mount it again",
                folder.display()
            ),
            ServiceEvent::Watch(event) => event.fmt(f),
            ServiceEvent::Origin(event) => event.fmt(f),
            ServiceEvent::Replica(event) => event.fmt(f),
            ServiceEvent::Ending => f.write_str("ending"),
            ServiceEvent::Stopped => f.write_str("stopped"),
        }
    }
}

/// Why a process does not start, or has ended.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The daemon.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The port cannot be listened on.
    #[error("cannot listen on {address}{}", remedies::of_address(source))]
    Listen {
        /// Which.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The socket in the folder cannot be made.
    #[error("cannot make a socket in the folder")]
    Socket(#[source] io::Error),
    /// The files cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// They can no longer be shown.
    #[error("the mount has failed, so the replica has ended: start it again")]
    MountFailed(#[source] io::Error),
    /// They cannot be unmounted.
    #[error("cannot unmount the files: umount them by hand")]
    Unmount(#[source] io::Error),
    /// The folder cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The system gives no threads or signals.
    #[error("cannot run as a daemon")]
    System(#[source] io::Error),
}

/// An origin, and its HTTP addresses.
#[derive(Debug)]
pub struct OriginService {
    /// The daemon.
    pub daemon: OriginOptions,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// The address for `PUT` and `DELETE`, and the token for that.
    pub http: Option<(String, String)>,
    /// The folder whose files it publishes after they are written.
    pub watch: Option<PathBuf>,
    /// How that is watched.
    pub watch_options: WatchOptions,
}

/// A replica, and where it serves HTTP.
#[derive(Debug)]
pub struct ReplicaService {
    /// The daemon.
    pub daemon: ReplicaOptions,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// The address for reads.
    pub http: Option<String>,
    /// The address for clients of S3.
    pub s3: Option<String>,
    /// The address of the NFS export.
    pub nfs: Option<String>,
    /// The address for its status; none: the same as for reads.
    pub metrics: Option<String>,
    /// The folder in which its files are shown.
    pub mount: Option<PathBuf>,
    /// The treatment of reads that cannot be answered.
    pub blocked: Blocked,
}

/// A runtime for a daemon or one of its clients.
///
/// # Errors
/// If the system gives no threads.
pub fn runtime() -> Result<Runtime, ServiceError> {
    // Two at least: one may be waiting for the state machine.
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name("lull").enable_all();
    builder.build().map_err(ServiceError::System)
}

/// The result of `work`, if it ends within that time. It continues when it is polled again.
pub async fn within<T>(time: Duration, work: impl Future<Output = T> + Unpin) -> Option<T> {
    tokio::time::timeout(time, work).await.ok()
}

/// SIGTERM and SIGINT.
struct Signals(Signal, Signal);

impl Signals {
    fn take() -> Result<Self, ServiceError> {
        let take = |kind| signal(kind).map_err(ServiceError::System);
        Ok(Signals(take(SignalKind::terminate())?, take(SignalKind::interrupt())?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// A daemon that runs.
trait Daemon {
    /// Waits until it fails.
    async fn failed(&self);
    /// Ends it, and returns its failure.
    async fn stop(self) -> Result<(), DaemonError>;
}

impl Daemon for OriginDaemon {
    async fn failed(&self) {
        self.failed().await;
    }

    async fn stop(self) -> Result<(), DaemonError> {
        self.stop().await
    }
}

impl Daemon for ReplicaDaemon {
    async fn failed(&self) {
        self.failed().await;
    }

    async fn stop(self) -> Result<(), DaemonError> {
        self.stop().await
    }
}

/// An interface that is closed before the daemon ends.
enum Interface {
    Served(Serving),
    Mount(Mounted),
    Watch(Watched),
}

impl Interface {
    async fn close(self) -> Result<(), ServiceError> {
        match self {
            Interface::Served(serving) => serving.close().await,
            Interface::Mount(mounted) => mounted.close().await.map_err(ServiceError::Unmount)?,
            Interface::Watch(watched) => watched.close().await,
        }
        Ok(())
    }
}

/// Runs until a signal comes, or the daemon or one of its interfaces fails, and then ends it. A second signal
/// does not wait for work in progress.
async fn run_until_ended(
    mut signals: Signals,
    daemon: impl Daemon,
    interfaces: Vec<Interface>,
    failed: impl Future<Output = ServiceError>,
    on_event: &impl Fn(ServiceEvent),
) -> Result<(), ServiceError> {
    let failed = tokio::select! {
        () = signals.next() => None,
        () = daemon.failed() => None,
        why = failed => Some(why),
    };
    on_event(ServiceEvent::Ending);
    let ending = async {
        let mut closed = Ok(());
        for interface in interfaces {
            closed = closed.and(interface.close().await);
        }
        daemon.stop().await?;
        closed
    };
    tokio::select! {
        ended = ending => ended?,
        () = signals.next() => {}
    }
    if let Some(why) = failed {
        return Err(why);
    }
    on_event(ServiceEvent::Stopped);
    Ok(())
}

async fn listen(address: &str) -> Result<(TcpListener, SocketAddr), ServiceError> {
    let failed = |source| ServiceError::Listen { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Runs an origin until a signal ends it, or it fails. A second signal does not wait for work in progress.
///
/// # Errors
/// If it does not start, or fails.
pub fn run_origin(
    service: OriginService,
    on_event: impl Fn(ServiceEvent) + Send + Sync + 'static,
) -> Result<(), ServiceError> {
    let on_event = Arc::new(on_event);
    finished(async {
        let mut signals = Signals::take()?;
        let OriginService { daemon, clock, http, .. } = service;
        let folder = daemon.folder.clone();
        if let Some(watched) = &service.watch {
            // Before anything starts that would produce output.
            Watched::check(watched, &folder)?;
        }
        let forward_event = Arc::clone(&on_event);
        let start = OriginDaemon::start(daemon, clock, move |event| {
            forward_event(ServiceEvent::Origin(event))
        });
        // It may stand by for long.
        let daemon = tokio::select! {
            started = start => started?,
            () = signals.next() => {
                on_event(ServiceEvent::Ending);
                on_event(ServiceEvent::Stopped);
                return Ok(());
            }
        };
        let address = daemon.address();
        // A listener on all addresses does not know its external address.
        let known = (!address.ip().is_unspecified()).then(|| address.to_string());
        let local = OriginHttp::open_local(&folder, daemon.handle(), known.clone());
        let mut interfaces = vec![Interface::Served(local.map_err(ServiceError::Socket)?)];
        on_event(ServiceEvent::Listening(address));
        if let Some((http, token)) = http {
            let (listener, address) = listen(&http).await?;
            let interface = OriginHttp::open(listener, daemon.handle(), known, &token);
            interfaces.push(Interface::Served(interface));
            on_event(ServiceEvent::Http(address));
        }
        if let Some(watched) = &service.watch {
            let forward_event = Arc::clone(&on_event);
            let forward_event = move |event| forward_event(ServiceEvent::Watch(event));
            let options = service.watch_options;
            let watched = Watched::open(watched, &folder, daemon.handle(), options, forward_event)?;
            interfaces.push(Interface::Watch(watched));
        }
        run_until_ended(signals, daemon, interfaces, pending(), &*on_event).await
    })
}

/// Runs a replica.
///
/// # Errors
/// If it does not start, or fails.
pub fn run_replica(
    service: ReplicaService,
    on_event: impl Fn(ServiceEvent) + Send + Sync + 'static,
) -> Result<(), ServiceError> {
    let on_event = Arc::new(on_event);
    finished(async {
        let signals = Signals::take()?;
        if let Some(folder) = &service.mount {
            // Before anything starts that would produce output.
            Mounted::check(folder)?;
        }
        let ReplicaService { daemon, clock, http, s3, nfs, metrics, blocked, .. } = service;
        let ports = Ports { http, s3, nfs, metrics };
        let folder = daemon.folder.clone();
        let forward_event = Arc::clone(&on_event);
        let daemon = ReplicaDaemon::start(daemon, clock, move |event| {
            forward_event(ServiceEvent::Replica(event))
        })?;
        let local = ReplicaHttp::open_local(&folder, daemon.handle(), blocked.clone());
        let mut interfaces = vec![Interface::Served(local.map_err(ServiceError::Socket)?)];
        let (failing, mut failures) = unbounded_channel();
        if let Some(folder) = service.mount {
            let (forward_event, place, failing) =
                (Arc::clone(&on_event), folder.clone(), failing.clone());
            let gone = move |ended| match ended {
                Ended::Unmounted => forward_event(ServiceEvent::Unmounted(place.clone())),
                // If the receiver is gone, the process is ending already.
                Ended::Failed(why) => drop(failing.send(ServiceError::MountFailed(why))),
            };
            let mounted = Mounted::open(&folder, daemon.handle(), blocked.patience(), gone)?;
            on_event(ServiceEvent::Mounted(mounted.path()));
            interfaces.push(Interface::Mount(mounted));
        }
        interfaces.extend(open_ports(ports, &daemon.handle(), &blocked, &*on_event).await?);
        let failed = async move {
            // So that it stays open also without a mount.
            let _failing = failing;
            match failures.recv().await {
                Some(why) => why,
                None => pending().await,
            }
        };
        run_until_ended(signals, daemon, interfaces, failed, &*on_event).await
    })
}

/// The addresses of a replica.
struct Ports {
    http: Option<String>,
    s3: Option<String>,
    nfs: Option<String>,
    metrics: Option<String>,
}

/// Opens the ports of a replica.
async fn open_ports(
    ports: Ports,
    replica: &ReplicaHandle,
    blocked: &Blocked,
    on_event: &impl Fn(ServiceEvent),
) -> Result<Vec<Interface>, ServiceError> {
    let Ports { http, s3, nfs, metrics } = ports;
    let mut interfaces = Vec::new();
    if let Some(http) = http {
        let (listener, address) = listen(&http).await?;
        let (replica, blocked) = (replica.clone(), blocked.clone());
        interfaces.push(match &metrics {
            Some(_) => ReplicaHttp::open_objects(listener, replica, blocked),
            None => ReplicaHttp::open(listener, replica, blocked),
        });
        on_event(ServiceEvent::Http(address));
    }
    if let Some(s3) = s3 {
        let (listener, address) = listen(&s3).await?;
        interfaces.push(ReplicaS3::open(listener, replica.clone(), blocked.clone()));
        on_event(ServiceEvent::S3(address));
    }
    if let Some(nfs) = nfs {
        let (listener, address) = listen(&nfs).await?;
        interfaces.push(ReplicaNfs::open(listener, replica.clone(), blocked.patience()));
        on_event(ServiceEvent::Nfs(address));
    }
    if let Some(metrics) = metrics {
        let (listener, address) = listen(&metrics).await?;
        interfaces.push(ReplicaHttp::open_figures(listener, replica.clone()));
        on_event(ServiceEvent::Metrics(address));
    }
    Ok(interfaces.into_iter().map(Interface::Served).collect())
}

/// Runs to the end, without waiting for threads that read from a slow disk.
fn finished(run: impl Future<Output = Result<(), ServiceError>>) -> Result<(), ServiceError> {
    // Each connection takes one, and so does each large body that is read or written.
    raise_descriptors();
    let runtime = runtime()?;
    let ended = runtime.block_on(run);
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Healthy;

    impl Daemon for Healthy {
        async fn failed(&self) {
            pending().await
        }

        async fn stop(self) -> Result<(), DaemonError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn failed_mount_ends_the_process_with_an_error() {
        let told = Mutex::new(Vec::new());
        let on_event = |event: ServiceEvent| told.lock().unwrap().push(event.name());
        let signals = Signals::take().unwrap();
        let failed = async { ServiceError::MountFailed(io::Error::other("on purpose")) };
        let ended = run_until_ended(signals, Healthy, Vec::new(), failed, &on_event).await;
        assert!(matches!(ended, Err(ServiceError::MountFailed(_))), "{ended:?}");
        assert_eq!(*told.lock().unwrap(), ["ending"]);
    }
}
