//! The checker, which gives each read the least position that fits, against stateright's tester,
//! which searches through all orders: on small random histories both come to the same.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_replicate::checker::{Body, Changes, Log, Name, Read, Seen, check};
use proptest::prelude::*;
use stateright::semantics::{ConsistencyTester, SequentialConsistencyTester, SequentialSpec};

/// All objects at one moment, as a thing that can be written and read.
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

/// What one session reads, one read after the other: of which names, and which bodies it saw.
type Reads = Vec<Vec<(Name, Option<Body>)>>;

/// The names of a read, the position that it sees, and another one for a part of it.
type Drawn = (BTreeSet<Name>, usize, usize);

fn name() -> impl Strategy<Value = Name> {
    (0..3_u32).prop_map(Name)
}

/// Commits of which some delete, some change several objects, and some bring an old body back.
fn commits() -> impl Strategy<Value = Vec<Changes>> {
    let body = prop_oneof![3 => (0..6_u64).prop_map(|body| Some(Body(body))), 1 => Just(None)];
    let changes = proptest::collection::btree_map(name(), body, 1..3);
    proptest::collection::vec(changes, 0..5)
}

/// Reads that are likely to be right: each sees the state at a position, a little of it now and then
/// from another one.
fn history() -> impl Strategy<Value = (Vec<Changes>, Vec<Reads>)> {
    let read = (proptest::collection::btree_set(name(), 1..3), 0..7_usize, 0..10_usize);
    let session = proptest::collection::vec(read, 1..4);
    let sessions = proptest::collection::vec((session, any::<bool>()), 2..4);
    (commits(), sessions).prop_map(|(commits, sessions)| {
        let mut states = vec![Store::default()];
        for changes in &commits {
            let mut state = states[states.len() - 1].clone();
            state.invoke(&Operation::Write(changes.clone()));
            states.push(state);
        }
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
            let seen = |body: Option<Body>| body.map_or(Seen::Absent, Seen::Body);
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
    fn the_checker_and_a_search_come_to_the_same((commits, sessions) in history()) {
        prop_assert_eq!(by_checker(&commits, &sessions), by_search(&commits, &sessions));
    }
}

#[test]
fn both_verdicts_come_up() {
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
