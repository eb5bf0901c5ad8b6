//! The information in the round-trip times of a path: its length, its jitter, its queue.

use super::jitter::Jitter;
use super::part::{LeftOut, Part};

/// How long the lowest value is remembered, in microseconds: it counts from one to two times as long.
const MEMORY_MICROS: u64 = 100_000_000;
/// Larger variations, also above the round-trip time, do not count as jitter.
const MAX_NOISE_MICROS: u32 = 20_000;
/// In a shallow buffer the background yields to this part of a full queue: what others add until
/// it has left must still fit.
const SHALLOW_TRIGGER: u32 = 3;
/// More independent samples of a round than this count as so many.
const MAX_SAMPLES: u64 = 16;
/// The part of a full queue that jitter can be.
const FULL_QUEUE_PART: u32 = 8;
/// Round-trip times above this are cut, before they come here.
pub(super) const RTT_LIMIT: u32 = (1 << 24) - 1;

/// The lowest value of the last [`MEMORY_MICROS`] to two times as long; 0 without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lowest {
    since: u64,
    now: u32,
    before: u32,
}

impl Lowest {
    fn record(&mut self, now: u64, value: u32) {
        if self.now == 0 || now.saturating_sub(self.since) >= MEMORY_MICROS {
            self.before = self.now;
            self.now = value;
            self.since = now;
        } else {
            self.now = self.now.min(value);
        }
    }

    fn get(&self) -> u32 {
        match self.before {
            0 => self.now,
            before => before.min(self.now),
        }
    }
}

/// The delays of a path, learned from all connections that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delay {
    empty: Lowest,
    /// No full packet has come yet: `empty` is of small ones.
    is_of_small: bool,
    /// The round-trip time at losses: a lower empty path seen later makes the queue that they met longer.
    full: Lowest,
    jitter: Jitter,
    left_out: LeftOut,
}

impl Delay {
    pub(super) fn leave_out(&mut self, part: Part) {
        self.left_out.add(part);
    }

    /// The round-trip time to go by, of one that was measured: beside a small packet's, that of every full
    /// one would look like a queue. The values of small packets are discarded at the first full one.
    pub(super) fn adjust(&mut self, rtt: u32, is_small: bool) -> u32 {
        if self.min_rtt() == 0 {
            self.is_of_small = is_small;
        } else if self.is_of_small && !is_small {
            self.is_of_small = false;
            self.empty = Lowest::default();
        }
        if is_small && !self.is_of_small { rtt.max(self.min_rtt()) } else { rtt }
    }

    /// A round-trip time in microseconds that no receiver has held back.
    pub(super) fn handle_sample(&mut self, now: u64, rtt: u32) {
        self.jitter.handle_sample(now, rtt, self.min_rtt());
    }

    /// A round-trip time that may be the lowest.
    pub(super) fn record(&mut self, now: u64, rtt: u32) {
        self.empty.record(now, rtt.max(1));
    }

    /// The path is taken to be as long as this, in microseconds. Returns what was known of it.
    pub(super) fn replace_min_rtt(&mut self, now: u64, rtt: u32) -> Lowest {
        let before = self.empty;
        self.empty = Lowest { since: now, now: rtt, before: 0 };
        before
    }

    /// The path is as long as it was known to be.
    pub(super) fn restore_min_rtt(&mut self, known: Lowest) {
        self.empty = known;
    }

    /// A packet was lost while the round-trip time was `rtt`: the queue was full then.
    pub(super) fn record_full(&mut self, now: u64, rtt: u32) {
        let queue = rtt.saturating_sub(self.min_rtt());
        if queue > 0 {
            // One packet that was lost otherwise says little: a single value halves it at most.
            self.full.record(now, self.min_rtt() + queue.max(self.full_queue() / 2));
        }
    }

    /// How much the buffer holds is unknown.
    pub(super) fn forget_full_queue(&mut self) {
        self.full = Lowest::default();
    }

    /// The round-trip time of the empty path in microseconds; 0 while it is unknown.
    pub(super) fn min_rtt(&self) -> u32 {
        self.empty.get()
    }

    /// Only small packets have been seen.
    pub(super) fn is_of_small(&self) -> bool {
        self.is_of_small
    }

    /// How long a queue is that loses packets, in microseconds; 0 while it is unknown.
    pub(super) fn full_queue(&self) -> u32 {
        self.full.get().saturating_sub(self.min_rtt())
    }

    /// How far jitter raises round-trip times, in microseconds. A queue that loses packets is none,
    /// and a shallow buffer has no room to wait for a difference.
    pub(super) fn noise(&self) -> u32 {
        if self.is_shallow() || self.left_out.has(Part::NoiseFloor) {
            return 0;
        }
        let most = match self.full_queue() {
            0 => self.min_rtt().max(MAX_NOISE_MICROS),
            full => full / FULL_QUEUE_PART,
        };
        self.jitter.micros().min(most)
    }

    /// The path is known to have no jitter.
    pub(super) fn is_steady(&self) -> bool {
        self.jitter.is_steady()
    }

    /// The queue that a packet with the round-trip time `rtt` has met, in microseconds.
    pub(super) fn queue(&self, rtt: u32) -> u32 {
        rtt.saturating_sub(self.min_rtt() + self.noise())
    }

    /// The queue of a round of `micros` microseconds and so many packets, whose lowest round-trip time
    /// is `low`. The lowest of many samples has less jitter than one. Samples count as independent
    /// if they are further apart than twice the jitter.
    pub(super) fn queue_of_round(&self, low: u32, micros: u64, packets: u64) -> u32 {
        let noise = u64::from(self.noise());
        let samples = (micros / (2 * noise).max(1)).min(packets / 4).clamp(1, MAX_SAMPLES);
        low.saturating_sub(self.min_rtt() + (noise / samples) as u32)
    }

    /// The buffer holds less than half of what is in flight on the empty path.
    pub(super) fn is_shallow(&self) -> bool {
        let is_shallow = self.full_queue() > 0 && self.full_queue() < self.min_rtt() / 2;
        is_shallow && !self.left_out.has(Part::ShallowRules)
    }

    /// The queue above which the background yields, in microseconds. A packet takes
    /// `packet_micros` on the path. `is_shallow`: what others add until it has left must still fit.
    pub(super) fn trigger(&self, packet_micros: u64, is_shallow: bool) -> u32 {
        let mut trigger = 500 + u64::from(self.min_rtt() / 16).min(2_000) + packet_micros * 3 / 2;
        if self.full_queue() > 0 {
            let part = if is_shallow { SHALLOW_TRIGGER } else { 2 };
            let most = u64::from(self.full_queue() / part);
            trigger = trigger.min(most.max(packet_micros + 200));
        }
        trigger as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_is_forgotten_after_two_spans() {
        let mut lowest = Lowest::default();
        lowest.record(1, 30);
        lowest.record(MEMORY_MICROS + 1, 50);
        assert_eq!(lowest.get(), 30);
        lowest.record(2 * MEMORY_MICROS + 1, 60);
        assert_eq!(lowest.get(), 50);
    }

    #[test]
    fn single_loss_halves_a_full_queue_at_most() {
        let mut delay = Delay::default();
        delay.record(0, 50_000);
        delay.record_full(0, 58_000);
        delay.record_full(0, 50_300);
        assert_eq!(delay.full_queue(), 4_000);
    }

    #[test]
    fn trigger_is_a_part_of_a_full_queue() {
        let mut delay = Delay::default();
        delay.record(0, 50_000);
        assert_eq!(delay.trigger(1_200, false), 500 + 2_000 + 1_800);
        let mut deep = delay;
        deep.record_full(0, 78_000);
        assert_eq!(deep.trigger(1_200, false), 4_300);
        delay.record_full(0, 56_000);
        assert_eq!(delay.trigger(1_200, true), 2_000);
        assert!(delay.is_shallow());
        for _ in 0..3 {
            delay.record_full(0, 51_000);
        }
        assert_eq!(delay.trigger(1_200, true), 1_400, "a packet is no queue");
    }
}
