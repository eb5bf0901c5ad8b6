//! The figures, for Prometheus and for the dashboard.

use std::fmt::Write as _;

use lull_cc::Timestamp;
use serde_json::{Value, json};

use super::navigations::{Navigations, Seen};
use super::reasons::Reasons;
use super::times::Counted;
use super::{Shared, lock};
use crate::policy::{CookieFigures, CookieVerdict};
use crate::proxy::{Failure, Totals, UpstreamScheduler};

/// The dashboard's page. It asks for the status once a second, and needs nothing else.
pub(super) const DASHBOARD: &str = include_str!("../../script/dashboard.html");

/// All figures, as the dashboard takes them. Times in milliseconds.
pub(super) fn json(shared: &Shared) -> Value {
    let counts = &shared.counts;
    let (monitor, now) = (shared.monitor.figures(), shared.now());
    let millis = |time: &Option<std::time::Duration>| time.map(|time| time.as_secs_f64() * 1e3);
    json!({
        "seconds": now.as_nanos() as f64 / 1e9,
        "off": shared.is_off(),
        "shadow": shared.settings.shadow,
        "reading": shared.desk.is_reading(),
        "robots": *lock(&shared.robots_trouble),
        "refusal": *lock(&shared.refusal),
        "left_out": lock(&shared.left_out).as_ref().map(|(url, why)| json!({"url": url, "why": why})),
        "empty": counts.empty.by_count(),
        "hints_left_out": counts.left_out.by_count(),
        "pages_left": counts.pages_left.by_count(),
        "blocking_cookies": counts.blocking_cookies.by_count(),
        "cookies": shared.samples.cookies().iter().map(cookie).collect::<Vec<_>>(),
        "pages": counts.pages.get(),
        "asked": counts.asked.get(),
        "lists": counts.lists.get(),
        "hints": counts.hints.get(),
        "prefetches": counts.prefetches.get(),
        "refused": counts.refused.get(),
        "unkept": counts.unkept.get(),
        "not_now": counts.not_now.get(),
        "scheduler": shared.scheduler().map(|of| scheduler(of)),
        "prefetched_bytes": counts.prefetched_bytes.get(),
        "used_bytes": counts.used_bytes.get(),
        "renewed": counts.renewed.get(),
        "shown": counts.shown.get(),
        "budget": monitor.budget,
        "paused": monitor.paused,
        "learning": monitor.progress.map(|(samples, of)| json!({"samples": samples, "of": of})),
        "objects": monitor.objects.iter().map(|(path, threshold)| {
            json!({"path": path, "threshold": millis(threshold)})
        }).collect::<Vec<_>>(),
        "probe": cumulated(&counts.probes.counted()),
        "demand": cumulated(&counts.demand.counted()),
        "ends": Counted::default().cumulated().map(|(end, _)| end * 1e3).collect::<Vec<_>>(),
        "with": navigations(&counts.with, now),
        "without": navigations(&counts.without, now),
        "shadow_pages": counts.shadow_pages.get(),
        "shadow_hints": counts.shadow_hints.get(),
        "shadow_hits": counts.shadow_hits.get(),
    })
}

/// The scheduler of the upstream, as it is now.
fn scheduler(of: &UpstreamScheduler) -> Value {
    let (now, totals) = (of.figures(), of.totals());
    json!({
        "limit": now.limit.limit,
        "harm": now.limit.harm.map(|harm| harm.excess),
        "harm_error": now.limit.harm.map(|harm| harm.error).filter(|error| error.is_finite()),
        "slowdown": now.limit.slowdown,
        "demand": now.demand,
        "prefetches": now.prefetches,
        "waiting": now.waiting,
        "drain_rate": now.drain_rate,
        "backs_off": now.is_backing_off,
        "neighbour": now.has_neighbour,
        "started": totals.started,
        "aborted": totals.aborted,
        "waited": totals.waited,
        "full": totals.full,
    })
}

/// A cookie that the list of harmless ones has not.
fn cookie(of: &CookieFigures) -> Value {
    let verdict = match of.verdict {
        CookieVerdict::Unknown => "unknown",
        CookieVerdict::ChangesPages => "changes_pages",
        CookieVerdict::Session => "session",
        CookieVerdict::Proposed => "proposed",
        CookieVerdict::Accepted => "accepted",
    };
    json!({"name": of.name, "same": of.same, "clients": of.clients, "verdict": verdict})
}

/// The median with the ends of its interval, where there were enough to have one.
fn quantiles(times: &Counted) -> Value {
    let between = times.median_between();
    json!({
        "count": times.count(),
        "mean": times.mean(),
        "median": times.quantile(0.5),
        "median_from": between.map(|(from, _)| from),
        "median_to": between.map(|(_, to)| to),
        "p99": times.quantile(0.99),
    })
}

/// The same with all that it is made of, for who wants to know what came between two looks.
fn cumulated(times: &Counted) -> Value {
    let mut of = quantiles(times);
    of["cumulated"] = times.cumulated().map(|(_, below)| below).collect();
    of
}

fn navigations(of: &Navigations, now: Timestamp) -> Value {
    let mut all = seen(&of.all());
    all["hour"] = seen(&of.last_hour(now));
    all
}

fn seen(of: &Seen) -> Value {
    json!({
        "count": of.count,
        "cached": of.cached,
        "ahead": of.ahead,
        "ttfb": quantiles(&of.ttfb),
        "lcp": quantiles(&of.lcp),
        "load": quantiles(&of.load),
    })
}

/// The same in the text format of Prometheus, version 0.0.4. Times in seconds.
pub(super) fn prometheus(shared: &Shared) -> String {
    let counts = &shared.counts;
    let (with, without) = (counts.with.all(), counts.without.all());
    let (demand, probes) = (counts.demand.counted(), counts.probes.counted());
    let mut text = String::new();
    let mut counter = |name: &str, help: &str, rows: &[(&str, u64)]| {
        let _ = writeln!(text, "# HELP lull_web_{name} {help}\n# TYPE lull_web_{name} counter");
        for (labels, value) in rows {
            let _ = writeln!(text, "lull_web_{name}{labels} {value}");
        }
    };
    counter("pages_total", "Pages that got the script.", &[("", counts.pages.get())]);
    let left = labelled("why", &counts.pages_left);
    counter(
        "pages_left_total",
        "Pages that were left as they are, by the reason.",
        &borrowed(&left),
    );
    counter("hints_asked_total", "Times that a script asked.", &[("", counts.asked.get())]);
    let empty = labelled("list", &counts.empty);
    let mut lists = vec![("{list=\"given\"}", counts.lists.get())];
    lists.extend(borrowed(&empty));
    counter("hint_lists_total", "Lists, by what came of them.", &lists);
    let left = labelled("why", &counts.left_out);
    counter(
        "hints_left_out_total",
        "URLs that were left out of lists, by the rule.",
        &borrowed(&left),
    );
    counter("hints_total", "Hints on lists that were given.", &[("", counts.hints.get())]);
    counter(
        "prefetches_total",
        "Prefetches, by what became of them.",
        &[
            ("{prefetch=\"forwarded\"}", counts.prefetches.get()),
            ("{prefetch=\"refused\"}", counts.refused.get()),
            ("{prefetch=\"not_kept\"}", counts.unkept.get()),
        ],
    );
    counter(
        "prefetched_bytes_total",
        "Bytes of prefetches that were sent.",
        &[("", counts.prefetched_bytes.get())],
    );
    counter(
        "used_bytes_total",
        "Bytes of these that a navigation, or a part of its page, took from the cache.",
        &[("", counts.used_bytes.get())],
    );
    counter(
        "copies_renewed_total",
        "Requests answered by 304: the browser may use the copy that it has.",
        &[("", counts.renewed.get())],
    );
    counter(
        "copies_shown_total",
        "Navigations that were told to show a copy of the service worker's.",
        &[("", counts.shown.get())],
    );
    counter(
        "unlearned_total",
        "Requests that were not learned from for want of time.",
        &[("", counts.unlearned.get())],
    );
    counter("beacons_total", "Reports of scripts.", &[("", counts.beacons.get())]);
    counter(
        "rejected_messages_total",
        "Messages of scripts that were refused.",
        &[("", counts.rejected.get())],
    );
    counter(
        "passive_samples_total",
        "Samples of the monitor that visitors' requests gave.",
        &[("", counts.passive.get())],
    );
    counter(
        "navigations_total",
        "Navigations that scripts reported, with prefetching and held back.",
        &[
            ("{prefetching=\"yes\",cached=\"yes\"}", with.cached),
            ("{prefetching=\"yes\",cached=\"no\"}", with.count - with.cached),
            ("{prefetching=\"no\",cached=\"yes\"}", without.cached),
            ("{prefetching=\"no\",cached=\"no\"}", without.count - without.cached),
        ],
    );
    counter(
        "navigations_ahead_total",
        "Those that took from the cache what was fetched ahead.",
        &[("", with.ahead)],
    );
    counter("shadow_pages_total", "Pages in shadow mode.", &[("", counts.shadow_pages.get())]);
    counter("shadow_hints_total", "Hints in shadow mode.", &[("", counts.shadow_hints.get())]);
    counter(
        "shadow_hits_total",
        "Pages in shadow mode that were on the list of the page before.",
        &[("", counts.shadow_hits.get())],
    );
    if let Some(scheduler) = shared.scheduler() {
        let of = scheduler.totals();
        counter(
            "scheduled_total",
            "Prefetches, by what the scheduler of the server did with them.",
            &[
                ("{action=\"started\"}", of.started),
                ("{action=\"aborted\"}", of.aborted),
                ("{action=\"refused_after_waiting\"}", of.waited),
                ("{action=\"refused_queue_full\"}", of.full),
            ],
        );
        gauges_of(scheduler, &mut text);
    }
    let mut counter = |name: &str, help: &str, rows: &[(&str, u64)]| {
        let _ = writeln!(text, "# HELP lull_web_{name} {help}\n# TYPE lull_web_{name} counter");
        for (labels, value) in rows {
            let _ = writeln!(text, "lull_web_{name}{labels} {value}");
        }
    };
    if let Some(totals) = shared.totals() {
        of_the_proxy(&totals, &mut counter);
    }
    let monitor = shared.monitor.figures();
    let mut gauge = |name: &str, help: &str, value: u64| {
        let _ = writeln!(
            text,
            "# HELP lull_web_{name} {help}\n# TYPE lull_web_{name} gauge\nlull_web_{name} {value}"
        );
    };
    gauge("budget_requests_per_second", "Prefetches that the server bears.", monitor.budget.into());
    gauge("budget_is_paused", "Whether thresholds are learned.", monitor.paused.into());
    let is_known = lock(&shared.robots_trouble).is_none();
    gauge("robots_is_known", "Whether robots.txt is known.", is_known.into());
    gauge("is_off", "Whether the kill switch is thrown.", shared.is_off().into());
    if let Some(totals) = shared.totals() {
        gauge("open_connections", "Connections of clients.", totals.open_connections);
    }
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
        let _ = writeln!(text, "# HELP lull_web_{name} {help}\n# TYPE lull_web_{name} histogram");
        for (group, times) in rows {
            histogram(&mut text, name, group, times);
        }
    }
    text
}

fn gauges_of(scheduler: &UpstreamScheduler, text: &mut String) {
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
        let _ = writeln!(
            text,
            "# HELP lull_web_scheduler_{name} {help}\n# TYPE lull_web_scheduler_{name} gauge\n\
             lull_web_scheduler_{name} {value}"
        );
    }
}

fn of_the_proxy(totals: &Totals, counter: &mut impl FnMut(&str, &str, &[(&str, u64)])) {
    counter("requests_total", "Requests.", &[("", totals.requests)]);
    counter("marked_requests_total", "Requests that fetch ahead.", &[("", totals.marked)]);
    counter("sent_bytes_total", "Bytes of bodies sent to clients.", &[("", totals.bytes_sent)]);
    let classes = totals.responses.iter().enumerate().skip(1);
    let classes: Vec<_> =
        classes.map(|(class, count)| (format!("{{class=\"{class}xx\"}}"), *count)).collect();
    counter("responses_total", "Responses, by the class of their status.", &borrowed(&classes));
    let failures = Failure::ALL
        .map(|kind| (format!("{{failure=\"{}\"}}", kind.name()), totals.failures_of(kind)));
    counter("failures_total", "Exchanges that failed, by what went wrong.", &borrowed(&failures));
    counter(
        "upstream_connections_total",
        "Connections made to the upstream.",
        &[("", totals.upstream_connections)],
    );
    counter(
        "retries_total",
        "Requests sent again, because the upstream had closed an idle connection.",
        &[("", totals.retries)],
    );
    counter(
        "refused_connections_total",
        "Connections closed because their address had too many.",
        &[("", totals.refused_connections)],
    );
}

/// The rows of a counter by reasons.
fn labelled(label: &str, reasons: &Reasons) -> Vec<(String, u64)> {
    let all = reasons.all().into_iter();
    all.map(|(why, count)| (format!("{{{label}=\"{why}\"}}"), count)).collect()
}

fn borrowed(rows: &[(String, u64)]) -> Vec<(&str, u64)> {
    rows.iter().map(|(labels, count)| (labels.as_str(), *count)).collect()
}

fn histogram(text: &mut String, name: &str, group: &str, times: &Counted) {
    let label = if group.is_empty() { String::new() } else { format!("prefetching=\"{group}\"") };
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
