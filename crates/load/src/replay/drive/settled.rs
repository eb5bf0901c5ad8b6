//! What counts from a time on, where what is before it is only to get there.

use super::Replay;

impl Replay<'_> {
    /// What has come by now counts for nothing. Requests do by when they were due, so they are left as they are.
    pub(super) fn settled(&mut self) {
        let now = self.now();
        let report = &mut self.tally.report;
        report.ahead = Default::default();
        report.statuses.clear();
        (report.demand.bytes, report.demand.per_second) = (0, 0.0);
        self.fetched_before = self.fetched.get();
        if let Some(monitor) = &mut self.monitor {
            monitor.begin(now);
        }
    }
}
