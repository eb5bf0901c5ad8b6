//! How much room there is for prefetches: by the scheduler of the upstream, or by the epochs' budget.

use std::sync::Arc;
use std::time::Duration;

use lull_speculate::budget::{Grant, Wanted};
use lull_speculate::scheduler::Room;

use super::Shared;
use crate::proxy::{Metrics, UpstreamScheduler};

/// While probes say that the server is loaded, clients ask again after so long.
const VETOED: Duration = Duration::from_secs(10);

impl Shared {
    /// Where prefetches wait for room at the upstream; none where the epochs' budget says how many there may be.
    pub(super) fn scheduler(&self) -> Option<&Arc<UpstreamScheduler>> {
        self.metrics.get().and_then(Metrics::scheduler)
    }

    /// How long a list a client may have now: as the upstream has room for it, or as the epochs' budget says.
    pub(super) fn grant(&self, wanted: Wanted) -> Grant {
        let now = self.now();
        let Some(scheduler) = self.scheduler() else { return self.monitor.ask(now, wanted) };
        if self.monitor.vetoes(now) {
            return Grant::Empty { again: VETOED };
        }
        if wanted.files == 0 {
            // Only what the visitor may point at.
            return Grant::List { length: 0, after: Duration::ZERO };
        }
        match scheduler.room(wanted.files) {
            Room::Hints(length) => Grant::List { length, after: Duration::ZERO },
            Room::Later(again) => Grant::Empty { again },
        }
    }
}

/// Does what the scheduler of the upstream has to do by the clock.
pub(super) async fn keep(shared: &Shared) {
    match shared.scheduler() {
        Some(scheduler) => scheduler.keep_time().await,
        None => std::future::pending().await,
    }
}
