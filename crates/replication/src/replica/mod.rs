//! The replica: applies the origin's messages in an order that keeps the guarantees, and answers reads (SSR
//! §6.2.1, §6.2.2).
//!
//! Calls report events (`handle_…`) and request actions (`poll_…`) until there are no more. See [`Replica`]
//! for the order.

mod apply;
mod arrivals;
mod bodies;
mod buffer;
mod connection;
mod demands;
mod early;
mod fold;
mod forming;
mod grace;
mod history;
mod image;
mod interface;
mod lacking;
mod link;
mod merging;
mod missing;
mod outage;
mod output;
mod page;
mod paging;
mod partial;
mod past;
mod read_lease;
mod reads;
mod recency;
mod relayed;
mod replaced;
mod resync;
mod room;
mod scheduler;
mod scope;
mod shared_bodies;
mod step;
#[cfg(test)]
mod tests;
mod view;

use core::time::Duration;

use lull_cc::Bytes;

use crate::body_references::BodyReferences;
use crate::faults::Faults;
use crate::message::{Frame, Refusal, Report, Session, Stock, ToOrigin};
use crate::time::{LocalTime, Reading};
use crate::types::{Digest, DiskFull, Position, Sequence};

use apply::{Apply, Partial, Phase, Writing};
use bodies::{Bodies, Unsettled};
pub use buffer::{BodyCount, Garbage};
use buffer::{Buffered, CommitSummary};
use early::Early;
use history::History;
pub use image::{Image, Object, Step};
pub use interface::{Config, Counters, Effect, Event};
use link::{Connection, Link};
use missing::MissingBodies;
pub use outage::Outage;
use outage::OutageState;
use output::Output;
pub use page::{Page, PageItem, PageRequest, above};
pub use past::Holding;
use read_lease::Lease;
pub use read_lease::{Skew, Staleness};
pub use reads::{Answer, Entry, Order, Outcome, ReadId, ReadTarget, Request, WaitReason};
use reads::{Reads, Waiting};
use recency::Recency;
pub(crate) use relayed::Relayed;
use resync::Comparison;

/// The state machine of a replica. `P` is the content of a body or a reference to it; the machine does not
/// look into it.
///
/// Order of calls: first [`recover`](Replica::recover) with the contents of stable storage, then any
/// `handle_…` as events happen, and [`handle_timeout`](Replica::handle_timeout) at the time of
/// [`poll_timeout`](Replica::poll_timeout). After each of them call [`poll_answer`](Replica::poll_answer),
/// then [`poll_effect`](Replica::poll_effect), [`poll_send`](Replica::poll_send) and
/// [`poll_event`](Replica::poll_event), each until it returns none. Answers come first, because an effect may
/// delete a body that an answer names.
///
/// Readers see committed state only: a step becomes visible as a whole when it is on stable storage. So a
/// restart never goes back, and no transaction is seen in part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica<P> {
    config: Config,
    /// The committed state.
    image: Image,
    /// The states before it.
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
    /// A replica that resumes from stable storage: the image, whose incarnation was incremented there, and
    /// the bodies that were found intact. An object without its body is invalid, and is fetched again.
    pub fn recover(
        now: Reading,
        config: Config,
        mut image: Image,
        bodies: impl IntoIterator<Item = (Digest, Bytes)>,
    ) -> Self {
        let mut references = BodyReferences::new(bodies);
        let mut early = Early::default();
        for (path, object) in &mut image.objects {
            let version = object.version;
            let is_stored = references.is_stored(&version.content.digest);
            if is_stored {
                references.refer(&version.content.digest);
            }
            if is_stored && !object.valid {
                // It was received before the last life ended, and may have been reported as stored.
                early.insert(path.clone(), version);
                early.is_late((version.sequence, path.clone()));
            }
            object.valid &= is_stored;
        }
        references.collect();
        references.follow();
        if config.quota.is_some() {
            references.follow_references();
            early.follow();
        }
        let mut replica = Replica {
            config,
            history: History::new(now.wall, config.step_slice),
            apply: Apply::default(),
            bodies: Bodies::new(references, early),
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
            self.bodies.enter(path, object);
            if object.valid && self.config.quota.is_some() {
                self.recency.touch(path);
            }
        }
    }

    /// Seeds a bug.
    pub fn seed_fault(&mut self, fault: Option<crate::Fault>) {
        self.faults = Faults::seeded(fault);
    }

    /// The lease of an earlier life continues: a part of the bug in which a restart goes back.
    pub fn keep_lease(&mut self, before: &Self) {
        self.lease = before.lease.clone();
    }

    /// The committed state, without the part of a large visible step that is still to be applied.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The position of the committed state.
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

    /// Whether the origin has accepted this connection.
    pub fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    /// The session for the other connections of this replica, if the origin has accepted it.
    pub fn session(&self) -> Option<Session> {
        self.connection.session()
    }

    /// Why the origin does not talk to this replica, if it has said so.
    pub fn refusal(&self) -> Option<Refusal> {
        self.connection.refusal()
    }

    /// An upper bound of the staleness; none if nothing is known since the start. Announced commits that wait
    /// for a body or for the disk are not included in the state.
    pub fn staleness(&self, now: LocalTime) -> Option<Duration> {
        self.reflects().map(|reflects| now.since(reflects))
    }

    /// All writes acknowledged before this time are in the state.
    fn reflects(&self) -> Option<LocalTime> {
        let reflects = self.lease.covered()?;
        self.apply.buffer.front().map_or(Some(reflects), |front| Some(reflects.min(front.said?)))
    }

    /// How many objects there are, and how many of their bodies are here.
    pub fn stock(&self) -> Stock {
        self.bodies.scope.add_to(self.bodies.stock)
    }

    /// The number of bodies of received commits that are not applied so far, and of those that are missing
    /// here.
    pub fn buffered_bodies(&self) -> (BodyCount, BodyCount) {
        self.apply.buffer.bodies()
    }

    /// The report of this replica's state to the origin.
    fn report(&self, now: LocalTime) -> Report {
        let until = self.lease.covered().map(|said| self.lease.deadline(said, false));
        // Commits acknowledged before the first waiting commit was made are in the state.
        let waits = self.apply.buffer.front().map(|front| front.stamp);
        Report {
            reflects: self.lease.stamp().map(|told| waits.map_or(told, |waits| waits.min(told))),
            lasts: until.unwrap_or(Some(now)).map(|until| until.since(now)),
            skew: self.skew(now).map(|skew| (skew.least, skew.most)),
            stock: self.stock(),
        }
    }

    /// Bounds of how far this machine's wall clock is ahead of the origin's.
    pub fn skew(&self, now: LocalTime) -> Option<Skew> {
        self.lease.skew(now)
    }

    /// Reads that wait.
    pub fn waiting(&self) -> usize {
        self.reads.len()
    }

    /// Bytes in the store of bodies, with those on their way into and out of it.
    pub fn bytes(&self) -> Bytes {
        self.bodies.references.bytes()
    }

    /// The counts since the last call.
    pub fn take_counters(&mut self) -> Counters {
        self.output.counters.dedup_waits += self.bodies.references.take_waited();
        core::mem::take(&mut self.output.counters)
    }

    /// The time of [`poll_timeout`](Replica::poll_timeout) has come. A late call does no harm: each read
    /// checks the time itself.
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
        self.missing.unanswered.expire(now.local);
        self.withdraw(now.local);
        self.ask_again(now.local);
        self.request_scan();
        self.go_on_with_step(now);
        self.advance(now.local);
        self.wake(now.local);
    }

    /// When to call [`handle_timeout`](Replica::handle_timeout), at the latest.
    pub fn poll_timeout(&self) -> Option<LocalTime> {
        let deadline = match (self.apply.buffer.front(), &self.apply.writing) {
            // A step that is being written comes first, and not by waiting.
            (Some(front), None) => self.deadline(front),
            _ => None,
        };
        let deadline = deadline.map(|at| self.apply.retry_at.map_or(at, |retry| at.max(retry)));
        let grace = self.bodies.expires_at();
        let again = self.missing.unanswered.first();
        let left = self.missing.demands.first_left().map(|since| since.plus(self.config.linger));
        let history = self.history.until();
        let link = self.link_timeout();
        let rest = self.bodies.unsettled.as_ref().map(|rest| rest.since);
        let rest = rest.or_else(|| self.in_slices()).or_else(|| self.apply.buffer.swept_since());
        let rest = rest.or_else(|| self.compares_since());
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

    /// The next job of the store.
    pub fn poll_effect(&mut self) -> Option<Effect<P>> {
        if let Some(effect) = self.bodies.references.poll_effect() {
            return Some(Effect::Body(effect));
        }
        self.apply.effects.pop_front().map(Effect::Commit)
    }

    /// A read that was answered.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.reads.poll_answer()
    }

    /// Whether [`poll_send`](Replica::poll_send) has a message: waking its caller takes longer than a read.
    pub fn has_to_send(&self) -> bool {
        !self.connection.outbox.is_empty()
    }

    /// The next message to the origin on the control channel.
    pub fn poll_send(&mut self) -> Option<Frame<ToOrigin>> {
        self.connection.poll_send()
    }

    /// The data to drop when others do not wait for the replica.
    pub fn poll_garbage(&mut self) -> Option<Garbage> {
        self.output.garbage.pop()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.output.events.pop_front()
    }

    /// The store has a body, or no room for it.
    pub fn handle_stored(&mut self, now: Reading, digest: &Digest, outcome: Result<(), DiskFull>) {
        self.bodies.references.handle_stored(digest, outcome);
        match outcome {
            Ok(()) => {
                self.force_for_stored(digest);
                self.expose_early(digest);
                if self.bodies.references.is_stored(digest) {
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
        self.report_taken();
        self.leave(digest);
        self.greet();
        self.advance(now.local);
    }

    /// The store has deleted a body.
    pub fn handle_dropped(&mut self, digest: &Digest) {
        self.bodies.references.handle_dropped(digest);
        self.report_taken();
        self.leave(digest);
        self.greet();
    }
}
