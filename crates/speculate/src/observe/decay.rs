//! Counts that decay: an event counts half after a half-life.

use core::time::Duration;
use std::io::{Read, Write};

use lull_cc::Timestamp;

use crate::encoding::{ReadError, Sink, Source};

/// Forward decay (Cormode, Shkapenyuk, Srivastava and Xu, 2009). Instead of shrinking all counts over time,
/// each new event counts more, by 2^(time / half-life). Shares of counts are then those of decayed counts,
/// and unchanged counts are never written.
#[derive(Clone, Debug)]
pub(crate) struct Decay {
    half_life_seconds: u64,
    /// The second at which an event counts 1; none before the first.
    base: Option<u64>,
    latest: u64,
    /// The last requested second, and its weight.
    cached: (u64, f32),
}

/// Half-lives after which all counts are scaled down, so that they stay within a float's 2^127.
const SCALED_AFTER: u64 = 64;
/// The factor for all counts.
pub(crate) const SCALE: f32 = 1.0 / (1u64 << 32) as f32 / (1u64 << 32) as f32;

impl Decay {
    /// # Panics
    /// If the half-life is under a second.
    pub(crate) fn new(half_life: Duration) -> Self {
        assert!(half_life.as_secs() > 0, "a half-life is a second at least");
        Decay {
            half_life_seconds: half_life.as_secs(),
            base: None,
            latest: 0,
            cached: (u64::MAX, 1.0),
        }
    }

    /// The weight of an event now, and whether all counts must be multiplied by [`SCALE`] first.
    ///
    /// The time is a trusted one, and no line's date alone ([`Clock`](crate::log::Clock)). A gap counts as
    /// one half-life at most, as in [`resume`](Self::resume). If it goes back so far that no event of then
    /// counts any more, the earlier time was wrong. That happens on a machine whose clock was set since. If
    /// it goes back less, another server's log begins, whose events have the weight of their time.
    pub(crate) fn event(&mut self, at: Timestamp) -> (f32, bool) {
        let seconds = at.as_nanos() / 1_000_000_000;
        if seconds == self.cached.0 {
            return (self.cached.1, false);
        }
        let half_life = self.half_life_seconds;
        if self.base.is_none() {
            (self.base, self.latest) = (Some(seconds), seconds);
        }
        let is_gap = seconds > self.latest.saturating_add(half_life);
        if is_gap || seconds.saturating_add(SCALED_AFTER * half_life) < self.latest {
            self.resume(at);
        }
        self.latest = self.latest.max(seconds);
        let base = self.base.unwrap_or(seconds);
        let scale = self.latest - base > SCALED_AFTER * half_life;
        if scale {
            self.base = Some(base + SCALED_AFTER * half_life);
        }
        let counts = self.now(seconds);
        self.cached = (seconds, counts);
        (counts, scale)
    }

    /// Continues at `at`, which is certain to be the present time. The time since the latest one counts as
    /// one half-life at most, and a latest time further ahead than that was wrong. Otherwise each later event
    /// would count twice as much as the one before it, for as many events as there were half-lives in
    /// between.
    pub(crate) fn resume(&mut self, at: Timestamp) {
        let Some(base) = self.base else { return };
        let now = at.as_nanos() / 1_000_000_000;
        let half_life = self.half_life_seconds;
        let latest = if self.latest.saturating_add(half_life) < now {
            now - half_life
        } else if self.latest > now.saturating_add(half_life) {
            now
        } else {
            return;
        };
        // Only the time base changes, and no count.
        let Some(base) = latest.checked_sub(self.latest - base) else { return };
        (self.base, self.latest) = (Some(base), latest);
        self.cached = (u64::MAX, 1.0);
    }

    /// The weight of an event at a time; a count divided by it is in events of then.
    pub(crate) fn at(&self, at: Timestamp) -> f32 {
        let seconds = at.as_nanos() / 1_000_000_000;
        if seconds == self.cached.0 { self.cached.1 } else { self.now(seconds) }
    }

    /// The latest time so far.
    pub(crate) fn latest(&self) -> Timestamp {
        Timestamp::from_nanos(self.latest.saturating_mul(1_000_000_000))
    }

    pub(crate) fn write<W: Write>(&self, to: &mut Sink<W>) -> std::io::Result<()> {
        to.u8(u8::from(self.base.is_some()))?;
        to.u64(self.base.unwrap_or(0))?;
        to.u64(self.latest)?;
        to.u64(self.cached.0)?;
        to.f32(self.cached.1)
    }

    /// # Panics
    /// If the half-life is under a second.
    pub(crate) fn read<R: Read>(
        half_life: Duration,
        from: &mut Source<R>,
    ) -> Result<Self, ReadError> {
        let has_base = from.u8()?;
        let base = from.u64()?;
        let latest = from.u64()?;
        let cached = (from.u64()?, from.weight()?);
        let mut decay = Decay::new(half_life);
        let is_sound = match has_base {
            0 => (base, latest, cached) == (0, 0, decay.cached),
            1 => {
                // The range of a `Timestamp`, within the times that `event` accepts.
                let furthest = SCALED_AFTER * decay.half_life_seconds;
                latest <= u64::MAX / 1_000_000_000
                    && latest.checked_sub(base).is_some_and(|since| since <= furthest)
                    && cached.1 > 0.0
                    && cached.1 <= 1.0 / SCALE
            }
            _ => false,
        };
        if !is_sound {
            return Err(ReadError::Invalid("clock"));
        }
        decay.base = (has_base == 1).then_some(base);
        (decay.latest, decay.cached) = (latest, cached);
        Ok(decay)
    }

    fn now(&self, seconds: u64) -> f32 {
        let Some(base) = self.base else { return 1.0 };
        let since = seconds.min(self.latest) as f64 - base as f64;
        // A century or a second before the base makes no difference: it no longer counts.
        libm::exp2((since / self.half_life_seconds as f64).max(-60.0)) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn event_counts_double_after_a_half_life() {
        let mut decay = Decay::new(Duration::from_secs(100));
        for (seconds, expected) in [(1_000, 1.0), (1_100, 2.0), (1_050, 1.414), (1_300, 4.0)] {
            let (counts, scale) = decay.event(at(seconds));
            assert!((counts - expected).abs() < 1e-3 && !scale, "{seconds}: {counts}");
        }
        // The jump of two half-lives was counted as one, and is over.
        assert!((decay.event(at(1_301)).0 - 4.028).abs() < 1e-3);
    }

    #[test]
    fn shares_survive_the_scaling() {
        let mut decay = Decay::new(Duration::from_secs(10));
        let mut count = 0.0;
        let mut scalings = 0;
        for second in 0..2_000 {
            let (counts, scale) = decay.event(at(second));
            if scale {
                count *= SCALE;
                scalings += 1;
            }
            count += counts;
        }
        // The sum of 2^(−k/10): the final value for one event per second.
        let events = count / decay.at(at(1_999));
        assert!((events - 14.94).abs() < 0.05, "{events}");
        assert_eq!(scalings, 3);
    }

    #[test]
    fn unobserved_time_counts_as_one_half_life() {
        const YEARS: u64 = 30 * 365 * 86_400;
        let mut decay = Decay::new(Duration::from_secs(100));
        assert_eq!(decay.event(at(YEARS)).0, 1.0);
        for now in [2 * YEARS, 2 * YEARS + 1, 2 * YEARS + 50] {
            decay.resume(at(now));
            let (counts, _) = decay.event(at(now));
            assert!((2.0..3.0).contains(&counts), "{now}: {counts}");
        }
        // A pause that is not longer counts as it is.
        decay.resume(at(2 * YEARS + 100));
        assert_eq!(decay.event(at(2 * YEARS + 100)).0, 4.0);
        // So does a wrong clock, as nothing.
        decay.event(at(9 * YEARS));
        decay.event(at(9 * YEARS + 1));
        decay.resume(at(2 * YEARS + 101));
        let (counts, _) = decay.event(at(2 * YEARS + 101));
        assert!((counts - 8.056).abs() < 1e-3, "{counts}");
        let mut new = Decay::new(Duration::from_secs(100));
        new.resume(at(5));
        assert_eq!(new.event(at(7)).0, 1.0);
    }

    #[test]
    fn wrong_time_ages_nothing() {
        let mut decay = Decay::new(Duration::from_secs(100));
        decay.event(at(1_000));
        assert_eq!(decay.event(at(1_000_000_000)), (2.0, false));
        assert_eq!(decay.event(at(1_001)), (2.0, false));
        assert_eq!(decay.event(at(1_101)), (4.0, false));
        assert_eq!(decay.latest(), at(1_101));
        // Another server's log of the same days begins where that one began.
        assert_eq!(decay.event(at(1_001)), (2.0, false));
        assert_eq!(decay.latest(), at(1_101));
    }
}
