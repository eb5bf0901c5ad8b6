//! Bodies at a replica, as far as the origin knows.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use lull_cc::Bytes;

use super::Origin;
use super::ranking::demand;
use crate::path::Path;
use crate::types::{ReplicaId, Sequence};

/// Bodies handed out to one channel of a connection, the oldest first, until the replica has reported that
/// they are stored or discarded.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    bodies: VecDeque<Body>,
    /// How often each is among them, by commit and object. None sorts before all objects.
    by_commit: BTreeMap<(Sequence, Option<Path>), u32>,
    bytes: u64,
    /// How many it has reported so far.
    confirmed: u64,
}

#[derive(Debug)]
struct Body {
    path: Path,
    sequence: Sequence,
    size: Bytes,
}

/// The approximate memory of a body in a replica.
fn taken_by(path: &Path, size: Bytes) -> u64 {
    /// In addition to its bytes and its name.
    const EACH: u64 = 256;
    size.0 + path.as_bytes().len() as u64 + EACH
}

/// The body that is sent to a replica in pieces.
#[derive(Debug)]
pub(crate) struct InPart {
    pub(super) path: Path,
    pub(super) sequence: Sequence,
    /// The bytes that have left.
    pub(super) sent: Bytes,
}

impl UnderWay {
    pub(crate) fn len(&self) -> usize {
        self.bodies.len()
    }

    /// The approximate memory of all of them in the replica.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    pub(crate) fn add(&mut self, path: Path, sequence: Sequence, size: Bytes) {
        self.bytes += taken_by(&path, size);
        *self.by_commit.entry((sequence, Some(path.clone()))).or_default() += 1;
        self.bodies.push_back(Body { path, sequence, size });
    }

    /// Their names, versions and sizes.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Path, Sequence, Bytes)> {
        self.bodies.iter().map(|body| (&body.path, body.sequence, body.size))
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.bodies.iter().map(|body| &body.path)
    }

    /// The commits of those that are among them.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = Sequence> + '_ {
        self.by_commit.keys().map(|(sequence, _)| *sequence)
    }

    /// Whether one of the commit at `at` is among them.
    pub(crate) fn has_of(&self, at: Sequence) -> bool {
        let mut from_there = self.by_commit.range((at, None)..);
        from_there.next().is_some_and(|((sequence, _), _)| *sequence == at)
    }

    pub(crate) fn has(&self, path: &Path, at: Sequence) -> bool {
        self.by_commit.contains_key(&(at, Some(path.clone())))
    }

    /// Notes that this many are done since the connection began; returns false if fewer were handed out.
    pub(crate) fn confirm(&mut self, count: u64) -> bool {
        let new = count.saturating_sub(self.confirmed);
        let known = new <= self.bodies.len() as u64;
        for _ in 0..new {
            let Some(Body { path, sequence, size }) = self.bodies.pop_front() else { break };
            self.bytes -= taken_by(&path, size);
            if let Entry::Occupied(mut times) = self.by_commit.entry((sequence, Some(path))) {
                *times.get_mut() -= 1;
                if *times.get() == 0 {
                    times.remove();
                }
            }
        }
        self.confirmed = count;
        known
    }
}

impl<P: Clone> Origin<P> {
    /// Whether no body written there by the commit at `at` is still pending at a replica. None is pending for
    /// a deletion, an overwritten or lost body, or one that is not pushed to it, such as one outside its
    /// subscription. A body that was rejected for lack of space has arrived.
    pub fn has_arrived(&self, replica: ReplicaId, path: &Path, at: Sequence) -> bool {
        !self.is_to_come(replica, path, at)
    }

    fn is_to_come(&self, replica: ReplicaId, path: &Path, at: Sequence) -> bool {
        let Some(version) = self.state.image.objects.get(path).copied() else { return false };
        let ranked = self.ranking.get(path);
        if version.sequence != at
            || !self.bodies.references.is_stored(&version.content.digest)
            || !self.config.strategy.pushes(demand(ranked, version), self.peers.len())
        {
            return false;
        }
        if let Some(known) = self.known_below(replica) {
            // Its relay knows which names it takes.
            return !known.delivered.has(at);
        }
        if !self.subscribes(replica, path) {
            return false;
        }
        let Some(peer) = self.peers.get(&replica) else { return true };
        if !peer.price.permits(demand(ranked, version), self.peers.len()) {
            return false;
        }
        let waits = ranked.is_some_and(|ranked| peer.waiting.has(ranked.position));
        let aside = ranked.is_some_and(|ranked| peer.aside.has(ranked.position));
        let waits = waits || peer.filling.is_some() || aside;
        let Some(link) = &peer.link else { return waits || !peer.accounted };
        waits
            || !link.accounted
            || link.pushed.has(path, at)
            || link.fetched.has(path, at)
            || link.demands.is_sending(path, at)
    }
}
