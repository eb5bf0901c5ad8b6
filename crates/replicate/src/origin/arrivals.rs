//! Which bodies are at a replica, as far as the origin knows.

use std::collections::VecDeque;

use super::Origin;
use super::push::demand;
use crate::path::Path;
use crate::types::{ReplicaId, Sequence};

/// Bodies that were handed out to one channel of a connection, the oldest first, until the replica has said
/// that they are in its store, or were discarded.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    bodies: VecDeque<(Path, Sequence)>,
    /// How many it has said that of.
    confirmed: u64,
}

impl UnderWay {
    pub(crate) fn len(&self) -> usize {
        self.bodies.len()
    }

    pub(crate) fn add(&mut self, path: Path, sequence: Sequence) {
        self.bodies.push_back((path, sequence));
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.bodies.iter().map(|(path, _)| path)
    }

    /// Whether one of the commit at `at` is among them.
    pub(crate) fn has_of(&self, at: Sequence) -> bool {
        self.bodies.iter().any(|(_, sequence)| *sequence == at)
    }

    fn has(&self, path: &Path, at: Sequence) -> bool {
        self.bodies.iter().any(|(known, sequence)| (known, *sequence) == (path, at))
    }

    /// So many are done since the connection began; whether so many were handed out.
    pub(crate) fn confirm(&mut self, count: u64) -> bool {
        let new = count.saturating_sub(self.confirmed);
        let known = new <= self.bodies.len() as u64;
        for _ in 0..new.min(self.bodies.len() as u64) {
            self.bodies.pop_front();
        }
        self.confirmed = count;
        known
    }
}

impl<P: Clone> Origin<P> {
    /// Whether no body of what the commit at `at` wrote there is still to come to a replica. None is of a deletion,
    /// of what was overwritten since, of what is lost, and of what is not pushed to it. A body that was turned
    /// away for want of room has come.
    pub fn has_arrived(&self, replica: ReplicaId, path: &Path, at: Sequence) -> bool {
        !self.is_to_come(replica, path, at)
    }

    fn is_to_come(&self, replica: ReplicaId, path: &Path, at: Sequence) -> bool {
        let Some(version) = self.image.objects.get(path).copied() else { return false };
        let ranked = self.objects.get(path);
        if version.sequence != at
            || !self.shelf.is_stored(&version.content.digest)
            || !self.config.strategy.pushes(demand(ranked, version), self.peers.len())
        {
            return false;
        }
        let Some(peer) = self.peers.get(&replica) else { return true };
        let waits = ranked.is_some_and(|ranked| peer.waiting.has(ranked.place));
        let Some(link) = &peer.link else { return waits || !peer.accounted };
        waits
            || !link.accounted
            || link.pushed.has(path, at)
            || link.fetched.has(path, at)
            || link.demands.is_sending(path, at)
    }
}
