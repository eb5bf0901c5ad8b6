//! Counts, and the statistics of them.

use serde::Serialize;

use super::cache::Ways;
use super::plan::Plan;

/// The result of one policy with one predictor in one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) page_hits: u64,
    pub(super) hits: u64,
    pub(super) fetched: u64,
    pub(super) fetched_bytes: u64,
    pub(super) used: u64,
    pub(super) used_bytes: u64,
}

/// The requests of clients, for any predictor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    pub(super) pages: u64,
    pub(super) requests: u64,
    /// Requests after the first page of a session, which a list may predict.
    pub(super) foreseeable: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.page_hits = self.page_hits.wrapping_add(other.page_hits);
        self.hits = self.hits.wrapping_add(other.hits);
        self.fetched = self.fetched.wrapping_add(other.fetched);
        self.fetched_bytes = self.fetched_bytes.wrapping_add(other.fetched_bytes);
        self.used = self.used.wrapping_add(other.used);
        self.used_bytes = self.used_bytes.wrapping_add(other.used_bytes);
    }

    /// The inverse, which removes the same again.
    fn negated(self) -> Tally {
        Tally {
            page_hits: self.page_hits.wrapping_neg(),
            hits: self.hits.wrapping_neg(),
            fetched: self.fetched.wrapping_neg(),
            fetched_bytes: self.fetched_bytes.wrapping_neg(),
            used: self.used.wrapping_neg(),
            used_bytes: self.used_bytes.wrapping_neg(),
        }
    }
}

/// The ways of one predictor for one group of clients in one slice: lists by length, then by priority. Each
/// kind begins with the strictest way, and has a place after the last one.
///
/// Requests are counted for many policies at once. So a place holds the difference from the one before.
pub(super) struct Row<'t> {
    places: &'t mut [Tally],
}

impl Row<'_> {
    /// The places of lengths and of priorities.
    pub(super) fn kinds(plan: &Plan) -> [Ways; 2] {
        let (lengths, priorities) = (plan.lengths.len() as u8, plan.priorities.len() as u8);
        let begin = lengths + 1;
        [Ways { begin: 0, end: lengths }, Ways { begin, end: begin + priorities }]
    }

    pub(super) fn fetch(&mut self, ways: Ways, bytes: u64) {
        self.add(ways, Tally { fetched: 1, fetched_bytes: bytes, ..Tally::default() });
    }

    pub(super) fn use_up(&mut self, ways: Ways, bytes: u64) {
        self.add(ways, Tally { used: 1, used_bytes: bytes, ..Tally::default() });
    }

    pub(super) fn hit(&mut self, ways: Ways, is_page: bool) {
        self.add(ways, Tally { hits: 1, page_hits: u64::from(is_page), ..Tally::default() });
    }

    fn add(&mut self, ways: Ways, tally: Tally) {
        self.places[usize::from(ways.begin)].add(&tally);
        self.places[usize::from(ways.end)].add(&tally.negated());
    }
}

/// All counts of an evaluation. Clients are divided at random into groups, which are drawn for intervals.
#[derive(Clone, Debug)]
pub(super) struct Tallies {
    kinds: [Ways; 2],
    predictors: usize,
    /// For each slice and each group.
    demand: Vec<Demand>,
    /// For each slice, each group and each predictor, a [`Row`].
    places: Vec<Tally>,
}

impl Tallies {
    /// Groups of clients.
    pub(super) const GROUPS: usize = 64;
    /// The maximum number of slices.
    const MAX_SLICES: usize = 1 << 16;

    /// # Panics
    /// If the plan has more than a hundred lengths or priorities, or they are not ordered from strict to
    /// generous.
    pub(super) fn new(plan: &Plan, predictors: usize) -> Self {
        assert!(plan.lengths.len() <= 100 && plan.priorities.len() <= 100, "too many ways");
        assert!(plan.lengths.is_sorted(), "from short to long");
        assert!(plan.priorities.is_sorted_by(|a, b| a >= b), "from strict to generous");
        assert!(plan.slices.len() < Tallies::MAX_SLICES, "too many slices");
        let kinds = Row::kinds(plan);
        let groups = plan.slices.len() * Tallies::GROUPS;
        Tallies {
            kinds,
            predictors,
            demand: vec![Demand::default(); groups],
            places: vec![Tally::default(); groups * predictors * places(kinds)],
        }
    }

    pub(super) fn kinds(&self) -> [Ways; 2] {
        self.kinds
    }

    /// Counts a request of a client that was not in its cache.
    pub(super) fn count(&mut self, slice: usize, group: usize, is_page: bool, is_behind: bool) {
        let demand = &mut self.demand[slice * Tallies::GROUPS + group];
        demand.requests += 1;
        demand.pages += u64::from(is_page);
        demand.foreseeable += u64::from(is_behind);
    }

    pub(super) fn row(&mut self, slice: usize, group: usize, predictor: usize) -> Row<'_> {
        let length = places(self.kinds);
        let row = (slice * Tallies::GROUPS + group) * self.predictors + predictor;
        Row { places: &mut self.places[row * length..][..length] }
    }

    /// The requests of a group's clients in a slice.
    pub(super) fn demand(&self, slice: usize, group: usize) -> Demand {
        self.demand[slice * Tallies::GROUPS + group]
    }

    /// The ways of a predictor for a group in a slice: by length, then by priority.
    pub(super) fn ways(&self, slice: usize, group: usize, predictor: usize) -> Vec<Tally> {
        let length = places(self.kinds);
        let row = (slice * Tallies::GROUPS + group) * self.predictors + predictor;
        let mut sum = Tally::default();
        let mut ways: Vec<Tally> = Vec::with_capacity(length);
        for (at, place) in self.places[row * length..][..length].iter().enumerate() {
            sum.add(place);
            let is_end = self.kinds.iter().any(|kind| usize::from(kind.end) == at);
            if !is_end {
                ways.push(sum);
            }
        }
        ways
    }

    /// The result of a predictor in a slice.
    pub(super) fn measured(
        &self,
        plan: &Plan,
        slice: usize,
        predictor: usize,
        name: &str,
    ) -> Measured {
        let mut demand = Demand::default();
        let mut ways = vec![Tally::default(); plan.ways()];
        for group in 0..Tallies::GROUPS {
            let of_group = self.demand(slice, group);
            demand.pages += of_group.pages;
            demand.requests += of_group.requests;
            demand.foreseeable += of_group.foreseeable;
            let all = ways.iter_mut().zip(self.ways(slice, group, predictor));
            all.for_each(|(way, tally)| way.add(&tally));
        }
        Measured::new(name.to_owned(), plan, &demand, &ways)
    }
}

/// Places in a [`Row`].
fn places(kinds: [Ways; 2]) -> usize {
    usize::from(kinds[1].end) + 1
}

/// The result of one policy with a predictor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The length of the lists; none if a priority was the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
    /// The least priority, in seconds per byte; none if a length was the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<f32>,
    /// Hits among the pages that clients asked for and did not have before.
    pub page_hit_rate: f64,
    /// The same for all requests, including images and the like.
    pub hit_rate: f64,
    /// Fetched objects that were requested later.
    pub precision: f64,
    /// Hits among the requests after the first page of each session, which are the predictable part.
    pub recall: f64,
    /// Bytes prefetched per page that a client asked for and did not have.
    pub bytes_per_page: f64,
    /// Bytes prefetched and never requested.
    pub wasted_bytes: u64,
}

/// The result of a predictor in a slice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The predictor.
    pub name: String,
    /// Pages that clients asked for and did not have before.
    pub pages: u64,
    /// The same for all requests.
    pub requests: u64,
    /// By the length of the list, with the most probable first.
    pub by_length: Vec<Point>,
    /// By the least priority, from strict to generous.
    pub by_priority: Vec<Point>,
}

impl Measured {
    fn new(name: String, plan: &Plan, demand: &Demand, ways: &[Tally]) -> Self {
        let (lengths, priorities) = ways.split_at(plan.lengths.len());
        let by_length = lengths.iter().zip(&plan.lengths);
        let by_priority = priorities.iter().zip(&plan.priorities);
        Measured {
            name,
            pages: demand.pages,
            requests: demand.requests,
            by_length: by_length.map(|(tally, k)| point(demand, tally, Some(*k), None)).collect(),
            by_priority: by_priority
                .map(|(tally, p)| point(demand, tally, None, Some(*p)))
                .collect(),
        }
    }

    /// The page hit rate at this many prefetched bytes per page, interpolated on the curve over priorities.
    /// Beyond the curve it stays as at its end, where the predictor has no further candidates.
    pub fn page_hit_rate_at(&self, bytes_per_page: f64) -> f64 {
        let points = self.by_priority.iter();
        rate_at(points.map(|point| (point.bytes_per_page, point.page_hit_rate)), bytes_per_page)
    }
}

/// The rate at this many bytes, interpolated on a curve.
pub(super) fn rate_at(curve: impl Iterator<Item = (f64, f64)>, bytes_per_page: f64) -> f64 {
    let mut before = (0.0, 0.0);
    for (bytes, rate) in curve {
        if bytes >= bytes_per_page {
            let length = bytes - before.0;
            let share = if length > 0.0 { (bytes_per_page - before.0) / length } else { 0.0 };
            return before.1 + share * (rate - before.1);
        }
        before = (bytes, rate);
    }
    before.1
}

fn point(demand: &Demand, tally: &Tally, length: Option<usize>, priority: Option<f32>) -> Point {
    let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
    Point {
        length,
        priority,
        page_hit_rate: share(tally.page_hits, demand.pages),
        hit_rate: share(tally.hits, demand.requests),
        precision: share(tally.used, tally.fetched),
        recall: share(tally.hits, demand.foreseeable),
        bytes_per_page: share(tally.fetched_bytes, demand.pages),
        wasted_bytes: tally.fetched_bytes - tally.used_bytes,
    }
}
