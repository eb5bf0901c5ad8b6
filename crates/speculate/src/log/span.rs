//! The first and last time of a log, despite single wrong lines.

use std::collections::BTreeMap;

use core::time::Duration;

use lull_cc::Timestamp;

/// Lines are counted together if their dates are within this many seconds of the clock.
const BUCKET: u64 = 3_600;
/// How far from the middle half of all lines a date may be, in lengths of that half.
const FAR: u32 = 20;
/// One line in this many, or in a part of that, may have a wrong date.
const STRAY: u64 = 1_000;
/// In a shorter log all lines count: a long time without visitors is plausible.
const SHORT: u64 = 100;

/// The time that a log covers.
///
/// A damaged line, or a machine that begins in 1970 until it knows the time, may have any date. So dates are
/// left out that are few, and farther from the middle half of all than twenty times its length. Otherwise a
/// single line of the wrong century would make a log of a month one of a hundred years.
///
/// ```
/// use lull_cc::Timestamp;
/// use lull_speculate::log::Span;
///
/// let mut span = Span::default();
/// let date = |hour: u64| Timestamp::from_nanos(hour * 3_600_000_000_000);
/// for hour in 400_000..403_000 {
///     span.record(date(hour));
/// }
/// span.record(date(0));
/// span.record(date(1_000_000));
/// assert_eq!(span.ends(), Some((date(400_000), date(402_999))));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Span {
    buckets: BTreeMap<u64, Bucket>,
    lines: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    lines: u64,
    first: Timestamp,
    last: Timestamp,
}

impl Span {
    /// Notes a line's date.
    pub fn record(&mut self, at: Timestamp) {
        self.lines += 1;
        let number = at.as_nanos() / 1_000_000_000 / BUCKET;
        let bucket = Bucket { lines: 0, first: at, last: at };
        let bucket = self.buckets.entry(number).or_insert(bucket);
        bucket.lines += 1;
        bucket.first = bucket.first.min(at);
        bucket.last = bucket.last.max(at);
    }

    /// The first and the last counted date; none if there was no line.
    pub fn ends(&self) -> Option<(Timestamp, Timestamp)> {
        let all = || self.buckets.values();
        let whole = (all().next()?.first, all().next_back()?.last);
        // Of the line after this many.
        let behind = |lines: u64| {
            let mut before = 0;
            all().find(|bucket| {
                before += bucket.lines;
                before > lines
            })
        };
        let (first, third) = (behind(self.lines / 4)?.first, behind(self.lines * 3 / 4)?.last);
        let reach = FAR * (third.saturating_since(first)).max(Duration::from_secs(BUCKET));
        let counts = |bucket: &&Bucket| {
            first.saturating_since(bucket.first) <= reach
                && bucket.last.saturating_since(third) <= reach
        };
        let counted: u64 = all().filter(counts).map(|bucket| bucket.lines).sum();
        let may_stray = if self.lines < SHORT { 0 } else { self.lines.div_ceil(STRAY) };
        if self.lines - counted > may_stray {
            return Some(whole);
        }
        Some((all().find(counts)?.first, all().rfind(counts)?.last))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_nanos(second * 1_000_000_000)
    }

    fn ends(seconds: impl IntoIterator<Item = u64>) -> Option<(u64, u64)> {
        let mut span = Span::default();
        seconds.into_iter().for_each(|second| span.record(at(second)));
        let (first, last) = span.ends()?;
        Some((first.as_nanos() / 1_000_000_000, last.as_nanos() / 1_000_000_000))
    }

    #[test]
    fn few_distant_dates_are_ignored() {
        const DAY: u64 = 86_400;
        let month = || (0..3_000).map(|line| 10_000 * DAY + line * DAY / 100);
        let whole = Some((10_000 * DAY, 10_000 * DAY + 2_999 * DAY / 100));
        assert_eq!(ends(month()), whole);
        assert_eq!(ends(month().chain([0])), whole);
        assert_eq!(ends(month().chain([40_000 * DAY, 50_000 * DAY])), whole);
        assert_eq!(ends(month().chain([0, 7, 40_000 * DAY])), whole);
        // Five of three thousand are more than one in a thousand.
        assert_ne!(ends(month().chain([0, 1, 2, 3, 4])), whole);
        // Days without visitors are not wrong dates.
        assert_eq!(ends(month().chain([10_050 * DAY])), Some((10_000 * DAY, 10_050 * DAY)));
    }

    #[test]
    fn short_log_counts_every_line() {
        assert_eq!(ends([]), None);
        assert_eq!(ends([5]), Some((5, 5)));
        assert_eq!(ends([5, 5_000_000]), Some((5, 5_000_000)));
        assert_eq!(ends((0..98).chain([5_000_000])), Some((0, 5_000_000)));
        assert_eq!(ends((0..99).chain([5_000_000])), Some((0, 98)));
    }

    proptest! {
        #[test]
        fn nearly_all_lines_are_within_the_span(seconds in prop::collection::vec(0_u64..1 << 33, 1..4_000)) {
            let (first, last) = ends(seconds.iter().copied()).unwrap();
            let outside = seconds.iter().filter(|&&second| !(first..=last).contains(&second)).count();
            prop_assert!(outside <= seconds.len().div_ceil(STRAY as usize));
        }
    }
}
