//! Which predictor to ship, by what validation slices say and nothing else.

use super::Measured;

/// How a candidate stands beside baselines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// What it falls short of the best baseline: at each place as a part of that one's page hit rate,
    /// summed up over all places. Where it is ahead counts nothing.
    pub shortfall: f64,
    /// Its page hit rate over that of the best baseline, on average over all places.
    pub ratio: f64,
}

/// The candidates by rank, the one to ship first. `slices` have the same candidates in the same order,
/// baselines among them.
///
/// A place is a slice and a number of bytes that are fetched ahead for each page. The rule says what is
/// demanded of a default, to be no worse than any baseline at any place; it was committed before it chose
/// the one that is shipped:
///
/// 1. who falls short of the best baselines the least comes first;
/// 2. of those that fall short by the same, who is ahead of them by the most on average;
/// 3. of those, who stands first.
///
/// Places where no baseline has a hit say nothing, and are left out.
pub fn ranking<'a>(
    slices: &[&'a [Measured]],
    is_baseline: impl Fn(&str) -> bool,
    bytes_per_page: &[f64],
) -> Vec<(&'a str, Standing)> {
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
    let mut ranking: Vec<(&str, Standing)> = candidates
        .map(|(which, one)| {
            let mut standing = Standing { shortfall: 0.0, ratio: 0.0 };
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
