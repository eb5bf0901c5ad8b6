//! Bodies of which a replica has the first pieces, from an earlier transfer.

use super::Origin;
use super::peer::Link;
use crate::message::{BodyHeader, Frame};
use crate::types::{Digest, PIECE, ReplicaId};

impl Link {
    /// The bodies of which the replica has the first pieces, and how many: all of them. Returns whether that is allowed.
    pub(super) fn handle_partial(&mut self, all: Vec<(Digest, u32)>) -> bool {
        self.partial = all.into_iter().collect();
        true
    }
}

impl<P: Clone> Origin<P> {
    /// The piece with which the transfer of a body begins, from zero: behind those that the replica has reported, and
    /// the last one at most. To be called once for each transfer: another one of the same body begins at zero, until the
    /// replica reports again.
    pub fn first_piece(&mut self, replica: ReplicaId, body: &Frame<BodyHeader>) -> u32 {
        let Some(version) = body.message.version else { return 0 };
        let link = self.peers.get_mut(&replica).and_then(|peer| peer.link.as_mut());
        let Some(link) = link.filter(|link| link.session == body.session) else { return 0 };
        let pieces = version.content.size.0.div_ceil(PIECE as u64);
        let last = u32::try_from(pieces.saturating_sub(1)).unwrap_or(u32::MAX);
        link.partial.remove(&version.content.digest).unwrap_or(0).min(last)
    }

    /// The bytes of a body that a replica has from an earlier transfer.
    pub(super) fn partial_bytes(&self, replica: ReplicaId, digest: &Digest) -> u64 {
        let link = self.peers.get(&replica).and_then(|peer| peer.link.as_ref());
        let pieces = link.and_then(|link| link.partial.get(digest)).copied();
        u64::from(pieces.unwrap_or(0)) * PIECE as u64
    }
}
