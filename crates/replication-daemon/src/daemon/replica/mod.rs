//! The replica as a daemon.

mod children;
mod event;
mod forward;
mod intake;
mod older;
mod parents;
mod partials;
mod reads;
mod receive;
mod retries;
mod session;
mod sharing;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lull_replication::replica::{Answer, Config, Counters, Event, Outage, ReadId, Replica, Step};
use lull_replication::subscription::Subscription;
use lull_replication::time::{LocalTime, Reading};
use lull_replication::types::Sequence;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;

use self::children::Children;
use self::forward::Spools;
use self::older::OlderBodies;
use self::parents::Parents;
use self::partials::PartialVersions;
use self::sharing::Sharing;
use super::chunk_lists::ChunkLists;
use super::clock::until;
use super::outlines::Outlines;
use super::{Clock, DaemonError, OnPanic, end, worker_of};
use crate::identity::ReplicaIdentity;
use crate::store::{
    Bodies, Body, BodyReader, Done, ReplicaState, Settings, Store, StoreError, Worker,
};

pub use self::children::RelayOptions;
pub use self::event::ReplicaEvent;
pub use self::reads::{Found, Pending, ReadError};
pub(crate) use self::retries::Retries;
pub use self::sharing::ShareOptions;
pub use self::status::{OutageStatus, ReplicaStatus};

/// The options of a replica daemon.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// The folder of its identity and its store, which [`join`](super::join) has made.
    pub folder: PathBuf,
    /// The configuration of the state machine, except its number: that is in its certificate.
    pub config: Config,
    /// The new address of the origin; none if it has not changed.
    pub origin: Option<String>,
    /// The names whose bodies are pushed to it.
    pub only: Subscription,
    /// The addresses of the relays that it gets all from, each tried when those before it are lost; none: from the
    /// origin.
    pub via: Vec<String>,
    /// If none of the relays answers, it gets all from the origin.
    pub or_origin: bool,
    /// How it serves other replicas, if it is a relay.
    pub relay: Option<RelayOptions>,
    /// How it exchanges pieces of long bodies with replicas in the same network that do so, too.
    pub share: Option<ShareOptions>,
}

impl ReplicaOptions {
    /// The replica in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let (config, only) = (Config::default(), Subscription::default());
        let folder = folder.into();
        let (origin, via, or_origin, relay, share) = (None, Vec::new(), false, None, None);
        ReplicaOptions { folder, config, origin, only, via, or_origin, relay, share }
    }
}

type EventSink = Box<dyn Fn(ReplicaEvent) + Send + Sync>;

/// The data that tasks share.
struct Shared {
    clock: Arc<dyn Clock>,
    core: Mutex<Core>,
    parents: Parents,
    identity: Mutex<ReplicaIdentity>,
    body_reader: BodyReader,
    outlines: Outlines,
    chunk_lists: ChunkLists,
    /// Bodies of which newer ones arrive.
    older: OlderBodies,
    /// The folder of the replica.
    folder: PathBuf,
    /// Bodies that children get while they arrive.
    spools: Mutex<Spools>,
    bodies: Bodies,
    partials: PartialVersions,
    on_event: EventSink,
    /// If it exchanges pieces with neighbours.
    sharing: Option<Sharing>,
    /// The address of this side of the control connection.
    local_ip: Mutex<Option<IpAddr>>,
    /// Bytes of bodies received, on demand and speculative.
    received: [AtomicU64; 2],
    /// Bytes of bodies that have arrived in part.
    arriving: AtomicU64,
    /// Bytes sent to the origin on the control channel.
    control_bytes: AtomicU64,
    /// When the last bytes of the control channel arrived, by the clock for intervals.
    last_received: AtomicI64,
    /// There may be a message for the origin.
    outbox: Notify,
    /// The machine's next time may have changed.
    timer: Notify,
    /// There is a message of the origin, or the connection has to be closed.
    turn: Notify,
    /// A new certificate has to be requested.
    renewal: Notify,
    stop: watch::Sender<bool>,
}

/// The data behind the lock.
struct Core {
    machine: Replica<Body>,
    /// If it is a relay.
    children: Option<Children>,
    /// The children need more work soon.
    has_work: bool,
    worker: Option<Worker<Arc<Step>>>,
    reads: BTreeMap<ReadId, oneshot::Sender<Answer>>,
    last_read: ReadId,
    /// Caches of answers: called when they must forget them; false if the cache is gone.
    remember: Vec<Box<dyn Fn() -> bool + Send>>,
    /// Their state, and whether there is a lease.
    remembered: (Sequence, bool),
    /// When they have to be dropped at the latest.
    remembered_until: Option<LocalTime>,
    /// The time that the timer waits for.
    timeout: Option<LocalTime>,
    /// The connection has to be closed.
    close: bool,
    /// The origin wants it to get a new certificate.
    renew: bool,
    /// The origin has accepted it in this session.
    was_connected: bool,
    /// The last finished time without a connection.
    outage: Option<Outage>,
    failed: Option<StoreError>,
    closed: bool,
    counters: Counters,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    fn new(machine: Replica<Body>, children: Option<Children>) -> Self {
        Core {
            machine,
            children,
            has_work: false,
            worker: None,
            reads: BTreeMap::new(),
            last_read: ReadId(0),
            remember: Vec::new(),
            remembered: Default::default(),
            remembered_until: None,
            timeout: None,
            close: false,
            renew: false,
            was_connected: false,
            outage: None,
            failed: None,
            closed: false,
            counters: Counters::default(),
        }
    }

    fn done(&mut self, now: Reading, done: Result<Done, StoreError>) {
        match done {
            Ok(Done::Stored(digest, outcome)) => self.machine.handle_stored(now, &digest, outcome),
            Ok(Done::Dropped(digest)) => self.machine.handle_dropped(&digest),
            Ok(Done::Step(outcome)) => self.machine.handle_committed(now, outcome),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: StoreError) {
        // The first one is the cause.
        self.failed.get_or_insert(error);
        self.reads.clear();
    }

    /// Drops cached answers that belong to another state by now, or may not be used any longer. That happens
    /// before any read is answered from the new state.
    fn forget_answers(&mut self, now: Reading) {
        let is = (self.machine.position(), self.machine.has_lease());
        let was = core::mem::replace(&mut self.remembered, is);
        let is_over = self.remembered_until.is_some_and(|until| until <= now.local);
        if is_over || (was != is && self.remembered_until.is_some()) {
            self.remembered_until = None;
            self.remember.retain(|forget| forget());
        }
    }

    /// Hands on the requests of the machine; returns its events.
    fn pump(&mut self, now: Reading) -> Vec<ReplicaEvent> {
        if let Some(children) = &mut self.children {
            self.has_work = children.pump(now, &mut self.machine);
        }
        self.forget_answers(now);
        let mut told = Vec::new();
        let Some(worker) = &self.worker else { return told };
        // First: an effect may delete a body that an answer names.
        while let Some(answer) = self.machine.poll_answer() {
            if !self.remember.is_empty() && !answer.holds_for.is_zero() {
                let until = now.local.plus(answer.holds_for);
                self.remembered_until =
                    Some(self.remembered_until.map_or(until, |at| at.min(until)));
            }
            if let Some(reader) = self.reads.remove(&answer.id) {
                let _ = reader.send(answer);
            }
        }
        while let Some(effect) = self.machine.poll_effect() {
            if let Err(error) = worker.ask(effect.into()) {
                // The thread of the store has reported the error.
                self.failed.get_or_insert(error);
                self.reads.clear();
                return told;
            }
        }
        while let Some(event) = self.machine.poll_event() {
            told.push(match event {
                Event::Connected { after } => {
                    (self.outage, self.was_connected) = (after.or(self.outage), true);
                    ReplicaEvent::Connected
                }
                Event::Close => {
                    self.close = true;
                    continue;
                }
                Event::Refused(why) => {
                    self.close = true;
                    ReplicaEvent::Refused(why)
                }
                Event::SkewExceeded(skew) => ReplicaEvent::SkewExceeded(skew),
                Event::Unmatched(pattern) => ReplicaEvent::Unmatched(pattern),
                Event::DiskFull => ReplicaEvent::DiskFull,
                Event::Lost(path) => ReplicaEvent::Lost(path),
                Event::Renew => {
                    self.renew = true;
                    continue;
                }
            });
        }
        told
    }
}

impl Shared {
    /// A call of the state machine, and its effects.
    ///
    /// # Panics
    /// If an earlier call has panicked: the state of the machine is unknown then, and the daemon ends.
    fn with<T>(&self, call: impl FnOnce(&mut Core, Reading) -> T) -> T {
        self.try_with(call).expect("an earlier call has panicked, so the daemon ends")
    }

    /// The same; none if an earlier call has panicked.
    fn try_with<T>(&self, call: impl FnOnce(&mut Core, Reading) -> T) -> Option<T> {
        let _falls = OnPanic::new(|| self.stop_after_panic());
        let mut core = self.machine()?;
        // Read under the lock, so that time does not go back between two calls.
        let now = self.clock.read();
        let value = call(&mut core, now);
        let told = core.pump(now);
        let timeout = core.machine.poll_timeout();
        let timeout = timeout.into_iter().chain(core.remembered_until);
        let timeout = timeout.chain(core.has_work.then_some(now.local)).min();
        let earlier = core::mem::replace(&mut core.timeout, timeout) != timeout;
        let (failed, close, renew) = (core.failed.is_some(), core.close, core.renew);
        let says = core.machine.has_to_send();
        let garbage: Vec<_> = core::iter::from_fn(|| core.machine.poll_garbage()).collect();
        drop(core);
        // Dropped without the lock.
        drop(garbage);
        if says {
            self.outbox.notify_one();
        }
        if earlier {
            self.timer.notify_one();
        }
        if close || told.iter().any(|event| matches!(event, ReplicaEvent::Connected)) {
            self.turn.notify_one();
        }
        if renew {
            self.renewal.notify_one();
        }
        if failed {
            self.stop.send_replace(true);
        }
        for event in told {
            (self.on_event)(event);
        }
        Some(value)
    }

    /// The data behind the lock; none if a call has panicked.
    fn machine(&self) -> Option<MutexGuard<'_, Core>> {
        match self.core.lock() {
            Ok(core) => Some(core),
            Err(poisoned) => {
                drop(poisoned);
                self.stop_after_panic();
                None
            }
        }
    }

    /// If a call has panicked, the daemon ends, and all waiting callers get an error.
    fn stop_after_panic(&self) {
        // The receiver of events may panic as well, which leaves nothing half done.
        if self.core.is_poisoned() {
            lock(&self.core).fail(StoreError::Stopped);
            self.stop.send_replace(true);
        }
    }

    async fn stopped(&self) {
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Wakes the machine at the times that it requests.
    async fn keep_time(&self) {
        loop {
            let at = lock(&self.core).timeout;
            tokio::select! {
                () = until(&*self.clock, at) => {
                    let received = LocalTime::from_nanos(self.last_received.load(Ordering::Relaxed));
                    let kept = self.try_with(|core, now| {
                        core.machine.handle_received_bytes(received);
                        if core.machine.poll_timeout().is_some_and(|at| at <= now.local) {
                            core.machine.handle_timeout(now);
                        }
                        if let Some(children) = &mut core.children {
                            children.go_on(now, &mut core.machine);
                        }
                    });
                    if kept.is_none() {
                        return;
                    }
                }
                () = self.timer.notified() => {}
                () = self.stopped() => return,
            }
        }
    }
}

/// A running replica. Dropping it has the effect of a kill: data that the disk has not begun to sync are
/// missing at the next start.
pub struct ReplicaDaemon {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl core::fmt::Debug for ReplicaDaemon {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ReplicaDaemon(…)")
    }
}

impl ReplicaDaemon {
    /// Starts the replica of a folder, inside a multi-threaded Tokio runtime. It answers reads from now on,
    /// connected or not, as long as its guarantees allow it. `on_event` is called with events, and should return
    /// quickly.
    ///
    /// # Errors
    /// If the folder has no replica, or its disk fails.
    pub fn start(
        options: ReplicaOptions,
        clock: Arc<dyn Clock>,
        on_event: impl Fn(ReplicaEvent) + Send + Sync + 'static,
    ) -> Result<Self, DaemonError> {
        let ReplicaOptions { folder, config, origin, only, via, or_origin, relay, share } = options;
        let now = clock.read();
        let mut identity = ReplicaIdentity::open(&folder)?;
        if let Some(address) = &origin {
            identity.set_address(address)?;
        }
        let settings = Settings::default();
        let opened = Store::<ReplicaState>::open(&folder, settings, now.wall)?;
        let (body_reader, bodies) = (opened.store.body_reader(), opened.store.bodies().clone());
        let config = Config { replica: identity.replica(), ..config };
        config.quota.into_iter().for_each(|quota| bodies.limit_partials(quota));
        let mut machine = Replica::recover(now, config, opened.image, opened.bodies);
        machine.subscribe(only);
        let relay = relay.map(|relay| relay.open(now, &identity, &clock, &mut machine));
        let (children, relay) = relay.transpose()?.unzip();
        let (sharing, share) = share.map(ShareOptions::open).transpose()?.unzip();
        let shared = Arc::new(Shared {
            clock,
            core: Mutex::new(Core::new(machine, children)),
            identity: Mutex::new(identity),
            parents: Parents::new(via, or_origin),
            body_reader,
            outlines: Outlines::new(),
            chunk_lists: ChunkLists::default(),
            older: OlderBodies::default(),
            folder,
            spools: Mutex::default(),
            bodies,
            partials: PartialVersions::default(),
            on_event: Box::new(on_event),
            sharing,
            local_ip: Mutex::default(),
            received: Default::default(),
            arriving: AtomicU64::default(),
            control_bytes: AtomicU64::default(),
            last_received: AtomicI64::new(now.local.as_nanos()),
            outbox: Notify::new(),
            timer: Notify::new(),
            turn: Notify::new(),
            renewal: Notify::new(),
            stop: watch::Sender::new(false),
        });
        let done = |shared: &Shared, done| shared.with(|core, now| core.done(now, done));
        let worker = worker_of(&shared, opened.store, done)?;
        shared.with(|core, _| core.worker = Some(worker));
        let (timing, connecting) = (Arc::clone(&shared), Arc::clone(&shared));
        let mut tasks = vec![
            tokio::spawn(async move { timing.keep_time().await }),
            tokio::spawn(async move { session::keep_connected(&connecting).await }),
        ];
        if let Some(listening) = relay {
            tasks.push(tokio::spawn(children::accept(Arc::clone(&shared), listening)));
        }
        if let Some(listener) = share {
            tasks.push(tokio::spawn(sharing::accept(Arc::clone(&shared), listener)));
        }
        Ok(ReplicaDaemon { shared, tasks })
    }

    /// The handle for reads and queries.
    pub fn handle(&self) -> ReplicaHandle {
        ReplicaHandle(Arc::clone(&self.shared))
    }

    /// Waits until it fails, which a healthy one never does.
    pub async fn failed(&self) {
        self.shared.stopped().await;
    }

    /// Ends it: connections are closed, and jobs of the disk are finished. Waiting reads are not answered.
    ///
    /// # Errors
    /// The failure of the daemon, if there was one.
    pub async fn stop(mut self) -> Result<(), DaemonError> {
        self.shared.stop.send_replace(true);
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
        end(self.shared.close()).await;
        self.shared.body_reader.close();
        if self.shared.core.is_poisoned() {
            return Err(DaemonError::Panicked);
        }
        let failed = lock(&self.shared.core).failed.take();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Shared {
    fn close(&self) -> Option<Worker<Arc<Step>>> {
        let mut core = lock(&self.core);
        core.closed = true;
        core.reads.clear();
        core.worker.take()
    }
}

impl Drop for ReplicaDaemon {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
        self.tasks.drain(..).for_each(|task| task.abort());
        if let Some(worker) = self.shared.close() {
            worker.abandon();
        }
        // Remaining handles cannot be used any more.
        self.shared.body_reader.close();
    }
}

/// Reads from a running replica, and queries it.
#[derive(Clone)]
pub struct ReplicaHandle(Arc<Shared>);

impl core::fmt::Debug for ReplicaHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ReplicaHandle(…)")
    }
}
