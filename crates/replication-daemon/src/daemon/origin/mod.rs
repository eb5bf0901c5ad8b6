//! The origin as a daemon.

mod awaited;
mod core;
mod distribution;
mod handle;
mod held;
mod held_bodies;
mod opening;
mod serve;
mod status;
#[cfg(test)]
mod tests;
mod tree;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lull_cc::Bytes;
use lull_replication::Pin;
use lull_replication::message::Refusal;
use lull_replication::origin::{Config, Origin, Prioritise, ReadsPerWriteAndByte, Refused};
use lull_replication::path::Path;
use lull_replication::time::{Reading, WallTime};
use lull_replication::types::{Digest, ReplicaId, Sequence};
use lull_transport::Options;
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::bodies::Serves;
use super::child::Link;
use super::chunk_lists::ChunkLists;
use super::clock::until;
use super::outlines::Outlines;
use super::{Clock, DaemonError, LinkError, OnPanic, end, worker_of};
use crate::identity::{self, IdentityError, OriginIdentity};
use crate::shared_log::{LogAddress, LogClock, LogEvent, LogOptions, SharedLog};
use crate::store::{
    Bodies, Body, BodyReader, Change, OriginState, Remote, Settings, Store, StoreError,
};

use self::core::Core;
pub use self::distribution::{DistributionStatus, HostStatus};
pub use self::handle::OriginHandle;
pub use self::held::HeldBody;
pub(crate) use self::held_bodies::HeldBodies;
use self::opening::Folder;
pub use self::status::{OriginStatus, PeerStatus};
pub use self::tree::Tree;

/// The options of an origin daemon.
#[derive(Debug)]
pub struct OriginOptions {
    /// The folder of its identity and its store.
    pub folder: PathBuf,
    /// The listening address for replicas: a host and a port.
    pub listen: String,
    /// The configuration of the state machine.
    pub config: Config,
    /// Which bodies are pushed first.
    pub policy: Box<dyn Prioritise>,
    /// How speculative bodies are sent.
    pub background: Options,
    /// The bucket for large bodies. None: the one of the last start, or the folder.
    pub store: Option<Remote>,
    /// Most bytes of bodies in the folder that are also in the bucket.
    pub copies: Bytes,
    /// The log that several origins share. None: the one of the last start, or the folder.
    pub log: Option<LogAddress>,
    /// Write the log although another origin does, which is not known to have ended.
    pub take_over: bool,
    /// The address for replicas that other origins and the status show. None: where it listens.
    pub advertised: Option<String>,
}

impl OriginOptions {
    /// The origin in `folder`, which will listen at this address.
    pub fn new(folder: impl Into<PathBuf>, listen: impl Into<String>) -> Self {
        OriginOptions {
            folder: folder.into(),
            listen: listen.into(),
            config: Config::default(),
            policy: Box::new(ReadsPerWriteAndByte),
            background: Options::new(),
            store: None,
            copies: Bytes(10_000_000_000),
            log: None,
            take_over: false,
            advertised: None,
        }
    }
}

/// An event of an origin daemon.
#[derive(Debug, Error)]
pub enum OriginEvent {
    /// A replica has connected.
    #[error("replica {name} at {from} is connected")]
    Connected {
        /// Which.
        name: String,
        /// Its address.
        from: SocketAddr,
    },
    /// A replica's connection has ended.
    #[error("replica {name} is disconnected: {why}")]
    Disconnected {
        /// Which.
        name: String,
        /// Why.
        why: String,
    },
    /// A connection has failed.
    #[error("the connection from {from} failed: {why}")]
    Rejected {
        /// Its address.
        from: SocketAddr,
        /// Why.
        why: String,
    },
    /// There were more connections than may be without a name or a purpose. Reported rarely.
    #[error(
        "too many connections are unidentified, most of them from {from}: {closed} were closed to \
         make room for others"
    )]
    Crowded {
        /// Its origin: an IPv4 address or an IPv6 prefix.
        from: IpAddr,
        /// How many since the last report.
        closed: u64,
    },
    /// A replica has joined.
    #[error("replica {name} has joined")]
    Joined {
        /// Which.
        name: String,
    },
    /// A replica is rejected.
    #[error("replica {name} is rejected: {why}")]
    Turned {
        /// Which.
        name: String,
        /// Why.
        why: Refusal,
    },
    /// Bodies are gone.
    #[error("the body of {} is missing or corrupt: publish it again", shown(.paths))]
    Lost {
        /// The objects that have it.
        paths: Vec<Path>,
    },
    /// The disk is full.
    #[error("the disk is full: free space; until then writes are rejected")]
    DiskFull,
    /// The bucket does not answer.
    #[error("{0}: files over 16 KiB are refused until it answers")]
    StoreAway(String),
    /// The bucket answers again.
    #[error("the store answers again")]
    StoreBack,
    /// An event of the log that several origins share.
    #[error(transparent)]
    Log(LogEvent),
    /// The identity cannot be written.
    #[error("no replica can join: {why}")]
    Identity {
        /// Why.
        why: String,
    },
}

fn shown(paths: &[Path]) -> String {
    match paths {
        [] => "an overwritten version".to_owned(),
        [one] => format!("`{one}`"),
        [one, rest @ ..] => format!("`{one}` and {} more", rest.len()),
    }
}

/// Why a write has not happened, or may not have.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The origin rejects it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The state is not the one that the write was made for.
    #[error("the state has changed since, the last one is {0}: read it again")]
    Moved(Sequence),
    /// The bucket for bodies does not answer.
    #[error("{0}: repeat the write when the store answers")]
    StoreAway(String),
    /// The log does not answer.
    #[error("{0}: repeat the write when the log answers")]
    LogAway(String),
    /// The daemon ends. The write may have happened or not.
    #[error("the origin has stopped: ask it after its next start whether this was written")]
    Stopped,
}

/// Makes a new origin in `folder`: an empty store, and its authority. If it is interrupted it may be
/// repeated, until the authority exists.
///
/// # Errors
/// If it exists already, or the disk fails.
pub fn create_origin(folder: &FilePath, now: WallTime) -> Result<(), DaemonError> {
    if identity::exists(folder) {
        return Err(IdentityError::Exists(folder.to_owned()).into());
    }
    let settings = Settings::default();
    match Store::<OriginState>::create_origin(folder, settings, identity::random()?) {
        // If it is that of an origin.
        Err(StoreError::Exists(_)) => drop(Store::<OriginState>::open(folder, settings, now)?),
        made => made?,
    }
    OriginIdentity::create(folder, now)?;
    Ok(())
}

/// The receiver of events.
type EventSink = Arc<dyn Fn(OriginEvent) + Send + Sync>;

/// The data that tasks share.
pub(super) struct Shared {
    clock: Arc<dyn Clock>,
    core: Mutex<Core>,
    identity: Mutex<OriginIdentity>,
    body_reader: BodyReader,
    outlines: Outlines,
    chunk_lists: ChunkLists,
    bodies: Bodies,
    /// The log that several origins share.
    log: Option<Arc<SharedLog>>,
    background: Options,
    on_event: EventSink,
    /// The machine has work left.
    work: Notify,
    /// Changes when a replica or the state has advanced.
    progress: watch::Sender<u64>,
    stop: watch::Sender<bool>,
}

impl Serves for Shared {
    fn with_machine<T>(&self, call: impl FnOnce(&mut Origin<Body>) -> T) -> T {
        self.with(|core, _| call(&mut core.machine))
    }

    fn with_link<T>(
        &self,
        link: &Arc<Link>,
        call: impl FnOnce(&mut Origin<Body>) -> T,
    ) -> Result<T, LinkError> {
        self.with(|core, _| {
            let machine = core.is_current(link).then_some(&mut core.machine);
            machine.map(call).ok_or(LinkError::GivenUp)
        })
    }

    fn pin(&self, digest: &Digest) -> Option<Pin> {
        self.with(|core, _| core.machine.pin(digest))
    }

    fn unpin(&self, pin: Pin) {
        self.try_with(|core, _| core.machine.unpin(pin));
    }

    fn handle_missing(&self, digest: &Digest) {
        self.with(|core, now| core.machine.handle_missing(now, digest));
    }

    fn body_reader(&self) -> &BodyReader {
        &self.body_reader
    }

    fn outlines(&self) -> &Outlines {
        &self.outlines
    }

    fn chunk_lists(&self) -> &ChunkLists {
        &self.chunk_lists
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// A call of the state machine, and its effects.
    ///
    /// # Panics
    /// If an earlier call has panicked: the state of the machine is unknown then, and the daemon ends.
    fn with<T>(&self, call: impl FnOnce(&mut Core, Reading) -> T) -> T {
        self.try_with(call).expect("an earlier call has panicked, so the daemon ends")
    }

    /// The same; none if an earlier call has panicked.
    fn try_with<T>(&self, call: impl FnOnce(&mut Core, Reading) -> T) -> Option<T> {
        let _falls = OnPanic::new(|| self.stop_after_panic());
        let mut core = match self.core.lock() {
            Ok(core) => core,
            Err(poisoned) => {
                drop(poisoned);
                self.stop_after_panic();
                return None;
            }
        };
        // Read under the lock, so that time does not go back between two calls.
        let value = call(&mut core, self.clock.read());
        let happened = core.pump();
        let (failed, has_more) = (core.failed.is_some(), core.machine.has_more());
        let garbage: Vec<_> = ::core::iter::from_fn(|| core.machine.poll_garbage()).collect();
        let old_paths = ::core::mem::take(&mut core.old_paths);
        drop(core);
        // Dropped without the lock.
        drop((garbage, old_paths));
        if has_more {
            self.work.notify_one();
        }
        if happened.progress {
            self.progress.send_modify(|count| *count += 1);
        }
        if failed {
            self.stop.send_replace(true);
        }
        if happened.full {
            (self.on_event)(OriginEvent::DiskFull);
        }
        for (replica, why) in happened.turned {
            (self.on_event)(OriginEvent::Turned { name: self.name(replica), why });
        }
        if !happened.lost.is_empty() {
            (self.on_event)(OriginEvent::Lost { paths: happened.lost.concat() });
        }
        Some(value)
    }

    /// Does the work that calls have left, in small parts: each other caller waits for one of them at most.
    async fn keep_working(self: Arc<Self>) {
        loop {
            let round = lock(&self.core).machine.distribution_timeout();
            tokio::select! {
                () = self.work.notified() => {}
                () = until(&*self.clock, round) => {}
                () = self.stopped() => return,
            }
            let worked = self.try_with(|core, now| {
                let was_preparing = core.machine.is_preparing();
                core.machine.go_on(now);
                if was_preparing && !core.machine.is_preparing() {
                    // Replicas wait for the tree.
                    core.links.values().for_each(|link| link.control.notify_one());
                }
            });
            if worked.is_none() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// If a call has panicked, the daemon ends, and all waiting callers get an error.
    fn stop_after_panic(&self) {
        // The receiver of events may panic as well, which leaves nothing half done.
        if self.core.is_poisoned() {
            lock(&self.core).fail(StoreError::Stopped);
            self.stop.send_replace(true);
        }
    }

    /// Asks the connected replicas to get new certificates, if they have to.
    fn request_renewals(&self) {
        let links: Vec<_> = self.with(|core, _| core.links.values().cloned().collect());
        for link in links {
            if lock(&self.identity).is_behind(link.replica) {
                link.renew.store(true, Ordering::Relaxed);
                link.control.notify_one();
            }
        }
    }

    /// Drops the replaced session-token key when it is time, and has all connected replicas do the same. To
    /// be called now and then: it waits for actions of replicas.
    fn drop_replaced_token_key(&self) {
        let is_dropped = {
            let mut identity = lock(&self.identity);
            // Within its lock: no caller that holds the core waits for the identity.
            let last = || lock(&self.core).machine.last().sequence;
            let reached = |replica| lock(&self.core).machine.progress(replica).map(|(to, _)| to);
            identity.drop_replaced_token_key(last, reached)
        };
        // A failed write is retried next time.
        if is_dropped.unwrap_or(false) {
            self.request_renewals();
        }
    }

    fn name(&self, replica: ReplicaId) -> String {
        let identity = lock(&self.identity);
        let name = identity.replicas().find(|(id, ..)| *id == replica);
        name.map_or_else(|| replica.0.to_string(), |(_, name, _)| name.to_owned())
    }

    /// Waits until the daemon has to end.
    async fn stopped(&self) {
        // An error would mean that the sender is gone, which is in `self`.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}

/// If the log cannot be used any more, the daemon fails.
fn follow_log(shared: &Arc<Shared>) {
    let Some(log) = &shared.log else { return };
    let failing = Arc::downgrade(shared);
    log.on_failure(Box::new(move |error| {
        if let Some(shared) = failing.upgrade() {
            shared.try_with(|core, _| core.fail(error));
        }
    }));
}

/// A running origin. When it is dropped, it ends as if it had been killed: writes whose sync has not begun
/// are lost.
pub struct OriginDaemon {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl ::core::fmt::Debug for OriginDaemon {
    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
        f.debug_struct("OriginDaemon").field("address", &self.address).finish_non_exhaustive()
    }
}

impl OriginDaemon {
    /// Starts the origin of a folder, inside a multi-threaded Tokio runtime. `on_event` is called with events,
    /// and should return quickly.
    ///
    /// # Errors
    /// If the folder has no origin, its disk fails, or the address cannot be listened on.
    pub async fn start(
        options: OriginOptions,
        clock: Arc<dyn Clock>,
        on_event: impl Fn(OriginEvent) + Send + Sync + 'static,
    ) -> Result<Self, DaemonError> {
        let OriginOptions { folder, listen, config, policy, background, store, copies, .. } =
            options;
        let (now, on_event): (_, EventSink) = (clock.read(), Arc::new(on_event));
        let failed = |source| DaemonError::Listen { address: listen.clone(), source };
        let listener = TcpListener::bind(&listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let log = LogOptions {
            address: options.log,
            advertised: options.advertised.unwrap_or_else(|| address.to_string()),
        };
        let forward_event = Arc::clone(&on_event);
        let forward_event = Arc::new(move |event| forward_event(OriginEvent::Log(event)));
        let reading = Arc::clone(&clock);
        let interval_clock = LogClock(Arc::new(move || reading.read().local));
        let log = SharedLog::connect(&folder, &log, interval_clock, forward_event)?;
        let settings = Settings { inline: config.inline, ..Settings::default() };
        let folder = Folder {
            path: folder,
            settings,
            store,
            copies,
            now: now.wall,
            log: log.clone(),
            take_over: options.take_over,
        };
        let (opened, identity) = folder.open(&listener).await?;
        // With a log that may have taken long.
        let now = clock.read();
        let (body_reader, bodies) = (opened.store.body_reader(), opened.store.bodies().clone());
        let machine = Origin::recover(now, config, policy, opened.image, opened.bodies);
        // Tried with an unconnected socket. Otherwise each replica would get the error, again and again.
        let tried = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        background.prepare(tried.map_err(failed)?)?;
        let shared = Arc::new(Shared {
            clock,
            core: Mutex::new(Core::new(machine, bodies.clone(), log.clone())),
            identity: Mutex::new(identity),
            body_reader,
            outlines: Outlines::new(),
            chunk_lists: ChunkLists::default(),
            bodies,
            log,
            background,
            on_event,
            work: Notify::new(),
            progress: watch::Sender::new(0),
            stop: watch::Sender::new(false),
        });
        let done = |shared: &Shared, done| shared.with(|core, now| core.done(now, done));
        let worker = worker_of(&shared, opened.store, done)?;
        shared.with(|core, _| core.worker = Some(worker));
        let forward_event = Arc::downgrade(&shared);
        shared.bodies.follow(move |change| {
            if let Some(shared) = forward_event.upgrade() {
                (shared.on_event)(match change {
                    Change::Away(why) => OriginEvent::StoreAway(why),
                    Change::Back => OriginEvent::StoreBack,
                });
            }
        });
        follow_log(&shared);
        tokio::spawn(Shared::keep_working(Arc::clone(&shared)));
        let accepting = tokio::spawn(serve::accept(Arc::clone(&shared), listener));
        Ok(OriginDaemon { shared, address, accepting })
    }

    /// The listening address for replicas.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The handle for writes and queries.
    pub fn handle(&self) -> OriginHandle {
        OriginHandle(Arc::clone(&self.shared))
    }

    /// Waits until it fails, which a healthy one never does.
    pub async fn failed(&self) {
        self.shared.stopped().await;
    }

    /// Ends the daemon: waiting writes are done first, and connections closed.
    ///
    /// # Errors
    /// The failure of the daemon, if there was one.
    pub async fn stop(mut self) -> Result<(), DaemonError> {
        /// For a disk that never answers.
        const TIMEOUT: Duration = Duration::from_secs(10);
        lock(&self.shared.core).closed = true;
        let done = async {
            while !lock(&self.shared.core).writes.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(TIMEOUT, done).await;
        self.shared.stop.send_replace(true);
        if let Some(log) = &self.shared.log {
            log.stop();
        }
        let _ = (&mut self.accepting).await;
        let worker = lock(&self.shared.core).close();
        end(worker).await;
        self.shared.body_reader.close();
        if self.shared.core.is_poisoned() {
            return Err(DaemonError::Panicked);
        }
        let failed = lock(&self.shared.core).failed.take();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Drop for OriginDaemon {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
        if let Some(log) = &self.shared.log {
            log.stop();
        }
        self.accepting.abort();
        let worker = lock(&self.shared.core).close();
        if let Some(worker) = worker {
            worker.abandon();
        }
        // Remaining handles cannot be used any more.
        self.shared.body_reader.close();
    }
}
