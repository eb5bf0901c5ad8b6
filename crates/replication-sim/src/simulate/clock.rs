//! Clocks of machines, with errors.

use lull_replication::time::{LocalTime, Reading, WallTime};
use lull_sim::random::Random;

/// True time since the beginning of a run, in nanoseconds. No machine can see it.
pub(super) type TrueTime = u64;

/// A millisecond.
pub(super) const MS: TrueTime = 1_000_000;

/// The clocks of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// When the machine was booted, on its own clock.
    booted: i64,
    /// How fast its clocks run, in parts per million.
    drift: i64,
    /// How far its wall clock is ahead.
    ahead: i64,
}

const MILLION: i128 = 1_000_000;
/// Midnight before some day; what wall clocks show at the beginning.
const EPOCH: i64 = 1_700_000_000_000_000_000;

impl Clock {
    pub(super) fn new(random: &mut Random, drift: u32, ahead: i64) -> Self {
        let drift = i64::from(drift);
        Clock {
            booted: random.below(1 << 50) as i64,
            drift: random.below(2 * drift as u64 + 1) as i64 - drift,
            ahead,
        }
    }

    /// The wall clock is set.
    pub(super) fn step(&mut self, by: i64) {
        self.ahead += by;
    }

    fn passed(self, now: TrueTime) -> i64 {
        i64::try_from(i128::from(now) * (MILLION + i128::from(self.drift)) / MILLION)
            .unwrap_or(i64::MAX)
    }

    pub(super) fn read(self, now: TrueTime) -> Reading {
        let passed = self.passed(now);
        Reading {
            local: LocalTime::from_nanos(self.booted + passed),
            wall: WallTime::from_nanos(EPOCH + passed + self.ahead),
        }
    }

    /// The first moment at which the clock shows `local`, or now.
    pub(super) fn when(self, local: LocalTime, now: TrueTime) -> TrueTime {
        let passed = i128::from(local.as_nanos()) - i128::from(self.booted);
        let at = passed * MILLION / (MILLION + i128::from(self.drift));
        let mut at = u64::try_from(at.max(0)).unwrap_or(u64::MAX / 2);
        while self.read(at).local < local {
            at += 1;
        }
        at.max(now)
    }
}
