//! The connection to the origin: who talks to whom, and what is still to be said.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use super::arrivals::Arrivals;
use crate::message::{Frame, PROTOCOL, Refusal, Session, ToOrigin};
use crate::time::LocalTime;
use crate::types::{Digest, Incarnation};

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
pub(super) enum Link {
    /// There is no connection.
    Away,
    /// Hello was said, or is about to be.
    Greeting,
    /// The origin has accepted this replica.
    Connected(Session),
    /// The origin has rejected it.
    Turned(Refusal),
}

/// The connection of a replica, with the messages that wait to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Connection {
    pub(super) link: Link,
    /// Connections of this life so far.
    number: u32,
    /// The life of this replica.
    life: Incarnation,
    /// The life of the origin that talked to this replica last.
    pub(super) origin: Option<Incarnation>,
    /// Whether the origin wants invalidations applied as they come.
    pub(super) eager: bool,
    /// Speculative bodies of this connection, and demanded ones.
    pub(super) pushed: Arrivals,
    pub(super) fetched: Arrivals,
    /// Bodies of earlier connections that are in memory until the store has them. Hello waits for them, because the
    /// origin sends as many again.
    left: BTreeSet<Digest>,
    /// Hello is still to be sent.
    pub(super) owes_hello: bool,
    pub(super) heard: LocalTime,
    ping_at: LocalTime,
    report_at: LocalTime,
    pub(super) outbox: VecDeque<ToOrigin>,
    /// Bodies that have arrived in part, with the number of their pieces.
    pub(super) partial: Vec<(Digest, u32)>,
    /// The version of the protocol that both sides speak.
    pub(super) protocol: u16,
    /// Where neighbours get pieces, if this replica shares.
    pub(super) share: Option<SocketAddr>,
}

impl Connection {
    /// Without a connection, in a life of this number.
    pub(super) fn new(now: LocalTime, life: Incarnation) -> Self {
        Connection {
            link: Link::Away,
            number: 0,
            life,
            origin: None,
            eager: false,
            pushed: Arrivals::default(),
            fetched: Arrivals::default(),
            left: BTreeSet::new(),
            owes_hello: false,
            heard: now,
            ping_at: now,
            report_at: now,
            partial: Vec::new(),
            protocol: PROTOCOL,
            share: None,
            outbox: VecDeque::new(),
        }
    }

    /// The next connection stands. Bodies of earlier ones are still on their way into the store.
    pub(super) fn start(&mut self, now: LocalTime, coming: BTreeSet<Digest>) {
        self.number += 1;
        self.link = Link::Greeting;
        (self.pushed, self.fetched) = Default::default();
        self.heard = now;
        self.left = coming;
        self.owes_hello = true;
    }

    /// The connection is gone, with all that waited for it.
    pub(super) fn end(&mut self) {
        self.link = Link::Away;
        self.owes_hello = false;
        self.outbox.clear();
    }

    /// Ping and report are due now.
    pub(super) fn hurry(&mut self, now: LocalTime) {
        (self.ping_at, self.report_at) = (now, now);
    }

    /// The next ping is due at `at`, if it was not before.
    pub(super) fn ping_by(&mut self, at: LocalTime) {
        self.ping_at = self.ping_at.min(at);
    }

    /// When a ping is due, or a report if the replica sends them.
    pub(super) fn due(&self, reports: bool) -> LocalTime {
        if reports { self.ping_at.min(self.report_at) } else { self.ping_at }
    }

    /// Whether a ping is due; then the next one is after this pause.
    pub(super) fn take_ping(&mut self, now: LocalTime, pause: Duration) -> bool {
        let is_due = self.is_connected() && self.ping_at <= now;
        if is_due {
            self.ping_at = now.plus(pause);
        }
        is_due
    }

    /// The same for a report.
    pub(super) fn take_report(&mut self, now: LocalTime, pause: Duration) -> bool {
        let is_due = self.is_connected() && self.report_at <= now;
        if is_due {
            self.report_at = now.plus(pause);
        }
        is_due
    }

    /// A body of an earlier connection is in the store, or is not coming any more.
    pub(super) fn leave(&mut self, digest: &Digest) {
        self.left.remove(digest);
    }

    /// Whether hello is to be said now.
    pub(super) fn may_greet(&self) -> bool {
        self.owes_hello && self.left.is_empty()
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(self.link, Link::Connected(_))
    }

    /// Whether there is a connection, answered or not.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.link, Link::Greeting | Link::Connected(_))
    }

    /// The state of the connection's other channels, if the origin sends messages.
    pub(super) fn session(&self) -> Option<Session> {
        match self.link {
            Link::Connected(session) => Some(session),
            _ => None,
        }
    }

    /// Why the origin rejects this replica, if it does.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        match self.link {
            Link::Turned(why) => Some(why),
            _ => None,
        }
    }

    /// Life and number of this side, as the origin repeats them.
    pub(super) fn own(&self) -> (Incarnation, u32) {
        (self.life, self.number)
    }

    /// Whether a body belongs to this connection. A pushed one may overtake the welcome.
    pub(super) fn has_body_of(&self, session: Session) -> bool {
        match self.link {
            Link::Connected(own) => own == session,
            Link::Greeting => (session.replica, session.connection) == self.own(),
            Link::Away | Link::Turned(_) => false,
        }
    }

    /// The next message.
    pub(super) fn poll_send(&mut self) -> Option<Frame<ToOrigin>> {
        let message = self.outbox.pop_front()?;
        let (replica, connection) = self.own();
        let unknown = Session { origin: Incarnation::default(), replica, connection };
        Some(Frame { session: self.session().unwrap_or(unknown), message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        Connection::new(LocalTime::default(), Incarnation(7))
    }

    #[test]
    fn hello_waits_for_bodies_of_earlier_connections() {
        let (mut connection, body) = (connection(), Digest::of(b"body"));
        assert!(!connection.may_greet());
        connection.start(LocalTime::default(), [body].into());
        assert!(!connection.may_greet());
        connection.leave(&Digest::of(b"another"));
        assert!(!connection.may_greet());
        connection.leave(&body);
        assert!(connection.may_greet());
        connection.end();
        assert!(!connection.may_greet());
    }

    #[test]
    fn pings_and_reports_are_due_after_their_pause() {
        let at = |nanos: i64| LocalTime::from_nanos(nanos);
        let pause = Duration::from_nanos(10);
        let mut connection = connection();
        connection.start(at(0), BTreeSet::new());
        assert!(!connection.take_ping(at(0), pause), "before the welcome");
        connection.link = Link::Connected(Session::default());
        connection.hurry(at(5));
        assert_eq!((connection.take_ping(at(4), pause), connection.due(true)), (false, at(5)));
        assert!(connection.take_ping(at(6), pause) && !connection.take_ping(at(6), pause));
        assert_eq!((connection.due(false), connection.due(true)), (at(16), at(5)));
        assert!(connection.take_report(at(7), pause) && !connection.take_report(at(16), pause));
        connection.ping_by(at(20));
        connection.ping_by(at(9));
        assert_eq!((connection.due(false), connection.due(true)), (at(9), at(9)));
    }

    #[test]
    fn messages_of_a_lost_connection_are_dropped() {
        let mut connection = connection();
        connection.start(LocalTime::default(), BTreeSet::new());
        connection.outbox.push_back(ToOrigin::Taken(1));
        connection.end();
        assert_eq!(connection.poll_send(), None);
    }

    #[test]
    fn session_is_the_origins_once_it_has_answered() {
        let mut connection = connection();
        for number in 1..4 {
            connection.start(LocalTime::default(), BTreeSet::new());
            let session = |origin| Session {
                origin: Incarnation(origin),
                replica: Incarnation(7),
                connection: number,
            };
            connection.outbox.extend([ToOrigin::Taken(1), ToOrigin::Taken(2)]);
            let sent = connection.poll_send().expect("a message");
            assert_eq!((sent.session, connection.session()), (session(0), None));
            connection.link = Link::Connected(session(5));
            assert!(connection.is_connected() && connection.is_open());
            let sent = connection.poll_send().expect("a message");
            assert_eq!(sent.session, session(5));
            connection.end();
        }
    }
}
