//! Objects by their bodies, so that an event of a body need not search all objects.

use std::collections::BTreeSet;

use crate::path::Path;
use crate::types::Digest;

/// Objects by the first bytes of their bodies' hashes: less memory than the whole hash, with hardly any more objects
/// found. The caller compares the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ByBody(
    /// None sorts before all paths.
    BTreeSet<(u64, Option<Path>)>,
);

fn key(digest: &Digest) -> u64 {
    digest.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl ByBody {
    /// An object has this body from now on.
    pub(crate) fn add(&mut self, digest: &Digest, path: &Path) {
        self.0.insert((key(digest), Some(path.clone())));
    }

    /// An object has this body no longer.
    pub(crate) fn remove(&mut self, digest: &Digest, path: &Path) {
        self.0.remove(&(key(digest), Some(path.clone())));
    }

    /// The objects that may have a body, in the order of their paths.
    pub(crate) fn paths_of(&self, digest: &Digest) -> impl Iterator<Item = &Path> {
        let key = key(digest);
        let from_here = self.0.range((key, None)..);
        from_here.take_while(move |(other, _)| *other == key).filter_map(|(_, path)| path.as_ref())
    }
}
