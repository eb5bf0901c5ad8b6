//! At a relay: bodies that children get while they arrive.

use std::sync::Arc;

use lull_cc::Bytes;
use lull_replication::message::BodyHeader;
use lull_replication::path::Path;
use lull_replication::types::Digest;
use lull_replication::wire::Outline;

use super::{ReplicaEvent, Shared, lock};
use crate::daemon::blocking;
use crate::daemon::spool::{SHORTEST, Spool};

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
    /// The pieces of a body begin to arrive. None if no child is to get them before the end.
    pub(super) async fn begin(
        shared: &Arc<Shared>,
        header: &BodyHeader,
        outline: &Outline,
    ) -> Option<Self> {
        let content = header.version?.content;
        let (digest, demand) = (content.digest, header.demand);
        if content.size < SHORTEST || !shared.has_children() {
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

    /// Takes the next piece, on a thread that may block. Returns whether it can be passed on.
    pub(super) fn taker(&self) -> impl FnOnce(&[u8]) -> bool + Send + use<> {
        let (spool, bodies) = (Arc::clone(&self.spool), self.shared.bodies.clone());
        move |bytes| {
            // The state comes first, also if the disk is nearly full.
            bodies.has_room(Bytes(bytes.len() as u64)) && spool.add(bytes).is_ok()
        }
    }

    /// All of it has arrived, and was given to the replica.
    pub(super) fn finish(mut self) {
        self.is_whole = true;
        self.shared.outlines.keep(self.spool.content(), self.spool.outline());
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        let (digest, demand) = (self.spool.content().digest, self.demand);
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
