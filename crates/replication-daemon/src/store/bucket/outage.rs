//! Whether a bucket answers: retries with backoff, and the state in which writes are refused at once.
//!
//! ```text
//!             failure                    failures for longer than `patience`
//!  answers ────────────▶ failing ───────────────────────────────────────────▶ away
//!     ▲  an answer          │                                                   │ one probe
//!     └◀────────────────────┘◀──────────────────────────────────────────────────┘ per `probe`
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a bucket may fail, and how often it is asked after that.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Longest time of failures in which requests wait for the bucket.
    pub outage: Duration,
    /// The pause between two requests after that.
    pub probe: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { outage: Duration::from_secs(15), probe: Duration::from_secs(1) }
    }
}

/// A change that the operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The bucket does not answer; with the last failure.
    Away(String),
    /// It answers again.
    Back,
}

#[derive(Debug, Default)]
struct State {
    failing_since: Option<Instant>,
    /// The last failure, while the bucket is away.
    away: Option<String>,
    probed: Option<Instant>,
}

type OnChange = Box<dyn Fn(Change) + Send + Sync>;

/// The state of a bucket.
pub(super) struct Outage {
    patience: Patience,
    state: Mutex<State>,
    on_change: Mutex<Option<OnChange>>,
}

impl core::fmt::Debug for Outage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Outage").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Outage {
    pub(super) fn new(patience: Patience) -> Self {
        Outage { patience, state: Mutex::default(), on_change: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `on_change` for each change from now on, and at once if the bucket is away.
    pub(super) fn follow(&self, on_change: OnChange) {
        if let Some(why) = self.why() {
            on_change(Change::Away(why));
        }
        *self.on_change.lock().unwrap_or_else(PoisonError::into_inner) = Some(on_change);
    }

    fn report_change(&self, change: Change) {
        if let Some(on_change) = &*self.on_change.lock().unwrap_or_else(PoisonError::into_inner) {
            on_change(change);
        }
    }

    /// How long one request is retried.
    pub(super) fn patience(&self) -> Duration {
        self.patience.outage
    }

    /// The last failure, if the bucket is away.
    pub(super) fn why(&self) -> Option<String> {
        self.state().away.clone()
    }

    /// Whether a request may be sent at `now`.
    ///
    /// # Errors
    /// The last failure, if the bucket is away and was asked recently.
    pub(super) fn admit(&self, now: Instant) -> Result<(), String> {
        let mut state = self.state();
        let Some(why) = &state.away else { return Ok(()) };
        if state.probed.is_some_and(|probed| now < probed + self.patience.probe) {
            return Err(why.clone());
        }
        state.probed = Some(now);
        Ok(())
    }

    /// A request has failed at `now`. Returns whether the bucket is away.
    pub(super) fn fail(&self, now: Instant, why: &str) -> bool {
        let mut state = self.state();
        let since = *state.failing_since.get_or_insert(now);
        let was_away = state.away.is_some();
        if !was_away && now.saturating_duration_since(since) < self.patience.outage {
            return false;
        }
        state.away = Some(why.to_owned());
        state.probed.get_or_insert(now);
        drop(state);
        if !was_away {
            self.report_change(Change::Away(why.to_owned()));
        }
        true
    }

    /// The bucket cannot be used: it is away at once.
    pub(super) fn give_up(&self, now: Instant, why: &str) {
        self.state().failing_since = now.checked_sub(self.patience.outage).or(Some(now));
        self.fail(now, why);
    }

    /// A request was answered.
    pub(super) fn succeed(&self) {
        let before = core::mem::take(&mut *self.state());
        if before.away.is_some() {
            self.report_change(Change::Back);
        }
    }
}

/// The pauses between attempts of one request: twice as long each time, and different for each request, so
/// that not all return at once.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    seed: u64,
}

const FIRST: Duration = Duration::from_millis(100);
const MAX_FRAME_BYTES: Duration = Duration::from_secs(5);

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Backoff { next: FIRST, seed }
    }

    /// The next pause: between a half and the whole of a length that doubles.
    pub(super) fn pause(&mut self) -> Duration {
        // Steele et al., SplitMix64.
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let share = (mixed >> 32) as u32;
        let half = self.next / 2;
        let pause = half + half.mul_f64(f64::from(share) / f64::from(u32::MAX));
        self.next = (self.next * 2).min(MAX_FRAME_BYTES);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const TIMEOUT: Patience =
        Patience { outage: Duration::from_secs(10), probe: Duration::from_secs(1) };

    #[test]
    fn bucket_is_away_after_failures_for_its_patience() {
        let outage = Outage::new(TIMEOUT);
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        outage.follow(Box::new(move |change| telling.lock().unwrap().push(change)));
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        assert!(!outage.fail(at(0), "slow"));
        assert!(!outage.fail(at(9), "slow"));
        outage.succeed();
        assert!(!outage.fail(at(12), "slow"), "an answer begins the time again");
        assert_eq!(outage.admit(at(13)), Ok(()));
        assert!(outage.fail(at(22), "gone"));
        assert_eq!(outage.why().as_deref(), Some("gone"));
        assert!(outage.fail(at(22), "gone"), "and it is reported once");
        outage.succeed();
        assert_eq!(outage.why(), None);
        let told = told.lock().unwrap();
        assert_eq!(*told, [Change::Away("gone".to_owned()), Change::Back]);
    }

    #[test]
    fn bucket_that_is_away_is_probed_once_per_interval() {
        let outage = Outage::new(TIMEOUT);
        let begin = Instant::now();
        outage.give_up(begin, "gone");
        let admitted = (1..=50)
            .filter(|tenths| outage.admit(begin + Duration::from_millis(100 * tenths)).is_ok());
        assert_eq!(admitted.count(), 5);
        outage.succeed();
        assert_eq!(outage.admit(begin), Ok(()));
    }

    #[test]
    fn backoff_doubles_to_its_limit_and_differs_between_requests() {
        let pauses = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..12).map(|_| backoff.pause()).collect::<Vec<_>>()
        };
        let (one, other) = (pauses(1), pauses(2));
        assert_ne!(one, other);
        let mut length = FIRST;
        for pause in one {
            assert!((length / 2..=length).contains(&pause), "{pause:?} of {length:?}");
            length = (length * 2).min(MAX_FRAME_BYTES);
        }
    }
}
