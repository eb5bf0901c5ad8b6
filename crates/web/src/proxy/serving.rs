//! The sites that a thread serves. A reload replaces them as a whole.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::hosted_site::HostedSites;
use super::thread_counters::Counters;
use super::upstream_access::UpstreamAccess;
use super::upstream_group::UpstreamGroup;

/// The sites, and a thread's way to their upstreams.
#[derive(Default)]
pub(crate) struct Serving {
    pub(crate) sites: Arc<HostedSites>,
    /// The upstreams of all sites, by their numbers.
    pub(crate) upstreams: Vec<Arc<UpstreamAccess>>,
}

/// The same with its changes.
pub(crate) struct CurrentServing {
    current: RwLock<Arc<Serving>>,
    counters: Arc<Counters>,
    body_patience: Duration,
    /// Idle connections of each server, and how long they are kept.
    idle: (usize, Duration),
}

impl CurrentServing {
    pub(crate) fn new(
        counters: &Arc<Counters>,
        body_patience: Duration,
        idle: (usize, Duration),
    ) -> Self {
        let counters = Arc::clone(counters);
        CurrentServing { current: RwLock::default(), counters, body_patience, idle }
    }

    pub(crate) fn get(&self) -> Arc<Serving> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves these from the next request on. Idle connections to upstreams that stay are kept.
    pub(crate) fn replace(&self, sites: &Arc<HostedSites>, upstreams: &[Arc<UpstreamGroup>]) {
        let before = self.get();
        let access = |group: &Arc<UpstreamGroup>| {
            let known = before.upstreams.iter().find(|one| Arc::ptr_eq(&one.group, group));
            known.cloned().unwrap_or_else(|| {
                let (counters, body) = (&self.counters, self.body_patience);
                Arc::new(UpstreamAccess::new(group, counters, body, self.idle))
            })
        };
        let upstreams: Vec<_> = upstreams.iter().map(access).collect();
        let serving = Arc::new(Serving { sites: Arc::clone(sites), upstreams });
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = serving;
    }
}
