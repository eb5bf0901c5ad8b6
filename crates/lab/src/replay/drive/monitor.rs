//! The replay's own monitor: a budget, and what its probes say of the server.

use std::time::Duration;

use lull_speculate::budget::{Budget, Probe};

use super::exchange::Lane;

/// A monitor of the replay's own.
pub(super) struct Monitor {
    pub(super) budget: Budget,
    pub(super) lane: Lane<Probe>,
    pub(super) probe: String,
    pub(super) probes: u64,
    /// When the budget is looked after next, as far as that is seen to.
    pub(super) poll_at: Option<Duration>,
    /// Budget times seconds, up to the time of the last look.
    pub(super) sum: f64,
    pub(super) looked: Duration,
}

impl Monitor {
    /// Adds up the budget since the last look.
    pub(super) fn look(&mut self, now: Duration) {
        let since = now.saturating_sub(self.looked);
        self.sum += f64::from(self.budget.budget()) * since.as_secs_f64();
        self.looked = now;
    }
}
