//! A prefetch that waits for room at the upstream.

/// The caller's number of a request. Demand and prefetches share one sequence of numbers; none is reused.
pub type Id = u64;

/// A prefetch that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefetch {
    /// Its number.
    pub id: Id,
    /// Its client.
    pub client: u64,
    /// Its worth in any unit, above zero: benefit per cost (SSR §3.1.1).
    pub priority: f64,
}
