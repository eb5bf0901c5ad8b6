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
use super::acme;
use super::address::Address;
use super::counter::Counter;
use super::error::{Error, Result};
use super::event::{Event, Listener};
use super::fetch::Fetcher;
use super::health;
use super::hosted_site::{HostedSite, HostedSites};
use super::io::Switch;
use super::limits::{Bounds, Gate, raise_descriptors};
use super::metrics::{Counters, Metrics, Opened};
use super::pool::Connector;
use super::proxy_config::Config;
use super::scheduler::UpstreamScheduler;
use super::site::Site;
use super::site_config::SiteConfig;
use super::sockets::{self, Inherited};
use super::tls::Certificates;
use super::traffic_thread::{Common, Phase, TrafficThread};
use super::upstream_group::{UpstreamGroup, UpstreamServer};
use super::worker::Arrival;

/// How long nothing is accepted after a failure of the kernel, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the end of a thread waits for tasks that it cannot end.
const LAST_WAIT: Duration = Duration::from_millis(100);
/// How often the files of the certificate are checked.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(5);

/// A running proxy. It ends immediately when it is dropped.
pub struct Server {
    addresses: Vec<Address>,
    phase: watch::Sender<Phase>,
    /// `None` once they were awaited.
    threads: Option<Vec<JoinHandle<()>>>,
    metrics: Metrics,
    certificates: Option<Arc<Certificates>>,
    log: Option<Log>,
    listener: Listener,
    sites: Arc<HostedSites>,
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
        let doors = open_doors(inherited, &config, acceptor.as_ref())?;
        let threads = config.threads.map_or_else(
            || thread::available_parallelism().map_or(1, |count| count.get()),
            |given| given.get(),
        );
        let metrics = Metrics::new(threads, bounds.upstream_requests);
        let log = match &config.access_log {
            Some(to) => Some(Log::start(to, listener.clone())?),
            None => None,
        };
        let (sites, upstreams) = host(&config, hooks, &listener)?;
        let patience = config.timeouts.drain;
        let common = Common {
            upstream_room: Arc::clone(&metrics.upstream_room),
            log: log.as_ref().map(Log::sender),
            switch: Arc::new(Switch {
                options: config.background.clone(),
                listener: listener.clone(),
                told: AtomicBool::new(false),
            }),
            idle_per_thread: config.limits.upstream_idle.div_ceil(threads),
            config: Arc::new(config),
            sites: Arc::new(sites),
            challenges: Arc::default(),
            upstreams,
        };
        let addresses: Vec<_> = doors.iter().map(|(_, address, _)| *address).collect();
        start_hooks(&common, &addresses, &metrics, log.as_ref(), &listener);
        let (phase, phases) = watch::channel(Phase::Running);
        let mut server = Server {
            addresses,
            phase,
            threads: Some(Vec::new()),
            metrics,
            certificates,
            log,
            listener,
            sites: Arc::clone(&common.sites),
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
        let is_secure = self.addresses.iter().any(|door| door.secure && !door.background);
        let checks = health_checks(common, is_secure, &listener);
        let acme = acme_tasks(common, certificates.as_ref(), &listener);
        threads.push(run_in_thread("lull-web-accept".to_owned(), async move {
            for door in doors {
                tokio::spawn(Arc::clone(&desk).accept(door));
            }
            checks.into_iter().for_each(|check| drop(tokio::spawn(check)));
            acme.into_iter().for_each(|task| drop(tokio::spawn(task)));
            let reload = async {
                loop {
                    sleep(CERTIFICATE_LOOK).await;
                    if let Some(certificates) = &certificates {
                        tell_reload(certificates, &listener);
                    }
                }
            };
            tokio::select! {
                // Until no more connections are accepted. The runtime drops the listeners.
                _ = phases.wait_for(|phase| *phase != Phase::Running) => {}
                () = reload => {}
            }
        })?);
        Ok(())
    }

    fn hooks(&self) -> impl Iterator<Item = &Arc<dyn Site>> {
        self.sites.all().iter().filter_map(|site| site.hook.as_ref())
    }

    /// The listening addresses.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Reloads the certificate if its files have changed, reopens the access log, and informs the site.
    pub fn reload(&self) {
        if let Some(certificates) = &self.certificates {
            tell_reload(certificates, &self.listener);
        }
        if let Some(log) = &self.log {
            log.reopen();
        }
        self.hooks().for_each(|hook| hook.reloaded());
    }

    /// Informs the site that the upstream has changed, for example by a new release that takes longer.
    pub fn upstream_changed(&self) {
        self.hooks().for_each(|hook| hook.upstream_changed());
    }

    /// Begins the drain: no new connections, idle ones are closed, others after their requests in progress.
    pub fn drain(&self) {
        let connections = self.metrics.totals().open_connections;
        self.listener.tell(&Event::Draining { connections });
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
        let cut = if is_drained { 0 } else { self.metrics.totals().open_connections };
        self.phase.send_replace(Phase::Ended);
        for thread in threads {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
        self.hooks().for_each(|hook| hook.ended());
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

/// Listens on all addresses.
fn open_doors(
    mut inherited: Inherited,
    config: &Config,
    acceptor: Option<&TlsAcceptor>,
) -> Result<Vec<Door>> {
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
        let servers = config.sites.iter().flat_map(SiteConfig::upstreams);
        let mut upstream = servers
            .flat_map(|upstream| &upstream.servers)
            .filter(|server| server.secure == secure)
            .flat_map(|server| server.addresses_of(address.port()));
        if upstream.any(|upstream| sockets::leads_to(upstream, address)) {
            return Err(Error::Loop { address });
        }
        let tls = if secure { acceptor.cloned() } else { None };
        doors.push((socket, Address { address, secure, background }, tls));
    }
    inherited.are_all_taken()?;
    Ok(doors)
}

/// Makes the sites and the upstreams of all of them.
fn host(
    config: &Config,
    hooks: Vec<Option<Arc<dyn Site>>>,
    listener: &Listener,
) -> Result<(HostedSites, Vec<Arc<UpstreamGroup>>)> {
    let mut upstreams = Vec::new();
    let mut sites = Vec::new();
    let hooks = hooks.into_iter().chain(std::iter::repeat_with(|| None));
    for (site, hook) in config.sites.iter().zip(hooks) {
        let first_upstream = upstreams.len();
        for upstream in site.upstreams() {
            let mut servers = Vec::new();
            for server in &upstream.servers {
                let roots = upstream.roots.as_deref();
                let connector = Connector::new(server, roots, config, listener.clone())?;
                servers.push(UpstreamServer::new(server.clone(), Arc::new(connector)));
            }
            let parameters = hook.as_ref().and_then(|hook| hook.schedules());
            let scheduler = parameters.map(UpstreamScheduler::new);
            let group = UpstreamGroup::new(servers, upstream.host.clone(), scheduler);
            upstreams.push(Arc::new(group));
        }
        sites.push(Arc::new(HostedSite { config: site.clone(), hook, first_upstream }));
    }
    Ok((HostedSites::new(sites), upstreams))
}

/// Tells the hooks what they work with.
fn start_hooks(
    common: &Common,
    addresses: &[Address],
    metrics: &Metrics,
    log: Option<&Log>,
    listener: &Listener,
) {
    let is_secure = addresses.iter().any(|door| door.secure && !door.background);
    for site in common.sites.all() {
        let Some(hook) = &site.hook else { continue };
        for address in addresses {
            hook.listens(*address);
        }
        if let Some(log) = log {
            hook.logs_to(log.visits());
        }
        let group = &common.upstreams[site.first_upstream];
        let fetcher = Fetcher::new(&group.servers[0], group.host.as_ref(), is_secure);
        let fetcher = fetcher.within(common.config.timeouts.head);
        hook.started(&metrics.of_site(group.scheduler.clone()), fetcher, listener);
    }
}

/// The health checks of all servers that have some.
fn health_checks(
    common: &Common,
    is_secure: bool,
    listener: &Listener,
) -> Vec<impl Future<Output = ()> + Send + use<>> {
    let configs = common.config.sites.iter().flat_map(SiteConfig::upstreams);
    let mut checks = Vec::new();
    for (group, config) in common.upstreams.iter().zip(configs) {
        let Some(check) = &config.health else { continue };
        for (at, server) in group.servers.iter().enumerate() {
            let fetcher = Fetcher::new(server, group.host.as_ref(), is_secure);
            let fetcher = fetcher.within(check.timeout);
            let (group, listener) = (Arc::clone(group), listener.clone());
            checks.push(health::watch(group, at, check.clone(), fetcher, listener));
        }
    }
    checks
}

/// What keeps the certificates of the sites that have theirs by ACME.
fn acme_tasks(
    common: &Common,
    certificates: Option<&Arc<Certificates>>,
    listener: &Listener,
) -> Vec<impl Future<Output = ()> + Send + use<>> {
    let (Some(acme), Some(certificates)) = (&common.config.acme, certificates) else {
        return Vec::new();
    };
    let sites = common.config.sites.iter().filter(|site| site.acme);
    let task = |site: &SiteConfig| {
        let (certificates, tells) = (Arc::clone(certificates), listener.clone());
        let issued = move || tell_reload(&certificates, &tells);
        let challenges = Arc::clone(&common.challenges);
        acme::keep(acme.clone(), site.clone(), challenges, listener.clone(), issued)
    };
    sites.map(task).collect()
}

fn tell_reload(certificates: &Certificates, listener: &Listener) {
    for reloaded in certificates.reload() {
        match reloaded {
            Ok(true) => listener.tell(&Event::CertificateLoaded),
            Ok(false) => {}
            Err(error) => listener.tell(&Event::CertificateKept { why: error.to_string() }),
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
            runtime.shutdown_timeout(LAST_WAIT);
        })
        .map_err(Error::system("start a thread"))
}

type Door = (StdTcpListener, Address, Option<TlsAcceptor>);

/// Accepts connections and gives each to the thread with the fewest.
struct Desk {
    gate: Arc<Gate>,
    lanes: Vec<(mpsc::UnboundedSender<Arrival>, Arc<Counters>)>,
    refused: Arc<Counter>,
    listener: Listener,
    /// Whether the operator was informed that connections cannot be accepted.
    is_starved: AtomicBool,
    /// Likewise for a refused connection.
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
            // With one in hand: connections that wait in the kernel would have to wait for the other
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
