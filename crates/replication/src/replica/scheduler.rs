//! The scheduler: when invalidations and bodies are applied (SSR §6.2.1).
//!
//! C1: the version of sequence N is applied after all invalidations below N. Here commits leave the buffer
//! only from the front, and a body makes an object valid only in the state's version.
//!
//! C2: an invalidation is applied by its deadline. Here no read is answered while one is overdue.
//!
//! A commit at the front of the buffer is applied when
//! 1. all of its bodies are in the store, so that it makes no object invalid (rule 2.1); deletions have no
//!    body to wait for;
//! 2. its deadline has come (rule 2.2);
//! 3. a demand body, or a session's token, with its sequence or a higher one has arrived (rule 2.3);
//! 4. together with some later commits it makes no object invalid: its missing bodies were overwritten there,
//!    and the newer bodies are here (an extension, ADR 7);
//! 5. its missing bodies have arrived, and the quota had no room for them (not in the paper);
//! 6. the waiting commits take more than half of their memory (not in the paper).

use std::collections::BTreeMap;

use lull_cc::Bytes;

use super::early::{Early, Key};
use super::scope::Scope;
use super::{Buffered, Object, Relayed, Replica, Step};
use crate::faults::Fault;
use crate::message::{BodyHeader, Frame, ToOrigin};
use crate::path::Path;
use crate::time::{LocalTime, Reading};
use crate::types::{Change, Digest, DiskFull, Payload, Sequence, Version};

/// Why a commit is applied.
enum ApplyReason {
    Bodies,
    Deadline,
    /// There is nothing to wait for.
    AtOnce,
    Demand,
    Overtaken,
}

/// Late bodies, when a step is made.
pub(super) struct Late {
    /// Of no use.
    pub(super) unused: Vec<Digest>,
    /// Not used by the state, but by those that the step passes through.
    pub(super) between: Vec<Digest>,
    /// The step makes their objects valid.
    pub(super) used: Vec<Digest>,
}

/// Whether all bodies of a commit arrived for it, and not for other names.
fn is_named(early: &Early, scope: &Scope, buffered: &Buffered) -> bool {
    let is_awaited = |change: &&Change| change.content.is_some() && scope.has(&change.path);
    let bodies = buffered.changes.iter().filter(is_awaited);
    let before = Sequence(buffered.sequence.0.saturating_sub(1));
    early.between(before, buffered.sequence).count() >= bodies.count()
}

/// Waiting commits are searched for a limit up to which to apply them. That happens when there was one event
/// per this many of them, and at each timer and heartbeat. So an event takes the same time however many
/// commits wait, and none of them waits much longer.
const COMMITS_PER_EVENT: usize = 16;

impl<P: Clone> Replica<P> {
    /// A body was received on the demand or the speculative channel. Without a payload the object does not
    /// exist, or its body will not come. Bodies may come before their invalidation, and after a newer one.
    pub fn handle_body(
        &mut self,
        now: Reading,
        frame: Frame<BodyHeader>,
        payload: Option<Payload<P>>,
    ) {
        self.take_body(now, frame, Ok(payload));
    }

    /// A body was received, and the disk had no room for it.
    pub fn handle_no_room(&mut self, now: Reading, frame: Frame<BodyHeader>) {
        self.take_body(now, frame, Err(DiskFull));
    }

    fn take_body(
        &mut self,
        now: Reading,
        frame: Frame<BodyHeader>,
        payload: Result<Option<Payload<P>>, DiskFull>,
    ) {
        if !self.connection.has_body_of(frame.session) {
            self.output.counters.stale_frames += 1;
            return;
        }
        let BodyHeader { path, version, at, demand, lost } = frame.message;
        let digest = version.map(|version| version.content.digest);
        self.fold_one(now.local, &path);
        let withdrawn = demand && self.missing.demands.remove(&path);
        if withdrawn {
            self.output.counters.awaited_again += u64::from(self.missing.demands.is_awaited(&path));
            self.output.counters.withdrawn_late += u64::from(matches!(payload, Ok(Some(_))));
        }
        let is_of_read = demand || lost;
        let channel =
            if demand { &mut self.connection.fetched } else { &mut self.connection.pushed };
        channel.add(digest);
        if payload.is_err() {
            self.disk_full(now.local);
            if let Some(version) = version {
                self.missing.reject(path.clone(), version.sequence);
            }
        }
        // A body that was cut off, or refused by a full disk, has no payload.
        let payload = payload.unwrap_or_default();
        let came = payload.is_some();
        let payload = payload.filter(|payload| {
            let announced = version.map(|version| (version.content.digest, version.content.size));
            Some((payload.digest, payload.size)) == announced
        });
        match (version, payload) {
            (Some(version), Some(payload)) => self.keep_body(path, version, payload, demand),
            // It does not exist at `at`: the deletion is announced by then.
            (None, _) if demand => {
                self.apply.force(at);
                self.missing.demands.answer(path, at, Bytes(0));
            }
            _ => {
                // A read that waits for a withdrawn body requests it again at once.
                self.output.counters.corrupt += u64::from(!lost && !withdrawn);
                if demand && !withdrawn {
                    // Must not be requested in each round trip.
                    let until = now.local.plus(self.config.retry);
                    self.missing.unanswered.add(path.clone(), until);
                }
                match version {
                    Some(version) if lost => self.lose_at_origin(path, version.sequence),
                    Some(version) if came => {
                        self.corrupt(now.local, path, version.sequence, !demand);
                    }
                    _ => {}
                }
            }
        }
        self.report_taken();
        self.advance(now.local);
        // A pushed body is of no use to a read before the store has it.
        if is_of_read {
            self.wake(now.local);
        }
    }

    /// Counts the bodies that are in the store, or were discarded. The origin pushes only a few more than
    /// these. So no more of them are in memory, however slow this disk is.
    pub(super) fn report_taken(&mut self) {
        let (pushed, fetched) = (
            self.connection.pushed.poll_done(&self.bodies.references),
            self.connection.fetched.poll_done(&self.bodies.references),
        );
        if self.is_connected() {
            if let Some(pushed) = pushed {
                // An unsent count is superseded by this one.
                self.connection.outbox.pop_back_if(|last| matches!(last, ToOrigin::Taken(_)));
                self.connection.outbox.push_back(ToOrigin::Taken(pushed));
            }
            self.connection.outbox.extend(fetched.map(ToOrigin::Fetched));
        }
    }

    /// A demand body in the store has everything before it applied (rule 2.3).
    pub(super) fn force_for_stored(&mut self, digest: &Digest) {
        if !self.bodies.references.is_stored(digest) {
            return;
        }
        // Fewer than the objects that may have the body.
        let has = |key: &&Key| {
            let version = self.bodies.early.get(key);
            version.is_some_and(|version| version.content.digest == *digest)
        };
        let answered = self.missing.demands.answered().filter(has).map(|(at, _)| *at);
        self.apply.force = answered.fold(self.apply.force, Sequence::max);
    }

    /// A body has come as it was announced: it is kept, if it is of use and there is room.
    fn keep_body(&mut self, path: Path, version: Version, payload: Payload<P>, demand: bool) {
        let (content, committed) = (version.content, self.position());
        if version.sequence <= committed && !self.lacks(&path, version.sequence) {
            // "If the locally stored sequence number already exceeds an update's sequence
            // number, the replica must discard the update" (rule 1).
            self.output.counters.stale += 1;
        } else if !demand && self.is_full_for(&path, &content) {
            self.output.counters.refused += 1;
            if version.sequence > committed {
                self.follow_shelf();
                let references = &self.bodies.references;
                let is_stored = |digest: &Digest| references.is_stored(digest);
                self.apply.buffer.refuse(version.sequence, &path, is_stored);
            }
        } else {
            self.output.counters.early += u64::from(version.sequence > self.received());
            self.missing.accept(&path, version.sequence);
            let before = self.bodies.early.insert(path.clone(), version);
            if before != Some(content.digest) {
                self.bodies.references.store_referenced(payload);
                if version.sequence <= committed
                    && self.bodies.references.is_stored(&content.digest)
                {
                    self.bodies.early.is_late((version.sequence, path.clone()));
                }
                // An origin restored from a backup has made another commit of this number.
                if let Some(before) = before {
                    self.bodies.references.release(&before);
                }
                self.expose_early(&content.digest);
            }
            if demand {
                self.missing.demands.answer(path, version.sequence, content.size);
                self.force_for_stored(&content.digest);
            }
        }
    }

    /// Whether the state has the object in this version without its body.
    fn lacks(&self, path: &Path, sequence: Sequence) -> bool {
        let object = self.object(path);
        object.is_some_and(|object| object.version.sequence == sequence && !object.valid)
    }

    /// An early body turned out not to be stored.
    pub(super) fn forget_early(&mut self, digest: &Digest) {
        for key in self.bodies.early.of_body(digest) {
            self.bodies.early.remove(&key);
            let (sequence, path) = key;
            self.missing.demands.remove(&path);
            self.missing.reject(path, sequence);
        }
    }

    /// The bug in which bodies become visible too early.
    pub(super) fn expose_early(&mut self, digest: &Digest) {
        if !self.faults.has(Fault::BodyBeforeInvalidations)
            || !self.bodies.references.is_stored(digest)
        {
            return;
        }
        for (path, version) in self.bodies.early.iter() {
            if version.content.digest == *digest {
                self.bodies.references.refer(digest);
                let object = Object { version: *version, valid: true };
                self.image.objects.insert(path.clone(), object);
            }
        }
    }

    /// When a commit has to be applied, at the latest (C2).
    pub(super) fn deadline(&self, buffered: &Buffered) -> Option<LocalTime> {
        match buffered.said {
            Some(said) if !self.comes_at_once(buffered) => {
                self.lease.deadline(said, self.is_connected())
            }
            _ => Some(LocalTime::from_nanos(i64::MIN)),
        }
    }

    /// Whether a commit is applied on arrival: invalidations are not delayed, or its age is unknown.
    pub(super) fn comes_at_once(&self, buffered: &Buffered) -> bool {
        let eager = self.config.eager.unwrap_or(self.connection.eager);
        buffered.said.is_none() || eager && self.is_connected()
    }

    pub(super) fn is_due(&self, buffered: &Buffered, now: LocalTime) -> bool {
        self.deadline(buffered).is_some_and(|deadline| deadline <= now)
    }

    /// Updates the buffer's counts of stored bodies.
    pub(super) fn follow_shelf(&mut self) {
        while let Some((digest, is_stored)) = self.bodies.references.poll_turned() {
            self.apply.buffer.turn(&digest, is_stored);
            self.output.pass_on(|| Relayed::Body { digest, is_stored });
        }
        self.follow_replaced();
    }

    /// If the body is in the store, objects of the state that lack it become valid by the next step.
    pub(super) fn late_with(&mut self, digest: &Digest) {
        if !self.bodies.references.is_stored(digest) {
            return;
        }
        let present = self.position();
        for key in self.bodies.early.of_body(digest).into_iter().filter(|(at, _)| *at <= present) {
            self.bodies.early.is_late(key);
        }
    }

    /// Beyond this size, commits do not wait for their bodies.
    pub(super) fn half_of_room(&self) -> u64 {
        self.config.buffer.0 / 2
    }

    fn apply_reason(&self, buffered: &Buffered, now: LocalTime) -> Option<ApplyReason> {
        if buffered.has_bodies() {
            Some(ApplyReason::Bodies)
        } else if self.comes_at_once(buffered) || buffered.lacks_only_space() {
            Some(ApplyReason::AtOnce)
        } else if self.is_due(buffered, now) {
            Some(ApplyReason::Deadline)
        } else if buffered.sequence <= self.apply.force
            || buffered.sequence <= self.apply.awaited(self.image.position)
        {
            Some(ApplyReason::Demand)
        } else {
            None
        }
    }

    /// Waiting commits are checked at the next event.
    pub(super) fn request_scan(&mut self) {
        self.apply.events_since_look = self.apply.buffer.len() / COMMITS_PER_EVENT;
    }

    /// Whether it is time to check waiting commits.
    fn is_scan_due(&mut self) -> bool {
        self.apply.events_since_look = self.apply.events_since_look.saturating_add(1);
        let often = self.apply.events_since_look >= self.apply.buffer.len() / COMMITS_PER_EVENT;
        if often {
            self.apply.events_since_look = 0;
        }
        self.config.overtake && often
    }

    /// Begins the next step, if there is anything to do and none is being written.
    pub(super) fn advance(&mut self, now: LocalTime) {
        self.settle_early(self.config.slice);
        self.follow_shelf();
        if self.apply.is_busy(now) {
            return;
        }
        if self.comparison.resync.is_some() {
            return self.advance_resync(now);
        }
        let (reasons, is_large) = self.decide(now);
        self.count(&reasons, is_large);
        if is_large {
            let with_bodies = reasons.iter().map(|because| matches!(because, ApplyReason::Bodies));
            return self.begin_forming(now, with_bodies.collect());
        }
        let commits = reasons.len();
        let mut step = Step { position: self.image.position, changes: BTreeMap::new() };
        for buffered in self.apply.buffer.iter().take(commits) {
            step.position = Some(buffered.position);
            self.add_to(&mut step, buffered);
        }
        let Late { mut unused, mut between, .. } = self.use_late_bodies(&mut step, commits);
        if self.config.grace.is_zero() || self.is_beyond_quota() {
            unused.append(&mut between);
        }
        self.make_room(&mut step, &mut unused);
        if commits > 0 || !step.changes.is_empty() {
            self.write(step, commits, between);
        }
        // Only now: a body without use under one name may be used by the step under another.
        for digest in unused {
            self.bodies.references.release(&digest);
        }
    }

    /// Continues a comparison: begins it, or writes its result.
    fn advance_resync(&mut self, now: LocalTime) {
        let Some(resync) = &mut self.comparison.resync else { return };
        if resync.is_waiting() {
            self.apply.buffer.clear();
            let of = resync.position.sequence;
            // The timer continues.
            let Some(ask) = resync.build_tree(&self.image, self.config.step_slice) else { return };
            self.connection.outbox.extend(ask.map(|part| ToOrigin::Ask { of, part }));
            // From now on the origin has something to send.
            self.connection.heard = now;
        }
        if resync.is_complete() {
            let position = resync.position;
            self.begin_merging(now, position);
        }
    }

    /// Which commits at the front of the buffer the next step contains, and why; and whether that step is
    /// large.
    fn decide(&mut self, now: LocalTime) -> (Vec<ApplyReason>, bool) {
        let (mut reasons, mut ends) = (Vec::new(), Vec::new());
        let mut look = None;
        let (mut bytes, half) = (self.apply.buffer.bytes().0, self.half_of_room());
        let mut size = 0;
        while let Some(buffered) = self.apply.buffer.get(reasons.len()) {
            if size > self.large() {
                break;
            }
            let for_room = || (bytes > half).then_some(ApplyReason::AtOnce);
            if let Some(because) = self.apply_reason(buffered, now).or_else(for_room) {
                size += buffered.changes.len();
                bytes = bytes.saturating_sub(buffered.bytes());
                reasons.push(because);
                ends.push(reasons.len());
                continue;
            }
            if !*look.get_or_insert_with(|| self.is_scan_due()) {
                break;
            }
            let Some(more) = self.apply.buffer.overtaken(reasons.len()) else { break };
            for buffered in self.apply.buffer.range(reasons.len()..reasons.len() + more) {
                size += buffered.changes.len();
                bytes = bytes.saturating_sub(buffered.bytes());
                let has_bodies = buffered.has_bodies();
                reasons.push(if has_bodies { ApplyReason::Bodies } else { ApplyReason::Overtaken });
            }
            ends.push(reasons.len());
        }
        let is_large = self.cut(&mut reasons, &ends);
        (reasons, is_large)
    }

    /// Counts the commits of the next step by the reasons for applying them.
    fn count(&mut self, reasons: &[ApplyReason], is_large: bool) {
        let counters = &mut self.output.counters;
        for (buffered, because) in self.apply.buffer.iter().zip(reasons) {
            counters.transactions += u64::from(buffered.changes.len() > 1);
            match because {
                ApplyReason::Bodies => {
                    counters.with_bodies += 1;
                    // A large step is counted while it is made.
                    let is_named =
                        is_large || is_named(&self.bodies.early, &self.bodies.scope, buffered);
                    counters.deduplicated += u64::from(!is_named);
                }
                ApplyReason::Deadline => counters.at_deadline += 1,
                ApplyReason::AtOnce => counters.at_once += 1,
                ApplyReason::Demand => counters.on_demand += 1,
                ApplyReason::Overtaken => counters.overtaken += 1,
            }
        }
    }

    /// A step with more changes has as few commits as possible, and is made in slices.
    fn large(&self) -> usize {
        self.config.step_slice.saturating_mul(2)
    }

    /// Leaves out commits at the end if the step would become large: the next step takes them. `ends` are the
    /// possible ends of a step. Returns whether it is large all the same.
    fn cut(&self, reasons: &mut Vec<ApplyReason>, ends: &[usize]) -> bool {
        let sizes =
            self.apply.buffer.iter().take(reasons.len()).map(|buffered| buffered.changes.len());
        let sums = sizes.scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        });
        let sums: Vec<usize> = sums.collect();
        let size =
            |end: usize| end.checked_sub(1).and_then(|last| sums.get(last)).copied().unwrap_or(0);
        if size(reasons.len()) <= self.large() {
            return false;
        }
        let mut fitting = ends.iter().copied().take_while(|end| size(*end) <= self.large());
        let end = fitting.by_ref().last().or_else(|| ends.first().copied());
        let end = end.unwrap_or(reasons.len());
        reasons.truncate(end);
        size(end) > self.large()
    }

    /// Adds a commit to a step.
    fn add_to(&self, step: &mut Step, buffered: &Buffered) {
        let (sequence, all_here) = (buffered.sequence, buffered.has_bodies());
        let changed = |change: &Change| {
            let object = change.content.map(|content| {
                // Commits do not wait for bodies that are left out.
                let valid = all_here && self.bodies.scope.has(&change.path)
                    || self.bodies.references.is_stored(&content.digest);
                Object { version: Version { sequence, content }, valid }
            });
            (change.path.clone(), object)
        };
        let changes = buffered.changes.iter().map(changed);
        if step.changes.is_empty() {
            // Mostly in the order of their paths, which is much faster.
            step.changes = changes.collect();
        } else {
            step.changes.extend(changes);
        }
    }

    /// Uses bodies whose invalidation was applied without them.
    pub(super) fn use_late_bodies(&mut self, step: &mut Step, commits: usize) -> Late {
        let present = self.position();
        let upto = step.position.map_or(present, |position| position.sequence);
        let (mut done, mut passed, mut used) = (Vec::new(), Vec::new(), Vec::new());
        // More of them take more steps, so that none is large because of them.
        let late = core::iter::from_fn(|| self.bodies.early.pop_late());
        let mut keys: Vec<_> = late.take(self.config.step_slice).collect();
        // A step of one commit overtakes none. Its bodies are settled when the step is on the disk.
        if commits > 1 {
            keys.extend(self.bodies.early.between(present, upto));
        }
        for (key, version) in keys {
            let (sequence, path) = &key;
            let object = match step.changes.get(path) {
                Some(object) => *object,
                None => self.image.objects.get(path).copied(),
            };
            let digest = version.content.digest;
            match object {
                Some(object) if object.version.sequence == *sequence => {
                    if object.valid {
                        // Bodies of this step are kept until the step is on the disk.
                        if !step.changes.contains_key(path) {
                            done.extend(self.bodies.early.remove(&key));
                        }
                    } else if object.version.content.digest != digest {
                        // The invalidation, which comes by its own channel, is trusted.
                        self.output.counters.corrupt += 1;
                        done.extend(self.bodies.early.remove(&key));
                    } else if self.bodies.references.is_stored(&digest) {
                        self.output.counters.late += 1;
                        let object = Object { valid: true, ..object };
                        step.changes.insert(path.clone(), Some(object));
                        used.push(digest);
                    }
                }
                _ => {
                    self.output.counters.stale += 1;
                    let is_passed = *sequence > present;
                    let gone = self.bodies.early.remove(&key);
                    if is_passed { &mut passed } else { &mut done }.extend(gone);
                }
            }
        }
        Late { unused: done, between: passed, used }
    }

    /// A body is missing from the store or corrupt: its objects are invalid, and are fetched again when they
    /// are read.
    pub fn handle_missing(&mut self, now: Reading, digest: &Digest) {
        if !self.bodies.references.is_stored(digest) {
            return;
        }
        self.output.counters.missing += 1;
        self.bodies.references.discard(digest);
        if let Some(writing) = &mut self.apply.writing {
            writing.lost.insert(*digest);
        }
        self.forget_early(digest);
        self.bodies.forget_overwritten(digest);
        let has = |object: &&mut Object| object.valid && object.version.content.digest == *digest;
        let holders: Vec<Path> = self.bodies.holders.paths_of(digest).cloned().collect();
        for path in holders {
            let Some(object) = self.image.objects.get_mut(&path).filter(has) else { continue };
            self.bodies.stock.lose(object);
            self.bodies.leave(&path, object);
            object.valid = false;
            self.bodies.enter(&path, object);
            if self.config.quota.is_some() {
                self.bodies.replaced.change(&path);
            }
        }
        self.wake(now.local);
    }

    /// Whether a body is stored here, overwritten or not.
    #[cfg(test)]
    pub(super) fn has_body(&self, digest: &Digest) -> bool {
        self.bodies.references.is_stored(digest)
    }
}
