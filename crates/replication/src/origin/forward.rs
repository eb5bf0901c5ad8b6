//! At a relay: bodies that children get while the relay itself still receives them.
//!
//! Each piece is verified before it is passed on. A body in the background is passed on in the background, behind the
//! bodies that are here. A body that a read waits for is passed on to the reads of children as well. If the rest does not
//! come, the body is cut off at the children, too, and waits for them again.

use std::collections::BTreeSet;

use super::Origin;
use super::ranking::demand;
use crate::message::{BodyHeader, Frame};
use crate::path::Path;
use crate::types::{Digest, ReplicaId, Version};

/// Bodies on their way to the relay, and whether a read waits for them.
#[derive(Debug, Default)]
pub(super) struct Arriving(BTreeSet<(Digest, bool)>);

impl Arriving {
    fn in_background(&self) -> Vec<Digest> {
        self.0.iter().filter(|(_, demand)| !demand).map(|(digest, _)| *digest).collect()
    }
}

impl<P: Clone> Origin<P> {
    /// A body begins to arrive, on the channel for reads or in the background. Its pieces can be passed on.
    pub(crate) fn handle_arriving(&mut self, digest: Digest, demand: bool) {
        let Some(upstream) = &mut self.upstream else { return };
        upstream.arriving.0.insert((digest, demand));
        if demand {
            let paths: Vec<Path> = self.state.holders(&digest).cloned().collect();
            paths.iter().for_each(|path| self.move_held(path));
        }
    }

    /// All of it has arrived, or the rest does not come.
    pub(crate) fn handle_arrived(&mut self, digest: Digest, demand: bool) {
        if let Some(upstream) = &mut self.upstream {
            upstream.arriving.0.remove(&(digest, demand));
        }
    }

    /// Whether a demand for an object can be answered with a body that arrives for a read.
    pub(super) fn is_arriving(&self, path: &Path) -> bool {
        let (Some(upstream), Some(version)) = (&self.upstream, self.state.image.objects.get(path))
        else {
            return false;
        };
        upstream.arriving.0.contains(&(version.content.digest, true))
    }

    /// The next body that a replica gets in the background while it arrives here.
    pub(super) fn next_arriving(&mut self, replica: ReplicaId) -> Option<(Path, Version)> {
        let arriving = self.upstream.as_ref()?.arriving.in_background();
        let replicas = self.peers.len();
        for digest in arriving {
            for path in self.state.holders(&digest) {
                let Some(version) = self.state.image.objects.get(path).copied() else { continue };
                let Some(ranked) = self.ranking.get(path) else { continue };
                let peer = self.peers.get_mut(&replica)?;
                let demand = demand(Some(ranked), version);
                // In its turn it was not here, so its place is among the absent ones.
                let urgent = &self.distributions.below;
                let makes_room = urgent.leads_to(replica)
                    && !peer.rests
                    && !urgent.has(replica, path, version.sequence);
                let waits = !makes_room && peer.absent.has(ranked.position) && peer.only.has(path);
                if !waits || !self.config.strategy.pushes(demand, replicas) {
                    continue;
                }
                peer.absent.remove(ranked.position);
                let link = peer.link.as_mut()?;
                if !link.demands.take_over(path, version.sequence) {
                    return Some((path.clone(), version));
                }
            }
        }
        None
    }

    /// The rest of a body does not come, which this replica has got in part. It waits for the replica again.
    pub fn handle_cut_off(&mut self, replica: ReplicaId, body: &Frame<BodyHeader>) {
        let BodyHeader { path, version, demand, .. } = &body.message;
        if *demand
            || self.upstream.is_none()
            || self.state.image.objects.get(path) != version.as_ref()
        {
            return;
        }
        let Some(position) = self.ranking.position(path) else { return };
        if let Some(peer) = self.peers.get_mut(&replica) {
            // When its turn comes, it is here or is absent.
            peer.queue(path, position);
        }
    }
}
