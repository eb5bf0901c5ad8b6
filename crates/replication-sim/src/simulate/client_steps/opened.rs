//! Clients that continue to read open files, as in a mount or in a running response: a body that was evicted
//! meanwhile is fetched again, beside other reads of the session.

use lull_replication::replica::{Answer, Holding, Outcome, ReadTarget, Request, WaitReason};
use lull_replication::types::Sequence;

use super::super::Situation;
use super::super::clients::{Reading, ReadingOn, id_of};
use super::super::clock::{MS, TrueTime};
use super::super::world::{Event, World};

impl World {
    /// Reads more of its open file, which may have been overwritten by now.
    pub(super) fn read_on(&mut self, session: usize) {
        let one = &self.clients.sessions[session];
        let Some(open @ (replica, at, version)) = one.open else { return };
        let host = &self.replicas[replica];
        let Some(machine) = &host.machine else { return };
        let digest = version.content.digest;
        if machine.holding(&self.clients.paths[at], &version) == Holding::Here
            && !host.disk.holds(&digest)
        {
            self.stuck.push(format!("replica {replica} says it has {digest:?}, and has not"));
        }
        if one.reading_on.is_some() || self.more_random.below(2) > 0 {
            return;
        }
        let one = &mut self.clients.sessions[session];
        one.count += 1;
        let (number, began) = (one.count, self.now);
        one.reading_on = Some(ReadingOn { number, began, open, waited: false });
        if self.more_random.below(12) == 0 && !self.calm {
            let delay = self.more_random.below(80 * MS);
            self.after(delay, Event::Cancel { session, number });
        }
        self.go_on(session, number);
    }

    pub(in super::super) fn go_on(&mut self, session: usize, number: u32) {
        let on = self.clients.sessions[session].reading_on;
        let Some(on) = on.filter(|on| on.number == number) else { return };
        let (replica, at, version) = on.open;
        let target = ReadTarget::Opened(self.clients.paths[at].clone(), version);
        let request = Request { target, after: Sequence::ZERO };
        let mut why = None;
        self.with_replica(replica, |machine, now| {
            why = machine.handle_read(now, id_of(session, number), request);
        });
        if let Some(on) = &mut self.clients.sessions[session].reading_on {
            on.waited |= why.is_some();
        }
        if matches!(why, Some(WaitReason::Stale | WaitReason::Behind | WaitReason::Order)) {
            self.stuck.push(format!("replica {replica} holds up what is open: {why:?}"));
        }
    }

    /// Whether it is an answer to that, which is judged: it has the open version, or says that this is gone.
    pub(super) fn answered_on(&mut self, replica: usize, session: usize, answer: &Answer) -> bool {
        let number = answer.id.0 as u32;
        let one = &mut self.clients.sessions[session];
        let Some(on) = one.reading_on.take_if(|on| on.number == number) else { return false };
        let (_, at, version) = on.open;
        let digest = version.content.digest;
        let host = &self.replicas[replica];
        let is_right = match &answer.outcome {
            Outcome::Object(other) if host.disk.body(&digest).is_none() => {
                one.count += 1;
                let number = one.count;
                one.reading_on = Some(ReadingOn { number, ..on });
                let is_right = *other == version;
                let host = &mut self.replicas[replica];
                let now = host.clock.read(self.now);
                if let Some(machine) = &mut host.machine {
                    machine.handle_missing(now, &digest);
                }
                // Through the queue of events: this is called from within a read of the replica.
                self.after(MS, Event::GoOn { session, number });
                is_right
            }
            Outcome::Object(other) => {
                self.situations.count(Situation::FetchedAgain, u64::from(on.waited));
                *other == version
            }
            Outcome::Lost(other) => other.content.digest == digest,
            Outcome::Absent => host.machine.as_ref().is_some_and(|machine| {
                let current = machine.image().objects.get(&self.clients.paths[at]);
                current.is_none_or(|current| current.version.content.digest != digest)
            }),
            _ => false,
        };
        if !is_right {
            self.stuck.push(format!("what is open, {version:?}, was read on as {answer:?}"));
        }
        true
    }

    /// A read of the state only waits for other reads of it.
    pub(super) fn expect_others(
        &mut self,
        session: usize,
        replica: usize,
        why: Option<WaitReason>,
    ) {
        let reads = |reading: &Reading| reading.replica == replica;
        let others = self.clients.sessions.iter().enumerate();
        let mut others = others.filter(|(other, _)| *other != session);
        if why == Some(WaitReason::Order)
            && !others.any(|(_, other)| other.reading.as_ref().is_some_and(reads))
        {
            self.stuck.push(format!("replica {replica} has a read that waits for no other read"));
        }
    }

    /// Reads that have been waiting since before `began`.
    pub(in super::super) fn waiting_since(&self, began: TrueTime) -> usize {
        let reads = self.clients.sessions.iter().flat_map(|session| {
            let on = session.reading_on.as_ref().map(|on| on.began);
            [session.reading.as_ref().map(|reading| reading.began), on]
        });
        reads.flatten().filter(|other| *other < began).count()
    }
}
