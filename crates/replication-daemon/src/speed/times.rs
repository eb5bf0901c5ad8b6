//! How long things took.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Times, as they come.
#[derive(Clone, Debug)]
pub(super) struct Times(Histogram<u64>);

/// Their statistics, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// How many there are.
    pub count: u64,
    /// The median.
    pub p50_ms: f64,
    /// 99 % are at most this long.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Times {
    pub(super) fn new() -> Self {
        Times(Histogram::new(3).expect("three digits are supported"))
    }

    pub(super) fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // It grows as necessary: an error would mean over five hundred years.
        let _ = self.0.record(nanos);
    }

    pub(super) fn spread(&self) -> Spread {
        let ms = |nanos: u64| rounded(nanos as f64 / 1e6);
        Spread {
            count: self.0.len(),
            p50_ms: ms(self.0.value_at_quantile(0.5)),
            p99_ms: ms(self.0.value_at_quantile(0.99)),
            max_ms: ms(self.0.max()),
        }
    }
}

impl FromIterator<Duration> for Times {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        let mut all = Times::new();
        times.into_iter().for_each(|time| all.add(time));
        all
    }
}

/// Six digits: the rest is noise.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.6}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_match_the_samples() {
        let spread = (1..=100).map(Duration::from_millis).collect::<Times>().spread();
        assert_eq!(spread.count, 100);
        for (found, expected) in
            [(spread.p50_ms, 50.0), (spread.p99_ms, 99.0), (spread.max_ms, 100.0)]
        {
            assert!((found / expected - 1.0).abs() < 0.002, "{spread:?}");
        }
        assert_eq!(Times::new().spread(), Spread::default());
    }
}
