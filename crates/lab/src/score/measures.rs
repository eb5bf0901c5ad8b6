//! The values of the score: each cell's ratios, and their median and worst value per group.

use std::cmp::Ordering;

use serde::Serialize;

use super::cells::{Cell, Foreground};
use super::groups::Group;
use super::run::Measured;
use super::scheme::Scheme;

/// With less spare capacity than this part of the whole, the reaped share is not computed.
const MIN_SPARE: f64 = 0.05;

/// The score of one cell. A value is missing where it has no meaning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellScore {
    /// The cell's group.
    pub group: Group,
    /// The background's controller.
    pub scheme: Scheme,
    /// The setting.
    pub cell: Cell,
    /// Bytes that the foreground received, relative to its bytes alone.
    pub kept: Option<f64>,
    /// Bytes that the background received, relative to the spare capacity: capacity × time less the bytes of
    /// the foreground alone. Above 1 if the background takes from the foreground.
    pub reaped: Option<f64>,
    /// Seconds until the background has 80 % of the capacity after a download: the median of the
    /// cell's downloads. A background that takes longer than 14 s counts as 14 s.
    pub return_s: Option<f64>,
    /// `return_s` relative to the limit of 0.5 s and ten round-trip times.
    pub return_ratio: Option<f64>,
    /// The mean response time, relative to the foreground alone.
    pub mean: Option<f64>,
    /// The 99th percentile of response times, relative to the foreground alone.
    pub p99: Option<f64>,
    /// The mean round-trip time of a BBR download, relative to the foreground alone.
    pub rtt: Option<f64>,
}

impl CellScore {
    /// A score without values.
    #[cfg(test)]
    pub(super) fn empty(group: Group, scheme: Scheme, cell: Cell) -> Self {
        let nothing = Measured::default();
        CellScore { kept: None, ..CellScore::new((group, cell), scheme, &nothing, &nothing) }
    }

    /// Compares a cell with its foreground alone.
    pub(super) fn new(
        (group, cell): (Group, Cell),
        scheme: Scheme,
        alone: &Measured,
        beside: &Measured,
    ) -> Self {
        let ratio = |value: f64, of: f64| (of > 0.0).then_some(rounded(value / of));
        let spare = alone.capacity - alone.foreground_measured;
        let has_spare = spare >= MIN_SPARE * alone.capacity;
        let return_s = median(&beside.returns);
        let limit = 0.5 + 10.0 * cell.network.rtt_ms as f64 / 1000.0;
        let has_foreground = cell.foreground != Foreground::None;
        CellScore {
            group,
            scheme,
            cell,
            kept: ratio(beside.foreground, alone.foreground).filter(|_| has_foreground),
            reaped: ratio(beside.background, spare).filter(|_| has_spare),
            return_s,
            return_ratio: return_s.and_then(|seconds| ratio(seconds, limit)),
            mean: ratio(mean(&beside.responses), mean(&alone.responses)),
            p99: ratio(p99(&beside.responses), p99(&alone.responses)),
            rtt: alone.rtt_ms.zip(beside.rtt_ms).and_then(|(alone, beside)| ratio(beside, alone)),
        }
    }
}

/// Median and worst value of a group's cells.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median; of an even number of values the upper one of the two in the middle.
    pub median: f64,
    /// The lowest value where more is better, and otherwise the highest.
    pub worst: f64,
}

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// High ones.
    High,
    /// Low ones.
    Low,
}

impl Spread {
    pub(super) fn of(better: Better, values: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.flatten().collect();
        sorted.sort_by(f64::total_cmp);
        let worst = match better {
            Better::High => sorted.first(),
            Better::Low => sorted.last(),
        };
        Some(Spread { median: median(&sorted)?, worst: *worst? })
    }
}

/// One line of the table: a group's cells under one controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The group.
    pub group: Group,
    /// The background's controller.
    pub scheme: Scheme,
    /// How many cells there are.
    pub cells: usize,
    /// See [`CellScore::kept`].
    pub kept: Option<Spread>,
    /// See [`CellScore::reaped`].
    pub reaped: Option<Spread>,
    /// See [`CellScore::return_ratio`].
    pub return_ratio: Option<Spread>,
    /// See [`CellScore::mean`].
    pub mean: Option<Spread>,
    /// See [`CellScore::p99`].
    pub p99: Option<Spread>,
    /// See [`CellScore::rtt`].
    pub rtt: Option<Spread>,
}

impl Line {
    /// Sums up the cells of one group under one controller.
    pub(super) fn new(group: Group, scheme: Scheme, cells: &[&CellScore]) -> Self {
        let spread = |better, value: fn(&CellScore) -> Option<f64>| {
            Spread::of(better, cells.iter().map(|cell| value(cell)))
        };
        Line {
            group,
            scheme,
            cells: cells.len(),
            kept: spread(Better::High, |cell| cell.kept),
            reaped: spread(Better::High, |cell| cell.reaped),
            return_ratio: spread(Better::Low, |cell| cell.return_ratio),
            mean: spread(Better::Low, |cell| cell.mean),
            p99: spread(Better::Low, |cell| cell.p99),
            rtt: spread(Better::Low, |cell| cell.rtt),
        }
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// The mean; 0 without values.
fn mean(values: &[f64]) -> f64 {
    match values.len() {
        0 => 0.0,
        count => values.iter().sum::<f64>() / count as f64,
    }
}

/// The 99th percentile of ascending values; 0 without values.
fn p99(sorted: &[f64]) -> f64 {
    debug_assert!(sorted.is_sorted_by(|a, b| a.total_cmp(b) != Ordering::Greater));
    let at = (sorted.len() * 99 / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0.0)
}

/// Six digits: the rest means nothing.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::super::cells::Set;
    use super::*;

    fn measured(foreground: f64, background: f64) -> Measured {
        let capacity = 100.0;
        let foreground_measured = foreground;
        Measured { foreground, foreground_measured, background, capacity, ..Measured::default() }
    }

    fn score(alone: &Measured, beside: &Measured) -> CellScore {
        let cell = Group::Bulk.cells(Set::Tuned, 7)[0];
        CellScore::new((Group::Bulk, cell), Scheme::Lull, alone, beside)
    }

    #[test]
    fn reaped_is_relative_to_spare_capacity() {
        let score = score(&measured(60.0, 0.0), &measured(54.0, 30.0));
        assert_eq!((score.kept, score.reaped), (Some(0.9), Some(0.75)));
    }

    #[test]
    fn nothing_is_reaped_where_nothing_is_spare() {
        assert_eq!(score(&measured(97.0, 0.0), &measured(97.0, 2.0)).reaped, None);
    }

    #[test]
    fn return_is_relative_to_half_a_second_and_ten_rtts() {
        let beside = Measured { returns: vec![0.5, 1.0, 14.0, 0.4], ..measured(1.0, 1.0) };
        let score = score(&measured(1.0, 0.0), &beside);
        assert_eq!((score.return_s, score.return_ratio), (Some(1.0), Some(1.0)));
    }

    #[test]
    fn worst_is_the_lowest_kept_and_the_highest_response_time() {
        let of = |better, values: [f64; 3]| Spread::of(better, values.map(Some).into_iter());
        let high = Some(Spread { median: 0.9, worst: 0.2 });
        assert_eq!(of(Better::High, [1.0, 0.2, 0.9]), high);
        let low = Some(Spread { median: 1.2, worst: 3.0 });
        assert_eq!(of(Better::Low, [3.0, 1.0, 1.2]), low);
        assert_eq!(Spread::of(Better::Low, [None].into_iter()), None);
    }

    #[test]
    fn p99_of_a_hundred_values_is_the_highest() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(p99(&values), 100.0);
        assert_eq!(p99(&values[..99]), 99.0);
        assert_eq!((p99(&[]), mean(&[])), (0.0, 0.0));
    }
}
