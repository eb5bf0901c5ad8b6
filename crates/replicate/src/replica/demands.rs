//! Bodies that the origin was asked for, and how many bytes of them may be in memory.

use std::collections::BTreeMap;

use lull_cc::Bytes;

use crate::path::Path;
use crate::types::Sequence;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Demand {
    /// Zero until the answer comes, then the commit that has to be applied to make use of it.
    at: Sequence,
    /// Of the body.
    size: Bytes,
}

/// By object. The bytes are counted as it changes: it is looked at for each read that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Demands {
    all: BTreeMap<Path, Demand>,
    bytes: u64,
}

impl Demands {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether the bytes of one more body are within the limit. One body is, however large it is.
    pub(super) fn has_room(&self, size: Bytes, limit: Bytes) -> bool {
        self.all.is_empty() || self.bytes.saturating_add(size.0) <= limit.0
    }

    /// Whether an object was asked for and the state at `position` does not have the answer yet.
    pub(super) fn is_open(&self, path: &Path, position: Sequence) -> bool {
        self.all.get(path).is_some_and(|one| one.is_open(position))
    }

    /// An object is asked for.
    pub(super) fn ask(&mut self, path: Path, size: Bytes) {
        self.set(path, Demand { at: Sequence::ZERO, size });
    }

    /// The answer is here, and counts when the commit `at` is applied.
    pub(super) fn answer(&mut self, path: Path, at: Sequence, size: Bytes) {
        self.set(path, Demand { at, size });
    }

    fn set(&mut self, path: Path, demand: Demand) {
        let before = self.all.insert(path, demand);
        self.bytes -= before.map_or(0, |before| before.size.0);
        self.bytes += demand.size.0;
    }

    pub(super) fn remove(&mut self, path: &Path) {
        let before = self.all.remove(path);
        self.bytes -= before.map_or(0, |before| before.size.0);
    }

    pub(super) fn clear(&mut self) {
        *self = Demands::default();
    }

    /// The state is the one at `position` now.
    pub(super) fn close(&mut self, position: Sequence) {
        self.all.retain(|_, one| one.is_open(position));
        self.bytes = self.all.values().map(|one| one.size.0).sum();
    }

    /// The objects, with the commits that their answers count from.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, Sequence)> {
        self.all.iter().map(|(path, one)| (path, one.at))
    }
}

impl Demand {
    fn is_open(self, position: Sequence) -> bool {
        self.at == Sequence::ZERO || self.at > position
    }
}
