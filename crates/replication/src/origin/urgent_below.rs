//! Publications that would be late at replicas below relays.
//!
//! The origin decides which replicas are late (`distribution.rs`), and lists them to their relays. Each connection on the
//! way to such a replica carries only bodies of the publication, at normal priority. When it has carried all that are
//! here, it *rests*: other bodies go on in the background until another one of the publication comes. They must, because
//! a relay reports whole commits, and these may also have bodies that are not of the publication.

use std::collections::{BTreeMap, BTreeSet};

use super::Origin;
use super::interface::Event;
use super::peer::{Link, Peer};
use crate::message::{MAX_URGENT_REPLICAS, ToReplica, Urgent, WITH_URGENT};
use crate::path::Path;
use crate::types::{ReplicaId, Sequence};

/// The urgent publications, and the connections on which they are urgent.
#[derive(Debug, Default)]
pub(super) struct UrgentBelow {
    /// At the origin those of its own publications; at a relay those that its parent has listed.
    all: Vec<Urgent>,
    /// The connected replicas on the way to urgent ones, with the places of the publications in that list.
    by_peer: BTreeMap<ReplicaId, BTreeSet<usize>>,
    /// Something has changed since the connections were found.
    is_changed: bool,
}

impl UrgentBelow {
    /// Whether bodies are urgent for a replica, or for replicas below it.
    pub(super) fn leads_to(&self, replica: ReplicaId) -> bool {
        self.by_peer.contains_key(&replica)
    }

    /// A version waits for a replica: if it is urgent, the connection rests no longer. Returns whether it rested.
    pub(super) fn wake(
        &self,
        replica: ReplicaId,
        peer: &mut Peer,
        path: &Path,
        at: Sequence,
    ) -> bool {
        peer.rests && self.has(replica, path, at) && core::mem::take(&mut peer.rests)
    }

    /// Whether a version is one of those.
    pub(super) fn has(&self, replica: ReplicaId, path: &Path, at: Sequence) -> bool {
        let mut all = self.by_peer.get(&replica).into_iter().flatten();
        all.any(|place| self.all[*place].has(path, at))
    }
}

impl Link {
    /// The next list for the relay at the other end, if that is new.
    pub(super) fn next_urgent_list(&mut self) -> Option<ToReplica> {
        let owes = core::mem::take(&mut self.owes_urgent) && self.protocol >= WITH_URGENT;
        owes.then(|| ToReplica::Urgent(self.urgent.clone()))
    }

    /// These publications are urgent below the other end. Returns whether that is new.
    fn list_urgent(&mut self, all: Vec<Urgent>) -> bool {
        let is_new = self.urgent != all;
        self.urgent = all;
        self.owes_urgent |= is_new;
        is_new
    }
}

impl<P: Clone> Origin<P> {
    /// All publications that are urgent for replicas below this one, instead of earlier ones. At a relay also those for its
    /// children.
    pub(crate) fn set_urgent_below(&mut self, all: Vec<Urgent>) {
        if all == self.distributions.below.all {
            return;
        }
        // Places in the old list mean nothing in the new one.
        let before = core::mem::take(&mut self.distributions.below.by_peer);
        before.into_keys().for_each(|replica| self.resume_pushes(replica));
        (self.distributions.below.all, self.distributions.below.is_changed) = (all, true);
    }

    /// A replica has another parent, or none.
    pub(super) fn note_moved(&mut self) {
        self.distributions.below.is_changed |= !self.distributions.below.all.is_empty();
    }

    /// Whether the connections on the way to urgent replicas are to be found again.
    pub(super) fn has_to_route(&self) -> bool {
        self.distributions.below.is_changed
    }

    /// Finds these connections.
    pub(super) fn route_urgent(&mut self) {
        if !core::mem::take(&mut self.distributions.below.is_changed) {
            return;
        }
        let mut by_peer: BTreeMap<ReplicaId, BTreeSet<usize>> = BTreeMap::new();
        let mut lists: BTreeMap<ReplicaId, BTreeMap<usize, Vec<ReplicaId>>> = BTreeMap::new();
        for (place, urgent) in self.distributions.below.all.iter().enumerate() {
            for replica in &urgent.replicas {
                let Some(peer) = self.peer_towards(*replica) else { continue };
                by_peer.entry(peer).or_default().insert(place);
                if peer != *replica {
                    let list = lists.entry(peer).or_default().entry(place).or_default();
                    list.push(*replica);
                    list.truncate(MAX_URGENT_REPLICAS);
                }
            }
        }
        let before = core::mem::replace(&mut self.distributions.below.by_peer, by_peer);
        for (replica, places) in before {
            if self.distributions.below.by_peer.get(&replica) != Some(&places) {
                self.resume_pushes(replica);
            }
        }
        let of = |(place, replicas): (usize, Vec<ReplicaId>)| {
            let Urgent { at, within, .. } = &self.distributions.below.all[place];
            Urgent { at: *at, within: within.clone(), replicas }
        };
        let lists = lists.into_iter().map(|(peer, all)| (peer, all.into_iter().map(of).collect()));
        self.list_urgent(lists.collect());
    }

    /// Lists to each relay what is urgent below it.
    fn list_urgent(&mut self, mut lists: BTreeMap<ReplicaId, Vec<Urgent>>) {
        for (replica, peer) in &mut self.peers {
            let Some(link) = &mut peer.link else { continue };
            let is_new = link.list_urgent(lists.remove(replica).unwrap_or_default());
            if is_new || self.distributions.below.leads_to(*replica) {
                self.output.events.push_back(Event::Urgency(*replica));
            }
        }
    }

    /// The connected replica that is this one or serves it.
    fn peer_towards(&self, replica: ReplicaId) -> Option<ReplicaId> {
        let is_here =
            |replica: &ReplicaId| self.peers.get(replica).is_some_and(|peer| peer.link.is_some());
        let below = || self.known_below(replica).map(|known| known.via);
        Some(replica).filter(is_here).or_else(below).filter(is_here)
    }

    /// Bodies that have made room for urgent ones wait again.
    fn resume_pushes(&mut self, replica: ReplicaId) {
        if let Some(peer) = self.peers.get_mut(&replica) {
            peer.rests = false;
            let aside = core::mem::take(&mut peer.aside);
            aside.iter().for_each(|position| {
                peer.waiting.insert(position);
            });
            self.output.events.push_back(Event::Urgency(replica));
        }
    }
}
