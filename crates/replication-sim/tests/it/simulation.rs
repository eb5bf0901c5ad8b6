//! Origin, replicas and clients among networks and disks that fail, by many seeds.
//!
//! `LULL_REPLICATE_SEEDS` is the number of runs (300; 100 with relays), `LULL_REPLICATE_SEED` a single one, and
//! `LULL_REPLICATE_STEPS` the length of each. `LULL_REPLICATE_DATABASE_SEEDS` is how many of them use the
//! real store (100; 1,000 in `make test-full`): 40 ms each, so all processors share them.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::str::FromStr;
use std::thread;

use lull_replication::Fault;
use lull_replication::checker::Violation;
use lull_replication_sim::simulate::{Options, Outcome, Situation, Storage, Topology, run};

/// `make test-full` runs more.
const SEEDS: u64 = 300;
const DATABASE_SEEDS: u64 = 100;
/// Runs with relays take three times as long.
const SEEDS_OF_TREES: u64 = 100;
const STEPS: u64 = 2_000;
/// Seeds in which a bug has to be found.
const SEEDS_OF_BUGS: u64 = 5_000;

fn variable<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn steps() -> u64 {
    variable("LULL_REPLICATE_STEPS").unwrap_or(STEPS)
}

fn seeds() -> std::ops::Range<u64> {
    seeds_or(SEEDS)
}

fn seeds_or(usual: u64) -> std::ops::Range<u64> {
    match variable("LULL_REPLICATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("LULL_REPLICATE_SEEDS").unwrap_or(usual),
    }
}

fn outcome(seed: u64, fault: Option<Fault>) -> Outcome {
    let topology = match fault {
        Some(Fault::RelayAnswersPings) => Topology::Tree,
        _ => Topology::Star,
    };
    run(Options { seed, steps: steps(), fault, topology, ..Options::default() })
}

/// A run without a bug, which has to keep its promises.
fn fine(options: Options) -> Outcome {
    let outcome = run(Options { steps: steps(), ..options });
    let Outcome { violations, stuck, .. } = &outcome;
    let Options { seed, storage, step_slice, topology, .. } = options;
    let what =
        format!("LULL_REPLICATE_SEED={seed}, {storage:?}, slices of {step_slice}, {topology:?}");
    assert!(outcome.has_no_violation(), "{what}: {violations:?} {stuck:?}");
    outcome
}

/// In how many runs each situation has come up.
#[derive(Default)]
struct SituationCounts(BTreeMap<Situation, u64>);

impl SituationCounts {
    fn add(&mut self, outcome: &Outcome) {
        for situation in Situation::ALL.iter().filter(|one| outcome.situations.has(**one)) {
            *self.0.entry(*situation).or_default() += 1;
        }
    }

    fn join(mut self, other: SituationCounts) -> Self {
        for (situation, count) in other.0 {
            *self.0.entry(situation).or_default() += count;
        }
        self
    }

    /// A run proves nothing about a situation that it never meets. Each must occur in 1 % of 1,000 runs or
    /// more, and at least once in fewer.
    fn expect_all(&self, runs: u64, topology: Topology) {
        let is_checked =
            |situation: &&Situation| situation.is_of_relays() == (topology == Topology::Tree);
        let count = |situation: &Situation| self.0.get(situation).copied().unwrap_or(0);
        for situation in Situation::ALL.iter().filter(is_checked) {
            println!("{:>8} {situation:?}", count(situation));
        }
        let least = if runs < 1_000 { 1 } else { runs / 100 };
        let rare = |situation: &&Situation| count(situation) < least;
        let rare: Vec<_> = Situation::ALL.iter().filter(is_checked).filter(rare).collect();
        assert!(runs < 100 || rare.is_empty(), "in fewer than {least} of {runs} seeds: {rare:?}");
    }
}

#[test]
fn guarantees_hold_under_any_fault() {
    let (mut steps, mut reads, mut writes) = (0, 0, 0);
    let mut seen = SituationCounts::default();
    let seeds = seeds();
    for seed in seeds.clone() {
        let outcome = fine(Options { seed, ..Options::default() });
        steps += outcome.steps;
        reads += outcome.reads;
        writes += outcome.writes;
        seen.add(&outcome);
    }
    let count = seeds.end - seeds.start;
    println!("{count} seeds, {steps} steps, {reads} reads, {writes} writes");
    seen.expect_all(count, Topology::Star);
}

/// A step is made and taken over in slices of 256 changes, which no run has. Here a slice has one or two.
#[test]
fn guarantees_hold_with_sliced_steps() {
    let mut seen = SituationCounts::default();
    let seeds = seeds();
    for seed in seeds.clone() {
        let step_slice = 1 + seed as usize % 2;
        seen.add(&fine(Options { seed, step_slice, ..Options::default() }));
    }
    seen.expect_all(seeds.end - seeds.start, Topology::Star);
}

/// Three levels, and in some runs four: the origin, relays, and replicas below them. Every third run has slices of one
/// change.
#[test]
fn guarantees_hold_below_relays() {
    let (mut reads, mut seen) = (0, SituationCounts::default());
    let seeds = seeds_or(SEEDS_OF_TREES);
    for seed in seeds.clone() {
        let usual = Options { seed, topology: Topology::Tree, ..Options::default() };
        let step_slice = if seed % 3 == 0 { 1 } else { usual.step_slice };
        let outcome = fine(Options { step_slice, ..usual });
        reads += outcome.reads;
        seen.add(&outcome);
    }
    println!("{seeds:?} with relays: {reads} reads");
    seen.expect_all(seeds.end - seeds.start, Topology::Tree);
}

#[test]
fn guarantees_hold_with_databases_after_power_failures() {
    let seeds = match variable("LULL_REPLICATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("LULL_REPLICATE_DATABASE_SEEDS").unwrap_or(DATABASE_SEEDS),
    };
    let share = |seeds: Vec<u64>| {
        let mut seen = SituationCounts::default();
        let storage = Storage::Database;
        let runs = seeds.into_iter().map(|seed| Options { seed, storage, ..Options::default() });
        runs.for_each(|options| seen.add(&fine(options)));
        seen
    };
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let seen = thread::scope(|scope| {
        let shares = (0..processors).map(|at| seeds.clone().skip(at).step_by(processors).collect());
        let running: Vec<_> = shares.map(|seeds| scope.spawn(|| share(seeds))).collect();
        let joined =
            running.into_iter().map(|one| one.join().unwrap_or_else(|why| resume_unwind(why)));
        joined.fold(SituationCounts::default(), SituationCounts::join)
    });
    println!("{seeds:?} with databases");
    seen.expect_all(seeds.end - seeds.start, Topology::Star);
}

#[test]
fn seed_reproduces_its_run() {
    let [one, other] = [(); 2].map(|()| outcome(5, None));
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert_ne!(format!("{one:?}"), format!("{:?}", outcome(6, None)));
}

#[test]
fn each_seeded_bug_is_found() {
    for fault in Fault::ALL {
        // As this fault itself, not by one of its consequences.
        let shows = |violation: &&Violation| match fault {
            Fault::BodyBeforeInvalidations | Fault::HalfATransaction => {
                matches!(violation, Violation::Torn { .. } | Violation::Back { .. })
            }
            Fault::InvalidationLostOnReconnect => {
                matches!(violation, Violation::Torn { .. } | Violation::Stale { .. })
            }
            Fault::ArrivalTimeLease | Fault::SkewWithTheWrongSign | Fault::RelayAnswersPings => {
                matches!(violation, Violation::Stale { .. })
            }
            Fault::AcknowledgementBeforeDurable => matches!(violation, Violation::Lost { .. }),
            Fault::RestartThatGoesBack => matches!(violation, Violation::Back { .. }),
        };
        // Near the first seed that shows it: the search takes a minute from 0 on.
        let first = if fault == Fault::RestartThatGoesBack { 220 } else { 0 };
        let found = (first..SEEDS_OF_BUGS).find_map(|seed| {
            let violations = outcome(seed, Some(fault)).violations;
            violations.iter().find(shows).map(|violation| format!("seed {seed}: {violation}"))
        });
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} was not found in {SEEDS_OF_BUGS} seeds");
    }
}

#[test]
fn wrong_past_state_is_found() {
    let wrong = |seed| {
        let stuck = outcome(seed, Some(Fault::HalfATransaction)).stuck;
        stuck.into_iter().find(|one| one.starts_with("the state"))
    };
    let found = (0..SEEDS_OF_BUGS).find_map(|seed| Some((seed, wrong(seed)?)));
    println!("{found:?}");
    assert!(found.is_some());
}
