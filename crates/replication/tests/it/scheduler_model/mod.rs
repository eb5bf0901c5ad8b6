//! Every order in which the disk, the network, the clock and its readers can present a few commits to a
//! replica: an exhaustive search of the scheduler (SSR §6.2.1) at a small size.
//!
//! There are four searches, because one for everything is too large: of differences visible to readers, of
//! slow messages, of a connection that is cut, and of cancelled reads.

mod state;

use core::time::Duration;

use lull_replication::message::{BodyHeader, ToReplica};
use lull_replication::replica::{
    Config, Image, Order, ReadId, ReadTarget, Replica, Request, Staleness,
};
use lull_replication::time::Drift;
use lull_replication::types::{Digest, Sequence};
use lull_replication::{Fault, Path};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use state::{
    AWAY, COMMITS, DELTA, EventEffects, IN_PARTS, READS, Reader, State, TICK, Waits, body_at,
    changes, header, reading,
};

/// Promises that seeded bugs break.
const ORDER: &str = "reads follow one order of the commits";
const FRESH: &str = "reads reflect what was committed Δ before";
const WHOLE: &str = "the state is that of its position";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// The origin commits.
    Make,
    /// The next invalidation arrives, or a part of it.
    Tell,
    /// A heartbeat that was sent at this tick arrives; for a later ping than the previous one or not.
    Beat {
        said: u8,
        pinged: bool,
    },
    Push(usize),
    /// The origin answers a demand, by the state after this many commits: all announced ones, or more.
    Answer {
        asked: usize,
        commits: usize,
    },
    /// Its answer has no body: the origin has lost it, or it was cut off.
    Fail {
        asked: usize,
        lost: bool,
    },
    Stored(Digest),
    Dropped(Digest),
    Committed,
    Tick,
    Read(usize),
    /// The session cancels its read, and may read the same again.
    Leave(usize),
    /// A withdrawn body does not come: nothing of it had left, or not all.
    GiveUp {
        asked: usize,
        begun: bool,
    },
    Cut,
    Return,
}

/// The events of a search.
#[derive(Clone, Copy, Debug)]
struct Scope {
    sessions: usize,
    ticks: u8,
    /// Heartbeats travel for ticks, and may have older echoes. Otherwise they arrive at once.
    late: bool,
    echoes: bool,
    /// The connection is cut, once, with everything on its way.
    cut: bool,
    /// One requested body does not arrive.
    fails: bool,
    /// How often readers give up and their demands are withdrawn.
    leaves: usize,
}

const NOTHING: Scope = Scope {
    sessions: 1,
    ticks: 1,
    late: false,
    echoes: false,
    cut: false,
    fails: false,
    leaves: 0,
};
const READERS: Scope = Scope { sessions: 2, fails: true, ..NOTHING };
const CLOCKS: Scope = Scope { ticks: 2, late: true, echoes: true, ..NOTHING };
const CONNECTIONS: Scope = Scope { late: true, cut: true, ..NOTHING };
const LEAVERS: Scope = Scope { leaves: 2, ..NOTHING };

struct Scheduler {
    scope: Scope,
    order: Order,
    overtake: bool,
    fault: Option<Fault>,
}

impl Model for Scheduler {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let now = reading(0);
        let config = Config {
            staleness: Staleness {
                connected: TICK * u32::from(DELTA),
                disconnected: Some(TICK * u32::from(AWAY)),
                max_skew: Duration::ZERO,
                drift: Drift(0),
                slew: Drift(0),
            },
            order: self.order,
            overtake: self.overtake,
            ping: Duration::from_secs(1_000_000),
            silence: Duration::from_secs(1_000_000),
            grace: Duration::ZERO,
            report: None,
            linger: match self.scope.leaves {
                0 => Duration::from_secs(1_000_000),
                _ => Duration::ZERO,
            },
            ..Config::default()
        };
        let mut replica = Replica::recover(now, config, Image::default(), []);
        replica.seed_fault(self.fault);
        replica.handle_connected(now);
        let mut state = State {
            replica,
            ticks: 0,
            made: Vec::new(),
            told: 0,
            parts: 0,
            said: 0,
            echo: None,
            connection: 1,
            connected: false,
            pushed: 0,
            asked: Vec::new(),
            failed: false,
            withdrawn: Vec::new(),
            left: 0,
            storing: Vec::new(),
            dropping: Vec::new(),
            committing: false,
            readers: vec![Reader::default(); self.scope.sessions],
            floor: 0,
            seen: EventEffects::default(),
        };
        state.pump();
        // The empty state that a replica begins with.
        state.replica.handle_committed(now, Ok(()));
        state.committing = false;
        state.pump();
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let made = state.made.len();
        if made < COMMITS.len() {
            actions.push(Action::Make);
        }
        if state.connected {
            if state.told < made {
                actions.push(Action::Tell);
            }
            if state.parts == 0 {
                let first = if self.scope.late { state.said } else { state.ticks };
                for said in (first..=state.ticks).filter(|said| state.is_true(*said)) {
                    actions.push(Action::Beat { said, pinged: true });
                    if self.scope.echoes && state.echo != Some(said) {
                        actions.push(Action::Beat { said, pinged: false });
                    }
                }
            }
            // Bodies may come before their invalidation, and long after it.
            let waiting = (0..made).filter(|at| state.pushed & (1 << *at) == 0);
            actions.extend(waiting.map(Action::Push));
            for (asked, (_, told)) in state.asked.iter().enumerate() {
                // The answer may overtake invalidations (rule 2.3).
                let answer = |commits| Action::Answer { asked, commits };
                actions.extend((*told..=made).map(answer));
                if self.scope.fails && !state.failed {
                    actions.extend([true, false].map(|lost| Action::Fail { asked, lost }));
                }
                if state.withdrawn.contains(&state.asked[asked].0) {
                    actions.extend([true, false].map(|begun| Action::GiveUp { asked, begun }));
                }
            }
            if self.scope.cut && state.connection == 1 {
                actions.push(Action::Cut);
            }
        } else if state.connection == 1 {
            actions.push(Action::Return);
        }
        actions.extend(state.storing.iter().copied().map(Action::Stored));
        actions.extend(state.dropping.iter().copied().map(Action::Dropped));
        if state.committing {
            actions.push(Action::Committed);
        }
        if state.ticks < self.scope.ticks {
            actions.push(Action::Tick);
        }
        for (session, reader) in state.readers.iter().enumerate() {
            if reader.waits.is_none() && reader.done < READS[session].len() {
                actions.push(Action::Read(session));
            }
            if reader.waits.is_some() && state.left < self.scope.leaves {
                actions.push(Action::Leave(session));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.seen = EventEffects::default();
        let now = reading(state.ticks);
        match action {
            Action::Make => state.made.push(state.ticks),
            Action::Tell => {
                let mut changes = changes(state.told);
                let more = state.told == IN_PARTS && state.parts == 0;
                if more {
                    changes.truncate(1);
                }
                changes.drain(..state.parts);
                let sequence = Sequence(state.told as u64 + 1);
                let stamp = reading(state.made[state.told]).wall;
                (state.told, state.parts) =
                    if more { (state.told, 1) } else { (state.told + 1, 0) };
                state.control(ToReplica::Invalidation { sequence, stamp, changes, more });
            }
            Action::Beat { said, pinged } => {
                state.said = said;
                if pinged {
                    state.echo = Some(said);
                }
                let stamp = reading(said).wall;
                let committed = Sequence(state.told as u64);
                let echo = state.echo.map(|echo| reading(echo).local);
                state.control(ToReplica::Heartbeat { stamp, committed, echo });
            }
            Action::Push(at) => {
                state.pushed |= 1 << at;
                for change in changes(at).into_iter().filter(|change| change.content.is_some()) {
                    state.body(header(change.path, at + 1, false));
                }
            }
            Action::Answer { asked, commits } => {
                let path = state.ends(asked);
                state.body(header(path, commits, true));
            }
            Action::Fail { asked, lost } => {
                let path = state.ends(asked);
                let header = BodyHeader { lost, ..header(path, state.made.len(), true) };
                // The absence of an object is no body to be lost.
                header.version?;
                state.failed = true;
                let frame = state.frame(header);
                state.replica.handle_body(now, frame, None);
            }
            Action::Stored(digest) => {
                state.storing.retain(|other| *other != digest);
                state.replica.handle_stored(now, &digest, Ok(()));
            }
            Action::Dropped(digest) => {
                state.dropping.retain(|other| *other != digest);
                state.replica.handle_dropped(&digest);
            }
            Action::Committed => {
                state.committing = false;
                state.replica.handle_committed(now, Ok(()));
            }
            Action::Tick => {
                state.ticks += 1;
                state.replica.handle_timeout(reading(state.ticks));
            }
            Action::Read(session) => {
                let behind = state.readers.iter().any(|other| other.waits.is_some());
                let reader = &mut state.readers[session];
                reader.waits = Some(Waits { floor: state.floor, behind });
                let path = Path::new(READS[session][reader.done]).expect("a path");
                let request = Request { target: ReadTarget::Object(path), after: Sequence::ZERO };
                state.replica.handle_read(now, ReadId(session as u64), request);
            }
            Action::Leave(session) => {
                state.left += 1;
                state.readers[session].waits = None;
                state.replica.cancel_read(now, ReadId(session as u64));
            }
            Action::GiveUp { asked, begun } => {
                let path = state.ends(asked);
                state.seen.given_up = true;
                if begun {
                    let header = header(path, state.made.len(), true);
                    // An answer without a body is immediate.
                    header.version?;
                    let frame = state.frame(header);
                    state.replica.handle_body(now, frame, None);
                } else {
                    state.control(ToReplica::Withdrawn(path));
                }
            }
            Action::Cut => {
                state.connected = false;
                (state.parts, state.echo) = (0, None);
                state.asked.clear();
                state.replica.handle_disconnected(now);
            }
            Action::Return => {
                state.connection += 1;
                state.replica.handle_connected(now);
            }
        }
        state.pump();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ORDER, |_, state: &State| !state.seen.back),
            Property::always(FRESH, |_, state: &State| !state.seen.stale),
            Property::always("applied commits are the received ones", |_, state: &State| {
                state.replica.position().0 <= state.told as u64
            }),
            Property::always(WHOLE, |_, state: &State| {
                let position = state.replica.position().0 as usize;
                ["a", "b"].iter().all(|name| {
                    let object = state.replica.image().objects.get(name.as_bytes());
                    object.map(|object| object.version.content.digest.0[0])
                        == body_at(name, position)
                })
            }),
            Property::always("nothing is asked for twice at a time", |_, state: &State| {
                state.asked.windows(2).all(|two| two[0].0 != two[1].0)
            }),
            Property::sometimes("a read waits for a body", |_, state: &State| {
                !state.asked.is_empty()
            }),
            Property::sometimes("all is applied and read", |_, state: &State| {
                let all = |(reader, reads): (&Reader, &&[&str])| reader.done == reads.len();
                state.replica.position().0 == COMMITS.len() as u64
                    && state.readers.iter().zip(&READS).all(all)
            }),
        ];
        properties.push(if self.overtake {
            Property::sometimes("newer bodies overtake", |_, state: &State| state.seen.overtaken)
        } else {
            Property::always("no body overtakes", |_, state: &State| !state.seen.overtaken)
        });
        properties.push(if self.order == Order::Aggressive {
            Property::sometimes("a read passes another one", |_, state: &State| state.seen.passed)
        } else {
            Property::always("no read passes another one", |_, state: &State| !state.seen.passed)
        });
        if self.scope.leaves > 0 {
            properties.push(Property::sometimes(
                "all is read though what was waited for was withdrawn",
                |_, state: &State| {
                    let all = |(reader, reads): (&Reader, &&[&str])| reader.done == reads.len();
                    state.left > 0 && state.readers.iter().zip(&READS).all(all)
                },
            ));
            properties.push(Property::sometimes(
                "a read waits for a body that does not come",
                |_, state: &State| state.seen.given_up && !state.asked.is_empty(),
            ));
        }
        if self.scope.cut {
            properties
                .push(Property::sometimes("a read is masked", |_, state: &State| state.seen.away));
        }
        properties
    }
}

/// Longest search, in visited states with repetitions; a longer search ends and fails the test.
const STATES: usize = 2_000_000;

/// The search of `make test`: the shortest runs, with every order of their events.
const STATES_OF_SHORT_RUNS: usize = 150_000;

/// Visits every state, and checks the properties in each; `make test` visits those of the shortest runs. One test per
/// search: all of them in one test may take more than the 300 s of a test on a busy machine.
fn check_every_state(scope: Scope, order: Order, overtake: bool) {
    let states = lull_testing::bound(STATES_OF_SHORT_RUNS, STATES);
    let model = Scheduler { scope, order, overtake, fault: None };
    let checker = model.checker().target_state_count(states).spawn_bfs().join();
    let (all, unique) = (checker.state_count(), checker.unique_state_count());
    println!("{scope:?}, {order:?}, {overtake}: {unique} states, visited {all} times");
    if all < states {
        return checker.assert_properties();
    }
    assert!(states < STATES, "the search was not exhaustive");
    for property in checker.model().properties() {
        if matches!(property.expectation, Expectation::Always) {
            checker.assert_no_discovery(property.name);
        }
    }
}

#[test]
fn two_readers_are_correct_in_every_order() {
    check_every_state(READERS, Order::Conservative, true);
}

#[test]
fn no_overtaking_is_correct_in_every_order() {
    check_every_state(READERS, Order::Conservative, false);
}

#[test]
fn aggressive_reads_are_correct_in_every_order() {
    check_every_state(READERS, Order::Aggressive, true);
}

#[test]
fn late_messages_are_correct_in_every_order() {
    check_every_state(CLOCKS, Order::Conservative, false);
}

#[test]
fn disconnects_are_correct_in_every_order() {
    check_every_state(CONNECTIONS, Order::Conservative, true);
}

#[test]
fn cancelled_reads_are_correct_in_every_order() {
    check_every_state(LEAVERS, Order::Conservative, true);
}

#[test]
fn search_finds_seeded_bugs() {
    for (scope, fault, broken) in [
        (READERS, Fault::BodyBeforeInvalidations, ORDER),
        (READERS, Fault::HalfATransaction, WHOLE),
        (CLOCKS, Fault::ArrivalTimeLease, FRESH),
    ] {
        let (order, overtake, fault) = (Order::Conservative, true, Some(fault));
        let model = Scheduler { scope, order, overtake, fault };
        let found = HasDiscoveries::AnyOf([broken].into());
        let checker = model.checker().finish_when(found).target_state_count(STATES);
        let checker = checker.spawn_bfs().join();
        println!("{fault:?}: {:?}", checker.discovery(broken).map(|path| path.into_actions()));
        assert!(checker.discovery(broken).is_some(), "{fault:?} was not found");
    }
}
