//! A thread's access to an upstream: its connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::link::Link;
use super::multiplexed::MultiplexedPool;
use super::pool::Pool;
use super::thread_counters::Counters;
use super::upstream_group::UpstreamGroup;

/// The way of one thread to a group of servers.
pub(crate) struct UpstreamAccess {
    pub(crate) group: Arc<UpstreamGroup>,
    /// The way to its servers for prefetches only.
    prefetch: Option<Arc<UpstreamAccess>>,
    /// Idle connections, by server.
    pools: Vec<Pool>,
    /// Connections over HTTP/2, by server.
    multiplexed: Vec<MultiplexedPool>,
    pub(crate) counters: Arc<Counters>,
    /// For the next piece of an answer, or of a body that is sent.
    pub(crate) body_patience: Duration,
}

impl UpstreamAccess {
    /// `idle` connections of each server are kept, each for `idle_for`.
    pub(crate) fn new(
        group: &Arc<UpstreamGroup>,
        counters: &Arc<Counters>,
        body_patience: Duration,
        (idle, idle_for): (usize, Duration),
    ) -> Self {
        UpstreamAccess {
            group: Arc::clone(group),
            prefetch: group.prefetch.as_ref().map(|group| {
                Arc::new(UpstreamAccess::new(group, counters, body_patience, (idle, idle_for)))
            }),
            pools: group.servers.iter().map(|_| Pool::new(idle, idle_for)).collect(),
            multiplexed: group.servers.iter().map(|_| MultiplexedPool::new(idle_for)).collect(),
            counters: Arc::clone(counters),
            body_patience,
        }
    }

    /// The way of prefetches.
    pub(crate) fn for_prefetches(self: &Arc<Self>) -> &Arc<Self> {
        self.prefetch.as_ref().unwrap_or(self)
    }

    pub(crate) fn multiplexed(&self, server: usize) -> &MultiplexedPool {
        &self.multiplexed[server]
    }

    pub(crate) fn pool(&self, server: usize) -> &Pool {
        &self.pools[server]
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn sweep(&self, now: Instant) {
        self.pools.iter().for_each(|pool| pool.sweep(now));
        self.multiplexed.iter().for_each(|pool| pool.sweep(now));
        self.prefetch.iter().for_each(|access| access.sweep(now));
    }

    /// Closes all idle connections.
    pub(crate) fn clear(&self) {
        self.pools.iter().for_each(Pool::clear);
        self.multiplexed.iter().for_each(MultiplexedPool::clear);
        self.prefetch.iter().for_each(|access| access.clear());
    }
}

/// A request in service at a server, as long as this lives.
pub(crate) struct InService {
    upstream: Arc<UpstreamAccess>,
    server: u32,
}

impl InService {
    /// A request goes to a server.
    pub(crate) fn begin(upstream: &Arc<UpstreamAccess>, server: usize) -> Self {
        let service = InService { upstream: Arc::clone(upstream), server: server as u32 };
        if service.is_counted() {
            upstream.group.servers[server].begin_service();
        }
        service
    }

    /// A single server has no need of a count that all threads write.
    fn is_counted(&self) -> bool {
        self.upstream.group.servers.len() > 1
    }

    pub(crate) fn server(&self) -> usize {
        self.server as usize
    }

    pub(crate) fn upstream(&self) -> &Arc<UpstreamAccess> {
        &self.upstream
    }

    /// Keeps the connection for another request to the server.
    pub(crate) fn put(&self, link: Box<Link>) {
        self.upstream.pool(self.server()).put(link);
    }
}

impl Drop for InService {
    fn drop(&mut self) {
        if self.is_counted() {
            self.upstream.group.servers[self.server()].end_service();
        }
    }
}
