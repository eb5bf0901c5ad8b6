//! Distributions of flow sizes, as tables of a cumulative distribution.

use core::fmt;
use core::str::FromStr;

use crate::random::Random;

/// Sizes between the rows of a table are equally likely.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSizes {
    /// Bytes, and the probability of a size up to that; both ascending, the last one is 1.
    rows: Vec<(f64, f64)>,
}

/// A table that is not a cumulative distribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizesError {
    line: usize,
    what: &'static str,
}

impl fmt::Display for SizesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl core::error::Error for SizesError {}

impl FlowSizes {
    /// The mean size in bytes.
    pub fn mean(&self) -> f64 {
        let mut before = (0.0, 0.0);
        let mut mean = 0.0;
        for &(bytes, probability) in &self.rows {
            mean += (probability - before.1) * (bytes + before.0) / 2.0;
            before = (bytes, probability);
        }
        mean
    }

    /// A size in bytes, at least 1.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let uniform = random.uniform();
        let at = self.rows.partition_point(|&(_, probability)| probability <= uniform);
        let (bytes, probability) = self.rows[at.min(self.rows.len() - 1)];
        let before = at.checked_sub(1).map_or((0.0, 0.0), |before| self.rows[before]);
        let share = (uniform - before.1) / (probability - before.1).max(f64::MIN_POSITIVE);
        (before.0 + share * (bytes - before.0)).max(1.0) as u64
    }
}

impl FromStr for FlowSizes {
    type Err = SizesError;

    /// Reads a line for each row: bytes, and the probability of a size up to that. Empty lines are skipped.
    fn from_str(text: &str) -> Result<Self, SizesError> {
        let mut rows: Vec<(f64, f64)> = Vec::new();
        let mut line = 0;
        for (at, row) in text.lines().enumerate() {
            line = at + 1;
            let error = |what| Err(SizesError { line, what });
            let mut words = row.split_whitespace();
            let Some(bytes) = words.next() else { continue };
            let number = |word: &str| word.parse::<f64>().ok().filter(|number| number.is_finite());
            let (Some(bytes), Some(probability), None) =
                (number(bytes), words.next().and_then(number), words.next())
            else {
                return error("a row is two numbers: bytes, and a probability");
            };
            let (least_bytes, least) = rows.last().copied().unwrap_or((0.0, 0.0));
            if bytes < least_bytes || probability < least {
                return error("bytes and probabilities must not decrease");
            }
            if bytes > 1e15 || probability > 1.0 {
                return error("a probability is 1 at the most, and a flow a petabyte");
            }
            rows.push((bytes, probability));
        }
        if rows.last().is_none_or(|&(_, probability)| probability < 1.0) {
            return Err(SizesError { line, what: "the last probability must be 1" });
        }
        Ok(FlowSizes { rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the tables of the HKUST traffic generator.
    const TABLE: &str = "0     0\n10000 0.15\n20000 0.2\n\n30000 1\n";

    #[test]
    fn mean_of_samples_is_the_mean_of_the_table() {
        let sizes: FlowSizes = TABLE.parse().unwrap();
        let expected = 0.15 * 5e3 + 0.05 * 15e3 + 0.8 * 25e3;
        assert!((sizes.mean() - expected).abs() < 1e-6);
        let mut random = Random::new(2);
        let drawn = (0..100_000).map(|_| sizes.draw(&mut random)).sum::<u64>() as f64 / 1e5;
        assert!((drawn / expected - 1.0).abs() < 0.01, "{drawn}");
    }

    #[test]
    fn step_in_the_table_is_one_size() {
        let sizes: FlowSizes = "1000 0.5\n1000 1\n".parse().unwrap();
        let mut random = Random::new(2);
        let drawn: Vec<_> = (0..100).map(|_| sizes.draw(&mut random)).collect();
        assert!(drawn.iter().all(|&bytes| (1..=1_000).contains(&bytes)));
        assert!(drawn.contains(&1_000));
    }

    #[test]
    fn invalid_distribution_is_rejected_with_its_line() {
        for (text, expected) in [
            ("", "line 0: the last probability must be 1"),
            ("0 0\n5 0.5\n", "line 2: the last probability must be 1"),
            ("0 0\n5\n", "line 2: a row is two numbers: bytes, and a probability"),
            ("5 x\n", "line 1: a row is two numbers: bytes, and a probability"),
            ("9 0.5\n5 1\n", "line 2: bytes and probabilities must not decrease"),
            ("9 1.5\n", "line 1: a probability is 1 at the most, and a flow a petabyte"),
        ] {
            assert_eq!(text.parse::<FlowSizes>().unwrap_err().to_string(), expected, "{text:?}");
        }
    }
}
