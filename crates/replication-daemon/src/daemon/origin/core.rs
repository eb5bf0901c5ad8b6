//! The state machine, its store, and the waiting callers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lull_replication::message::{Frame, Refusal, Session, ToOrigin};
use lull_replication::origin::{
    Append, Condition, Counters, Entry, Event, HoldId, Origin, Refused, Transaction, TransactionId,
};
use lull_replication::path::Path;
use lull_replication::time::{LocalTime, Reading};
use lull_replication::types::{Digest, DiskFull, Incarnation, Payload, ReplicaId, Sequence};
use tokio::sync::oneshot;

use super::WriteError;
use crate::daemon::LinkError;
use crate::daemon::child::{Link, Sent};
use crate::shared_log::SharedLog;
use crate::store::{Bodies, Body, Done, StoreError, Worker};

/// Receives the result of holding a body.
pub(super) type HoldResult = oneshot::Receiver<Result<(), DiskFull>>;

/// Sends the result of a write.
pub(super) type Answer = oneshot::Sender<Result<Sequence, WriteError>>;

/// A requested change of the state.
#[derive(Debug)]
pub(super) enum Wanted {
    Changes(Transaction<Body>),
    /// Changes, if these conditions hold when they are made.
    If(Vec<(Path, Condition)>, Transaction<Body>),
    /// Back to the state of this sequence.
    Back(Sequence),
}

impl Wanted {
    /// Its paths in order; none if they are unknown so far. To be called without the lock, as there may be a million.
    pub(super) fn paths(&self) -> Option<Vec<Path>> {
        match self {
            Wanted::Changes(changes) | Wanted::If(_, changes) => {
                Some(changes.changes.keys().cloned().collect())
            }
            Wanted::Back(_) => None,
        }
    }
}

/// A write that waits for the disk.
#[derive(Debug)]
pub(super) struct Write {
    answer: Answer,
    /// Its paths in order; none if they are unknown so far.
    paths: Option<Vec<Path>>,
}

/// Whether one of these, which are in order, is the path `within` or below it; any, if that is not given.
fn concern<T>(all: &[T], path: impl Fn(&T) -> &Path, within: Option<&Path>) -> bool {
    let Some(within) = within else { return !all.is_empty() };
    let from = |text: &[u8]| {
        let at = all.partition_point(|one| path(one).as_bytes() < text);
        all.get(at).map(&path)
    };
    from(within.as_bytes()) == Some(within)
        || from(&within.prefix()).is_some_and(|path| path.is_within(within.as_bytes()))
}

/// The effects of calls of the machine.
#[derive(Debug, Default)]
pub(super) struct CallEffects {
    /// The condition of [`OriginHandle::wait_for`](super::OriginHandle::wait_for) may hold.
    pub(super) progress: bool,
    pub(super) turned: Vec<(ReplicaId, Refusal)>,
    pub(super) lost: Vec<Vec<Path>>,
    /// The disk is full, which was not reported so far.
    pub(super) full: bool,
}

/// The data behind the lock.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) machine: Origin<Body>,
    pub(super) worker: Option<Worker<Append<Body>>>,
    bodies: Bodies,
    /// The log that several origins share.
    log: Option<Arc<SharedLog>>,
    pub(super) links: BTreeMap<ReplicaId, Arc<Link>>,
    /// The bytes sent to each replica since the start.
    pub(super) sent: BTreeMap<ReplicaId, Arc<Sent>>,
    /// Connections that have not named their channel so far.
    pub(super) arriving: BTreeMap<ReplicaId, usize>,
    /// The last connection of each replica that has said hello.
    newest: BTreeMap<ReplicaId, (Incarnation, u32)>,
    /// Bodies found missing.
    pub(super) lost: BTreeSet<Digest>,
    /// How often a replica was revoked.
    pub(super) revocations: u64,
    pub(super) writes: BTreeMap<TransactionId, Write>,
    /// Paths of earlier ones, to be dropped without the lock.
    pub(super) old_paths: Vec<Vec<Path>>,
    last_write: TransactionId,
    holds: BTreeMap<HoldId, oneshot::Sender<Result<(), DiskFull>>>,
    last_hold: HoldId,
    /// The disk counts as full until then.
    full_until: Option<LocalTime>,
    /// A report is due.
    full: bool,
    pub(super) failed: Option<StoreError>,
    /// No further writes are accepted.
    pub(super) closed: bool,
    pub(super) counters: Counters,
}

impl Core {
    pub(super) fn new(machine: Origin<Body>, bodies: Bodies, log: Option<Arc<SharedLog>>) -> Self {
        Core {
            machine,
            bodies,
            log,
            worker: None,
            links: BTreeMap::new(),
            sent: BTreeMap::new(),
            arriving: BTreeMap::new(),
            newest: BTreeMap::new(),
            lost: BTreeSet::new(),
            revocations: 0,
            writes: BTreeMap::new(),
            old_paths: Vec::new(),
            last_write: TransactionId(0),
            holds: BTreeMap::new(),
            last_hold: HoldId(0),
            full_until: None,
            full: false,
            failed: None,
            closed: false,
            counters: Counters::default(),
        }
    }

    /// The store has done something.
    pub(super) fn done(&mut self, now: Reading, done: Result<Done, StoreError>) {
        let is_full = match done {
            // The machine has one answer for bodies that cannot be stored at the moment.
            Ok(Done::Stored(_, Err(DiskFull))) => self.bodies.away().is_none(),
            Ok(Done::Step(Err(DiskFull))) => true,
            _ => false,
        };
        if is_full {
            self.disk_full(now.local);
        }
        match done {
            Ok(Done::Stored(digest, outcome)) => self.machine.handle_stored(now, &digest, outcome),
            Ok(Done::Dropped(digest)) => self.machine.handle_dropped(now, &digest),
            Ok(Done::Step(outcome)) => self.machine.handle_appended(now, outcome),
            Err(error) => self.fail(error),
        }
    }

    /// The disk had no space. As at a replica, that is reported once, and again only after a minute in which
    /// everything found space: small writes may succeed between large ones that fail.
    pub(super) fn disk_full(&mut self, now: LocalTime) {
        const QUIET: Duration = Duration::from_secs(60);
        let before = self.full_until.replace(now.plus(QUIET));
        self.full |= before.is_none_or(|until| until <= now);
    }

    /// Whether the disk was full recently.
    pub(super) fn is_disk_full(&self, now: LocalTime) -> bool {
        self.full_until.is_some_and(|until| now < until)
    }

    pub(super) fn fail(&mut self, error: StoreError) {
        // The first one is the cause.
        self.failed.get_or_insert(error);
        self.drop_waiting_callers();
    }

    /// Drops the senders, so all waiting callers get an error.
    fn drop_waiting_callers(&mut self) {
        self.writes.clear();
        self.holds.clear();
    }

    /// Fails if a write would not be answered, or only after a long time.
    fn accepts_writes(&self) -> Result<(), WriteError> {
        if self.closed || self.failed.is_some() {
            return Err(WriteError::Stopped);
        }
        let away = self.log.as_ref().and_then(|log| log.away());
        away.map_or(Ok(()), |why| Err(WriteError::LogAway(why)))
    }

    /// Whether replicas may be told anything now: no other origin can have acknowledged a write.
    pub(super) fn may_speak(&self, now: Reading) -> bool {
        self.log.as_ref().is_none_or(|log| log.may_speak(now.local))
    }

    pub(super) fn submit(
        &mut self,
        now: Reading,
        (wanted, paths): (Wanted, Option<Vec<Path>>),
        answer: Answer,
    ) -> Result<(), WriteError> {
        self.accepts_writes()?;
        self.last_write.0 += 1;
        let id = self.last_write;
        self.writes.insert(id, Write { answer, paths });
        match wanted {
            Wanted::Changes(changes) => self.machine.handle_transaction(now, id, changes),
            Wanted::If(conditions, changes) => {
                self.machine.handle_conditional(now, id, conditions, changes);
            }
            Wanted::Back(to) => self.machine.handle_rollback(now, id, to),
        }
        Ok(())
    }

    /// Whether anything has changed since the state at `expected`, at or below `within` if that is given.
    /// Writes that wait for the disk precede all later ones.
    pub(super) fn has_moved(&self, expected: Sequence, within: Option<&Path>) -> bool {
        let image = self.machine.image();
        let last = image.last().sequence;
        if expected > last || expected < image.log_after() {
            // The changes since then are unknown.
            return true;
        }
        let changes = |entry: &Entry| concern(&entry.commit.changes, |one| &one.path, within);
        let mut since = (expected.0 + 1..=last.0).map(|at| image.entry(Sequence(at)));
        let will_change = |paths: &Vec<Path>| concern(paths, |path| path, within);
        let mut waiting = self.writes.values().map(|write| write.paths.as_ref());
        since.any(|entry| entry.is_none_or(changes))
            || waiting.any(|paths| paths.is_none_or(will_change))
    }

    /// Asks the store to hold a body; returns the hold's number and the receiver of the answer.
    pub(super) fn hold(
        &mut self,
        payload: Payload<Body>,
    ) -> Result<(HoldId, HoldResult), WriteError> {
        self.accepts_writes()?;
        self.last_hold.0 += 1;
        let (sender, answer) = oneshot::channel();
        self.holds.insert(self.last_hold, sender);
        self.machine.handle_hold(self.last_hold, payload);
        Ok((self.last_hold, answer))
    }

    /// Handles a replica's hello: its earlier connections end.
    pub(super) fn handle_hello(
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
        if said != replica {
            return Err(LinkError::Order);
        }
        if number <= *newest {
            return Err(LinkError::Earlier);
        }
        *newest = number;
        self.give_up(replica);
        let session = Session { origin: self.machine.image().incarnation, ..hello.session };
        let sent = Arc::clone(self.sent.entry(replica).or_default());
        let link = Arc::new(Link::new(replica, session, sent));
        self.machine.handle_frame(now, replica, hello);
        self.links.insert(replica, Arc::clone(&link));
        Ok(link)
    }

    /// Whether the link is still that of its replica.
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

    /// A replica has joined under that number. Everything about its predecessor is dropped, also its
    /// incarnations, which may be later than any of the new replica.
    pub(super) fn joined(&mut self, now: Reading, replica: ReplicaId) {
        self.give_up(replica);
        self.newest.remove(&replica);
        self.machine.handle_joined(now, replica);
    }

    /// The peer that sent hello on this link is no longer a replica, so its hello is void, unless a successor
    /// is connected by now.
    pub(super) fn take_back(&mut self, now: Reading, link: &Arc<Link>) {
        if self.is_current(link) {
            self.joined(now, link.replica);
        }
    }

    /// Hands jobs to the store and wakes the waiting callers.
    pub(super) fn pump(&mut self) -> CallEffects {
        let full = ::core::mem::take(&mut self.full);
        let mut happened = CallEffects { full, ..CallEffects::default() };
        let Some(worker) = &self.worker else { return happened };
        while let Some(effect) = self.machine.poll_effect() {
            if let Err(error) = worker.ask(effect.into()) {
                // The thread of the store has reported the error.
                self.fail(error);
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
                Event::Refused { transaction, why } => {
                    let why = self.refused(why);
                    self.answer(transaction, Err(why));
                }
                Event::Held { id, outcome } => {
                    if let Some(holder) = self.holds.remove(&id) {
                        let _ = holder.send(outcome);
                    }
                }
                Event::Progress { .. } | Event::Arrived(_) => happened.progress = true,
                Event::Urgency(replica) => {
                    if let Some(link) = self.links.get(&replica) {
                        // A relay is sent the urgent replicas below it.
                        link.wake_all();
                    }
                }
                Event::Turned { replica, why } => happened.turned.push((replica, why)),
                Event::Close(replica) => self.give_up(replica),
                Event::Lost { digest, paths } => {
                    self.lost.insert(digest);
                    happened.lost.push(paths);
                    // Waiting for a lost body has to end.
                    happened.progress = true;
                }
            }
        }
        if committed {
            // A caller may wait for a body that was overwritten.
            happened.progress = true;
            for link in self.links.values() {
                link.control.notify_one();
                link.speculative.notify_one();
            }
        }
        happened
    }

    /// The reason of a refusal. A body without a place may lack room, or the bucket may be away.
    pub(super) fn refused(&self, why: Refused) -> WriteError {
        match (why, self.bodies.away()) {
            (Refused::Disk(_), Some(why)) => WriteError::StoreAway(why),
            (why, _) => why.into(),
        }
    }

    fn answer(&mut self, transaction: TransactionId, outcome: Result<Sequence, WriteError>) {
        if let Some(write) = self.writes.remove(&transaction) {
            self.old_paths.extend(write.paths);
            // The requester may have gone.
            let _ = write.answer.send(outcome);
        }
    }

    /// Accepts nothing any more. Returns the store, to be ended outside the lock.
    pub(super) fn close(&mut self) -> Option<Worker<Append<Body>>> {
        self.closed = true;
        for link in ::core::mem::take(&mut self.links).into_values() {
            link.end();
        }
        self.drop_waiting_callers();
        self.worker.take()
    }
}
