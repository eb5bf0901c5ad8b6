//! The clients that write and read, and the states that they have seen.

mod arrivals;
mod holds;
mod opened;
mod snapshots;

use core::time::Duration;
use std::collections::BTreeMap;

use lull_cc::Bytes;
use lull_replication::checker::{self, Acknowledged, Changes, Log, Name, Read, Seen, Violation};
use lull_replication::origin::{self, HoldId, Put, Transaction, TransactionId};
use lull_replication::path::{Path, prefix_of};
use lull_replication::replica::{Answer, Entry, Outcome, ReadId, Request, What};
use lull_replication::types::{Commit, Content, Digest, Metadata, Payload, Sequence, Version};
use lull_sim::random::Random;

use super::Situation;
use super::clock::True;
use super::disk::{Body, contents};
use super::world::{Event, MS, World};

pub(super) use arrivals::News;
use arrivals::Waits;
use holds::Held;
use opened::{Open, ReadingOn};
use snapshots::Snapshots;

/// Objects of a run, in two folders; two of them differ only in case.
const NAMES: [&str; 11] =
    ["a/0", "a/1", "a/2", "a/3", "a/4", "b/0", "b/1", "b/2", "c", "a/folder/5", "C"];

/// The target of a request; objects by their index among the names.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Object(usize),
    Entry(usize),
    /// The version that was just looked up, as a file system opens it.
    Version(usize, Version),
    Folder(&'static str),
    Names(&'static str),
}

/// A read without an answer so far.
#[derive(Clone, Debug)]
struct Reading {
    number: u32,
    began: True,
    replica: usize,
    asked: Asked,
    /// Δ of its answer so far.
    bound: Option<Duration>,
}

/// The id of a session's read.
fn id_of(session: usize, number: u32) -> ReadId {
    ReadId((session as u64) << 32 | u64::from(number))
}

/// The larger Δ; none is no bound.
fn looser(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    Some(one?.max(other?))
}

/// A client that reads one thing after another.
#[derive(Clone, Debug)]
struct Session {
    replica: usize,
    /// The state of its token.
    seen: Sequence,
    reading: Option<Reading>,
    count: u32,
    open: Option<Open>,
    reading_on: Option<ReadingOn>,
}

/// A requested change at the origin.
#[derive(Clone, Debug)]
enum Wanted {
    Changes(Changes),
    /// The state of this sequence again.
    Back(Sequence),
}

/// A rollback that was acknowledged.
#[derive(Clone, Copy, Debug)]
struct Back {
    to: Sequence,
    position: Sequence,
    at: True,
}

/// All clients, and their history.
pub(super) struct Clients {
    paths: Vec<Path>,
    sessions: Vec<Session>,
    /// The submitted changes, by transaction number.
    written: Vec<Wanted>,
    bodies: BTreeMap<Digest, Payload<Body>>,
    /// By name the last submitted body, and the one before.
    last: BTreeMap<usize, [Payload<Body>; 2]>,
    made: u64,
    acknowledged: Vec<Acknowledged>,
    rollbacks: Vec<Back>,
    history: Vec<Read>,
    snapshots: Snapshots,
    waits: Waits,
    /// Transactions without an answer.
    open: u32,
    /// Bodies that are held, or will be.
    holds: BTreeMap<HoldId, Held>,
    /// How many there have ever been.
    held: u64,
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

    pub(super) fn handle_origin(&mut self, now: True, event: &origin::Event) {
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
            | origin::Event::Held { .. }
            | origin::Event::Turned { .. }
            | origin::Event::Close(_)
            | origin::Event::Lost { .. } => {}
        }
    }

    fn body(&mut self, random: &mut Random) -> Payload<Body> {
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
    fn next_body(&mut self, random: &mut Random, at: usize) -> Payload<Body> {
        let body = match self.last.get(&at) {
            Some([_, before]) if random.below(6) == 0 => before.clone(),
            _ => self.body(random),
        };
        let newest = self.last.get(&at).map_or(&body, |[newest, _]| newest).clone();
        self.last.insert(at, [body.clone(), newest]);
        body
    }

    fn body_of(&self, digest: &Digest) -> Option<Body> {
        self.bodies.get(digest).map(|payload| payload.bytes)
    }

    fn name(&self, path: &Path) -> Option<Name> {
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
    fn told(&self, version: &Version) -> Seen {
        self.body_of(&version.content.digest).map_or(Seen::Present, Seen::Body)
    }

    /// The observations of a listing, for all objects that it covers.
    fn listed(&self, folder: &str, names: &[(Vec<u8>, Entry)]) -> Vec<(Name, Seen)> {
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
                _ => seen.push((Name(at as u32), Seen::Absent)),
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

impl World {
    pub(super) fn write(&mut self) {
        if self.calm {
            return;
        }
        let delay = self.some(35 * MS);
        self.after(delay, Event::Write);
        if self.origin.machine.is_some() && self.clients.open < 4 {
            if self.random.below(12) == 0 {
                self.hold();
            } else {
                self.submit();
            }
        }
    }

    /// Submits some transaction.
    pub(super) fn submit(&mut self) {
        let World { clients, random, origin, .. } = self;
        let Some(machine) = &mut origin.machine else { return };
        if random.below(40) == 0 {
            let id = TransactionId(clients.written.len() as u64);
            let to = Sequence(machine.last().sequence.0.saturating_sub(1 + random.below(6)));
            clients.written.push(Wanted::Back(to));
            clients.open += 1;
            self.with_origin(|machine, now| machine.handle_rollback(now, id, to));
            return;
        }
        let mut changes = BTreeMap::new();
        let count = if random.below(3) == 0 { 2 + random.below(4) } else { 1 };
        for _ in 0..count {
            // The first few are written most.
            let upto = random.below(clients.paths.len() as u64);
            let at = random.below(1 + upto) as usize;
            let put = match random.below(10) {
                0 | 1 => Put::Delete,
                // A copy of another object, whose body is stored everywhere already.
                2 => {
                    let from = &clients.paths[random.below(NAMES.len() as u64) as usize];
                    let version = machine.image().objects.get(from);
                    version.map_or(Put::Delete, |version| Put::Stored(version.content))
                }
                _ => Put::Body(clients.next_body(random, at), Metadata::default()),
            };
            changes.insert(clients.paths[at].clone(), put);
        }
        if random.below(50) == 0 {
            // Below a file, if that exists: to be rejected as a whole.
            let below = Path::new("c/below").expect("a path");
            changes.insert(below, Put::Body(clients.body(random), Metadata::default()));
            changes.insert(
                clients.paths[8].clone(),
                Put::Body(clients.body(random), Metadata::default()),
            );
        }
        self.submit_changes(changes);
    }

    fn submit_changes(&mut self, changes: BTreeMap<Path, Put<Body>>) {
        let clients = &mut self.clients;
        let id = TransactionId(clients.written.len() as u64);
        let written = changes.iter().filter_map(|(path, put)| {
            let body = match put {
                Put::Body(payload, _) => Some(payload.bytes),
                Put::Stored(content) => clients.body_of(&content.digest),
                Put::Delete => None,
            };
            clients.name(path).map(|name| (name, body))
        });
        let written = Wanted::Changes(written.collect());
        clients.written.push(written);
        clients.open += 1;
        self.with_origin(|machine, now| {
            machine.handle_transaction(now, id, Transaction { changes });
        });
    }

    /// Publishes a lost body again, under one of its names, until it is stored.
    pub(super) fn put_back(&mut self, digest: Digest) {
        let World { clients, origin, .. } = self;
        // The next start reports it again.
        let Some(machine) = &origin.machine else { return };
        if machine.has_body(&digest) {
            self.situations.add(Situation::PutBack);
            return;
        }
        let objects = machine.image().objects.iter();
        let path = objects.filter(|(_, version)| version.content.digest == digest);
        let path = path.map(|(path, _)| path.clone()).next();
        let (Some(path), Some(payload)) = (path, clients.bodies.get(&digest).cloned()) else {
            return;
        };
        self.after(100 * MS, Event::PutBack { digest });
        let put = Put::Body(payload, Metadata::default());
        self.submit_changes([(path, put)].into());
    }

    pub(super) fn read(&mut self, session: usize) {
        if self.clients.sessions[session].reading.is_some() {
            return;
        }
        self.read_on(session);
        self.look_back(session);
        if self.random.below(8) == 0 {
            let to = self.random.below(self.replicas.len() as u64) as usize;
            self.clients.sessions[session].replica = to;
        }
        let object = self.random.below(NAMES.len() as u64);
        let object = self.random.below(1 + object) as usize;
        let folder = if self.random.below(2) == 0 { "" } else { "a" };
        let asked = match self.random.below(12) {
            0 | 1 => Asked::Folder(folder),
            2 => Asked::Names(folder),
            3..=5 => Asked::Entry(object),
            _ => Asked::Object(object),
        };
        let replica = self.clients.sessions[session].replica;
        if self.replicas[replica].machine.is_none() {
            let delay = self.some(50 * MS);
            self.after(delay, Event::Read { session });
            return;
        }
        let one = &mut self.clients.sessions[session];
        one.count += 1;
        let number = one.count;
        // No read has a smaller bound.
        let bound = Some(Duration::ZERO);
        one.reading = Some(Reading { number, began: self.now, replica, asked, bound });
        if self.random.below(12) == 0 && !self.calm {
            let delay = self.some(40 * MS);
            self.after(delay, Event::Cancel { session, number });
        }
        self.ask(session);
    }

    fn ask(&mut self, session: usize) {
        let one = &self.clients.sessions[session];
        let Some(Reading { number, replica, asked, .. }) = one.reading.clone() else { return };
        let path = |at: usize| self.clients.paths[at].clone();
        let what = match asked {
            Asked::Object(at) => What::Object(path(at)),
            Asked::Entry(at) => What::Entry(path(at)),
            Asked::Version(at, version) => What::Version(path(at), version),
            Asked::Folder(folder) => What::Folder(Path::new(folder).ok()),
            Asked::Names(folder) => What::Names(Path::new(folder).ok()),
        };
        let request = Request { what, after: one.seen };
        let (id, mut why) = (id_of(session, number), None);
        self.with_replica(replica, |machine, now| why = machine.handle_read(now, id, request));
        self.expect_others(session, replica, why);
    }

    pub(super) fn cancel(&mut self, session: usize, number: u32) {
        let one = &mut self.clients.sessions[session];
        if let Some(reading) = one.reading.take_if(|reading| reading.number == number) {
            self.situations.add(Situation::Cancelled);
            let id = id_of(session, number);
            self.with_replica(reading.replica, |machine, now| machine.cancel_read(now, id));
            let delay = self.some(25 * MS);
            self.after(delay, Event::Read { session });
        } else if let Some(on) = one.reading_on.take_if(|on| on.number == number) {
            let id = id_of(session, number);
            self.with_replica(on.open.0, |machine, now| machine.cancel_read(now, id));
        }
    }

    pub(super) fn answered(&mut self, replica: usize, answer: Answer) {
        let session = (answer.id.0 >> 32) as usize;
        let number = answer.id.0 as u32;
        if self.answered_on(replica, session, &answer) {
            return;
        }
        let Some(reading) = self.clients.sessions[session].reading.clone() else { return };
        if reading.number != number {
            return;
        }
        let bound = looser(reading.bound, self.bound(replica));
        let seen = match (&answer.outcome, &reading.asked) {
            (Outcome::Object(version), Asked::Object(at) | Asked::Version(at, _)) => {
                let digest = version.content.digest;
                let Some(payload) = self.replicas[replica].disk.body(&digest) else {
                    self.missing(replica, session, &digest);
                    return;
                };
                let seen = Seen::Body(payload.bytes);
                self.graced(replica, *at, *version);
                self.clients.sessions[session].open = Some((replica, *at, *version));
                vec![(Name(*at as u32), seen)]
            }
            // The version is reported all the same.
            (Outcome::Lost(version), Asked::Object(at) | Asked::Version(at, _)) => {
                vec![(Name(*at as u32), self.clients.told(version))]
            }
            (Outcome::Absent, Asked::Version(..)) => {
                // A file system returns ESTALE, and the program looks the name up again.
                self.situations.add(Situation::GoneVersion);
                self.clients.sessions[session].reading = None;
                self.after(MS, Event::Read { session });
                return;
            }
            (Outcome::Absent, Asked::Object(at) | Asked::Entry(at)) => {
                self.situations.add(Situation::AbsentRead);
                vec![(Name(*at as u32), Seen::Absent)]
            }
            (Outcome::Entry(Entry::File(version)), Asked::Entry(at)) => {
                self.situations.add(Situation::LookedUp);
                if self.random.below(2) == 0 {
                    // To be opened within the same system call, which is one read.
                    let asked = Asked::Version(*at, *version);
                    let one = &mut self.clients.sessions[session];
                    one.count += 1;
                    let number = one.count;
                    one.reading = Some(Reading { number, asked, bound, ..reading });
                    one.seen = one.seen.max(answer.at);
                    let delay = self.some(3 * MS);
                    self.after(delay, Event::Again { session, number });
                    return;
                }
                vec![(Name(*at as u32), self.clients.told(version))]
            }
            (Outcome::Folder(entries), Asked::Folder(folder)) => {
                self.situations.add(Situation::Listed);
                let paths = self.clients.paths.iter().enumerate();
                let within = paths.filter(|(_, path)| path.is_within(folder.as_bytes()));
                let seen = within.map(|(at, path)| {
                    let there = entries.iter().any(|(other, _)| other == path);
                    (Name(at as u32), if there { Seen::Present } else { Seen::Absent })
                });
                seen.collect()
            }
            (Outcome::Names(_) | Outcome::Absent, Asked::Names(folder)) => {
                self.situations.add(Situation::NamesRead);
                let names = match &answer.outcome {
                    Outcome::Names(names) => &names[..],
                    _ => &[],
                };
                self.clients.listed(folder, names)
            }
            _ => {
                self.stuck.push(format!("an answer of another kind than the question: {answer:?}"));
                return;
            }
        };
        let one = &mut self.clients.sessions[session];
        one.reading = None;
        one.seen = one.seen.max(answer.at);
        self.clients.history.push(Read {
            session: session as u64,
            replica: replica as u64,
            began: Duration::from_nanos(reading.began),
            ended: Duration::from_nanos(self.now),
            bound,
            seen,
        });
        let delay = self.some(25 * MS);
        self.after(delay, Event::Read { session });
    }

    /// A version was read that may be overwritten by now.
    fn graced(&mut self, replica: usize, at: usize, version: Version) {
        let Some(machine) = &self.replicas[replica].machine else { return };
        let current = machine.image().objects.get(&self.clients.paths[at]);
        if current.is_none_or(|current| current.version != version) {
            self.situations.add(Situation::Graced);
        }
    }

    /// The body is missing or corrupted on the disk: the replica gets a report, and the body is read again.
    fn missing(&mut self, replica: usize, session: usize, digest: &Digest) {
        let host = &mut self.replicas[replica];
        let now = host.clock.read(self.now);
        if let Some(machine) = &mut host.machine {
            machine.handle_missing(now, digest);
        }
        let one = &mut self.clients.sessions[session];
        one.count += 1;
        let number = one.count;
        if let Some(reading) = &mut one.reading {
            reading.number = number;
        }
        // Through the queue of events: this is called from within a read of the replica.
        self.after(MS, Event::Again { session, number });
    }

    /// Asks again, unless the session has another read by now.
    pub(super) fn again(&mut self, session: usize, number: u32) {
        let reading = self.clients.sessions[session].reading.as_ref();
        if reading.is_some_and(|reading| reading.number == number) {
            self.ask(session);
        }
    }

    /// Whether all submitted changes were answered.
    pub(super) fn clients_idle(&self) -> bool {
        self.clients.open == 0
    }

    /// These sessions have lost their replica, and read something else later.
    pub(super) fn restart_sessions(&mut self, sessions: Vec<usize>) {
        for session in sessions {
            let delay = self.some(50 * MS);
            self.after(delay, Event::Read { session });
        }
    }
}
