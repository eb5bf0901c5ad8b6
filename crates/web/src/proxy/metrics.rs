//! Counters, one set per thread, so that counting is cheap.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::counter::Counter;
use super::error::Failure;
use super::scheduler::UpstreamScheduler;

/// The counters of one thread, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) requests: Counter,
    pub(crate) marked: Counter,
    pub(crate) responses: [Counter; 6],
    pub(crate) failures: [Counter; Failure::ALL.len()],
    pub(crate) bytes_received: Counter,
    pub(crate) bytes_sent: Counter,
    pub(crate) connections: Counter,
    pub(crate) closed: Counter,
    pub(crate) upstream_connections: Counter,
    pub(crate) retries: Counter,
}

impl Counters {
    pub(crate) fn count_response(&self, status: u16) {
        let class = usize::from(status / 100);
        self.responses[class.min(5)].increment();
    }

    pub(crate) fn open_connections(&self) -> u64 {
        self.connections.get().saturating_sub(self.closed.get())
    }

    pub(crate) fn count_failure(&self, failure: Failure) {
        self.failures[failure.index()].increment();
    }
}

/// An open connection, counted while this exists.
#[derive(Debug)]
pub(crate) struct Opened(Arc<Counters>);

impl Opened {
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        counters.connections.increment();
        Opened(Arc::clone(counters))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.closed.increment();
    }
}

/// The counters of all threads; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) threads: Arc<[Arc<Counters>]>,
    pub(crate) refused_connections: Arc<Counter>,
    /// Requests that may still go to the upstream, out of the concurrent ones permitted.
    pub(crate) upstream_room: Arc<Semaphore>,
    upstream_requests: usize,
    scheduler: Option<Arc<UpstreamScheduler>>,
}

impl Metrics {
    pub(crate) fn new(threads: usize, upstream_requests: usize) -> Self {
        let upstream_requests = upstream_requests.min(Semaphore::MAX_PERMITS);
        Metrics {
            threads: (0..threads).map(|_| Arc::default()).collect(),
            refused_connections: Arc::default(),
            upstream_room: Arc::new(Semaphore::new(upstream_requests)),
            upstream_requests,
            scheduler: None,
        }
    }

    /// The same counters, with the scheduler of one site's upstream.
    pub(crate) fn of_site(&self, scheduler: Option<Arc<UpstreamScheduler>>) -> Self {
        Metrics { scheduler, ..self.clone() }
    }

    /// The queue of prefetches for capacity at the upstream, if there is one.
    pub fn scheduler(&self) -> Option<&Arc<UpstreamScheduler>> {
        self.scheduler.as_ref()
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
        Totals {
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
        }
    }
}

/// Sums over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Requests that came in.
    pub requests: u64,
    /// Those with the mark of a prefetch, `X-Lull`.
    pub marked: u64,
    /// Responses by the first digit of their status.
    pub responses: [u64; 6],
    /// Failures, in the order of [`Failure::ALL`].
    pub failures: [u64; Failure::ALL.len()],
    /// Bytes of bodies that clients sent.
    pub bytes_received: u64,
    /// Bytes of bodies sent to clients.
    pub bytes_sent: u64,
    /// Connections of clients now.
    pub open_connections: u64,
    /// Connections of clients that were closed because their address had too many.
    pub refused_connections: u64,
    /// Connections that were made to the upstream.
    pub upstream_connections: u64,
    /// Requests that were sent a second time, because the upstream had closed an idle connection.
    pub retries: u64,
}

impl Totals {
    /// How often this failure happened.
    pub fn failures_of(&self, failure: Failure) -> u64 {
        self.failures[failure.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
