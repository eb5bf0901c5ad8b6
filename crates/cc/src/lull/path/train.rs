//! The train that a return begins with.

use super::{MAX_PATIENCE_MICROS, MIN_RETURN, ONE, Path, SHIFT};
use crate::lull::fair_queueing::{self, Finding};

impl Path {
    /// All packets of a train have arrived, with round-trip times from `low` to `high`.
    pub(super) fn end_train(&mut self, now: u64, low: u32, high: u32) {
        let (low, high) = (self.delay.queue(low), self.delay.queue(high));
        match self.fair_queueing.end_train(low, high, self.capacity.packet_micros()) {
            Finding::Shared => self.window = self.start_window(),
            Finding::Others => self.start_floor(now, self.patience.max(self.train_pause())),
            Finding::MaybeFree => self.lead.rounds = 0,
            Finding::Free => {
                self.growth.remember_window(self.full_window());
                self.idle_share = ONE;
                self.window = (self.full_window() / 4).max(MIN_RETURN);
            }
        }
    }

    pub(super) fn train_pause(&self) -> u64 {
        let full = self.full_window() >> SHIFT;
        let pause = fair_queueing::pause(full, self.capacity.packet_micros(), self.delay.min_rtt());
        pause.min(MAX_PATIENCE_MICROS)
    }
}
