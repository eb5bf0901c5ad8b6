//! The figures in the text format of Prometheus, version 0.0.4. Times are in seconds.

use lull_metrics::{Histogram, Labels, Metrics, labels};
use lull_speculate::scheduler::Figures;

use super::counts::Counts;
use super::navigations::NavigationCounts;
use super::shared::Shared;
use super::sharing::SharingFigures;
use super::times::TimeCounts;
use super::upstream_state::UpstreamState;
use crate::proxy::{Failure, SchedulerTotals, ServerState, Totals};

/// All figures.
pub(super) fn prometheus(shared: &Shared) -> String {
    let counts = &shared.counts;
    let (with, without) = (counts.with.all(), counts.without.all());
    let mut metrics = Metrics::new("lull_web");
    pages_and_hints(counts, &mut metrics);
    prefetches(counts, &mut metrics);
    reports(counts, &mut metrics);
    navigations(counts, &with, &without, &mut metrics);
    let upstream = &shared.upstream;
    scheduled(upstream, &mut metrics);
    if let Some(totals) = upstream.totals() {
        of_the_proxy(&totals, &mut metrics);
    }
    servers(&upstream.servers(), &mut metrics);
    if let Some(sharing) = &shared.sharing {
        shared_with(&sharing.figures(), &mut metrics);
    }
    state(shared, &mut metrics);
    histograms(counts, &with, &without, &mut metrics);
    metrics.text()
}

fn shared_with(figures: &SharingFigures, to: &mut Metrics) {
    let is_connected = u64::from(figures.is_connected);
    to.gauge(
        "share_connected",
        "1 if other proxies of the site can be reached.",
        is_connected as f64,
    );
    to.gauge("share_proxies", "Other proxies of the site that run.", figures.proxies as f64);
    to.counters(
        "share_messages",
        "Messages to and from other proxies of the site.",
        by("direction", [("sent", figures.sent), ("received", figures.merged)]),
    );
}

/// A histogram of times, in seconds.
fn histogram(times: &TimeCounts) -> Histogram {
    Histogram {
        buckets: times.exported().collect(),
        count: times.count(),
        sum: times.sum_seconds(),
    }
}

/// Rows that differ in the value of one label.
fn by<'a, T: Copy>(
    label: &'static str,
    rows: impl IntoIterator<Item = (&'a str, T)>,
) -> Vec<(Labels, T)> {
    rows.into_iter().map(|(value, count)| (labels([(label, value)]), count)).collect()
}

fn pages_and_hints(counts: &Counts, to: &mut Metrics) {
    to.counter("pages", "Pages that got the script.", counts.pages.get());
    to.counters(
        "pages_unchanged",
        "Pages that passed unchanged, by reason.",
        by("why", counts.pages_unchanged.all()),
    );
    to.counter("hints_asked", "Requests for hints by scripts.", counts.asked.get());
    let lists = [("given", counts.lists.get())].into_iter().chain(counts.empty.all());
    to.counters("hint_lists", "Hint lists, by result.", by("list", lists));
    to.counters(
        "hints_rejected",
        "URLs that a rule kept out of hint lists, by rule.",
        by("why", counts.hints_rejected.all()),
    );
    to.counter("hints", "Hints sent to scripts.", counts.hints.get());
}

fn prefetches(counts: &Counts, to: &mut Metrics) {
    to.counters(
        "prefetches",
        "Prefetches, by result.",
        by(
            "prefetch",
            [
                ("forwarded", counts.prefetches.get()),
                ("refused", counts.refused.get()),
                ("not_kept", counts.unkept.get()),
            ],
        ),
    );
    to.counter(
        "prefetched_bytes",
        "Bytes of prefetches sent to clients.",
        counts.prefetched_bytes.get(),
    );
    to.counter(
        "used_bytes",
        "Prefetched bytes that a navigation, or a part of its page, used.",
        counts.used_bytes.get(),
    );
    to.counter(
        "copies_renewed",
        "Requests answered with 304: the browser may use its copy.",
        counts.renewed.get(),
    );
    to.counter(
        "copies_shown",
        "Navigations answered with a copy of the service worker.",
        counts.shown.get(),
    );
}

fn reports(counts: &Counts, to: &mut Metrics) {
    to.counter(
        "unlearned",
        "Requests that were not learned, because the learner was busy.",
        counts.unlearned.get(),
    );
    to.counter("beacons", "Reports of scripts.", counts.beacons.get());
    to.counter(
        "rejected_messages",
        "Messages of scripts that were rejected.",
        counts.rejected.get(),
    );
    to.counter(
        "passive_samples",
        "Samples of the monitor taken from visitors' requests.",
        counts.passive.get(),
    );
}

fn navigations(
    counts: &Counts,
    with: &NavigationCounts,
    without: &NavigationCounts,
    to: &mut Metrics,
) {
    to.counters(
        "navigations",
        "Navigations that scripts reported, with prefetching and in the control group.",
        [
            (labels([("prefetching", "yes"), ("cached", "yes")]), with.cached),
            (labels([("prefetching", "yes"), ("cached", "no")]), with.count - with.cached),
            (labels([("prefetching", "no"), ("cached", "yes")]), without.cached),
            (labels([("prefetching", "no"), ("cached", "no")]), without.count - without.cached),
        ],
    );
    to.counter("navigations_ahead", "Navigations that used a prefetched page.", with.ahead);
    to.counter("shadow_pages", "Pages in shadow mode.", counts.shadow_pages.get());
    to.counter("shadow_hints", "Hints in shadow mode.", counts.shadow_hints.get());
    to.counter(
        "shadow_hits",
        "Pages in shadow mode that were on the hint list of the previous page.",
        counts.shadow_hits.get(),
    );
}

/// The schedulers of all upstreams, by the prefixes of their routes.
fn scheduled(upstream: &UpstreamState, to: &mut Metrics) {
    let all: Vec<(&str, SchedulerTotals, Figures)> = upstream
        .schedulers()
        .map(|(route, scheduler)| (route, scheduler.totals(), scheduler.figures()))
        .collect();
    if all.is_empty() {
        return;
    }
    let decisions = all.iter().flat_map(|(route, of, _)| {
        [
            ("started", of.started),
            ("aborted", of.aborted),
            ("refused_after_waiting", of.waited),
            ("refused_queue_full", of.full),
        ]
        .map(|(action, count)| (labels([("action", action), ("route", route)]), count))
    });
    to.counters("scheduled", "Prefetches, by decision of the scheduler.", decisions);
    for (name, help, value) in GAUGES {
        let rows = all.iter().map(|(route, _, of)| (labels([("route", route)]), value(of)));
        to.gauges(&format!("scheduler_{name}"), help, rows);
    }
}

/// The name of a gauge, its text, and its value.
type Gauge = (&'static str, &'static str, fn(&Figures) -> f64);

const GAUGES: [Gauge; 8] = [
    ("limit_requests", "Requests that the server can serve concurrently.", |of| of.limit.limit),
    ("harm_ratio", "Share of the response time that visitors wait for prefetches.", |of| {
        of.limit.harm.map_or(0.0, |harm| harm.excess)
    }),
    ("slowdown_ratio", "Response time without prefetches, relative to the usual one.", |of| {
        of.limit.slowdown
    }),
    ("demand_in_service", "Requests of visitors in service at the server.", |of| of.demand as f64),
    ("prefetches_in_service", "Prefetches in service at the server.", |of| of.prefetches as f64),
    ("prefetches_waiting", "Prefetches in the queue.", |of| of.waiting as f64),
    ("backs_off", "1 during the backoff after failed prefetches.", |of| flag(of.is_backing_off)),
    ("has_neighbour", "1 while other programs load the server.", |of| flag(of.has_neighbour)),
];

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn of_the_proxy(totals: &Totals, to: &mut Metrics) {
    to.counter("requests", "Requests.", totals.requests);
    to.counter("marked_requests", "Prefetch requests.", totals.marked);
    to.counter("sent_bytes", "Bytes of bodies sent to clients.", totals.bytes_sent);
    let classes = totals.responses.iter().enumerate().skip(1);
    let classes =
        classes.map(|(class, count)| (labels([("class", &format!("{class}xx"))]), *count));
    to.counters("responses", "Responses, by status class.", classes);
    let failures = Failure::ALL.map(|kind| (kind.name(), totals.failures_of(kind)));
    to.counters("failures", "Failed exchanges, by reason.", by("failure", failures));
    to.counter(
        "upstream_connections",
        "Connections made to the upstream.",
        totals.upstream_connections,
    );
    to.counter(
        "retries",
        "Retries, because the upstream had closed an idle connection.",
        totals.retries,
    );
    to.counter(
        "refused_connections",
        "Connections closed because their address exceeded its limit.",
        totals.refused_connections,
    );
}

fn servers(servers: &[ServerState], to: &mut Metrics) {
    let rows = servers.iter().map(|one| (one.server.as_str(), f64::from(u8::from(one.is_up))));
    to.gauges(
        "upstream_up",
        "Whether a server passes its health check and could be reached at the last attempt.",
        by("server", rows),
    );
}

/// The budget, robots.txt and the kill switch.
fn state(shared: &Shared, to: &mut Metrics) {
    let monitor = shared.upstream.monitor.figures();
    let budget = f64::from(monitor.budget);
    to.gauge(
        "budget_requests_per_second",
        "The budget by probes: prefetches per second that the server can serve.",
        budget,
    );
    to.gauge("budget_is_paused", "1 while thresholds are learned.", flag(monitor.paused));
    let is_known = shared.notices.robots_trouble().is_none();
    to.gauge("robots_is_known", "1 if robots.txt is known.", flag(is_known));
    to.gauge("is_off", "1 while the kill switch is on.", flag(shared.rules.is_off()));
    if let Some(totals) = shared.upstream.totals() {
        let open = totals.open_connections as f64;
        to.gauge("open_connections", "Open connections of clients.", open);
    }
}

fn histograms(
    counts: &Counts,
    with: &NavigationCounts,
    without: &NavigationCounts,
    to: &mut Metrics,
) {
    let (demand, probes) = (counts.demand.counted(), counts.probes.counted());
    for (name, help, rows) in [
        (
            "navigation_ttfb_seconds",
            "Time to the first byte, by browsers.",
            &[("yes", &with.ttfb), ("no", &without.ttfb)][..],
        ),
        (
            "navigation_lcp_seconds",
            "Time to the largest contentful paint, by browsers.",
            &[("yes", &with.lcp), ("no", &without.lcp)],
        ),
        (
            "navigation_load_seconds",
            "Time to the end of loading, by browsers.",
            &[("yes", &with.load), ("no", &without.load)],
        ),
        ("demand_ttfb_seconds", "Time to the upstream's first byte.", &[("", &demand)]),
        ("probe_seconds", "Time to the first byte of probes.", &[("", &probes)]),
    ] {
        let rows = rows.iter().map(|(group, times)| {
            let group = (!group.is_empty()).then_some(("prefetching", *group));
            (
                group.into_iter().map(|(name, group)| (name, group.to_owned())).collect(),
                histogram(times),
            )
        });
        to.histograms(name, help, rows);
    }
}
