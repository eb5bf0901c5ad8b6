//! A prefetch that waits for room at the upstream.

/// A number that the caller gives to a request. Demand and prefetches share one row of numbers; none is used again.
pub type Id = u64;

/// A prefetch that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefetch {
    /// Its number.
    pub id: Id,
    /// Its client.
    pub client: u64,
    /// Its worth in any unit, above zero: benefit for cost (SSR §3.1.1).
    pub priority: f64,
}
