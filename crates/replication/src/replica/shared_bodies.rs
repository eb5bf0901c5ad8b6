//! Bodies that are stored here for another object than one that lacks them.
//!
//! A body is stored by its hash, so a body that arrived for one object is there for all. An object without
//! its body takes it over as if it had arrived late for that object. The object then references the body, so
//! that it is not deleted meanwhile, and the next step makes the object valid.

use std::collections::BTreeSet;

use super::{Object, Replica};
use crate::path::Path;
use crate::time::LocalTime;
use crate::types::Digest;

/// The objects of the state that lack their bodies, by the hashes of these and by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct WithoutBody {
    /// None sorts before all paths.
    by_body: BTreeSet<(Digest, Option<Path>)>,
    paths: BTreeSet<Path>,
}

impl WithoutBody {
    /// An object has entered the state.
    pub(super) fn add(&mut self, path: &Path, object: &Object) {
        if !object.valid {
            self.by_body.insert((object.version.content.digest, Some(path.clone())));
            self.paths.insert(path.clone());
        }
    }

    /// It has left the state, or has changed.
    pub(super) fn remove(&mut self, path: &Path, object: &Object) {
        if !object.valid {
            self.by_body.remove(&(object.version.content.digest, Some(path.clone())));
            self.paths.remove(path);
        }
    }

    /// All of them.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter()
    }

    fn paths_of(&self, digest: &Digest) -> Vec<Path> {
        let from_here = self.by_body.range((*digest, None)..);
        let of_it = from_here.take_while(|(other, _)| other == digest);
        of_it.filter_map(|(_, path)| path.clone()).collect()
    }
}

impl<P: Clone> Replica<P> {
    /// A body is in the store: objects without it take it over.
    pub(super) fn take_over_all(&mut self, now: LocalTime, digest: &Digest) {
        for path in self.bodies.without_body.paths_of(digest) {
            self.take_over(now, &path);
        }
    }

    /// An object takes over its body if that is in the store; returns whether it is.
    pub(super) fn take_over(&mut self, now: LocalTime, path: &Path) -> bool {
        self.fold_one(now, path);
        let Some(Object { version, valid: false }) = self.image.objects.get(path).copied() else {
            return false;
        };
        if !self.bodies.references.is_stored(&version.content.digest) {
            return false;
        }
        self.missing.accept(path, version.sequence);
        let key = (version.sequence, path.clone());
        // A body that arrived for it is referenced already.
        if !self.bodies.early.contains(&key) {
            self.bodies.references.refer(&version.content.digest);
            self.bodies.early.insert(path.clone(), version);
        }
        self.bodies.early.is_late(key);
        true
    }
}
