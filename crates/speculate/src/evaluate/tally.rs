//! Counts, and what is made of them.

use serde::Serialize;

use super::Plan;

/// What one way to use one predictor came to in one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) pages: u64,
    pub(super) page_hits: u64,
    pub(super) requests: u64,
    pub(super) hits: u64,
    /// Requests behind the first page of a session, which a list can have foreseen.
    pub(super) foreseeable: u64,
    pub(super) fetched: u64,
    pub(super) fetched_bytes: u64,
    pub(super) used: u64,
    pub(super) used_bytes: u64,
}

/// What one way to use a predictor came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The length of the lists; none where a priority decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
    /// The least priority, in seconds for each byte; none where a length decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<f32>,
    /// Hits among the pages that clients asked for and did not have from before.
    pub page_hit_rate: f64,
    /// The same of all requests, images and the like included.
    pub hit_rate: f64,
    /// Fetched objects that were asked for later.
    pub precision: f64,
    /// Hits among the requests behind the first page of each session, which is the part that can be
    /// foreseen.
    pub recall: f64,
    /// Bytes that were fetched ahead for each page that a client asked for and did not have.
    pub bytes_per_page: f64,
    /// Bytes that were fetched ahead and never asked for.
    pub wasted_bytes: u64,
}

/// What a predictor came to in a slice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The predictor.
    pub name: String,
    /// Pages that clients asked for and did not have from before.
    pub pages: u64,
    /// The same of all requests.
    pub requests: u64,
    /// By the length of the list, with the most probable first.
    pub by_length: Vec<Point>,
    /// By the least priority, from strict to generous.
    pub by_priority: Vec<Point>,
}

impl Measured {
    pub(super) fn new(name: String, plan: &Plan, ways: &[Tally]) -> Self {
        let (lengths, priorities) = ways.split_at(plan.lengths.len());
        let by_length = lengths.iter().zip(&plan.lengths);
        let by_priority = priorities.iter().zip(&plan.priorities);
        let any = ways.first().copied().unwrap_or_default();
        Measured {
            name,
            pages: any.pages,
            requests: any.requests,
            by_length: by_length.map(|(tally, k)| point(tally, Some(*k), None)).collect(),
            by_priority: by_priority.map(|(tally, p)| point(tally, None, Some(*p))).collect(),
        }
    }

    /// The page hit rate at so many prefetched bytes a page, between the points of the curve over
    /// priorities; from there on it stays as at its end, where the predictor has no more to say.
    pub fn page_hit_rate_at(&self, bytes_per_page: f64) -> f64 {
        let mut before = (0.0, 0.0);
        for point in &self.by_priority {
            let (bytes, rate) = (point.bytes_per_page, point.page_hit_rate);
            if bytes >= bytes_per_page {
                let length = bytes - before.0;
                let share = if length > 0.0 { (bytes_per_page - before.0) / length } else { 0.0 };
                return before.1 + share * (rate - before.1);
            }
            before = (bytes, rate);
        }
        before.1
    }
}

fn point(tally: &Tally, length: Option<usize>, priority: Option<f32>) -> Point {
    let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
    Point {
        length,
        priority,
        page_hit_rate: share(tally.page_hits, tally.pages),
        hit_rate: share(tally.hits, tally.requests),
        precision: share(tally.used, tally.fetched),
        recall: share(tally.hits, tally.foreseeable),
        bytes_per_page: share(tally.fetched_bytes, tally.pages),
        wasted_bytes: tally.fetched_bytes - tally.used_bytes,
    }
}
