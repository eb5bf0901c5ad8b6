//! The side of a relay that its children see: an origin that follows another one.
//!
//! It makes no commits: they come from the relay's replica, as it has received them. It makes no heartbeats either, and
//! passes on those of its origin. Its bodies are those in the replica's store, and others can be fetched.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use super::Origin;
use super::demands::Asked;
use super::forward::Arriving;
use super::history::Weight;
use super::holds::Bodies;
use super::image::{Append, Chain, Image};
use super::interface::{Config, Event};
use super::pending::Pending;
use super::priority::Prioritise;
use super::releases::Releases;
use super::state::State;
use super::writes::TransactionId;
use crate::body_references::BodyReferences;
use crate::faults::Fault;
use crate::message::{Frame, Refusal, Session, ToReplica, Vouch};
use crate::path::Path;
use crate::subscription::Subscription;
use crate::time::{LocalTime, Reading, WallTime};
use crate::types::{Commit, Digest, Incarnation, Position, ReplicaId, Sequence, Version};

/// A heartbeat of the origin that a relay follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Beat {
    pub(crate) stamp: WallTime,
    pub(crate) committed: Sequence,
    /// When the relay sent the last ping that had arrived there.
    pub(crate) echo: Option<LocalTime>,
}

/// The pings of a child that were not answered.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// When each arrived here, and when it was sent by the child's clock.
    waiting: VecDeque<(LocalTime, LocalTime)>,
    /// When the last one was sent that was answered.
    answered: Option<LocalTime>,
}

impl Pings {
    /// More than these are not needed: the last one stands for those after it.
    const MOST: usize = 64;

    pub(super) fn add(&mut self, arrived: LocalTime, sent: LocalTime) {
        if self.waiting.len() == Self::MOST {
            self.waiting.pop_back();
        }
        self.waiting.push_back((arrived, sent));
    }

    /// The origin has a ping that this relay sent at `echo`. So it also counts as having all that arrived here before;
    /// returns when the last of them was sent.
    pub(super) fn answer(&mut self, echo: LocalTime) -> Option<LocalTime> {
        while let Some((_, sent)) = self.waiting.pop_front_if(|(arrived, _)| *arrived < echo) {
            self.answered = self.answered.max(Some(sent));
        }
        self.answered
    }
}

/// The origin that a relay follows.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    /// Its commits that are to be taken over.
    commits: VecDeque<Commit>,
    /// Everything that it had committed by this time of its clock is in `commits` or in the log.
    pub(super) stamp: WallTime,
    /// Whether it wants invalidations to be applied as they come.
    pub(super) eager: bool,
    /// How many demands wait for the body of an object.
    wants: BTreeMap<Path, usize>,
    /// Objects that are wanted, or are no longer.
    turned: VecDeque<(Path, bool)>,
    /// The names whose bodies the relay gets from it, if those stay.
    takes: Option<Subscription>,
    /// Bodies on their way from it.
    pub(super) arriving: Arriving,
    /// Versions whose bodies it has lost, and since when that is known.
    lost: BTreeMap<Path, (Sequence, LocalTime)>,
}

impl Upstream {
    /// How long its answer counts that it has lost a body.
    const LOST: Duration = Duration::from_secs(1);

    /// A demand for an object does not wait any more.
    fn leave(&mut self, path: &Path, count: usize) {
        let Some(wants) = self.wants.get_mut(path) else { return };
        *wants = wants.saturating_sub(count);
        if *wants == 0 {
            self.wants.remove(path);
            self.turned.push_back((path.clone(), false));
        }
    }
}

impl<P: Clone> Origin<P> {
    /// An origin without a state, which follows another one.
    pub(crate) fn follower(now: Reading, config: Config, policy: Box<dyn Prioritise>) -> Self {
        let image = Image::empty([0; 32]);
        let mut origin = Origin::recover(now, config, policy, image, []);
        origin.upstream = Some(Upstream::default());
        origin.bodies = Bodies::new(BodyReferences::borrowed());
        origin
    }

    /// The relay gets the bodies of these names. None if it may drop them again.
    pub(crate) fn expect(&mut self, takes: Option<Subscription>) {
        if let Some(upstream) = &mut self.upstream {
            upstream.takes = takes;
        }
    }

    /// Whether the body of an object comes here without a demand, and stays. With other strategies than TRIP it may
    /// never come.
    pub(super) fn is_expected(&self, path: &Path) -> bool {
        let upstream = self.upstream.as_ref().filter(|upstream| !upstream.eager);
        let takes = upstream.and_then(|upstream| upstream.takes.as_ref());
        takes.is_some_and(|takes| takes.has(path))
    }

    /// A connection to the followed origin begins, as a new life for replicas.
    pub(crate) fn begin_following(&mut self, life: Incarnation, eager: bool) {
        self.state.image.incarnation = life;
        if let Some(upstream) = &mut self.upstream {
            upstream.eager = eager;
        }
    }

    /// Follows from another state on.
    pub(crate) fn follow_from(
        &mut self,
        position: Position,
        objects: BTreeMap<Path, Version>,
        stored: impl Iterator<Item = Digest>,
    ) {
        let mut references = BodyReferences::borrowed();
        stored.for_each(|digest| references.found(&digest));
        for version in objects.values() {
            references.need(&version.content.digest, version.content.size);
        }
        let all: Vec<_> = objects.iter().map(|(path, one)| (path.clone(), *one)).collect();
        let image = Image {
            incarnation: self.state.image.incarnation,
            objects,
            chain: Chain::new(position),
            ..Image::empty([0; 32])
        };
        self.state = State::new(image, &self.config);
        self.bodies = Bodies::new(references);
        (self.pending, self.releases) = (Pending::default(), Releases::default());
        (self.preparation.snapshot, self.preparation.building) = (None, None);
        self.ranking.clear();
        for peer in self.peers.values_mut() {
            (peer.waiting, peer.absent, peer.aside) = Default::default();
            (peer.filling, peer.accounted) = (None, false);
        }
        if let Some(upstream) = &mut self.upstream {
            upstream.commits.clear();
            upstream.lost.clear();
        }
        for (path, version) in all {
            self.rank(&path, version, 0);
        }
    }

    /// A commit of the followed origin, after the last one.
    pub(crate) fn follow(&mut self, now: Reading, commit: Commit) {
        if let Some(upstream) = &mut self.upstream {
            upstream.commits.push_back(commit);
        }
        self.follow_some(now);
    }

    pub(super) fn has_to_follow(&self) -> bool {
        self.upstream.as_ref().is_some_and(|upstream| !upstream.commits.is_empty())
    }

    /// Takes over commits, a large one in part.
    pub(super) fn follow_some(&mut self, now: Reading) {
        while self.pending.appending.is_none()
            && let Some(upstream) = &mut self.upstream
            && let Some(commit) = upstream.commits.pop_front()
        {
            upstream.stamp = upstream.stamp.max(commit.stamp);
            let weights = vec![Weight::of_changes(commit.changes.len())];
            let log_after = self.state.log_after(&weights, &self.config);
            let ids = vec![(TransactionId::default(), commit.sequence)];
            let (inline, commits) = (Vec::new(), vec![commit]);
            // The hashes are only needed for what is in the log.
            let append = Append { commits, inline, log_after, chain_from: log_after };
            self.pending.hand_over(ids, Vec::new(), weights, append);
            // The disk of the followed origin has it.
            self.pending.append = None;
            self.handle_appended(now, Ok(()));
        }
    }

    /// An object has changed.
    pub(super) fn follow_change(&mut self, path: &Path) {
        let Some(upstream) = &mut self.upstream else { return };
        upstream.lost.remove(path);
        if upstream.wants.contains_key(path) && !self.is_elsewhere(path) {
            self.release_held(path);
        }
    }

    /// The followed origin has sent a heartbeat, and all of its commits up to there before.
    pub(crate) fn pass_on(&mut self, beat: Beat) {
        if let Some(upstream) = &mut self.upstream {
            upstream.stamp = upstream.stamp.max(beat.stamp);
        }
        for link in self.peers.values_mut().filter_map(|peer| peer.link.as_mut()) {
            link.beat = Some(beat);
        }
    }

    /// The bug in which a relay answers pings by itself.
    pub(super) fn answer_by_itself(&mut self, now: Reading, replica: ReplicaId) {
        let Some(upstream) = &self.upstream else { return };
        if !self.faults.has(Fault::RelayAnswersPings) {
            return;
        }
        let (stamp, committed) = (upstream.stamp, self.state.image.last().sequence);
        let echo = Some(now.local.plus(Duration::from_nanos(1)));
        if let Some(link) = self.peers.get_mut(&replica).and_then(|peer| peer.link.as_mut()) {
            link.beat = Some(Beat { stamp, committed, echo });
        }
    }

    /// The next message to a child that has the welcome, and compares no trees.
    pub(super) fn poll_followed(
        &mut self,
        now: Reading,
        replica: ReplicaId,
    ) -> Option<Frame<ToReplica>> {
        let link = self.peers.get_mut(&replica)?.link.as_mut()?;
        let covers = |beat: &mut Beat| link.part == 0 && beat.committed <= link.cursor;
        if let Some(Beat { stamp, echo, .. }) = link.beat.take_if(covers) {
            // No more was committed by then, so fewer than all that the child has.
            let committed = link.cursor;
            // A heartbeat without an echo may be of an earlier time than it was sent.
            let echo = echo.and_then(|echo| link.pings.answer(echo));
            return Some(link.frame(ToReplica::Heartbeat { stamp, committed, echo }));
        }
        if link.cursor < self.state.image.last().sequence {
            return self.invalidate(now, replica);
        }
        None
    }

    /// Whether the body of an object has to be fetched.
    pub(super) fn is_elsewhere(&self, path: &Path) -> bool {
        let version = self.state.image.objects.get(path);
        self.upstream.is_some()
            && version.is_some_and(|version| {
                let is_here = self.bodies.references.is_stored(&version.content.digest);
                !is_here && !self.is_lost_for(path, version)
            })
    }

    /// Whether the body of a version is lost here and at the parent.
    pub(super) fn is_lost_for(&self, path: &Path, version: &Version) -> bool {
        let is_lost = self.bodies.references.is_lost(&version.content.digest);
        is_lost
            && self.upstream.as_ref().is_none_or(|upstream| {
                let known = upstream.lost.get(path);
                known.is_some_and(|(sequence, _)| *sequence == version.sequence)
            })
    }

    /// A demand waits until the body is here.
    pub(super) fn hold_demand(&mut self, replica: ReplicaId, asked: Asked) {
        let link = self.peers.get_mut(&replica).and_then(|peer| peer.link.as_mut());
        let (Some(link), Some(upstream)) = (link, &mut self.upstream) else { return };
        self.output.counters.held += 1;
        let path = asked.path.clone();
        link.demands.held.entry(path.clone()).or_default().push(asked);
        let wants = upstream.wants.entry(path.clone()).or_default();
        *wants += 1;
        if *wants == 1 {
            upstream.turned.push_back((path, true));
        }
    }

    /// These demands for an object were withdrawn, or have lost their connection.
    pub(super) fn forget_held(&mut self, path: &Path, count: usize) {
        if let Some(upstream) = self.upstream.as_mut().filter(|_| count > 0) {
            upstream.leave(path, count);
        }
    }

    /// The demands for an object can be answered now.
    fn release_held(&mut self, path: &Path) {
        self.move_held(path);
        if let Some(upstream) = &mut self.upstream {
            upstream.leave(path, usize::MAX);
        }
    }

    /// The same while the body is still wanted from the parent.
    pub(super) fn move_held(&mut self, path: &Path) {
        let size = self.state.image.objects.get(path).map(|version| version.content.size);
        let lane = self.config.lanes.lane_for(size.unwrap_or_default());
        for link in self.peers.values_mut().filter_map(|peer| peer.link.as_mut()) {
            for asked in link.demands.held.remove(path).unwrap_or_default() {
                link.demands.move_to(lane, asked);
            }
        }
    }

    /// The next object whose body a demand waits for, or none any more.
    pub(crate) fn poll_wanted(&mut self) -> Option<(Path, bool)> {
        self.upstream.as_mut()?.turned.pop_front()
    }

    /// The relay's replica has stored a body.
    pub(crate) fn handle_found(&mut self, digest: &Digest) {
        self.bodies.references.found(digest);
        let paths: Vec<Path> = self.state.holders(digest).cloned().collect();
        for path in paths {
            self.queue_found(&path);
            let upstream = self.upstream.as_mut();
            if upstream.is_some_and(|upstream| {
                upstream.lost.remove(&path);
                upstream.wants.contains_key(&path)
            }) {
                self.release_held(&path);
            }
        }
    }

    /// The body of an object is here, and waits for the replicas for which it was absent.
    fn queue_found(&mut self, path: &Path) {
        let Some(position) = self.ranking.position(path) else { return };
        let Some(version) = self.state.image.objects.get(path) else { return };
        for (replica, peer) in &mut self.peers {
            if !peer.absent.remove(position) {
                continue;
            }
            peer.queue(path, position);
            if self.distributions.below.wake(*replica, peer, path, version.sequence) {
                self.output.events.push_back(Event::Urgency(*replica));
            }
        }
    }

    /// It has dropped one, or has lost it.
    pub(crate) fn handle_gone(&mut self, digest: &Digest) {
        self.bodies.references.gone(digest);
    }

    /// The followed origin has lost the body of a version.
    pub(crate) fn handle_lost(&mut self, now: Reading, path: &Path, sequence: Sequence) {
        let Some(upstream) = &mut self.upstream else { return };
        if upstream.wants.contains_key(path) {
            upstream.lost.insert(path.clone(), (sequence, now.local));
            if !self.is_elsewhere(path) {
                self.release_held(path);
            }
        }
    }

    /// A read asks for a body again that was lost some time ago.
    pub(super) fn forget_lost(&mut self, now: Reading, path: &Path) {
        if let Some(upstream) = &mut self.upstream
            && let Some((_, since)) = upstream.lost.get(path)
            && now.local.since(*since) >= Upstream::LOST
        {
            upstream.lost.remove(path);
        }
    }

    /// A relay asks about one of its replicas; returns whether it may ask more.
    pub(super) fn vouch(&mut self, relay: ReplicaId, vouch: &Vouch) -> bool {
        let refusal = self.compare(vouch.position).err();
        if refusal.is_none() {
            self.admit_below(relay, vouch.replica);
        }
        self.answer_vouch(relay, vouch.question, refusal)
    }

    /// A relay gets an answer about one of its replicas; returns whether it may ask more.
    pub fn answer_vouch(
        &mut self,
        relay: ReplicaId,
        question: u64,
        refusal: Option<Refusal>,
    ) -> bool {
        let most = self.config.demands;
        let link = self.peers.get_mut(&relay).and_then(|peer| peer.link.as_mut());
        link.is_none_or(|link| {
            link.vouched.push_back((question, refusal));
            link.vouched.len() <= most
        })
    }

    /// Whether a replica is connected by this session.
    pub(crate) fn has_session(&self, replica: ReplicaId, session: Session) -> bool {
        let link = self.peers.get(&replica).and_then(|peer| peer.link.as_ref());
        link.is_some_and(|link| link.session == session)
    }

    /// A replica is refused before its hello is looked at.
    pub(crate) fn turn_away(&mut self, replica: ReplicaId, session: Session, why: Refusal) {
        let session = Session { origin: self.state.image.incarnation, ..session };
        self.disconnect(replica);
        self.peers.entry(replica).or_default().refused = Some((session, why));
        self.output.events.push_back(Event::Turned { replica, why });
    }

    /// The same without the origin's life, which a replica does not know before its welcome.
    pub(crate) fn has_connection(&self, replica: ReplicaId, session: Session) -> bool {
        let link = self.peers.get(&replica).and_then(|peer| peer.link.as_ref());
        let same =
            |own: Session| (own.replica, own.connection) == (session.replica, session.connection);
        link.is_some_and(|link| same(link.session))
    }

    /// Ends the connections of all replicas.
    pub(crate) fn disconnect_all(&mut self) {
        let linked = self.peers.iter().filter(|(_, peer)| peer.link.is_some());
        let linked: Vec<ReplicaId> = linked.map(|(replica, _)| *replica).collect();
        for replica in linked {
            self.hang_up(replica);
        }
    }

    /// Ends the connection of a replica.
    pub(crate) fn hang_up(&mut self, replica: ReplicaId) {
        self.disconnect(replica);
        self.output.events.push_back(Event::Close(replica));
    }
}
