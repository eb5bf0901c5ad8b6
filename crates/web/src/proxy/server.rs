//! The proxy as a whole: its listeners, its threads, and its end.

use std::net::TcpListener as StdTcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};
use tokio_rustls::TlsAcceptor;

use super::access_log::Log;
use super::acme;
use super::address::Address;
use super::counter::Counter;
use super::error::{Error, Result};
use super::event::{Event, Listener};
use super::hosted_site::HostedSites;
use super::idle_compression::IdleCompressor;
use super::io::Switch;
use super::limits::{Bounds, Gate, raise_descriptors};
use super::metrics::Metrics;
use super::proxy_config::Config;
use super::site::Site;
use super::site_setup::{self, SiteSetup, Task, reload_certificates};
use super::sockets::{self, Inherited};
use super::thread_counters::{Counters, Opened};
use super::tls::Certificates;
use super::traffic_thread::{Common, Phase, TrafficThread};
use super::upstream_group::UpstreamGroup;
use super::worker::Arrival;

/// How long nothing is accepted after a failure of the kernel, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the end of a thread waits for tasks that it cannot end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);
/// How often the files of the certificate are checked.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A running proxy. It ends immediately when it is dropped.
pub struct Server {
    /// The parts from which sites are made.
    pub(super) setup: SiteSetup,
    sites: Mutex<Arc<HostedSites>>,
    traffic: Vec<Arc<TrafficThread>>,
    /// Takes the work beside the traffic, which replaces the work before.
    tasks: mpsc::UnboundedSender<Vec<Task>>,
    phase: watch::Sender<Phase>,
    /// `None` once they were awaited.
    threads: Option<Vec<JoinHandle<()>>>,
    log: Option<Log>,
    pub(super) patience: Duration,
}

impl Server {
    /// Starts a proxy whose first site has this hook: when this returns, clients may connect.
    ///
    /// # Errors
    /// A problem of the configuration or the machine, in one line.
    pub fn start(
        config: Config,
        hook: Option<Arc<dyn Site>>,
        listener: Listener,
    ) -> Result<Server> {
        Server::start_on(Inherited::default(), config, vec![hook], listener)
    }

    /// Starts a proxy with a hook for each of its sites, in their order, and with sockets that the process was started
    /// with, each in the place of one that it would bind.
    ///
    /// # Errors
    /// As for [`start`](Server::start); also if a socket is for no address that it is to listen on.
    pub fn start_on(
        inherited: Inherited,
        mut config: Config,
        hooks: Vec<Option<Arc<dyn Site>>>,
        listener: Listener,
    ) -> Result<Server> {
        if let Some(acme) = &config.acme {
            acme::prepare(acme, &mut config.sites)?;
        }
        let certificates = Certificates::of_sites(&config.sites)?.map(Arc::new);
        let acceptor = match &certificates {
            Some(certificates) => Some(TlsAcceptor::from(Arc::new(certificates.server_config()?))),
            None => None,
        };
        let descriptors = raise_descriptors();
        let bounds = Bounds::new(&config.limits, descriptors);
        let doors = bind_all(inherited, &config, acceptor.as_ref())?;
        let threads = config.threads.map_or_else(
            || thread::available_parallelism().map_or(1, |count| count.get()),
            |given| given.get(),
        );
        let log = match &config.access_log {
            Some(to) => Some(Log::start(to, listener.clone())?),
            None => None,
        };
        let patience = config.timeouts.drain;
        let setup = SiteSetup {
            addresses: doors.iter().map(|(_, address, _)| *address).collect(),
            metrics: Metrics::new(threads, bounds.upstream_requests),
            visits: log.as_ref().map(Log::visits),
            config: Arc::new(config),
            certificates,
            challenges: Arc::default(),
            listener,
        };
        let mut hosted = Vec::new();
        let hooks = hooks.into_iter().chain(std::iter::repeat_with(|| None));
        for (site, hook) in setup.config.sites.iter().zip(hooks) {
            hosted.push(setup.host(setup.prepare(site)?, hook));
        }
        let (sites, upstreams) = site_setup::number(hosted);
        sites.all().iter().for_each(|site| setup.start_hook(site));
        let (tasks, beside) = mpsc::unbounded_channel();
        let mut server = Server {
            setup,
            sites: Mutex::default(),
            traffic: Vec::new(),
            tasks,
            phase: watch::channel(Phase::Running).0,
            threads: Some(Vec::new()),
            log,
            patience,
        };
        server.spawn(doors, &bounds, (&sites, &upstreams), beside)?;
        server.use_sites(sites, &upstreams);
        for Address { address, secure, .. } in server.addresses().iter().copied() {
            server.setup.listener.report(&Event::Listening { address, secure });
        }
        Ok(server)
    }

    /// Starts the threads, which serve these sites.
    fn spawn(
        &mut self,
        doors: Vec<BoundSocket>,
        bounds: &Bounds,
        (sites, upstreams): (&Arc<HostedSites>, &[Arc<UpstreamGroup>]),
        beside: mpsc::UnboundedReceiver<Vec<Task>>,
    ) -> Result<()> {
        let threads = self.threads.get_or_insert_default();
        let SiteSetup { config, metrics, listener, .. } = &self.setup;
        let common = Common {
            config: Arc::clone(config),
            gate: Gate::new(bounds),
            upstream_room: Arc::clone(&metrics.upstream_room),
            log: self.log.as_ref().map(Log::sender),
            switch: Arc::new(Switch {
                options: config.background.clone(),
                listener: listener.clone(),
                told: AtomicBool::new(false),
            }),
            idle_per_thread: config.limits.upstream_idle.div_ceil(metrics.threads.len()),
            challenges: Arc::clone(&self.setup.challenges),
            compressor: IdleCompressor::start(),
        };
        let mut lanes = Vec::new();
        for (number, counters) in metrics.threads.iter().enumerate() {
            let (sender, arrivals) = mpsc::unbounded_channel();
            lanes.push((sender, Arc::clone(counters)));
            let worker = TrafficThread::new(&common, number, Arc::clone(counters));
            worker.serving.replace(sites, upstreams);
            self.traffic.push(Arc::clone(&worker));
            let phases = self.phase.subscribe();
            threads.push(run_in_thread(format!("lull-web-{number}"), async move {
                worker.run(arrivals, phases).await;
            })?);
        }
        let acceptor = Arc::new(Acceptor {
            gate: Arc::clone(&common.gate),
            lanes,
            refused: Arc::clone(&metrics.refused_connections),
            listener: listener.clone(),
            is_starved: AtomicBool::new(false),
            is_told_of_refusal: AtomicBool::new(false),
        });
        let (certificates, listener) = (self.setup.certificates.clone(), listener.clone());
        let mut phases = self.phase.subscribe();
        threads.push(run_in_thread("lull-web-accept".to_owned(), async move {
            for door in doors {
                tokio::spawn(Arc::clone(&acceptor).accept(door));
            }
            tokio::select! {
                // Until no more connections are accepted. The runtime drops the listeners.
                _ = phases.wait_for(|phase| *phase != Phase::Running) => {}
                () = beside_accepting(beside, certificates, listener) => {}
            }
        })?);
        Ok(())
    }

    /// Serves these from the next request on.
    pub(super) fn use_sites(&self, sites: Arc<HostedSites>, upstreams: &[Arc<UpstreamGroup>]) {
        for thread in &self.traffic {
            thread.serving.replace(&sites, upstreams);
        }
        // Nothing takes it if the proxy drains.
        let _ = self.tasks.send(self.setup.tasks(&sites));
        *self.sites.lock().unwrap_or_else(PoisonError::into_inner) = sites;
    }

    /// The sites that are served now.
    pub(super) fn sites(&self) -> Arc<HostedSites> {
        Arc::clone(&self.sites.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn hooks(&self) -> Vec<Arc<dyn Site>> {
        self.sites().all().iter().filter_map(|site| site.hook.clone()).collect()
    }

    /// The listening addresses.
    pub fn addresses(&self) -> &[Address] {
        &self.setup.addresses
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.setup.metrics
    }

    /// Reloads the certificate if its files have changed, reopens the access log, and informs the site.
    pub fn reload(&self) {
        if let Some(certificates) = &self.setup.certificates {
            reload_certificates(certificates, &self.setup.listener);
        }
        if let Some(log) = &self.log {
            log.reopen();
        }
        self.hooks().iter().for_each(|hook| hook.reloaded());
    }

    /// Informs the site that the upstream has changed, for example by a new release that takes longer.
    pub fn upstream_changed(&self) {
        self.hooks().iter().for_each(|hook| hook.upstream_changed());
    }

    /// Begins the drain: no new connections, idle ones are closed, others after their requests in progress.
    pub fn drain(&self) {
        let connections = self.metrics().totals().open_connections;
        self.setup.listener.report(&Event::Draining { connections });
        self.phase.send_replace(Phase::Draining);
    }

    /// Whether all connections have ended since [`drain`](Self::drain).
    pub fn is_drained(&self) -> bool {
        self.threads.iter().flatten().all(|thread| thread.is_finished())
    }

    /// Ends it, and cuts the remaining connections.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(threads) = self.threads.take() else { return };
        let is_drained = threads.iter().all(JoinHandle::is_finished);
        let cut = if is_drained { 0 } else { self.metrics().totals().open_connections };
        self.phase.send_replace(Phase::Ended);
        for thread in threads {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
        self.hooks().iter().for_each(|hook| hook.ended());
        // The log waits for its last line.
        self.traffic.clear();
        self.setup.visits = None;
        if let Some(log) = self.log.take() {
            log.finish();
        }
        self.setup.listener.report(&Event::Stopped { cut });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// Listens on all addresses.
fn bind_all(
    mut inherited: Inherited,
    config: &Config,
    acceptor: Option<&TlsAcceptor>,
) -> Result<Vec<BoundSocket>> {
    if config.listen.is_empty() {
        return Err(Error::NoListener);
    }
    let mut doors = Vec::new();
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
        let at = Address { address, secure, background };
        site_setup::check_loop(&config.sites, &at)?;
        let tls = if secure { acceptor.cloned() } else { None };
        doors.push((socket, at, tls));
    }
    inherited.are_all_taken()?;
    Ok(doors)
}

/// Does the work of the sites, and looks at the files of certificates.
async fn beside_accepting(
    mut tasks: mpsc::UnboundedReceiver<Vec<Task>>,
    certificates: Option<Arc<Certificates>>,
    listener: Listener,
) {
    let mut running = JoinSet::new();
    let mut check = interval(CERTIFICATE_CHECK_INTERVAL);
    loop {
        tokio::select! {
            Some(next) = tasks.recv() => {
                running.abort_all();
                next.into_iter().for_each(|task| drop(running.spawn(task)));
            }
            _ = check.tick() => {
                if let Some(certificates) = &certificates {
                    reload_certificates(certificates, &listener);
                }
            }
        }
    }
}

/// Runs a future in a separate thread and runtime.
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
            // A running name resolution is not awaited.
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        })
        .map_err(Error::system("start a thread"))
}

type BoundSocket = (StdTcpListener, Address, Option<TlsAcceptor>);

/// Accepts connections and gives each to the thread with the fewest.
struct Acceptor {
    gate: Arc<Gate>,
    lanes: Vec<(mpsc::UnboundedSender<Arrival>, Arc<Counters>)>,
    refused: Arc<Counter>,
    listener: Listener,
    /// Whether the operator was informed that connections cannot be accepted.
    is_starved: AtomicBool,
    /// Likewise for a refused connection.
    is_told_of_refusal: AtomicBool,
}

impl Acceptor {
    async fn accept(self: Arc<Self>, (socket, door, tls): BoundSocket) {
        let Ok(socket) = TcpListener::from_std(socket) else { return };
        loop {
            let (stream, peer) = loop {
                match socket.accept().await {
                    Ok(accepted) => break accepted,
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        if !self.is_starved.swap(true, Ordering::Relaxed) {
                            let why = error.to_string();
                            self.listener.report(&Event::CannotAccept { why });
                        }
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            };
            self.is_starved.store(false, Ordering::Relaxed);
            // With one in hand: connections that wait in the kernel would have to wait for the other
            // listeners, too.
            let Some(room) = self.gate.room().await else { return };
            let Some(permit) = self.gate.admit(room, peer.ip()) else {
                self.refused.increment();
                if !self.is_told_of_refusal.swap(true, Ordering::Relaxed) {
                    let address = peer.ip().to_canonical();
                    self.listener.report(&Event::AddressRefused { address });
                }
                continue;
            };
            // Its new thread has a separate event loop.
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

/// Whether only the incoming connection has failed (accept(2)).
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
