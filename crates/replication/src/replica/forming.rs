//! A large step is made in slices: the objects that it changes are collected, and their bodies are kept until
//! it is shown.
//!
//! Its commits are chosen before. They stay at the front of the buffer meanwhile, because no other step is
//! made. A body may be lost meanwhile, as while a step is written.

use std::sync::Arc;

use super::apply::Forming;
use super::scheduler::Late;
use super::{Buffered, Object, Phase, Replica, Step, Writing};
use crate::time::LocalTime;
use crate::types::Version;

impl<P: Clone> Replica<P> {
    /// Begins a step of the first commits of the buffer.
    pub(super) fn begin_forming(&mut self, now: LocalTime, with_bodies: Vec<bool>) {
        let commits = with_bodies.len();
        let last = commits.checked_sub(1).and_then(|last| self.apply.buffer.get(last));
        let position = last.map(|last: &Buffered| last.position).or(self.image.position);
        let step = Arc::new(Step { position, ..Step::default() });
        let phase = Phase::Forming(Forming { next: (0, 0), with_bodies, is_named: true });
        let writing = Writing { step, commits, phase, since: now, ..Writing::default() };
        self.apply.writing = Some(writing);
        self.form_some(now);
    }

    /// Continues it.
    pub(super) fn form_some(&mut self, now: LocalTime) {
        let Some(mut writing) = self.apply.writing.take() else { return };
        let Phase::Forming(forming) = &mut writing.phase else {
            self.apply.writing = Some(writing);
            return;
        };
        let step = Arc::make_mut(&mut writing.step);
        let mut rest = self.config.step_slice;
        while rest > 0
            && let Some(buffered) =
                self.apply.buffer.get(forming.next.0).filter(|_| forming.next.0 < writing.commits)
        {
            let Some(change) = buffered.changes.get(forming.next.1) else {
                let of_bodies = forming.with_bodies[forming.next.0];
                self.output.counters.deduplicated += u64::from(of_bodies && !forming.is_named);
                (forming.next, forming.is_named) = ((forming.next.0 + 1, 0), true);
                continue;
            };
            let (sequence, key) = (buffered.sequence, (buffered.sequence, change.path.clone()));
            let object = change.content.map(|content| {
                let digest = &content.digest;
                let valid =
                    self.bodies.references.is_stored(digest) && !writing.lost.contains(digest);
                if valid {
                    // So that it is not dropped before the step is shown.
                    self.bodies.references.refer(digest);
                }
                forming.is_named &=
                    self.bodies.early.contains(&key) || !self.bodies.scope.has(&key.1);
                Object { version: Version { sequence, content }, valid }
            });
            let before = step.changes.insert(key.1, object).flatten();
            if let Some(before) = before.filter(|before| before.valid)
                && !writing.lost.contains(&before.version.content.digest)
            {
                self.bodies.references.release(&before.version.content.digest);
            }
            forming.next.1 += 1;
            rest -= 1;
        }
        if forming.next.0 < writing.commits {
            self.apply.writing = Some(writing);
        } else {
            self.end_forming(now, writing);
        }
    }

    fn end_forming(&mut self, now: LocalTime, mut writing: Writing) {
        let step = Arc::make_mut(&mut writing.step);
        let Late { mut unused, mut between, used } = self.use_late_bodies(step, writing.commits);
        for digest in used {
            self.bodies.references.refer(&digest);
        }
        if self.config.grace.is_zero() || self.is_beyond_quota() {
            unused.append(&mut between);
        }
        self.make_room(step, &mut unused);
        self.apply.effects.push_back(Arc::clone(&writing.step));
        (writing.phase, writing.between, writing.since) = (Phase::OnDisk, between, now);
        self.apply.writing = Some(writing);
        for digest in unused {
            self.bodies.references.release(&digest);
        }
    }
}
