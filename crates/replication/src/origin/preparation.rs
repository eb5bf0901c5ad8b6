//! Work that replicas wait for, and that is done in slices.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::peer::Snapshot;
use super::snapshot::Building;
use crate::types::ReplicaId;

/// The tree that replicas compare theirs with, and the queues that are filled for them.
#[derive(Debug, Default)]
pub(super) struct Preparation {
    /// One tree for all replicas: otherwise each stalled replica could keep another one in memory.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    /// The next one, while it is made.
    pub(super) building: Option<Building>,
    /// Replicas whose queues may still be filled.
    pub(super) filling: BTreeSet<ReplicaId>,
}

impl Preparation {
    /// Whether a replica waits for a tree, or for its queue.
    pub(super) fn is_pending(&self) -> bool {
        self.building.is_some() || !self.filling.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_wait_for_trees_and_queues() {
        let mut preparation = Preparation::default();
        assert!(!preparation.is_pending());
        preparation.filling.insert(ReplicaId(1));
        assert!(preparation.is_pending());
        preparation = Preparation { building: Some(Building::default()), ..Default::default() };
        assert!(preparation.is_pending());
    }
}
