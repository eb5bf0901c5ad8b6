//! Comparisons, and what is done about what they find.

use std::time::Duration;

use lull_transport::set_low_disk_priority;

use super::compare::{Comparison, Slice};
use super::seen::{Names, simplify};
use super::{Ended, WatchEvent, Watcher};
use crate::daemon::{Clock, MachineClock};

/// The thread has the lowest priority at the disk, for as long as this lives.
struct LowPriority;

impl LowPriority {
    fn begin() -> Self {
        // Without it the comparison is the same, and only slower for others.
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
    /// Goes on with the comparison, or begins one.
    pub(super) fn compare(&mut self) -> Result<(), Ended> {
        let _low = LowPriority::begin();
        let pause = self.slice()?;
        self.next_slice = MachineClock.read().local.plus(pause);
        Ok(())
    }

    /// One slice. Gives how long nothing is to be compared then.
    fn slice(&mut self) -> Result<Duration, Ended> {
        let Watcher { comparison, index, events, root, origin, .. } = self;
        let comparison = comparison.get_or_insert_with(|| Comparison::new(index));
        let found = match comparison.slice(root, events, index, origin) {
            Slice::Pause(pause) => return Ok(pause),
            Slice::Done(found) => found,
        };
        self.comparison = None;
        self.plan_heard()?;
        // What events have told of meanwhile is no difference.
        let new = found.into_iter().filter(|(name, _)| !self.plan.awaits(name));
        let mut names: Names = new.collect();
        simplify(&mut names);
        if !names.is_empty() {
            let count = self.work(names)?;
            if count > 0 {
                (self.tell)(WatchEvent::Repaired(count));
            }
        }
        Ok(self.compare)
    }
}
