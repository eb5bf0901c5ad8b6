//! Which predictor to ship, by validation slices only.

use super::Measured;

/// The result of a candidate against baselines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BaselineComparison {
    /// Its distance below the best baseline: at each place as a share of that one's page hit rate, summed up
    /// over all places. Being ahead counts nothing.
    pub shortfall: f64,
    /// Its page hit rate divided by that of the best baseline, on average over all places.
    pub ratio: f64,
}

/// The candidates by rank, the one to ship first. All `slices` have the same candidates in the same order,
/// including the baselines.
///
/// A place is a slice and a number of prefetched bytes for each page. The rule requires a default that is no
/// worse than any baseline at any place; it was committed before it chose the present default:
///
/// 1. the smallest distance below the best baselines comes first;
/// 2. at equal distance, the largest average lead comes first;
/// 3. otherwise, the earlier one in the list.
///
/// Places where no baseline has a hit do not count.
pub fn ranking<'a>(
    slices: &[&'a [Measured]],
    is_baseline: impl Fn(&str) -> bool,
    bytes_per_page: &[f64],
) -> Vec<(&'a str, BaselineComparison)> {
    let mut places = Vec::new();
    for slice in slices {
        for bytes in bytes_per_page {
            let baselines = slice.iter().filter(|one| is_baseline(&one.name));
            let best = baselines.map(|one| one.page_hit_rate_at(*bytes)).fold(0.0, f64::max);
            if best > 0.0 {
                places.push((*slice, *bytes, best));
            }
        }
    }
    let candidates = slices.first().copied().unwrap_or_default().iter().enumerate();
    let mut ranking: Vec<(&str, BaselineComparison)> = candidates
        .map(|(which, one)| {
            let mut standing = BaselineComparison { shortfall: 0.0, ratio: 0.0 };
            for (slice, bytes, best) in &places {
                let rate = slice.get(which).map_or(0.0, |one| one.page_hit_rate_at(*bytes));
                standing.shortfall += (1.0 - rate / best).max(0.0);
                standing.ratio += rate / best / places.len() as f64;
            }
            (one.name.as_str(), standing)
        })
        .collect();
    ranking.sort_by(|(_, a), (_, b)| {
        a.shortfall.total_cmp(&b.shortfall).then(b.ratio.total_cmp(&a.ratio))
    });
    ranking
}
