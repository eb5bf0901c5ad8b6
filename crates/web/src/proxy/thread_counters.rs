//! Counters, one set per thread, so that counting is cheap.

use std::sync::Arc;

use super::counter::Counter;
use super::error::Failure;

/// The counters of one thread, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) requests: Counter,
    pub(crate) marked: Counter,
    pub(crate) responses: [Counter; 6],
    pub(crate) failures: [Counter; Failure::ALL.len()],
    pub(crate) bytes_received: Counter,
    pub(crate) bytes_sent: Counter,
    pub(crate) connections: Counter,
    pub(crate) closed: Counter,
    pub(crate) upstream_connections: Counter,
    pub(crate) retries: Counter,
}

impl Counters {
    pub(crate) fn count_response(&self, status: u16) {
        let class = usize::from(status / 100);
        self.responses[class.min(5)].increment();
    }

    pub(crate) fn open_connections(&self) -> u64 {
        self.connections.get().saturating_sub(self.closed.get())
    }

    pub(crate) fn count_failure(&self, failure: Failure) {
        self.failures[failure.index()].increment();
    }
}

/// An open connection, counted while this exists.
#[derive(Debug)]
pub(crate) struct Opened(Arc<Counters>);

impl Opened {
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        counters.connections.increment();
        Opened(Arc::clone(counters))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.closed.increment();
    }
}
