//! The state of a replica, the messages in flight to it, and its readers.

use core::time::Duration;

use lull_cc::Bytes;
use lull_replication::merkle::MerkleTree;
use lull_replication::message::{BodyHeader, Frame, Session, Start, ToOrigin, ToReplica};
use lull_replication::replica::{Answer, Effect, Outcome, Replica};
use lull_replication::time::{LocalTime, Reading, WallTime};
use lull_replication::types::{
    Change, Content, Digest, Incarnation, Metadata, Payload, Position, Sequence, Version,
};
use lull_replication::{BodyEffect, Path};

/// The commits of the origin: names and bodies, or deletions. The first one gives two objects the same body.
/// The second one overwrites both, and is sent in two parts.
pub(crate) const COMMITS: [&[(&str, Option<u8>)]; 2] =
    [&[("a", Some(1)), ("b", Some(1))], &[("a", Some(2)), ("b", None)]];
pub(crate) const IN_PARTS: usize = 1;

/// The reads of each session, in sequence.
pub(crate) const READS: [&[&str]; 2] = [&["a", "b"], &["b"]];

/// The step of the clock.
pub(crate) const TICK: Duration = Duration::from_secs(4);
/// Δ while connected, in ticks, and while not.
pub(crate) const DELTA: u8 = 1;
pub(crate) const AWAY: u8 = 2;

pub(crate) fn reading(ticks: u8) -> Reading {
    let nanos = i64::try_from(TICK.as_nanos()).expect("seconds") * i64::from(ticks);
    Reading { local: LocalTime::from_nanos(nanos), wall: WallTime::from_nanos(nanos) }
}

pub(crate) fn content(body: u8) -> Content {
    Content { digest: Digest([body; 32]), size: Bytes(1), metadata: Metadata::default() }
}

pub(crate) fn changes(commit: usize) -> Vec<Change> {
    let change = |(name, body): &(&str, Option<u8>)| Change {
        path: Path::new(name).expect("a path"),
        content: body.map(content),
    };
    COMMITS[commit].iter().map(change).collect()
}

/// The body of `name` after the first `commits`.
pub(crate) fn body_at(name: &str, commits: usize) -> Option<u8> {
    let mut body = None;
    for commit in &COMMITS[..commits] {
        body = commit.iter().find(|(other, _)| *other == name).map_or(body, |(_, new)| *new);
    }
    body
}

/// The origin's version of `path` after the first `commits`.
pub(crate) fn header(path: Path, commits: usize, demand: bool) -> BodyHeader {
    let wrote = |commit: &usize| {
        COMMITS[*commit].iter().any(|(name, _)| name.as_bytes() == path.as_bytes())
    };
    let last = (0..commits).rev().find(wrote).map_or(0, |commit| commit as u64 + 1);
    let version = body_at(&path.to_string(), commits)
        .map(|body| Version { sequence: Sequence(last), content: content(body) });
    BodyHeader { path, version, at: Sequence(commits as u64), demand, lost: false }
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reader {
    /// Reads that were answered.
    pub(crate) done: usize,
    pub(crate) waits: Option<Waits>,
}

/// A read without an answer so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waits {
    /// The highest position of the reads that had been answered before it began.
    pub(crate) floor: usize,
    /// The other session's read began before, and is still unanswered.
    pub(crate) behind: bool,
}

/// The effects of the last event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct EventEffects {
    /// A read saw a version that was overwritten before it: for an earlier read, or Δ ago.
    pub(crate) back: bool,
    pub(crate) stale: bool,
    /// A read was answered before one that began earlier.
    pub(crate) passed: bool,
    /// One was answered while there was no connection.
    pub(crate) away: bool,
    /// A commit was applied without an overwritten body.
    pub(crate) overtaken: bool,
    /// A withdrawn body has not come.
    pub(crate) given_up: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) replica: Replica<()>,
    pub(crate) ticks: u8,
    /// When each commit was made, and acknowledged.
    pub(crate) made: Vec<u8>,
    /// The commits that were announced, and parts of the next one.
    pub(crate) told: usize,
    pub(crate) parts: usize,
    /// When the last heartbeat was sent, and its echo.
    pub(crate) said: u8,
    pub(crate) echo: Option<u8>,
    /// Counts connections.
    pub(crate) connection: u32,
    /// The origin has accepted the replica.
    pub(crate) connected: bool,
    /// Commits whose bodies were pushed, one bit each.
    pub(crate) pushed: u8,
    /// Bodies that reads wait for, with the number of announced commits at their request.
    pub(crate) asked: Vec<(Path, usize)>,
    /// One of them did not come.
    pub(crate) failed: bool,
    /// Those of them without a waiting read.
    pub(crate) withdrawn: Vec<Path>,
    /// Number of readers that have gone.
    pub(crate) left: usize,
    pub(crate) storing: Vec<Digest>,
    pub(crate) dropping: Vec<Digest>,
    pub(crate) committing: bool,
    pub(crate) readers: Vec<Reader>,
    /// The highest position of reads that were answered.
    pub(crate) floor: usize,
    pub(crate) seen: EventEffects,
}

impl State {
    pub(crate) fn frame<M>(&self, message: M) -> Frame<M> {
        let (origin, replica) = (Incarnation(1), Incarnation(0));
        Frame { session: Session { origin, replica, connection: self.connection }, message }
    }

    pub(crate) fn control(&mut self, message: ToReplica) {
        let frame = self.frame(message);
        self.replica.handle_control(reading(self.ticks), frame);
    }

    pub(crate) fn body(&mut self, header: BodyHeader) {
        let payload = header.version.map(|version| Payload {
            digest: version.content.digest,
            size: version.content.size,
            bytes: (),
        });
        let frame = self.frame(header);
        self.replica.handle_body(reading(self.ticks), frame, payload);
    }

    /// Takes in the requests of the replica.
    pub(crate) fn pump(&mut self) {
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
                    ToOrigin::Withdraw(path) => self.withdrawn.push(path),
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
        // Messages in flight may arrive in any order.
        self.asked.sort_unstable();
        self.storing.sort_unstable();
        self.dropping.sort_unstable();
    }

    /// A demand is answered.
    pub(crate) fn ends(&mut self, asked: usize) -> Path {
        let (path, _) = self.asked.remove(asked);
        self.withdrawn.retain(|other| *other != path);
        path
    }

    /// The origin's answer to a hello, which is its first message.
    pub(crate) fn welcome(&mut self, position: Option<Position>) {
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
    pub(crate) fn answered(&mut self, answer: &Answer) {
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

    /// Whether the origin could have sent, at that tick and after the announced commits, that these are all.
    pub(crate) fn is_true(&self, said: u8) -> bool {
        let before = self.made.iter().filter(|at| **at < said).count();
        let by = self.made.iter().filter(|at| **at <= said).count();
        (before..=by).contains(&self.told)
    }
}
