//! Sums of counters.

use super::error::Failure;

/// Sums over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Requests that came in.
    pub requests: u64,
    /// Requests with the mark of a prefetch, `X-Lull`.
    pub marked: u64,
    /// Responses by the first digit of their status.
    pub responses: [u64; 6],
    /// Failures, in the order of [`Failure::ALL`].
    pub failures: [u64; Failure::ALL.len()],
    /// Bytes of bodies that clients sent.
    pub bytes_received: u64,
    /// Bytes of bodies sent to clients.
    pub bytes_sent: u64,
    /// Connections of clients now.
    pub open_connections: u64,
    /// Connections of clients that were closed because their address had too many.
    pub refused_connections: u64,
    /// Connections that were made to the upstream.
    pub upstream_connections: u64,
    /// Requests that were sent a second time, because the upstream had closed an idle connection.
    pub retries: u64,
}

impl Totals {
    /// How often this failure happened.
    pub fn failures_of(&self, failure: Failure) -> u64 {
        self.failures[failure.index()]
    }
}
