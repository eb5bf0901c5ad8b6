//! The site's server as seen by prefetching: its room, its times, and its address.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lull_cc::Timestamp;
use lull_speculate::budget::{Grant, Wanted};
use lull_speculate::scheduler::Room;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::monitor::Monitor;
use crate::proxy::{Fetcher, Metrics, ServerState, Totals, UpstreamScheduler};

/// While probes show that the server is loaded, clients ask again after this time.
const VETOED: Duration = Duration::from_secs(10);

/// State of the upstream.
#[derive(Debug)]
pub(super) struct UpstreamState {
    pub(super) monitor: Monitor,
    metrics: OnceLock<Metrics>,
    /// Whether the fetcher declares HTTPS.
    is_secure: OnceLock<Arc<AtomicBool>>,
    /// Has robots.txt requested at once.
    pub(super) robots_again: Notify,
}

impl UpstreamState {
    pub(super) fn new(monitor: Monitor) -> Self {
        UpstreamState {
            monitor,
            metrics: OnceLock::new(),
            is_secure: OnceLock::new(),
            robots_again: Notify::new(),
        }
    }

    /// The proxy runs. It starts once.
    pub(super) fn started(&self, metrics: &Metrics, fetcher: &Fetcher) {
        let _ = self.metrics.set(metrics.clone());
        let _ = self.is_secure.set(fetcher.secure());
    }

    /// Whether the upstream has room for prefetches.
    pub(super) fn has_room_ahead(&self) -> bool {
        self.metrics.get().is_none_or(Metrics::has_room_ahead)
    }

    /// The proxy's counters, those of requests only for this site, once it runs.
    pub(super) fn totals(&self) -> Option<Totals> {
        self.metrics.get().map(Metrics::totals)
    }

    /// The servers of the site, once the proxy runs.
    pub(super) fn servers(&self) -> Vec<ServerState> {
        self.metrics.get().map(Metrics::servers).unwrap_or_default()
    }

    /// The queue of prefetches for capacity at the upstream; none if the epochs' budget limits their number.
    pub(super) fn scheduler(&self) -> Option<&Arc<UpstreamScheduler>> {
        self.metrics.get().and_then(Metrics::scheduler)
    }

    /// The queues of all upstreams, each with the prefix of its route.
    pub(super) fn schedulers(&self) -> impl Iterator<Item = (&str, &Arc<UpstreamScheduler>)> {
        self.metrics.get().into_iter().flat_map(Metrics::schedulers)
    }

    /// How long a list a client may have now, by the upstream's room or by the epochs' budget.
    pub(super) fn grant(&self, now: Timestamp, wanted: Wanted) -> Grant {
        let Some(scheduler) = self.scheduler() else { return self.monitor.ask(now, wanted) };
        if self.monitor.vetoes(now) {
            return Grant::Empty { again: VETOED };
        }
        if wanted.files == 0 {
            // Only hints for hover.
            return Grant::List { length: 0, after: Duration::ZERO };
        }
        match scheduler.room(wanted.files) {
            Room::Hints(length) => Grant::List { length, after: Duration::ZERO },
            Room::Later(again) => Grant::Empty { again },
        }
    }

    /// A visitor came by HTTPS, perhaps to a proxy in front: the fetcher must send the site the same.
    pub(super) fn visited_by_https(&self) {
        if let Some(is_secure) = self.is_secure.get()
            && !is_secure.load(Ordering::Relaxed)
        {
            is_secure.store(true, Ordering::Relaxed);
        }
    }

    /// Does the timed work of the schedulers of all upstreams.
    pub(super) async fn keep_time(&self) {
        let mut all = JoinSet::new();
        for (_, scheduler) in self.schedulers() {
            let scheduler = Arc::clone(scheduler);
            all.spawn(async move { scheduler.keep_time().await });
        }
        while all.join_next().await.is_some() {}
        std::future::pending().await
    }
}
