//! Two kinds of time that are never mixed.
//!
//! Origin and replicas name moments to each other by wall clocks, [`WallTime`], which are set by people and
//! daemons. Each measures durations by a local clock that only runs forward, also during a suspend:
//! [`LocalTime`]. Both come in together, as a [`Reading`].

use core::fmt;
use core::time::Duration;

macro_rules! point_in_time {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(i64);

        impl $name {
            /// The time `nanos` nanoseconds after the epoch.
            pub const fn from_nanos(nanos: i64) -> Self {
                $name(nanos)
            }

            /// Nanoseconds since the epoch.
            pub const fn as_nanos(self) -> i64 {
                self.0
            }

            /// The time `by` later.
            #[must_use]
            pub fn plus(self, by: Duration) -> Self {
                $name(self.0.saturating_add(nanos(by)))
            }

            /// The time `by` earlier.
            #[must_use]
            pub fn minus(self, by: Duration) -> Self {
                $name(self.0.saturating_sub(nanos(by)))
            }

            /// Time from `earlier` to `self`, zero if `earlier` is the later one.
            pub fn since(self, earlier: Self) -> Duration {
                Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}.{:09} s", self.0.div_euclid(SECOND), self.0.rem_euclid(SECOND))
            }
        }
    };
}

const SECOND: i64 = 1_000_000_000;

point_in_time! {
    /// A point in time on the clock of one machine that only runs forward (`CLOCK_BOOTTIME`). It is
    /// meaningless on another machine, or after a reboot.
    LocalTime
}

point_in_time! {
    /// A point in time on a wall clock: nanoseconds since the beginning of 1970, UTC.
    WallTime
}

fn nanos(of: Duration) -> i64 {
    i64::try_from(of.as_nanos()).unwrap_or(i64::MAX)
}

/// The time of both clocks of a machine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reading {
    /// The clock for intervals.
    pub local: LocalTime,
    /// The clock for moments.
    pub wall: WallTime,
}

/// The largest error of a clock's rate, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drift(pub u32);

impl Drift {
    /// The largest error of a measured interval of length `interval`, rounded up.
    pub fn max_error(self, interval: Duration) -> Duration {
        let nanos = (interval.as_nanos() * u128::from(self.0)).div_ceil(1_000_000);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How long to wait by a clock that may be slow, so that `interval` has not passed.
    pub fn shorten(self, interval: Duration) -> Duration {
        interval.saturating_sub(self.max_error(interval))
    }

    /// The longest time that may have passed when a clock that may be slow shows `interval`.
    pub fn lengthen(self, interval: Duration) -> Duration {
        interval.saturating_add(self.max_error(interval))
    }

    /// The rate of one clock against another, if each may have this error.
    #[must_use]
    pub const fn of_two(self) -> Drift {
        Drift(self.0.saturating_mul(2))
    }
}

/// A wall clock without steps. It follows the machine's, but runs at most a little faster or slower than the
/// clock for intervals, and never backwards.
///
/// Otherwise a step of the machine's wall clock would lengthen each lease that was counted by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlewedClock {
    anchor: Reading,
    slew: Drift,
}

impl SlewedClock {
    /// A clock that starts with the machine's time, but not before `not_before`.
    pub fn new(now: Reading, not_before: WallTime, slew: Drift) -> Self {
        let wall = now.wall.max(not_before);
        SlewedClock { anchor: Reading { local: now.local, wall }, slew }
    }

    /// The time now.
    pub fn read(&mut self, now: Reading) -> WallTime {
        let passed = now.local.since(self.anchor.local);
        let projected = self.anchor.wall.plus(passed);
        // Rounded down. Otherwise a clock that is read often would slew faster than it may.
        let slack = Duration::from_nanos(
            u64::try_from(passed.as_nanos() * u128::from(self.slew.0) / 1_000_000)
                .unwrap_or(u64::MAX),
        );
        let wall = now.wall.clamp(projected.minus(slack), projected.plus(slack));
        self.anchor = Reading { local: now.local.max(self.anchor.local), wall };
        wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(local: i64, wall: i64) -> Reading {
        let nanos = |seconds: i64| seconds * SECOND;
        Reading {
            local: LocalTime::from_nanos(nanos(local)),
            wall: WallTime::from_nanos(nanos(wall)),
        }
    }

    #[test]
    fn step_of_the_wall_clock_is_slewed() {
        for (step, expected) in [(1_000, 10_000_000), (-1_000, -10_000_000), (0, 0)] {
            let mut clock = SlewedClock::new(at(0, 5_000), WallTime::default(), Drift(500));
            let shown = clock.read(at(20, 5_020 + step));
            assert_eq!(shown.as_nanos() - 5_020 * SECOND, expected, "a step of {step} s");
        }
    }

    #[test]
    fn clock_is_monotonic() {
        let mut clock =
            SlewedClock::new(at(0, 100), WallTime::from_nanos(900 * SECOND), Drift(500));
        let mut last = WallTime::from_nanos(900 * SECOND);
        for (local, wall) in [(0, 100), (1, 50), (1, 2_000), (0, 60), (3, 3)] {
            let shown = clock.read(at(local, wall));
            assert!(shown >= last, "{shown} after {last}");
            last = shown;
        }
    }

    #[test]
    fn drift_rounds_to_the_safe_side() {
        let drift = Drift(1_000);
        assert_eq!(drift.max_error(Duration::from_nanos(1)), Duration::from_nanos(1));
        assert_eq!(drift.shorten(Duration::from_secs(1)), Duration::from_millis(999));
        assert_eq!(drift.lengthen(Duration::from_secs(1)), Duration::from_millis(1_001));
    }
}
