//! The handle for writes to an origin and queries.

use ::core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lull_replication::origin::CaseClash;
use lull_replication::origin::{Condition, Transaction};
use lull_replication::path::{Path, prefix_of};
use lull_replication::time::WallTime;
use lull_replication::token::Keyring;
use lull_replication::types::Content;
use lull_replication::types::{Digest, Version};
use lull_replication::types::{Metadata, Payload, ReplicaId, Sequence};
use tokio::sync::oneshot;

use super::awaited::{Awaited, AwaitedBodies, CheckPosition, CheckResult};
use super::core::{Core, Wanted};
use super::{HeldBody, Shared, WriteError, lock};
use crate::daemon::DaemonError;
use crate::identity::{IdentityError, Ticket, TicketKind};
use crate::store::{Bodies, Body, StoreError};

fn lost<'a>(core: &Core, versions: impl Iterator<Item = &'a Version>) -> BTreeSet<Digest> {
    let digests = versions.map(|version| version.content.digest);
    digests.filter(|digest| core.machine.is_lost(digest)).collect()
}

/// Writes to a running origin, and queries it.
#[derive(Clone)]
pub struct OriginHandle(pub(super) Arc<Shared>);

impl ::core::fmt::Debug for OriginHandle {
    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
        f.write_str("OriginHandle(…)")
    }
}

impl OriginHandle {
    /// The store for the bodies of a [`Transaction`]. Its calls block.
    pub fn bodies(&self) -> &Bodies {
        &self.0.bodies
    }

    /// Stores a body for a future transaction, which names it by
    /// [`Put::Stored`](lull_replication::origin::Put) while this value is held. So a large body need not be
    /// in memory.
    ///
    /// # Errors
    /// If the daemon ends.
    pub fn hold(&self, payload: Payload<Body>) -> Result<HeldBody, WriteError> {
        let held = self.0.try_with(|core, _| core.hold(payload));
        let (id, answer) = held.unwrap_or(Err(WriteError::Stopped))?;
        Ok(HeldBody::new(Arc::clone(&self.0), id, answer))
    }

    /// An incoming body found no space on the disk, so nothing was requested for it so far.
    pub(crate) fn disk_full(&self) {
        self.0.try_with(|core, now| core.disk_full(now.local));
    }

    /// Makes changes visible at once. They are durable when this returns.
    ///
    /// # Errors
    /// If nothing was written; or, as [`WriteError::Stopped`], if that is unknown.
    pub async fn write(&self, changes: Transaction<Body>) -> Result<Sequence, WriteError> {
        self.submit(Wanted::Changes(changes), |_| Ok(())).await
    }

    /// The same, if all these conditions hold for these objects. They are checked in the state after all
    /// earlier writes, whether that is on the disk or not.
    ///
    /// # Errors
    /// As for [`write`](OriginHandle::write), and [`Refused::Condition`](lull_replication::origin::Refused::Condition).
    pub async fn write_if(
        &self,
        conditions: Vec<(Path, Condition)>,
        changes: Transaction<Body>,
    ) -> Result<Sequence, WriteError> {
        self.submit(Wanted::If(conditions, changes), |_| Ok(())).await
    }

    /// The same, if nothing has changed since the state at `expected`: nothing at `within` and below it, if
    /// only that matters.
    ///
    /// # Errors
    /// As for [`write`](OriginHandle::write), and [`WriteError::Moved`].
    pub async fn write_after(
        &self,
        expected: Sequence,
        within: Option<&Path>,
        changes: Transaction<Body>,
    ) -> Result<Sequence, WriteError> {
        self.submit(Wanted::Changes(changes), |core| {
            if core.has_moved(expected, within) {
                return Err(WriteError::Moved(core.machine.last().sequence));
            }
            Ok(())
        })
        .await
    }

    /// Restores the state of `to` with a new transaction. It equals that state when this returns, despite
    /// concurrent writes: earlier writes are undone, later ones make a later state.
    ///
    /// # Errors
    /// As for [`write`](OriginHandle::write), and if no rollback to that state is possible.
    pub async fn rollback(&self, to: Sequence) -> Result<Sequence, WriteError> {
        self.submit(Wanted::Back(to), |_| Ok(())).await
    }

    async fn submit(
        &self,
        wanted: Wanted,
        permitted: impl FnOnce(&Core) -> Result<(), WriteError>,
    ) -> Result<Sequence, WriteError> {
        let (sender, answer) = oneshot::channel();
        let paths = wanted.paths();
        let submitted = self.0.try_with(|core, now| {
            permitted(core)?;
            core.submit(now, (wanted, paths), sender)
        });
        submitted.unwrap_or(Err(WriteError::Stopped))?;
        answer.await.map_err(|_| WriteError::Stopped)?
    }

    /// The objects with these names, and those below the names for which that is requested; the empty name is
    /// the root. Also which of their bodies are lost.
    pub(crate) fn objects_at<'a>(
        &self,
        names: impl Iterator<Item = (&'a [u8], bool)>,
    ) -> (BTreeMap<Path, Version>, BTreeSet<Digest>) {
        self.0.with(|core, _| {
            let objects = &core.machine.image().objects;
            let mut found = BTreeMap::new();
            let all = names.flat_map(|(name, with_below)| {
                let within = prefix_of(name);
                let from = (Bound::Included(&within[..]), Bound::Unbounded);
                let below = objects.range::<[u8], _>(from);
                let below = below.take_while(move |(path, _)| path.as_bytes().starts_with(&within));
                let below = below.take(if with_below { usize::MAX } else { 0 });
                objects.get_key_value(name).into_iter().chain(below)
            });
            found.extend(all.map(|(path, version)| (path.clone(), *version)));
            let lost = lost(core, found.values());
            (found, lost)
        })
    }

    /// The objects after this one, at most this many.
    pub(crate) fn objects_after(
        &self,
        after: Option<&Path>,
        most: usize,
    ) -> BTreeMap<Path, Version> {
        self.0.with(|core, _| {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let objects = core.machine.image().objects.range::<Path, _>((from, Bound::Unbounded));
            objects.take(most).map(|(path, version)| (path.clone(), *version)).collect()
        })
    }

    /// The changes that would be refused because their paths differ only in case, if no other write preceded
    /// them.
    pub(crate) fn case_clashes(&self, changes: &BTreeMap<Path, Option<Content>>) -> Vec<CaseClash> {
        self.0.with(|core, _| core.machine.case_clashes(changes))
    }

    /// Whether a body is in the store, so that a write may name it.
    pub(crate) fn has_body(&self, digest: &Digest) -> bool {
        self.0.with(|core, _| core.machine.has_body(digest))
    }

    /// The same for several.
    pub(crate) fn have_bodies(&self, digests: &[Digest]) -> Vec<bool> {
        let has =
            |core: &mut Core, _| digests.iter().map(|one| core.machine.has_body(one)).collect();
        self.0.with(has)
    }

    /// The metadata of an object; none if there is no such object.
    pub fn metadata(&self, path: &Path) -> Option<Metadata> {
        self.0.with(|core, _| {
            let version = core.machine.image().objects.get(path);
            version.map(|version| version.content.metadata)
        })
    }

    /// Makes session tokens that all replicas accept, for now: keys are replaced with the authority.
    pub fn tokens(&self) -> Keyring {
        lock(&self.0.identity).keyring()
    }

    /// The time of its wall clock.
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

    /// Waits until these replicas have the state at `at`: they answer reads with it or a later one, and have
    /// the bodies of the commit that made it. It does not wait for bodies that were overwritten or deleted
    /// since, or are lost. Nor does it wait for bodies without room, or those that this
    /// [`Strategy`](lull_replication::origin::Strategy) does not push.
    ///
    /// # Errors
    /// If one of them never will, see [`joined`](OriginHandle::joined), or the daemon ends.
    pub async fn wait_for(&self, names: &[String], at: Sequence) -> Result<(), DaemonError> {
        self.wait(names, Awaited::new(at, AwaitedBodies::Commit(None))).await
    }

    /// The same with the bodies of all files below `within` in that state, or of all files, from any commit.
    ///
    /// # Errors
    /// As for [`wait_for`](OriginHandle::wait_for).
    pub async fn wait_for_files(
        &self,
        names: &[String],
        at: Sequence,
        within: Option<&Path>,
    ) -> Result<(), DaemonError> {
        let within = within.map_or_else(Vec::new, Path::prefix);
        self.wait(names, Awaited::new(at, AwaitedBodies::Files(within))).await
    }

    /// Waits until they answer reads with the state at `at` or a later one, with or without bodies.
    ///
    /// # Errors
    /// As for [`wait_for`](OriginHandle::wait_for).
    pub async fn wait_for_state(&self, names: &[String], at: Sequence) -> Result<(), DaemonError> {
        self.wait(names, Awaited::new(at, AwaitedBodies::Nothing)).await
    }

    async fn wait(&self, names: &[String], mut awaited: Awaited) -> Result<(), DaemonError> {
        let mut progress = self.0.progress.subscribe();
        let mut known = self.0.with(|core, _| core.revocations);
        // With the progress of its bodies: bodies that have arrived once are not checked again.
        let joined = self.joined(names)?.into_iter().zip(names);
        let mut waiting: Vec<_> =
            joined.map(|(one, name)| (one, name, CheckPosition::default())).collect();
        loop {
            progress.mark_unchanged();
            let (revocations, goes_on) = self.0.with(|core, _| {
                let mut goes_on = false;
                waiting.retain_mut(|(one, _, far)| {
                    let seen = awaited.check(&core.machine, *one, far);
                    goes_on |= seen == CheckResult::More;
                    seen != CheckResult::All
                });
                (core.revocations, goes_on)
            });
            if waiting.is_empty() {
                return Ok(());
            }
            if ::core::mem::replace(&mut known, revocations) != revocations {
                for (_, name, _) in &waiting {
                    self.joined(::core::slice::from_ref(*name))?;
                }
            }
            if goes_on {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                changed = progress.changed() => changed.map_err(|_| StoreError::Stopped)?,
                () = self.0.stopped() => return Err(StoreError::Stopped.into()),
            }
        }
    }

    /// The replicas of these names, which have joined and were not revoked.
    ///
    /// # Errors
    /// If one of the names is not that of such a replica.
    pub fn joined(&self, names: &[String]) -> Result<Vec<ReplicaId>, DaemonError> {
        let joined = |name: &String| match self.replica(name)? {
            (replica, true) => Ok(replica),
            (_, false) => Err(DaemonError::NotJoined(name.clone())),
        };
        names.iter().map(joined).collect()
    }

    /// The replica of a name, and whether it has joined and was not revoked.
    fn replica(&self, name: &str) -> Result<(ReplicaId, bool), DaemonError> {
        let identity = lock(&self.0.identity);
        let found = identity.replicas().find(|(_, known, _)| *known == name);
        let found = found.map(|(id, _, joined)| (id, joined));
        found.ok_or_else(|| DaemonError::NoReplica(name.to_owned()))
    }

    /// A ticket for a replica of this name, which will connect to the origin at `address`.
    ///
    /// # Errors
    /// As for [`ticket_for`](OriginHandle::ticket_for).
    pub fn ticket(
        &self,
        name: &str,
        address: &str,
        valid: Duration,
    ) -> Result<Ticket, IdentityError> {
        self.ticket_for(TicketKind::Replica, name, address, valid)
    }

    /// The same for any kind of holder.
    ///
    /// # Errors
    /// If the address is not reachable, the name has another purpose, or the identity cannot be written.
    pub fn ticket_for(
        &self,
        kind: TicketKind,
        name: &str,
        address: &str,
        valid: Duration,
    ) -> Result<Ticket, IdentityError> {
        let times = (self.0.clock.read().wall, valid);
        lock(&self.0.identity).ticket_for(kind, name, address, times)
    }

    /// Begins to replace the authority: replicas get certificates of a new one when they are connected, and
    /// trust both.
    ///
    /// # Errors
    /// If a rotation is in progress, session tokens of the previous key are still accepted, or the identity
    /// cannot be written.
    pub fn begin_rotation(&self) -> Result<(), DaemonError> {
        self.0.drop_replaced_token_key();
        lock(&self.0.identity).begin_rotation(self.now())?;
        self.0.request_renewals();
        Ok(())
    }

    /// The old authority is no longer trusted; replicas drop it when they are connected.
    ///
    /// # Errors
    /// If it was not begun, if replicas would be rejected afterwards, or if the identity cannot be written.
    pub fn finish_rotation(&self) -> Result<(), DaemonError> {
        lock(&self.0.identity).finish_rotation(self.now())?;
        self.0.drop_replaced_token_key();
        self.0.request_renewals();
        Ok(())
    }

    /// From now on the replica of this name is not served; its connections end.
    ///
    /// # Errors
    /// If there is no such replica, or the identity cannot be written.
    pub fn revoke(&self, name: &str) -> Result<(), DaemonError> {
        let (replica, _) = self.replica(name)?;
        lock(&self.0.identity).revoke(replica)?;
        self.0.with(|core, _| {
            core.give_up(replica);
            core.revocations += 1;
        });
        // Callers waiting for it return, and the others may have waited for it too.
        self.0.progress.send_modify(|count| *count += 1);
        self.0.drop_replaced_token_key();
        Ok(())
    }
}
