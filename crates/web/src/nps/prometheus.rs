//! The figures in the text format of Prometheus, version 0.0.4. Times are in seconds.

use std::fmt::Write as _;

use super::counts::Counts;
use super::navigations::Seen;
use super::reasons::Reasons;
use super::shared::Shared;
use super::times::Counted;
use crate::proxy::{Failure, Totals, UpstreamScheduler};

/// All figures.
pub(super) fn prometheus(shared: &Shared) -> String {
    let counts = &shared.counts;
    let (with, without) = (counts.with.all(), counts.without.all());
    let mut text = Text::default();
    pages_and_hints(counts, &mut text);
    prefetches(counts, &mut text);
    reports(counts, &mut text);
    navigations(counts, &with, &without, &mut text);
    let upstream = &shared.upstream;
    if let Some(scheduler) = upstream.scheduler() {
        scheduled(scheduler, &mut text);
    }
    if let Some(totals) = upstream.totals() {
        of_the_proxy(&totals, &mut text);
    }
    state(shared, &mut text);
    histograms(counts, &with, &without, &mut text);
    text.0
}

/// The text so far.
#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP lull_web_{name} {help}\n# TYPE lull_web_{name} {kind}");
    }

    fn counter(&mut self, name: &str, help: &str, rows: &[(&str, u64)]) {
        self.head(name, help, "counter");
        for (labels, value) in rows {
            let _ = writeln!(self.0, "lull_web_{name}{labels} {value}");
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        let _ = writeln!(self.0, "lull_web_{name} {value}");
    }

    /// Rows of a histogram, for one `group` of visitors if there are two.
    fn histogram(&mut self, name: &str, group: &str, times: &Counted) {
        let text = &mut self.0;
        let label =
            if group.is_empty() { String::new() } else { format!("prefetching=\"{group}\"") };
        let (comma, braced) =
            if label.is_empty() { ("", String::new()) } else { (",", format!("{{{label}}}")) };
        for (end, below) in times.told() {
            let _ = writeln!(text, "lull_web_{name}_bucket{{{label}{comma}le=\"{end}\"}} {below}");
        }
        let count = times.count();
        let _ = writeln!(text, "lull_web_{name}_bucket{{{label}{comma}le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "lull_web_{name}_sum{braced} {}", times.sum_seconds());
        let _ = writeln!(text, "lull_web_{name}_count{braced} {count}");
    }
}

fn pages_and_hints(counts: &Counts, text: &mut Text) {
    text.counter("pages_total", "Pages that got the script.", &[("", counts.pages.get())]);
    let left = labelled("why", &counts.pages_left);
    text.counter(
        "pages_left_total",
        "Pages that were left as they are, by the reason.",
        &borrowed(&left),
    );
    text.counter("hints_asked_total", "Times that a script asked.", &[("", counts.asked.get())]);
    let empty = labelled("list", &counts.empty);
    let mut lists = vec![("{list=\"given\"}", counts.lists.get())];
    lists.extend(borrowed(&empty));
    text.counter("hint_lists_total", "Lists, by what came of them.", &lists);
    let left = labelled("why", &counts.left_out);
    text.counter(
        "hints_left_out_total",
        "URLs that were left out of lists, by the rule.",
        &borrowed(&left),
    );
    text.counter("hints_total", "Hints on lists that were given.", &[("", counts.hints.get())]);
}

fn prefetches(counts: &Counts, text: &mut Text) {
    text.counter(
        "prefetches_total",
        "Prefetches, by what became of them.",
        &[
            ("{prefetch=\"forwarded\"}", counts.prefetches.get()),
            ("{prefetch=\"refused\"}", counts.refused.get()),
            ("{prefetch=\"not_kept\"}", counts.unkept.get()),
        ],
    );
    text.counter(
        "prefetched_bytes_total",
        "Bytes of prefetches that were sent.",
        &[("", counts.prefetched_bytes.get())],
    );
    text.counter(
        "used_bytes_total",
        "Bytes of these that a navigation, or a part of its page, took from the cache.",
        &[("", counts.used_bytes.get())],
    );
    text.counter(
        "copies_renewed_total",
        "Requests answered by 304: the browser may use the copy that it has.",
        &[("", counts.renewed.get())],
    );
    text.counter(
        "copies_shown_total",
        "Navigations that were told to show a copy of the service worker's.",
        &[("", counts.shown.get())],
    );
}

fn reports(counts: &Counts, text: &mut Text) {
    text.counter(
        "unlearned_total",
        "Requests that were not learned from for want of time.",
        &[("", counts.unlearned.get())],
    );
    text.counter("beacons_total", "Reports of scripts.", &[("", counts.beacons.get())]);
    text.counter(
        "rejected_messages_total",
        "Messages of scripts that were refused.",
        &[("", counts.rejected.get())],
    );
    text.counter(
        "passive_samples_total",
        "Samples of the monitor that visitors' requests gave.",
        &[("", counts.passive.get())],
    );
}

fn navigations(counts: &Counts, with: &Seen, without: &Seen, text: &mut Text) {
    text.counter(
        "navigations_total",
        "Navigations that scripts reported, with prefetching and held back.",
        &[
            ("{prefetching=\"yes\",cached=\"yes\"}", with.cached),
            ("{prefetching=\"yes\",cached=\"no\"}", with.count - with.cached),
            ("{prefetching=\"no\",cached=\"yes\"}", without.cached),
            ("{prefetching=\"no\",cached=\"no\"}", without.count - without.cached),
        ],
    );
    text.counter(
        "navigations_ahead_total",
        "Those that took from the cache what was fetched ahead.",
        &[("", with.ahead)],
    );
    text.counter("shadow_pages_total", "Pages in shadow mode.", &[("", counts.shadow_pages.get())]);
    text.counter("shadow_hints_total", "Hints in shadow mode.", &[("", counts.shadow_hints.get())]);
    text.counter(
        "shadow_hits_total",
        "Pages in shadow mode that were on the list of the page before.",
        &[("", counts.shadow_hits.get())],
    );
}

fn scheduled(scheduler: &UpstreamScheduler, text: &mut Text) {
    let of = scheduler.totals();
    text.counter(
        "scheduled_total",
        "Prefetches, by what the scheduler of the server did with them.",
        &[
            ("{action=\"started\"}", of.started),
            ("{action=\"aborted\"}", of.aborted),
            ("{action=\"refused_after_waiting\"}", of.waited),
            ("{action=\"refused_queue_full\"}", of.full),
        ],
    );
    let of = scheduler.figures();
    let flag = |is: bool| f64::from(u8::from(is));
    for (name, help, value) in [
        ("limit_requests", "Requests that the server serves at a time.", of.limit.limit),
        (
            "harm_ratio",
            "Part of their response time that visitors wait for prefetches.",
            of.limit.harm.map_or(0.0, |harm| harm.excess),
        ),
        (
            "slowdown_ratio",
            "Response time without prefetches, as part of the usual one.",
            of.limit.slowdown,
        ),
        ("demand_in_service", "Requests of visitors at the server.", of.demand as f64),
        ("prefetches_in_service", "Prefetches at the server.", of.prefetches as f64),
        ("prefetches_waiting", "Prefetches that wait for room.", of.waiting as f64),
        ("backs_off", "Whether prefetches rest after failures.", flag(of.is_backing_off)),
        ("has_neighbour", "Whether others load the server.", flag(of.has_neighbour)),
    ] {
        text.gauge(&format!("scheduler_{name}"), help, value);
    }
}

fn of_the_proxy(totals: &Totals, text: &mut Text) {
    text.counter("requests_total", "Requests.", &[("", totals.requests)]);
    text.counter("marked_requests_total", "Requests that fetch ahead.", &[("", totals.marked)]);
    text.counter(
        "sent_bytes_total",
        "Bytes of bodies sent to clients.",
        &[("", totals.bytes_sent)],
    );
    let classes = totals.responses.iter().enumerate().skip(1);
    let classes: Vec<_> =
        classes.map(|(class, count)| (format!("{{class=\"{class}xx\"}}"), *count)).collect();
    text.counter(
        "responses_total",
        "Responses, by the class of their status.",
        &borrowed(&classes),
    );
    let failures = Failure::ALL
        .map(|kind| (format!("{{failure=\"{}\"}}", kind.name()), totals.failures_of(kind)));
    text.counter(
        "failures_total",
        "Exchanges that failed, by what went wrong.",
        &borrowed(&failures),
    );
    text.counter(
        "upstream_connections_total",
        "Connections made to the upstream.",
        &[("", totals.upstream_connections)],
    );
    text.counter(
        "retries_total",
        "Requests sent again, because the upstream had closed an idle connection.",
        &[("", totals.retries)],
    );
    text.counter(
        "refused_connections_total",
        "Connections closed because their address had too many.",
        &[("", totals.refused_connections)],
    );
}

/// The budget, robots.txt and the kill switch.
fn state(shared: &Shared, text: &mut Text) {
    let flag = |is: bool| f64::from(u8::from(is));
    let monitor = shared.upstream.monitor.figures();
    let budget = f64::from(monitor.budget);
    text.gauge("budget_requests_per_second", "Prefetches that the server bears.", budget);
    text.gauge("budget_is_paused", "Whether thresholds are learned.", flag(monitor.paused));
    let is_known = shared.notices.robots_trouble().is_none();
    text.gauge("robots_is_known", "Whether robots.txt is known.", flag(is_known));
    text.gauge("is_off", "Whether the kill switch is thrown.", flag(shared.rules.is_off()));
    if let Some(totals) = shared.upstream.totals() {
        let open = totals.open_connections as f64;
        text.gauge("open_connections", "Connections of clients.", open);
    }
}

fn histograms(counts: &Counts, with: &Seen, without: &Seen, text: &mut Text) {
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
        text.head(name, help, "histogram");
        for (group, times) in rows {
            text.histogram(name, group, times);
        }
    }
}

/// The rows of a counter by reasons.
fn labelled(label: &str, reasons: &Reasons) -> Vec<(String, u64)> {
    let all = reasons.all().into_iter();
    all.map(|(why, count)| (format!("{{{label}=\"{why}\"}}"), count)).collect()
}

fn borrowed(rows: &[(String, u64)]) -> Vec<(&str, u64)> {
    rows.iter().map(|(labels, count)| (labels.as_str(), *count)).collect()
}
