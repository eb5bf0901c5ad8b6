//! The messages between a replica and its origin on the control channel.

use super::{CommitSummary, Event, Link, Partial, Relayed, Replica};
use crate::faults::Fault;
use crate::message::{Frame, Session, Start, ToOrigin, ToReplica, Tree};
use crate::time::{LocalTime, Reading, WallTime};
use crate::types::{Change, Digest, NextPosition, Position, Sequence};

use super::resync::Resync;

impl<P: Clone> Replica<P> {
    /// A new connection to the origin is open.
    pub fn handle_connected(&mut self, now: Reading) {
        self.disconnect();
        self.connection.start(now.local, self.bodies.references.coming().copied().collect());
        self.greet();
    }

    /// The store has answered for a body.
    pub(super) fn leave(&mut self, digest: &Digest) {
        if !self.bodies.references.is_coming(digest) {
            self.connection.leave(digest);
        }
    }

    /// Sends hello, once no body of earlier connections is in memory and there is space for commits.
    /// Otherwise this connection would soon be dropped for lack of space, like the one before.
    pub(super) fn greet(&mut self) {
        if self.connection.may_greet() && self.apply.buffer.bytes().0 <= self.half_of_room() {
            self.connection.owes_hello = false;
            self.connection.outbox.push_back(ToOrigin::Hello {
                protocol: self.connection.protocol,
                replica: self.config.replica,
                position: self.received_position(),
                committed: self.position(),
                only: self.bodies.scope.only().clone(),
            });
            self.report_relays();
        }
    }

    /// The connection is gone.
    pub fn handle_disconnected(&mut self, now: Reading) {
        if !matches!(self.connection.link, Link::Turned(_)) {
            self.disconnect();
        }
        // From now on the larger Δ counts: a read that waited because of the smaller one may continue.
        self.wake(now.local);
    }

    fn disconnect(&mut self) {
        if self.is_connected() {
            self.lose_connection();
        }
        self.reject_demands();
        self.missing.reject_corrupt();
        self.connection.end();
        self.forget_parts();
        self.missing.forget_demands();
        self.apply.buffer.wait_alone();
        self.give_up_merging();
        if let Some(resync) = self.comparison.resync.take() {
            // Leaves are identified by their hashes, so the next comparison may reuse them.
            self.comparison.known = resync.into_known();
        }
        self.leave_resync();
    }

    /// The result of a comparison is being written, and is applied all the same; the next hello reports it to
    /// the origin. Its missing bodies are still to be reported.
    fn leave_resync(&mut self) {
        if let Some(writing) = &mut self.apply.writing {
            self.comparison.untold |= core::mem::take(&mut writing.resync);
        }
    }

    /// Closes the connection from this side.
    fn close(&mut self, now: LocalTime) {
        self.disconnect();
        self.output.events.push_back(Event::Close);
        self.wake(now);
    }

    /// Bytes of the control channel have arrived. A part of a message also ends the silence, however long the
    /// rest of it takes.
    pub fn handle_received_bytes(&mut self, at: LocalTime) {
        if self.connection.is_open() {
            self.connection.heard = self.connection.heard.max(at);
        }
    }

    /// When the origin has been silent for too long. None while it has nothing to send: in a re-sync it only
    /// answers questions, and the next question, or the end, waits for this disk.
    fn silent_at(&self) -> Option<LocalTime> {
        let waits = |resync: &Resync| resync.is_waiting() || resync.is_complete();
        let owed = !self.comparison.resync.as_ref().is_some_and(waits);
        owed.then(|| self.connection.heard.plus(self.config.silence))
    }

    pub(super) fn link_timeout(&self) -> Option<LocalTime> {
        match self.connection.link {
            Link::Connected(_) => {
                let next = self.connection.due(self.config.report.is_some());
                Some(self.silent_at().map_or(next, |silent| silent.min(next)))
            }
            Link::Greeting => self.silent_at(),
            Link::Away | Link::Turned(_) => None,
        }
    }

    pub(super) fn handle_link_timeout(&mut self, now: Reading) {
        if self.connection.is_open() && self.silent_at().is_some_and(|at| at <= now.local) {
            self.close(now.local);
        }
        if self.connection.take_ping(now.local, self.config.ping) {
            self.connection.outbox.push_back(ToOrigin::Ping { sent: now.local });
            self.output.note_ping(now.local);
            self.connection
                .outbox
                .extend(self.reads.take_counts().into_iter().map(ToOrigin::Reads));
        }
        self.send_report(now.local);
    }

    /// Reports this replica's status when it is time.
    fn send_report(&mut self, now: LocalTime) {
        if let Some(pause) = self.config.report
            && self.connection.take_report(now, pause)
        {
            self.connection.outbox.push_back(ToOrigin::Report(self.report(now)));
        }
    }

    /// A message of the control channel has arrived. They arrive in order.
    pub fn handle_control(&mut self, now: Reading, frame: Frame<ToReplica>) {
        let session = frame.session;
        let ours = (session.replica, session.connection) == self.connection.own();
        let fine = match (self.connection.link, frame.message) {
            // A rejection comes before the hello was read, so its session is not checked.
            (Link::Greeting, ToReplica::Refused(why)) if ours || session == Session::default() => {
                self.disconnect();
                self.connection.link = Link::Turned(why);
                self.output.events.push_back(Event::Refused(why));
                self.wake(now.local);
                true
            }
            (Link::Greeting, ToReplica::Welcome { start, eager }) if ours => {
                self.connection.link = Link::Connected(session);
                self.connection.eager = eager;
                self.connection.heard = now.local;
                self.welcome(now, start);
                true
            }
            (Link::Connected(known), message) if known == session => {
                self.connection.heard = now.local;
                match message {
                    ToReplica::Welcome {
                        start: Start::Resync { position, stamp, root }, ..
                    } => {
                        self.begin_resync(now, position, stamp, root);
                        true
                    }
                    ToReplica::Invalidation { sequence, stamp, changes, more } => {
                        self.invalidation(now, (sequence, stamp), changes, more)
                    }
                    ToReplica::Heartbeat { stamp, committed, echo } => {
                        self.heartbeat(now, (stamp, committed), echo)
                    }
                    ToReplica::Tree { of, part } => self.tree(of, part),
                    ToReplica::Vouched { question, refusal } => {
                        self.output.pass_on(|| Relayed::Vouched { question, refusal })
                    }
                    ToReplica::Urgent(all) => self.output.pass_on(|| Relayed::Urgent(all)),
                    // The daemon keeps them.
                    ToReplica::Neighbours(_) => self.may_exchange(),
                    ToReplica::Renew => {
                        self.output.events.push_back(Event::Renew);
                        true
                    }
                    ToReplica::Withdrawn(path) => {
                        if self.missing.demands.forget_withdrawn(&path) {
                            let again = self.missing.demands.is_awaited(&path);
                            self.output.counters.awaited_again += u64::from(again);
                            // Reads that came meanwhile send a new demand, or wait for space.
                            self.wake(now.local);
                        }
                        true
                    }
                    ToReplica::Welcome { start: Start::Log, .. } | ToReplica::Refused(_) => false,
                }
            }
            _ => {
                self.output.counters.stale_frames += 1;
                return;
            }
        };
        if fine {
            self.advance(now.local);
        } else {
            self.close(now.local);
        }
    }

    fn welcome(&mut self, now: Reading, start: Start) {
        let after = self.end_outage(now.local);
        self.output.events.push_back(Event::Connected { after });
        let Link::Connected(session) = self.connection.link else { return };
        let new_life = self.connection.origin.replace(session.origin) != Some(session.origin);
        if new_life {
            self.lease.forget_skew();
        }
        if let Some(bytes) = self.config.bytes_per_read {
            self.connection.outbox.push_back(ToOrigin::Price(bytes));
        }
        if let Some(address) = self.connection.share.filter(|_| self.may_exchange()) {
            self.connection.outbox.push_back(ToOrigin::Share(address));
        }
        self.report_partial();
        // A speculative body may have arrived before.
        if self.connection.pushed.done() > 0 {
            self.connection.outbox.push_back(ToOrigin::Taken(self.connection.pushed.done()));
        }
        match start {
            Start::Log => {
                if new_life || self.comparison.untold {
                    self.report_lacking(now.local);
                } else {
                    self.ask_again(now.local);
                }
                self.comparison.known.clear();
            }
            Start::Resync { position, stamp, root } => {
                self.begin_resync(now, position, stamp, root);
            }
        }
        // After the missing bodies: a ping shows the origin that they were reported.
        self.connection.hurry(now.local);
        self.handle_link_timeout(now);
        // The smaller Δ counts again: commits that it makes overdue come before any read (§6.2.2).
        let waited = self.apply.buffer.iter().filter(|one| one.waited && !self.comes_at_once(one));
        let overdue = waited.filter(|one| self.is_due(one, now.local));
        self.output.counters.overdue += overdue.count() as u64;
        self.wake(now.local);
    }

    /// The rest of a partly received commit will not arrive on this connection.
    fn forget_parts(&mut self) {
        if self.apply.partial.take().is_some() {
            self.output.forget_parts();
            self.follow_shelf();
            let references = &self.bodies.references;
            self.apply.buffer.forget_parts(|digest| references.is_stored(digest));
        }
    }

    fn begin_resync(&mut self, now: Reading, position: Position, stamp: WallTime, root: Digest) {
        // A dropped commit might be due before the comparison is done.
        self.lease.revoke();
        let _ = self.lease.said(now, stamp, self.faults);
        self.forget_parts();
        self.give_up_merging();
        self.leave_resync();
        let told = core::mem::take(&mut self.comparison.known);
        let known = self.comparison.resync.take().map_or(told, Resync::into_known);
        self.comparison.resync = Some(Resync::new(position, root, known));
    }

    /// A part of the tree of a state; returns whether it was requested.
    fn tree(&mut self, of: Sequence, part: Tree) -> bool {
        let next = match &mut self.comparison.resync {
            // Of a tree that the current one has replaced.
            Some(resync) if resync.position.sequence != of => Ok(None),
            Some(resync) => resync.handle(part),
            None => Err(()),
        };
        if let Ok(Some(part)) = &next {
            self.connection.outbox.push_back(ToOrigin::Ask { of, part: part.clone() });
        }
        next.is_ok()
    }

    /// A commit, or a part of one; returns whether it is the expected one.
    fn invalidation(
        &mut self,
        now: Reading,
        (sequence, stamp): (Sequence, WallTime),
        changes: Vec<Change>,
        more: bool,
    ) -> bool {
        if self.comparison.resync.as_ref().is_some_and(|resync| !resync.is_complete()) {
            return false;
        }
        if sequence <= self.received() {
            // Repeated after a reconnection.
            return true;
        }
        let Some(received) = self.received_position() else { return false };
        let lossy = self.faults.has(Fault::InvalidationLostOnReconnect);
        if sequence != received.sequence.next() && !lossy {
            return false;
        }
        if self.apply.partial.is_none() && self.apply.buffer.bytes() >= self.config.buffer {
            // The next hello reports the received position, so nothing is lost by that.
            self.output.counters.overfull += 1;
            return false;
        }
        let mut partial = match self.apply.partial.take() {
            None => {
                let next = NextPosition::new(received, sequence, stamp);
                Partial { sequence, stamp, next }
            }
            Some(partial) if (partial.sequence, partial.stamp) == (sequence, stamp) => partial,
            Some(_) => return false,
        };
        partial.next.extend(&changes);
        self.output.pass_on_part((sequence, stamp), &changes, more);
        self.follow_shelf();
        let references = &self.bodies.references;
        self.apply.buffer.extend(sequence, changes, |digest| references.is_stored(digest));
        let said = self.lease.said(now, stamp, self.faults);
        if more && !self.faults.has(Fault::HalfATransaction) {
            self.apply.partial = Some(partial);
            return true;
        }
        let position = if more { received } else { partial.next.finish() };
        self.apply.buffer.push(CommitSummary { position, sequence, stamp, said });
        if more {
            self.apply.partial = Some(partial);
        } else {
            // All writes acknowledged before this commit are here by now.
            let held = self.lease.holds(now.local, true);
            self.lease.cover(said, stamp);
            if !held && self.lease.holds(now.local, true) {
                // Without a pause between writes, no heartbeat does that.
                self.wake(now.local);
            }
        }
        true
    }

    /// Whether the heartbeat covers the announced commits.
    fn heartbeat(
        &mut self,
        now: Reading,
        (stamp, committed): (WallTime, Sequence),
        echo: Option<LocalTime>,
    ) -> bool {
        let lossy = self.faults.has(Fault::InvalidationLostOnReconnect);
        if committed != self.received() && !lossy || self.apply.partial.is_some() {
            return false;
        }
        self.lease.heartbeat(now, stamp, echo, self.faults);
        let echo_here = echo.filter(|sent| *sent <= now.local);
        self.output.pass_on(|| Relayed::Heartbeat { stamp, committed, echo: echo_here });
        self.bodies.scope.complete_at(committed);
        self.report_unmatched();
        // The ping was sent after it.
        self.comparison.untold &= echo.is_none_or(|sent| sent < self.comparison.told_at);
        self.request_scan();
        if self.lease.certified(now.local) {
            self.output.counters.certified += 1;
        } else {
            self.output.counters.uncertified += 1;
        }
        self.output.report_skew(self.lease.exceeded(now.local));
        self.wake(now.local);
        true
    }
}
