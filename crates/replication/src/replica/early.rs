//! Bodies that are kept although no object of the state has them, or not so far.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use crate::path::Path;
use crate::types::{Digest, Sequence, Version};

/// The commit and the object that a body belongs to.
pub(super) type Key = (Sequence, Path);

/// By commit and object, and by body. Each refers to its body once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Early {
    all: BTreeMap<(Sequence, Option<Path>), Version>,
    /// None sorts before all paths.
    by_body: BTreeSet<(Digest, Sequence, Option<Path>)>,
    /// Bodies in the store for objects of the state that lack them: the next step makes these valid.
    late: BTreeSet<Key>,
    /// How many of them each object has.
    counts: BTreeMap<Path, u32>,
    /// Objects that have a first one, or none any more. None if no caller wants them.
    changed: Option<Vec<Path>>,
}

impl Early {
    /// A body has arrived for a version; returns the one that it replaces.
    pub(super) fn insert(&mut self, path: Path, version: Version) -> Option<Digest> {
        let (sequence, digest) = (version.sequence, version.content.digest);
        let before = self.all.insert((sequence, Some(path.clone())), version);
        let before = before.map(|before| before.content.digest);
        if before.is_none() {
            let count = self.counts.entry(path.clone()).or_default();
            *count += 1;
            if *count == 1 {
                self.changed.iter_mut().for_each(|changed| changed.push(path.clone()));
            }
        }
        if let Some(before) = before {
            self.by_body.remove(&(before, sequence, Some(path.clone())));
        }
        self.by_body.insert((digest, sequence, Some(path)));
        before
    }

    pub(super) fn get(&self, (sequence, path): &Key) -> Option<&Version> {
        self.all.get(&(*sequence, Some(path.clone())))
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.get(key).is_some()
    }

    /// The body of a version is no longer kept for it; returns the body.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Digest> {
        let (sequence, path) = (key.0, Some(key.1.clone()));
        let digest = self.all.remove(&(sequence, path.clone()))?.content.digest;
        self.by_body.remove(&(digest, sequence, path));
        self.late.remove(key);
        if let Some(count) = self.counts.get_mut(&key.1) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key.1);
                self.changed.iter_mut().for_each(|changed| changed.push(key.1.clone()));
            }
        }
        Some(digest)
    }

    /// From now on [`take_changed`](Early::take_changed) reports objects.
    pub(super) fn follow(&mut self) {
        self.changed = Some(self.counts.keys().cloned().collect());
    }

    /// Objects that have had a first body since the last call, or have none any more.
    pub(super) fn take_changed(&mut self) -> Vec<Path> {
        self.changed.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Whether an object has one.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.counts.contains_key(path)
    }

    /// The versions that a body is kept for.
    pub(super) fn of_body(&self, digest: &Digest) -> Vec<Key> {
        let all = self.by_body.range((*digest, Sequence::ZERO, None)..);
        let of_it = all.take_while(|(one, ..)| one == digest);
        of_it.filter_map(|(_, sequence, path)| Some((*sequence, path.clone()?))).collect()
    }

    /// The versions that bodies of commits after `after` are kept for, up to those of the commit `upto`.
    pub(super) fn between(
        &self,
        after: Sequence,
        upto: Sequence,
    ) -> impl Iterator<Item = (Key, Version)> {
        self.from((after.next(), None), upto)
    }

    /// The same, after a place in their order.
    pub(super) fn from(
        &self,
        from: (Sequence, Option<Path>),
        upto: Sequence,
    ) -> impl Iterator<Item = (Key, Version)> {
        let all = self.all.range((Bound::Excluded(from), Bound::Unbounded));
        let all = all.take_while(move |((sequence, _), _)| *sequence <= upto);
        all.filter_map(|((sequence, path), version)| Some(((*sequence, path.clone()?), *version)))
    }

    /// The body of an object of the state is in the store.
    pub(super) fn is_late(&mut self, key: Key) {
        self.late.insert(key);
    }

    /// One of the objects whose late body is in the store.
    pub(super) fn pop_late(&mut self) -> Option<(Key, Version)> {
        let key = self.late.pop_first()?;
        let version = *self.get(&key)?;
        Some((key, version))
    }

    /// The objects that have one.
    #[cfg(test)]
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.all.keys().filter_map(|(_, path)| path.as_ref())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, &Version)> {
        self.all.iter().filter_map(|((_, path), version)| Some((path.as_ref()?, version)))
    }
}
