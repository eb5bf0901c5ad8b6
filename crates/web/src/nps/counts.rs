//! What is counted, for `/metrics` and the dashboard.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::reasons::Reasons;

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn one(&self) {
        self.add(1);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper ends of the ranges that times are counted in, in microseconds: six to a decade, so that a
/// quantile is known to within a quarter or so.
const ENDS: [u64; 31] = [
    100, 150, 220, 330, 470, 680, 1_000, 1_500, 2_200, 3_300, 4_700, 6_800, 10_000, 15_000, 22_000,
    33_000, 47_000, 68_000, 100_000, 150_000, 220_000, 330_000, 470_000, 680_000, 1_000_000,
    1_500_000, 2_200_000, 3_300_000, 4_700_000, 6_800_000, 10_000_000,
];

/// How often times of each range came.
#[derive(Debug)]
pub(super) struct Times {
    counts: [Count; ENDS.len() + 1],
    sum_micros: Count,
}

impl Default for Times {
    fn default() -> Self {
        Times { counts: std::array::from_fn(|_| Count::default()), sum_micros: Count::default() }
    }
}

impl Times {
    pub(super) fn note(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.counts[ENDS.partition_point(|end| *end < micros)].one();
        self.sum_micros.add(micros.min(1 << 40));
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().map(Count::get).sum()
    }

    pub(super) fn sum_seconds(&self) -> f64 {
        self.sum_micros.get() as f64 / 1e6
    }

    /// How many were no longer than each end, in seconds.
    pub(super) fn cumulated(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut below = 0;
        ENDS.iter().zip(&self.counts).map(move |(end, count)| {
            below += count.get();
            (*end as f64 / 1e6, below)
        })
    }

    /// The time that `share` of all were no longer than, in milliseconds: the geometric middle of
    /// its range. `None` if there was none.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let count = self.count();
        let rank = (count as f64 * share).ceil().max(1.0) as u64;
        let mut below = 0;
        let place = self.counts.iter().position(|one| {
            below += one.get();
            below >= rank && count > 0
        })?;
        let end = ENDS[place.min(ENDS.len() - 1)] as f64;
        let begin = if place == 0 { end / 2.0 } else { ENDS[place - 1] as f64 };
        Some((begin * end).sqrt() / 1e3)
    }
}

/// Navigations of one kind of visitors, as their browsers measured them.
#[derive(Debug, Default)]
pub(super) struct Navigations {
    pub(super) all: Count,
    pub(super) cached: Count,
    pub(super) ttfb: Times,
    pub(super) lcp: Times,
    pub(super) load: Times,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Pages that were given to the munger.
    pub(super) pages: Count,
    /// Why others were left as they are, lists are empty, and URLs not on them.
    pub(super) pages_left: Reasons,
    pub(super) empty: Reasons,
    pub(super) left_out: Reasons,
    pub(super) asked: Count,
    pub(super) lists: Count,
    pub(super) hints: Count,
    /// Prefetches that went upstream, were refused before, and whose reply was not kept.
    pub(super) prefetches: Count,
    pub(super) refused: Count,
    pub(super) unkept: Count,
    /// Bytes of prefetches that were sent, and of those that a navigation took from the cache.
    pub(super) prefetched_bytes: Count,
    pub(super) used_bytes: Count,
    /// Navigations that were told to show a copy of the service worker's.
    pub(super) shown: Count,
    /// Visits that were not learned from because the desk was behind.
    pub(super) unlearned: Count,
    pub(super) beacons: Count,
    /// Messages of scripts that were refused.
    pub(super) rejected: Count,
    /// With prefetching, and of the share that is held back.
    pub(super) with: Navigations,
    pub(super) without: Navigations,
    /// Times to the first byte: of answers to visitors, by the upstream, and of probes.
    pub(super) demand: Times,
    pub(super) probes: Times,
    /// Samples that visitors' requests gave for nothing.
    pub(super) passive: Count,
    /// Of the shadow mode: pages, hints on their lists, and pages that were on the list before.
    pub(super) shadow_pages: Count,
    pub(super) shadow_hints: Count,
    pub(super) shadow_hits: Count,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_in_the_range_of_its_time() {
        let times = Times::default();
        assert_eq!(times.quantile(0.5), None);
        for millis in [1, 2, 40, 41, 42, 43, 44, 45, 46, 9_000] {
            times.note(Duration::from_millis(millis));
        }
        let median = times.quantile(0.5).unwrap();
        assert!((33.0..47.0).contains(&median), "{median}");
        assert!(times.quantile(0.0).unwrap() < 1.1 && times.quantile(1.0).unwrap() > 6_800.0);
        times.note(Duration::from_secs(100));
        assert_eq!((times.count(), times.cumulated().last()), (11, Some((10.0, 10))));
        assert!((times.sum_seconds() - 109.304).abs() < 0.001);
    }
}
