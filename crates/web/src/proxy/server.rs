//! The proxy as a whole: its listeners, its threads, and its end.

use std::net::TcpListener as StdTcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::access_log::Log;
use super::address::Address;
use super::config::Config;
use super::counter::Counter;
use super::error::{Error, Result};
use super::event::{Event, Listener};
use super::fetch::Fetcher;
use super::io::Switch;
use super::limits::{Bounds, Gate, raise_descriptors};
use super::metrics::{Counters, Metrics, Opened};
use super::pool::Connector;
use super::scheduler::UpstreamScheduler;
use super::site::Site;
use super::sockets::{self, Inherited};
use super::traffic_thread::{Common, Phase, TrafficThread};
use super::worker::Arrival;
use crate::tls::Certificates;

/// How long nothing is accepted after the kernel could not, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the end of a thread waits for what it cannot end.
const LAST_WAIT: Duration = Duration::from_millis(100);
/// How often the files of the certificate are looked at.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(5);

/// A running proxy. Dropped, it ends at once.
pub struct Server {
    addresses: Vec<Address>,
    phase: watch::Sender<Phase>,
    /// `None` once it has been waited for.
    threads: Option<Vec<JoinHandle<()>>>,
    metrics: Metrics,
    certificates: Option<Arc<Certificates>>,
    log: Option<Log>,
    listener: Listener,
    site: Option<Arc<dyn Site>>,
    pub(super) patience: Duration,
}

impl Server {
    /// Starts it: when this returns, clients may come.
    ///
    /// # Errors
    /// What is wrong with the configuration or the machine, in one line.
    pub fn start(
        config: Config,
        site: Option<Arc<dyn Site>>,
        listener: Listener,
    ) -> Result<Server> {
        Server::start_on(Inherited::default(), config, site, listener)
    }

    /// The same with sockets that the process was started with, each in the place of one that it would bind.
    ///
    /// # Errors
    /// As for [`start`](Server::start); also if one is for no address that it is to listen on.
    pub fn start_on(
        mut inherited: Inherited,
        config: Config,
        site: Option<Arc<dyn Site>>,
        listener: Listener,
    ) -> Result<Server> {
        let certificates = match &config.certificate {
            Some(files) => Some(Arc::new(Certificates::load(files.clone())?)),
            None => None,
        };
        let acceptor = match &certificates {
            Some(certificates) => Some(TlsAcceptor::from(Arc::new(certificates.server_config()?))),
            None => None,
        };
        let descriptors = raise_descriptors();
        let bounds = Bounds::new(&config.limits, descriptors);
        let mut doors = Vec::new();
        if config.listen.is_empty() {
            return Err(Error::NoListener);
        }
        let background = config.listen_background.iter().map(|listen| (listen, true));
        for (listen, background) in config.listen.iter().map(|one| (one, false)).chain(background) {
            let secure = listen.secure.unwrap_or(acceptor.is_some());
            if secure && acceptor.is_none() {
                return Err(Error::NoCertificate { address: listen.address });
            }
            let socket = match inherited.at(listen.address) {
                Some(socket) => socket,
                None => sockets::bind(listen, &config.listen)?,
            };
            let address = socket.local_addr().map_err(Error::system("ask for an address"))?;
            let upstream = if config.upstream.secure == secure {
                config.upstream.addresses_of(address.port())
            } else {
                Vec::new()
            };
            if upstream.iter().any(|upstream| sockets::leads_to(*upstream, address)) {
                return Err(Error::Loop { address });
            }
            let tls = if secure { acceptor.clone() } else { None };
            doors.push((socket, Address { address, secure, background }, tls));
        }
        inherited.are_all_taken()?;
        let threads = config.threads.map_or_else(
            || thread::available_parallelism().map_or(1, |count| count.get()),
            |given| given.get(),
        );
        let scheduler = site.as_ref().and_then(|site| site.schedules()).map(UpstreamScheduler::new);
        let metrics = Metrics::new(threads, bounds.upstream_requests, scheduler);
        let log = match &config.access_log {
            Some(to) => Some(Log::start(to, listener.clone())?),
            None => None,
        };
        let patience = config.timeouts.drain;
        let common = Common {
            connector: Arc::new(Connector::new(&config, listener.clone())?),
            upstream_room: Arc::clone(&metrics.upstream_room),
            scheduler: metrics.scheduler.clone(),
            log: log.as_ref().map(Log::sender),
            switch: Arc::new(Switch {
                options: config.background.clone(),
                listener: listener.clone(),
                told: AtomicBool::new(false),
            }),
            idle_per_thread: config.limits.upstream_idle.div_ceil(threads),
            config: Arc::new(config),
            site,
        };
        if let Some(site) = &common.site {
            let config = &common.config;
            let connector = Arc::clone(&common.connector);
            let is_secure = doors.iter().any(|(_, door, _)| door.secure && !door.background);
            let fetcher = Fetcher::new(connector, config, is_secure);
            for (_, door, _) in &doors {
                site.listens(*door);
            }
            if let Some(log) = &log {
                site.logs_to(log.visits());
            }
            site.started(&metrics, fetcher, &listener);
        }
        let (phase, phases) = watch::channel(Phase::Running);
        let mut server = Server {
            addresses: doors.iter().map(|(_, address, _)| *address).collect(),
            phase,
            threads: Some(Vec::new()),
            metrics,
            certificates,
            log,
            listener,
            site: common.site.clone(),
            patience,
        };
        server.spawn(doors, &common, &bounds, &phases)?;
        for Address { address, secure, .. } in server.addresses.iter().copied() {
            server.listener.tell(&Event::Listening { address, secure });
        }
        Ok(server)
    }

    fn spawn(
        &mut self,
        doors: Vec<Door>,
        common: &Common,
        bounds: &Bounds,
        phases: &watch::Receiver<Phase>,
    ) -> Result<()> {
        let threads = self.threads.get_or_insert_default();
        let mut lanes = Vec::new();
        for (number, counters) in self.metrics.threads.iter().enumerate() {
            let (sender, arrivals) = mpsc::unbounded_channel();
            lanes.push((sender, Arc::clone(counters)));
            let worker = TrafficThread::new(common, Arc::clone(counters));
            let phases = phases.clone();
            threads.push(run_in_thread(format!("lull-web-{number}"), async move {
                worker.run(arrivals, phases).await;
            })?);
        }
        let desk = Arc::new(Desk {
            gate: Gate::new(bounds),
            lanes,
            refused: Arc::clone(&self.metrics.refused_connections),
            listener: self.listener.clone(),
            is_starved: AtomicBool::new(false),
            is_told_of_refusal: AtomicBool::new(false),
        });
        let certificates = self.certificates.clone();
        let (listener, mut phases) = (self.listener.clone(), phases.clone());
        threads.push(run_in_thread("lull-web-accept".to_owned(), async move {
            for door in doors {
                tokio::spawn(Arc::clone(&desk).accept(door));
            }
            let reload = async {
                loop {
                    sleep(CERTIFICATE_LOOK).await;
                    if let Some(certificates) = &certificates {
                        tell_reload(certificates, &listener);
                    }
                }
            };
            tokio::select! {
                // Until nothing more is to be accepted. The runtime takes the listeners with it.
                _ = phases.wait_for(|phase| *phase != Phase::Running) => {}
                () = reload => {}
            }
        })?);
        Ok(())
    }

    /// Where clients come in.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Loads the certificate anew if its files have changed, opens the access log anew, and tells the
    /// site.
    pub fn reload(&self) {
        if let Some(certificates) = &self.certificates {
            tell_reload(certificates, &self.listener);
        }
        if let Some(log) = &self.log {
            log.reopen();
        }
        if let Some(site) = &self.site {
            site.reloaded();
        }
    }

    /// Tells the site that the upstream is another one by now, such as a new release that takes longer.
    pub fn upstream_changed(&self) {
        if let Some(site) = &self.site {
            site.upstream_changed();
        }
    }

    /// Begins the end: nothing more is accepted, idle connections are closed, others after what is
    /// under way.
    pub fn drain(&self) {
        let connections = self.metrics.totals().open_connections;
        self.listener.tell(&Event::Draining { connections });
        self.phase.send_replace(Phase::Draining);
    }

    /// Whether all connections have ended since [`drain`](Self::drain).
    pub fn is_drained(&self) -> bool {
        self.threads.iter().flatten().all(|thread| thread.is_finished())
    }

    /// Ends it, and cuts what is left.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(threads) = self.threads.take() else { return };
        let is_drained = threads.iter().all(JoinHandle::is_finished);
        let cut = if is_drained { 0 } else { self.metrics.totals().open_connections };
        self.phase.send_replace(Phase::Ended);
        for thread in threads {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        if let Some(site) = &self.site {
            site.ended();
        }
        if let Some(log) = self.log.take() {
            log.finish();
        }
        self.listener.tell(&Event::Stopped { cut });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

fn tell_reload(certificates: &Certificates, listener: &Listener) {
    match certificates.reload() {
        Ok(true) => listener.tell(&Event::CertificateLoaded),
        Ok(false) => {}
        Err(error) => listener.tell(&Event::CertificateKept { why: error.to_string() }),
    }
}

/// Runs a future in a thread and a runtime of its own.
fn run_in_thread(
    name: String,
    future: impl Future<Output = ()> + Send + 'static,
) -> Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::system("start an event loop"))?;
    thread::Builder::new()
        .name(name)
        .spawn(move || {
            runtime.block_on(future);
            // A name that is being looked up is not waited for.
            runtime.shutdown_timeout(LAST_WAIT);
        })
        .map_err(Error::system("start a thread"))
}

type Door = (StdTcpListener, Address, Option<TlsAcceptor>);

/// Takes connections in and gives each to the thread that has the fewest.
struct Desk {
    gate: Arc<Gate>,
    lanes: Vec<(mpsc::UnboundedSender<Arrival>, Arc<Counters>)>,
    refused: Arc<Counter>,
    listener: Listener,
    /// Whether the operator knows that connections cannot be accepted.
    is_starved: AtomicBool,
    /// And that one was refused.
    is_told_of_refusal: AtomicBool,
}

impl Desk {
    async fn accept(self: Arc<Self>, (socket, door, tls): Door) {
        let Ok(socket) = TcpListener::from_std(socket) else { return };
        loop {
            let (stream, peer) = loop {
                match socket.accept().await {
                    Ok(accepted) => break accepted,
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        if !self.is_starved.swap(true, Ordering::Relaxed) {
                            let why = error.to_string();
                            self.listener.tell(&Event::CannotAccept { why });
                        }
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            };
            self.is_starved.store(false, Ordering::Relaxed);
            // With one in hand: what waits with the kernel would have to wait for the other
            // listeners, too.
            let Some(room) = self.gate.room().await else { return };
            let Some(permit) = self.gate.admit(room, peer.ip()) else {
                self.refused.increment();
                if !self.is_told_of_refusal.swap(true, Ordering::Relaxed) {
                    let address = peer.ip().to_canonical();
                    self.listener.tell(&Event::AddressRefused { address });
                }
                continue;
            };
            // The thread that it goes to has an event loop of its own.
            let Ok(stream) = stream.into_std() else { continue };
            let emptiest =
                self.lanes.iter().min_by_key(|(_, counters)| counters.open_connections());
            if let Some((lane, counters)) = emptiest {
                let opened = Opened::new(counters);
                let (tls, background) = (tls.clone(), door.background);
                let _ = lane.send(Arrival { stream, peer, tls, background, opened, permit });
            }
        }
    }
}

/// Whether it is only the connection that was to be accepted that has failed (accept(2)).
fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, NetworkDown,
        NetworkUnreachable,
    };
    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
    )
}
