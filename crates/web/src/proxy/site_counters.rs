//! Counters of one site, for each thread.

use super::counter::Counter;
use super::error::Failure;
use super::totals::Totals;

/// The counters of one thread, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OfThread {
    requests: Counter,
    marked: Counter,
    responses: [Counter; 6],
    failures: [Counter; Failure::ALL.len()],
    bytes_sent: Counter,
}

/// A site's requests since the start.
#[derive(Debug)]
pub(crate) struct SiteCounters(Box<[OfThread]>);

/// A finished request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) failure: Option<Failure>,
    /// Whether it had the mark of a prefetch.
    pub(crate) is_marked: bool,
}

impl SiteCounters {
    pub(crate) fn new(threads: usize) -> Self {
        SiteCounters((0..threads).map(|_| OfThread::default()).collect())
    }

    pub(crate) fn record(&self, thread: usize, finished: &Finished) {
        let Some(counters) = self.0.get(thread) else { return };
        counters.requests.increment();
        if finished.is_marked {
            counters.marked.increment();
        }
        counters.responses[usize::from(finished.status / 100).min(5)].increment();
        counters.bytes_sent.add(finished.bytes);
        if let Some(failure) = finished.failure {
            counters.failures[failure.index()].increment();
        }
    }

    /// Puts this site's counts in the place of those of all sites.
    pub(crate) fn replace(&self, totals: &mut Totals) {
        let sum = |of: &dyn Fn(&OfThread) -> u64| self.0.iter().map(of).sum();
        totals.requests = sum(&|one| one.requests.get());
        totals.marked = sum(&|one| one.marked.get());
        totals.responses = std::array::from_fn(|class| sum(&|one| one.responses[class].get()));
        totals.failures = std::array::from_fn(|kind| sum(&|one| one.failures[kind].get()));
        totals.bytes_sent = sum(&|one| one.bytes_sent.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_site_are_summed_over_threads() {
        let counters = SiteCounters::new(2);
        let ok = Finished { status: 200, bytes: 7, failure: None, is_marked: true };
        let failed =
            Finished { status: 502, bytes: 1, failure: Some(Failure::Reset), is_marked: false };
        counters.record(0, &ok);
        counters.record(1, &ok);
        counters.record(1, &failed);
        let mut totals = Totals { requests: 99, open_connections: 3, ..Totals::default() };
        counters.replace(&mut totals);
        assert_eq!((totals.requests, totals.marked, totals.bytes_sent), (3, 2, 15));
        assert_eq!((totals.responses[2], totals.responses[5]), (2, 1));
        assert_eq!((totals.failures_of(Failure::Reset), totals.open_connections), (1, 3));
    }
}
