//! Bodies pushed to replicas, by [`Strategy`].

use core::time::Duration;

use lull_cc::Bytes;

use super::arrivals::InPart;
use super::interface::Event;
use super::peer::{Link, Phase};
use super::queue::{Gap, QueuePosition};
use super::ranking::{Moved, demand};
use super::{Origin, Strategy};
use crate::message::{BodyHeader, Frame, ToReplica};
use crate::path::Path;
use crate::time::Reading;
use crate::types::{ReplicaId, Version};

impl<P: Clone> Origin<P> {
    /// Which bodies are pushed, and how.
    pub fn strategy(&self) -> Strategy {
        self.config.strategy
    }

    /// The next body to be pushed. With [`Strategy::Trip`] it is the one of the highest worth, in its current
    /// version (SSR §6.2, numbers 4 and 6 of figure 15). It is requested when the background connection
    /// accepts more, so the queue drains at the rate of the spare capacity.
    ///
    /// For strategies that push in order it is the next one of the log.
    /// [`poll_control`](Origin::poll_control) continues when the replica has it.
    ///
    /// None is sent while trees are compared: the replica reports its missing bodies afterwards, and bodies
    /// in flight would come twice.
    pub fn poll_speculative(&mut self, replica: ReplicaId) -> Option<Frame<BodyHeader>> {
        let link = self.peers.get(&replica)?.link.as_ref()?;
        let compares = !matches!(link.phase, Phase::Streaming);
        if link.greeting.is_some() || compares || !self.config.has_room_under_way(&link.pushed) {
            return None;
        }
        let (path, version) = match self.next_in_order(replica) {
            Some(next) => {
                self.peers.get_mut(&replica)?.link.as_mut()?.body += 1;
                next
            }
            None => self.next_pushed(replica)?,
        };
        let at = self.upto();
        let link = self.peers.get_mut(&replica)?.link.as_mut()?;
        link.pushed.add(path.clone(), version.sequence, version.content.size);
        if version.content.size > self.config.lanes.piece() {
            let (path, sequence) = (path.clone(), version.sequence);
            link.in_part = Some(InPart { path, sequence, sent: Bytes(0) });
        }
        self.output.counters.pushed += 1;
        let message = BodyHeader { path, version: Some(version), at, demand: false, lost: false };
        Some(Frame { session: link.session, message })
    }

    /// Whether a partly pushed body is cancelled because all of it is in flight to a waiting read. Otherwise
    /// the rest would be sent twice and used once. From then on it belongs to the read; without a waiting
    /// read it is queued in the background again, from its beginning.
    ///
    /// Ordered pushes continue, because the next invalidation follows their arrival.
    pub fn hand_over(&mut self, replica: ReplicaId, body: &Frame<BodyHeader>) -> bool {
        let BodyHeader { path, version, demand, .. } = &body.message;
        let Some(version) = version.filter(|_| !demand && !self.config.strategy.is_in_order())
        else {
            return false;
        };
        let link = self.peers.get_mut(&replica).and_then(|peer| peer.link.as_mut());
        let link = link.filter(|link| link.session == body.session);
        let over = link.is_some_and(|link| link.demands.take_over(path, version.sequence));
        self.output.counters.handed_over += u64::from(over);
        over
    }

    /// The next body that goes without the log: an urgent one, or the one of the highest worth.
    fn next_pushed(&mut self, replica: ReplicaId) -> Option<(Path, Version)> {
        if self.distributions.is_urgent(replica) {
            let next = self.next_urgent(replica);
            if next.is_some() || !self.distributions.below.leads_to(replica) {
                return next;
            }
        }
        match self.next_by_worth(replica) {
            Some(next) => Some(next),
            None => self.next_arriving(replica),
        }
    }

    fn next_by_worth(&mut self, replica: ReplicaId) -> Option<(Path, Version)> {
        loop {
            let replicas = self.peers.len();
            let urgent = &self.distributions.below;
            let is_urgent = urgent.leads_to(replica);
            let peer = self.peers.get_mut(&replica)?;
            let position = match peer.waiting.first() {
                Some(next) => next,
                None if is_urgent => {
                    if !core::mem::replace(&mut peer.rests, true) {
                        self.output.events.push_back(Event::Urgency(replica));
                    }
                    peer.aside.first()?
                }
                None => return None,
            };
            let was_aside = !peer.waiting.remove(position) && peer.aside.remove(position);
            let path = self.ranking.path(position)?;
            let version = *self.state.image.objects.get(path)?;
            let demand = demand(self.ranking.get(path), version);
            // A lost one waits again when it is stored again.
            let is_here = self.bodies.references.is_stored(&version.content.digest);
            if urgent.wake(replica, peer, path, version.sequence) {
                self.output.events.push_back(Event::Urgency(replica));
            }
            let makes_room =
                is_urgent && !was_aside && !urgent.has(replica, path, version.sequence);
            if self.upstream.is_some() && !is_here {
                peer.absent.insert(position);
            } else if makes_room {
                peer.aside.insert(position);
            }
            let is_pushed = self.config.strategy.pushes(demand, replicas)
                && peer.price.permits(demand, replicas);
            if makes_room || !peer.only.has(path) || !is_here || !is_pushed {
                continue;
            }
            // A body in flight to a read is queued again when no read waits for it there any more.
            let link = peer.link.as_mut()?;
            if !link.demands.take_over(path, version.sequence) {
                return Some((path.clone(), version));
            }
        }
    }

    /// The next body that goes with the log, overwritten or not; skips those that are not pushed.
    fn next_in_order(&mut self, replica: ReplicaId) -> Option<(Path, Version)> {
        if !self.config.strategy.is_in_order() {
            return None;
        }
        let replicas = self.peers.len();
        let peer = self.peers.get_mut(&replica)?;
        let (link, only, price) = (peer.link.as_mut()?, &peer.only, peer.price);
        let after = self.state.image.log_after();
        if link.bodies < after {
            (link.bodies, link.body) = (after, 0);
        }
        while let Some(entry) = self.state.image.entry(link.bodies.next()) {
            let sequence = entry.commit.sequence;
            while let Some(change) = entry.commit.changes.get(link.body) {
                if let Some(content) = change.content {
                    let version = Version { sequence, content };
                    let demand = demand(self.ranking.get(&change.path), version);
                    if only.has(&change.path)
                        && self.bodies.references.is_stored(&content.digest)
                        && self.config.strategy.pushes(demand, replicas)
                        && price.permits(demand, replicas)
                    {
                        return Some((change.path.clone(), version));
                    }
                }
                link.body += 1;
            }
            (link.bodies, link.body) = (sequence, 0);
        }
        None
    }

    /// Whether the next invalidation waits for its bodies. They are awaited until the replica has them. So it
    /// applies both in one step, even if it delays no invalidation.
    pub(super) fn holds_back(&mut self, replica: ReplicaId) -> bool {
        if !self.config.strategy.is_in_order() {
            return false;
        }
        let _ = self.next_in_order(replica);
        let link = self.peers.get(&replica).and_then(|peer| peer.link.as_ref());
        link.is_some_and(|link| {
            let next = link.cursor.next();
            let is_under_way = || link.pushed.has_of(next);
            link.part == 0 && (link.bodies < next || is_under_way())
        })
    }

    /// While the next invalidation is held back, this shows that the origin is alive. Its time is just before
    /// that commit, so its promise is true. It has no echo, because a ping may have been sent after that.
    pub(super) fn heartbeat_meanwhile(
        &mut self,
        now: Reading,
        replica: ReplicaId,
    ) -> Option<Frame<ToReplica>> {
        let link = self.peers.get_mut(&replica)?.link.as_mut()?;
        if now.local < link.heartbeat_at {
            return None;
        }
        let next = self.state.image.entry(link.cursor.next())?;
        link.heartbeat_at = now.local.plus(self.config.heartbeat);
        let stamp = next.commit.stamp.minus(Duration::from_nanos(1));
        Some(link.frame(ToReplica::Heartbeat { stamp, committed: link.cursor, echo: None }))
    }

    /// Whether the rest of a partly sent body is still worth sending. An overwritten one is not, unless a
    /// read waits for it: otherwise a reader of a constantly written object would never get it. Ordered
    /// pushes continue unchanged. A demanded body is worth it while a read waits. A pushed one makes room for urgent
    /// bodies. For a pushed body, [`hand_over`](Origin::hand_over) must be asked as well.
    pub fn is_wanted(&self, replica: ReplicaId, body: &Frame<BodyHeader>) -> bool {
        let BodyHeader { path, version, demand, .. } = &body.message;
        if *demand {
            return self.is_waited_for(replica, body);
        }
        if self.config.strategy.is_in_order() {
            return true;
        }
        let is_current = self.state.image.objects.get(path) == version.as_ref();
        let at = version.map(|version| version.sequence).unwrap_or_default();
        is_current && !self.gives_way(replica, path, at)
    }

    /// A partly pushed body was cut off before its end. It waits again, if it is still of use and is not in flight to a
    /// read.
    pub fn handle_push_cut_off(&mut self, replica: ReplicaId, body: &Frame<BodyHeader>) {
        let BodyHeader { path, version: Some(version), .. } = &body.message else { return };
        let is_current = self.state.image.objects.get(path) == Some(version);
        let is_of_use = is_current && self.bodies.references.is_stored(&version.content.digest);
        let (Some(peer), Some(position)) =
            (self.peers.get_mut(&replica), self.ranking.position(path))
        else {
            return;
        };
        let is_read = |link: &mut Link| link.demands.take_over(path, version.sequence);
        if is_of_use && !peer.link.as_mut().is_some_and(is_read) {
            peer.queue(path, position);
        }
    }

    /// Queues the current version of an object for every replica.
    pub(super) fn queue_body(&mut self, path: &Path, version: Version, period: u32) {
        // Before it is ranked, except for a new one, which has no place so far: one write and none rank the
        // same.
        let is_known =
            self.ranking.get_mut(path).map(|ranked| ranked.writes.add(1, period)).is_some();
        let position = self.rank(path, version, period);
        if !is_known && let Some(ranked) = self.ranking.get_mut(path) {
            ranked.writes.add(1, period);
        }
        if self.config.strategy == Strategy::Trip {
            self.wait(path, version, position);
        }
    }

    fn wait(&mut self, path: &Path, version: Version, position: QueuePosition) {
        for (replica, peer) in &mut self.peers {
            self.output.counters.absorbed += u64::from(peer.queue(path, position));
            if self.distributions.below.wake(*replica, peer, path, version.sequence) {
                self.output.events.push_back(Event::Urgency(*replica));
            }
        }
    }

    pub(super) fn unqueue_body(&mut self, path: &Path) {
        if let Some((position, gap)) = self.ranking.remove(path) {
            for peer in self.peers.values_mut() {
                peer.waiting.remove(position);
                peer.absent.remove(position);
                peer.aside.remove(position);
            }
            self.close(gap);
        }
    }

    /// Moves an object to its place in the order, for all replicas.
    pub(super) fn rank(&mut self, path: &Path, version: Version, period: u32) -> QueuePosition {
        let (position, moved) = self.ranking.rank(path, version, period);
        if let Some(Moved { from, to, gap }) = moved {
            for peer in self.peers.values_mut() {
                peer.waiting.moved(from, to);
                peer.absent.moved(from, to);
                peer.aside.moved(from, to);
            }
            self.close(gap);
        }
        position
    }

    /// An object has left the order, or has moved, and its body waits nowhere at this place.
    fn close(&mut self, gap: Option<Gap>) {
        let Some(gap) = gap else { return };
        for peer in self.peers.values_mut() {
            peer.waiting.close(gap);
            peer.absent.close(gap);
        }
    }
}
