//! Bodies of which a replica has some pieces: the first ones, from an earlier transfer, or those of an older version.

use lull_cc::Bytes;

use super::Origin;
use super::peer::Link;
use crate::message::{
    BodyHeader, Frame, MAX_RANGES, Session, WITH_NEIGHBOURS, WITH_RANGES, Wanted,
};
use crate::types::{Digest, PIECE, ReplicaId};

/// A replica says which pieces it wants of bodies that are longer than this.
pub const LONG: Bytes = Bytes(4 << 20);
/// Bodies on their way to a replica, at most: one of each lane, and one in the background.
const AT_ONCE: usize = 8;

impl Link {
    /// The replica wants these pieces of a body. Returns whether that is allowed.
    pub(super) fn handle_wanted(&mut self, wanted: Wanted) -> bool {
        let ranges = &wanted.ranges;
        let ends = ranges.iter().map(|(first, count)| first.checked_add(*count));
        let next = core::iter::once(Some(0)).chain(ends.clone());
        let ascends = |(range, next): (&(u32, u32), Option<u32>)| {
            range.1 > 0 && next.is_some_and(|next| next <= range.0)
        };
        let is_valid = ranges.len() <= MAX_RANGES
            && ranges.iter().zip(next).all(ascends)
            && ends.clone().all(|end| end.is_some())
            && !(wanted.more && (ranges.is_empty() || self.protocol < WITH_NEIGHBOURS));
        if self.wanted.len() >= AT_ONCE {
            // Of one that has ended.
            self.wanted.pop_first();
        }
        self.wanted.insert((wanted.demand, wanted.number), wanted);
        is_valid && self.protocol >= WITH_RANGES
    }

    /// The bodies of which the replica has the first pieces, and how many: all of them. Returns whether that is allowed.
    pub(super) fn handle_partial(&mut self, all: Vec<(Digest, u32)>) -> bool {
        self.partial = all.into_iter().collect();
        true
    }
}

impl<P: Clone> Origin<P> {
    /// The session of a connected replica.
    pub fn session_of(&self, replica: ReplicaId) -> Option<Session> {
        self.peers.get(&replica).and_then(|peer| peer.link.as_ref()).map(|link| link.session)
    }

    /// Whether the replica answers the hashes of a body's pieces by the pieces that it wants.
    pub fn is_answered(&self, replica: ReplicaId, body: &Frame<BodyHeader>) -> bool {
        let size = body.message.version.map_or(Bytes(0), |version| version.content.size);
        let link = self.peers.get(&replica).and_then(|peer| peer.link.as_ref());
        size > LONG && link.is_some_and(|link| link.protocol >= WITH_RANGES)
    }

    /// The answer, once it is here: ranges of pieces, and whether another answer follows. In the last one the last piece of
    /// the body is among them, and before not. An empty one asks for the chunks of the body. `number` counts the long bodies
    /// that have begun on its channel, from one.
    pub fn take_wanted(
        &mut self,
        replica: ReplicaId,
        body: &Frame<BodyHeader>,
        number: u64,
    ) -> Option<(Vec<(u32, u32)>, bool)> {
        let content = body.message.version?.content;
        let link = self.peers.get_mut(&replica)?.link.as_mut()?;
        if link.session != body.session {
            return None;
        }
        let demand = body.message.demand;
        // Answers to transfers that were cut off.
        link.wanted.retain(|(is_read, of), _| *is_read != demand || *of >= number);
        let wanted = link.wanted.remove(&(demand, number))?;
        let mut ranges = wanted.ranges;
        if wanted.digest != content.digest {
            return None;
        }
        if ranges.is_empty() {
            return Some((ranges, false));
        }
        let count = u32::try_from(content.size.0.div_ceil(PIECE as u64)).unwrap_or(u32::MAX);
        let most = if wanted.more { count - 1 } else { count };
        ranges.retain(|(first, _)| *first < most);
        ranges.iter_mut().for_each(|(first, length)| *length = (*length).min(most - *first));
        if !wanted.more && ranges.last().is_none_or(|(first, length)| first + length < count) {
            ranges.push((count - 1, 1));
        }
        Some((ranges, wanted.more))
    }

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
