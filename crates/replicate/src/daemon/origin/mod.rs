//! The origin as a daemon.

mod bodies;
mod core;
mod serve;
mod status;
#[cfg(test)]
mod tests;

#[cfg(feature = "watch")]
use ::core::ops::Bound;
#[cfg(feature = "watch")]
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lull_transport::Options;
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::{Clock, DaemonError, end, worker_of};
use crate::identity::{self, IdentityError, OriginIdentity, Ticket};
use crate::message::Refusal;
use crate::origin::{Config, Origin, Prioritise, ReadsPerWriteAndByte};
use crate::origin::{HoldId, Refused, Transaction};
use crate::path::Path;
use crate::store::{Bodies, Body, Library, OriginState, Settings, Store, StoreError};
use crate::time::{Reading, WallTime};
use crate::types::{Digest, Payload, Position, ReplicaId, Sequence, Version};

use self::core::{Core, Wanted};
pub use self::status::{OriginStatus, PeerStatus};

/// What an origin daemon is told once.
#[derive(Debug)]
pub struct OriginOptions {
    /// Where its identity and its store are.
    pub folder: PathBuf,
    /// Where replicas connect: a host and a port.
    pub listen: String,
    /// What the state machine is told.
    pub config: Config,
    /// Which bodies are pushed first.
    pub policy: Box<dyn Prioritise>,
    /// How bodies that may be wanted are sent.
    pub background: Options,
}

impl OriginOptions {
    /// The origin in `folder`, which is to listen there.
    pub fn new(folder: impl Into<PathBuf>, listen: impl Into<String>) -> Self {
        OriginOptions {
            folder: folder.into(),
            listen: listen.into(),
            config: Config::default(),
            policy: Box::new(ReadsPerWriteAndByte),
            background: Options::new(),
        }
    }
}

/// What an origin daemon tells, beside what it is asked.
#[derive(Debug, Error)]
pub enum OriginEvent {
    /// A replica is here.
    #[error("replica {name} at {from} is here")]
    Connected {
        /// Which.
        name: String,
        /// Where it is.
        from: SocketAddr,
    },
    /// A replica's connection has ended.
    #[error("replica {name} is gone: {why}")]
    Disconnected {
        /// Which.
        name: String,
        /// Why.
        why: String,
    },
    /// A connection came to nothing.
    #[error("the connection from {from} came to nothing: {why}")]
    Rejected {
        /// Where from.
        from: SocketAddr,
        /// Why.
        why: String,
    },
    /// Somebody has become a replica.
    #[error("replica {name} has joined")]
    Joined {
        /// Which.
        name: String,
    },
    /// A replica is not talked to.
    #[error("replica {name} is refused: {why}")]
    Turned {
        /// Which.
        name: String,
        /// Why.
        why: Refusal,
    },
    /// Bodies are gone.
    #[error("the body of {} is lost: publish it again", shown(.paths))]
    Lost {
        /// The objects that have it.
        paths: Vec<Path>,
    },
    /// The identity cannot be written.
    #[error("nobody can join: {why}")]
    Identity {
        /// Why.
        why: String,
    },
}

fn shown(paths: &[Path]) -> String {
    match paths {
        [] => "an overwritten version".to_owned(),
        [one] => format!("`{one}`"),
        [one, rest @ ..] => format!("`{one}` and {} more", rest.len()),
    }
}

/// Why a write has not happened, or is not known to have.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The origin refuses it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The state is not the one that the write was made for.
    #[error("the last state is {0}, not the one that this write was made for: look again")]
    Moved(Sequence),
    /// The daemon ends. The write may have happened or not.
    #[error("the origin has stopped: ask it after its next start whether this was written")]
    Stopped,
}

/// Makes a new origin in `folder`: its authority, and an empty store.
///
/// # Errors
/// If there is one already, or the disk fails.
pub fn create_origin(folder: &FilePath, now: WallTime) -> Result<(), DaemonError> {
    OriginIdentity::create(folder, now)?;
    Store::<OriginState>::create_origin(folder, Settings::default(), identity::random()?)?;
    Ok(())
}

/// What tells of events.
type Tell = Box<dyn Fn(OriginEvent) + Send + Sync>;

/// What tasks share.
pub(super) struct Shared {
    clock: Arc<dyn Clock>,
    core: Mutex<Core>,
    identity: Mutex<OriginIdentity>,
    library: Library,
    bodies: Bodies,
    background: Options,
    tell: Tell,
    /// Changes when a replica has come further.
    progress: watch::Sender<u64>,
    stop: watch::Sender<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// A call of the state machine, and what follows from it.
    fn with<T>(&self, call: impl FnOnce(&mut Core, Reading) -> T) -> T {
        let mut core = lock(&self.core);
        // Read under the lock, so that time does not go back between two calls.
        let value = call(&mut core, self.clock.read());
        let happened = core.pump();
        let failed = core.failed.is_some();
        drop(core);
        if happened.progress {
            self.progress.send_modify(|count| *count += 1);
        }
        if failed {
            self.stop.send_replace(true);
        }
        for (replica, why) in happened.turned {
            (self.tell)(OriginEvent::Turned { name: self.name(replica), why });
        }
        if !happened.lost.is_empty() {
            (self.tell)(OriginEvent::Lost { paths: happened.lost.concat() });
        }
        value
    }

    fn name(&self, replica: ReplicaId) -> String {
        let identity = lock(&self.identity);
        let name = identity.replicas().find(|(id, ..)| *id == replica);
        name.map_or_else(|| replica.0.to_string(), |(_, name, _)| name.to_owned())
    }

    /// Waits until the daemon is to end.
    async fn stopped(&self) {
        // An error would mean that the sender is gone, which is in `self`.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }
}

/// An origin that runs. Dropped, it ends as if it had been killed: writes that the disk has not begun to
/// sync are none.
pub struct OriginDaemon {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl ::core::fmt::Debug for OriginDaemon {
    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
        f.debug_struct("OriginDaemon").field("address", &self.address).finish_non_exhaustive()
    }
}

impl OriginDaemon {
    /// Starts the origin of a folder, inside a Tokio runtime of several threads. `tell` is called
    /// with what happens, and should not take long.
    ///
    /// # Errors
    /// If there is none, its disk fails, or the address cannot be listened on.
    pub async fn start(
        options: OriginOptions,
        clock: Arc<dyn Clock>,
        tell: impl Fn(OriginEvent) + Send + Sync + 'static,
    ) -> Result<Self, DaemonError> {
        let OriginOptions { folder, listen, config, policy, background } = options;
        let now = clock.read();
        let identity = OriginIdentity::open(&folder, now.wall)?;
        let settings = Settings { inline: config.inline, ..Settings::default() };
        let opened = Store::<OriginState>::open(&folder, settings, now.wall)?;
        let (library, bodies) = (opened.store.library(), opened.store.bodies().clone());
        let machine = Origin::recover(now, config, policy, opened.image, opened.bodies);
        let failed = |source| DaemonError::Listen { address: listen.clone(), source };
        let listener = TcpListener::bind(&listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // Tried with a socket that goes nowhere: else each replica would hear of it, again and again.
        let tried = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        background.prepare(tried.map_err(failed)?)?;
        let shared = Arc::new(Shared {
            clock,
            core: Mutex::new(Core::new(machine)),
            identity: Mutex::new(identity),
            library,
            bodies,
            background,
            tell: Box::new(tell),
            progress: watch::Sender::new(0),
            stop: watch::Sender::new(false),
        });
        let done = |shared: &Shared, done| shared.with(|core, now| core.done(now, done));
        let worker = worker_of(&shared, opened.store, done)?;
        shared.with(|core, _| core.worker = Some(worker));
        let accepting = tokio::spawn(serve::accept(Arc::clone(&shared), listener));
        Ok(OriginDaemon { shared, address, accepting })
    }

    /// Where replicas connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What writes, and asks.
    pub fn handle(&self) -> OriginHandle {
        OriginHandle(Arc::clone(&self.shared))
    }

    /// Waits until it fails, which a healthy one never does.
    pub async fn failed(&self) {
        self.shared.stopped().await;
    }

    /// Ends it: writes that wait are done first, and connections closed.
    ///
    /// # Errors
    /// What it has failed with, if it has.
    pub async fn stop(mut self) -> Result<(), DaemonError> {
        /// For a disk that never answers.
        const PATIENCE: Duration = Duration::from_secs(10);
        self.shared.with(|core, _| core.closed = true);
        let done = async {
            while self.shared.with(|core, _| !core.writes.is_empty()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, done).await;
        self.shared.stop.send_replace(true);
        let _ = (&mut self.accepting).await;
        end(self.shared.with(|core, _| core.close())).await;
        self.shared.library.close();
        let failed = self.shared.with(|core, _| core.failed.take());
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Drop for OriginDaemon {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
        self.accepting.abort();
        let worker = self.shared.with(|core, _| core.close());
        if let Some(worker) = worker {
            worker.abandon();
        }
        // Handles may be left, and are of no use.
        self.shared.library.close();
    }
}

/// A body that is kept for a transaction to come. Dropped, it is kept no longer than others need it.
#[derive(Debug)]
pub struct HeldBody {
    origin: OriginHandle,
    id: HoldId,
    answer: self::core::Held,
}

impl HeldBody {
    /// Waits until the store has it.
    ///
    /// # Errors
    /// If there is no room for it, or the daemon ends.
    pub async fn stored(&mut self) -> Result<(), WriteError> {
        let answer = (&mut self.answer).await.map_err(|_| WriteError::Stopped)?;
        answer.map_err(|full| Refused::Disk(full).into())
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.origin.0.with(|core, _| core.machine.let_go(self.id));
    }
}

/// All objects at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The state that they are of.
    pub position: Position,
    /// The objects, by name.
    pub objects: Vec<(Path, Version)>,
    /// Those of their bodies that are lost: a write that names one is refused, one that brings it
    /// along mends all objects that have it.
    pub lost: BTreeSet<Digest>,
}

fn lost<'a>(core: &Core, versions: impl Iterator<Item = &'a Version>) -> BTreeSet<Digest> {
    let digests = versions.map(|version| version.content.digest);
    digests.filter(|digest| core.machine.is_lost(digest)).collect()
}

/// Writes to an origin that runs, and asks it.
#[derive(Clone)]
pub struct OriginHandle(Arc<Shared>);

impl ::core::fmt::Debug for OriginHandle {
    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
        f.write_str("OriginHandle(…)")
    }
}

impl OriginHandle {
    /// What takes in bodies, for a [`Transaction`]. Its calls block.
    pub fn bodies(&self) -> &Bodies {
        &self.0.bodies
    }

    /// Stores a body for a transaction to come, which names it by [`Put::Stored`](crate::origin::Put)
    /// as long as this is held: so that a large one need not be in memory.
    ///
    /// # Errors
    /// If the daemon ends.
    pub fn hold(&self, payload: Payload<Body>) -> Result<HeldBody, WriteError> {
        let (id, answer) = self.0.with(|core, _| core.hold(payload))?;
        Ok(HeldBody { origin: self.clone(), id, answer })
    }

    /// Makes changes visible at once. They would survive a crash when this returns.
    ///
    /// # Errors
    /// If nothing of it has happened; or, as [`WriteError::Stopped`], if that is open.
    pub async fn write(&self, changes: Transaction<Body>) -> Result<Sequence, WriteError> {
        self.submit(|_| Ok(Wanted::Changes(changes))).await
    }

    /// The same, if the last state is still `expected`.
    ///
    /// # Errors
    /// As for [`write`](OriginHandle::write), and [`WriteError::Moved`].
    pub async fn write_after(
        &self,
        expected: Sequence,
        changes: Transaction<Body>,
    ) -> Result<Sequence, WriteError> {
        self.submit(|core| {
            // One that waits for the disk comes before this one.
            let last = core.machine.last().sequence;
            if last == expected && core.writes.is_empty() {
                Ok(Wanted::Changes(changes))
            } else {
                Err(WriteError::Moved(last))
            }
        })
        .await
    }

    /// Makes the state that of `to` again, as one more transaction. It is equal to that when this
    /// returns, whatever else is being written: what comes before it is taken back, what comes later is
    /// a later state.
    ///
    /// # Errors
    /// As for [`write`](OriginHandle::write), and if there is no way back.
    pub async fn rollback(&self, to: Sequence) -> Result<Sequence, WriteError> {
        self.submit(|_| Ok(Wanted::Back(to))).await
    }

    async fn submit(
        &self,
        wanted: impl FnOnce(&Core) -> Result<Wanted, WriteError>,
    ) -> Result<Sequence, WriteError> {
        let (sender, answer) = oneshot::channel();
        self.0.with(|core, now| {
            let wanted = wanted(core)?;
            core.submit(now, wanted, sender)
        })?;
        answer.await.map_err(|_| WriteError::Stopped)?
    }

    /// All objects.
    pub fn tree(&self) -> Tree {
        self.0.with(|core, _| {
            let image = core.machine.image();
            let all = image.objects.iter().map(|(path, version)| (path.clone(), *version));
            let objects: Vec<_> = all.collect();
            let lost = lost(core, objects.iter().map(|(_, version)| version));
            Tree { position: image.last(), objects, lost }
        })
    }

    /// The objects at these names, and below them; the empty one is the root. And which of their
    /// bodies are lost.
    #[cfg(feature = "watch")]
    pub(crate) fn objects_at<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> (BTreeMap<Path, Version>, BTreeSet<Digest>) {
        self.0.with(|core, _| {
            let objects = &core.machine.image().objects;
            let mut found = BTreeMap::new();
            let all = names.flat_map(|name| {
                let within = if name.is_empty() { String::new() } else { format!("{name}/") };
                let from = (Bound::Included(within.as_str()), Bound::Unbounded);
                let below = objects.range::<str, _>(from);
                let below = below.take_while(move |(path, _)| path.as_str().starts_with(&within));
                objects.get_key_value(name).into_iter().chain(below)
            });
            found.extend(all.map(|(path, version)| (path.clone(), *version)));
            let lost = lost(core, found.values());
            (found, lost)
        })
    }

    /// Whether a body is in the store, so that a write may name it.
    #[cfg(feature = "watch")]
    pub(crate) fn has_body(&self, digest: &Digest) -> bool {
        self.0.with(|core, _| core.machine.has_body(digest))
    }

    /// What its wall clock shows.
    pub fn now(&self) -> WallTime {
        self.0.clock.read().wall
    }

    /// Whether the daemon ends, or has ended.
    pub fn is_stopped(&self) -> bool {
        *self.0.stop.borrow()
    }

    /// The last state.
    pub fn last(&self) -> Sequence {
        self.0.with(|core, _| core.machine.last().sequence)
    }

    /// Waits until these replicas answer reads with the state at `sequence`, or a later one.
    ///
    /// # Errors
    /// If there is no replica of one of the names, or the daemon ends.
    pub async fn wait_for(&self, names: &[String], at: Sequence) -> Result<(), DaemonError> {
        let mut waiting: Vec<ReplicaId> =
            names.iter().map(|name| self.replica(name)).collect::<Result<_, _>>()?;
        let mut progress = self.0.progress.subscribe();
        loop {
            progress.mark_unchanged();
            self.0.with(|core, _| {
                waiting.retain(|one| core.machine.progress(*one).is_none_or(|(to, _)| to < at));
            });
            if waiting.is_empty() {
                return Ok(());
            }
            tokio::select! {
                changed = progress.changed() => changed.map_err(|_| StoreError::Stopped)?,
                () = self.0.stopped() => return Err(StoreError::Stopped.into()),
            }
        }
    }

    fn replica(&self, name: &str) -> Result<ReplicaId, DaemonError> {
        let identity = lock(&self.0.identity);
        let found = identity.replicas().find(|(_, known, _)| *known == name);
        found.map(|(id, ..)| id).ok_or_else(|| DaemonError::NoReplica(name.to_owned()))
    }

    /// A ticket for a replica of this name, which is to find the origin at `address`.
    ///
    /// # Errors
    /// If the identity cannot be written.
    pub fn ticket(
        &self,
        name: &str,
        address: &str,
        valid: Duration,
    ) -> Result<Ticket, IdentityError> {
        lock(&self.0.identity).ticket(name, address, self.0.clock.read().wall, valid)
    }

    /// Begins to replace the authority: replicas get certificates of a new one as they are connected,
    /// and trust both.
    ///
    /// # Errors
    /// If that was begun already, or the identity cannot be written.
    pub fn begin_rotation(&self) -> Result<(), DaemonError> {
        lock(&self.0.identity).begin_rotation(self.now())?;
        self.let_renew();
        Ok(())
    }

    /// The old authority counts no more; replicas give it up as they are connected.
    ///
    /// # Errors
    /// If it was not begun, replicas would be shut out, or the identity cannot be written.
    pub fn finish_rotation(&self) -> Result<(), DaemonError> {
        lock(&self.0.identity).finish_rotation(self.now())?;
        self.let_renew();
        Ok(())
    }

    /// Tells those that are connected to get new certificates, if they have to.
    fn let_renew(&self) {
        let links: Vec<_> = self.0.with(|core, _| core.links.values().cloned().collect());
        for link in links {
            if lock(&self.0.identity).is_behind(link.replica) {
                link.renew.store(true, Ordering::Relaxed);
                link.control.notify_one();
            }
        }
    }

    /// From now on the replica of this name is not talked to; its connections end.
    ///
    /// # Errors
    /// If there is none, or the identity cannot be written.
    pub fn revoke(&self, name: &str) -> Result<(), DaemonError> {
        let replica = self.replica(name)?;
        lock(&self.0.identity).revoke(replica)?;
        self.0.with(|core, _| core.give_up(replica));
        Ok(())
    }
}
