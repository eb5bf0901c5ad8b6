//! The prototype with many writers, by many seeds. `LULL_WRITERS_SEEDS` is the number of runs (300), and
//! `LULL_WRITERS_SEED` a single one.

use std::collections::BTreeMap;

use lull_replication_sim::writers::checker::Violation;
use lull_replication_sim::writers::{Options, SeededBug, Situation, run};

const SEEDS: u64 = 300;
/// Seeds in which a bug has to be found.
const SEEDS_OF_BUGS: u64 = 500;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds() -> std::ops::Range<u64> {
    match variable("LULL_WRITERS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("LULL_WRITERS_SEEDS").unwrap_or(SEEDS),
    }
}

#[test]
fn many_writers_keep_promises_under_any_fault() {
    let (mut reads, mut writes) = (0, 0);
    let mut met: BTreeMap<Situation, u64> = BTreeMap::new();
    let seeds = seeds();
    for seed in seeds.clone() {
        let writers = 1 + seed as usize % 4;
        let outcome = run(Options { seed, writers, ..Options::default() });
        let (violations, stuck) = (&outcome.violations, &outcome.stuck);
        let is_fine = violations.is_empty() && stuck.is_empty();
        assert!(is_fine, "LULL_WRITERS_SEED={seed}: {violations:?} {stuck:?}");
        reads += outcome.reads;
        writes += outcome.writes;
        for situation in outcome.situations {
            *met.entry(situation).or_default() += 1;
        }
    }
    let count = seeds.end - seeds.start;
    println!("{count} seeds, {reads} reads, {writes} writes, met in this many: {met:?}");
    let is_rare = |situation: &Situation| met.get(situation).is_none_or(|in_runs| *in_runs < 5);
    let rare: Vec<_> = Situation::ALL.into_iter().filter(is_rare).collect();
    assert!(count < 100 || rare.is_empty(), "{rare:?}");
}

/// The first violation that a bug causes, and its seed.
fn found(bug: SeededBug, expected: fn(&Violation) -> bool) -> (u64, Violation) {
    let violation = |seed| {
        let outcome = run(Options { seed, bug: Some(bug), ..Options::default() });
        Some((seed, outcome.violations.into_iter().find(expected)?))
    };
    let found = (0..SEEDS_OF_BUGS).find_map(violation);
    found.unwrap_or_else(|| panic!("{bug:?} is not found in {SEEDS_OF_BUGS} seeds"))
}

#[test]
fn checker_finds_each_seeded_bug_of_many_writers() {
    for bug in SeededBug::ALL {
        let expected: fn(&Violation) -> bool = match bug {
            SeededBug::IgnoresDependencies
            | SeededBug::WritesWithoutToken
            | SeededBug::StampForgetsLog => |one| matches!(one, Violation::Causal { .. }),
            SeededBug::TokenForgetsWriter => |one| matches!(one, Violation::Back { .. }),
            SeededBug::IgnoresTokens => |one| matches!(one, Violation::OwnWrite { .. }),
            SeededBug::AppliesHalf => |one| matches!(one, Violation::Torn { .. }),
            SeededBug::LeaseIgnoresWaiting => |one| matches!(one, Violation::Stale { .. }),
            SeededBug::AcknowledgesBeforeSync => |one| matches!(one, Violation::Lost { .. }),
        };
        let (seed, violation) = found(bug, expected);
        println!("{bug:?}: seed {seed}, {violation}");
    }
}
