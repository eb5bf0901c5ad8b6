//! The origin: the one place where writes happen (SSR §6.2).
//!
//! Calls report events (`handle_…`) and request actions (`poll_…`) until there are no more. See [`Origin`]
//! for the order.

mod admission;
mod arrivals;
mod below;
mod bodies;
mod case;
mod condition;
mod demand_channel;
mod demands;
mod distribution;
mod fold;
mod follow;
mod forward;
mod history;
mod holds;
mod image;
mod interface;
mod known;
mod output;
mod overlay;
mod partial;
mod peer;
mod pending;
mod preparation;
mod price;
mod priority;
mod push;
mod queue;
mod ranking;
mod releases;
mod snapshot;
mod state;
mod strategy;
mod subscribers;
#[cfg(test)]
mod tests;
mod transaction;
mod urgency;
mod urgent_below;
mod work;
mod writes;

use std::collections::BTreeMap;

use lull_cc::Bytes;

use crate::body_references::BodyReferences;
use crate::faults::{Fault, Faults};
use crate::message::{Frame, PROTOCOL, Refusal, Session, ToOrigin, ToReplica, WITH_NEIGHBOURS};
use crate::path::Path;
use crate::subscription::Subscription;
use crate::time::{LocalTime, Reading, SlewedClock};
use crate::types::Content;
use crate::types::{Digest, Position, ReplicaId, Sequence};
use crate::wire::OLDEST;

use below::{Below, News};
pub use case::CaseClash;
pub use condition::{Condition, Named};
use distribution::Distributions;
pub use distribution::{Arrival, Distribution, DistributionId, Progress};
pub(crate) use follow::Beat;
use follow::Upstream;
use holds::Bodies;
pub use holds::HoldId;
pub use image::{Append, Chain, Entry, Image};
pub use interface::{Config, Counters, Effect, Event};
use known::Life;
use output::Output;
pub use partial::LONG;
use peer::{Link, Peer, Phase};
use pending::Pending;
use preparation::Preparation;
use price::Price;
pub use priority::{Demand, Prioritise, Priority, ReadsPerWriteAndByte};
use ranking::Ranking;
pub use releases::Garbage;
use releases::Releases;
use state::State;
pub use strategy::{Strategy, UnknownStrategyError};
pub use urgency::Urgency;
pub use writes::{CaseClashes, Put, Refused, RollbackError, Transaction, TransactionId};

/// The state machine of an origin. `P` is the content of a body or a reference to it; the machine does not
/// look into it.
///
/// Order of calls: first [`recover`](Origin::recover) with the contents of stable storage, then any
/// `handle_…` as events happen. After each of them, and at the time of
/// [`poll_timeout`](Origin::poll_timeout), call [`poll_effect`](Origin::poll_effect) and
/// [`poll_event`](Origin::poll_event) until they return none. For each replica whose connection accepts more,
/// call [`poll_control`](Origin::poll_control), then [`poll_demand`](Origin::poll_demand), then
/// [`poll_speculative`](Origin::poll_speculative). Nothing is queued for a replica that reads nothing: its
/// messages are built from the log and the state when they can be sent.
///
/// ```text
/// transaction ─▶ queued ──────────────▶ ready ──────────▶ appending ──────▶ committed
///                (bodies being stored)   (all durable)     (log being        acknowledged,
///                   │ no room               │ clashes        written)        invalidations
///                   ▼                       ▼                  │ no room     leave, bodies
///                refused                 refused               ▼             are queued
///                                                           refused
/// ```
#[derive(Debug)]
pub struct Origin<P> {
    config: Config,
    /// The state on stable storage.
    state: State,
    /// This life of the origin.
    life: Life,
    clock: SlewedClock,
    /// Transactions that are not in the log.
    pending: Pending<P>,
    bodies: Bodies<P>,
    ranking: Ranking,
    peers: BTreeMap<ReplicaId, Peer>,
    /// Replicas below those that are relays.
    below: Below,
    /// Trees and queues for replicas, which are made in slices.
    preparation: Preparation,
    /// References to bodies that are to be given up.
    releases: Releases<P>,
    /// Publications that are to arrive by a deadline.
    distributions: Distributions,
    output: Output,
    faults: Faults,
    /// The origin that a relay follows; none at the origin itself.
    upstream: Option<Upstream>,
}

impl<P: Clone> Origin<P> {
    /// An origin that resumes from stable storage: the image, whose incarnation was incremented there, and
    /// the bodies that were found intact, including inline ones. [`Event::Lost`] reports the bodies that were
    /// not found.
    pub fn recover(
        now: Reading,
        config: Config,
        policy: Box<dyn Prioritise>,
        image: Image,
        bodies: impl IntoIterator<Item = (Digest, Bytes)>,
    ) -> Self {
        let mut origin = Origin {
            config,
            life: Life::new(now.local, image.last().sequence),
            clock: SlewedClock::new(now, image.stamp, config.slew),
            pending: Pending::default(),
            bodies: Bodies::new(BodyReferences::new(bodies)),
            ranking: Ranking::new(policy),
            peers: BTreeMap::new(),
            below: Below::default(),
            preparation: Preparation::default(),
            releases: Releases::default(),
            distributions: Distributions::default(),
            output: Output::default(),
            faults: Faults::default(),
            upstream: None,
            state: State::new(image, &config),
        };
        let versions: Vec<_> = origin
            .state
            .image
            .objects
            .iter()
            .map(|(path, version)| (path.clone(), *version))
            .collect();
        // A body that the log is about to drop is not lost.
        let excess = origin.state.history.excess(&[], &origin.config);
        let kept =
            origin.state.image.log.iter().skip(excess).flat_map(|entry| &entry.before).flatten();
        let live = versions.iter().map(|(_, version)| version);
        for version in live.chain(kept) {
            origin.bodies.references.need(&version.content.digest, version.content.size);
        }
        origin.report_lost();
        for version in
            origin.state.image.log.iter().take(excess).flat_map(|entry| &entry.before).flatten()
        {
            origin.bodies.references.need(&version.content.digest, version.content.size);
        }
        origin.bodies.references.follow_drops();
        origin.bodies.references.collect();
        origin.shorten_log();
        for (path, version) in versions {
            origin.rank(&path, version, 0);
        }
        origin
    }

    /// Seeds a bug.
    pub fn seed_fault(&mut self, fault: Option<Fault>) {
        self.faults = Faults::seeded(fault);
    }

    /// The state on stable storage.
    pub fn image(&self) -> &Image {
        &self.state.image
    }

    /// The last commit.
    pub fn last(&self) -> Position {
        self.state.image.last()
    }

    /// Bytes of all objects. A body counts once per object.
    pub fn bytes(&self) -> Bytes {
        self.state.bytes
    }

    /// Bytes of bodies that were overwritten or deleted and are kept for the log. Bodies that another object
    /// still uses are included.
    pub fn overwritten(&self) -> Bytes {
        self.state.history.bytes()
    }

    /// The changes that would be refused because their paths differ only in case.
    pub fn case_clashes(&self, changes: &BTreeMap<Path, Option<Content>>) -> Vec<CaseClash> {
        self.state.case_clashes(changes)
    }

    /// When a replica needs the next message without an event: then [`poll_control`](Origin::poll_control)
    /// has a heartbeat for it.
    pub fn heartbeat_at(&self, replica: ReplicaId) -> Option<LocalTime> {
        let link = self.peers.get(&replica)?.link.as_ref()?;
        let beats = matches!(link.phase, Phase::Streaming) && self.upstream.is_none();
        beats.then_some(link.heartbeat_at)
    }

    /// Bodies that wait for a replica.
    pub fn waiting(&self, replica: ReplicaId) -> u64 {
        if let Some(known) = self.known_below(replica) {
            return known.waiting;
        }
        self.peers.get(&replica).map_or(0, |peer| peer.waiting.len() + peer.aside.len())
    }

    /// The counts since the last call.
    pub fn take_counters(&mut self) -> Counters {
        self.output.counters.dedup_waits += self.bodies.references.take_waited();
        core::mem::take(&mut self.output.counters)
    }

    /// A message has arrived from a replica, which was identified by its certificate.
    pub fn handle_frame(&mut self, now: Reading, replica: ReplicaId, frame: Frame<ToOrigin>) {
        if let ToOrigin::Hello { protocol, replica: said, position, committed, only } =
            frame.message
        {
            if said == replica {
                let said = (position, committed, only);
                self.hello(now, replica, frame.session, protocol, said);
                self.note_news(replica, News::Progress);
            } else {
                self.output.events.push_back(Event::Close(replica));
            }
            return;
        }
        let peer = self.peers.get_mut(&replica);
        let linked = peer.and_then(|peer| Some((peer.link.as_mut()?, &mut peer.heard)));
        let Some((link, heard)) = linked.filter(|(link, _)| link.session == frame.session) else {
            self.output.counters.stale_frames += 1;
            return;
        };
        *heard = Some(now.local);
        let news = News::of(&frame.message);
        let mut accounts = matches!(frame.message, ToOrigin::Taken(_) | ToOrigin::Fetched(_));
        let fine = match frame.message {
            ToOrigin::Hello { .. } => false,
            ToOrigin::Ping { sent } => {
                accounts = link.handle_ping(now.local, sent, self.upstream.is_some());
                self.answer_by_itself(now, replica);
                true
            }
            ToOrigin::Ack(committed) => self.acknowledged(replica, committed),
            ToOrigin::Taken(count) => link.pushed.confirm(count),
            ToOrigin::Fetched(count) => link.fetched.confirm(count),
            ToOrigin::Reads(counts) => {
                self.read(now, counts);
                true
            }
            ToOrigin::Demand(path) => {
                self.forget_lost(now, &path);
                self.demand(replica, path)
            }
            ToOrigin::Withdraw(path) => self.withdraw(replica, &path),
            ToOrigin::Lacking(paths) => {
                self.lacking(replica, &paths);
                true
            }
            ToOrigin::Report(report) => {
                self.reported(now, replica, report);
                true
            }
            ToOrigin::Ask { of, part } => link.ask(of, part),
            // Only relays look at it.
            ToOrigin::Relays(_) => true,
            // The daemon keeps the addresses.
            ToOrigin::Share(_) => link.protocol >= WITH_NEIGHBOURS,
            ToOrigin::Vouch(vouch) => self.vouch(replica, &vouch),
            ToOrigin::Below(all) => self.handle_below(now, replica, all),
            ToOrigin::Partial(all) => link.handle_partial(all),
            ToOrigin::Wanted(wanted) => link.handle_wanted(wanted),
            ToOrigin::Price(bytes) => self.handle_price(replica, bytes),
            ToOrigin::Resynced(sequence) => link.handle_resynced(sequence),
        };
        if fine {
            self.note_message(replica, accounts, news);
        } else {
            self.disconnect(replica);
            self.output.events.push_back(Event::Close(replica));
        }
    }

    /// A message that is fine has been handled. `accounts`: it says what has arrived at the replica.
    fn note_message(&mut self, replica: ReplicaId, accounts: bool, news: Option<News>) {
        if accounts {
            self.output.events.push_back(Event::Arrived(replica));
        }
        if let Some(news) = if accounts { Some(News::Progress) } else { news } {
            self.note_news(replica, news);
        }
    }

    /// The connections of a replica have ended. `session` says which ones, so that a late report does not end
    /// a newer connection.
    pub fn handle_disconnected(&mut self, replica: ReplicaId, session: Session) {
        let link = self.peers.get(&replica).and_then(|peer| peer.link.as_ref());
        let same = |link: &Link| {
            (link.session.replica, link.session.connection) == (session.replica, session.connection)
        };
        if link.is_some_and(same) {
            self.disconnect(replica);
        }
    }

    fn disconnect(&mut self, replica: ReplicaId) {
        let Some(peer) = self.peers.get_mut(&replica) else { return };
        let Some(link) = peer.link.take() else { return };
        peer.accounted = link.accounted;
        // Bodies in flight may not have arrived. A body is the current one when it leaves, so the object
        // waits again with its newest version.
        let held: Vec<_> =
            link.demands.held.iter().map(|(path, all)| (path.clone(), all.len())).collect();
        let fetched = link.fetched.paths().chain(link.demands.sending());
        for path in link.pushed.paths().chain(fetched) {
            if let Some(ranked) = self.ranking.get(path) {
                peer.queue(path, ranked.position);
            }
        }
        for (path, count) in held {
            self.forget_held(&path, count);
        }
        self.lose_below(replica);
        self.note_moved();
        self.note_news(replica, News::Progress);
    }

    /// Decides how a replica continues. Its state is compared with the log first: an origin restored from an
    /// old backup must not pass for the one that the replica followed.
    fn hello(
        &mut self,
        now: Reading,
        replica: ReplicaId,
        session: Session,
        protocol: u16,
        (position, committed, only): (Option<Position>, Sequence, Subscription),
    ) {
        let peer = self.peers.entry(replica).or_default();
        let number = (session.replica, session.connection);
        if number <= peer.newest {
            self.output.counters.stale_frames += 1;
            return;
        }
        let before = core::mem::replace(&mut peer.newest, number);
        // Bodies that arrived before their commits are gone with the replica's incarnation.
        let first = before == Default::default() || before.0 != number.0;
        self.disconnect(replica);
        self.subscribe(replica, only);
        self.peers.entry(replica).or_default().price = Price::default();
        let session = Session { origin: self.state.image.incarnation, ..session };
        let verdict = if (OLDEST..=PROTOCOL).contains(&protocol) {
            self.compare(position)
        } else {
            Err(Refusal::Protocol(PROTOCOL))
        };
        let peer = self.peers.entry(replica).or_default();
        match verdict {
            Err(why) => {
                peer.refused = Some((session, why));
                self.output.events.push_back(Event::Turned { replica, why });
            }
            Ok(cursor) => {
                peer.refused = None;
                (peer.committed, peer.heard) = (committed, Some(now.local));
                if position.is_none() {
                    // In order, too: nothing in the log brings them.
                    peer.queue_all(self.ranking.all());
                    self.preparation.filling.extend(peer.filling.is_some().then_some(replica));
                } else if first && !self.config.strategy.is_in_order() {
                    // The replica reports missing bodies only for applied commits. In this incarnation
                    // nothing says which other bodies arrived.
                    for path in self.state.image.newer_than(committed) {
                        if let Some(ranked) = self.ranking.get(path) {
                            peer.queue(path, ranked.position);
                        }
                    }
                }
                let lossy = self.faults.has(Fault::InvalidationLostOnReconnect);
                let last = self.last().sequence;
                let cursor = cursor.map(|cursor| if lossy { last } else { cursor });
                let mut link = Link::new(session, cursor.unwrap_or_default(), now.local);
                // The buffered commits may lack bodies that were in flight.
                link.bodies = link.bodies.min(committed);
                (link.is_new, link.protocol) = (position.is_none(), protocol);
                self.peers.entry(replica).or_default().link = Some(link);
                self.forget_below(replica);
                self.note_moved();
                if cursor.is_none() {
                    self.resync(now, replica);
                }
            }
        }
    }

    /// Where the log continues for a replica at `position`, or none if it does not reach back so far.
    fn compare(&self, position: Option<Position>) -> Result<Option<Sequence>, Refusal> {
        let Some(position) = position else { return Ok(None) };
        if position.sequence > self.last().sequence {
            return Err(Refusal::Ahead(self.last().sequence));
        }
        match self.state.image.chain.at(position.sequence) {
            // The origin has vouched for the replica.
            None if self.upstream.is_some() => Ok(None),
            None => Err(Refusal::Forgotten(self.state.image.chain.first())),
            Some(chain) if chain != position.chain => Err(Refusal::Diverged),
            Some(_) if position.sequence < self.state.image.log_after() => Ok(None),
            Some(_) => Ok(Some(position.sequence)),
        }
    }

    fn acknowledged(&mut self, replica: ReplicaId, committed: Sequence) -> bool {
        let known = committed <= self.last().sequence;
        if let Some(peer) = self.peers.get_mut(&replica)
            && known
            && committed > peer.committed
        {
            peer.committed = committed;
            self.output.events.push_back(Event::Progress { replica, committed });
        }
        known
    }

    fn lacking(&mut self, replica: ReplicaId, paths: &[Path]) {
        let Some(peer) = self.peers.get_mut(&replica) else { return };
        for path in paths {
            if let Some(ranked) = self.ranking.get(path) {
                peer.queue(path, ranked.position);
            }
        }
    }

    /// The next message to a replica on the control channel.
    pub fn poll_control(&mut self, now: Reading, replica: ReplicaId) -> Option<Frame<ToReplica>> {
        let peer = self.peers.get_mut(&replica)?;
        if let Some((session, why)) = peer.refused.take() {
            return Some(Frame { session, message: ToReplica::Refused(why) });
        }
        let link = peer.link.as_mut()?;
        let eager = self.upstream.as_ref().map_or(self.config.strategy.is_eager(), |up| up.eager);
        if let Some(start) = link.greeting.take() {
            return Some(link.frame(ToReplica::Welcome { start, eager }));
        }
        if let Some(path) = link.demands.next_withdrawn() {
            return Some(link.frame(ToReplica::Withdrawn(path)));
        }
        if let Some((question, refusal)) = link.vouched.pop_front() {
            return Some(link.frame(ToReplica::Vouched { question, refusal }));
        }
        if let Some(list) = link.next_urgent_list() {
            return Some(link.frame(list));
        }
        if matches!(link.phase, Phase::Preparing) {
            return None;
        }
        if let Phase::Resyncing { snapshot, .. } = &link.phase {
            if snapshot.position.sequence < self.state.image.log_after() {
                return self.welcome_again(now, replica);
            }
            let message = link.answer(&self.config)?;
            return Some(link.frame(message));
        }
        if self.upstream.is_some() {
            return self.poll_followed(now, replica);
        }
        if link.cursor < self.state.image.last().sequence {
            if self.holds_back(replica) {
                return self.heartbeat_meanwhile(now, replica);
            }
            return self.invalidate(now, replica);
        }
        // After the invalidations, so that it covers all of them.
        if now.local < link.heartbeat_at {
            return None;
        }
        link.heartbeat_at = now.local.plus(self.config.heartbeat);
        let heartbeat = ToReplica::Heartbeat {
            stamp: self.clock.read(now),
            committed: link.cursor,
            echo: link.echo,
        };
        Some(link.frame(heartbeat))
    }

    /// A replica has to compare its tree, with a later one if it does already. None if that has to be made.
    fn welcome_again(&mut self, now: Reading, replica: ReplicaId) -> Option<Frame<ToReplica>> {
        self.resync(now, replica);
        let link = self.peers.get_mut(&replica)?.link.as_mut()?;
        let start = link.greeting.take()?;
        let eager = self.upstream.as_ref().map_or(self.config.strategy.is_eager(), |up| up.eager);
        Some(link.frame(ToReplica::Welcome { start, eager }))
    }

    /// The next invalidation of a replica, or the next part of it.
    fn invalidate(&mut self, now: Reading, replica: ReplicaId) -> Option<Frame<ToReplica>> {
        let link = self.peers.get_mut(&replica)?.link.as_mut()?;
        let Some(entry) = self.state.image.entry(link.cursor.next()) else {
            // It is connected, but reads more slowly than the log advances.
            return self.welcome_again(now, replica);
        };
        let commit = &entry.commit;
        let end = link.part + self.config.first_part(&commit.changes[link.part..]);
        let more = end < commit.changes.len();
        let message = ToReplica::Invalidation {
            sequence: commit.sequence,
            stamp: commit.stamp,
            changes: commit.changes[link.part..end].to_vec(),
            more,
        };
        if more {
            self.output.counters.in_parts += u64::from(link.part == 0);
            link.part = end;
        } else {
            link.part = 0;
            link.cursor = commit.sequence;
        }
        Some(link.frame(message))
    }

    /// The next job of the store.
    pub fn poll_effect(&mut self) -> Option<Effect<P>> {
        // Bodies first: the log refers to them.
        if let Some(effect) = self.bodies.references.poll_effect() {
            return Some(Effect::Body(effect));
        }
        self.pending.append.take().map(Effect::Append)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.output.events.pop_front()
    }

    /// When to call `poll_control` of the replicas again, at the latest.
    pub fn poll_timeout(&self) -> Option<LocalTime> {
        let beats = self.upstream.is_none();
        let streaming = |link: &&Link| beats && matches!(link.phase, Phase::Streaming);
        let links = self.peers.values().filter_map(|peer| peer.link.as_ref());
        links.filter(streaming).map(|link| link.heartbeat_at).min()
    }

    fn period(&self, now: LocalTime) -> u32 {
        let half_life = self.config.half_life.as_nanos().max(1);
        u32::try_from(self.life.lasted(now).as_nanos() / half_life).unwrap_or(u32::MAX)
    }

    fn read(&mut self, now: Reading, counts: Vec<(Path, u32)>) {
        let period = self.period(now.local);
        for (path, count) in counts {
            if let (Some(ranked), Some(version)) =
                (self.ranking.get_mut(&path), self.state.image.objects.get(&path).copied())
            {
                ranked.reads.add(count, period);
                self.rank(&path, version, period);
            }
        }
    }
}
