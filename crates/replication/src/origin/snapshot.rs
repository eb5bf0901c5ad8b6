//! The tree that replicas compare theirs with. It is made in slices, while objects change.

use core::ops::Bound;
use std::sync::Arc;

use super::Origin;
use super::peer::{Phase, Snapshot};
use crate::merkle::MerkleBuilder;
use crate::path::Path;
use crate::time::{Reading, WallTime};
use crate::types::{Position, ReplicaId, Sequence, Version};

/// A tree in the making.
#[derive(Debug, Default)]
pub(super) struct Building {
    builder: MerkleBuilder,
    /// The last object that was added, if there is one.
    last: Option<Path>,
    /// The state of the tree, when all of its objects were added.
    taken: Option<(Position, WallTime)>,
    /// How often the log passed it before it was made.
    tries: u32,
}

impl Building {
    /// An object changes.
    pub(super) fn change(&mut self, path: &Path, version: Option<Version>) {
        if self.taken.is_none() && self.last.as_ref().is_some_and(|last| path <= last) {
            self.builder.change(path, version);
        }
    }
}

impl<P: Clone> Origin<P> {
    /// Begins a re-sync with a tree that the log still reaches back to. A new tree replaces the old one for
    /// all replicas. Otherwise each stalled replica would keep another tree in memory.
    ///
    /// If a tree has to be made for that, the replica waits for it.
    pub(super) fn resync(&mut self, now: Reading, replica: ReplicaId) {
        self.output.counters.resyncs += 1;
        let after = self.state.image.log_after();
        self.preparation.snapshot =
            self.preparation.snapshot.take().filter(|one| one.position.sequence >= after);
        let link = self.peers.get_mut(&replica).and_then(|peer| peer.link.as_mut());
        let Some(link) = link else { return };
        match &self.preparation.snapshot {
            Some(snapshot) => link.compare(snapshot),
            None => {
                let again = matches!(link.phase, Phase::Resyncing { .. });
                self.output.counters.resyncs_again += u64::from(again);
                link.restart(Phase::Preparing, Sequence::ZERO);
                self.preparation.building.get_or_insert_default();
                self.build_some(now);
            }
        }
    }

    /// Adds some objects to the tree, or hashes some.
    pub(super) fn build_some(&mut self, now: Reading) {
        let is_folding = self.is_folding();
        let Some(building) = &mut self.preparation.building else { return };
        let slice = self.config.slice.saturating_mul(8).saturating_mul(1 << building.tries.min(20));
        if building.taken.is_none() {
            let from = building.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let rest = self.state.image.objects.range::<Path, _>((from, Bound::Unbounded));
            let (mut added, mut last) = (0, None);
            for (path, version) in rest.take(slice) {
                building.builder.add(path, *version);
                (added, last) = (added + 1, Some(path));
            }
            building.last = last.cloned().or(building.last.take());
            if added == slice || is_folding {
                return;
            }
            let stamp = match &self.upstream {
                Some(upstream) => upstream.stamp,
                None => self.clock.read(now),
            };
            building.taken = Some((self.state.image.last(), stamp));
        }
        if !building.builder.hash_some(slice) {
            return;
        }
        let Some(Building { builder, taken: Some((position, stamp)), tries, .. }) =
            self.preparation.building.take()
        else {
            return;
        };
        if position.sequence < self.state.image.log_after() {
            // In larger slices each time, so that it ends even if the log is short.
            self.preparation.building = Some(Building { tries: tries + 1, ..Building::default() });
            return;
        }
        let snapshot = Arc::new(Snapshot { position, stamp, tree: builder.finish() });
        for (replica, peer) in &mut self.peers {
            let again = peer.compare_with(&snapshot, self.ranking.all());
            self.preparation.filling.extend(peer.filling.is_some().then_some(*replica));
            self.output.counters.resyncs_again += u64::from(again);
        }
        self.preparation.snapshot = Some(snapshot);
    }
}
