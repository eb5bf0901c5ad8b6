//! Makes sites from their configuration, and what works for them beside the traffic.

use std::pin::Pin;
use std::sync::Arc;

use super::access_log::VisitLog;
use super::acme::{self, Challenges};
use super::address::Address;
use super::config::Upstream;
use super::error::{Error, Result};
use super::event::{Event, Listener};
use super::fetch::Fetcher;
use super::health;
use super::hosted_site::{HostedSite, HostedSites};
use super::metrics::Metrics;
use super::pool::Connector;
use super::proxy_config::Config;
use super::scheduler::UpstreamScheduler;
use super::site::Site;
use super::site_config::{SiteConfig, UpstreamConfig};
use super::site_counters::SiteCounters;
use super::sockets;
use super::tls::Certificates;
use super::upstream_group::{UpstreamGroup, UpstreamServer};

/// Work beside the traffic, until it is dropped.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The parts that all sites of a proxy share.
pub(crate) struct SiteSetup {
    pub(crate) config: Arc<Config>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) metrics: Metrics,
    pub(crate) visits: Option<VisitLog>,
    pub(crate) certificates: Option<Arc<Certificates>>,
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) listener: Listener,
}

/// A site whose upstreams can be reached, as far as that is known without trying.
pub(crate) struct PreparedSite {
    config: SiteConfig,
    /// The servers of each of its upstreams, for demand and for prefetches only.
    servers: Vec<[Vec<UpstreamServer>; 2]>,
}

impl SiteSetup {
    /// # Errors
    /// A problem of a certificate of an upstream.
    pub(crate) fn prepare(&self, config: &SiteConfig) -> Result<PreparedSite> {
        let mut all = Vec::new();
        for upstream in config.upstreams() {
            let connect = |server: &Upstream| {
                let (roots, listener) = (upstream.roots.as_deref(), self.listener.clone());
                let connector = Connector::new(server, roots, &self.config, listener)?;
                Ok(UpstreamServer::new(server.clone(), Arc::new(connector)))
            };
            let connect_all = |servers: &[Upstream]| servers.iter().map(connect).collect();
            let demand: Result<_> = connect_all(&upstream.servers);
            let prefetches: Result<_> = connect_all(&upstream.prefetch_servers);
            all.push([demand?, prefetches?]);
        }
        Ok(PreparedSite { config: config.clone(), servers: all })
    }

    /// Makes a site. Its hook has not started then.
    pub(crate) fn host(&self, site: PreparedSite, hook: Option<Arc<dyn Site>>) -> HostedSite {
        let PreparedSite { config, servers } = site;
        type Connected<'a> = ((&'a UpstreamConfig, Option<&'a str>), [Vec<UpstreamServer>; 2]);
        let group = |((upstream, prefix), [servers, ahead]): Connected<'_>| {
            let parameters = hook.as_ref().and_then(|hook| hook.schedules());
            let parameters =
                parameters.map(|one| if ahead.is_empty() { one } else { one.isolated() });
            let scheduler = parameters.map(UpstreamScheduler::new);
            let group = UpstreamGroup::new(servers, upstream.host.clone(), scheduler);
            Arc::new(group.with_route(prefix).with_prefetch_servers(ahead))
        };
        let prefixes = config.routes.iter().map(|route| Some(route.prefix.as_str()));
        let routes = config.upstreams().zip(std::iter::once(None).chain(prefixes));
        let upstreams = routes.zip(servers).map(group).collect();
        let counters = Arc::new(SiteCounters::new(self.metrics.threads.len()));
        HostedSite { config, hook, first_upstream: 0, upstreams, counters }
    }

    fn fetcher(&self, group: &UpstreamGroup, server: usize) -> Fetcher {
        let is_secure = self.addresses.iter().any(|door| door.secure && !door.background);
        Fetcher::new(&group.servers[server], group.host.as_ref(), is_secure)
    }

    /// Tells the hook of a site what it works with.
    pub(crate) fn start_hook(&self, site: &HostedSite) {
        let Some(hook) = &site.hook else { return };
        for address in &self.addresses {
            hook.listens(*address);
        }
        if let Some(visits) = &self.visits {
            hook.logs_to(visits.clone());
        }
        let fetcher = self.fetcher(&site.upstreams[0], 0).within(self.config.timeouts.head);
        let metrics = self.metrics.of_site(Arc::clone(&site.counters), site.upstreams.clone());
        hook.started(&metrics, fetcher, &self.listener);
    }

    /// The health checks and the certificates of sites, as long as these run.
    pub(crate) fn tasks(&self, sites: &HostedSites) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::new();
        for site in sites.all() {
            for (group, config) in site.upstreams.iter().zip(site.config.upstreams()) {
                let Some(check) = &config.health else { continue };
                for at in 0..group.servers.len() {
                    let fetcher = self.fetcher(group, at).within(check.timeout);
                    let (group, listener) = (Arc::clone(group), self.listener.clone());
                    let watch = health::watch(group, at, check.clone(), fetcher, listener);
                    tasks.push(Box::pin(watch));
                }
            }
            if site.config.acme
                && let (Some(acme), Some(certificates)) = (&self.config.acme, &self.certificates)
            {
                let (certificates, tells) = (Arc::clone(certificates), self.listener.clone());
                let issued = move || reload_certificates(&certificates, &tells);
                let (challenges, listener) = (Arc::clone(&self.challenges), self.listener.clone());
                let config = site.config.clone();
                tasks.push(Box::pin(acme::renew_certificates(
                    acme.clone(),
                    config,
                    challenges,
                    listener,
                    issued,
                )));
            }
        }
        tasks
    }
}

/// Uses certificates whose files have changed, and reports that.
pub(crate) fn reload_certificates(certificates: &Certificates, listener: &Listener) {
    for reloaded in certificates.reload() {
        match reloaded {
            Ok(true) => listener.report(&Event::CertificateLoaded),
            Ok(false) => {}
            Err(error) => listener.report(&Event::CertificateKept { why: error.to_string() }),
        }
    }
}

/// Numbers the upstreams of all sites.
pub(crate) fn number(mut sites: Vec<HostedSite>) -> (Arc<HostedSites>, Vec<Arc<UpstreamGroup>>) {
    let mut upstreams = Vec::new();
    for site in &mut sites {
        site.first_upstream = upstreams.len();
        upstreams.extend(site.upstreams.iter().cloned());
    }
    (Arc::new(HostedSites::new(sites.into_iter().map(Arc::new).collect())), upstreams)
}

/// # Errors
/// [`Error::Loop`] if an upstream of these sites is the proxy's own address.
pub(crate) fn check_loop(sites: &[SiteConfig], at: &Address) -> Result<()> {
    let servers = sites.iter().flat_map(SiteConfig::upstreams);
    let mut upstream = servers
        .flat_map(|upstream| upstream.servers.iter().chain(&upstream.prefetch_servers))
        .filter(|server| server.secure == at.secure)
        .flat_map(|server| server.addresses_of(at.address.port()));
    match upstream.any(|upstream| sockets::leads_to(upstream, at.address)) {
        true => Err(Error::Loop { address: at.address }),
        false => Ok(()),
    }
}
