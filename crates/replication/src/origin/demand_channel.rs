//! The demand channel of a replica: which body that reads wait for goes next.

use lull_cc::Bytes;

use super::Origin;
use super::demands::{Asked, Sending};
use super::peer::Phase;
use crate::message::{BodyHeader, Frame};
use crate::path::Path;
use crate::types::ReplicaId;

impl<P: Clone> Origin<P> {
    /// A read of the replica waits for an object; returns whether it may.
    pub(super) fn demand(&mut self, replica: ReplicaId, path: Path) -> bool {
        // Its size is read again when it is handed out.
        let size =
            self.state.image.objects.get(&path).map_or(Bytes(0), |version| version.content.size);
        let lane = self.config.lanes.lane_for(size);
        let link = self.peers.get_mut(&replica).and_then(|peer| peer.link.as_mut());
        link.is_none_or(|link| {
            link.demands.ask(path, lane);
            link.demands.len() + link.fetched.len() <= self.config.demands
        })
    }

    /// No read of the replica waits for an object any more; this call is always permitted.
    pub(super) fn withdraw(&mut self, replica: ReplicaId, path: &Path) -> bool {
        if let Some(link) = self.peers.get_mut(&replica).and_then(|peer| peer.link.as_mut()) {
            let held = link.demands.held.get(path).map_or(0, Vec::len);
            self.output.counters.withdrawn += link.demands.withdraw(path) as u64;
            self.forget_held(path, held);
        }
        true
    }

    /// The next body that a read of the replica waits for (SSR §6.2, number 7 of figure 15). For a caller
    /// that sends all of it before the next one.
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

    /// The same for a caller that lets bodies take turns: the next one of a lane without a body in flight.
    /// Before its last part leaves, call [`handle_demand_sent`](Origin::handle_demand_sent).
    pub fn poll_demand_in_turn(&mut self, replica: ReplicaId) -> Option<Frame<BodyHeader>> {
        loop {
            let link = self.peers.get_mut(&replica)?.link.as_mut()?;
            let lane = link.demands.free()?;
            let Asked { path, number } = link.demands.lanes[lane.index()].pop_front()?;
            if self.is_elsewhere(&path) && !self.is_arriving(&path) {
                self.hold_demand(replica, Asked { path, number });
                continue;
            }
            let message = self.present(replica, path)?;
            // It may have been rewritten since the request.
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

    /// The present answer to a read of an object.
    fn present(&self, replica: ReplicaId, path: Path) -> Option<BodyHeader> {
        let link = self.peers.get(&replica)?.link.as_ref()?;
        let in_order = self.config.strategy.is_in_order();
        let (at, version) = if in_order && matches!(link.phase, Phase::Streaming) {
            (link.cursor, self.version_at(&path, link.cursor))
        } else {
            (self.upto(), self.state.image.objects.get(&path).copied())
        };
        // Its reader gets the error at once, and other objects do not wait behind that read.
        let lost = version.is_some_and(|version| self.is_lost_for(&path, &version));
        Some(BodyHeader { path, version, at, demand: true, lost })
    }

    fn hand_out(
        &mut self,
        replica: ReplicaId,
        message: BodyHeader,
    ) -> Option<(Frame<BodyHeader>, Sending)> {
        let peer = self.peers.get_mut(&replica)?;
        let position = self.ranking.position(&message.path);
        let queued = position.is_some_and(|position| {
            let is_absent = peer.absent.remove(position);
            let is_aside = peer.aside.remove(position);
            peer.waiting.remove(position) || is_absent || is_aside
        });
        let session = peer.link.as_ref()?.session;
        self.output.counters.demands += 1;
        // It is confirmed as well if there is no such object.
        let sequence = message.version.map_or(message.at, |version| version.sequence);
        let (path, withdrawn) = (message.path.clone(), false);
        let size = message.version.map_or(Bytes(0), |version| version.content.size);
        let sending = Sending { path, sequence, size, queued, withdrawn };
        Some((Frame { session, message }, sending))
    }

    /// The last part of a body that [`poll_demand_in_turn`](Origin::poll_demand_in_turn) returned is about to
    /// leave: `whole` says whether it was sent completely or cancelled. To be called before the part leaves,
    /// because the replica counts the bodies that have ended.
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
            self.output.counters.broken_off += u64::from(sending.withdrawn);
            // The background has left demanded bodies to their reads.
            let queued = sending.queued && peer.only.has(&sending.path);
            if let Some(ranked) = self.ranking.get(&sending.path).filter(|_| queued) {
                peer.waiting.insert(ranked.position);
            }
        }
        link.fetched.add(sending.path, sending.sequence, sending.size);
    }

    /// Whether a read of the replica waits for a partly sent body.
    pub(super) fn is_waited_for(&self, replica: ReplicaId, body: &Frame<BodyHeader>) -> bool {
        let lane = self.config.lanes.of_body(&body.message);
        let link = self.peers.get(&replica).and_then(|peer| peer.link.as_ref());
        let link = link.filter(|link| link.session == body.session);
        let sending = link.and_then(|link| link.demands.sending[lane.index()].as_ref());
        sending.is_some_and(|sending| !sending.withdrawn)
    }
}
