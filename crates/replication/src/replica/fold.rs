//! A step on the disk becomes visible at once, with any number of changes: from then on reads see the step's
//! objects. The state and its indexes apply the step in slices, so that other events get their turn between.
//!
//! ```text
//!             show                    take over each change, in the order of paths
//!   (no step) ─────▶ shown, to be taken over ─────────────────────────────────────▶ (no step)
//! ```
//!
//! An event that changes an object first has that object's change taken over. So each event finds the object
//! as if the whole step had been taken over at once.

use core::ops::Bound;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Object, Replica, Step};
use crate::path::Path;
use crate::time::LocalTime;
use crate::types::Sequence;

/// A step that is shown, and the part of it that was taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Fold {
    step: Option<Arc<Step>>,
    /// All changes up to this one were taken over.
    upto: Option<Path>,
    /// And these after it.
    taken: BTreeSet<Path>,
    /// The position before the step.
    before: Sequence,
    /// The only commit of the step, if it has one.
    only: Option<Sequence>,
    /// The previous state becomes a past state, as changes are taken over.
    records: bool,
    /// It was visible earlier, which is a bug.
    exposed: bool,
    /// Objects whose bodies are missing because of it, and were not requested since.
    lacking: Vec<Path>,
}

/// The step, when it becomes visible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) before: Sequence,
    pub(super) only: Option<Sequence>,
    pub(super) records: bool,
    pub(super) exposed: bool,
}

impl Fold {
    /// A step is shown.
    fn new(step: Arc<Step>, shown: Shown) -> Self {
        let Shown { before, only, records, exposed } = shown;
        let step = Some(step);
        Fold { step, before, only, records, exposed, ..Fold::default() }
    }

    /// Whether a part is still to be applied.
    pub(super) fn is_open(&self) -> bool {
        self.step.is_some()
    }

    /// The position before the last step.
    pub(super) fn last(&self) -> Sequence {
        self.before
    }

    /// The position before the step that is being applied.
    pub(super) fn before(&self) -> Option<Sequence> {
        self.is_open().then_some(self.before)
    }

    /// The step's version of an object, if it is still to be applied.
    pub(super) fn get(&self, path: &Path) -> Option<Option<Object>> {
        let step = self.step.as_ref()?;
        let is_taken = self.upto.as_ref().is_some_and(|upto| path <= upto);
        if is_taken || self.taken.contains(path) {
            return None;
        }
        step.changes.get(path).copied()
    }

    /// The part that is still to be applied, from there on.
    pub(super) fn range<'a>(
        &'a self,
        from: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&'a Path, &'a Option<Object>)> {
        let upto = self.upto.as_ref().map(Path::as_bytes);
        let from = match (from, upto) {
            (from, None) => from,
            (Bound::Included(first), Some(upto)) if first > upto => from,
            (Bound::Excluded(last), Some(upto)) if last >= upto => from,
            (_, Some(upto)) => Bound::Excluded(upto),
        };
        let range = |step: &'a Arc<Step>| step.changes.range::<[u8], _>((from, Bound::Unbounded));
        let all = self.step.as_ref().map(range);
        all.into_iter().flatten().filter(|(path, _)| !self.taken.contains(*path))
    }
}

impl<P: Clone> Replica<P> {
    /// An object in the state.
    pub(super) fn object(&self, path: &Path) -> Option<Object> {
        let shown = self.apply.fold.get(path);
        shown.unwrap_or_else(|| self.image.objects.get(path).copied())
    }

    /// From now on a step is shown.
    pub(super) fn begin_fold(&mut self, step: &Arc<Step>, shown: Shown) {
        self.apply.fold = Fold::new(Arc::clone(step), shown);
        self.image.position = step.position;
    }

    /// Takes over the change of an object, if that is pending: before an event changes the object.
    pub(super) fn fold_one(&mut self, now: LocalTime, path: &Path) {
        if let Some(new) = self.apply.fold.get(path) {
            self.apply.fold.taken.insert(path.clone());
            self.take_change(now, path, new);
        }
    }

    /// Takes over this many changes; returns whether all are done.
    pub(super) fn fold_some(&mut self, now: LocalTime, most: usize) -> bool {
        let Some(step) = self.apply.fold.step.clone() else { return true };
        let from = self.apply.fold.upto.clone();
        let from = from.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = step.changes.range::<Path, _>((from, Bound::Unbounded));
        for (path, new) in rest.by_ref().take(most) {
            let was_taken = self.apply.fold.taken.remove(path);
            self.apply.fold.upto = Some(path.clone());
            if !was_taken {
                self.take_change(now, path, *new);
            }
        }
        let is_done = rest.next().is_none();
        // A body may have come while the step without it was written. An evicted body stays evicted, or it
        // would be evicted again.
        for path in core::mem::take(&mut self.apply.fold.lacking) {
            self.take_over(now, &path);
        }
        if is_done {
            self.apply.fold.step = None;
        }
        is_done
    }

    /// Applies the step to an object.
    fn take_change(&mut self, now: LocalTime, path: &Path, object: Option<Object>) {
        let Fold { before, only, records, exposed, .. } = self.apply.fold;
        // It may have been lost while the step was being written, and be stored again: then others refer to
        // it.
        let lost = self.apply.writing.as_ref().map(|writing| &writing.lost);
        let is_lost = |object: &Object| {
            let digest = &object.version.content.digest;
            let is_lost = |lost: &BTreeSet<_>| {
                lost.contains(digest) || !self.bodies.references.is_stored(digest)
            };
            lost.is_some_and(|lost| !lost.is_empty() && is_lost(lost))
        };
        let new =
            object.map(|object| Object { valid: object.valid && !is_lost(&object), ..object });
        let old = match new {
            Some(new) => self.image.objects.insert(path.clone(), new),
            None => self.image.objects.remove(path),
        };
        if let Some(old) = &old {
            self.bodies.stock.remove(old);
            self.bodies.leave(path, old);
        }
        if self.config.quota.is_some() {
            self.bodies.replaced.change(path);
        }
        let is_same = |old: &Object| new.is_some_and(|new| new.version == old.version);
        let is_given_up = old.is_some_and(|old| old.valid && is_same(&old) && !exposed);
        if let Some(new) = &new {
            self.bodies.stock.add(new);
            self.bodies.enter(path, new);
            if !new.valid && !is_given_up {
                self.apply.fold.lacking.push(path.clone());
            }
            if new.valid && new.version.sequence <= before {
                // It came late, and the object now owns the body that was kept for it.
                self.give_back(&(new.version.sequence, path.clone()));
            }
        }
        match new {
            Some(Object { valid: true, .. }) => self.touch(path),
            _ => self.recency.forget(path),
        }
        if !self.missing.lost.is_empty() {
            self.forget_lost(path);
        }
        if exposed {
            return;
        }
        let is_of_commit = |only| new.is_none_or(|new| new.version.sequence == only);
        if records && only.is_none_or(is_of_commit) {
            self.history.add(path, old.map(|old| old.version));
        }
        if let Some(old) = old {
            self.replace(now, path, &old, is_same(&old));
        }
    }
}
