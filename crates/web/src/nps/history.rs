//! The figures of the last day, by minute, for the dashboard's graphs.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use lull_cc::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::counts::Counts;
use super::lock::lock;
use super::site_rules::SiteRules;
use super::times::TimeCounts;
use super::upstream_state::UpstreamState;

/// One row per minute, for a day.
const EVERY: Duration = Duration::from_secs(60);
const ROWS: usize = 24 * 60;

/// The counters since the start.
#[derive(Clone, Debug, Default)]
struct Sums {
    prefetches: u64,
    /// Navigations of visitors with hints, and those of them that were prefetched.
    navigations: u64,
    ahead: u64,
    /// 5xx replies to visitors.
    errors: u64,
    /// Visitors of this minute.
    visitors: u64,
    demand: TimeCounts,
}

/// The counts of a minute.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    prefetches: u64,
    navigations: u64,
    ahead: u64,
    errors: u64,
    visitors: u64,
    /// Requests per second, at the end of the minute.
    budget: u32,
    /// The median of the server's answers to visitors, in milliseconds.
    demand: Option<f64>,
}

#[derive(Debug, Default)]
struct HistoryRows {
    before: Sums,
    rows: VecDeque<Row>,
    /// When the last one ended.
    ended: Timestamp,
}

/// The rows.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<HistoryRows>);

impl History {
    /// A minute has passed.
    fn record(&self, now: Timestamp, sums: Sums, budget: u32) {
        let mut kept = lock(&self.0);
        let before = std::mem::replace(&mut kept.before, sums.clone());
        kept.ended = now;
        if kept.rows.len() >= ROWS {
            kept.rows.pop_front();
        }
        kept.rows.push_back(Row {
            prefetches: sums.prefetches.saturating_sub(before.prefetches),
            navigations: sums.navigations.saturating_sub(before.navigations),
            ahead: sums.ahead.saturating_sub(before.ahead),
            errors: sums.errors.saturating_sub(before.errors),
            visitors: sums.visitors,
            budget,
            demand: sums.demand.since(&before.demand).quantile(0.5),
        });
    }

    /// All rows, the latest last: a list for each figure. `ago` is the time in seconds since the end of the
    /// last one.
    pub(super) fn json(&self, now: Timestamp) -> Value {
        let kept = lock(&self.0);
        let of = |value: fn(&Row) -> Value| kept.rows.iter().map(value).collect::<Vec<_>>();
        json!({
            "every": EVERY.as_secs(),
            "ago": now.saturating_since(kept.ended).as_secs(),
            "prefetches": of(|row| row.prefetches.into()),
            "navigations": of(|row| row.navigations.into()),
            "ahead": of(|row| row.ahead.into()),
            "errors": of(|row| row.errors.into()),
            "visitors": of(|row| row.visitors.into()),
            "budget": of(|row| row.budget.into()),
            // A tenth of a millisecond is more than a chart shows.
            "demand": of(|row| row.demand.map_or(Value::Null, |time| ((time * 10.0).round() / 10.0).into())),
        })
    }
}

/// Records the history, until this is dropped.
pub(super) async fn record(
    history: &History,
    rules: &SiteRules,
    counts: &Counts,
    upstream: &UpstreamState,
) {
    loop {
        sleep(EVERY).await;
        let with = counts.with.all();
        let sums = Sums {
            prefetches: counts.prefetches.get(),
            navigations: with.count,
            ahead: with.ahead,
            errors: upstream.totals().map_or(0, |totals| totals.responses[5]),
            visitors: counts.distinct_visitors.take(),
            demand: counts.demand.counted(),
        };
        history.record(rules.now(), sums, upstream.monitor.figures().budget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_cover_one_minute_each_and_one_day_in_total() {
        let history = History::default();
        let mut sums = Sums::default();
        for minute in 1..=ROWS as u64 + 10 {
            sums.prefetches += minute;
            sums.demand.record(Duration::from_millis(if minute % 2 == 0 { 20 } else { 40 }));
            history.record(Timestamp::ZERO + EVERY * minute as u32, sums.clone(), 7);
        }
        let json =
            history.json(Timestamp::ZERO + EVERY * (ROWS as u32 + 10) + Duration::from_secs(5));
        let of = |name: &str| json[name].as_array().unwrap().clone();
        assert_eq!(
            (of("prefetches").len(), &json["ago"], &json["every"]),
            (ROWS, &json!(5), &json!(60))
        );
        assert_eq!(
            (&of("prefetches")[0], of("prefetches").last()),
            (&json!(11), Some(&json!(1450)))
        );
        // The times of one minute do not include those of the previous one.
        let demand: Vec<f64> = of("demand").iter().map(|time| time.as_f64().unwrap()).collect();
        assert!(demand.iter().step_by(2).all(|time| *time > 30.0), "{demand:?}");
        assert!(demand.iter().skip(1).step_by(2).all(|time| *time < 30.0), "{demand:?}");
    }
}
