//! Replicas that take some names only.

use core::ops::Bound;

use super::Origin;
use crate::path::Path;
use crate::subscription::Subscription;
use crate::types::ReplicaId;

impl<P: Clone> Origin<P> {
    /// A replica takes these names from now on. Bodies of others do not wait for it any more.
    pub(super) fn subscribe(&mut self, replica: ReplicaId, only: Subscription) {
        let peer = self.peers.entry(replica).or_default();
        if peer.only == only {
            return;
        }
        peer.only = only;
        // Of those that wait now, others are skipped when it is their turn.
        peer.filling = None;
    }

    /// The names that a replica has said to take; none before its first connection in this life of the origin.
    pub fn subscription(&self, replica: ReplicaId) -> Option<&Subscription> {
        self.peers.get(&replica).map(|peer| &peer.only)
    }

    /// Whether the bodies of an object are pushed to a replica.
    pub(super) fn subscribes(&self, replica: ReplicaId, path: &Path) -> bool {
        self.peers.get(&replica).is_none_or(|peer| peer.only.has(path))
    }

    /// Queues more bodies for replicas that take some names only and have none of their bodies.
    pub(super) fn fill_some(&mut self) {
        let Some(replica) = self.preparation.filling.pop_first() else { return };
        let Some(peer) = self.peers.get_mut(&replica) else { return };
        // It may have been given up since.
        let Some(last) = peer.filling.take() else { return };
        let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let objects = self.state.image.objects.range::<Path, _>((from, Bound::Unbounded));
        let mut last = None;
        for (count, (path, _)) in objects.enumerate() {
            if count == self.config.slice {
                peer.filling = Some(last);
                self.preparation.filling.insert(replica);
                return;
            }
            if let Some(ranked) = self.ranking.get(path) {
                peer.queue(path, ranked.position);
            }
            last = Some(path.clone());
        }
    }
}
