//! At a relay: bodies that children get while they arrive.

use std::sync::Arc;

use lull_cc::Bytes;
use lull_replication::message::BodyHeader;
use lull_replication::path::Path;
use lull_replication::types::Digest;
use lull_replication::wire::{Chunk, Outline};

use super::{ReplicaEvent, Shared, lock};
use crate::daemon::blocking;
use crate::daemon::spool::{SHORTEST, Spool};
use crate::store::Bodies;

/// The bodies that arrive and can be passed on, and whether a read waits for them.
pub(super) type Spools = std::collections::BTreeMap<(Digest, bool), Arc<Spool>>;

/// One of them, until it is whole or is cut off.
pub(super) struct Forwarded {
    shared: Arc<Shared>,
    path: Path,
    demand: bool,
    spool: Arc<Spool>,
    is_whole: bool,
}

impl Forwarded {
    /// The pieces of a body begin to arrive. None if children are to get it when it is whole.
    pub(super) async fn begin(
        shared: &Arc<Shared>,
        header: &BodyHeader,
        outline: &Outline,
    ) -> Option<Self> {
        let content = header.version?.content;
        let (digest, demand) = (content.digest, header.demand);
        // Children may connect while it arrives.
        if content.size < SHORTEST || !shared.is_relay() {
            return None;
        }
        let (folder, outline) = (shared.folder.clone(), outline.clone());
        // Without it, children get the body when it is whole.
        let spool = blocking(move || Spool::new(&folder, content, outline)).await?.ok()?;
        let spool = Arc::new(spool);
        // Before a child can ask for it.
        lock(&shared.spools).insert((digest, demand), Arc::clone(&spool));
        let (shared, path) = (Arc::clone(shared), header.path.clone());
        let forwarded = Forwarded { shared, path, demand, spool, is_whole: false };
        let is_served = forwarded.shared.with_relay(|relay| relay.handle_arriving(digest, demand));
        is_served.unwrap_or(false).then_some(forwarded)
    }

    /// Takes the pieces, on a thread that may block.
    pub(super) fn taker(&self) -> Taker {
        Taker { spool: Arc::clone(&self.spool), bodies: self.shared.bodies.clone() }
    }

    /// Its chunks are known now; an empty list says that they are not.
    pub(super) fn set_chunks(&self, chunks: &[Chunk]) {
        self.spool.set_chunks(chunks.into());
    }

    /// All of it has arrived, and was given to the replica.
    pub(super) fn finish(mut self) {
        self.is_whole = true;
        self.shared.outlines.keep(self.spool.content(), self.spool.outline());
    }
}

/// Passes on the pieces of a body. Each call returns whether that is possible.
pub(super) struct Taker {
    spool: Arc<Spool>,
    bodies: Bodies,
}

impl Taker {
    /// The next piece, which was verified.
    pub(super) fn take(&self, bytes: &[u8]) -> bool {
        // The state comes first, also if the disk is nearly full.
        self.bodies.has_room(Bytes(bytes.len() as u64)) && self.spool.add(bytes).is_ok()
    }

    /// The next piece, which came in an earlier transfer: the disk may have lost it since.
    pub(super) fn take_earlier(&self, bytes: &[u8]) -> bool {
        self.spool.outline().has(self.spool.pieces(), bytes) && self.take(bytes)
    }

    /// Whether the piece with this number comes next.
    pub(super) fn is_at(&self, number: u32) -> bool {
        self.spool.pieces() == number
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        let (digest, demand) = (self.spool.content().digest, self.demand);
        self.set_chunks(&[]);
        {
            let mut spools = lock(&self.shared.spools);
            let is_ours = |other: &Arc<Spool>| Arc::ptr_eq(other, &self.spool);
            if spools.get(&(digest, demand)).is_some_and(is_ours) {
                spools.remove(&(digest, demand));
            }
        }
        let _ = self.shared.with_relay(|relay| relay.handle_arrived(digest, demand));
        if !self.is_whole && self.spool.cut() {
            (self.shared.on_event)(ReplicaEvent::Cut(self.path.clone()));
        }
    }
}
