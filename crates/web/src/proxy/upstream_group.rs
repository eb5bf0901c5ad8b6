//! Servers that serve the same requests, as all threads share them: which of them are healthy and which has the
//! fewest requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;

use super::config::Upstream;
use super::pool::Connector;
use super::scheduler::UpstreamScheduler;

/// A server that could not be reached is avoided for so long, as long as there is another.
const AVOIDED_FOR: Duration = Duration::from_secs(5);

/// One of the servers.
pub(crate) struct UpstreamServer {
    pub(crate) config: Upstream,
    pub(crate) connector: Arc<Connector>,
    /// Whether health checks fail.
    is_unhealthy: AtomicBool,
    /// Until when it is avoided, in milliseconds since the start of the group.
    avoided_until: AtomicU64,
    in_service: AtomicUsize,
}

/// The servers.
pub(crate) struct UpstreamGroup {
    /// The prefix of its route; `/` for the servers of the whole site.
    pub(crate) route: String,
    pub(crate) servers: Vec<UpstreamServer>,
    /// The value of `Host` that they get, instead of the client's.
    pub(crate) host: Option<HeaderValue>,
    /// Where prefetches wait for room.
    pub(crate) scheduler: Option<Arc<UpstreamScheduler>>,
    /// Servers for prefetches only.
    pub(crate) prefetch: Option<Arc<UpstreamGroup>>,
    started: Instant,
    /// So that servers with equally many requests take turns.
    turn: AtomicUsize,
}

/// Servers that were tried for one request, as bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried(u64);

impl Tried {
    pub(crate) fn add(&mut self, server: usize) {
        self.0 |= 1 << server;
    }

    fn has(self, server: usize) -> bool {
        self.0 & 1 << server != 0
    }
}

/// Most servers of a group.
pub const MAX_SERVERS: usize = 64;

impl UpstreamServer {
    pub(crate) fn new(config: Upstream, connector: Arc<Connector>) -> Self {
        UpstreamServer {
            config,
            connector,
            is_unhealthy: AtomicBool::new(false),
            avoided_until: AtomicU64::new(0),
            in_service: AtomicUsize::new(0),
        }
    }

    /// Notes the result of health checks; whether that is news.
    pub(crate) fn set_healthy(&self, is_healthy: bool) -> bool {
        self.is_unhealthy.swap(!is_healthy, Ordering::Relaxed) == is_healthy
    }

    pub(crate) fn begin_service(&self) {
        self.in_service.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_service(&self) {
        self.in_service.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether health checks succeed, if there are some, and it could be reached at the last attempt.
    pub(crate) fn is_up(&self) -> bool {
        self.is_healthy() && !self.connector.is_down()
    }

    pub(crate) fn is_healthy(&self) -> bool {
        !self.is_unhealthy.load(Ordering::Relaxed)
    }
}

impl UpstreamGroup {
    pub(crate) fn new(
        servers: Vec<UpstreamServer>,
        host: Option<HeaderValue>,
        scheduler: Option<Arc<UpstreamScheduler>>,
    ) -> Self {
        let (started, turn) = (Instant::now(), AtomicUsize::new(0));
        let route = "/".to_owned();
        UpstreamGroup { route, servers, host, scheduler, prefetch: None, started, turn }
    }

    /// The same, for the paths with this prefix.
    pub(crate) fn with_route(self, prefix: Option<&str>) -> Self {
        UpstreamGroup { route: prefix.unwrap_or("/").to_owned(), ..self }
    }

    /// The same, with these servers for prefetches.
    pub(crate) fn with_prefetch_servers(mut self, servers: Vec<UpstreamServer>) -> Self {
        if !servers.is_empty() {
            self.prefetch = Some(Arc::new(UpstreamGroup::new(servers, self.host.clone(), None)));
        }
        self
    }

    /// All servers: those for demand, then those for prefetches only.
    pub(crate) fn all_servers(&self) -> impl Iterator<Item = &UpstreamServer> {
        self.servers.iter().chain(self.prefetch.iter().flat_map(|group| &group.servers))
    }

    /// The server for the next attempt of a request: a healthy one with the fewest requests in service. If none
    /// is healthy, an unhealthy one is better than none. `None` if all were tried.
    pub(crate) fn choose(&self, tried: Tried) -> Option<usize> {
        if self.servers.len() == 1 {
            return (!tried.has(0)).then_some(0);
        }
        let now = self.millis();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.servers.len();
        let in_turn = (0..count).map(|at| (turn + at) % count).filter(|at| !tried.has(*at));
        in_turn.min_by_key(|at| {
            let server = &self.servers[*at];
            let is_avoided = server.avoided_until.load(Ordering::Relaxed) > now;
            let in_service = server.in_service.load(Ordering::Relaxed);
            (!server.is_healthy(), is_avoided, in_service)
        })
    }

    /// Whether all servers are on this machine or in a private network.
    pub(crate) fn is_near(&self) -> bool {
        self.servers.iter().all(|server| server.connector.is_near())
    }

    /// A server could not be reached: others are tried first for a while.
    pub(crate) fn avoid(&self, server: usize) {
        let until = self.millis() + AVOIDED_FOR.as_millis() as u64;
        self.servers[server].avoided_until.store(until, Ordering::Relaxed);
    }

    fn millis(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}
