//! A step of the state: it is written, and shown when it is durable (SSR §6.2.1).

use core::time::Duration;
use std::sync::Arc;

use super::buffer::{Garbage, Kind};
use super::early::Key;
use super::fold::Shown;
use super::{Object, Phase, Replica, Step, Unsettled, Writing};
use crate::faults::Fault;
use crate::message::ToOrigin;
use crate::path::Path;
use crate::time::{LocalTime, Reading};
use crate::types::{Digest, DiskFull};

impl<P: Clone> Replica<P> {
    pub(super) fn write(&mut self, step: Step, commits: usize, between: Vec<Digest>) {
        // So that no body is dropped while a step that needs it is being written.
        for object in step.changes.values().flatten().filter(|object| object.valid) {
            self.bodies.references.refer(&object.version.content.digest);
        }
        let step = Arc::new(step);
        self.apply.effects.push_back(Arc::clone(&step));
        let exposed = self.faults.has(Fault::RestartThatGoesBack);
        if exposed {
            self.image.apply(&step);
        }
        let writing = Writing { step, commits, between, exposed, ..Writing::default() };
        self.apply.writing = Some(writing);
    }

    /// The step is on stable storage, or the disk had no space: then nothing of it is stored. After any other
    /// failure the contents of the disk are unknown: then the replica must be restarted.
    ///
    /// From now on the whole step is shown. A large one is taken over in slices, by
    /// [`handle_timeout`](Replica::handle_timeout).
    pub fn handle_committed(&mut self, now: Reading, outcome: Result<(), DiskFull>) {
        let is_written = |writing: &Writing| writing.phase == Phase::OnDisk;
        if !self.apply.writing.as_ref().is_some_and(is_written) {
            return;
        }
        if outcome.is_err() {
            return self.abandon_step(now);
        }
        // The rest of an earlier step.
        self.settle_early(self.config.slice.max(self.config.step_slice));
        self.show(now);
        if self.fold_some(now.local, self.config.step_slice) {
            self.finish(now);
        } else {
            self.wake(now.local);
        }
    }

    /// There was no room for the step.
    fn abandon_step(&mut self, now: Reading) {
        let Some(Writing { step, between, lost, .. }) = self.apply.writing.take() else { return };
        let valid = step.changes.values().flatten().filter(|object| object.valid);
        let digests = valid.map(|object| &object.version.content.digest).chain(&between);
        for digest in digests.filter(|digest| !lost.contains(*digest)) {
            self.bodies.references.release(digest);
        }
        for (path, object) in &step.changes {
            let key = object.map(|object| (object.version.sequence, path.clone()));
            let present = self.position();
            if let Some(key) = key.filter(|key| key.0 <= present && self.bodies.early.contains(key))
            {
                self.bodies.early.is_late(key);
            }
        }
        self.disk_full(now.local);
    }

    /// The whole step is shown, and none of it was taken over.
    fn show(&mut self, now: Reading) {
        let Some(writing) = &mut self.apply.writing else { return };
        (writing.phase, writing.since) = (Phase::Shown, now.local);
        let (step, commits, exposed) =
            (Arc::clone(&writing.step), writing.commits, writing.exposed);
        let first = self.image.position.is_none();
        writing.first = first;
        let before = self.position();
        // The changes of a single commit are known as soon as it is applied.
        let only = self.apply.buffer.front().filter(|_| commits == 1 && !first);
        let only = only.map(|buffered| (buffered.sequence, buffered.stamp));
        let mut records = false;
        if let Some((_, stamp)) = only.filter(|_| !exposed) {
            records = self.begin_record(now, before, stamp);
        } else if !exposed {
            records = self.remember(now, &step, commits);
        }
        let only = only.map(|(sequence, _)| sequence);
        self.begin_fold(&step, Shown { before, only, records, exposed });
        self.apply.buffer.take_first(commits, self.config.step_slice, &mut self.output.garbage);
    }

    /// The whole step was taken over.
    fn finish(&mut self, now: Reading) {
        let Some(writing) = self.apply.writing.take() else { return };
        let Writing { step, resync, between, lost, first, .. } = writing;
        let before = self.apply.fold.last();
        self.history.end_record(self.image.objects.len());
        if step.changes.len() > self.config.step_slice {
            self.output.garbage.push(Garbage(Kind::Step(step)));
        }
        for digest in between.into_iter().filter(|digest| !lost.contains(digest)) {
            self.give_up(now.local, digest, self.config.grace);
        }
        self.apply.buffer.forget_without_space(self.position());
        self.greet();
        let from = self.bodies.unsettled.take().map_or((before.next(), None), |rest| rest.from);
        self.bodies.unsettled = Some(Unsettled { from, since: now.local });
        self.settle_early(self.config.slice);
        if self.is_connected() {
            self.connection.outbox.push_back(ToOrigin::Ack(self.position()));
        }
        if resync {
            self.output.counters.resyncs += u64::from(!first);
            self.comparison.resync = None;
            self.bodies.scope.complete_at(self.position());
            // From now on the origin has something to send.
            self.connection.heard = now.local;
            // The origin pushes everything to an empty replica unasked. For others it begins after this
            // message. Otherwise it would push the bodies that are reported as missing then.
            if !first {
                self.report_lacking(now.local);
            }
            self.connection.outbox.push_back(ToOrigin::Resynced(self.position()));
        }
        self.report_unmatched();
        self.ask_again(now.local);
        let position = self.position();
        self.missing.demands.close(position);
        self.wake(now.local);
        self.advance(now.local);
    }

    /// Since when a large step is being made or applied in slices, which the timer continues, if any.
    pub(super) fn in_slices(&self) -> Option<LocalTime> {
        let writing = self.apply.writing.as_ref()?;
        let is_sliced = !matches!(writing.phase, Phase::OnDisk);
        is_sliced.then_some(writing.since)
    }

    /// Continues a large step.
    pub(super) fn go_on_with_step(&mut self, now: Reading) {
        match self.apply.writing.as_ref().map(|writing| &writing.phase) {
            Some(Phase::Forming(_)) => self.form_some(now.local),
            Some(Phase::Merging(_)) => self.merge_some(now.local),
            Some(Phase::Shown) => {
                if self.fold_some(now.local, self.config.step_slice) {
                    self.finish(now);
                }
            }
            Some(Phase::OnDisk) | None => {}
        }
        self.apply.buffer.sweep(self.config.step_slice, &mut self.output.garbage);
    }

    fn give_up(&mut self, now: LocalTime, digest: Digest, grace: Duration) {
        if grace.is_zero() {
            self.bodies.references.release(&digest);
        } else {
            self.bodies.keep_until(now.plus(grace), digest);
        }
    }

    /// An object of the state has changed, or has lost its body.
    pub(super) fn replace(&mut self, now: LocalTime, path: &Path, old: &Object, is_same: bool) {
        if old.valid {
            let grace = if is_same { Duration::ZERO } else { self.config.grace };
            self.give_up(now, old.version.content.digest, grace);
        }
        if !is_same {
            // The body kept for the version that this overwrites.
            let key = (old.version.sequence, path.clone());
            self.output.counters.stale += u64::from(self.bodies.early.contains(&key));
            self.give_back(&key);
        }
    }

    /// Bodies that were kept for versions of the last step: they belong to it now, come late, or are of no
    /// use any more. At most this many at a time.
    pub(super) fn settle_early(&mut self, most: usize) {
        if self.apply.fold.is_open() {
            return;
        }
        let Some(Unsettled { from, since }) = self.bodies.unsettled.take() else { return };
        let upto = self.position();
        let some: Vec<_> = self.bodies.early.from(from, upto).take(most).collect();
        if let Some((last, _)) = some.last().filter(|_| some.len() == most) {
            let from = (last.0, Some(last.1.clone()));
            self.bodies.unsettled = Some(Unsettled { from, since });
        }
        for (key, version) in some {
            let object = self.image.objects.get(&key.1);
            match object.filter(|object| object.version.sequence == key.0) {
                Some(Object { valid: false, .. }) => {
                    if self.bodies.references.is_stored(&version.content.digest) {
                        self.bodies.early.is_late(key);
                    }
                }
                found => {
                    self.output.counters.stale += u64::from(found.is_none());
                    self.give_back(&key);
                }
            }
        }
    }

    /// A body is no longer kept for this version.
    pub(super) fn give_back(&mut self, key: &Key) {
        if let Some(digest) = self.bodies.early.remove(key) {
            self.bodies.references.release(&digest);
        }
    }
}
