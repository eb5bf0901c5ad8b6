//! The trial of a longer path at the floor.

use super::{MIN_RETURN, ONE, Path, Phase, SETTLED_ROUNDS};
use crate::lull::part::Part;

/// A trial succeeds with a window that would be a queue of so many triggers.
const TRIAL_TRIGGERS: u32 = 3;
/// The same, at the least: where many hosts fill the path, so many packets lose some.
const MIN_TRIAL: u64 = 16 * ONE;
/// A path that became shorter by this part is another path.
const SHORTER_PART: u32 = 8;

impl Path {
    /// A pair at the floor has met a queue. Returns whether a trial begins.
    pub(super) fn handle_queued_pair(&mut self, now: u64, rtt: u32, since: u64) -> bool {
        let (min_rtt, noise) = (self.delay.min_rtt(), self.delay.noise());
        let longer = self.longer_path.handle_queue(now, rtt, min_rtt, noise);
        let Some(longer) = longer else { return false };
        if self.left_out.has(Part::LongerPath) {
            return false;
        }
        self.longer_path.begin_trial(self.delay.replace_min_rtt(now, longer), since);
        self.window = MIN_RETURN;
        self.window_before = MIN_RETURN;
        self.phase = Phase::Use { rounds: 0 };
        true
    }

    /// The window shows whether the path is longer.
    pub(in crate::lull) fn is_trial(&self) -> bool {
        self.longer_path.is_trial()
    }

    /// A receiver holds back the acknowledgements of a few packets.
    pub(in crate::lull) fn holds_back(&self) -> bool {
        self.longer_path.holds_back()
    }

    /// A floor begins at `now`, or goes on after a trial that has failed. Returns since when.
    pub(super) fn end_trial(&mut self, now: u64) -> u64 {
        self.longer_path.restart();
        let Some((shorter, since)) = self.longer_path.fail() else { return now };
        self.delay.restore_min_rtt(shorter);
        since
    }

    /// A round-trip time that is lower than any before. In a trial, the queue of others became shorter. Returns whether
    /// instead there is none, and a receiver has only held back pairs.
    pub(super) fn handle_lowest(&mut self, now: u64, rtt: u32) -> bool {
        let mut is_no_queue = false;
        let shorter = self.delay.min_rtt() - rtt;
        if self.longer_path.is_trial() && shorter > self.noise_margin() + self.delay.noise() {
            self.start_floor(now, self.patience);
            let most = self.noise_margin() + self.longer_path.wait_at_receiver();
            is_no_queue = self.delay.queue(rtt) <= most;
            if is_no_queue {
                self.longer_path.handle_no_queue();
            }
        }
        let min_rtt = self.delay.min_rtt();
        if rtt + self.noise_margin() < min_rtt {
            // Others' queue was taken for a part of the empty path.
            self.capacity.doubt();
        }
        if rtt < min_rtt {
            self.delay.record(now, rtt);
        }
        if rtt < min_rtt / SHORTER_PART * (SHORTER_PART - 1) {
            self.capacity.ignore_until(now + u64::from(min_rtt));
        }
        is_no_queue
    }

    /// A round of a trial has ended.
    pub(super) fn end_trial_round(
        &mut self,
        now: u64,
        (low, is_queue): (u32, bool),
        trigger: u32,
        may_grow: bool,
    ) {
        if is_queue && u64::from(self.delay.queue(low)) > self.own_queue() + u64::from(trigger) {
            self.start_floor(now, self.patience);
        } else if self.window_before >= self.packets_in(TRIAL_TRIGGERS * trigger).max(MIN_TRIAL) {
            self.longer_path.succeed();
            // The buffer of another path is unknown.
            self.delay.forget_full_queue();
            self.growth.remember_window(self.full_window());
            self.idle_share = ONE;
            self.phase = Phase::Use { rounds: SETTLED_ROUNDS };
        } else if may_grow {
            self.window += self.window / 2;
        }
    }
}
