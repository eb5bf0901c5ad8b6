//! The room in the window for the host's own foreground.

use super::{MIN_RETURN, Path, Phase, SHIFT, TWO, WINDOW_LIMIT};
use crate::Timestamp;
use crate::lull::host::{ForegroundChange, HostTraffic};

/// Rounds with a queue that the host's own foreground may have caused, before it counts as others'.
pub(super) const EXPLAINED_ROUNDS: u32 = 8;
/// The host's foreground needs room if it is more than this part of the window, and does so for so many round-trip times
/// after it did last.
const ROOM_PART: u64 = 16;
const ROOM_RTTS: u64 = 4;

impl Path {
    /// Traffic of this host's foreground connections so far; to be called before each other event.
    pub fn handle_foreground(&mut self, now: Timestamp, seen: HostTraffic) {
        let now = self.advance(now);
        let min_rtt = self.delay.min_rtt();
        match self.host.handle(now, seen, min_rtt, self.capacity.packets_per_second()) {
            ForegroundChange::Begins if !self.is_at_floor() && !self.host.is_known() => {
                self.window = (self.window / 4).max(TWO)
            }
            ForegroundChange::Ends => self.handle_host_gone(now),
            ForegroundChange::Begins | ForegroundChange::None => {}
        }
        self.reserved = self.host.room(now, min_rtt);
        if self.reserved > self.window / ROOM_PART {
            self.reserved_at = now;
        }
    }

    /// The host's foreground has ended: the next pair may end the floor.
    fn handle_host_gone(&mut self, now: u64) {
        if let Phase::Floor { since } = self.phase {
            self.handle_others_gone(now, since);
            self.patience = 0;
            self.phase = Phase::Floor { since: now };
            self.slot = now;
        }
    }

    /// Without what is left to the host's own foreground. A train shows something only as a whole.
    pub(super) fn usable_window(&self) -> u64 {
        match self.fair_queueing.is_train() {
            true => self.window,
            false => self.window.saturating_sub(self.reserved).max(self.window.min(TWO)),
        }
    }

    /// Whether traffic of the host's own foreground explains the queue of the round-trip time `low`, and has not
    /// done so for long.
    pub(super) fn is_of_host(&self, low: u32) -> bool {
        let own = ((self.reserved >> (SHIFT / 2)) * self.capacity.packet_micros()) >> (SHIFT / 2);
        self.explained < EXPLAINED_ROUNDS && u64::from(self.delay.queue(low)) < own
    }

    /// A queue that the host's own foreground explains: the window has made room already. If it fills what that leaves,
    /// the path carries no more.
    pub(super) fn shrink_beside_host(&mut self) {
        let full = self.full_window().max(TWO);
        let is_used = self.usable_window() >= full.max(MIN_RETURN) && self.capacity.is_reached();
        self.explained += 1;
        self.window = self.window.min(full);
        if is_used {
            self.growth.hold_at(self.window);
            self.capacity.confirm();
        }
    }

    /// The window that may not be passed now. Rounds that leave room to the host's own foreground do not show whether the
    /// path carries more than the background uses of it.
    pub(super) fn most_beside_host(&self, now: u64) -> u64 {
        let full = self.full_window();
        match self.has_left_room(now) {
            false => WINDOW_LIMIT,
            true if self.capacity.is_confirmed() => full,
            true => (full + full / 4).max(MIN_RETURN) + self.reserved,
        }
    }

    /// A round-trip time that no receiver has held back. Bursts of the host's own foreground are not jitter of the path.
    pub(in crate::lull) fn handle_exact_sample(&mut self, now: u64, rtt: u32) {
        if !self.has_left_room(now) {
            self.delay.handle_sample(now, rtt);
        }
    }

    /// The host's foreground has needed room in the last rounds.
    pub(super) fn has_left_room(&self, now: u64) -> bool {
        let lasts = ROOM_RTTS * u64::from(self.delay.min_rtt());
        self.reserved_at > 0 && now < self.reserved_at + lasts
    }
}
