//! Every order in which a replica can be told, by the disk, the network, the clock and its readers,
//! of a few commits: an exhaustive search of the scheduler (SSR §6.2.1) at a small size.
//!
//! There are three searches, because all at once is too much: of what readers can tell apart, of
//! messages that are long on their way, and of a connection that is cut.

use core::time::Duration;

use lull_cc::Bytes;
use lull_replicate::merkle::MerkleTree;
use lull_replicate::message::{BodyHeader, Frame, Session, Start, ToOrigin, ToReplica};
use lull_replicate::replica::{
    Answer, Config, Effect, Image, Order, Outcome, ReadId, Replica, Request, Staleness, What,
};
use lull_replicate::time::{Drift, LocalTime, Reading, WallTime};
use lull_replicate::types::{
    Change, Content, Digest, Incarnation, Metadata, Payload, Position, Sequence, Version,
};
use lull_replicate::{BodyEffect, Fault, Path};
use stateright::{Checker, HasDiscoveries, Model, Property};

/// What the origin does: names and bodies, or deletions. The first one gives two objects the same body.
/// The second one overwrites both, and goes in two parts.
const COMMITS: [&[(&str, Option<u8>)]; 2] =
    [&[("a", Some(1)), ("b", Some(1))], &[("a", Some(2)), ("b", None)]];
const IN_PARTS: usize = 1;

/// Promises that seeded bugs break.
const ORDER: &str = "reads follow one order of the commits";
const FRESH: &str = "reads reflect what was committed Δ before";
const WHOLE: &str = "the state is that of its position";

/// What each session reads, one after the other.
const READS: [&[&str]; 2] = [&["a", "b"], &["b"]];

/// The clock moves by this much at a time.
const TICK: Duration = Duration::from_secs(4);
/// Δ while connected, in ticks, and while not.
const DELTA: u8 = 1;
const AWAY: u8 = 2;

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

/// What the origin has of `path` after the first `commits`.
fn header(path: Path, commits: usize, demand: bool) -> BodyHeader {
    let wrote = |commit: &usize| COMMITS[*commit].iter().any(|(name, _)| *name == path.as_str());
    let last = (0..commits).rev().find(wrote).map_or(0, |commit| commit as u64 + 1);
    let version = body_at(path.as_str(), commits)
        .map(|body| Version { sequence: Sequence(last), content: content(body) });
    BodyHeader { path, version, at: Sequence(commits as u64), demand, lost: false }
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Reader {
    /// Reads that were answered.
    done: usize,
    waits: Option<Waits>,
}

/// A read that was not answered yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waits {
    /// The highest position of those that had been answered before it began.
    floor: usize,
    /// The other session's read had been asked before, and is still not answered.
    behind: bool,
}

/// What the last event has brought about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    /// A read saw what had been overwritten before it: by an earlier read, or Δ ago.
    back: bool,
    stale: bool,
    /// A read was answered before one that had been asked before.
    passed: bool,
    /// One was answered while there was no connection.
    away: bool,
    /// A commit was applied without a body that was overwritten.
    overtaken: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    replica: Replica<()>,
    ticks: u8,
    /// When each commit was made, and acknowledged.
    made: Vec<u8>,
    /// Those that were told of, and parts of the next one.
    told: usize,
    parts: usize,
    /// When the last heartbeat was said, and its echo.
    said: u8,
    echo: Option<u8>,
    /// Counts connections.
    connection: u32,
    /// The origin talks to the replica.
    connected: bool,
    /// Commits whose bodies were pushed, by bit.
    pushed: u8,
    /// Bodies that reads wait for, with how much had been told when they were asked for.
    asked: Vec<(Path, usize)>,
    /// One of them did not come.
    failed: bool,
    storing: Vec<Digest>,
    dropping: Vec<Digest>,
    committing: bool,
    readers: Vec<Reader>,
    /// The highest position of reads that were answered.
    floor: usize,
    seen: Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// The origin commits.
    Make,
    /// The next invalidation arrives, or a part of it.
    Tell,
    /// A heartbeat arrives that was said at this tick; of a later ping than the one before or not.
    Beat {
        said: u8,
        pinged: bool,
    },
    Push(usize),
    /// The origin answers a demand, by the state after so many commits: all that had been told, or more.
    Answer {
        asked: usize,
        commits: usize,
    },
    /// What it answers has no body: the origin has lost it, or it has broken off.
    Fail {
        asked: usize,
        lost: bool,
    },
    Stored(Digest),
    Dropped(Digest),
    Committed,
    Tick,
    Read(usize),
    Cut,
    Return,
}

/// What may happen in a search.
#[derive(Clone, Copy, Debug)]
struct Scope {
    sessions: usize,
    ticks: u8,
    /// Heartbeats are on their way for ticks, and may have older echoes. Else they arrive at once.
    late: bool,
    echoes: bool,
    /// The connection is cut, once, with all that is under way.
    cut: bool,
    /// One body that was asked for does not come.
    fails: bool,
}

const READERS: Scope =
    Scope { sessions: 2, ticks: 1, late: false, echoes: false, cut: false, fails: true };
const CLOCKS: Scope =
    Scope { sessions: 1, ticks: 2, late: true, echoes: true, cut: false, fails: false };
const CONNECTIONS: Scope =
    Scope { sessions: 1, ticks: 1, late: true, echoes: false, cut: true, fails: false };

struct Scheduler {
    scope: Scope,
    order: Order,
    overtake: bool,
    fault: Option<Fault>,
}

impl State {
    fn frame<M>(&self, message: M) -> Frame<M> {
        let (origin, replica) = (Incarnation(1), Incarnation(0));
        Frame { session: Session { origin, replica, connection: self.connection }, message }
    }

    fn control(&mut self, message: ToReplica) {
        let frame = self.frame(message);
        self.replica.handle_control(reading(self.ticks), frame);
    }

    fn body(&mut self, header: BodyHeader) {
        let payload = header.version.map(|version| Payload {
            digest: version.content.digest,
            size: version.content.size,
            bytes: (),
        });
        let frame = self.frame(header);
        self.replica.handle_body(reading(self.ticks), frame, payload);
    }

    /// Takes in what the replica wants.
    fn pump(&mut self) {
        loop {
            while let Some(answer) = self.replica.poll_answer() {
                self.answered(&answer);
            }
            while let Some(effect) = self.replica.poll_effect() {
                match effect {
                    Effect::Body(BodyEffect::Store(payload)) => self.storing.push(payload.digest),
                    Effect::Body(BodyEffect::Drop(digest)) => self.dropping.push(digest),
                    Effect::Commit(_) => self.committing = true,
                }
            }
            let mut hello = None;
            while let Some(frame) = self.replica.poll_send() {
                match frame.message {
                    ToOrigin::Demand(path) => self.asked.push((path, self.told)),
                    ToOrigin::Hello { position, .. } => hello = Some(position),
                    _ => {}
                }
            }
            while self.replica.poll_event().is_some() {}
            self.seen.overtaken |= self.replica.take_counters().overtaken > 0;
            match hello {
                Some(position) => self.welcome(position),
                None => break,
            }
        }
        // What is under way is under way in any order.
        self.asked.sort_unstable();
        self.storing.sort_unstable();
        self.dropping.sort_unstable();
    }

    /// The origin's answer to a hello, which nothing comes before.
    fn welcome(&mut self, position: Option<Position>) {
        let start = match position {
            None => Start::Resync {
                position: Position::beginning([0; 32]),
                stamp: reading(self.ticks).wall,
                root: MerkleTree::new([]).root(),
            },
            Some(position) => {
                self.told = usize::try_from(position.sequence.0).expect("a few commits");
                Start::Log
            }
        };
        (self.connected, self.said) = (true, self.ticks);
        self.control(ToReplica::Welcome { start, eager: false });
    }

    /// Gives the read the least position that fits, as the checker does.
    fn answered(&mut self, answer: &Answer) {
        let session = usize::try_from(answer.id.0).expect("a few sessions");
        let body = match answer.outcome {
            Outcome::Object(version) | Outcome::Lost(version) => Some(version.content.digest.0[0]),
            _ => None,
        };
        let reader = &mut self.readers[session];
        let name = READS[session][reader.done];
        reader.done += 1;
        let Waits { floor, behind } = reader.waits.take().expect("a read that was asked");
        for other in self.readers.iter_mut().filter_map(|reader| reader.waits.as_mut()) {
            self.seen.passed |= behind;
            other.behind = false;
        }
        let made = self.made.len();
        let fits = |floor: usize| (floor..=made).find(|at| body_at(name, *at) == body);
        let bound = if self.connected { DELTA } else { AWAY };
        let old = self.made.iter().filter(|at| **at + bound <= self.ticks).count();
        let position = fits(floor);
        let fresh = position.and_then(|position| fits(position.max(old)));
        self.seen.away |= !self.connected;
        self.seen.back |= position.is_none();
        self.seen.stale |= position.is_some() && fresh.is_none();
        self.floor = self.floor.max(fresh.unwrap_or(floor));
    }

    /// Whether the origin could have said at that tick, behind what was told, that this is all.
    fn is_true(&self, said: u8) -> bool {
        let before = self.made.iter().filter(|at| **at < said).count();
        let by = self.made.iter().filter(|at| **at <= said).count();
        (before..=by).contains(&self.told)
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
            ..Config::default()
        };
        let mut replica = Replica::recover(now, config, Image::default(), []);
        replica.sow(self.fault);
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
            storing: Vec::new(),
            dropping: Vec::new(),
            committing: false,
            readers: vec![Reader::default(); self.scope.sessions],
            floor: 0,
            seen: Seen::default(),
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
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.seen = Seen::default();
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
                let (path, _) = state.asked.remove(asked);
                state.body(header(path, commits, true));
            }
            Action::Fail { asked, lost } => {
                let (path, _) = state.asked.remove(asked);
                let header = BodyHeader { lost, ..header(path, state.made.len(), true) };
                // That there is no such object is no body to be lost.
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
                let request = Request { what: What::Object(path), after: Sequence::ZERO };
                state.replica.handle_read(now, ReadId(session as u64), request);
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
            Property::always("what is applied is what was told", |_, state: &State| {
                state.replica.position().0 <= state.told as u64
            }),
            Property::always(WHOLE, |_, state: &State| {
                let position = state.replica.position().0 as usize;
                ["a", "b"].iter().all(|name| {
                    let object = state.replica.image().objects.get(*name);
                    object.map(|object| object.version.content.digest.0[0])
                        == body_at(name, position)
                })
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
        if self.scope.cut {
            properties
                .push(Property::sometimes("a read is masked", |_, state: &State| state.seen.away));
        }
        properties
    }
}

/// States to look at, each as often as it is come to; the search is broken off there, which fails the
/// test.
const STATES: usize = 2_000_000;

#[test]
fn the_scheduler_keeps_its_conditions_in_every_order_of_events() {
    for (scope, order, overtake) in [
        (READERS, Order::Conservative, true),
        (READERS, Order::Conservative, false),
        (READERS, Order::Aggressive, true),
        (CLOCKS, Order::Conservative, false),
        (CONNECTIONS, Order::Conservative, true),
    ] {
        let model = Scheduler { scope, order, overtake, fault: None };
        let checker = model.checker().target_state_count(STATES).spawn_bfs().join();
        let (all, unique) = (checker.state_count(), checker.unique_state_count());
        println!("{scope:?}, {order:?}, {overtake}: {unique} states, come to {all} times");
        assert!(all < STATES, "the search was not exhaustive");
        checker.assert_properties();
    }
}

#[test]
fn the_search_finds_seeded_bugs() {
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
