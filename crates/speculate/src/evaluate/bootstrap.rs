//! How far rates may differ by chance: intervals from repeated draws of clients (Efron, 1979).
//!
//! A client's next request depends on its earlier ones, so not requests are drawn but clients, in random
//! groups. All predictors are measured on the same draws. So the difference of two has its own interval,
//! which is narrower than those of the two.

use serde::Serialize;

use super::Plan;
use super::tally::{Tallies, rate_at};
use crate::table::mix;

/// Draws of all groups.
const DRAWS: usize = 500;
/// The part of the draws beyond each end of an interval.
const BEYOND: f64 = 0.025;

/// The 95 % confidence interval of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Page hit rates of all predictors, on clients that were drawn repeatedly.
#[derive(Clone, Debug, PartialEq)]
pub struct Bootstrap {
    predictors: usize,
    ways: usize,
    lengths: Vec<usize>,
    /// Pages of each draw.
    pages: Vec<f64>,
    /// For each draw, each predictor and each way: hits among pages, and fetched bytes.
    sums: Vec<[f64; 2]>,
}

impl Bootstrap {
    pub(super) fn new(tallies: &Tallies, plan: &Plan, slice: usize, predictors: usize) -> Self {
        let ways = plan.ways();
        let row = predictors * ways;
        let mut bootstrap = Bootstrap {
            predictors,
            ways,
            lengths: plan.lengths.clone(),
            pages: vec![0.0; DRAWS],
            sums: vec![[0.0; 2]; DRAWS * row],
        };
        let of_groups: Vec<[f64; 2]> = (0..Tallies::GROUPS)
            .flat_map(|group| (0..predictors).map(move |one| (group, one)))
            .flat_map(|(group, one)| tallies.ways(slice, group, one))
            .map(|tally| [tally.page_hits as f64, tally.fetched_bytes as f64])
            .collect();
        // One draw after the other, so that its sums stay in the processor's cache.
        let mut weights = weights().into_iter();
        for draw in 0..DRAWS {
            let sums = &mut bootstrap.sums[draw * row..][..row];
            for (group, weight) in weights.by_ref().take(Tallies::GROUPS).enumerate() {
                if weight == 0 {
                    continue;
                }
                let weight = f64::from(weight);
                bootstrap.pages[draw] += weight * tallies.demand(slice, group).pages as f64;
                for (sum, own) in sums.iter_mut().zip(&of_groups[group * row..][..row]) {
                    sum[0] += weight * own[0];
                    sum[1] += weight * own[1];
                }
            }
        }
        bootstrap
    }

    /// The interval of a predictor's page hit rate with lists of this length; none if there were none.
    pub fn with_lists_of(&self, predictor: usize, length: usize) -> Option<Interval> {
        let way = self.lengths.iter().position(|one| *one == length)?;
        Some(self.interval(|draw| self.rate(draw, predictor, way)))
    }

    /// The same for the difference between two predictors.
    pub fn difference_with_lists_of(
        &self,
        (one, other): (usize, usize),
        length: usize,
    ) -> Option<Interval> {
        let way = self.lengths.iter().position(|one| *one == length)?;
        Some(self.interval(|draw| self.rate(draw, one, way) - self.rate(draw, other, way)))
    }

    /// The interval of a predictor's page hit rate at this many bytes for each page.
    pub fn at(&self, predictor: usize, bytes_per_page: f64) -> Interval {
        self.interval(|draw| self.rate_at(draw, predictor, bytes_per_page))
    }

    /// The same for the difference between two predictors.
    pub fn difference_at(&self, (one, other): (usize, usize), bytes_per_page: f64) -> Interval {
        let rate = |draw, which| self.rate_at(draw, which, bytes_per_page);
        self.interval(|draw| rate(draw, one) - rate(draw, other))
    }

    fn sum(&self, draw: usize, predictor: usize, way: usize) -> [f64; 2] {
        self.sums[(draw * self.predictors + predictor) * self.ways + way]
    }

    fn rate(&self, draw: usize, predictor: usize, way: usize) -> f64 {
        self.sum(draw, predictor, way)[0] / self.pages[draw].max(1.0)
    }

    fn rate_at(&self, draw: usize, predictor: usize, bytes_per_page: f64) -> f64 {
        let pages = self.pages[draw].max(1.0);
        let curve = (self.lengths.len()..self.ways).map(|way| {
            let [hits, bytes] = self.sum(draw, predictor, way);
            (bytes / pages, hits / pages)
        });
        rate_at(curve, bytes_per_page)
    }

    fn interval(&self, of: impl Fn(usize) -> f64) -> Interval {
        let mut rates: Vec<f64> = (0..DRAWS).map(of).collect();
        rates.sort_unstable_by(f64::total_cmp);
        let beyond = (BEYOND * DRAWS as f64) as usize;
        Interval { low: rates[beyond], high: rates[DRAWS - 1 - beyond] }
    }
}

/// How often each group is drawn in each draw. The draws are the same each time.
fn weights() -> Vec<u8> {
    let groups = Tallies::GROUPS;
    let mut weights = vec![0u8; DRAWS * groups];
    for draw in 0..DRAWS {
        for at in 0..groups {
            let drawn = mix((draw * groups + at) as u64 ^ 0x5bd1_e995_9e37_79b9) as usize % groups;
            let weight = &mut weights[draw * groups + drawn];
            *weight = weight.saturating_add(1);
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::cache::Ways;

    /// Groups with ten pages each, in which a predictor has this many hits with its only list.
    fn bootstrap(hits: impl Fn(usize, usize) -> u64) -> Bootstrap {
        let plan =
            Plan { slices: vec![lull_cc::Timestamp::ZERO], lengths: vec![10], priorities: vec![] };
        let mut tallies = Tallies::new(&plan, 2);
        for group in 0..Tallies::GROUPS {
            (0..10).for_each(|_| tallies.count(0, group, true, true));
            for which in 0..2 {
                for _ in 0..hits(which, group) {
                    tallies.row(0, group, which).hit(Ways { begin: 0, end: 1 }, true);
                }
            }
        }
        Bootstrap::new(&tallies, &plan, 0, 2)
    }

    #[test]
    fn equal_groups_have_no_variance() {
        let interval = bootstrap(|_, _| 3).with_lists_of(0, 10).unwrap();
        assert_eq!((interval.low, interval.high), (0.3, 0.3));
        assert_eq!(bootstrap(|_, _| 3).with_lists_of(0, 9), None);
    }

    #[test]
    fn interval_matches_the_normal_distribution() {
        // Groups have 2 or 4 hits of 10: a standard deviation of 0.1 over √64.
        let interval =
            bootstrap(|_, group| 2 + 2 * (group as u64 % 2)).with_lists_of(0, 10).unwrap();
        for (end, expected) in [(interval.low, 0.3 - 0.0245), (interval.high, 0.3 + 0.0245)] {
            assert!((end - expected).abs() < 0.005, "{interval:?}");
        }
    }

    #[test]
    fn paired_difference_has_a_smaller_interval() {
        let both = bootstrap(|which, group| 8 * (group as u64 % 2) + which as u64);
        let difference = both.difference_with_lists_of((1, 0), 10).unwrap();
        assert!((difference.low - 0.1).abs() < 1e-9 && (difference.high - 0.1).abs() < 1e-9);
        assert!(both.with_lists_of(1, 10).unwrap().low < both.with_lists_of(0, 10).unwrap().high);
    }
}
