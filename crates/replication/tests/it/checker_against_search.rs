//! The checker, which gives each read the least position that fits, compared with searches through all
//! orders: on small random histories both have the same result. Order alone is searched by stateright's
//! tester; order and staleness together by trying all positions.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_replication::checker::{Acknowledged, Body, Changes, Log, Name, Observation, Read, check};
use proptest::prelude::*;
use stateright::semantics::{ConsistencyTester, SequentialConsistencyTester, SequentialSpec};

/// All objects at one moment, as one value to write and read.
#[derive(Clone, Debug, Default)]
struct Store(BTreeMap<Name, Body>);

#[derive(Clone, Debug)]
enum Operation {
    Write(Changes),
    Read(Vec<Name>),
}

#[derive(Clone, Debug, PartialEq)]
enum Returned {
    Written,
    Bodies(Vec<Option<Body>>),
}

impl SequentialSpec for Store {
    type Op = Operation;
    type Ret = Returned;

    fn invoke(&mut self, operation: &Operation) -> Returned {
        match operation {
            Operation::Write(changes) => {
                for (name, body) in changes {
                    match body {
                        Some(body) => self.0.insert(*name, *body),
                        None => self.0.remove(name),
                    };
                }
                Returned::Written
            }
            Operation::Read(names) => {
                Returned::Bodies(names.iter().map(|name| self.0.get(name).copied()).collect())
            }
        }
    }
}

/// The reads of one session in sequence: the names, and the bodies that it saw.
type Reads = Vec<Vec<(Name, Option<Body>)>>;

/// The names of a read, the position that it sees, and another one for a part of it.
type Drawn = (BTreeSet<Name>, usize, usize);

fn name() -> impl Strategy<Value = Name> {
    (0..3_u32).prop_map(Name)
}

/// Commits: some delete, some change several objects, and some restore an old body.
fn commits() -> impl Strategy<Value = Vec<Changes>> {
    let body = prop_oneof![3 => (0..6_u64).prop_map(|body| Some(Body(body))), 1 => Just(None)];
    let changes = proptest::collection::btree_map(name(), body, 1..3);
    proptest::collection::vec(changes, 0..5)
}

/// Reads that are mostly correct: each sees the state at a position, sometimes with a small part from another
/// one.
fn history() -> impl Strategy<Value = (Vec<Changes>, Vec<Reads>)> {
    let read = (proptest::collection::btree_set(name(), 1..3), 0..7_usize, 0..10_usize);
    let session = proptest::collection::vec(read, 1..4);
    let sessions = proptest::collection::vec((session, any::<bool>()), 2..4);
    (commits(), sessions).prop_map(|(commits, sessions)| {
        let states = states(&commits);
        let seen = |(mut reads, sorted): (Vec<Drawn>, bool)| -> Reads {
            if sorted {
                reads.sort_by_key(|(_, position, _)| *position);
            }
            let one = |(names, position, other): Drawn| {
                let state = |at: usize| &states[at.min(states.len() - 1)];
                let from = |at: usize| state(if at == 1 && other < 7 { other } else { position });
                (0..).zip(names).map(|(at, name)| (name, from(at).0.get(&name).copied())).collect()
            };
            reads.into_iter().map(one).collect()
        };
        let reads = sessions.into_iter().map(seen).collect();
        (commits, reads)
    })
}

fn by_search(commits: &[Changes], sessions: &[Reads]) -> bool {
    let mut tester = SequentialConsistencyTester::new(Store::default());
    for changes in commits {
        tester
            .on_invret(0, Operation::Write(changes.clone()), Returned::Written)
            .expect("a writer writes one after the other");
    }
    for (session, reads) in (1..).zip(sessions) {
        for read in reads {
            let names = read.iter().map(|(name, _)| *name).collect();
            let bodies = read.iter().map(|(_, body)| *body).collect();
            tester
                .on_invret(session, Operation::Read(names), Returned::Bodies(bodies))
                .expect("a session reads one after the other");
        }
    }
    tester.is_consistent()
}

fn by_checker(commits: &[Changes], sessions: &[Reads]) -> bool {
    let mut history = Vec::new();
    for (session, reads) in (0_u64..).zip(sessions) {
        for (at, read) in (0_u64..).zip(reads) {
            let seen = |body: Option<Body>| body.map_or(Observation::Absent, Observation::Body);
            history.push(Read {
                session,
                replica: session,
                began: Duration::from_secs(2 * at),
                ended: Duration::from_secs(2 * at + 1),
                bound: None,
                seen: read.iter().map(|(name, body)| (*name, seen(*body))).collect(),
            });
        }
    }
    check(&Log::new(commits.to_vec()), &[], &history).is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn checker_agrees_with_exhaustive_search((commits, sessions) in history()) {
        prop_assert_eq!(by_checker(&commits, &sessions), by_search(&commits, &sessions));
    }
}

/// A read of a history with times: session, replica, start, duration, bound, observations.
type Timed = (u64, u64, u64, u64, Option<u64>, Vec<(Name, Option<Body>)>);

/// Commits, when each was acknowledged, and reads that are mostly correct.
fn timed() -> impl Strategy<Value = (Vec<Changes>, Vec<u64>, Vec<Timed>)> {
    let names = proptest::collection::btree_set(name(), 1..3);
    let bound = prop_oneof![1 => Just(None), 2 => Just(Some(2)), 1 => Just(Some(20))];
    let read = (0..3_u64, 0..2_u64, 0..30_u64, 1..4_u64, bound, names, 0..6_usize);
    let reads = proptest::collection::vec(read, 1..5);
    (commits(), proptest::collection::vec(0..20_u64, 5), reads).prop_map(
        |(commits, mut acknowledged, reads)| {
            acknowledged.sort_unstable();
            acknowledged.truncate(commits.len());
            let states = states(&commits);
            let reads = reads.into_iter().map(|(who, place, began, lasts, bound, names, off)| {
                // Mostly the state at about that time.
                let then = acknowledged.partition_point(|at| *at < began);
                let state = &states[(then + 1).saturating_sub(off).min(states.len() - 1)];
                let seen = names.into_iter().map(|name| (name, state.0.get(&name).copied()));
                (who, place, began, lasts, bound, seen.collect())
            });
            let reads = reads.collect();
            (commits, acknowledged, reads)
        },
    )
}

/// The states of a log, from the empty one.
fn states(commits: &[Changes]) -> Vec<Store> {
    let mut states = vec![Store::default()];
    for changes in commits {
        let mut state = states[states.len() - 1].clone();
        state.invoke(&Operation::Write(changes.clone()));
        states.push(state);
    }
    states
}

/// Whether the first reads can be at these positions and the others at some. Each fits its observations, goes
/// back behind none of its session or replica, and reflects the commits that Δ requires.
fn can_be(states: &[Store], acknowledged: &[u64], reads: &[Timed], at: &mut Vec<usize>) -> bool {
    let Some((who, place, began, lasts, bound, seen)) = reads.get(at.len()) else {
        return true;
    };
    (0..states.len()).any(|position| {
        let fits = seen.iter().all(|(name, body)| states[position].0.get(name) == body.as_ref());
        let fresh = bound.is_none_or(|bound| {
            // The positions of commits count from 1.
            (0..).zip(acknowledged).all(|(commit, at)| at + bound >= *began || commit < position)
        });
        let ordered = at.iter().zip(reads).all(|(other, (session, replica, start, time, ..))| {
            let tied = session == who || replica == place;
            let behind = start + time >= *began || *other <= position;
            let before = began + lasts >= *start || position <= *other;
            !tied || (behind && before)
        });
        if !(fits && fresh && ordered) {
            return false;
        }
        at.push(position);
        let found = can_be(states, acknowledged, reads, at);
        at.pop();
        found
    })
}

fn by_positions(commits: &[Changes], acknowledged: &[u64], reads: &[Timed]) -> bool {
    can_be(&states(commits), acknowledged, reads, &mut Vec::new())
}

fn by_checker_in_time(commits: &[Changes], acknowledged: &[u64], reads: &[Timed]) -> bool {
    let writes: Vec<_> = (1..)
        .zip(commits.iter().zip(acknowledged))
        .map(|(position, (changes, at))| Acknowledged {
            position,
            changes: changes.clone(),
            at: Duration::from_secs(*at),
        })
        .collect();
    let history: Vec<_> = reads
        .iter()
        .map(|(session, replica, began, lasts, bound, seen)| Read {
            session: *session,
            replica: *replica,
            began: Duration::from_secs(*began),
            ended: Duration::from_secs(began + lasts),
            bound: bound.map(Duration::from_secs),
            seen: seen
                .iter()
                .map(|(name, body)| (*name, body.map_or(Observation::Absent, Observation::Body)))
                .collect(),
        })
        .collect();
    check(&Log::new(commits.to_vec()), &writes, &history).is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn checker_with_staleness_agrees_with_exhaustive_search(
        (commits, acknowledged, reads) in timed()
    ) {
        prop_assert_eq!(
            by_checker_in_time(&commits, &acknowledged, &reads),
            by_positions(&commits, &acknowledged, &reads)
        );
    }
}

#[test]
fn both_verdicts_occur_with_staleness() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let verdicts = (0..300).map(|_| {
        let tree = timed().new_tree(&mut runner).expect("a history");
        let (commits, acknowledged, reads) = tree.current();
        by_checker_in_time(&commits, &acknowledged, &reads)
    });
    let fine = verdicts.filter(|fine| *fine).count();
    assert!((30..270).contains(&fine), "{fine} of 300 histories are fine");
}

#[test]
fn both_verdicts_occur() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let verdicts = (0..300).map(|_| {
        let tree = history().new_tree(&mut runner).expect("a history");
        let (commits, sessions) = tree.current();
        by_checker(&commits, &sessions)
    });
    let fine = verdicts.filter(|fine| *fine).count();
    assert!((30..270).contains(&fine), "{fine} of 300 histories are fine");
}
