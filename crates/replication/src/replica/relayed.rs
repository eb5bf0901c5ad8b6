//! The bodies that a relay has received and passes on to the replicas below it.

use core::time::Duration;
use std::collections::VecDeque;

use super::Replica;
use crate::message::{Refusal, Session, ToOrigin, Urgent};
use crate::path::Path;
use crate::subscription::Subscription;
use crate::time::{LocalTime, WallTime};
use crate::types::{Change, Commit, Digest, Position, ReplicaId, Sequence, Version};

/// Something that a relay passes on, in the order in which it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Relayed {
    /// All of a commit was received.
    Commit(Commit),
    /// A heartbeat. Its echo is the time of a ping of this life.
    Heartbeat { stamp: WallTime, committed: Sequence, echo: Option<LocalTime> },
    /// A body was stored, or is stored no longer.
    Body { digest: Digest, is_stored: bool },
    /// The origin has lost the body of a version.
    Lost { path: Path, sequence: Sequence },
    /// The answer to a question about another replica.
    Vouched { question: u64, refusal: Option<Refusal> },
    /// Publications that are urgent for replicas below.
    Urgent(Vec<Urgent>),
}

/// The additional state of a replica that is a relay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Relaying {
    pub(super) queue: VecDeque<Relayed>,
    /// The changes of a commit so far.
    pub(super) changes: Vec<Change>,
    /// This relay and those below it.
    pub(super) relays: Vec<ReplicaId>,
    /// When the last ping was sent.
    pub(super) pinged: Option<LocalTime>,
    /// A ping was sent since the last look.
    pub(super) has_pinged: bool,
}

impl<P: Clone> Replica<P> {
    /// How often a ping may be sent for another replica, as a part of the usual pause.
    const PINGS: u32 = 10;

    /// From now on this is a relay: before its first connection.
    pub(crate) fn begin_relaying(&mut self) {
        let relays = vec![self.config.replica];
        self.output.relaying = Some(Relaying { relays, ..Relaying::default() });
    }

    /// The next one.
    pub(crate) fn poll_relayed(&mut self) -> Option<Relayed> {
        self.output.relaying.as_mut()?.queue.pop_front()
    }

    /// Notes the bodies that have turned since the last event.
    pub(crate) fn look_at_bodies(&mut self) {
        self.follow_shelf();
    }

    /// Whether a ping was sent since the last call.
    pub(crate) fn take_pinged(&mut self) -> bool {
        let relaying = self.output.relaying.as_mut();
        relaying.is_some_and(|relaying| core::mem::take(&mut relaying.has_pinged))
    }

    /// The names whose bodies it gets and keeps; none if it has a quota.
    pub(crate) fn kept_names(&self) -> Option<Subscription> {
        self.config.quota.is_none().then(|| self.bodies.scope.only().clone())
    }

    /// Its number at the origin.
    pub(crate) fn id(&self) -> ReplicaId {
        self.config.replica
    }

    /// The present connection, and whether invalidations are to be applied as they come.
    pub(crate) fn upstream(&self) -> Option<(Session, bool)> {
        self.session().map(|session| (session, self.connection.eager))
    }

    /// Whether it compares its state with the origin's.
    pub(crate) fn is_comparing(&self) -> bool {
        self.comparison.resync.is_some()
    }

    /// The position of its state, while none is being taken over.
    pub(crate) fn whole_position(&self) -> Option<Position> {
        self.image.position.filter(|_| !self.apply.fold.is_open())
    }

    /// The objects of its state.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&Path, &Version)> {
        self.image.objects.iter().map(|(path, object)| (path, &object.version))
    }

    /// The bodies in its store.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &Digest> {
        self.bodies.references.stored()
    }

    /// Relays are below this one now, each at most once.
    pub(crate) fn set_relays(&mut self, below: impl Iterator<Item = ReplicaId>) {
        let all: Vec<_> = core::iter::once(self.config.replica).chain(below).collect();
        let Some(relaying) = &mut self.output.relaying else { return };
        let before = core::mem::replace(&mut relaying.relays, all);
        let is_new = before != relaying.relays;
        if is_new && self.connection.is_open() && !self.connection.owes_hello {
            self.report_relays();
        }
    }

    /// A parent that is among them refuses this relay.
    pub(super) fn report_relays(&mut self) {
        if let Some(relaying) = &self.output.relaying {
            self.connection.outbox.push_back(ToOrigin::Relays(relaying.relays.clone()));
        }
    }

    /// Sends a message of a replica below.
    pub(crate) fn say(&mut self, message: ToOrigin) {
        if self.is_connected() {
            self.connection.outbox.push_back(message);
        }
    }

    /// A replica below needs a heartbeat: the next ping is sent soon.
    pub(crate) fn ping_soon(&mut self, now: LocalTime) {
        if !self.is_connected() {
            return;
        }
        let pinged = self.output.relaying.as_ref().and_then(|relaying| relaying.pinged);
        // Later than the ping of the replica below, also by a coarse clock.
        let next = now.plus(Duration::from_nanos(1));
        let next =
            pinged.map_or(next, |pinged| next.max(pinged.plus(self.config.ping / Self::PINGS)));
        self.connection.ping_by(next);
    }

    /// A replica below waits for a body.
    pub(crate) fn want(&mut self, now: LocalTime, path: &Path) {
        self.missing.demands.join(path);
        self.demand(now, path);
    }

    /// It still does.
    pub(crate) fn want_again(&mut self, now: LocalTime, path: &Path) {
        self.demand(now, path);
    }

    /// None does any more.
    pub(crate) fn leave_body(&mut self, now: LocalTime, path: &Path) {
        self.missing.demands.leave(now, path);
    }

    /// Objects were read at replicas below.
    pub(crate) fn count_reads(&mut self, counts: &[(Path, u32)]) {
        for (path, count) in counts {
            self.reads.count(path, *count);
        }
    }
}
