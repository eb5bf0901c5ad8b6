//! A step of the state: it is written, and shown when it is on the disk (SSR §6.2.1).

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::early::Key;
use super::{Object, Replica, Step, Unsettled, Writing};
use crate::faults::Fault;
use crate::message::ToOrigin;
use crate::path::Path;
use crate::time::{LocalTime, Reading};
use crate::types::{Digest, DiskFull};

/// A step that is on the disk.
#[derive(Clone, Copy)]
struct Made<'a> {
    step: &'a Step,
    /// Commits of the buffer that it contains.
    commits: usize,
    /// It was visible before, which it should not have been.
    exposed: bool,
    /// Bodies that were lost meanwhile.
    lost: &'a BTreeSet<Digest>,
}

impl<P: Clone> Replica<P> {
    pub(super) fn write(&mut self, step: Step, commits: usize, between: Vec<Digest>, resync: bool) {
        // So that no body is dropped while the step that needs it is being written.
        for object in step.changes.values().flatten().filter(|object| object.valid) {
            self.shelf.refer(&object.version.content.digest);
        }
        let step = Arc::new(step);
        self.effects.push_back(Arc::clone(&step));
        let exposed = self.faults.has(Fault::RestartThatGoesBack);
        if exposed {
            self.image.apply(&step);
        }
        let lost = BTreeSet::new();
        self.writing = Some(Writing { step, commits, resync, between, exposed, lost });
    }

    /// The step is on stable storage, or there was no room for it: then nothing of it is. Any other
    /// failure leaves open what is on the disk: then the replica has to be restarted.
    pub fn handle_committed(&mut self, now: Reading, outcome: Result<(), DiskFull>) {
        let Some(Writing { step, commits, resync, between, exposed, lost }) = self.writing.take()
        else {
            return;
        };
        if outcome.is_err() {
            let valid = step.changes.values().flatten().filter(|object| object.valid);
            let digests = valid.map(|object| &object.version.content.digest).chain(&between);
            for digest in digests.filter(|digest| !lost.contains(*digest)) {
                self.shelf.release(digest);
            }
            for (path, object) in &step.changes {
                let key = object.map(|object| (object.version.sequence, path.clone()));
                let present = self.position();
                if let Some(key) = key.filter(|key| key.0 <= present && self.early.contains(key)) {
                    self.early.is_late(key);
                }
            }
            self.disk_full(now.local);
            return;
        }
        let (first, before) = (self.image.position.is_none(), self.position());
        // That of a step before this one.
        self.settle_early(usize::MAX);
        let made = Made { step: &step, commits, exposed, lost: &lost };
        let lacking = self.show(now, made);
        // A body may have come while the step without it was written. What was given up for want of room stays
        // without, or it would be given up again.
        for path in &lacking {
            self.take_over(path);
        }
        for digest in between.into_iter().filter(|digest| !lost.contains(digest)) {
            self.give_up(now.local, digest, self.config.grace);
        }
        if !self.lost.is_empty() {
            for path in step.changes.keys() {
                self.forget_lost(path);
            }
        }
        self.buffer.forget_roomless(self.position());
        self.buffer.take_first(commits);
        self.greet();
        self.unsettled = Some(Unsettled { from: (before.next(), None), since: now.local });
        self.settle_early(self.config.slice);
        if self.is_connected() {
            self.outbox.push_back(ToOrigin::Ack(self.position()));
        }
        if resync {
            self.counters.resyncs += u64::from(!first);
            self.resync = None;
            // From now on the origin has something to say.
            self.heard = now.local;
            // To a replica that had nothing the origin pushes everything unasked. To others it begins when this has
            // been said, or it would push what is said to be missing then.
            if !first {
                self.tell_lacking(now.local);
            }
            self.outbox.push_back(ToOrigin::Resynced(self.position()));
        }
        self.ask_again(now.local);
        let position = self.position();
        self.demands.close(position);
        self.wake(now.local);
        self.advance(now.local);
    }

    fn give_up(&mut self, now: LocalTime, digest: Digest, grace: Duration) {
        if grace.is_zero() {
            self.shelf.release(&digest);
        } else {
            self.grace.push_back((now.plus(grace), digest));
        }
    }

    /// Makes a step visible; gives the objects that lack their bodies by it, without those that were given up for
    /// want of room.
    fn show(&mut self, now: Reading, made: Made<'_>) -> Vec<Path> {
        let Made { step, commits, exposed, lost } = made;
        // What one commit has replaced is known as soon as it is done.
        let only = self.buffer.front().filter(|_| commits == 1 && self.image.position.is_some());
        let only = only.map(|buffered| (buffered.sequence, buffered.stamp));
        if only.is_none() && !exposed {
            self.remember(now, step, commits);
        }
        let (before, mut replaced, mut lacking) = (self.position(), Vec::new(), Vec::new());
        for (path, object) in &step.changes {
            // It may have been lost while the step was being written, and be here again: then others refer to it.
            let is_here = |digest: &Digest| {
                lost.is_empty() || !lost.contains(digest) && self.shelf.is_stored(digest)
            };
            let new = object.map(|object| {
                let valid = object.valid && is_here(&object.version.content.digest);
                Object { valid, ..object }
            });
            let old = match new {
                Some(new) => self.image.objects.insert(path.clone(), new),
                None => self.image.objects.remove(path),
            };
            if let Some(old) = &old {
                self.stock.remove(old);
                self.bodiless.remove(path, old);
            }
            if self.config.quota.is_some() {
                self.replaced.change(path);
            }
            let is_same = |old: &Object| new.is_some_and(|new| new.version == old.version);
            let is_given_up = old.is_some_and(|old| old.valid && is_same(&old) && !exposed);
            if let Some(new) = &new {
                self.stock.add(new);
                self.bodiless.add(path, new);
                if !new.valid && !is_given_up {
                    lacking.push(path.clone());
                }
                if new.valid && new.version.sequence <= before {
                    // It came late, and what was kept for it is the object's now.
                    self.give_back(&(new.version.sequence, path.clone()));
                }
            }
            match new {
                Some(Object { valid: true, .. }) => self.touch(path),
                _ => self.forget_use(path),
            }
            if exposed {
                continue;
            }
            if let Some((sequence, _)) = only
                && new.is_none_or(|new| new.version.sequence == sequence)
            {
                replaced.push((path.clone(), old.map(|old| old.version)));
            }
            if let Some(old) = old {
                self.replace(now.local, path, &old, is_same(&old));
            }
        }
        self.image.position = step.position;
        if let Some((_, stamp)) = only.filter(|_| !exposed) {
            self.remember_one(now, before, stamp, replaced);
        }
        lacking
    }

    /// An object of the state was another one until now, or had its body.
    fn replace(&mut self, now: LocalTime, path: &Path, old: &Object, is_same: bool) {
        if old.valid {
            let grace = if is_same { Duration::ZERO } else { self.config.grace };
            self.give_up(now, old.version.content.digest, grace);
        }
        if !is_same {
            // What was still to come for the version that this overwrites.
            let key = (old.version.sequence, path.clone());
            self.counters.stale += u64::from(self.early.contains(&key));
            self.give_back(&key);
        }
    }

    /// Bodies that came for what the last step has brought into the state: they are of it now, or come late, or are
    /// of no use any more. So many at a time.
    pub(super) fn settle_early(&mut self, most: usize) {
        let Some(Unsettled { from, since }) = self.unsettled.take() else { return };
        let upto = self.position();
        let some: Vec<_> = self.early.from(from, upto).take(most).collect();
        if let Some((last, _)) = some.last().filter(|_| some.len() == most) {
            let from = (last.0, Some(last.1.clone()));
            self.unsettled = Some(Unsettled { from, since });
        }
        for (key, version) in some {
            let object = self.image.objects.get(&key.1);
            match object.filter(|object| object.version.sequence == key.0) {
                Some(Object { valid: false, .. }) => {
                    if self.shelf.is_stored(&version.content.digest) {
                        self.early.is_late(key);
                    }
                }
                found => {
                    self.counters.stale += u64::from(found.is_none());
                    self.give_back(&key);
                }
            }
        }
    }

    /// A body is not kept for this version any more.
    pub(super) fn give_back(&mut self, key: &Key) {
        if let Some(digest) = self.early.remove(key) {
            self.shelf.release(&digest);
        }
    }
}
