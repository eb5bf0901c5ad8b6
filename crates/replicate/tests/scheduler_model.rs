//! Every order in which a replica can be told, by the disk, the network, the clock and its readers,
//! of a few commits: an exhaustive search of the scheduler (SSR §6.2.1) at a small size.

use core::time::Duration;

use lull_cc::Bytes;
use lull_replicate::merkle::MerkleTree;
use lull_replicate::message::{BodyHeader, Frame, Session, Start, ToOrigin, ToReplica};
use lull_replicate::replica::{
    Config, Effect, Image, Order, Outcome, ReadId, Replica, Request, Staleness, What,
};
use lull_replicate::time::{Drift, LocalTime, Reading, WallTime};
use lull_replicate::types::{
    Change, Content, Digest, Incarnation, Metadata, Payload, Position, Sequence, Version,
};
use lull_replicate::{BodyEffect, Fault, Path};
use stateright::{Checker, Model, Property};

/// What the origin does: name and body, or a deletion. The second one is a
/// transaction.
const COMMITS: [&[(&str, Option<u8>)]; 3] =
    [&[("a", Some(1))], &[("a", Some(2)), ("b", Some(3))], &[("b", None)]];

/// Reads, one after the other by one session.
const READS: [&str; 3] = ["a", "b", "a"];

/// The clock moves by this much at a time.
const TICK: Duration = Duration::from_secs(4);
/// Δ, in ticks.
const DELTA: u8 = 2;
const TICKS: u8 = 3;

fn reading(ticks: u8) -> Reading {
    let nanos = i64::try_from(TICK.as_nanos()).expect("seconds") * i64::from(ticks);
    Reading { local: LocalTime::from_nanos(nanos), wall: WallTime::from_nanos(nanos) }
}

fn content(body: u8) -> Content {
    Content { digest: Digest([body; 32]), size: Bytes(1), metadata: Metadata::default() }
}

fn changes(commit: usize) -> Vec<Change> {
    let change = |(name, body): &(&str, Option<u8>)| Change {
        path: Path::new(name).expect("a path"),
        content: body.map(content),
    };
    COMMITS[commit].iter().map(change).collect()
}

/// What `name` is after the first `commits`.
fn body_at(name: &str, commits: usize) -> Option<u8> {
    let mut body = None;
    for commit in &COMMITS[..commits] {
        body = commit.iter().find(|(other, _)| *other == name).map_or(body, |(_, new)| *new);
    }
    body
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    replica: Replica<()>,
    ticks: u8,
    /// Invalidations that were told of.
    told: usize,
    /// Bodies that were pushed, by bit.
    pushed: u8,
    /// When each of them was made and told of.
    told_at: Vec<u8>,
    /// A body that a read waits for.
    asked: Option<Path>,
    storing: Vec<Digest>,
    dropping: Vec<Digest>,
    committing: bool,
    /// What the reads saw, in order, with when they were answered.
    seen: Vec<(Option<u8>, u8)>,
    reading: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tell,
    Push(u8),
    /// The origin answers a demand, by the state after so many commits: all that were told, or more.
    Answer(u8),
    Stored(usize),
    Dropped(usize),
    Committed,
    Tick,
    Read,
}

struct Scheduler {
    order: Order,
    fault: Option<Fault>,
}

fn session() -> Session {
    Session { origin: Incarnation(1), replica: Incarnation(0), connection: 1 }
}

fn frame<M>(message: M) -> Frame<M> {
    Frame { session: session(), message }
}

impl State {
    /// Takes in what the replica wants.
    fn pump(&mut self) {
        while let Some(answer) = self.replica.poll_answer() {
            let body = match answer.outcome {
                Outcome::Object(version) => Some(version.content.digest.0[0]),
                _ => None,
            };
            self.seen.push((body, self.ticks));
            self.reading = false;
        }
        while let Some(effect) = self.replica.poll_effect() {
            match effect {
                Effect::Body(BodyEffect::Store(payload)) => self.storing.push(payload.digest),
                Effect::Body(BodyEffect::Drop(digest)) => self.dropping.push(digest),
                Effect::Commit(_) => self.committing = true,
            }
        }
        while let Some(frame) = self.replica.poll_send() {
            if let ToOrigin::Demand(path) = frame.message {
                self.asked = Some(path);
            }
        }
        while self.replica.poll_event().is_some() {}
        let _ = self.replica.take_counters();
    }

    fn body(&mut self, path: Path, commits: usize, demand: bool) {
        let body = body_at(path.as_str(), commits);
        let wrote =
            |commit: &usize| COMMITS[*commit].iter().any(|(name, _)| *name == path.as_str());
        let last = (0..commits).rev().find(wrote).map_or(0, |commit| commit as u64 + 1);
        let version = body.map(|body| Version { sequence: Sequence(last), content: content(body) });
        let payload =
            body.map(|body| Payload { digest: content(body).digest, size: Bytes(1), bytes: () });
        let at = Sequence(commits as u64);
        let header = BodyHeader { path, version, at, demand, lost: false };
        self.replica.handle_body(reading(self.ticks), frame(header), payload);
    }
}

impl Model for Scheduler {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let now = reading(0);
        let config = Config {
            staleness: Staleness {
                connected: TICK * u32::from(DELTA),
                disconnected: None,
                max_skew: Duration::ZERO,
                drift: Drift(0),
                slew: Drift(0),
            },
            order: self.order,
            ping: Duration::from_secs(1_000_000),
            silence: Duration::from_secs(1_000_000),
            grace: Duration::ZERO,
            report: None,
            ..Config::default()
        };
        let mut replica = Replica::recover(now, config, Image::default(), []);
        replica.sow(self.fault);
        replica.handle_connected(now);
        let start = Start::Resync {
            position: Position::beginning([0; 32]),
            stamp: now.wall,
            root: MerkleTree::new([]).root(),
        };
        replica.handle_control(now, frame(ToReplica::Welcome { start, eager: false }));
        let mut state = State {
            replica,
            ticks: 0,
            told: 0,
            pushed: 0,
            told_at: Vec::new(),
            asked: None,
            storing: Vec::new(),
            dropping: Vec::new(),
            committing: false,
            seen: Vec::new(),
            reading: false,
        };
        state.pump();
        state.replica.handle_committed(now, Ok(()));
        state.committing = false;
        let heartbeat = ToReplica::Heartbeat {
            stamp: now.wall,
            committed: Sequence::ZERO,
            echo: Some(now.local),
        };
        state.replica.handle_control(now, frame(heartbeat));
        state.pump();
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.told < COMMITS.len() {
            actions.push(Action::Tell);
        }
        // Bodies may come before their invalidation, and long after it.
        actions.extend(
            (0..COMMITS.len() as u8).filter(|at| state.pushed & (1 << *at) == 0).map(Action::Push),
        );
        if state.asked.is_some() {
            // The answer may overtake invalidations (rule 2.3).
            actions.extend((state.told as u8..=COMMITS.len() as u8).map(Action::Answer));
        }
        actions.extend((0..state.storing.len()).map(Action::Stored));
        actions.extend((0..state.dropping.len()).map(Action::Dropped));
        if state.committing {
            actions.push(Action::Committed);
        }
        if state.ticks < TICKS {
            actions.push(Action::Tick);
        }
        if !state.reading && state.seen.len() < READS.len() {
            actions.push(Action::Read);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = reading(state.ticks);
        match action {
            Action::Tell => {
                // With the heartbeat that follows at once.
                let sequence = Sequence(state.told as u64 + 1);
                let invalidation = ToReplica::Invalidation {
                    sequence,
                    stamp: now.wall,
                    changes: changes(state.told),
                    more: false,
                };
                state.told += 1;
                state.told_at.push(state.ticks);
                state.replica.handle_control(now, frame(invalidation));
                let heartbeat = ToReplica::Heartbeat {
                    stamp: now.wall,
                    committed: sequence,
                    echo: Some(now.local),
                };
                state.replica.handle_control(now, frame(heartbeat));
            }
            Action::Push(at) => {
                state.pushed |= 1 << at;
                for change in changes(usize::from(at)) {
                    if change.content.is_some() {
                        state.body(change.path, usize::from(at) + 1, false);
                    }
                }
            }
            Action::Answer(commits) => {
                let path = state.asked.take()?;
                state.body(path, usize::from(commits), true);
            }
            Action::Stored(at) => {
                let digest = state.storing.remove(at);
                state.replica.handle_stored(now, &digest, Ok(()));
            }
            Action::Dropped(at) => {
                let digest = state.dropping.remove(at);
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
            Action::Read => {
                state.reading = true;
                let name = READS[state.seen.len()];
                let what = What::Object(Path::new(name).expect("a path"));
                let request = Request { what, after: Sequence::ZERO };
                let id = ReadId(state.seen.len() as u64);
                state.replica.handle_read(now, id, request);
            }
        }
        state.pump();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("reads follow one order of the commits", |_, state: &State| {
                let mut position = 0;
                READS.iter().zip(&state.seen).all(|(name, (body, _))| {
                    let fits = (position..=COMMITS.len()).find(|at| body_at(name, *at) == *body);
                    position = fits.unwrap_or(position);
                    fits.is_some()
                })
            }),
            Property::always("reads reflect what was committed Δ before", |_, state: &State| {
                READS.iter().zip(&state.seen).all(|(name, (body, answered))| {
                    let old = state.told_at.iter().filter(|at| **at + DELTA <= *answered).count();
                    (old..=COMMITS.len()).any(|at| body_at(name, at) == *body)
                })
            }),
            Property::always("what is applied is what was told", |_, state: &State| {
                state.replica.position().0 <= state.told as u64
            }),
            Property::always("the state is that of its position", |_, state: &State| {
                let position = state.replica.position().0 as usize;
                ["a", "b"].iter().all(|name| {
                    let object = state.replica.image().objects.get(*name);
                    object.map(|object| object.version.content.digest.0[0])
                        == body_at(name, position)
                })
            }),
            Property::sometimes("a read waits for a body", |_, state: &State| {
                state.asked.is_some() && state.reading
            }),
            Property::sometimes("all is applied and read", |_, state: &State| {
                state.replica.position().0 == COMMITS.len() as u64
                    && state.seen.len() == READS.len()
            }),
        ]
    }
}

/// States to look at; the search is broken off there, which fails the test.
const STATES: usize = 2_000_000;

#[test]
fn the_scheduler_keeps_its_conditions_in_every_order_of_events() {
    for order in [Order::Conservative, Order::Aggressive] {
        let model = Scheduler { order, fault: None };
        let checker = model.checker().target_state_count(STATES).spawn_bfs().join();
        println!("{order:?}: {} states", checker.unique_state_count());
        assert!(checker.unique_state_count() < STATES, "the search was not exhaustive");
        checker.assert_properties();
    }
}

#[test]
fn the_search_finds_a_body_that_is_visible_too_early() {
    let fault = Some(Fault::BodyBeforeInvalidations);
    let model = Scheduler { order: Order::Conservative, fault };
    let checker = model.checker().target_state_count(STATES).spawn_bfs().join();
    assert!(checker.discovery("reads follow one order of the commits").is_some());
}
