//! The counters of all threads, and what they say of a site.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::counter::Counter;
use super::scheduler::UpstreamScheduler;
use super::site_counters::SiteCounters;
use super::thread_counters::Counters;
use super::totals::Totals;
use super::upstream_group::UpstreamGroup;

/// The counters of all threads; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) threads: Arc<[Arc<Counters>]>,
    pub(crate) refused_connections: Arc<Counter>,
    /// Requests that may still go to the upstream, out of the concurrent ones permitted.
    pub(crate) upstream_room: Arc<Semaphore>,
    upstream_requests: usize,
    /// The site whose metrics these are, if they are of one.
    site: Option<OfSite>,
}

/// The sources of one site's metrics.
#[derive(Clone)]
struct OfSite {
    counters: Arc<SiteCounters>,
    upstreams: Vec<Arc<UpstreamGroup>>,
}

impl std::fmt::Debug for OfSite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfSite").finish_non_exhaustive()
    }
}

/// A server of a site's upstreams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// As the owner wrote it.
    pub server: String,
    /// Whether it passes its health check, if it has one, and could be reached at the last attempt.
    pub is_up: bool,
}

impl Metrics {
    pub(crate) fn new(threads: usize, upstream_requests: usize) -> Self {
        let upstream_requests = upstream_requests.min(Semaphore::MAX_PERMITS);
        Metrics {
            threads: (0..threads).map(|_| Arc::default()).collect(),
            refused_connections: Arc::default(),
            upstream_room: Arc::new(Semaphore::new(upstream_requests)),
            upstream_requests,
            site: None,
        }
    }

    /// The metrics of one site: its requests, with the connections of all sites.
    pub(crate) fn of_site(
        &self,
        counters: Arc<SiteCounters>,
        upstreams: Vec<Arc<UpstreamGroup>>,
    ) -> Self {
        Metrics { site: Some(OfSite { counters, upstreams }), ..self.clone() }
    }

    /// The queue of prefetches for capacity at the site's upstream, if there is one.
    pub fn scheduler(&self) -> Option<&Arc<UpstreamScheduler>> {
        self.site.as_ref()?.upstreams.first()?.scheduler.as_ref()
    }

    /// The queues of all upstreams of the site, each with the prefix of its route.
    pub fn schedulers(&self) -> impl Iterator<Item = (&str, &Arc<UpstreamScheduler>)> {
        let upstreams = self.site.iter().flat_map(|site| &site.upstreams);
        upstreams.filter_map(|group| Some((group.route.as_str(), group.scheduler.as_ref()?)))
    }

    /// The servers of the site.
    pub fn servers(&self) -> Vec<ServerState> {
        let upstreams = self.site.iter().flat_map(|site| &site.upstreams);
        let mut states: Vec<ServerState> = Vec::new();
        for server in upstreams.flat_map(|group| group.all_servers()) {
            let (name, is_up) = (server.config.to_string(), server.is_up());
            match states.iter_mut().find(|state| state.server == name) {
                // Of two routes.
                Some(state) => state.is_up &= is_up,
                None => states.push(ServerState { server: name, is_up }),
            }
        }
        states
    }

    /// Whether more than half of the allowed concurrent requests to the upstream are free. Only then there is
    /// capacity for prefetches: half of it stays for visitors.
    pub fn has_room_ahead(&self) -> bool {
        self.upstream_room.available_permits() > self.upstream_requests / 2
    }

    /// The counters since the start.
    pub fn totals(&self) -> Totals {
        let sum = |of: &dyn Fn(&Counters) -> u64| self.threads.iter().map(|one| of(one)).sum();
        let closed: u64 = sum(&|one| one.closed.get());
        let mut totals = Totals {
            requests: sum(&|one| one.requests.get()),
            marked: sum(&|one| one.marked.get()),
            responses: std::array::from_fn(|class| sum(&|one| one.responses[class].get())),
            failures: std::array::from_fn(|kind| sum(&|one| one.failures[kind].get())),
            bytes_received: sum(&|one| one.bytes_received.get()),
            bytes_sent: sum(&|one| one.bytes_sent.get()),
            open_connections: sum(&|one| one.connections.get()).saturating_sub(closed),
            refused_connections: self.refused_connections.get(),
            upstream_connections: sum(&|one| one.upstream_connections.get()),
            retries: sum(&|one| one.retries.get()),
        };
        if let Some(site) = &self.site {
            site.counters.replace(&mut totals);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::Failure;

    #[test]
    fn metrics_of_threads_are_summed() {
        let metrics = Metrics::new(2, 1);
        metrics.threads[0].requests.increment();
        metrics.threads[1].requests.add(2);
        metrics.threads[1].count_response(404);
        metrics.threads[0].count_failure(Failure::Reset);
        metrics.threads[0].connections.add(3);
        metrics.threads[0].closed.add(1);
        let totals = metrics.totals();
        assert_eq!((totals.requests, totals.responses[4], totals.open_connections), (3, 1, 2));
        assert_eq!(totals.failures_of(Failure::Reset), 1);
    }

    #[test]
    fn half_of_the_upstream_is_reserved_for_visitors() {
        for (all, ahead) in [(1, 1), (2, 1), (3, 2), (20, 10)] {
            let metrics = Metrics::new(1, all);
            let mut permits = Vec::new();
            while metrics.has_room_ahead() {
                permits.push(Arc::clone(&metrics.upstream_room).try_acquire_owned().unwrap());
            }
            assert_eq!(permits.len(), ahead, "of {all}");
            permits.pop();
            assert!(metrics.has_room_ahead(), "of {all}");
        }
    }
}
