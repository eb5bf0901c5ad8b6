//! Comparisons, and the treatment of their results.

use std::time::Duration;

use lull_replication::time::LocalTime;
use lull_transport::set_low_disk_priority;

use super::compare::{Comparison, Slice};
use super::scan_result::{Names, simplify};
use super::{Ended, WatchEvent, Watcher};
use crate::daemon::{Clock, MachineClock};

/// A stray write begins a comparison after this time: more writes may follow.
const SETTLE: Duration = Duration::from_millis(50);
/// The pause between two comparisons because of stray writes is this many times as long as a comparison, and
/// at least [`MIN_REST`].
const RESTS: u32 = 10;
const MIN_REST: Duration = Duration::from_secs(1);

/// A comparison requested by stray writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stray {
    /// There was a stray write since the last comparison began.
    is_due: bool,
    /// When the last comparison began, and when the next one may begin.
    begun: LocalTime,
    rests: LocalTime,
}

/// The thread has the lowest disk priority while this value exists.
struct LowPriority;

impl LowPriority {
    fn begin() -> Self {
        // Without it the comparison is the same, but slows others down.
        let _ = set_low_disk_priority(true);
        LowPriority
    }
}

impl Drop for LowPriority {
    fn drop(&mut self) {
        let _ = set_low_disk_priority(false);
    }
}

impl Watcher {
    /// Continues the comparison, or begins one.
    pub(super) fn compare(&mut self) -> Result<(), Ended> {
        let _low = LowPriority::begin();
        let pause = self.slice()?;
        let now = MachineClock.read().local;
        self.next_slice = now.plus(pause);
        self.advance_comparison(now);
        Ok(())
    }

    /// A file was written by a name that it no longer has: a comparison finds its other names.
    pub(super) fn stray(&mut self) {
        self.stray.is_due = true;
        self.advance_comparison(MachineClock.read().local);
    }

    /// Begins the next comparison earlier if stray writes request it.
    pub(super) fn advance_comparison(&mut self, now: LocalTime) {
        if self.stray.is_due && self.comparison.is_none() {
            let due = now.plus(SETTLE).max(self.stray.rests);
            self.next_slice = self.next_slice.min(due);
        }
    }

    /// Runs one slice. Returns the pause before the next one.
    fn slice(&mut self) -> Result<Duration, Ended> {
        if self.comparison.is_none() {
            self.stray.is_due = false;
            self.stray.begun = MachineClock.read().local;
        }
        let Watcher { comparison, index, events, root, origin, .. } = self;
        let comparison = comparison.get_or_insert_with(|| Comparison::new(index));
        let found = match comparison.slice(root, events, index, origin) {
            Slice::Pause(pause) => return Ok(pause),
            Slice::Done(found) => found,
        };
        self.comparison = None;
        let now = MachineClock.read().local;
        let rest = now.since(self.stray.begun).saturating_mul(RESTS).max(MIN_REST);
        self.stray.rests = now.plus(rest);
        self.plan_events()?;
        // Differences that events have reported meanwhile are ignored.
        let new = found.into_iter().filter(|(name, _)| !self.plan.awaits(name));
        let mut names: Names = new.collect();
        simplify(&mut names);
        if !names.is_empty() {
            let count = self.work(names)?;
            if count > 0 {
                (self.on_event)(WatchEvent::Repaired(count));
            }
        }
        Ok(self.compare)
    }
}
