//! Who writes and reads, and what they have seen.

use core::time::Duration;
use std::collections::BTreeMap;

use lull_cc::Bytes;
use lull_sim::random::Random;

use super::Situation;
use super::host::{Body, True};
use super::world::{Event, MS, World};
use crate::checker::{self, Acknowledged, Changes, Log, Name, Read, Seen, Violation};
use crate::origin::{self, Put, Transaction, TransactionId};
use crate::path::Path;
use crate::replica::{Answer, Outcome, ReadId, Request, What};
use crate::types::{Commit, Content, Digest, Metadata, Payload, Sequence};

/// Objects of a run, in two folders.
const NAMES: [&str; 10] =
    ["a/0", "a/1", "a/2", "a/3", "a/4", "b/0", "b/1", "b/2", "c", "a/folder/5"];

/// A read that was not answered yet.
#[derive(Clone, Debug)]
struct Reading {
    number: u32,
    began: True,
    replica: usize,
    what: Option<usize>,
    folder: &'static str,
}

/// Somebody who reads one thing after the other.
#[derive(Clone, Debug)]
struct Session {
    replica: usize,
    /// What its token says.
    seen: Sequence,
    reading: Option<Reading>,
    count: u32,
    /// The body that it has open, and where.
    open: Option<(usize, Digest)>,
}

/// All clients, and their history.
pub(super) struct Clients {
    paths: Vec<Path>,
    sessions: Vec<Session>,
    /// What was submitted, by the number of the transaction.
    written: Vec<Changes>,
    bodies: BTreeMap<Digest, Body>,
    /// By name the last body that was submitted, and the one before.
    last: BTreeMap<usize, [Payload<Body>; 2]>,
    made: u64,
    acknowledged: Vec<Acknowledged>,
    history: Vec<Read>,
    /// Transactions that nobody has answered.
    open: u32,
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
            history: Vec::new(),
            open: 0,
        }
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn reads(&self) -> usize {
        self.history.len()
    }

    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// Nobody will answer what was submitted.
    pub(super) fn origin_crashed(&mut self) {
        self.open = 0;
    }

    pub(super) fn replica_crashed(&mut self, replica: usize) -> Vec<usize> {
        let mut left = Vec::new();
        for (at, session) in self.sessions.iter_mut().enumerate() {
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
                self.acknowledged.push(Acknowledged {
                    position: sequence.0,
                    changes: self.written[transaction.0 as usize].clone(),
                    at: Duration::from_nanos(now),
                });
            }
            origin::Event::Refused { .. } => self.open = self.open.saturating_sub(1),
            origin::Event::Progress { .. }
            | origin::Event::Turned { .. }
            | origin::Event::Close(_)
            | origin::Event::Lost { .. } => {}
        }
    }

    fn body(&mut self, random: &mut Random) -> Payload<Body> {
        self.made += 1;
        let body = checker::Body(self.made);
        let digest = Digest::of(&body.0.to_le_bytes());
        self.bodies.insert(digest, body);
        // Some are stored with the log, some are not.
        let size = Bytes(1_000 + random.below(30_000));
        Payload { digest, size, bytes: body }
    }

    /// A body for a name: mostly a new one, now and then the one that it had before, which may be
    /// being deleted just then.
    fn next_body(&mut self, random: &mut Random, at: usize) -> Payload<Body> {
        let body = match self.last.get(&at) {
            Some([_, before]) if random.below(6) == 0 => before.clone(),
            _ => self.body(random),
        };
        let newest = self.last.get(&at).map_or(&body, |[newest, _]| newest).clone();
        self.last.insert(at, [body.clone(), newest]);
        body
    }

    fn name(&self, path: &Path) -> Option<Name> {
        self.paths.iter().position(|other| other == path).map(|at| Name(at as u32))
    }

    fn changes(&self, commit: &Commit) -> Changes {
        let change = |change: &crate::types::Change| {
            let body = change
                .content
                .and_then(|content: Content| self.bodies.get(&content.digest).copied());
            self.name(&change.path).map(|name| (name, body))
        };
        commit.changes.iter().filter_map(change).collect()
    }

    /// What the checker says of it all.
    pub(super) fn check(&self, log: &[Commit]) -> Vec<Violation> {
        let log = Log::new(log.iter().map(|commit| self.changes(commit)).collect());
        checker::check(&log, &self.acknowledged, &self.history)
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
            self.submit();
        }
    }

    /// Submits some transaction.
    pub(super) fn submit(&mut self) {
        let World { clients, random, origin, .. } = self;
        let Some(machine) = &mut origin.machine else { return };
        let mut changes = BTreeMap::new();
        let rollback = random.below(40) == 0;
        if rollback {
            let to = Sequence(machine.last().sequence.0.saturating_sub(1 + random.below(6)));
            if let Ok(transaction) = machine.rollback(to) {
                self.situations.add(Situation::Rollback);
                changes = transaction.changes;
            }
        }
        if changes.is_empty() {
            let count = if random.below(3) == 0 { 2 + random.below(4) } else { 1 };
            for _ in 0..count {
                // The first few are written most.
                let upto = random.below(clients.paths.len() as u64);
                let at = random.below(1 + upto) as usize;
                let put = match random.below(10) {
                    0 | 1 => Put::Delete,
                    // A copy of another object, whose body is everywhere already.
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
                // Below a file, if that exists: to be refused as a whole.
                let below = Path::new("c/below").expect("a path");
                changes.insert(below, Put::Body(clients.body(random), Metadata::default()));
                changes.insert(
                    clients.paths[8].clone(),
                    Put::Body(clients.body(random), Metadata::default()),
                );
            }
        }
        let id = TransactionId(clients.written.len() as u64);
        let written = changes.iter().filter_map(|(path, put)| {
            let body = match put {
                Put::Body(payload, _) => Some(payload.bytes),
                Put::Stored(content) => clients.bodies.get(&content.digest).copied(),
                Put::Delete => None,
            };
            clients.name(path).map(|name| (name, body))
        });
        let written = written.collect();
        clients.written.push(written);
        clients.open += 1;
        self.with_origin(|machine, now| {
            machine.handle_transaction(now, id, Transaction { changes });
        });
    }

    pub(super) fn read(&mut self, session: usize) {
        if self.clients.sessions[session].reading.is_some() {
            return;
        }
        self.read_on(session);
        if self.random.below(8) == 0 {
            let to = self.random.below(self.replicas.len() as u64) as usize;
            self.clients.sessions[session].replica = to;
        }
        let object = self.random.below(NAMES.len() as u64);
        let object = self.random.below(1 + object) as usize;
        let what = (self.random.below(6) > 0).then_some(object);
        let folder = if self.random.below(2) == 0 { "" } else { "a" };
        let replica = self.clients.sessions[session].replica;
        if self.replicas[replica].machine.is_none() {
            let delay = self.some(50 * MS);
            self.after(delay, Event::Read { session });
            return;
        }
        let one = &mut self.clients.sessions[session];
        one.count += 1;
        let number = one.count;
        one.reading = Some(Reading { number, began: self.now, replica, what, folder });
        if self.random.below(12) == 0 && !self.calm {
            let delay = self.some(40 * MS);
            self.after(delay, Event::Cancel { session, number });
        }
        self.ask(session);
    }

    /// Reads more of what it has open, which may have been overwritten by now.
    fn read_on(&mut self, session: usize) {
        let Some((replica, digest)) = self.clients.sessions[session].open else { return };
        let host = &mut self.replicas[replica];
        if let Some(machine) = &mut host.machine
            && machine.has_body(&digest)
            && !host.disk.holds(&digest)
        {
            self.stuck.push(format!("replica {replica} says it has {digest:?}, and has not"));
        }
    }

    fn ask(&mut self, session: usize) {
        let one = &self.clients.sessions[session];
        let Some(Reading { number, replica, what, folder, .. }) = one.reading.clone() else {
            return;
        };
        let what = match what {
            Some(at) => What::Object(self.clients.paths[at].clone()),
            None => What::Folder(folder.to_owned()),
        };
        let request = Request { what, after: one.seen };
        let id = ReadId((session as u64) << 32 | u64::from(number));
        self.with_replica(replica, |machine, now| {
            machine.handle_read(now, id, request);
        });
    }

    pub(super) fn cancel(&mut self, session: usize, number: u32) {
        let one = &mut self.clients.sessions[session];
        if let Some(reading) = one.reading.take_if(|reading| reading.number == number) {
            self.situations.add(Situation::Cancelled);
            let id = ReadId((session as u64) << 32 | u64::from(number));
            self.with_replica(reading.replica, |machine, now| machine.cancel_read(now, id));
            let delay = self.some(25 * MS);
            self.after(delay, Event::Read { session });
        }
    }

    pub(super) fn answered(&mut self, replica: usize, answer: Answer) {
        let session = (answer.id.0 >> 32) as usize;
        let number = answer.id.0 as u32;
        let current = self.clients.sessions[session].reading.as_ref();
        if current.is_none_or(|reading| reading.number != number) {
            return;
        }
        let what = current.and_then(|reading| reading.what);
        let seen = match (&answer.outcome, what) {
            (Outcome::Object(version), Some(at)) => {
                let digest = version.content.digest;
                let Some(payload) = self.replicas[replica].disk.body(&digest) else {
                    self.missing(replica, session, &digest);
                    return;
                };
                vec![(Name(at as u32), Seen::Body(payload.bytes))]
            }
            (Outcome::Absent, Some(at)) => {
                self.situations.add(Situation::AbsentRead);
                vec![(Name(at as u32), Seen::Absent)]
            }
            (Outcome::Folder(entries), None) => {
                self.situations.add(Situation::Listed);
                let folder = current.map_or("", |reading| reading.folder);
                let paths = self.clients.paths.iter().enumerate();
                let within = paths.filter(|(_, path)| path.is_within(folder));
                let seen = within.map(|(at, path)| {
                    let there = entries.iter().any(|(other, _)| other == path);
                    (Name(at as u32), if there { Seen::Present } else { Seen::Absent })
                });
                seen.collect()
            }
            _ => {
                self.stuck.push(format!("an answer of another kind than the question: {answer:?}"));
                return;
            }
        };
        let bound = self.bound(replica);
        let one = &mut self.clients.sessions[session];
        let Some(reading) = one.reading.take() else { return };
        if let Outcome::Object(version) = &answer.outcome {
            one.open = Some((replica, version.content.digest));
        }
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

    /// The body is not on the disk, or has gone bad there: said to the replica, and read again.
    fn missing(&mut self, replica: usize, session: usize, digest: &Digest) {
        let host = &mut self.replicas[replica];
        let now = host.clock.read(self.now);
        if let Some(machine) = &mut host.machine {
            machine.handle_missing(now, digest);
        }
        let one = &mut self.clients.sessions[session];
        if let Some(reading) = &mut one.reading {
            one.count += 1;
            reading.number = one.count;
        }
        // Through the queue of events: this is called while the replica is being asked.
        self.after(MS, Event::Again { session });
    }

    pub(super) fn again(&mut self, session: usize) {
        self.ask(session);
    }

    /// Reads that wait since before `began`.
    pub(super) fn waiting_since(&self, began: True) -> usize {
        let reading = self.clients.sessions.iter().filter_map(|session| session.reading.as_ref());
        reading.filter(|reading| reading.began < began).count()
    }

    /// Whether all that was submitted was answered.
    pub(super) fn clients_idle(&self) -> bool {
        self.clients.open == 0
    }

    /// These sessions have lost whom they asked, and read something else by and by.
    pub(super) fn restart_sessions(&mut self, sessions: Vec<usize>) {
        for session in sessions {
            let delay = self.some(50 * MS);
            self.after(delay, Event::Read { session });
        }
    }
}
