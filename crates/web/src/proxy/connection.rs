//! An accepted connection, as seen by other modules: its peer, and whether its bytes yield.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use http::HeaderValue;
use lull_transport::Carrier;
use tokio::sync::Notify;

use super::limits::Permit;
use super::streams::Streams;
use super::thread_counters::Opened;

/// Whether a connection's bytes yield to all other traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TrafficClass {
    /// It competes like any other.
    Demand,
    /// TCP Nice: it takes the capacity that others leave.
    Background,
}

/// A client's connection. Its task writes most of this, other threads may read.
#[derive(Debug)]
pub struct Connection {
    peer: SocketAddr,
    local: SocketAddr,
    secure: bool,
    always_background: bool,
    /// The client's address, as `X-Forwarded-For` shows it.
    pub(crate) shown_peer: HeaderValue,
    wanted: AtomicU8,
    actual: AtomicU8,
    turns: Mutex<Turns>,
    /// A prefetch is awaited.
    hurried: Notify,
    /// The task of a connection in the background.
    owner: Mutex<Option<Waker>>,
    /// The data for `client_timeouts`, see [`Snapshot`].
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
    /// [`NOT_SAMPLED`] at first.
    acked: AtomicU64,
    wants_acked_count: AtomicBool,
    pub(crate) began: AtomicU32,
    pub(crate) under_way: AtomicU32,
    pub(crate) waiting_for_upstream: AtomicU32,
    pub(crate) waiting_for_body: AtomicU32,
    pub(crate) write_blocked: AtomicBool,
    /// Whether the client may still be sending a body that is not read.
    pub(crate) left_unread: AtomicBool,
    /// Requests without a body so far, and whether there was one with a body.
    pub(crate) bodiless: AtomicU64,
    pub(crate) has_had_body: AtomicBool,
    /// Bytes read when the last request was answered.
    pub(crate) read_by_then: AtomicU64,
    /// Whether its protocol is no longer HTTP, so that one end may close before the other.
    pub(crate) is_tunnel: AtomicBool,
    /// Whether its end has begun, and the client has been told.
    pub(crate) is_shut: AtomicBool,
    /// Close it by a reset, because its end would look like the end of a body.
    pub(crate) reset: AtomicBool,
    /// In HTTP/2.
    pub(crate) streams: Arc<Streams>,
    _opened: Opened,
    _permit: Permit,
}

const DEMAND: u8 = 0;
const BACKGROUND_BY_KERNEL: u8 = 1;
const BACKGROUND_BY_USER_SPACE: u8 = 2;
/// The wanted class was not available, and is not tried again.
const STUCK: u8 = 3;

/// The requests in progress on a connection, as far as its class depends on them. In HTTP/2 there are many at
/// a time, and a connection is in the background as a whole or not at all.
#[derive(Debug, Default)]
struct Turns {
    /// Requests of visitors.
    demand: u32,
    /// Prefetch requests.
    ahead: u32,
    /// Whether one of these is awaited.
    is_awaited: bool,
    /// Whether others may be in progress beside each.
    is_among_others: bool,
    /// When the last awaited one ended, among others: not all of it has left by then.
    ended: Option<Instant>,
}

impl Turns {
    /// The body of an awaited request has ended.
    fn end(&mut self) {
        self.ended = self.is_among_others.then(Instant::now);
    }
}

/// More bytes than a connection can acknowledge.
const NOT_SAMPLED: u64 = u64::MAX;

/// How long the rest of an answer in HTTP/2's buffers has to leave after its body has ended.
const TAIL: Duration = Duration::from_secs(1);

/// A snapshot of a connection's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Bytes from and to the client, within TLS.
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Bytes that the client's kernel has acknowledged, at the last [check](Connection::request_acked_count).
    pub(crate) acked: Option<u64>,
    /// Bytes of answers in HTTP/2 that have left.
    pub(crate) left: u64,
    /// Requests so far, and unfinished ones.
    pub(crate) began: u32,
    pub(crate) under_way: u32,
    /// Requests that wait for the upstream, or for the client to continue their body.
    pub(crate) waiting_for_upstream: u32,
    pub(crate) waiting_for_body: u32,
    /// Whether the client does not read.
    pub(crate) write_blocked: bool,
}

impl Snapshot {
    /// Whether the client's kernel may not have all sent bytes. TLS adds some bytes, so the last ones are
    /// uncertain.
    pub(crate) fn has_unacked(&self) -> bool {
        self.acked.unwrap_or(0) < self.written
    }
}

impl Connection {
    pub(crate) fn new(
        peer: SocketAddr,
        local: SocketAddr,
        secure: bool,
        opened: Opened,
        permit: Permit,
    ) -> Self {
        let shown = peer.ip().to_canonical().to_string();
        Connection {
            peer,
            local,
            secure,
            always_background: false,
            shown_peer: HeaderValue::from_maybe_shared(bytes::Bytes::from(shown))
                .unwrap_or_else(|_| HeaderValue::from_static("unknown")),
            wanted: AtomicU8::new(DEMAND),
            actual: AtomicU8::new(DEMAND),
            turns: Mutex::default(),
            hurried: Notify::new(),
            owner: Mutex::default(),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            acked: AtomicU64::new(NOT_SAMPLED),
            wants_acked_count: AtomicBool::new(false),
            began: AtomicU32::new(0),
            under_way: AtomicU32::new(0),
            waiting_for_upstream: AtomicU32::new(0),
            waiting_for_body: AtomicU32::new(0),
            write_blocked: AtomicBool::new(false),
            left_unread: AtomicBool::new(false),
            bodiless: AtomicU64::new(0),
            has_had_body: AtomicBool::new(false),
            read_by_then: AtomicU64::new(0),
            is_tunnel: AtomicBool::new(false),
            is_shut: AtomicBool::new(false),
            reset: AtomicBool::new(false),
            streams: Arc::default(),
            _opened: opened,
            _permit: permit,
        }
    }

    /// The same, permanently in the background, except for the TLS handshake.
    pub(crate) fn always_in_background(self) -> Self {
        self.request_class(TrafficClass::Background);
        Connection { always_background: true, ..self }
    }

    /// Whether it was accepted by the listener for background traffic:
    /// [`Config::listen_background`](super::Config::listen_background).
    pub fn is_always_background(&self) -> bool {
        self.always_background
    }

    /// The client's end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Our end.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether it is TLS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Requests a class: it takes effect before the connection's next byte leaves. A move out of the
    /// background also takes effect at once for bytes that were written before.
    ///
    /// The proxy does so for each request itself, before a [`Site`](super::Site) sees it:
    /// [`TrafficClass::Background`] with `X-Lull`, unless a request without it is in progress beside it, otherwise
    /// [`TrafficClass::Demand`]. A connection that [is always in the background](Self::is_always_background) stays
    /// there.
    fn request_class(&self, class: TrafficClass) {
        let wanted = match class {
            TrafficClass::Demand if !self.always_background => DEMAND,
            _ => BACKGROUND_BY_KERNEL,
        };
        // Nearly always the value is the same already, and a load is cheaper than a store.
        if self.wanted.load(Ordering::Relaxed) != wanted {
            self.wanted.store(wanted, Ordering::Relaxed);
            if let Some(owner) = self.lock_owner().take() {
                owner.wake();
            }
        }
    }

    /// A prefetch on this connection is awaited: the connection leaves the background, with the bytes that
    /// were written already, until the prefetch has arrived.
    pub fn hurry(&self) {
        let mut turns = self.turns();
        turns.is_awaited = turns.ahead > 0;
        if !turns.is_awaited {
            // Its body has ended, and the rest is in the buffers.
            turns.end();
        }
        drop(turns);
        self.request_class(TrafficClass::Demand);
        self.hurried.notify_waiters();
    }

    /// Completes when a prefetch on this connection is awaited.
    pub(crate) async fn is_hurried(&self) {
        // Before the check, otherwise it could be missed.
        let hurried = self.hurried.notified();
        if !self.turns().is_awaited {
            hurried.await;
        }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `owner` woken when another class is requested: only the task with the socket may use it.
    pub(crate) fn set_owner(&self, owner: &Waker) {
        let mut waker = self.lock_owner();
        match &mut *waker {
            Some(before) => before.clone_from(owner),
            None => *waker = Some(owner.clone()),
        }
    }

    fn lock_owner(&self) -> MutexGuard<'_, Option<Waker>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last requested class.
    pub(crate) fn wanted(&self) -> TrafficClass {
        match self.wanted.load(Ordering::Relaxed) {
            DEMAND => TrafficClass::Demand,
            _ => TrafficClass::Background,
        }
    }

    /// The carrier of the connection in the background; `None` if it competes like any other, which it also
    /// does if it should be in the background and cannot.
    pub fn carrier(&self) -> Option<Carrier> {
        match self.actual.load(Ordering::Relaxed) {
            BACKGROUND_BY_KERNEL => Some(Carrier::Kernel),
            BACKGROUND_BY_USER_SPACE => Some(Carrier::UserSpace),
            _ => None,
        }
    }

    pub(crate) fn set_carrier(&self, carrier: Option<Carrier>) {
        let actual = match carrier {
            None => DEMAND,
            Some(Carrier::Kernel) => BACKGROUND_BY_KERNEL,
            Some(Carrier::UserSpace) => BACKGROUND_BY_USER_SPACE,
        };
        self.actual.store(actual, Ordering::Relaxed);
    }

    pub(crate) fn set_stuck(&self) {
        self.actual.store(STUCK, Ordering::Relaxed);
    }

    /// Makes the owner of the socket count acknowledged bytes with its next poll. A waiting writer is woken
    /// only when a third of the kernel's buffer has left, which takes minutes on a yielding connection.
    pub(crate) fn request_acked_count(&self) {
        self.wants_acked_count.store(true, Ordering::Relaxed);
    }

    /// Whether it is time to do so.
    pub(crate) fn is_acked_count_requested(&self) -> bool {
        // Nearly always it is false, and a load is cheaper than a store.
        self.wants_acked_count.load(Ordering::Relaxed)
            && self.wants_acked_count.swap(false, Ordering::Relaxed)
    }

    /// The owner has counted this many bytes.
    pub(crate) fn set_acked(&self, bytes: u64) {
        self.acked.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            read: self.read.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            acked: Some(self.acked.load(Ordering::Relaxed)).filter(|bytes| *bytes != NOT_SAMPLED),
            left: self.streams.left(),
            began: self.began.load(Ordering::Relaxed),
            under_way: self.under_way.load(Ordering::Relaxed),
            waiting_for_upstream: self.waiting_for_upstream.load(Ordering::Relaxed),
            waiting_for_body: self.waiting_for_body.load(Ordering::Relaxed),
            write_blocked: self.write_blocked.load(Ordering::Relaxed),
        }
    }
}

/// Adds one to a counter of the connection while it exists.
#[derive(Debug)]
pub(crate) struct CountGuard {
    connection: Arc<Connection>,
    of: fn(&Connection) -> &AtomicU32,
}

impl CountGuard {
    fn new(connection: &Arc<Connection>, of: fn(&Connection) -> &AtomicU32) -> Self {
        of(connection).fetch_add(1, Ordering::Relaxed);
        CountGuard { connection: Arc::clone(connection), of }
    }

    /// A request in progress.
    pub(crate) fn request(connection: &Arc<Connection>) -> Self {
        connection.began.fetch_add(1, Ordering::Relaxed);
        Self::new(connection, |connection| &connection.under_way)
    }

    /// A part of a request that may last longer than its answer.
    pub(crate) fn ongoing(connection: &Arc<Connection>) -> Self {
        Self::new(connection, |connection| &connection.under_way)
    }

    /// A request that waits for the upstream.
    pub(crate) fn waiting_for_upstream(connection: &Arc<Connection>) -> Self {
        Self::new(connection, |connection| &connection.waiting_for_upstream)
    }

    /// A request that waits for its body from the client.
    pub(crate) fn waiting_for_body(connection: &Arc<Connection>) -> Self {
        Self::new(connection, |connection| &connection.waiting_for_body)
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        (self.of)(&self.connection).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request in progress on its connection, until this is dropped.
#[derive(Debug)]
pub(crate) struct RequestGuard {
    connection: Arc<Connection>,
    is_ahead: bool,
}

impl RequestGuard {
    /// A request begins: a prefetch, or one of a visitor. While there is one of a visitor, or an awaited
    /// prefetch, the connection does not yield.
    pub(crate) fn new(connection: &Arc<Connection>, is_ahead: bool, is_among_others: bool) -> Self {
        let mut turns = connection.turns();
        turns.is_among_others = is_among_others;
        if is_ahead {
            turns.ahead += 1;
        } else {
            turns.demand += 1;
            connection.request_class(TrafficClass::Demand);
        }
        drop(turns);
        let guard = RequestGuard { connection: Arc::clone(connection), is_ahead };
        guard.goes_on();
        guard
    }

    /// More of the answer is about to leave: in the background, if nothing on the connection is awaited by
    /// now.
    pub(crate) fn goes_on(&self) {
        if !self.is_ahead {
            return;
        }
        let turns = self.connection.turns();
        let has_left = turns.ended.is_none_or(|ended| ended.elapsed() >= TAIL);
        if turns.demand == 0 && !turns.is_awaited && has_left {
            self.connection.request_class(TrafficClass::Background);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut turns = self.connection.turns();
        if self.is_ahead {
            turns.ahead -= 1;
            if turns.is_awaited {
                turns.is_awaited = turns.ahead > 0;
                turns.end();
            }
        } else {
            turns.demand -= 1;
            turns.end();
        }
    }
}

#[cfg(test)]
impl Connection {
    /// One on which nothing arrives.
    pub(crate) fn of_tests() -> Arc<Self> {
        let peer = "[::ffff:192.0.2.7]:5000".parse().unwrap();
        let local = "[::1]:80".parse().unwrap();
        Arc::new(Connection::new(peer, local, false, Opened::new(&Arc::default()), Permit::none()))
    }

    /// A request that fetches ahead, while it exists.
    pub(crate) fn fetches_ahead(self: &Arc<Self>) -> RequestGuard {
        RequestGuard::new(self, true, false)
    }

    /// Whether it should yield.
    pub(crate) fn yields(&self) -> bool {
        self.wanted() == TrafficClass::Background
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    fn connection() -> Arc<Connection> {
        Connection::of_tests()
    }

    #[test]
    fn mapped_address_is_shown_as_ipv4() {
        assert_eq!(connection().shown_peer, "192.0.2.7");
    }

    #[test]
    fn class_change_wakes_the_task_that_owns_the_socket() {
        struct Woken(AtomicU32);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let woken = Arc::new(Woken(AtomicU32::new(0)));
        let connection = connection();
        connection.request_class(TrafficClass::Background);
        connection.set_owner(&Arc::clone(&woken).into());
        connection.request_class(TrafficClass::Background);
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        connection.request_class(TrafficClass::Demand);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn connection_yields_while_it_carries_prefetches_only() {
        let connection = connection();
        let guard = |is_ahead| RequestGuard::new(&connection, is_ahead, false);
        let is = |class| assert_eq!(connection.wanted(), class);
        let (page, one) = (guard(false), guard(true));
        is(TrafficClass::Demand);
        drop(page);
        one.goes_on();
        is(TrafficClass::Background);
        let page = guard(false);
        is(TrafficClass::Demand);
        drop(one);
        drop(page);
        is(TrafficClass::Demand);

        let (one, other) = (guard(true), guard(true));
        is(TrafficClass::Background);
        connection.hurry();
        is(TrafficClass::Demand);
        // Another tab's.
        let third = guard(true);
        drop(guard(false));
        is(TrafficClass::Demand);
        drop((one, other, third));
        let later = guard(true);
        is(TrafficClass::Background);
        drop(later);
        // Bytes in the buffers are awaited as well; the next prefetch is not.
        connection.hurry();
        is(TrafficClass::Demand);
        drop(guard(true));
        is(TrafficClass::Background);
    }

    #[test]
    fn demand_keeps_its_class_until_its_last_bytes_have_left() {
        let begin = |is_ahead| {
            let connection = connection();
            let guard = RequestGuard::new(&connection, is_ahead, true);
            (connection, guard)
        };
        let stays = |connection: &Arc<Connection>, expected: TrafficClass| {
            drop(RequestGuard::new(connection, true, true));
            assert_eq!(connection.wanted(), expected);
        };
        let (connection, page) = begin(false);
        drop(page);
        stays(&connection, TrafficClass::Demand);

        let (connection, awaited) = begin(true);
        connection.hurry();
        drop(awaited);
        stays(&connection, TrafficClass::Demand);

        let (connection, awaited) = begin(true);
        drop(awaited);
        connection.hurry();
        stays(&connection, TrafficClass::Demand);

        // A prefetch that is not awaited leaves no trace.
        let (connection, ahead) = begin(true);
        drop(ahead);
        stays(&connection, TrafficClass::Background);
    }

    #[test]
    fn counter_falls_when_its_guard_is_dropped() {
        let connection = connection();
        let request = CountGuard::request(&connection);
        let waiting = CountGuard::waiting_for_upstream(&connection);
        let snapshot = connection.snapshot();
        assert_eq!((snapshot.began, snapshot.under_way, snapshot.waiting_for_upstream), (1, 1, 1));
        drop((request, waiting));
        let snapshot = connection.snapshot();
        assert_eq!((snapshot.began, snapshot.under_way, snapshot.waiting_for_upstream), (1, 0, 0));
    }
}
