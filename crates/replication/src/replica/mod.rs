//! The replica: applies what comes from the origin in an order that keeps the promises, and answers
//! reads (SSR §6.2.1, §6.2.2).
//!
//! Calls say what has happened, `handle_…`; what is to be done is asked for, `poll_…`, until there
//! is nothing more. See [`Replica`] for the order.

mod arrivals;
mod buffer;
mod connection;
mod demands;
mod early;
mod elsewhere;
mod fold;
mod forming;
mod garbage;
mod history;
mod image;
mod interface;
mod lacking;
mod lease;
mod outage;
mod reads;
mod replaced;
mod resync;
mod room;
mod scheduler;
mod step;
#[cfg(test)]
mod tests;
mod view;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use lull_cc::Bytes;

use crate::faults::Faults;
use crate::lane::Lane;
use crate::message::{Frame, Refusal, Report, Session, Stock, ToOrigin};
use crate::path::Path;
use crate::shelf::Shelf;
use crate::time::{LocalTime, Reading, WallTime};
use crate::types::{Digest, DiskFull, Incarnation, NextPosition, Position, Sequence};

use arrivals::Arrivals;
pub use buffer::BodyCount;
use buffer::{About, Buffer, Buffered};
use demands::Demands;
use early::Early;
use elsewhere::Bodiless;
use fold::Fold;
use forming::Forming;
pub use garbage::Garbage;
use history::History;
pub use history::Holding;
pub use image::{Image, Object, Step};
pub use interface::{Config, Counters, Effect, Event};
use lease::Lease;
pub use lease::{Skew, Staleness};
pub use outage::Outage;
use reads::Waiting;
pub use reads::{Answer, Entry, Order, Outcome, ReadId, Request, What, Why};
use replaced::Replaced;
use resync::{Leaves, Resync};

/// A commit of which the last part is still to come. Its changes are in the buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Partial {
    sequence: Sequence,
    stamp: WallTime,
    /// Where it leads with the parts that have come.
    next: NextPosition,
}

/// Early bodies of commits of the state that are still to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unsettled {
    /// Those behind this one in their order.
    from: (Sequence, Option<Path>),
    since: LocalTime,
}

/// How far a step is.
///
/// ```text
///   Forming ──▶ OnDisk ──▶ Shown
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    /// It is made, in slices.
    Forming(Forming),
    /// The store writes it.
    #[default]
    OnDisk,
    /// Readers see it, and it is taken over into the state, in slices.
    Shown,
}

/// A step that is being made, written or taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Writing {
    step: Arc<Step>,
    phase: Phase,
    /// Since when it is formed or shown.
    since: LocalTime,
    /// There was no state before.
    first: bool,
    /// Commits of the buffer that it contains.
    commits: usize,
    resync: bool,
    /// Bodies of the states between its commits.
    between: Vec<Digest>,
    /// It is visible already, which it should not be.
    exposed: bool,
    /// Bodies that were lost meanwhile: what it refers to of them is nothing any more, also if they are
    /// here again when it is on the disk.
    lost: BTreeSet<Digest>,
}

/// ```text
///            handle_connected        Welcome
///   Away ──────────────────▶ Greeting ──────▶ Connected
///    ▲                          │  Refused        │
///    │ handle_disconnected,     ▼                 │
///    └── silence, nonsense ── Turned ◀────────────┘ (Refused)
/// ```
///
/// Only `Connected` has the small Δ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Link {
    /// There is no connection.
    Away,
    /// Hello was said.
    Greeting,
    /// The origin talks to this replica.
    Connected(Session),
    /// The origin does not.
    Turned(Refusal),
}

/// The state machine of a replica. `P` is whatever bodies are made of, or point to; it is not looked
/// into.
///
/// Order of calls: [`recover`](Replica::recover) with what is on stable storage; then any `handle_…`
/// as things happen, [`handle_timeout`](Replica::handle_timeout) when the time of
/// [`poll_timeout`](Replica::poll_timeout) has come. After each of them
/// [`poll_answer`](Replica::poll_answer), then [`poll_effect`](Replica::poll_effect),
/// [`poll_send`](Replica::poll_send) and [`poll_event`](Replica::poll_event), each until it gives
/// none. Answers come first, because an effect may delete a body that an answer names.
///
/// Readers see committed state only: what a step says becomes visible when it is on stable storage,
/// all of it at once. So a restart never goes back, and a transaction is never seen by half.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica<P> {
    config: Config,
    incarnation: Incarnation,
    /// The committed state.
    image: Image,
    /// Those before it.
    history: History,
    /// Commits that were received and are not in the state.
    buffer: Buffer,
    /// Since they were looked through for one to apply them up to.
    events_since_look: usize,
    partial: Option<Partial>,
    /// Commits up to here are applied without waiting for their bodies.
    force: Sequence,
    /// And so are those up to what reads that wait have seen elsewhere, if all of it is here: a token may
    /// speak of what never comes.
    awaited: BTreeSet<Sequence>,
    early: Early,
    replaced: Replaced,
    /// The last step has brought more into the state than was looked at for early bodies.
    unsettled: Option<Unsettled>,
    shelf: Shelf<P>,
    writing: Option<Writing>,
    fold: Fold,
    garbage: Vec<Garbage>,
    resync: Option<Resync>,
    /// Leaves that a comparison was told before its connection broke.
    told: Leaves,
    /// The origin may not know which bodies are lacking here; and when that was said last.
    untold: bool,
    told_at: LocalTime,
    lease: Lease,
    link: Link,
    connection: u32,
    /// The life of the origin that was last talked to.
    origin: Option<Incarnation>,
    /// Whether it wants invalidations applied as they come.
    eager: bool,
    /// Speculative bodies of this connection, and those that it was asked for.
    pushed: Arrivals,
    fetched: Arrivals,
    /// Bodies of earlier connections that are in memory until the store has them: only then hello is said,
    /// because the origin sends as many again.
    left: BTreeSet<Digest>,
    /// Hello is still to be said.
    silent: bool,
    heard: LocalTime,
    ping_at: LocalTime,
    report_at: LocalTime,
    stock: Stock,
    bodiless: Bodiless,
    retry_at: Option<LocalTime>,
    /// The disk is taken for full until then.
    full_until: Option<LocalTime>,
    waiting: VecDeque<Waiting>,
    /// Since when there is no connection.
    away_since: Option<LocalTime>,
    /// When a read first had to wait for one since then. While there is one: that of a read that was given up,
    /// which is of interest if the origin has said nothing more.
    unmasked: Option<LocalTime>,
    /// Bodies that were asked for.
    demands: Demands,
    /// A read that waits needs one that its lane has no room for: those behind it ask for none of that either.
    held_back: [bool; Lane::COUNT],
    /// Objects that the origin had no body for, and until when it is not asked again.
    unanswered: BTreeMap<Path, LocalTime>,
    /// Of these, those that it has lost, and in which version.
    lost: BTreeMap<Path, Sequence>,
    /// Versions whose bodies came and found no room on the disk, or broke off with their connection: the
    /// origin is to send them again.
    turned_away: BTreeMap<Path, Sequence>,
    /// Versions whose bodies came on this connection with other bytes.
    spoiled: BTreeMap<Path, Sequence>,
    reads: BTreeMap<Path, u32>,
    /// Bodies that were overwritten, by when they are given up.
    grace: VecDeque<(LocalTime, Digest)>,
    recent: BTreeMap<u64, Path>,
    used: BTreeMap<Path, u64>,
    uses: u64,
    skew_told: bool,
    outbox: VecDeque<ToOrigin>,
    effects: VecDeque<Arc<Step>>,
    answers: VecDeque<Answer>,
    events: VecDeque<Event>,
    counters: Counters,
    faults: Faults,
}

impl<P: Clone> Replica<P> {
    /// A replica that goes on with what is on stable storage: the image, whose incarnation was
    /// counted up there, and the bodies that were found intact. An object whose body is not among
    /// them is invalid, and fetched again.
    pub fn recover(
        now: Reading,
        config: Config,
        mut image: Image,
        bodies: impl IntoIterator<Item = (Digest, Bytes)>,
    ) -> Self {
        let mut shelf = Shelf::new(bodies);
        let mut early = Early::default();
        for (path, object) in &mut image.objects {
            let version = object.version;
            let is_stored = shelf.is_stored(&version.content.digest);
            if is_stored {
                shelf.refer(&version.content.digest);
            }
            if is_stored && !object.valid {
                // It came before the last life ended, and may have been said to be here.
                early.insert(path.clone(), version);
                early.is_late((version.sequence, path.clone()));
            }
            object.valid &= is_stored;
        }
        shelf.collect();
        shelf.follow();
        if config.quota.is_some() {
            shelf.follow_references();
            early.follow();
        }
        let mut replica = Replica {
            config,
            incarnation: image.incarnation,
            history: History::new(now.wall, config.step_slice),
            buffer: Buffer::default(),
            events_since_look: 0,
            partial: None,
            force: Sequence::ZERO,
            awaited: BTreeSet::new(),
            early,
            replaced: Replaced::default(),
            unsettled: None,
            shelf,
            writing: None,
            fold: Fold::default(),
            garbage: Vec::new(),
            resync: None,
            told: Leaves::new(),
            untold: false,
            told_at: now.local,
            lease: Lease::new(now, config.staleness),
            link: Link::Away,
            connection: 0,
            origin: None,
            eager: false,
            pushed: Arrivals::default(),
            fetched: Arrivals::default(),
            left: BTreeSet::new(),
            silent: false,
            heard: now.local,
            ping_at: now.local,
            report_at: now.local,
            stock: Stock::default(),
            bodiless: Bodiless::default(),
            retry_at: None,
            full_until: None,
            waiting: VecDeque::new(),
            away_since: Some(now.local),
            unmasked: None,
            demands: Demands::new(config.lanes),
            held_back: Default::default(),
            unanswered: BTreeMap::new(),
            lost: BTreeMap::new(),
            turned_away: BTreeMap::new(),
            spoiled: BTreeMap::new(),
            reads: BTreeMap::new(),
            grace: VecDeque::new(),
            recent: BTreeMap::new(),
            used: BTreeMap::new(),
            uses: 0,
            skew_told: false,
            outbox: VecDeque::new(),
            effects: VecDeque::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            faults: Faults::default(),
            image,
        };
        for (path, object) in &replica.image.objects {
            replica.stock.add(object);
            replica.bodiless.add(path, object);
        }
        if config.quota.is_some() {
            let valid = replica.image.objects.iter().filter(|(_, object)| object.valid);
            let paths: Vec<_> = valid.map(|(path, _)| path.clone()).collect();
            paths.iter().for_each(|path| replica.touch(path));
        }
        replica
    }

    /// Sows a bug.
    pub fn sow(&mut self, fault: Option<crate::Fault>) {
        self.faults = Faults::seeded(fault);
    }

    /// The lease of an earlier life goes on: a part of the bug of restarts that go back.
    pub fn keep_lease(&mut self, before: &Self) {
        self.lease = before.lease.clone();
    }

    /// The committed state, without what is still to be taken over of a large step that is shown.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Where the committed state is.
    pub fn position(&self) -> Sequence {
        self.image.position.map_or(Sequence::ZERO, |position| position.sequence)
    }

    /// Up to where invalidations were received.
    pub fn received(&self) -> Sequence {
        self.received_position().map_or(Sequence::ZERO, |position| position.sequence)
    }

    fn received_position(&self) -> Option<Position> {
        self.buffer.back().map(|last| last.position).or(self.image.position)
    }

    /// Whether the origin talks to this replica.
    pub fn is_connected(&self) -> bool {
        matches!(self.link, Link::Connected(_))
    }

    /// What the other connections of this one are to show, if the origin talks to this replica.
    pub fn session(&self) -> Option<Session> {
        match self.link {
            Link::Connected(session) => Some(session),
            _ => None,
        }
    }

    /// Why the origin does not talk to this replica, if it has said so.
    pub fn refusal(&self) -> Option<Refusal> {
        match self.link {
            Link::Turned(why) => Some(why),
            _ => None,
        }
    }

    /// How stale the state may be at most; none if nothing is known since the start. What was told of and
    /// waits, for its body or for the disk, is not in it.
    pub fn staleness(&self, now: LocalTime) -> Option<Duration> {
        self.reflects().map(|reflects| now.since(reflects))
    }

    /// Whatever was acknowledged before then is in the state.
    fn reflects(&self) -> Option<LocalTime> {
        let reflects = self.lease.covered()?;
        self.buffer.front().map_or(Some(reflects), |front| Some(reflects.min(front.said?)))
    }

    /// How many objects there are, and how many of them have their bodies here.
    pub fn stock(&self) -> Stock {
        self.stock
    }

    /// The bodies of the commits that were received and are not applied yet, and those that are not here.
    pub fn buffered_bodies(&self) -> (BodyCount, BodyCount) {
        self.buffer.bodies()
    }

    /// What the origin is told of how this replica is.
    fn report(&self, now: LocalTime) -> Report {
        let until = self.lease.covered().map(|said| self.lease.deadline(said, false));
        // What was acknowledged before the first commit that waits was made is in the state.
        let waits = self.buffer.front().map(|front| front.stamp);
        Report {
            reflects: self.lease.stamp().map(|told| waits.map_or(told, |waits| waits.min(told))),
            lasts: until.unwrap_or(Some(now)).map(|until| until.since(now)),
            skew: self.skew(now).map(|skew| (skew.least, skew.most)),
            stock: self.stock,
        }
    }

    /// Bounds of how far this machine's wall clock is ahead of the origin's.
    pub fn skew(&self, now: LocalTime) -> Option<Skew> {
        self.lease.skew(now)
    }

    /// Reads that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes in the store of bodies, with those on their way into and out of it.
    pub fn bytes(&self) -> Bytes {
        self.shelf.bytes()
    }

    /// The counts since the last call.
    pub fn take_counters(&mut self) -> Counters {
        self.counters.dedup_waits += self.shelf.take_waited();
        core::mem::take(&mut self.counters)
    }

    /// The time of [`poll_timeout`](Replica::poll_timeout) has come. Nothing breaks if it comes late:
    /// each read looks at the time itself.
    pub fn handle_timeout(&mut self, now: Reading) {
        self.handle_link_timeout(now);
        for _ in 0..self.config.step_slice {
            let over = self.grace.pop_front_if(|(until, _)| *until <= now.local);
            let Some((_, digest)) = over else { break };
            self.shelf.release(&digest);
        }
        self.history.expire(now.local);
        if self.retry_at.is_some_and(|at| at <= now.local) {
            self.retry_at = None;
        }
        self.unanswered.retain(|_, until| *until > now.local);
        self.withdraw(now.local);
        self.ask_again(now.local);
        self.look_through();
        self.go_on_with_step(now);
        self.advance(now.local);
        self.wake(now.local);
    }

    /// When to call [`handle_timeout`](Replica::handle_timeout), at the latest.
    pub fn poll_timeout(&self) -> Option<LocalTime> {
        let deadline = match (self.buffer.front(), &self.writing) {
            // A step that is being written comes first, and does not come by waiting.
            (Some(front), None) => self.deadline(front),
            _ => None,
        };
        let deadline = deadline.map(|at| self.retry_at.map_or(at, |retry| at.max(retry)));
        let grace = self.grace.front().map(|(until, _)| *until);
        let again = self.unanswered.values().min().copied();
        let left = self.demands.first_left().map(|since| since.plus(self.config.linger));
        let history = self.history.until();
        let link = self.link_timeout();
        let rest = self.unsettled.as_ref().map(|rest| rest.since);
        let rest = rest.or_else(|| self.in_slices()).or_else(|| self.buffer.swept_since());
        let all =
            [rest, link, deadline, grace, history, self.retry_at, self.full_until, again, left];
        all.into_iter().flatten().min()
    }

    /// What a store is to do next.
    pub fn poll_effect(&mut self) -> Option<Effect<P>> {
        if let Some(effect) = self.shelf.poll_effect() {
            return Some(Effect::Body(effect));
        }
        self.effects.pop_front().map(Effect::Commit)
    }

    /// A read that was answered.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Whether [`poll_send`](Replica::poll_send) has something: to wake who asks it takes longer than a read.
    pub fn has_to_send(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// What is to be said to the origin next, on the control channel.
    pub fn poll_send(&mut self) -> Option<Frame<ToOrigin>> {
        let message = self.outbox.pop_front()?;
        let session = match self.link {
            Link::Connected(session) => session,
            Link::Away | Link::Greeting | Link::Turned(_) => Session {
                origin: Incarnation::default(),
                replica: self.incarnation,
                connection: self.connection,
            },
        };
        Some(Frame { session, message })
    }

    /// What has come about.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The store has a body, or no room for it.
    pub fn handle_stored(&mut self, now: Reading, digest: &Digest, outcome: Result<(), DiskFull>) {
        self.shelf.handle_stored(digest, outcome);
        match outcome {
            Ok(()) => {
                self.force_for_stored(digest);
                self.expose_early(digest);
                if self.shelf.is_stored(digest) {
                    self.late_with(digest);
                    self.take_over_all(now.local, digest);
                }
                self.ask_again(now.local);
            }
            Err(DiskFull) => {
                self.forget_early(digest);
                self.disk_full(now.local);
            }
        }
        self.tell_taken();
        self.leave(digest);
        self.greet();
        self.advance(now.local);
    }

    /// The store has deleted a body.
    pub fn handle_dropped(&mut self, digest: &Digest) {
        self.shelf.handle_dropped(digest);
        self.tell_taken();
        self.leave(digest);
        self.greet();
    }
}
