//! Counts of times in ranges, and the statistics of them.

use std::time::Duration;

use super::counter::Counter;

/// Preferred numbers, 24 per decade (IEC 60063): each is a tenth larger than the previous one.
const PREFERRED: [u64; 24] = [
    10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91,
];
/// From 100 µs to 100 s.
const RANGES: usize = 6 * PREFERRED.len() + 1;
/// Every fourth of these ends is reported to Prometheus, six to a decade: it keeps a series for each of them.
const EXPORTED_EVERY: usize = 4;

/// Upper ends of the ranges in which times are counted, in microseconds.
const ENDS: [u64; RANGES] = {
    let mut ends = [0; RANGES];
    let (mut place, mut unit) = (0, 10);
    while place < RANGES {
        ends[place] = PREFERRED[place % PREFERRED.len()] * unit;
        place += 1;
        if place % PREFERRED.len() == 0 {
            unit *= 10;
        }
    }
    ends
};

/// Half the width of an interval that contains the median with 95 % certainty, in ranks of √n. It is 1.96
/// deviations of how many of n are below it, each with a probability of one half.
const RANKS: f64 = 0.98;

/// Counted times.
#[derive(Clone, Debug)]
pub(super) struct TimeCounts {
    counts: [u64; RANGES + 1],
    sum_micros: u64,
}

impl Default for TimeCounts {
    fn default() -> Self {
        TimeCounts { counts: [0; RANGES + 1], sum_micros: 0 }
    }
}

/// The range of a time, and its contribution to the sum.
fn place(time: Duration) -> (usize, u64) {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    (ENDS.partition_point(|end| *end < micros), micros.min(1 << 40))
}

impl TimeCounts {
    pub(super) fn record(&mut self, time: Duration) {
        let (range, micros) = place(time);
        self.counts[range] += 1;
        self.sum_micros = self.sum_micros.saturating_add(micros);
    }

    pub(super) fn add(&mut self, more: &TimeCounts) {
        for (count, more) in self.counts.iter_mut().zip(&more.counts) {
            *count += more;
        }
        self.sum_micros = self.sum_micros.saturating_add(more.sum_micros);
    }

    /// The counts since they were `before`.
    pub(super) fn since(&self, before: &TimeCounts) -> TimeCounts {
        let mut since = self.clone();
        for (count, before) in since.counts.iter_mut().zip(&before.counts) {
            *count = count.saturating_sub(*before);
        }
        since.sum_micros = since.sum_micros.saturating_sub(before.sum_micros);
        since
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn sum_seconds(&self) -> f64 {
        self.sum_micros as f64 / 1e6
    }

    /// In milliseconds; `None` if there was none.
    pub(super) fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_micros as f64 / 1e3 / count as f64)
    }

    /// The upper bounds of the ranges, in seconds, and how many times were at most that long.
    pub(super) fn cumulated(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut below = 0;
        ENDS.iter().zip(&self.counts).map(move |(end, count)| {
            below += count;
            (*end as f64 / 1e6, below)
        })
    }

    /// The same for Prometheus.
    pub(super) fn exported(&self) -> impl Iterator<Item = (f64, u64)> {
        self.cumulated().step_by(EXPORTED_EVERY)
    }

    /// The time that `share` of all did not exceed, in milliseconds, as if those of a range were spread over
    /// it evenly, in its logarithm. `None` if there was none.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let (range, within) = self.find(rank)?;
        let (begin, end) = bounds(range);
        let end = end.unwrap_or(begin);
        let part = (within as f64 - 0.5) / self.counts[range] as f64;
        Some(begin * (end / begin).powf(part))
    }

    /// The times, in milliseconds, between which the median lies with 95 % certainty, to the ends of their
    /// ranges (order statistics). `None` if there were too few.
    pub(super) fn median_between(&self) -> Option<(f64, f64)> {
        let count = self.count();
        let low = (count as f64 / 2.0 - RANKS * (count as f64).sqrt()).floor();
        if low < 1.0 {
            return None;
        }
        let (least, _) = bounds(self.find(low as u64)?.0);
        let (_, most) = bounds(self.find(count + 1 - low as u64)?.0);
        Some((least, most?))
    }

    /// The range with the time of this rank, and its rank there.
    fn find(&self, rank: u64) -> Option<(usize, u64)> {
        let mut below = 0;
        let range = self.counts.iter().position(|count| {
            let is_there = below + count >= rank;
            below += if is_there { 0 } else { *count };
            is_there
        })?;
        (self.counts[range] > 0).then_some((range, rank - below))
    }
}

/// The beginning and the end of a range, in milliseconds; the last one has no end.
fn bounds(range: usize) -> (f64, Option<f64>) {
    let end = |range: usize| ENDS.get(range).map(|end| *end as f64 / 1e3);
    let begin = range.checked_sub(1).and_then(end);
    // The first one has no beginning.
    (begin.unwrap_or(ENDS[0] as f64 / 2e3), end(range))
}

/// Times that many threads count concurrently.
#[derive(Debug)]
pub(super) struct Times {
    counts: [Counter; RANGES + 1],
    sum_micros: Counter,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            counts: std::array::from_fn(|_| Counter::default()),
            sum_micros: Counter::default(),
        }
    }
}

impl Times {
    pub(super) fn record(&self, time: Duration) {
        let (range, micros) = place(time);
        self.counts[range].one();
        self.sum_micros.add(micros);
    }

    /// All of them by now.
    pub(super) fn counted(&self) -> TimeCounts {
        TimeCounts {
            counts: std::array::from_fn(|range| self.counts[range].get()),
            sum_micros: self.sum_micros.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of this many microseconds each.
    fn counted(micros: impl IntoIterator<Item = u64>) -> TimeCounts {
        let times = Times::default();
        micros.into_iter().for_each(|micros| times.record(Duration::from_micros(micros)));
        times.counted()
    }

    /// Times around `middle`: half of them up to a tenth less, and half up to a tenth more.
    fn around(middle: u64, count: u64) -> TimeCounts {
        counted((0..count).map(|one| middle * 9 / 10 + middle * (2 * one + 1) / (10 * count)))
    }

    #[test]
    fn buckets_are_a_tenth_wide_and_include_the_reported_ones() {
        assert_eq!((ENDS[0], ENDS[1], ENDS[RANGES - 1]), (100, 110, 100_000_000));
        for two in ENDS.windows(2) {
            assert!((1.06..1.16).contains(&(two[1] as f64 / two[0] as f64)), "{two:?}");
        }
        let told: Vec<f64> = TimeCounts::default().exported().map(|(end, _)| end).collect();
        assert_eq!(told[..7], [0.0001, 0.00015, 0.00022, 0.00033, 0.00047, 0.00068, 0.001]);
        assert_eq!((told.len(), told.last()), (37, Some(&100.0)));
    }

    #[test]
    fn quantile_is_exact_to_one_percent() {
        assert_eq!(TimeCounts::default().quantile(0.5), None);
        for middle in [800, 5_050, 99_000, 101_000, 2_345_000] {
            let median = around(middle, 1_000).quantile(0.5).unwrap();
            let error = median * 1e3 / middle as f64 - 1.0;
            assert!(error.abs() < 0.01, "{middle}: {median}");
        }
        let times = counted([1_000, 2_000, 9_000_000]);
        assert!(times.quantile(0.0).unwrap() < 1.01);
        assert!((8_200.0..9_100.0).contains(&times.quantile(1.0).unwrap()));
        // Longer than any range.
        assert_eq!(counted([200_000_000]).quantile(0.5), Some(100_000.0));
        assert_eq!(counted([200_000_000]).exported().last(), Some((100.0, 0)));
    }

    #[test]
    fn mean_is_exact() {
        assert_eq!(TimeCounts::default().mean(), None);
        assert_eq!(counted([1_000, 2_000, 9_000]).mean(), Some(4.0));
        assert!((counted([1_000, 2_500]).sum_seconds() - 0.0035).abs() < 1e-9);
    }

    #[test]
    fn medians_2_percent_apart_overlap_and_25_percent_do_not() {
        let within = |middle, count| around(middle, count).median_between();
        assert_eq!(within(100_000, 7), None);
        let (few, many) = (within(97_000, 8).unwrap(), within(97_000, 10_000).unwrap());
        assert!(few.0 <= many.0 && few.1 >= many.1 && few != many, "{few:?} {many:?}");
        for count in [8, 100, 10_000] {
            let [one, other, more] = [99_000, 101_000, 125_000].map(|one| within(one, count));
            let [one, other, more] = [one.unwrap(), other.unwrap(), more.unwrap()];
            assert!(one.1 >= other.0, "{one:?} {other:?}");
            assert!(count < 100 || other.1 < more.0, "{other:?} {more:?}");
        }
        // Its end is unknown.
        assert_eq!(counted([200_000_000; 100]).median_between(), None);
    }

    /// Of samples from a distribution with a known median, the interval contains it in 95 of 100.
    #[test]
    fn median_interval_has_its_confidence() {
        let mut draw = 1u64;
        let mut next = || {
            draw = draw
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (draw >> 11) as f64 / (1u64 << 53) as f64
        };
        for count in [10, 50, 1_000] {
            let holds = (0..400).filter(|_| {
                // From 1 ms to 10 s, evenly in the logarithm: 100 ms is their median.
                let times = counted((0..count).map(|_| (1e3 * 1e4f64.powf(next())) as u64));
                times.median_between().is_some_and(|(low, high)| low <= 100.0 && high >= 100.0)
            });
            assert!(holds.count() >= 370, "{count}");
        }
    }
}
