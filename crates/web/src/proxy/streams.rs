//! The streams of a connection of HTTP/2, each as far as its client holds it up.
//!
//! What the connection carries says little about them: pings alone keep it going, and one stream may
//! stand while others pass. So each has counters of its own, and is judged and ended by itself.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use hyper::rt::Executor;
use tokio::task::AbortHandle;

use super::config::{Limits, Timeouts};
use super::upload::Upload;

tokio::task_local! {
    /// The task of a stream, within it.
    static TASK: Arc<OnceLock<AbortHandle>>;
}

/// Runs each stream in a task that can be ended from outside: where hyper waits until the client takes
/// more of an answer, nothing else ends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tasks;

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let handle = Arc::new(OnceLock::new());
        let task = tokio::spawn(TASK.scope(Arc::clone(&handle), future));
        // It is the first.
        let _ = handle.set(task.abort_handle());
    }
}

/// A request of HTTP/2, as long as any of it is under way.
#[derive(Debug)]
pub(crate) struct Stream {
    streams: Arc<Streams>,
    task: Option<Arc<OnceLock<AbortHandle>>>,
    /// How far its body is, if it has one.
    upload: OnceLock<Arc<Upload>>,
    /// Bytes of the answer that were handed over, and those of them that have left.
    given: AtomicU64,
    left: AtomicU64,
}

impl Stream {
    /// A request begins, in the task that runs.
    pub(crate) fn begin(streams: &Arc<Streams>) -> Arc<Self> {
        let stream = Arc::new(Stream {
            streams: Arc::clone(streams),
            task: TASK.try_with(Arc::clone).ok(),
            upload: OnceLock::new(),
            given: AtomicU64::new(0),
            left: AtomicU64::new(0),
        });
        streams.add(&stream);
        stream
    }

    /// It has a body.
    pub(crate) fn brings(&self, upload: &Arc<Upload>) {
        // It has one.
        let _ = self.upload.set(Arc::clone(upload));
    }

    /// So much of the body has come.
    pub(crate) fn has_come(&self, bytes: usize) {
        self.streams.came.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn has_left(&self, bytes: usize) {
        self.left.fetch_add(bytes as u64, Ordering::Relaxed);
        self.streams.left.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How much of the answer has left, if there is some that the client does not take.
    fn untaken(&self) -> Option<u64> {
        let left = self.left.load(Ordering::Relaxed);
        (self.given.load(Ordering::Relaxed) > left).then_some(left)
    }

    /// How much of the body has come, if there is some that the client does not send.
    fn unsent(&self) -> Option<u64> {
        let upload = self.upload.get().filter(|upload| upload.is_waiting())?;
        Some(upload.bytes())
    }

    /// Whether it is the upstream that does not take the body: what lies here for it takes of the
    /// [room](FILLING) that all bodies of the connection have.
    fn is_held_back(&self) -> bool {
        self.upload.get().is_some_and(|upload| !upload.is_waiting() && !upload.is_done())
    }

    /// Takes it back, so that the client is told by a reset, and the upstream let go.
    fn end(&self) {
        if let Some(task) = self.task.as_ref().and_then(|task| task.get()) {
            task.abort();
        }
        if let Some(upload) = self.upload.get() {
            upload.end_rest();
        }
    }
}

/// A piece of an answer's body, which counts what leaves of it.
#[derive(Debug)]
pub(crate) struct Piece {
    bytes: Bytes,
    stream: Option<Arc<Stream>>,
}

impl Piece {
    pub(crate) fn new(bytes: Bytes, stream: Option<&Arc<Stream>>) -> Self {
        if let Some(stream) = stream {
            stream.given.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Piece { bytes, stream: stream.cloned() }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(stream) = &self.stream {
            stream.has_left(count);
        }
    }
}

/// What a client may send ahead of the upstream's taking it: for one request, and for all of a connection.
pub(crate) const H2_STREAM_WINDOW: u32 = 256 << 10;
pub(crate) const H2_CONNECTION_WINDOW: u32 = 1 << 20;
/// Bodies that the upstream does not take, of which so many may leave the others no room.
const FILLING: u64 = (H2_CONNECTION_WINDOW / H2_STREAM_WINDOW) as u64;

/// How long a client may hold a stream up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    stalled: Duration,
    /// Bytes a second that a body must bring.
    rate: u64,
}

impl Patience {
    pub(crate) fn new(timeouts: &Timeouts, limits: &Limits) -> Self {
        Patience { stalled: timeouts.client_stalled, rate: limits.body_rate }
    }

    fn least(&self, time: Duration) -> u64 {
        self.rate.saturating_mul(time.as_millis() as u64) / 1000
    }
}

/// All streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    entries: Mutex<Vec<Entry>>,
    /// Bytes of all their answers that have left, and of all their bodies that have come.
    left: AtomicU64,
    came: AtomicU64,
    /// Requests that the client took back, less those that have ended otherwise and what is forgiven.
    taken_back: AtomicU32,
}

/// Requests more than are under way at a time that a client may take back. Each costs a connection to the
/// upstream, and work there that nobody sees the end of; the client pays a few bytes. What was reset
/// before it was looked at is counted by h2 (CVE-2023-44487), and so never comes here. Browsers take back
/// what a page that is left had under way, and pictures that went out of sight.
const TAKEN_BACK: u32 = 100;
/// So many more of these are nothing each second.
const FORGIVEN: u32 = 10;

#[derive(Debug)]
struct Entry {
    stream: Weak<Stream>,
    answer: Clock,
    body: Clock,
}

impl Streams {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stream: &Arc<Stream>) {
        let mut entries = self.entries();
        // Those that have ended go when there is no room, so that a quick one costs next to nothing.
        if entries.len() == entries.capacity() {
            entries.retain(|entry| entry.stream.strong_count() > 0);
        }
        let stream = Arc::downgrade(stream);
        entries.push(Entry { stream, answer: Clock::default(), body: Clock::default() });
    }

    /// A request has ended, because its client took it back or otherwise.
    pub(crate) fn ended(&self, is_taken_back: bool) {
        if is_taken_back {
            self.taken_back.fetch_add(1, Ordering::Relaxed);
        } else {
            self.forgive(1);
        }
    }

    /// So much time has passed.
    pub(crate) fn passed(&self, time: Duration) {
        self.forgive((time.as_secs_f32() * FORGIVEN as f32) as u32);
    }

    fn forgive(&self, count: u32) {
        // Nearly always there is nothing, and a load is cheaper than a store.
        if self.taken_back.load(Ordering::Relaxed) > 0 {
            let less = |taken_back: u32| Some(taken_back.saturating_sub(count));
            let _ = self.taken_back.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Whether the client takes back more than anybody would, of whom `at_a_time` may be under way.
    pub(crate) fn takes_back_too_much(&self, at_a_time: u32) -> bool {
        self.taken_back.load(Ordering::Relaxed) > at_a_time.saturating_add(TAKEN_BACK)
    }

    /// Whether some of an answer still waits here for its client.
    pub(crate) fn are_waiting(&self) -> bool {
        let waits =
            |entry: &Entry| entry.stream.upgrade().is_some_and(|one| one.untaken().is_some());
        self.entries().iter().any(waits)
    }

    /// Bytes of all answers that have left.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Judges what has happened since the last look, and ends each stream that its client holds up.
    /// Where the connection takes no more at the moment, the client takes as much of answers as its kernel
    /// acknowledges: `taken`. As long as that was not looked at, nobody is to blame.
    pub(crate) fn look(
        &self,
        now: Instant,
        is_blocked: bool,
        taken: Option<u64>,
        patience: &Patience,
    ) {
        let mut entries = self.entries();
        entries.retain(|entry| entry.stream.strong_count() > 0);
        let streams: Vec<_> = entries
            .iter_mut()
            .filter_map(|entry| entry.stream.upgrade().map(|stream| (entry, stream)))
            .collect();
        let count = |of: fn(&Stream) -> bool| {
            streams.iter().filter(|(_, stream)| of(stream)).count() as u64
        };
        let untaken = count(|stream| stream.untaken().is_some());
        let unsent = count(|stream| stream.unsent().is_some());
        let is_filled = count(Stream::is_held_back) >= FILLING;
        // While the way itself is full, a stream may have to wait for its turn.
        let answers = Rule { patience, needs_rate: false, sharing: is_blocked.then_some(untaken) };
        // And in which order bodies come is for the client to say.
        let bodies = Rule { patience, needs_rate: true, sharing: Some(unsent) };
        let came = self.came.load(Ordering::Relaxed);
        for (entry, stream) in streams {
            let answer = taken.zip(stream.untaken()).map(|(all, own)| Sight { at: now, own, all });
            let body = stream.unsent().filter(|_| !is_filled);
            let body = body.map(|own| Sight { at: now, own, all: came });
            let takes_none = entry.answer.is_over(answer, &answers);
            if entry.body.is_over(body, &bodies) || takes_none {
                stream.end();
            }
        }
    }
}

/// What one look has seen: bytes of a stream, and of all of the connection, in one direction.
#[derive(Clone, Copy, Debug)]
struct Sight {
    at: Instant,
    own: u64,
    all: u64,
}

/// What clients are held to in one direction.
#[derive(Clone, Copy, Debug)]
struct Rule<'a> {
    patience: &'a Patience,
    /// Whether a byte now and then is not enough.
    needs_rate: bool,
    /// Streams that share the way, if it may be full of others.
    sharing: Option<u64>,
}

impl Rule<'_> {
    /// Whether the time since `then` is over and was the client's own.
    fn is_over(&self, then: Sight, now: Sight) -> bool {
        let waited = now.at.duration_since(then.at);
        let is_full = self.sharing.is_some_and(|streams| {
            let least = self.patience.least(waited).saturating_mul(streams);
            now.all.saturating_sub(then.all) >= least.max(1)
        });
        waited >= self.patience.stalled && !is_full
    }
}

/// For how long a client has been waited for in one direction of a stream, at every look.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// When something last came of it, or since the waiting began.
    last: Option<Sight>,
    /// From when its rate is measured.
    from: Option<Sight>,
}

impl Clock {
    /// Looks once more. `seen`: if the client is waited for. Whether it has been for too long.
    fn is_over(&mut self, seen: Option<Sight>, rule: &Rule<'_>) -> bool {
        let Some(now) = seen else {
            *self = Clock::default();
            return false;
        };
        let last = self.last.get_or_insert(now);
        if last.own != now.own {
            *last = now;
        }
        let mut is_over = rule.is_over(*last, now);
        let from = self.from.get_or_insert(now);
        let waited = now.at.duration_since(from.at);
        if rule.needs_rate && waited >= rule.patience.stalled {
            is_over |= now.own - from.own < rule.patience.least(waited) && rule.is_over(*from, now);
            *from = now;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Looks once a second while `at(second)` is seen of a stream and of all of its connection, and
    /// returns the second in which its time is over.
    fn run(
        needs_rate: bool,
        sharing: Option<u64>,
        at: impl Fn(u64) -> Option<(u64, u64)>,
    ) -> Option<u64> {
        let patience = Patience::new(&Timeouts::default(), &Limits::default());
        let rule = Rule { patience: &patience, needs_rate, sharing };
        let (mut clock, start) = (Clock::default(), Instant::now());
        (0..300).find(|second| {
            let seen = at(*second);
            let now = start + SECOND * *second as u32;
            clock.is_over(seen.map(|(own, all)| Sight { at: now, own, all }), &rule)
        })
    }

    #[test]
    fn an_answer_is_taken_byte_by_byte_or_not_waited_for() {
        assert_eq!(run(false, None, |_| Some((7, 7))), Some(30));
        assert_eq!(run(false, None, |second| Some((second.min(100), 0))), Some(130));
        assert_eq!(run(false, None, |second| Some((second / 20, 0))), None);
        // Now and then all of it has left, and it is the upstream that is waited for.
        assert_eq!(run(false, None, |second| (second % 29 > 0).then_some((7, 7))), None);
    }

    #[test]
    fn a_body_comes_at_a_rate_or_is_not_waited_for() {
        let own = |rate: u64| move |second: u64| Some((second * rate, second * rate));
        assert_eq!(run(true, Some(1), own(0)), Some(30));
        assert_eq!(run(true, Some(1), own(1)), Some(30));
        assert_eq!(run(true, Some(1), own(200)), None);
        let stopped = |second: u64| Some(((second * 10_000).min(50_000), 0));
        assert_eq!(run(true, Some(1), stopped), Some(35));
    }

    #[test]
    fn who_waits_for_a_turn_is_waited_with_while_the_others_take_their_share() {
        // 128 bytes a second for each of ten.
        let others = |rate: u64| move |second: u64| Some((0, second * rate));
        for needs_rate in [false, true] {
            assert_eq!(run(needs_rate, Some(10), others(1_300)), None);
            assert_eq!(run(needs_rate, Some(10), others(1_200)), Some(30));
            assert_eq!(run(needs_rate, None, others(1_000_000)), Some(30));
        }
    }

    #[test]
    fn what_is_taken_back_is_weighed_against_what_is_answered_and_forgiven_in_time() {
        let streams = Streams::default();
        // A page is left with all that was under way, again and again.
        for _ in 0..20 {
            (0..100).for_each(|_| streams.ended(true));
            assert!(!streams.takes_back_too_much(100));
            (0..50).for_each(|_| streams.ended(false));
            streams.passed(Duration::from_secs(5));
        }
        // What went well long ago counts for nothing.
        (0..10_000).for_each(|_| streams.ended(false));
        (0..200).for_each(|_| streams.ended(true));
        assert!(!streams.takes_back_too_much(100));
        streams.ended(true);
        assert!(streams.takes_back_too_much(100));
    }

    #[test]
    fn without_a_rate_a_body_is_waited_for_as_long_as_any_of_it_comes() {
        let limits = Limits { body_rate: 0, ..Limits::default() };
        let patience = Patience::new(&Timeouts::default(), &limits);
        let rule = Rule { patience: &patience, needs_rate: true, sharing: Some(1) };
        let start = Instant::now();
        let (mut slow, mut none) = (Clock::default(), Clock::default());
        let mut look = |second: u32| {
            let at = start + SECOND * second;
            let own = u64::from(second);
            let slow = slow.is_over(Some(Sight { at, own, all: own }), &rule);
            (slow, none.is_over(Some(Sight { at, own: 0, all: 0 }), &rule))
        };
        assert!((0..30).all(|second| look(second) == (false, false)));
        assert!((30..300).all(|second| look(second) == (false, true)));
    }
}
