//! Bodies that reads of a replica wait for: which are to be handed out, which are on their way, and which
//! nobody waits for any more.

use std::collections::VecDeque;

use lull_cc::Bytes;

use super::{Origin, Phase};
use crate::lane::Lane;
use crate::message::{BodyHeader, Frame};
use crate::path::Path;
use crate::types::{ReplicaId, Sequence};

/// An object that a read waits for.
#[derive(Debug)]
struct Asked {
    path: Path,
    /// Counts what was asked for by the connection.
    number: u64,
}

/// A body of which a part was sent, and not all.
#[derive(Debug)]
struct Sending {
    path: Path,
    sequence: Sequence,
    size: Bytes,
    /// It waited in the background, too, or was broken off there.
    queued: bool,
    withdrawn: bool,
}

/// Those of one connection. For each lane there is a queue, in the order in which they were asked for, and one
/// body may be on its way.
#[derive(Debug, Default)]
pub(crate) struct Demands {
    lanes: [VecDeque<Asked>; Lane::COUNT],
    sending: [Option<Sending>; Lane::COUNT],
    /// Withdrawn before they were handed out: to be told so.
    withdrawn: VecDeque<Path>,
    count: u64,
}

impl Demands {
    /// How many are to be answered.
    pub(crate) fn len(&self) -> usize {
        let asked: usize = self.lanes.iter().map(VecDeque::len).sum();
        asked + self.sending.iter().flatten().count() + self.withdrawn.len()
    }

    pub(crate) fn ask(&mut self, path: Path, lane: Lane) {
        self.count += 1;
        self.lanes[lane.index()].push_back(Asked { path, number: self.count });
    }

    /// The lane of the one that was asked for first.
    fn first(&self) -> Option<Lane> {
        let fronts = Lane::ALL.into_iter().filter_map(|lane| {
            let front = self.lanes[lane.index()].front()?;
            Some((front.number, lane))
        });
        fronts.min().map(|(_, lane)| lane)
    }

    /// A lane by which one waits, and none is on its way.
    fn free(&self) -> Option<Lane> {
        let is_free = |lane: &Lane| {
            !self.lanes[lane.index()].is_empty() && self.sending[lane.index()].is_none()
        };
        Lane::ALL.into_iter().find(is_free)
    }

    /// It goes by another lane than it was taken for: there it stands where it would stand if it had been put
    /// there at once.
    fn move_to(&mut self, lane: Lane, asked: Asked) {
        let lane = &mut self.lanes[lane.index()];
        let at = lane.partition_point(|other| other.number < asked.number);
        lane.insert(at, asked);
    }

    /// Nobody waits for it any more; how often it was still to be handed out.
    pub(crate) fn withdraw(&mut self, path: &Path) -> usize {
        let before = self.withdrawn.len();
        for lane in &mut self.lanes {
            lane.retain(|asked| {
                let stays = asked.path != *path;
                self.withdrawn.extend((!stays).then(|| path.clone()));
                stays
            });
        }
        for sending in self.sending.iter_mut().flatten().filter(|sending| sending.path == *path) {
            sending.withdrawn = true;
        }
        self.withdrawn.len() - before
    }

    /// The next one of which the replica is to be told that it does not come.
    pub(crate) fn next_withdrawn(&mut self) -> Option<Path> {
        self.withdrawn.pop_front()
    }

    /// The objects of the bodies that are on their way.
    pub(crate) fn sending(&self) -> impl Iterator<Item = &Path> {
        self.sending.iter().flatten().map(|sending| &sending.path)
    }

    /// The body of this version is left to whoever waits for it, if it is on its way to him: the background has
    /// it again when nobody does any more. Whether it is.
    pub(crate) fn take_over(&mut self, path: &Path, at: Sequence) -> bool {
        let mut all = self.sending.iter_mut().flatten();
        let same = |sending: &&mut Sending| {
            (&sending.path, sending.sequence) == (path, at) && !sending.withdrawn
        };
        all.find(same).map(|sending| sending.queued = true).is_some()
    }

    /// Whether the body of this version is.
    pub(crate) fn is_sending(&self, path: &Path, at: Sequence) -> bool {
        let mut all = self.sending.iter().flatten();
        all.any(|sending| (&sending.path, sending.sequence) == (path, at))
    }
}

impl<P: Clone> Origin<P> {
    /// A read of the replica waits for an object; whether it may.
    pub(super) fn demand(&mut self, replica: ReplicaId, path: Path) -> bool {
        // It is looked at once more when it is handed out.
        let size = self.image.objects.get(&path).map_or(Bytes(0), |version| version.content.size);
        let lane = self.config.lanes.of(size);
        let link = self.peers.get_mut(&replica).and_then(|peer| peer.link.as_mut());
        link.is_none_or(|link| {
            link.demands.ask(path, lane);
            link.demands.len() + link.fetched.len() <= self.config.demands
        })
    }

    /// No read of the replica waits for an object any more; that may always be said.
    pub(super) fn withdraw(&mut self, replica: ReplicaId, path: &Path) -> bool {
        if let Some(link) = self.peers.get_mut(&replica).and_then(|peer| peer.link.as_mut()) {
            self.counters.withdrawn += link.demands.withdraw(path) as u64;
        }
        true
    }

    /// The next body that a read of the replica waits for (SSR §6.2, number 7 of figure 15), for whoever sends
    /// all of it before the next one.
    pub fn poll_demand(&mut self, replica: ReplicaId) -> Option<Frame<BodyHeader>> {
        let link = self.peers.get_mut(&replica)?.link.as_mut()?;
        let lane = link.demands.first()?;
        let asked = link.demands.lanes[lane.index()].pop_front()?;
        let message = self.present(replica, asked.path)?;
        let (frame, sending) = self.hand_out(replica, message)?;
        let link = self.peers.get_mut(&replica)?.link.as_mut()?;
        link.fetched.add(sending.path, sending.sequence, sending.size);
        Some(frame)
    }

    /// The same for whoever lets bodies take turns: the next one of a lane by which none is on its way. When its
    /// last part is about to leave, that is to be told by [`handle_demand_sent`](Origin::handle_demand_sent).
    pub fn poll_demand_in_turn(&mut self, replica: ReplicaId) -> Option<Frame<BodyHeader>> {
        loop {
            let link = self.peers.get_mut(&replica)?.link.as_mut()?;
            let lane = link.demands.free()?;
            let Asked { path, number } = link.demands.lanes[lane.index()].pop_front()?;
            let message = self.present(replica, path)?;
            // It may have been written again since it was asked for.
            let present = self.config.lanes.of_body(&message);
            if present == lane {
                let (frame, sending) = self.hand_out(replica, message)?;
                let link = self.peers.get_mut(&replica)?.link.as_mut()?;
                link.demands.sending[lane.index()] = Some(sending);
                return Some(frame);
            }
            let link = self.peers.get_mut(&replica)?.link.as_mut()?;
            link.demands.move_to(present, Asked { path: message.path, number });
        }
    }

    /// What a read of an object is answered with now.
    fn present(&self, replica: ReplicaId, path: Path) -> Option<BodyHeader> {
        let link = self.peers.get(&replica)?.link.as_ref()?;
        let in_order = self.config.strategy.is_in_order();
        let (at, version) = if in_order && matches!(link.phase, Phase::Streaming) {
            (link.cursor, self.image.version_at(&path, link.cursor))
        } else {
            (self.last().sequence, self.image.objects.get(&path).copied())
        };
        // Whoever reads it hears so at once, and others there need not wait behind that read.
        let lost = version.is_some_and(|version| self.shelf.is_lost(&version.content.digest));
        Some(BodyHeader { path, version, at, demand: true, lost })
    }

    fn hand_out(
        &mut self,
        replica: ReplicaId,
        message: BodyHeader,
    ) -> Option<(Frame<BodyHeader>, Sending)> {
        let peer = self.peers.get_mut(&replica)?;
        let place = self.objects.get(&message.path).map(|ranked| ranked.place);
        let queued = place.is_some_and(|place| peer.waiting.remove(place));
        let session = peer.link.as_ref()?.session;
        self.counters.demands += 1;
        // It is confirmed as well if there is no such object.
        let sequence = message.version.map_or(message.at, |version| version.sequence);
        let (path, withdrawn) = (message.path.clone(), false);
        let size = message.version.map_or(Bytes(0), |version| version.content.size);
        let sending = Sending { path, sequence, size, queued, withdrawn };
        Some((Frame { session, message }, sending))
    }

    /// The last part of a body that [`poll_demand_in_turn`](Origin::poll_demand_in_turn) gave is about to
    /// leave: then it has left as a `whole`, or is broken off. To be told before the part leaves, because the
    /// replica counts the bodies that have ended.
    pub fn handle_demand_sent(
        &mut self,
        replica: ReplicaId,
        body: &Frame<BodyHeader>,
        whole: bool,
    ) {
        let lane = self.config.lanes.of_body(&body.message);
        let Some(peer) = self.peers.get_mut(&replica) else { return };
        let Some(link) = peer.link.as_mut().filter(|link| link.session == body.session) else {
            return;
        };
        let Some(sending) = link.demands.sending[lane.index()].take() else { return };
        if !whole {
            self.counters.broken_off += u64::from(sending.withdrawn);
            // What reads have asked for the background has left to them.
            if let Some(ranked) = self.objects.get(&sending.path).filter(|_| sending.queued) {
                peer.waiting.insert(ranked.place);
            }
        }
        link.fetched.add(sending.path, sending.sequence, sending.size);
    }

    /// Whether a read of the replica waits for a body of which a part was sent.
    pub(super) fn is_waited_for(&self, replica: ReplicaId, body: &Frame<BodyHeader>) -> bool {
        let lane = self.config.lanes.of_body(&body.message);
        let link = self.peers.get(&replica).and_then(|peer| peer.link.as_ref());
        let link = link.filter(|link| link.session == body.session);
        let sending = link.and_then(|link| link.demands.sending[lane.index()].as_ref());
        sending.is_some_and(|sending| !sending.withdrawn)
    }
}
