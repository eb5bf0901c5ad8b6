//! The noise floor of a path: how far jitter raises round-trip times without any queue.
//!
//! A link whose service pauses for milliseconds at a time (Wi-Fi, cellular) delays packets even
//! when no other flow sends. The noise floor is learned from how much round-trip times differ over
//! tens of milliseconds. A standing queue does not change that difference. Four conditions keep
//! the queue of other flows from being learned as noise:
//!
//! - Compared samples are 10 to 25 ms apart; a queue changes more slowly. Only the first 64 comparisons of a
//!   connection, whose window is small, may be up to 2 s apart.
//! - Of eight comparisons the lowest round-trip time must be near the path's lowest.
//! - The highest must not be far above the value that the differences explain: a burst that fills a queue is
//!   not jitter.
//! - After a loss, a mark or a timeout, the noise floor is at most 1/16 of the queue at that time. This holds
//!   for 4096 packets or two minutes: a queue that loses packets is a queue.
//!
//! `bpf/noise_floor.h` is the mirror for the kernel; change both together.

/// Samples closer than this may have waited for the same pause.
const MIN_LAG_MICROS: u64 = 10_000;
/// Samples further apart than this may differ by a queue.
const MAX_LAG_MICROS: u64 = 25_000;
/// The same bound for the first comparisons of a connection.
const FIRST_MAX_LAG_MICROS: u64 = 2_000_000;
/// How many comparisons are the first ones.
const FIRST_COMPARISONS: u32 = 64;
/// How many of them take large steps.
const LARGE_STEPS: u32 = 16;
/// How many of them take the largest steps.
const MAX_STEPS: u32 = 8;
/// Comparisons until the noise floor is set again.
const BLOCK: u32 = 8;
/// Deviations and delays below this are not noise.
const MIN_MICROS: u32 = 500;
/// The part of the queue at a loss that may be noise.
const LOSS_QUEUE_PART: u32 = 16;
/// Packets without a loss after which noise counts again.
const TRUSTED_PACKETS: u32 = 4096;
/// Time without a loss after which noise counts again, for a connection that sends little.
const TRUSTED_MICROS: u64 = 120_000_000;
/// Fractional bits of the deviation.
const SHIFT: u32 = 4;

/// Learns the noise floor of a path from round-trip times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoiseFloor {
    /// The sample that the next one is compared with, and its time.
    reference_at: u64,
    reference_rtt: u32,
    /// The median difference in microseconds, with [`SHIFT`] fractional bits.
    deviation: u32,
    /// Comparisons so far, up to [`FIRST_COMPARISONS`].
    compared: u32,
    /// Comparisons of the block, and the lowest and highest round-trip time in it.
    count: u32,
    low: u32,
    high: u32,
    noise: u32,
    /// Whether a packet was lost, when, and how many were delivered since, up to [`TRUSTED_PACKETS`].
    has_lost: bool,
    /// The highest noise floor while noise does not count in full.
    limit: u32,
    lost_at: u64,
    delivered: u32,
}

impl NoiseFloor {
    /// How far above the lowest round-trip time a sample may be without a queue, in microseconds.
    pub fn micros(&self) -> u32 {
        let since_loss = self.reference_at.saturating_sub(self.lost_at);
        let is_trusted =
            !self.has_lost || self.delivered >= TRUSTED_PACKETS || since_loss >= TRUSTED_MICROS;
        let noise = if is_trusted { self.noise } else { self.noise.min(self.limit) };
        if noise >= 2 * MIN_MICROS { noise } else { 0 }
    }

    /// A loss, a mark or a timeout, while round-trip times were this far above the lowest.
    pub fn handle_loss(&mut self, queue_micros: u32) {
        self.limit = queue_micros / LOSS_QUEUE_PART;
        self.has_lost = true;
        self.lost_at = self.reference_at;
        self.delivered = 0;
    }

    /// Packets were delivered.
    pub fn handle_delivery(&mut self, packets: u32) {
        self.delivered = self.delivered.saturating_add(packets).min(TRUSTED_PACKETS);
    }

    /// A round-trip time in microseconds, below 2^24, that no receiver has delayed. `now` is in microseconds,
    /// `min_rtt` is the lowest round-trip time of the path. Returns how far jitter raises round-trip times,
    /// in microseconds, at the end of a block without a queue.
    pub fn handle_sample(&mut self, now: u64, rtt: u32, min_rtt: u32) -> Option<u32> {
        let lag = now.saturating_sub(self.reference_at);
        let is_first = self.reference_rtt == 0;
        if !is_first && lag < MIN_LAG_MICROS {
            self.low = self.low.min(rtt);
            self.high = self.high.max(rtt);
            return None;
        }
        let longest = match self.compared {
            FIRST_COMPARISONS => MAX_LAG_MICROS,
            _ => FIRST_MAX_LAG_MICROS,
        };
        let mut learned = None;
        if !is_first && lag <= longest {
            self.compare(rtt.abs_diff(self.reference_rtt) << SHIFT);
            learned = self.add_to_block(rtt, min_rtt);
        }
        self.reference_at = now;
        self.reference_rtt = rtt;
        learned
    }

    /// Moves the deviation towards the median of all differences: a step up for each one above it,
    /// a step down for each one below. The first steps are large.
    fn compare(&mut self, difference: u32) {
        let (part, least) = match self.compared {
            compared if compared < MAX_STEPS => (1, 1_000 << SHIFT),
            compared if compared < LARGE_STEPS => (2, 4 << SHIFT),
            _ => (4, 4 << SHIFT),
        };
        let step = (self.deviation >> part) + least;
        if difference > self.deviation {
            self.deviation += step;
        } else {
            self.deviation = self.deviation.saturating_sub(step);
        }
        self.compared = (self.compared + 1).min(FIRST_COMPARISONS);
    }

    fn add_to_block(&mut self, rtt: u32, min_rtt: u32) -> Option<u32> {
        if self.count == 0 {
            self.low = rtt;
            self.high = rtt;
        }
        self.low = self.low.min(rtt);
        self.high = self.high.max(rtt);
        self.count += 1;
        if self.count < BLOCK {
            return None;
        }
        self.count = 0;
        let deviation = self.deviation >> SHIFT;
        let is_low = self.low.saturating_sub(min_rtt) <= (deviation * 3 / 2).max(MIN_MICROS);
        let is_bounded = self.high.saturating_sub(min_rtt) <= (deviation * 10).max(MIN_MICROS);
        if !is_bounded {
            self.noise -= self.noise / 2;
        } else if is_low {
            // Nine in ten samples are below 3.5 median differences, whether one direction has
            // jitter or both have.
            self.noise = deviation * 7 / 2;
            return Some(self.noise);
        } else {
            self.noise -= self.noise / 8;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_RTT: u32 = 30_000;

    /// Samples 12 ms apart, the first at 1 s.
    fn learn(floor: &mut NoiseFloor, rtts: impl IntoIterator<Item = u32>) -> u32 {
        for rtt in rtts {
            floor.handle_sample(floor.reference_at.max(1_000_000) + 12_000, rtt, MIN_RTT);
        }
        floor.micros()
    }

    /// Uniform jitter up to `most` microseconds, from a linear congruential generator.
    fn jitter(most: u32) -> impl Iterator<Item = u32> {
        let step = move |state: &mut u32| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some(MIN_RTT + ((u64::from(*state) * u64::from(most)) >> 32) as u32)
        };
        core::iter::repeat_n((), 400).scan(7, move |state, ()| step(state))
    }

    #[test]
    fn jitter_is_learned_in_proportion() {
        for most in [4_000, 8_000, 20_000] {
            let noise = learn(&mut NoiseFloor::default(), jitter(most));
            assert!((most * 6 / 10..most * 16 / 10).contains(&noise), "{noise} of {most}");
        }
    }

    #[test]
    fn constant_delay_adds_no_noise() {
        assert_eq!(learn(&mut NoiseFloor::default(), [MIN_RTT + 100; 400]), 0);
    }

    #[test]
    fn standing_queue_adds_no_noise() {
        let sawtooth = (0..400).map(|i| MIN_RTT + 10_000 + i % 100 * 200);
        assert_eq!(learn(&mut NoiseFloor::default(), sawtooth), 0);
    }

    #[test]
    fn bursts_add_no_noise() {
        let mut floor = NoiseFloor::default();
        let bursts = jitter(1_000).zip(0..).map(|(rtt, i)| if i % 8 == 7 { 90_000 } else { rtt });
        assert_eq!(learn(&mut floor, bursts), 0);
    }

    #[test]
    fn loss_limits_the_noise_floor_to_part_of_the_queue() {
        let mut floor = NoiseFloor::default();
        let noise = learn(&mut floor, jitter(8_000));
        floor.handle_loss(64_000);
        assert_eq!(floor.micros(), 4_000);
        floor.handle_loss(15_000);
        assert_eq!(floor.micros(), 0);
        floor.handle_delivery(TRUSTED_PACKETS - 1);
        assert_eq!(floor.micros(), 0);
        floor.handle_delivery(1);
        assert_eq!(floor.micros(), noise);
        floor.handle_loss(0);
        floor.handle_sample(floor.lost_at + TRUSTED_MICROS, MIN_RTT, MIN_RTT);
        assert_eq!(floor.micros(), noise);
    }

    #[test]
    fn samples_far_apart_are_not_compared_later() {
        let mut floor = NoiseFloor::default();
        learn(&mut floor, [MIN_RTT; 100]);
        for (i, rtt) in jitter(20_000).enumerate() {
            floor.handle_sample(10_000_000 + i as u64 * 40_000, rtt, MIN_RTT);
        }
        assert_eq!(floor.micros(), 0);
    }
}
