//! The streams of an HTTP/2 connection, with the delays caused by its client.
//!
//! The connection's traffic says little about its streams: pings alone keep it active, and one stream may
//! stall while others progress. So each has its own counters, and is judged and ended separately.

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

/// Runs each stream in a task that can be ended from outside: while hyper waits for a client to read an
/// answer, nothing else ends it.
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

/// An HTTP/2 request, as long as any of it is in progress.
#[derive(Debug)]
pub(crate) struct Stream {
    streams: Arc<Streams>,
    task: Option<Arc<OnceLock<AbortHandle>>>,
    /// The progress of its body, if it has one.
    upload: OnceLock<Arc<Upload>>,
    /// Bytes of the answer handed over, and those of them that have left.
    given: AtomicU64,
    left: AtomicU64,
}

impl Stream {
    /// A request begins, in the current task.
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

    /// This many bytes of the body have arrived.
    pub(crate) fn has_come(&self, bytes: usize) {
        self.streams.came.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn has_left(&self, bytes: usize) {
        self.left.fetch_add(bytes as u64, Ordering::Relaxed);
        self.streams.left.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How much of the answer has left, if the client is not taking the rest.
    fn untaken(&self) -> Option<u64> {
        let left = self.left.load(Ordering::Relaxed);
        (self.given.load(Ordering::Relaxed) > left).then_some(left)
    }

    /// How much of the body has arrived, if the client is not sending the rest.
    fn unsent(&self) -> Option<u64> {
        let upload = self.upload.get().filter(|upload| upload.is_waiting())?;
        Some(upload.bytes())
    }

    /// Whether the upstream does not take the body: its buffered bytes use up the [space](FILLING) of all
    /// bodies of the connection.
    fn is_held_back(&self) -> bool {
        self.upload.get().is_some_and(|upload| !upload.is_waiting() && !upload.is_done())
    }

    /// Cancels it, so that the client gets a reset, and the upstream is released.
    fn end(&self) {
        if let Some(task) = self.task.as_ref().and_then(|task| task.get()) {
            task.abort();
        }
        if let Some(upload) = self.upload.get() {
            upload.end_rest();
        }
    }
}

/// A piece of an answer's body, which counts its bytes as they leave.
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

/// The maximum number of bytes that a client may send before the upstream takes them: for one request, and
/// for all of a connection.
pub(crate) const H2_STREAM_WINDOW: u32 = 256 << 10;
pub(crate) const H2_CONNECTION_WINDOW: u32 = 1 << 20;
/// If the upstream does not take this many bodies, they may leave no room for others.
const FILLING: u64 = (H2_CONNECTION_WINDOW / H2_STREAM_WINDOW) as u64;

/// How long a client may hold a stream up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    stalled: Duration,
    /// Bytes per second that a body must have.
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
    /// Bytes of all their answers that have left, and of all their bodies that have arrived.
    left: AtomicU64,
    came: AtomicU64,
    /// Requests that the client reset, less those that ended otherwise and those that expired.
    taken_back: AtomicU32,
}

/// How many requests beyond the concurrency limit a client may reset. Each costs a connection to the
/// upstream, and wasted work there; the client pays a few bytes. h2 counts resets before processing
/// (CVE-2023-44487), so they never come here. Browsers reset the requests of a page that is left, and images
/// that were scrolled out of view.
const MAX_EXTRA_RESETS: u32 = 100;
/// Number of these per second that do not count.
const FORGIVEN_RESETS: u32 = 10;

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
        // Finished ones are removed when there is no room, so that a quick one is cheap.
        if entries.len() == entries.capacity() {
            entries.retain(|entry| entry.stream.strong_count() > 0);
        }
        let stream = Arc::downgrade(stream);
        entries.push(Entry { stream, answer: Clock::default(), body: Clock::default() });
    }

    /// A request has ended, by its client's cancellation or otherwise.
    pub(crate) fn ended(&self, is_taken_back: bool) {
        if is_taken_back {
            self.taken_back.fetch_add(1, Ordering::Relaxed);
        } else {
            self.forgive(1);
        }
    }

    /// This much time has passed.
    pub(crate) fn passed(&self, time: Duration) {
        self.forgive((time.as_secs_f32() * FORGIVEN_RESETS as f32) as u32);
    }

    fn forgive(&self, count: u32) {
        // Nearly always there is nothing, and a load is cheaper than a store.
        if self.taken_back.load(Ordering::Relaxed) > 0 {
            let less = |taken_back: u32| Some(taken_back.saturating_sub(count));
            let _ = self.taken_back.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Whether the client resets more than any normal client, with `at_a_time` concurrent requests.
    pub(crate) fn resets_too_often(&self, at_a_time: u32) -> bool {
        self.taken_back.load(Ordering::Relaxed) > at_a_time.saturating_add(MAX_EXTRA_RESETS)
    }

    /// Whether a part of an answer still waits here for its client.
    pub(crate) fn are_waiting(&self) -> bool {
        let waits =
            |entry: &Entry| entry.stream.upgrade().is_some_and(|one| one.untaken().is_some());
        self.entries().iter().any(waits)
    }

    /// Bytes of all answers that have left.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Judges the events since the last look, and ends each stream that its client stalls. If the connection
    /// accepts no more at the moment, the client's progress is what its kernel acknowledges: `taken`. Until
    /// that is known, no stream is ended.
    pub(crate) fn end_stalled(
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
        // While the connection itself is full, a stream may have to wait for its turn.
        let answers = Rule { patience, needs_rate: false, sharing: is_blocked.then_some(untaken) };
        // The client chooses the order of bodies.
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

/// The counters at one look: bytes of a stream, and of the whole connection, in one direction.
#[derive(Clone, Copy, Debug)]
struct Sight {
    at: Instant,
    own: u64,
    all: u64,
}

/// The limits for clients in one direction.
#[derive(Clone, Copy, Debug)]
struct Rule<'a> {
    patience: &'a Patience,
    /// Whether a minimum rate is required.
    needs_rate: bool,
    /// Streams that share the connection, if others may fill it.
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

/// How long a client was the cause of waiting, in one direction of a stream, at every check.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// When it last made progress, or when the wait began.
    last: Option<Sight>,
    /// From when its rate is measured.
    from: Option<Sight>,
}

impl Clock {
    /// Looks again. `seen`: if the client is waited for. Returns whether that has lasted too long.
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

    /// Checks once per second while `at(second)` is seen of a stream and of its whole connection. Returns the
    /// second in which its time is over.
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
    fn response_stream_without_progress_is_reset() {
        assert_eq!(run(false, None, |_| Some((7, 7))), Some(30));
        assert_eq!(run(false, None, |second| Some((second.min(100), 0))), Some(130));
        assert_eq!(run(false, None, |second| Some((second / 20, 0))), None);
        // Sometimes all of it has left, and the upstream is the cause of waiting.
        assert_eq!(run(false, None, |second| (second % 29 > 0).then_some((7, 7))), None);
    }

    #[test]
    fn request_body_below_the_rate_is_reset() {
        let own = |rate: u64| move |second: u64| Some((second * rate, second * rate));
        assert_eq!(run(true, Some(1), own(0)), Some(30));
        assert_eq!(run(true, Some(1), own(1)), Some(30));
        assert_eq!(run(true, Some(1), own(200)), None);
        let stopped = |second: u64| Some(((second * 10_000).min(50_000), 0));
        assert_eq!(run(true, Some(1), stopped), Some(35));
    }

    #[test]
    fn waiting_stream_lives_while_the_others_use_their_share() {
        // 128 bytes per second for each of ten.
        let others = |rate: u64| move |second: u64| Some((0, second * rate));
        for needs_rate in [false, true] {
            assert_eq!(run(needs_rate, Some(10), others(1_300)), None);
            assert_eq!(run(needs_rate, Some(10), others(1_200)), Some(30));
            assert_eq!(run(needs_rate, None, others(1_000_000)), Some(30));
        }
    }

    #[test]
    fn resets_are_weighed_against_answers_and_expire() {
        let streams = Streams::default();
        // A page with all its requests is left, repeatedly.
        for _ in 0..20 {
            (0..100).for_each(|_| streams.ended(true));
            assert!(!streams.resets_too_often(100));
            (0..50).for_each(|_| streams.ended(false));
            streams.passed(Duration::from_secs(5));
        }
        // Successes long ago count for nothing.
        (0..10_000).for_each(|_| streams.ended(false));
        (0..200).for_each(|_| streams.ended(true));
        assert!(!streams.resets_too_often(100));
        streams.ended(true);
        assert!(streams.resets_too_often(100));
    }

    #[test]
    fn without_a_rate_any_progress_of_a_body_is_enough() {
        let limits = Limits { body_rate: 0, ..Limits::default() };
        let patience = Patience::new(&Timeouts::default(), &limits);
        let rule = Rule { patience: &patience, needs_rate: true, sharing: Some(1) };
        let start = Instant::now();
        let (mut slow, mut none) = (Clock::default(), Clock::default());
        let mut check = |second: u32| {
            let at = start + SECOND * second;
            let own = u64::from(second);
            let slow = slow.is_over(Some(Sight { at, own, all: own }), &rule);
            (slow, none.is_over(Some(Sight { at, own: 0, all: 0 }), &rule))
        };
        assert!((0..30).all(|second| check(second) == (false, false)));
        assert!((30..300).all(|second| check(second) == (false, true)));
    }
}
