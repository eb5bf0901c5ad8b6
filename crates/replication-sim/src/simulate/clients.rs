//! The clients that write and read, and the states that they have seen.

mod arrivals;
mod snapshots;

use core::time::Duration;
use std::collections::BTreeMap;

use lull_cc::Bytes;
use lull_replication::checker::{
    self, Acknowledged, Changes, Log, Name, Observation, Read, Violation,
};
use lull_replication::origin::{self, HoldId};
use lull_replication::path::{Path, prefix_of};
use lull_replication::replica::{Entry, ReadId};
use lull_replication::types::{Commit, Content, Digest, Payload, Sequence, Version};
use lull_sim::random::Random;

use super::clock::TrueTime;
use super::durable::{Body, contents};

use arrivals::Waits;
pub(super) use arrivals::{OriginEvents, Wait};
use snapshots::Snapshots;

/// Objects of a run, in two folders; two of them differ only in case.
pub(super) const NAMES: [&str; 11] =
    ["a/0", "a/1", "a/2", "a/3", "a/4", "b/0", "b/1", "b/2", "c", "a/folder/5", "C"];

/// The target of a request; objects by their index among the names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Object(usize),
    Entry(usize),
    /// The version that was just looked up, as a file system opens it.
    Version(usize, Version),
    Folder(&'static str),
    Names(&'static str),
}

/// A read without an answer so far.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) number: u32,
    pub(super) began: TrueTime,
    pub(super) replica: usize,
    pub(super) asked: Asked,
    /// Δ of its answer so far.
    pub(super) bound: Option<Duration>,
}

/// The id of a session's read.
pub(super) fn id_of(session: usize, number: u32) -> ReadId {
    ReadId((session as u64) << 32 | u64::from(number))
}

/// The larger Δ; none means no bound.
pub(super) fn max_bound(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    Some(one?.max(other?))
}

/// A client that reads one thing after another.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) replica: usize,
    /// The state of its token.
    pub(super) seen: Sequence,
    pub(super) reading: Option<Reading>,
    pub(super) count: u32,
    pub(super) open: Option<Open>,
    pub(super) reading_on: Option<ReadingOn>,
}

/// The open file of a session: its replica, object and version.
pub(super) type Open = (usize, usize, Version);

/// A further part that was requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadingOn {
    pub(super) number: u32,
    pub(super) began: TrueTime,
    pub(super) open: Open,
    pub(super) waited: bool,
}

/// A requested change at the origin.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Changes(Changes),
    /// The state of this sequence again.
    Back(Sequence),
}

/// A rollback that was acknowledged.
#[derive(Clone, Copy, Debug)]
struct Back {
    to: Sequence,
    position: Sequence,
    at: TrueTime,
}

/// A body that is held, or will be.
#[derive(Clone, Debug)]
pub(super) struct HeldBody {
    /// The place of its object among the names.
    pub(super) name: usize,
    pub(super) payload: Payload<Body>,
}

/// All clients, and their history.
pub(super) struct Clients {
    pub(super) paths: Vec<Path>,
    pub(super) sessions: Vec<Session>,
    /// The submitted changes, by transaction number.
    pub(super) written: Vec<Wanted>,
    pub(super) bodies: BTreeMap<Digest, Payload<Body>>,
    /// By name the last submitted body, and the one before.
    last: BTreeMap<usize, [Payload<Body>; 2]>,
    made: u64,
    acknowledged: Vec<Acknowledged>,
    rollbacks: Vec<Back>,
    pub(super) history: Vec<Read>,
    pub(super) snapshots: Snapshots,
    pub(super) waits: Waits,
    /// Transactions without an answer.
    pub(super) open: u32,
    /// Bodies that are held, or will be.
    pub(super) holds: BTreeMap<HoldId, HeldBody>,
    /// How many there have ever been.
    pub(super) held: u64,
}

impl Clients {
    pub(super) fn new(random: &mut Random, replicas: usize) -> Self {
        let paths = NAMES.iter().map(|name| Path::new(name).expect("a path")).collect();
        let session = |at: usize| Session {
            replica: at % replicas,
            seen: Sequence::ZERO,
            reading: None,
            count: 0,
            open: None,
            reading_on: None,
        };
        let sessions = (0..4 + random.below(4) as usize).map(session).collect();
        Clients {
            paths,
            sessions,
            written: Vec::new(),
            bodies: BTreeMap::new(),
            last: BTreeMap::new(),
            made: 0,
            acknowledged: Vec::new(),
            rollbacks: Vec::new(),
            history: Vec::new(),
            snapshots: Snapshots::default(),
            waits: Waits::default(),
            open: 0,
            holds: BTreeMap::new(),
            held: 0,
        }
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn reads(&self) -> usize {
        self.history.len()
    }

    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.len() + self.rollbacks.len()
    }

    pub(super) fn rollbacks(&self) -> u64 {
        self.rollbacks.len() as u64
    }

    /// Submitted changes will not be answered.
    pub(super) fn origin_crashed(&mut self) {
        self.open = 0;
        self.holds.clear();
    }

    pub(super) fn replica_crashed(&mut self, replica: usize) -> Vec<usize> {
        let mut left = Vec::new();
        for (at, session) in self.sessions.iter_mut().enumerate() {
            session.reading_on.take_if(|on| on.open.0 == replica);
            if session.reading.as_ref().is_some_and(|reading| reading.replica == replica) {
                session.reading = None;
                left.push(at);
            }
        }
        left
    }

    pub(super) fn handle_origin(&mut self, now: TrueTime, event: &origin::Event) {
        match event {
            origin::Event::Acknowledged { transaction, sequence } => {
                self.open = self.open.saturating_sub(1);
                match &self.written[transaction.0 as usize] {
                    Wanted::Changes(changes) => self.acknowledged.push(Acknowledged {
                        position: sequence.0,
                        changes: changes.clone(),
                        at: Duration::from_nanos(now),
                    }),
                    Wanted::Back(to) => {
                        self.rollbacks.push(Back { to: *to, position: *sequence, at: now });
                    }
                }
            }
            origin::Event::Refused { .. } => self.open = self.open.saturating_sub(1),
            origin::Event::Held { id, outcome: Err(_) } => {
                self.holds.remove(id);
            }
            origin::Event::Progress { .. }
            | origin::Event::Arrived(_)
            | origin::Event::Urgency(_)
            | origin::Event::Held { .. }
            | origin::Event::Turned { .. }
            | origin::Event::Close(_)
            | origin::Event::Lost { .. } => {}
        }
    }

    pub(super) fn body(&mut self, random: &mut Random) -> Payload<Body> {
        self.made += 1;
        let body = checker::Body(self.made);
        // Some are stored with the log, some are not.
        let size = Bytes(1_000 + random.below(30_000));
        let digest = Digest::of(&contents(body, size));
        let payload = Payload { digest, size, bytes: body };
        self.bodies.insert(digest, payload.clone());
        payload
    }

    /// A body for a name: mostly a new one, sometimes its previous one, which may be being deleted at the
    /// moment.
    pub(super) fn next_body(&mut self, random: &mut Random, at: usize) -> Payload<Body> {
        let body = match self.last.get(&at) {
            Some([_, before]) if random.below(6) == 0 => before.clone(),
            _ => self.body(random),
        };
        let newest = self.last.get(&at).map_or(&body, |[newest, _]| newest).clone();
        self.last.insert(at, [body.clone(), newest]);
        body
    }

    pub(super) fn body_of(&self, digest: &Digest) -> Option<Body> {
        self.bodies.get(digest).map(|payload| payload.bytes)
    }

    pub(super) fn name(&self, path: &Path) -> Option<Name> {
        self.paths.iter().position(|other| other == path).map(|at| Name(at as u32))
    }

    fn changes(&self, commit: &Commit) -> Changes {
        let change = |change: &lull_replication::types::Change| {
            let body = change.content.and_then(|content: Content| self.body_of(&content.digest));
            self.name(&change.path).map(|name| (name, body))
        };
        commit.changes.iter().filter_map(change).collect()
    }

    /// The observation of a version that was reported without its body.
    pub(super) fn told(&self, version: &Version) -> Observation {
        self.body_of(&version.content.digest).map_or(Observation::Present, Observation::Body)
    }

    /// The observations of a listing, for all objects that it covers.
    pub(super) fn listed(
        &self,
        folder: &str,
        names: &[(Vec<u8>, Entry)],
    ) -> Vec<(Name, Observation)> {
        let within = prefix_of(folder.as_bytes());
        let mut seen = Vec::new();
        for (at, path) in self.paths.iter().enumerate() {
            let Some(rest) = path.as_bytes().strip_prefix(&within[..]) else { continue };
            let end = rest.iter().position(|byte| *byte == b'/');
            let (name, is_deeper) = end.map_or((rest, false), |end| (&rest[..end], true));
            let entry = names.iter().find(|(other, _)| other == name).map(|(_, entry)| entry);
            match entry {
                Some(Entry::File(version)) if !is_deeper => {
                    seen.push((Name(at as u32), self.told(version)));
                }
                // A listing does not show which of several files makes it a folder.
                Some(Entry::Folder(_)) if is_deeper => {}
                _ => seen.push((Name(at as u32), Observation::Absent)),
            }
        }
        seen
    }

    /// The result of the checker.
    pub(super) fn check(&self, log: &[Commit]) -> Vec<Violation> {
        let commits: Vec<_> = log.iter().map(|commit| self.changes(commit)).collect();
        let mut acknowledged = self.acknowledged.clone();
        acknowledged.extend(self.rollbacks.iter().map(|back| back.expected(&commits)));
        checker::check(&Log::new(commits), &acknowledged, &self.history)
    }
}

impl Back {
    /// Its required effect: all later changes are undone.
    fn expected(&self, commits: &[Changes]) -> Acknowledged {
        let index = |sequence: u64| usize::try_from(sequence).unwrap_or(usize::MAX);
        let (then, since) = commits.split_at(index(self.to.0).min(commits.len()));
        let between = index(self.position.0.saturating_sub(self.to.0 + 1));
        let names = since.iter().take(between).flat_map(BTreeMap::keys);
        let was = |name: &Name| then.iter().rev().find_map(|changes| changes.get(name).copied());
        let changes = names.map(|name| (*name, was(name).flatten())).collect();
        Acknowledged { position: self.position.0, changes, at: Duration::from_nanos(self.at) }
    }
}
