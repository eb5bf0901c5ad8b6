//! Bytes that are freed when early bodies enter the state: those of the versions that they replace. With a
//! quota, each body that arrives needs the sum, so it is kept and not recomputed.
//!
//! The contribution of an object depends on three things, each of which reports its changes: the early
//! bodies, the state, and the references to bodies. Reported objects are checked before the sum is used.

use std::collections::{BTreeMap, BTreeSet};

use super::Replica;
use crate::path::Path;
use crate::types::Digest;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Replaced {
    /// The space that objects with an early body would free: their body in the state, and its bytes.
    of: BTreeMap<Path, (Digest, u64)>,
    /// The same objects by that body. None sorts before all paths.
    by_body: BTreeSet<(Digest, Option<Path>)>,
    sum: u64,
    /// Objects that have changed in the state.
    changed: Vec<Path>,
}

impl Replaced {
    /// The state has another version of an object, or has its body, or lacks it.
    pub(super) fn change(&mut self, path: &Path) {
        self.changed.push(path.clone());
    }

    fn with_body(&self, digest: &Digest) -> Vec<Path> {
        let from_here = self.by_body.range((*digest, None)..);
        let of_it = from_here.take_while(|(other, _)| other == digest);
        of_it.filter_map(|(_, path)| path.clone()).collect()
    }

    fn set(&mut self, path: Path, frees: Option<(Digest, u64)>) {
        if let Some((digest, bytes)) = self.of.remove(&path) {
            self.sum -= bytes;
            self.by_body.remove(&(digest, Some(path.clone())));
        }
        if let Some((digest, bytes)) = frees {
            self.sum += bytes;
            self.by_body.insert((digest, Some(path.clone())));
            self.of.insert(path, (digest, bytes));
        }
    }
}

impl<P: Clone> Replica<P> {
    /// Takes in the changes since the last call.
    pub(super) fn follow_replaced(&mut self) {
        if self.config.quota.is_none() {
            return;
        }
        let mut paths = core::mem::take(&mut self.bodies.replaced.changed);
        paths.extend(self.bodies.early.take_changed());
        for path in paths {
            let frees = self.bodies.early.has(&path).then(|| self.frees(&path)).flatten();
            self.bodies.replaced.set(path, frees);
        }
        while let Some(digest) = self.bodies.references.poll_changed() {
            for path in self.bodies.replaced.with_body(&digest) {
                let frees = self.frees(&path);
                self.bodies.replaced.set(path, frees);
            }
        }
    }

    /// The body of an object of the state, and the bytes that are freed with one reference to it.
    fn frees(&self, path: &Path) -> Option<(Digest, u64)> {
        let object = self.image.objects.get(path).filter(|object| object.valid)?;
        let digest = object.version.content.digest;
        Some((digest, self.bodies.references.held_by(&digest, 1).0))
    }

    /// Bytes of bodies that are freed when all early bodies are in the state, and one more of an object.
    pub(super) fn replaced(&mut self, also: Option<&Path>) -> u64 {
        self.follow_replaced();
        let also =
            also.filter(|path| !self.bodies.early.has(path)).and_then(|path| self.frees(path));
        let sum = self.bodies.replaced.sum + also.map_or(0, |(_, bytes)| bytes);
        #[cfg(test)]
        {
            let paths: BTreeSet<&Path> = self.bodies.early.paths().collect();
            let all = paths.into_iter().filter_map(|path| self.frees(path));
            assert_eq!(self.bodies.replaced.sum, all.map(|(_, bytes)| bytes).sum::<u64>());
        }
        sum
    }
}
