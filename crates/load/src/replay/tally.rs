//! The result of a replay.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use lull_speculate::observe::Kind;
use serde::Serialize;

use super::client::Origin;
use lull_emulator::Spread;
use lull_emulator::rounded;

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// From the beginning to the end of the section.
    pub seconds: f64,
    /// Clients with at least one request.
    pub clients: u32,
    /// The log's requests.
    pub demand: Demand,
    /// The prefetches.
    pub ahead: Fetched,
    /// The monitor, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<Monitored>,
    /// How late this program sent requests. The times of `demand` include it: they are since a request was
    /// due.
    pub late: Spread,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
}

/// The log's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Demand {
    /// Requests that came due.
    pub due: u64,
    /// Requests that were answered, by the server or the cache.
    pub answered: u64,
    /// Failed requests: refused, cut off, not answered in time, or with a status of 400 or more. They count
    /// below with the timeout, or with their time if that was longer.
    pub failed: u64,
    /// Requests without an answer when the replay ended. Their times so far count below.
    pub unanswered: u64,
    /// Answers out of the cache that the client had requested before.
    pub repeated: u64,
    /// Answers out of the cache that had been prefetched: each counts the first time. Those that were still
    /// being fetched, and waited for, count as well.
    pub hits: u64,
    /// Upper bound of the number of hits: see [`Trace::reachable`](super::trace::Trace::reachable).
    pub reachable: u64,
    /// Payload that arrived for demand before the section's end.
    pub bytes: u64,
    /// The same per time.
    pub mbit: f64,
    /// Answers of the server before the section's end, per time.
    pub per_second: f64,
    /// Response times of all requests; 0 for those from the cache.
    pub all: Spread,
    /// The same for pages alone.
    pub pages: Spread,
    /// The same for requests that were not in the cache.
    pub network: Spread,
}

/// The prefetches.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fetched {
    /// Lists that were asked for.
    pub asked: u64,
    /// Lists that were not empty.
    pub lists: u64,
    /// Fetches that were completed.
    pub fetched: u64,
    /// Fetches that failed.
    pub failed: u64,
    /// Fetches that a page stopped.
    pub stopped: u64,
    /// Payload that arrived before the section's end, also of incomplete fetches.
    pub bytes: u64,
    /// The same per time.
    pub mbit: f64,
    /// Payload that demand took from the cache.
    pub used_bytes: u64,
    /// Payload of everything else.
    pub wasted_bytes: u64,
}

/// The work of the replay's own monitor (SSR §5.2.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Monitored {
    /// Probes that were answered, or failed.
    pub probes: u64,
    /// The budget in requests per second, as a mean over time.
    pub budget_mean: f64,
    /// From which time on a probe was late, at the end; none if unknown.
    pub threshold_ms: Option<f64>,
}

/// Running counts.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) report: Report,
    patience: Duration,
    all: Times,
    pages: Times,
    network: Times,
    late: Times,
}

impl Tally {
    /// A tally of clients that wait this long for an answer.
    pub(super) fn new(patience: Duration) -> Self {
        Tally {
            report: Report::default(),
            patience,
            all: Times::new(),
            pages: Times::new(),
            network: Times::new(),
            late: Times::new(),
        }
    }

    /// A request is sent, or taken from the cache, this long after it was due.
    pub(super) fn due(&mut self, late: Duration) {
        self.report.demand.due += 1;
        self.late.record(late);
    }

    /// A request has its answer, or failed, this long after it was due. A failure counts like a timeout: left
    /// out, or with its own time, it would make a server look better that rejects requests.
    pub(super) fn answered(&mut self, from: Origin, kind: Kind, time: Duration) {
        let demand = &mut self.report.demand;
        let time = match from {
            Origin::Failed => {
                demand.failed += 1;
                let time = time.max(self.patience);
                self.network.record(time);
                time
            }
            Origin::Network => {
                demand.answered += 1;
                self.network.record(time);
                time
            }
            Origin::Awaited(bytes) => {
                demand.answered += 1;
                demand.hits += 1;
                self.report.ahead.used_bytes += bytes;
                self.network.record(time);
                time
            }
            Origin::Cache => {
                demand.answered += 1;
                demand.repeated += 1;
                Duration::ZERO
            }
            Origin::Ahead(bytes) => {
                demand.answered += 1;
                demand.hits += 1;
                self.report.ahead.used_bytes += bytes;
                Duration::ZERO
            }
        };
        self.all.record(time);
        if kind == Kind::Page {
            self.pages.record(time);
        }
    }

    /// A request has no answer, this long after it was due, and has timed out. It counts with that time:
    /// leaving it out would make a server look better that answers less.
    pub(super) fn unanswered(&mut self, kind: Kind, time: Duration) {
        self.report.demand.unanswered += 1;
        self.all.record(time);
        self.network.record(time);
        if kind == Kind::Page {
            self.pages.record(time);
        }
    }

    /// The result, for a section of this length.
    pub(super) fn finish(mut self, length: Duration, clients: u32) -> Report {
        let seconds = length.as_secs_f64().max(f64::MIN_POSITIVE);
        let mbit = |bytes: u64| rounded(bytes as f64 * 8.0 / 1e6 / seconds);
        let report = &mut self.report;
        report.seconds = rounded(length.as_secs_f64());
        report.clients = clients;
        report.demand.mbit = mbit(report.demand.bytes);
        report.demand.per_second = rounded(report.demand.per_second / seconds);
        report.ahead.mbit = mbit(report.ahead.bytes);
        report.ahead.wasted_bytes = report.ahead.bytes.saturating_sub(report.ahead.used_bytes);
        report.demand.all = self.all.spread();
        report.demand.pages = self.pages.spread();
        report.demand.network = self.network.spread();
        report.late = self.late.spread();
        self.report
    }
}

/// Times, each counted with an error of at most a thousandth.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    nanos: Histogram<u64>,
    sum: Duration,
}

impl Times {
    pub(crate) fn new() -> Self {
        Times { nanos: Histogram::new(3).expect("three digits are supported"), sum: Duration::ZERO }
    }

    pub(crate) fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // It grows as needed, up to centuries.
        let _ = self.nanos.record(nanos);
        self.sum += time;
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.nanos.len()
    }

    /// Their distribution; all zero if there are none.
    pub(crate) fn spread(&self) -> Spread {
        let mean = self.sum.as_secs_f64() * 1e3 / self.nanos.len().max(1) as f64;
        let spread = Spread::of(&self.nanos, mean).unwrap_or_default();
        Spread {
            mean_ms: rounded(spread.mean_ms),
            p50_ms: rounded(spread.p50_ms),
            p95_ms: rounded(spread.p95_ms),
            p99_ms: rounded(spread.p99_ms),
            max_ms: rounded(spread.max_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn hits_take_no_time_and_unanswered_requests_their_wait() {
        let mut tally = Tally::new(ms(400));
        for _ in 0..4 {
            tally.due(ms(1));
        }
        tally.answered(Origin::Network, Kind::Page, ms(100));
        tally.answered(Origin::Ahead(700), Kind::Page, ms(1));
        tally.unanswered(Kind::Page, ms(500));
        tally.unanswered(Kind::Embedded, ms(200));
        tally.report.ahead.bytes = 1000;
        let report = tally.finish(Duration::from_secs(2), 3);
        let demand = &report.demand;
        assert_eq!((demand.due, demand.answered, demand.failed), (4, 2, 0));
        assert_eq!((demand.hits, demand.unanswered), (1, 2));
        assert_eq!((report.ahead.used_bytes, report.ahead.wasted_bytes), (700, 300));
        assert!((demand.all.mean_ms - 200.0).abs() < 0.01, "{demand:?}");
        assert!((demand.network.mean_ms - 800.0 / 3.0).abs() < 0.01, "{demand:?}");
        assert!((demand.pages.mean_ms - 200.0).abs() < 0.01, "{demand:?}");
        assert!((demand.all.max_ms / 500.0 - 1.0).abs() < 0.002, "{demand:?}");
    }

    #[test]
    fn request_during_its_prefetch_is_a_hit_that_takes_time() {
        let mut tally = Tally::new(ms(400));
        tally.due(ms(0));
        tally.answered(Origin::Awaited(700), Kind::Page, ms(30));
        tally.report.ahead.bytes = 700;
        let report = tally.finish(Duration::from_secs(2), 1);
        let demand = &report.demand;
        assert_eq!((demand.answered, demand.hits, report.ahead.wasted_bytes), (1, 1, 0));
        for times in [demand.all, demand.pages, demand.network] {
            assert!((times.mean_ms - 30.0).abs() < 0.01, "{demand:?}");
        }
    }

    #[test]
    fn failed_request_counts_with_its_wait() {
        let mut tally = Tally::new(ms(600));
        for _ in 0..4 {
            tally.due(ms(0));
        }
        tally.answered(Origin::Network, Kind::Page, ms(100));
        tally.answered(Origin::Ahead(700), Kind::Page, ms(0));
        // One refused at once, and one abandoned after it had waited for a connection.
        tally.answered(Origin::Failed, Kind::Page, ms(1));
        tally.answered(Origin::Failed, Kind::Embedded, ms(900));
        let report = tally.finish(Duration::from_secs(2), 4);
        let demand = &report.demand;
        assert_eq!((demand.answered, demand.failed), (2, 2));
        assert!((demand.all.mean_ms - 400.0).abs() < 0.01, "{demand:?}");
        assert!((demand.network.mean_ms - 1600.0 / 3.0).abs() < 0.01, "{demand:?}");
        assert!((demand.pages.mean_ms - 700.0 / 3.0).abs() < 0.01, "{demand:?}");
        assert!((demand.all.max_ms / 900.0 - 1.0).abs() < 0.002, "{demand:?}");
    }
}
