//! Nice's record of round-trip times: `min_rtt` and `max_rtt` (SSR §4.1.2).

use crate::controller::reached;

/// Slots of the window. One slot of twenty is five per cent of them, after SSR §4.1.2, which uses five per
/// cent of the samples.
pub(crate) const SLOTS: usize = 20;
/// The shortest time of a slot. It also covers at least one round, so the window is at least 200 s and, at
/// long rounds, twenty rounds. The papers leave its length open.
pub(crate) const SLOT_MICROS: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Lowest round-trip time of the slot.
    pub(crate) low: u32,
    /// Highest mean round-trip time that two rounds of it, or of it and the previous slot, have reached. One
    /// late packet is not a full queue, and below two packets a round has one sample.
    pub(crate) high: u32,
    /// Highest round-trip time around a loss; 0 without one.
    pub(crate) full: u32,
}

/// The last twenty slots, and their estimates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RttHistory {
    pub(crate) min_rtt: u32,
    pub(crate) max_rtt: u32,
    pub(crate) slot_start: u64,
    pub(crate) slot: usize,
    pub(crate) slots: usize,
    /// Highest mean of a round of the slot.
    pub(crate) highest: u32,
    pub(crate) history: [Slot; SLOTS],
}

/// The two highest values that it was given.
#[derive(Default)]
struct Highest(u32, u32);

impl Highest {
    fn see(&mut self, value: u32) {
        if value > self.0 {
            *self = Highest(value, self.0);
        } else if value > self.1 {
            self.1 = value;
        }
    }
}

impl RttHistory {
    /// `true` until the first sample.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// Discards all state, which is no longer valid.
    pub(crate) fn forget(&mut self) {
        self.slots = 0;
    }

    /// Takes a round's lowest and mean round-trip time, in microseconds. The first sample of all has no mean,
    /// 0, because it counts in that of its round, and its packet may have been acknowledged late.
    pub(crate) fn remember(&mut self, now: u64, low: u32, mean: u32) {
        // A route change to a shorter path (Nice §2.2): a value below half of the shortest cannot be noise,
        // and no measurement of the old path is valid.
        if low < self.min_rtt / 2 {
            self.forget();
        }
        let before = if self.slots == 0 { 0 } else { self.highest };
        let high = mean.min(before);
        if self.slots == 0 || now.wrapping_sub(self.slot_start) >= SLOT_MICROS {
            self.highest = mean;
            self.slot = if self.slots == 0 { 0 } else { (self.slot + 1) % SLOTS };
            self.slots = (self.slots + 1).min(SLOTS);
            self.slot_start = now;
            self.history[self.slot] = Slot { low, high, full: 0 };
        } else {
            self.highest = before.max(mean);
            let slot = &mut self.history[self.slot];
            if low >= slot.low && high <= slot.high {
                return;
            }
            slot.low = slot.low.min(low);
            slot.high = slot.high.max(high);
        }
        self.estimate();
    }

    /// A loss with `seen` as the highest round-trip time around it: the queue was full then.
    pub(crate) fn remember_full(&mut self, seen: u32) {
        if self.slots > 0 && seen > self.history[self.slot].full {
            self.history[self.slot].full = seen;
            self.estimate();
        }
    }

    /// In place of the 5th and the 95th percentile of SSR §4.1.2 and their decaying averages: the lowest and
    /// the highest of the slots. With twenty slots one value at each end is an outlier and dropped; with
    /// fewer, none is. `docs/algorithm.md` explains why.
    fn estimate(&mut self) {
        let (mut low, mut second_low) = (u32::MAX, u32::MAX);
        let (mut high, mut full) = (Highest::default(), Highest::default());
        for slot in &self.history[..self.slots] {
            if slot.low < low {
                second_low = low;
                low = slot.low;
            } else if slot.low < second_low {
                second_low = slot.low;
            }
            high.see(slot.high);
            full.see(slot.full);
        }
        let mut high_and_full = (high.0, full.0);
        if self.slots == SLOTS {
            low = second_low;
            high_and_full = (high.1, if full.1 > 0 { full.1 } else { full.0 });
        }
        self.min_rtt = low;
        // Nice §2.3: max_rtt is 2 min_rtt until a better value is known. A loss is better: the queue was full
        // then.
        let full = if high_and_full.1 > 0 { high_and_full.1 } else { 2 * low };
        // A buffer below an eighth of the BDP cannot be distinguished from a random loss.
        self.max_rtt = high_and_full.0.max(full).max(low + low / 8);
    }
}

/// Rounds of a connection, separated by the count of delivered packets: a round ends when a packet that was
/// sent after its beginning is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rounds {
    pub(crate) round_end: u32,
    pub(crate) loss_end: u32,
    pub(crate) started: bool,
}

impl Rounds {
    /// Call it with each acknowledgement before other functions.
    pub(crate) fn start(&mut self, delivered: u32, acked: u32) {
        if !self.started {
            let before = delivered.wrapping_sub(acked);
            *self = Rounds { round_end: before, loss_end: before, started: true };
        }
    }

    /// `true` if this acknowledgement ends the round; the next one begins with it.
    pub(crate) fn pass(&mut self, delivered: u32, prior_delivered: u32) -> bool {
        let passed = reached(prior_delivered, self.round_end);
        if passed {
            self.round_end = delivered;
        }
        passed
    }

    /// `true` if a loss that this acknowledgement reveals is not part of the last reaction.
    pub(crate) fn is_new_loss(&self, prior_delivered: u32) -> bool {
        !self.started || reached(prior_delivered, self.loss_end)
    }

    /// A reaction closes the round.
    pub(crate) fn close_round(&mut self, delivered: u32) {
        *self = Rounds { round_end: delivered, loss_end: delivered, started: true };
    }
}
