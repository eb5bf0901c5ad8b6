//! The delays that LEDBAT and related controllers record (RFC 6817 §2.4.2).

/// `BASE_HISTORY` of RFC 6817 §2.4.2: minutes over which the lowest delay is that of the path.
const BASE_MINUTES: usize = 10;
/// `CURRENT_FILTER`: samples of which the lowest is the present delay. RFC 6817 leaves the number and the
/// filter open; the lowest of four ignores delays that a receiver adds to single ACKs.
const CURRENT_SAMPLES: usize = 4;
const MINUTE_MICROS: u64 = 60_000_000;
/// No sample yet.
const NONE: i64 = i64::MAX;

/// Converts one-way delays to differences from the first of them. So neither the offset between the two
/// clocks nor its wrapping matters (RFC 6817 §2.4.2, appendix A).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RelativeDelay(Option<u32>);

impl RelativeDelay {
    /// Microseconds above or below the first delay that it was given.
    pub(crate) fn since_first(&mut self, one_way_micros: u32) -> i64 {
        let first = *self.0.get_or_insert(one_way_micros);
        i64::from(one_way_micros.wrapping_sub(first) as i32)
    }
}

/// The lowest delay of the last minutes, and the present delay, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DelayHistory {
    /// The lowest delay of each minute, the current one first.
    minutes: [i64; BASE_MINUTES],
    minute: u64,
    samples: [i64; CURRENT_SAMPLES],
    next_sample: usize,
}

impl DelayHistory {
    pub(crate) fn new() -> Self {
        DelayHistory {
            minutes: [NONE; BASE_MINUTES],
            minute: 0,
            samples: [NONE; CURRENT_SAMPLES],
            next_sample: 0,
        }
    }

    /// Takes a sample.
    pub(crate) fn remember(&mut self, now_micros: u64, delay: i64) {
        self.samples[self.next_sample] = delay;
        self.next_sample = (self.next_sample + 1) % CURRENT_SAMPLES;
        let minute = now_micros / MINUTE_MICROS;
        if minute != self.minute {
            self.minute = minute;
            self.minutes.rotate_right(1);
            self.minutes[0] = delay;
        }
        self.minutes[0] = self.minutes[0].min(delay);
    }

    /// The lowest delay of the last minutes; `None` before the first sample.
    pub(crate) fn base(&self) -> Option<i64> {
        self.minutes.iter().copied().min().filter(|&delay| delay != NONE)
    }

    /// The present delay.
    pub(crate) fn current(&self) -> Option<i64> {
        self.samples.iter().copied().min().filter(|&delay| delay != NONE)
    }

    /// The queueing delay: the present delay minus the base.
    pub(crate) fn queueing(&self) -> Option<i64> {
        let queueing = self.current()? - self.base()?;
        debug_assert!(queueing >= 0, "the base covers every sample of the filter");
        Some(queueing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6817 §2.4.2.
    #[test]
    fn base_is_lowest_delay_of_ten_minutes() {
        let mut history = DelayHistory::new();
        assert_eq!(history.base(), None);
        history.remember(0, 100);
        for minute in 1..=9 {
            history.remember(minute * MINUTE_MICROS, 200 + minute as i64);
            assert_eq!(history.base(), Some(100), "minute {minute}");
        }
        history.remember(10 * MINUTE_MICROS, 300);
        assert_eq!(history.base(), Some(201));
    }

    #[test]
    fn current_delay_is_lowest_of_four_samples() {
        let mut history = DelayHistory::new();
        for delay in [100, 500, 400, 300] {
            history.remember(0, delay);
        }
        assert_eq!(history.queueing(), Some(0));
        history.remember(0, 450);
        assert_eq!((history.current(), history.queueing()), (Some(300), Some(200)));
    }

    #[test]
    fn clock_offset_may_wrap() {
        for first in [0, 7, u32::MAX - 3, 1 << 31] {
            let mut delay = RelativeDelay::default();
            assert_eq!(delay.since_first(first), 0);
            assert_eq!(delay.since_first(first.wrapping_add(1_000)), 1_000);
            assert_eq!(delay.since_first(first.wrapping_sub(1_000)), -1_000);
        }
    }
}
