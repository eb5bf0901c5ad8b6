//! What is broken when, from a seed.

use std::time::Duration;

use lull_sim::random::Random;

use super::history::Fault;

/// A fault that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// For how long nothing is broken before it.
    pub(super) pause: Duration,
    pub(super) fault: Fault,
    /// For how long it lasts; of a killed daemon, until it is started.
    pub(super) lasts: Duration,
    /// By how much the wall clock is wrong, in nanoseconds: of a skew.
    pub(super) ahead: i64,
}

/// What becomes of one machine: every kind of fault once, in an order that is drawn, and again.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    random: Random,
    next: Vec<Fault>,
}

/// Of each of these times nothing begins to break in the last part: only when all has been whole for a while
/// is a replica judged that takes itself for away.
const ROUND: Duration = Duration::from_secs(120);
const CALM: Duration = Duration::from_secs(30);

/// How long nothing is to begin to break at a time of the run.
pub(super) fn calm(now: Duration) -> Duration {
    let within = Duration::from_nanos((now.as_nanos() % ROUND.as_nanos()) as u64);
    if within < ROUND - CALM { Duration::ZERO } else { ROUND - within }
}

/// Clocks are wrong by this at most: some of it is below what replicas take for good, most above.
const SKEW_MS: u64 = 3_000;
/// One link in so many is cut until the other side takes it for dead.
const LONG_CUTS: u64 = 5;

impl Schedule {
    pub(super) fn new(seed: u64, machine: u8) -> Self {
        Schedule { random: Random::of_part(seed, u64::from(machine)), next: Vec::new() }
    }

    /// What a torn disk draws from.
    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn between(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(least_ms + self.random.below(most_ms - least_ms))
    }

    pub(super) fn next(&mut self) -> Planned {
        if self.next.is_empty() {
            self.next = Fault::ALL.to_vec();
        }
        let drawn = self.random.below(self.next.len() as u64) as usize;
        let fault = self.next.swap_remove(drawn);
        let pause = self.between(200, 3_000);
        let lasts = match fault {
            Fault::LinkCut if self.random.below(LONG_CUTS) == 0 => self.between(10_000, 14_000),
            Fault::LinkCut => self.between(200, 5_000),
            Fault::Kill | Fault::PowerCut | Fault::TornPowerCut => self.between(0, 800),
            Fault::ClockSkew => self.between(1_000, 5_000),
        };
        let most = SKEW_MS * 1_000_000;
        let ahead = self.random.below(2 * most + 1).cast_signed() - most.cast_signed();
        Planned { pause, fault, lasts, ahead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(seed: u64, machine: u8) -> Vec<Planned> {
        let mut schedule = Schedule::new(seed, machine);
        (0..50).map(|_| schedule.next()).collect()
    }

    #[test]
    fn the_seed_says_what_is_broken_when() {
        assert_eq!(begin(1, 0), begin(1, 0));
        assert_ne!(begin(1, 0), begin(1, 1));
        assert_ne!(begin(1, 0), begin(2, 0));
    }

    #[test]
    fn nothing_begins_to_break_at_the_end_of_each_round() {
        for (now_ms, expected_ms) in
            [(0, 0), (89_999, 0), (90_000, 30_000), (119_999, 1), (120_000, 0), (3_599_000, 1_000)]
        {
            let [now, expected] = [now_ms, expected_ms].map(Duration::from_millis);
            assert_eq!(calm(now), expected, "{now_ms} ms");
        }
    }

    #[test]
    fn every_kind_of_fault_comes_as_often_as_any_other() {
        let planned = begin(7, 2);
        for fault in Fault::ALL {
            assert_eq!(planned.iter().filter(|one| one.fault == fault).count(), 10, "{fault:?}");
        }
        let skews = planned.iter().filter(|one| one.fault == Fault::ClockSkew);
        let ahead: Vec<i64> = skews.map(|one| one.ahead).collect();
        assert!(ahead.iter().any(|by| *by > 0) && ahead.iter().any(|by| *by < 0), "{ahead:?}");
    }
}
