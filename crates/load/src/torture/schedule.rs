//! The faults and their times, from a seed.

use std::time::Duration;

use lull_sim::random::Random;

use super::history::Fault;

/// A planned fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// Length of the time without faults before it.
    pub(super) pause: Duration,
    pub(super) fault: Fault,
    /// How long it lasts; for a killed daemon, until it is started.
    pub(super) lasts: Duration,
    /// The error of the wall clock in nanoseconds, for a skew.
    pub(super) ahead: i64,
}

/// The faults of one machine: every kind once, in a random order, and again.
///
/// A running daemon does not follow a step of its clock. So a skew is always followed by a kill: the clock
/// stays as it is, and the daemon starts with it.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    random: Random,
    next: Vec<Fault>,
    /// The clock was set, and the daemon has not started since.
    skewed: bool,
    /// Its next error is a large one.
    by_much: bool,
}

/// The last part of each round has no faults: only after some time without faults, a replica is judged that
/// regards itself as away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds(Duration);

/// A run consists of rounds of at most this length. If it is too short for one of the shortest, it has none.
const MAX_ROUND: Duration = Duration::from_secs(120);
const MIN_ROUND: Duration = Duration::from_secs(60);
/// The last part: longer than a replica may need to reconnect, so that some of it is judged. Its reads are
/// not made during faults, so it is not much longer.
const FAULT_FREE: Duration = Duration::from_secs(17);

impl Rounds {
    /// The rounds of a run.
    pub(super) fn of(length: Duration) -> Self {
        let count = length.as_nanos().div_ceil(MAX_ROUND.as_nanos()).max(1);
        Rounds(length / u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// How long to postpone a fault that would begin at this time of the run and last this long.
    pub(super) fn put_off(self, now: Duration, lasts: Duration) -> Duration {
        let Rounds(round) = self;
        if round < MIN_ROUND {
            return Duration::ZERO;
        }
        let within = Duration::from_nanos((now.as_nanos() % round.as_nanos()) as u64);
        if within + lasts <= round - FAULT_FREE { Duration::ZERO } else { round - within }
    }
}

/// The error of clocks, every other time: a replica that differs by as much from the origin does not use its
/// wall clock.
const LARGE_SKEW_MS: (u64, u64) = (600, 3_000);
/// The largest error at the other times: the clocks of two machines are close enough then.
const SMALL_SKEW_MS: u64 = 250;
/// One link in this many is cut until the other side considers it dead.
const LONG_CUTS: u64 = 5;

impl Schedule {
    pub(super) fn new(seed: u64, machine: u8) -> Self {
        let random = Random::of_part(seed, u64::from(machine));
        Schedule { random, next: Vec::new(), skewed: false, by_much: true }
    }

    /// The random generator for a torn disk.
    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn between(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(least_ms + self.random.below(most_ms - least_ms))
    }

    pub(super) fn next(&mut self) -> Planned {
        let fault = if self.skewed { Fault::Kill } else { self.draw() };
        self.skewed = fault == Fault::ClockSkew;
        let pause = self.between(200, 2_000);
        let lasts = match fault {
            Fault::LinkCut if self.random.below(LONG_CUTS) == 0 => self.between(10_000, 14_000),
            Fault::LinkCut => self.between(200, 5_000),
            Fault::Kill | Fault::PowerCut | Fault::TornPowerCut => self.between(0, 800),
            Fault::ClockSkew => self.between(1_000, 5_000),
        };
        let ahead = if self.skewed { self.skew() } else { 0 };
        Planned { pause, fault, lasts, ahead }
    }

    fn skew(&mut self) -> i64 {
        let (least, most) = if self.by_much { LARGE_SKEW_MS } else { (0, SMALL_SKEW_MS) };
        self.by_much = !self.by_much;
        let sign = if self.random.below(2) == 0 { 1 } else { -1 };
        sign * self.between(least, most).as_nanos() as i64
    }

    /// A kind that has not come since all have come, except for kills, which follow skews.
    fn draw(&mut self) -> Fault {
        if self.next.is_empty() {
            self.next.extend(Fault::ALL.into_iter().filter(|fault| *fault != Fault::Kill));
        }
        let drawn = self.random.below(self.next.len() as u64) as usize;
        self.next.swap_remove(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::history::RECONNECTING;

    fn begin(seed: u64, machine: u8) -> Vec<Planned> {
        let mut schedule = Schedule::new(seed, machine);
        (0..50).map(|_| schedule.next()).collect()
    }

    #[test]
    fn seed_determines_the_faults() {
        assert_eq!(begin(1, 0), begin(1, 0));
        assert_ne!(begin(1, 0), begin(1, 1));
        assert_ne!(begin(1, 0), begin(2, 0));
    }

    #[test]
    fn nothing_is_broken_at_the_end_of_a_round() {
        for (seconds, now_ms, lasts_ms, expected_ms) in [
            // Too short for a judgement.
            (59, 58_000, 2_000, 0),
            (60, 0, 0, 0),
            (60, 42_999, 1, 0),
            (60, 42_999, 2, 17_001),
            (60, 59_999, 0, 1),
            (119, 102_000, 0, 0),
            (120, 103_001, 0, 16_999),
            (130, 48_000, 0, 0),
            (130, 48_001, 0, 16_999),
            (130, 65_000, 14_000, 0),
            (1_800, 102_000, 1_001, 18_000),
            (1_800, 120_000, 14_000, 0),
            (1_800, 1_799_000, 0, 1_000),
        ] {
            let [now, lasts, expected] = [now_ms, lasts_ms, expected_ms].map(Duration::from_millis);
            let rounds = Rounds::of(Duration::from_secs(seconds));
            let what = format!("{lasts_ms} ms from {now_ms} ms of {seconds} s");
            assert_eq!(rounds.put_off(now, lasts), expected, "{what}");
        }
    }

    #[test]
    fn calm_lasts_longer_than_reconnecting() {
        assert!(FAULT_FREE >= RECONNECTING + Duration::from_secs(5));
    }

    #[test]
    fn daemon_restarts_with_the_clock_it_was_killed_with() {
        let planned = begin(7, 2);
        for (one, then) in planned.iter().zip(&planned[1..]) {
            assert_eq!(one.fault == Fault::ClockSkew, then.fault == Fault::Kill, "{one:?}");
        }
    }

    #[test]
    fn every_kind_of_fault_is_equally_frequent() {
        let planned = begin(7, 2);
        for fault in Fault::ALL {
            assert_eq!(planned.iter().filter(|one| one.fault == fault).count(), 10, "{fault:?}");
        }
    }

    #[test]
    fn clock_errors_cover_both_signs_and_magnitudes() {
        for seed in 0..20 {
            let planned = begin(seed, 2).into_iter().filter(|one| one.fault == Fault::ClockSkew);
            let ahead_ms: Vec<i64> = planned.map(|one| one.ahead / 1_000_000).collect();
            for (at, ms) in ahead_ms.iter().enumerate() {
                let (least, most) = if at % 2 == 0 { LARGE_SKEW_MS } else { (0, SMALL_SKEW_MS) };
                assert!((least..=most).contains(&ms.unsigned_abs()), "{ahead_ms:?}");
            }
            for sign in [-1, 1] {
                assert!(ahead_ms.iter().any(|ms| sign * ms > 0), "{ahead_ms:?}");
            }
        }
    }
}
