//! The replica: applies what comes from the origin in an order that keeps the promises, and answers
//! reads (SSR §6.2.1, §6.2.2).
//!
//! Calls say what has happened, `handle_…`; what is to be done is asked for, `poll_…`, until there
//! is nothing more. See [`Replica`] for the order.

mod apply;
mod arrivals;
mod bodies;
mod buffer;
mod connection;
mod demands;
mod early;
mod elsewhere;
mod fold;
mod forming;
mod history;
mod image;
mod interface;
mod lacking;
mod lease;
mod link;
mod missing;
mod outage;
mod output;
mod past;
mod reads;
mod recency;
mod replaced;
mod resync;
mod room;
mod scheduler;
mod step;
#[cfg(test)]
mod tests;
mod view;

use core::time::Duration;

use lull_cc::Bytes;

use crate::faults::Faults;
use crate::message::{Frame, Refusal, Report, Session, Stock, ToOrigin};
use crate::shelf::Shelf;
use crate::time::{LocalTime, Reading};
use crate::types::{Digest, DiskFull, Position, Sequence};

use apply::{Apply, Partial, Phase, Writing};
use bodies::{Bodies, Unsettled};
use buffer::{About, Buffered};
pub use buffer::{BodyCount, Garbage};
use early::Early;
use history::History;
pub use image::{Image, Object, Step};
pub use interface::{Config, Counters, Effect, Event};
use lease::Lease;
pub use lease::{Skew, Staleness};
use link::{Connection, Link};
use missing::MissingBodies;
pub use outage::Outage;
use outage::OutageState;
use output::Output;
pub use past::Holding;
pub use reads::{Answer, Entry, Order, Outcome, ReadId, Request, What, Why};
use reads::{Reads, Waiting};
use recency::Recency;
use resync::Comparison;

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
    /// The committed state.
    image: Image,
    /// Those before it.
    history: History,
    /// Commits that are not in the state.
    apply: Apply,
    bodies: Bodies<P>,
    missing: MissingBodies,
    recency: Recency,
    reads: Reads,
    connection: Connection,
    lease: Lease,
    /// The comparison with an origin whose log begins later.
    comparison: Comparison,
    outage: OutageState,
    output: Output,
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
            history: History::new(now.wall, config.step_slice),
            apply: Apply::default(),
            bodies: Bodies::new(shelf, early),
            missing: MissingBodies::new(config.lanes),
            recency: Recency::default(),
            reads: Reads::default(),
            connection: Connection::new(now.local, image.incarnation),
            lease: Lease::new(now, config.staleness),
            comparison: Comparison::new(now.local),
            outage: OutageState::new(now.local),
            output: Output::default(),
            faults: Faults::default(),
            image,
        };
        replica.count_stock();
        replica
    }

    /// Counts the objects of a state that was read from the disk.
    fn count_stock(&mut self) {
        for (path, object) in &self.image.objects {
            self.bodies.stock.add(object);
            self.bodies.bodiless.add(path, object);
            if object.valid && self.config.quota.is_some() {
                self.recency.touch(path);
            }
        }
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
        self.apply.received(self.image.position)
    }

    /// Whether the origin talks to this replica.
    pub fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    /// What the other connections of this one are to show, if the origin talks to this replica.
    pub fn session(&self) -> Option<Session> {
        self.connection.session()
    }

    /// Why the origin does not talk to this replica, if it has said so.
    pub fn refusal(&self) -> Option<Refusal> {
        self.connection.refusal()
    }

    /// How stale the state may be at most; none if nothing is known since the start. What was told of and
    /// waits, for its body or for the disk, is not in it.
    pub fn staleness(&self, now: LocalTime) -> Option<Duration> {
        self.reflects().map(|reflects| now.since(reflects))
    }

    /// Whatever was acknowledged before then is in the state.
    fn reflects(&self) -> Option<LocalTime> {
        let reflects = self.lease.covered()?;
        self.apply.buffer.front().map_or(Some(reflects), |front| Some(reflects.min(front.said?)))
    }

    /// How many objects there are, and how many of them have their bodies here.
    pub fn stock(&self) -> Stock {
        self.bodies.stock
    }

    /// The bodies of the commits that were received and are not applied yet, and those that are not here.
    pub fn buffered_bodies(&self) -> (BodyCount, BodyCount) {
        self.apply.buffer.bodies()
    }

    /// What the origin is told of how this replica is.
    fn report(&self, now: LocalTime) -> Report {
        let until = self.lease.covered().map(|said| self.lease.deadline(said, false));
        // What was acknowledged before the first commit that waits was made is in the state.
        let waits = self.apply.buffer.front().map(|front| front.stamp);
        Report {
            reflects: self.lease.stamp().map(|told| waits.map_or(told, |waits| waits.min(told))),
            lasts: until.unwrap_or(Some(now)).map(|until| until.since(now)),
            skew: self.skew(now).map(|skew| (skew.least, skew.most)),
            stock: self.bodies.stock,
        }
    }

    /// Bounds of how far this machine's wall clock is ahead of the origin's.
    pub fn skew(&self, now: LocalTime) -> Option<Skew> {
        self.lease.skew(now)
    }

    /// Reads that wait.
    pub fn waiting(&self) -> usize {
        self.reads.waiting.len()
    }

    /// Bytes in the store of bodies, with those on their way into and out of it.
    pub fn bytes(&self) -> Bytes {
        self.bodies.shelf.bytes()
    }

    /// The counts since the last call.
    pub fn take_counters(&mut self) -> Counters {
        self.output.counters.dedup_waits += self.bodies.shelf.take_waited();
        core::mem::take(&mut self.output.counters)
    }

    /// The time of [`poll_timeout`](Replica::poll_timeout) has come. Nothing breaks if it comes late:
    /// each read looks at the time itself.
    pub fn handle_timeout(&mut self, now: Reading) {
        self.handle_link_timeout(now);
        for _ in 0..self.config.step_slice {
            if !self.bodies.expire(now.local) {
                break;
            }
        }
        self.history.expire(now.local);
        if self.apply.retry_at.is_some_and(|at| at <= now.local) {
            self.apply.retry_at = None;
        }
        self.missing.unanswered.retain(|_, until| *until > now.local);
        self.withdraw(now.local);
        self.ask_again(now.local);
        self.look_through();
        self.go_on_with_step(now);
        self.advance(now.local);
        self.wake(now.local);
    }

    /// When to call [`handle_timeout`](Replica::handle_timeout), at the latest.
    pub fn poll_timeout(&self) -> Option<LocalTime> {
        let deadline = match (self.apply.buffer.front(), &self.apply.writing) {
            // A step that is being written comes first, and does not come by waiting.
            (Some(front), None) => self.deadline(front),
            _ => None,
        };
        let deadline = deadline.map(|at| self.apply.retry_at.map_or(at, |retry| at.max(retry)));
        let grace = self.bodies.expires_at();
        let again = self.missing.unanswered.values().min().copied();
        let left = self.missing.demands.first_left().map(|since| since.plus(self.config.linger));
        let history = self.history.until();
        let link = self.link_timeout();
        let rest = self.bodies.unsettled.as_ref().map(|rest| rest.since);
        let rest = rest.or_else(|| self.in_slices()).or_else(|| self.apply.buffer.swept_since());
        let all = [
            rest,
            link,
            deadline,
            grace,
            history,
            self.apply.retry_at,
            self.bodies.full_until,
            again,
            left,
        ];
        all.into_iter().flatten().min()
    }

    /// What a store is to do next.
    pub fn poll_effect(&mut self) -> Option<Effect<P>> {
        if let Some(effect) = self.bodies.shelf.poll_effect() {
            return Some(Effect::Body(effect));
        }
        self.apply.effects.pop_front().map(Effect::Commit)
    }

    /// A read that was answered.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.reads.answers.pop_front()
    }

    /// Whether [`poll_send`](Replica::poll_send) has something: to wake who asks it takes longer than a read.
    pub fn has_to_send(&self) -> bool {
        !self.connection.outbox.is_empty()
    }

    /// What is to be said to the origin next, on the control channel.
    pub fn poll_send(&mut self) -> Option<Frame<ToOrigin>> {
        self.connection.poll_send()
    }

    /// What to drop when others do not wait for the replica.
    pub fn poll_garbage(&mut self) -> Option<Garbage> {
        self.output.garbage.pop()
    }

    /// What has come about.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.output.events.pop_front()
    }

    /// The store has a body, or no room for it.
    pub fn handle_stored(&mut self, now: Reading, digest: &Digest, outcome: Result<(), DiskFull>) {
        self.bodies.shelf.handle_stored(digest, outcome);
        match outcome {
            Ok(()) => {
                self.force_for_stored(digest);
                self.expose_early(digest);
                if self.bodies.shelf.is_stored(digest) {
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
        self.bodies.shelf.handle_dropped(digest);
        self.tell_taken();
        self.leave(digest);
        self.greet();
    }
}
