//! The state machine, its store, and who waits for what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Notify, oneshot, watch};

use super::WriteError;
use crate::daemon::LinkError;
use crate::message::{Channel, Frame, Refusal, Session, ToOrigin};
use crate::origin::{Append, Counters, Event, Origin, Transaction, TransactionId};
use crate::path::Path;
use crate::store::{Body, Done, StoreError, Worker};
use crate::time::Reading;
use crate::types::{Incarnation, ReplicaId, Sequence};

/// What is told about a write.
pub(super) type Answer = oneshot::Sender<Result<Sequence, WriteError>>;

/// The connections of a replica that are up.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) replica: ReplicaId,
    pub(super) session: Session,
    /// Each wakes the one task that sends by a channel: there may be something for it.
    pub(super) control: Notify,
    pub(super) demand: Notify,
    pub(super) speculative: Notify,
    /// Bytes that were sent, by the number of the channel.
    pub(super) sent: [AtomicU64; 3],
    pub(super) ended: watch::Sender<bool>,
    taken: [AtomicBool; 2],
}

impl Link {
    /// Takes the place of a channel of bodies, which one connection may have.
    pub(super) fn take(&self, channel: Channel) -> bool {
        let taken = match channel {
            Channel::Demand => &self.taken[0],
            _ => &self.taken[1],
        };
        !taken.swap(true, Ordering::Relaxed)
    }

    /// Ends all connections of it.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    pub(super) async fn until_end(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

/// What calls of the machine have brought about.
#[derive(Debug, Default)]
pub(super) struct Happened {
    pub(super) progress: bool,
    pub(super) turned: Vec<(ReplicaId, Refusal)>,
    pub(super) lost: Vec<Vec<Path>>,
}

/// What is behind the lock.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) machine: Origin<Body>,
    pub(super) worker: Option<Worker<Append<Body>>>,
    pub(super) links: BTreeMap<ReplicaId, Arc<Link>>,
    /// The last connection of each replica that has said hello.
    newest: BTreeMap<ReplicaId, (Incarnation, u32)>,
    pub(super) writes: BTreeMap<TransactionId, Answer>,
    last_write: TransactionId,
    pub(super) failed: Option<StoreError>,
    /// Nothing is written any more.
    pub(super) closed: bool,
    pub(super) counters: Counters,
}

impl Core {
    pub(super) fn new(machine: Origin<Body>) -> Self {
        Core {
            machine,
            worker: None,
            links: BTreeMap::new(),
            newest: BTreeMap::new(),
            writes: BTreeMap::new(),
            last_write: TransactionId(0),
            failed: None,
            closed: false,
            counters: Counters::default(),
        }
    }

    /// The store has done something.
    pub(super) fn done(&mut self, now: Reading, done: Result<Done, StoreError>) {
        match done {
            Ok(Done::Stored(digest, outcome)) => self.machine.handle_stored(now, &digest, outcome),
            Ok(Done::Dropped(digest)) => self.machine.handle_dropped(now, &digest),
            Ok(Done::Step(outcome)) => self.machine.handle_appended(now, outcome),
            Err(error) => self.fail(error),
        }
    }

    pub(super) fn fail(&mut self, error: StoreError) {
        // The first one is the cause.
        self.failed.get_or_insert(error);
        self.writes.clear();
    }

    pub(super) fn submit(
        &mut self,
        now: Reading,
        changes: Transaction<Body>,
        answer: Answer,
    ) -> Result<(), WriteError> {
        if self.closed || self.failed.is_some() {
            return Err(WriteError::Stopped);
        }
        self.last_write.0 += 1;
        self.writes.insert(self.last_write, answer);
        self.machine.handle_transaction(now, self.last_write, changes);
        Ok(())
    }

    /// A replica says hello: its earlier connections end.
    pub(super) fn begin(
        &mut self,
        now: Reading,
        replica: ReplicaId,
        hello: Frame<ToOrigin>,
    ) -> Result<Arc<Link>, LinkError> {
        let ToOrigin::Hello { replica: said, .. } = hello.message else {
            return Err(LinkError::Order);
        };
        let number = (hello.session.replica, hello.session.connection);
        let newest = self.newest.entry(replica).or_default();
        if said != replica || number <= *newest {
            return Err(LinkError::Order);
        }
        *newest = number;
        self.give_up(replica);
        let session = Session { origin: self.machine.image().incarnation, ..hello.session };
        let link = Arc::new(Link {
            replica,
            session,
            control: Notify::new(),
            demand: Notify::new(),
            speculative: Notify::new(),
            sent: Default::default(),
            ended: watch::Sender::new(false),
            taken: Default::default(),
        });
        self.machine.handle_frame(now, replica, hello);
        self.links.insert(replica, Arc::clone(&link));
        Ok(link)
    }

    /// Whether the link is still the one of its replica.
    pub(super) fn is_current(&self, link: &Arc<Link>) -> bool {
        self.links.get(&link.replica).is_some_and(|current| Arc::ptr_eq(current, link))
    }

    /// The link is gone.
    pub(super) fn end(&mut self, link: &Arc<Link>) {
        link.end();
        if self.is_current(link) {
            self.links.remove(&link.replica);
        }
        self.machine.handle_disconnected(link.replica, link.session);
    }

    pub(super) fn give_up(&mut self, replica: ReplicaId) {
        if let Some(link) = self.links.remove(&replica) {
            self.end(&link);
        }
    }

    /// Hands the store's work on, and wakes whoever waits.
    pub(super) fn pump(&mut self) -> Happened {
        let mut happened = Happened::default();
        let Some(worker) = &self.worker else { return happened };
        while let Some(effect) = self.machine.poll_effect() {
            if let Err(error) = worker.ask(effect.into()) {
                // What it has failed with is told by its thread.
                self.failed.get_or_insert(error);
                self.writes.clear();
                return happened;
            }
        }
        let mut committed = false;
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Acknowledged { transaction, sequence } => {
                    committed = true;
                    self.answer(transaction, Ok(sequence));
                }
                Event::Refused { transaction, why } => self.answer(transaction, Err(why.into())),
                Event::Progress { .. } => happened.progress = true,
                Event::Turned { replica, why } => happened.turned.push((replica, why)),
                Event::Close(replica) => self.give_up(replica),
                Event::Lost { paths, .. } => happened.lost.push(paths),
            }
        }
        if committed {
            for link in self.links.values() {
                link.control.notify_one();
                link.speculative.notify_one();
            }
        }
        happened
    }

    fn answer(&mut self, transaction: TransactionId, outcome: Result<Sequence, WriteError>) {
        if let Some(answer) = self.writes.remove(&transaction) {
            // Whoever has asked may have gone.
            let _ = answer.send(outcome);
        }
    }

    /// Nothing is taken any more; gives the store, to be ended outside the lock.
    pub(super) fn close(&mut self) -> Option<Worker<Append<Body>>> {
        self.closed = true;
        for link in ::core::mem::take(&mut self.links).into_values() {
            link.end();
        }
        self.writes.clear();
        self.worker.take()
    }
}

/// Wakes those who send what a message of a replica may ask for.
pub(super) fn wake(link: &Link, message: Concerns) {
    match message {
        Concerns::Nobody => {}
        Concerns::Channel(Channel::Demand) => link.demand.notify_one(),
        Concerns::Channel(Channel::Speculative) => link.speculative.notify_one(),
        Concerns::Channel(Channel::Control | Channel::Enrolment) => link.control.notify_one(),
        Concerns::Both => {
            link.control.notify_one();
            link.speculative.notify_one();
        }
    }
}

/// Which channel may have something to send after a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Concerns {
    Nobody,
    Channel(Channel),
    /// Invalidations and what is pushed.
    Both,
}

impl Concerns {
    pub(super) fn of(message: &ToOrigin) -> Self {
        match message {
            ToOrigin::Demand(_) => Concerns::Channel(Channel::Demand),
            ToOrigin::Lacking(_) => Concerns::Channel(Channel::Speculative),
            // An invalidation may have waited for the body.
            ToOrigin::Taken(_) => Concerns::Both,
            ToOrigin::Ask(_) => Concerns::Channel(Channel::Control),
            ToOrigin::Resynced(_) | ToOrigin::Hello { .. } => Concerns::Both,
            ToOrigin::Ping { .. } | ToOrigin::Ack(_) | ToOrigin::Reads(_) => Concerns::Nobody,
        }
    }
}
