//! The steps of a run's clients: they write, read, and judge the answers.

mod arrivals;
mod holds;
mod opened;
mod snapshots;

use core::time::Duration;
use std::collections::BTreeMap;

use lull_replication::checker::{Name, Observation, Read};
use lull_replication::origin::{Put, Transaction, TransactionId};
use lull_replication::path::Path;
use lull_replication::replica::{Answer, Entry, Outcome, ReadTarget, Request};
use lull_replication::types::{Digest, Metadata, Sequence, Version};

use super::Situation;
use super::clients::{Asked, NAMES, Reading, Wanted, id_of, max_bound};
use super::clock::MS;
use super::durable::Body;
use super::world::{Event, World};

impl World {
    pub(super) fn write(&mut self) {
        if self.calm {
            return;
        }
        let delay = self.random_delay(35 * MS);
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
            let delay = self.random_delay(50 * MS);
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
            let delay = self.random_delay(40 * MS);
            self.after(delay, Event::Cancel { session, number });
        }
        self.ask(session);
    }

    fn ask(&mut self, session: usize) {
        let one = &self.clients.sessions[session];
        let Some(Reading { number, replica, asked, .. }) = one.reading.clone() else { return };
        let path = |at: usize| self.clients.paths[at].clone();
        let target = match asked {
            Asked::Object(at) => ReadTarget::Object(path(at)),
            Asked::Entry(at) => ReadTarget::Entry(path(at)),
            Asked::Version(at, version) => ReadTarget::Version(path(at), version),
            Asked::Folder(folder) => ReadTarget::Folder(Path::new(folder).ok()),
            Asked::Names(folder) => ReadTarget::Names(Path::new(folder).ok()),
        };
        let request = Request { target, after: one.seen };
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
            let delay = self.random_delay(25 * MS);
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
        let bound = max_bound(reading.bound, self.bound(replica));
        let Some(seen) = self.observed(replica, session, &reading.asked, bound, &answer) else {
            return;
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
        let delay = self.random_delay(25 * MS);
        self.after(delay, Event::Read { session });
    }

    /// The observation in an answer. None if the session continues with another request.
    fn observed(
        &mut self,
        replica: usize,
        session: usize,
        asked: &Asked,
        bound: Option<Duration>,
        answer: &Answer,
    ) -> Option<Vec<(Name, Observation)>> {
        Some(match (&answer.outcome, asked) {
            (Outcome::Object(version), Asked::Object(at) | Asked::Version(at, _)) => {
                let digest = version.content.digest;
                let Some(payload) = self.replicas[replica].disk.body(&digest) else {
                    self.missing(replica, session, &digest);
                    return None;
                };
                let seen = Observation::Body(payload.bytes);
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
                return None;
            }
            (Outcome::Absent, Asked::Object(at) | Asked::Entry(at)) => {
                self.situations.add(Situation::AbsentRead);
                vec![(Name(*at as u32), Observation::Absent)]
            }
            (Outcome::Entry(Entry::File(version)), Asked::Entry(at)) => {
                self.situations.add(Situation::LookedUp);
                if self.random.below(2) == 0 {
                    self.open_next(session, *at, *version, bound, answer.at);
                    return None;
                }
                vec![(Name(*at as u32), self.clients.told(version))]
            }
            (Outcome::Folder(entries), Asked::Folder(folder)) => {
                self.situations.add(Situation::Listed);
                let paths = self.clients.paths.iter().enumerate();
                let within = paths.filter(|(_, path)| path.is_within(folder.as_bytes()));
                let seen = within.map(|(at, path)| {
                    let there = entries.iter().any(|(other, _)| other == path);
                    (
                        Name(at as u32),
                        if there { Observation::Present } else { Observation::Absent },
                    )
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
                return None;
            }
        })
    }

    /// Opens the version that was just looked up, within the same system call, which is one read.
    fn open_next(
        &mut self,
        session: usize,
        at: usize,
        version: Version,
        bound: Option<Duration>,
        seen: Sequence,
    ) {
        let one = &mut self.clients.sessions[session];
        let Some(reading) = &mut one.reading else { return };
        one.count += 1;
        let number = one.count;
        (reading.number, reading.asked, reading.bound) =
            (number, Asked::Version(at, version), bound);
        one.seen = one.seen.max(seen);
        let delay = self.random_delay(3 * MS);
        self.after(delay, Event::Again { session, number });
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
            let delay = self.random_delay(50 * MS);
            self.after(delay, Event::Read { session });
        }
    }
}
