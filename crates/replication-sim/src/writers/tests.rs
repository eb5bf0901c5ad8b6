//! The checker finds what it must, and agrees with a search over all states.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::checker::{Event, Logged, Violation, check};
use super::{Object, SessionId, Vector, WriteId, WriterId};

const DELTA: Duration = Duration::from_secs(3);

fn object(owner: usize, number: u32) -> Object {
    Object { owner: WriterId(owner), number }
}

fn logged(write: u64, objects: &[Object]) -> Logged {
    Logged { write: WriteId(write), objects: objects.iter().copied().collect() }
}

fn began(session: usize, write: u64) -> Event {
    Event::Began { session: SessionId(session), write: WriteId(write) }
}

fn acknowledged(session: usize, write: u64, writer: usize, position: u64, second: u64) -> Event {
    let (session, write) = (SessionId(session), WriteId(write));
    let at = Duration::from_secs(second);
    Event::Acknowledged { session, write, writer: WriterId(writer), position, at }
}

fn read(session: usize, second: u64, seen: &[(Object, u64)]) -> Event {
    let seen = seen.iter().map(|(object, write)| (*object, WriteId(*write))).collect();
    Event::Read { session: SessionId(session), began: Duration::from_secs(second), seen }
}

#[test]
fn each_violation_is_named() {
    let [a, b, x] = [object(0, 0), object(0, 1), object(1, 0)];
    let log = vec![vec![logged(1, &[a, b])], vec![logged(2, &[x])]];
    // Session 1 reads the first write, and then writes the second one.
    let caused = [
        began(0, 1),
        acknowledged(0, 1, 0, 1, 0),
        read(1, 1, &[(a, 1)]),
        began(1, 2),
        acknowledged(1, 2, 1, 1, 1),
    ];
    let cases: Vec<(Event, Violation)> = vec![
        (read(2, 1, &[(a, 1), (b, 0)]), Violation::Torn { event: 5 }),
        (read(2, 1, &[(a, 2)]), Violation::Phantom { event: 5 }),
        (read(0, 1, &[(b, 0)]), Violation::OwnWrite { event: 5 }),
        (read(1, 1, &[(b, 0)]), Violation::Back { event: 5 }),
        (read(2, 1, &[(x, 2), (a, 0)]), Violation::Causal { event: 5 }),
        (read(2, 4, &[(a, 0)]), Violation::Stale { event: 5 }),
        (acknowledged(2, 3, 1, 2, 1), Violation::Lost { write: WriteId(3) }),
    ];
    for (last, violation) in cases {
        let history: Vec<_> = caused.iter().cloned().chain([last]).collect();
        assert_eq!(check(&log, &history, DELTA), [violation]);
    }
    for fine in [
        read(2, 3, &[(a, 0), (x, 0)]),
        read(2, 3, &[(a, 1), (x, 0)]),
        read(2, 9, &[(a, 1), (x, 2)]),
        // Of another subtree nothing is required.
        read(2, 9, &[(a, 1)]),
    ] {
        let history: Vec<_> = caused.iter().cloned().chain([fine]).collect();
        assert_eq!(check(&log, &history, DELTA), []);
    }
}

#[test]
fn commit_depends_on_earlier_ones_of_its_log() {
    let [a, x, y] = [object(0, 0), object(1, 0), object(1, 1)];
    let log = vec![vec![logged(1, &[a])], vec![logged(2, &[x]), logged(3, &[y])]];
    let history = [
        began(0, 1),
        read(1, 0, &[(a, 1)]),
        began(1, 2),
        // This session has seen nothing. Its commit follows one that depends on the first.
        began(2, 3),
        acknowledged(2, 3, 1, 2, 0),
        read(2, 0, &[(a, 0)]),
    ];
    assert_eq!(check(&log, &history, DELTA), [Violation::Causal { event: 5 }]);
}

/// A generated event: a write, the acknowledgement of the session's last write, or a read of some state.
#[derive(Clone, Debug)]
enum Step {
    Write { session: usize, writer: usize, numbers: Vec<u32> },
    Acknowledge { session: usize },
    Read { session: usize, at: [u64; 2], objects: Vec<(usize, u32)> },
}

fn step() -> impl Strategy<Value = Step> {
    let numbers = prop::collection::vec(0..2u32, 1..3);
    let objects = prop::collection::vec((0..2usize, 0..2u32), 1..4);
    prop_oneof![
        2 => (0..3usize, 0..2usize, numbers)
            .prop_map(|(session, writer, numbers)| Step::Write { session, writer, numbers }),
        1 => (0..3usize).prop_map(|session| Step::Acknowledge { session }),
        3 => (0..3usize, [0..4u64, 0..4u64], objects)
            .prop_map(|(session, at, objects)| Step::Read { session, at, objects }),
    ]
}

/// The value of an object in a state.
fn value(logs: &[Vec<Logged>], object: Object, state: &Vector) -> WriteId {
    let log = &logs[object.owner.0];
    let mut shown = log.iter().take(state.get(object.owner) as usize);
    shown.rfind(|commit| commit.objects.contains(&object)).map_or(WriteId(0), |commit| commit.write)
}

/// Logs and a history, one event a second.
fn history(steps: &[Step]) -> (Vec<Vec<Logged>>, Vec<Event>) {
    let mut logs = vec![Vec::new(), Vec::new()];
    let mut last: BTreeMap<usize, (u64, usize, u64)> = BTreeMap::new();
    let mut events = Vec::new();
    for (second, step) in (0..).zip(steps) {
        match step {
            Step::Write { session, writer, numbers } => {
                let objects: Vec<_> =
                    numbers.iter().map(|number| object(*writer, *number)).collect();
                let write = second + 1;
                logs[*writer].push(logged(write, &objects));
                last.insert(*session, (write, *writer, logs[*writer].len() as u64));
                events.push(began(*session, write));
            }
            Step::Acknowledge { session } => {
                let Some((write, writer, position)) = last.remove(session) else { continue };
                events.push(acknowledged(*session, write, writer, position, second));
            }
            Step::Read { session, at, objects } => {
                let mut state = Vector::zero(2);
                for (writer, position) in at.iter().enumerate() {
                    let most = logs[writer].len() as u64;
                    state.raise(WriterId(writer), most.saturating_sub(*position));
                }
                let of = |(owner, number): &(usize, u32)| {
                    let object = object(*owner, *number);
                    (object, value(&logs, object, &state).0)
                };
                let seen: Vec<_> = objects.iter().map(of).collect();
                events.push(read(*session, second, &seen));
            }
        }
    }
    (logs, events)
}

/// A search over all states of all reads: whether some assignment keeps the promises.
#[derive(Clone)]
struct Search<'a> {
    logs: &'a [Vec<Logged>],
    began: BTreeMap<WriteId, Vector>,
    sessions: BTreeMap<SessionId, Vector>,
    acknowledged: Vec<(WriterId, Duration, u64)>,
}

impl Search<'_> {
    /// Whether each commit of the state has begun, and has in it what its session had seen.
    fn is_closed(&self, state: &Vector) -> bool {
        self.logs.iter().enumerate().all(|(writer, log)| {
            log.iter().take(state.get(WriterId(writer)) as usize).all(|commit| {
                self.began.get(&commit.write).is_some_and(|before| state.covers(before))
            })
        })
    }

    fn states(&self) -> Vec<Vector> {
        let mut states = vec![Vector::zero(self.logs.len())];
        for (writer, log) in self.logs.iter().enumerate() {
            let raised = |state: &Vector, position| {
                let mut state = state.clone();
                state.raise(WriterId(writer), position);
                state
            };
            let each = |state: &Vector| -> Vec<Vector> {
                (0..=log.len() as u64).map(|position| raised(state, position)).collect()
            };
            states = states.iter().flat_map(each).collect();
        }
        states
    }

    /// Continues with each state that the session may have seen by now.
    fn any(&self, at_least: &Vector, events: &[Event], session: SessionId) -> bool {
        let possible = |state: &Vector| state.covers(at_least) && self.is_closed(state);
        self.states().into_iter().filter(possible).any(|state| {
            let mut next = self.clone();
            next.sessions.insert(session, state);
            next.succeeds(events)
        })
    }

    fn succeeds(&self, events: &[Event]) -> bool {
        let Some((event, rest)) = events.split_first() else { return true };
        let zero = Vector::zero(self.logs.len());
        let of = |session: &SessionId| self.sessions.get(session).unwrap_or(&zero).clone();
        match event {
            Event::Began { session, write } => {
                let mut next = self.clone();
                next.began.insert(*write, of(session));
                next.succeeds(rest)
            }
            Event::Acknowledged { session, writer, position, at, .. } => {
                let mut next = self.clone();
                next.acknowledged.push((*writer, *at, *position));
                let mut at_least = of(session);
                at_least.raise(*writer, *position);
                next.any(&at_least, rest, *session)
            }
            Event::Read { session, began, seen } => {
                let mut at_least = of(session);
                let owners: BTreeSet<_> = seen.keys().map(|object| object.owner).collect();
                for (writer, at, position) in &self.acknowledged {
                    if owners.contains(writer) && *at < began.saturating_sub(DELTA) {
                        at_least.raise(*writer, *position);
                    }
                }
                let shows = |state: &Vector| {
                    let fits = |(object, write): (&Object, &WriteId)| {
                        value(self.logs, *object, state) == *write
                    };
                    state.covers(&at_least) && self.is_closed(state) && seen.iter().all(fits)
                };
                self.states().into_iter().filter(shows).any(|state| {
                    let mut next = self.clone();
                    next.sessions.insert(*session, state);
                    next.succeeds(rest)
                })
            }
        }
    }
}

proptest! {
    #[test]
    fn checker_agrees_with_a_search(steps in prop::collection::vec(step(), 1..9)) {
        let (logs, events) = history(&steps);
        let (began, sessions, acknowledged) = Default::default();
        let search = Search { logs: &logs, began, sessions, acknowledged };
        let violations = check(&logs, &events, DELTA);
        prop_assert_eq!(violations.is_empty(), search.succeeds(&events), "{:?}", violations);
    }
}
