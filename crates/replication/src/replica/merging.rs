//! The result of a comparison as a step: it is made in slices, one leaf after the other.

use std::sync::Arc;

use super::apply::Phase;
use super::{Replica, Step, Writing};
use crate::time::LocalTime;
use crate::types::{Digest, Position};

impl<P: Clone> Replica<P> {
    /// Begins the step to the state at `position`, of which all differences are known.
    pub(super) fn begin_merging(&mut self, now: LocalTime, position: Position) {
        let step = Arc::new(Step { position: Some(position), ..Step::default() });
        let phase = Phase::Merging(None);
        let writing = Writing { step, phase, resync: true, since: now, ..Writing::default() };
        self.apply.writing = Some(writing);
        self.merge_some(now);
    }

    /// Continues it.
    pub(super) fn merge_some(&mut self, now: LocalTime) {
        let (Some(writing), Some(resync)) = (&mut self.apply.writing, &self.comparison.resync)
        else {
            return;
        };
        let Phase::Merging(after) = &mut writing.phase else { return };
        let (step, lost) = (Arc::make_mut(&mut writing.step), &writing.lost);
        let mut rest = self.config.step_slice;
        while rest > 0 {
            let take = |digest: &Digest| {
                let valid = self.bodies.references.is_stored(digest) && !lost.contains(digest);
                if valid {
                    // So that it is not dropped before the step is shown.
                    self.bodies.references.refer(digest);
                }
                valid
            };
            match resync.change_some(after, &mut step.changes, take) {
                Some(compared) => rest = rest.saturating_sub(compared.max(1)),
                None => {
                    (writing.phase, writing.since) = (Phase::OnDisk, now);
                    return self.apply.effects.push_back(Arc::clone(&writing.step));
                }
            }
        }
    }

    /// The comparison ends before its step is made.
    pub(super) fn give_up_merging(&mut self) {
        let merges = |writing: &mut Writing| matches!(writing.phase, Phase::Merging(_));
        let Some(Writing { step, lost, .. }) = self.apply.writing.take_if(merges) else { return };
        for object in step.changes.values().flatten().filter(|object| object.valid) {
            if !lost.contains(&object.version.content.digest) {
                self.bodies.references.release(&object.version.content.digest);
            }
        }
    }

    /// Since when a state is compared that the timer continues with, if any.
    pub(super) fn compares_since(&self) -> Option<LocalTime> {
        let resync = self.comparison.resync.as_ref()?;
        let is_waiting = resync.is_waiting() && self.apply.writing.is_none();
        (is_waiting && self.apply.retry_at.is_none()).then(|| LocalTime::from_nanos(i64::MIN))
    }
}
