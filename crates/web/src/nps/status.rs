//! The figures as JSON, for the dashboard.

use lull_cc::Timestamp;
use serde_json::{Value, json};

use super::navigations::{NavigationCounts, Navigations};
use super::shared::Shared;
use super::sharing::SharingFigures;
use super::times::TimeCounts;
use crate::policy::{CookieFigures, CookieVerdict};
use crate::proxy::UpstreamScheduler;

/// The dashboard's page. It requests the status once per second, and needs nothing else.
pub(super) const DASHBOARD: &str = include_str!("../../script/dashboard.html");

/// Where the documentation is, for links of the dashboard.
const DOCS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/docs");

/// All figures, in the form for the dashboard. Times in milliseconds.
pub(super) fn json(shared: &Shared) -> Value {
    let counts = &shared.counts;
    let (monitor, now) = (shared.upstream.monitor.figures(), shared.rules.now());
    let millis = |time: &Option<std::time::Duration>| time.map(|time| time.as_secs_f64() * 1e3);
    let mut all = json!({
        "seconds": now.as_nanos() as f64 / 1e9,
        "off": shared.rules.is_off(),
        "shadow": shared.rules.settings.shadow,
        "reading": shared.knowledge.learner.is_reading(),
        "robots": shared.notices.robots_trouble(),
        "refusal": shared.notices.refusal(),
        "left_out": shared.notices.last_left_out().map(|(url, why)| json!({"url": url, "why": why})),
        "empty": counts.empty.by_count(),
        "hints_rejected": counts.hints_rejected.by_count(),
        "pages_unchanged": counts.pages_unchanged.by_count(),
        "blocking_cookies": counts.blocking_cookies.by_count(),
        "cookies": shared.knowledge.comparison.cookies().iter().map(cookie).collect::<Vec<_>>(),
        "pages": counts.pages.get(),
        "asked": counts.asked.get(),
        "lists": counts.lists.get(),
        "hints": counts.hints.get(),
        "prefetches": counts.prefetches.get(),
        "refused": counts.refused.get(),
        "unkept": counts.unkept.get(),
        "not_now": counts.not_now.get(),
        "scheduler": shared.upstream.scheduler().map(|of| scheduler(of)),
        "servers": shared.upstream.servers().iter().map(|one| {
            json!({"server": one.server, "up": one.is_up})
        }).collect::<Vec<_>>(),
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
        "ends": TimeCounts::default().cumulated().map(|(end, _)| end * 1e3).collect::<Vec<_>>(),
        "with": navigations(&counts.with, now),
        "without": navigations(&counts.without, now),
        "share": shared.sharing.as_ref().map(|of| share(&of.figures())),
        "shadow_pages": counts.shadow_pages.get(),
        "shadow_hints": counts.shadow_hints.get(),
        "shadow_hits": counts.shadow_hits.get(),
    });
    all["docs"] = DOCS.into();
    let schedulers = shared.upstream.schedulers();
    all["schedulers"] = schedulers.map(|(route, of)| scheduler_of_route(route, of)).collect();
    all
}

fn share(now: &SharingFigures) -> Value {
    json!({
        "connected": now.is_connected,
        "proxies": now.proxies,
        "sent": now.sent,
        "merged": now.merged,
    })
}

fn scheduler_of_route(route: &str, of: &UpstreamScheduler) -> Value {
    let mut figures = scheduler(of);
    figures["route"] = route.into();
    figures
}

/// The current state of the upstream's scheduler.
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

/// A cookie that is not on the list of harmless ones.
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

/// The median with the ends of its interval, if there were enough values.
fn quantiles(times: &TimeCounts) -> Value {
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

/// The same with all ranges, for the difference between two reads.
fn cumulated(times: &TimeCounts) -> Value {
    let mut of = quantiles(times);
    of["cumulated"] = times.cumulated().map(|(_, below)| below).collect();
    of
}

fn navigations(of: &Navigations, now: Timestamp) -> Value {
    let mut all = seen(&of.all());
    all["hour"] = seen(&of.last_hour(now));
    all
}

fn seen(of: &NavigationCounts) -> Value {
    json!({
        "count": of.count,
        "cached": of.cached,
        "ahead": of.ahead,
        "ttfb": quantiles(&of.ttfb),
        "lcp": quantiles(&of.lcp),
        "load": quantiles(&of.load),
    })
}
