//! Counts from a time on; earlier events only lead to the steady state.

use super::Replay;

impl Replay<'_> {
    /// Earlier results are not counted. Requests count by when they were due, so they are unchanged.
    pub(super) fn settled(&mut self) {
        let now = self.now();
        let report = &mut self.tally.report;
        report.ahead = Default::default();
        report.statuses.clear();
        (report.demand.bytes, report.demand.per_second) = (0, 0.0);
        self.fetched_before = self.fetched.get();
        if let Some(monitor) = &mut self.monitor {
            monitor.reset(now);
        }
    }
}
