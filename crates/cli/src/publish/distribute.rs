//! `lull publish --to … --by …`: brings a publication to replicas by a deadline.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar};
use jiff::Timestamp;
use lull_replication::Path;
use lull_replication::types::Digest;
use lull_replication_daemon::daemon::{DistributionStatus, HostStatus};
use lull_replication_daemon::http::client::{Client, Published};
use serde_json::{Value, json};

use super::NOT_EVERYWHERE;
use super::deadline::deadline;
use super::progress::{OF_BYTES, bar, target};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// The time until the last report of a replica, which says whether it has all files. Relays pass it on after a while.
const LAST_REPORT: Duration = Duration::from_secs(10);
/// The time over which a rate is shown.
const RATE_OVER: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(super) struct Distributing {
    /// Bring the files to this replica, show how far they are, and print a report. In a pattern such as '*' or
    /// 'paris-*', * stands for any part of a name. May be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "wait")]
    pub(super) to: Vec<String>,
    /// Time by which these replicas are to have all files: the next time of day, such as 06:00, a duration, such as 90m,
    /// or a time with its date, such as 2026-01-31T06:00:00Z. A time of day is in the zone of this machine. The files
    /// travel in the background. They leave it only for a replica that would be late otherwise. Without --timeout, the
    /// command waits until this time
    #[arg(long, value_name = "TIME", requires = "to", value_parser = deadline)]
    by: Option<Timestamp>,
    /// With --to: print JSON, one object per change
    #[arg(long, requires = "to")]
    json: bool,
}

impl Distributing {
    /// The names of the replicas.
    pub(super) async fn names(&self, client: &Client) -> anyhow::Result<Vec<String>> {
        if self.to.is_empty() {
            return Ok(Vec::new());
        }
        Ok(client.matching(&self.to).await?)
    }

    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Waits until the replicas have a publication, or the time is over; then prints a report. Returns the exit code.
    pub(super) async fn until(
        &self,
        client: &Client,
        names: &[String],
        (published, within): (&Published, Option<&Path>),
        timeout: Option<Duration>,
    ) -> anyhow::Result<ExitCode> {
        let begun = Instant::now();
        let limit = self.by.map(time_until);
        let number = client.distribute(names, published.sequence, within, limit).await?;
        let ends = timeout.or(limit).map(|limit| begun + limit);
        let (mut shown, mut done) = (Shown::new(self.json, names), None::<Instant>);
        let status = loop {
            let known = match client.distribution(number).await {
                Ok(known) => known,
                Err(error) => {
                    shown.bars.clear()?;
                    crate::print_error(&error.into());
                    return Ok(ExitCode::from(NOT_EVERYWHERE));
                }
            };
            let Some(status) = known else {
                shown.bars.clear()?;
                let error =
                    "the origin was started again: its replicas get the files in the background";
                crate::print_error(&anyhow::anyhow!(error));
                return Ok(ExitCode::from(NOT_EVERYWHERE));
            };
            shown.show(&status);
            let is_over = ends.is_some_and(|ends| Instant::now() >= ends);
            let is_done = status.hosts.iter().all(is_final);
            let is_known = status.hosts.iter().all(|host| host.has_all || host.done_at.is_none());
            if is_done {
                done.get_or_insert_with(Instant::now);
            }
            if is_over || is_done && (is_known || done.is_some_and(|at| at.elapsed() > LAST_REPORT))
            {
                break status;
            }
            tokio_pause(PAUSE).await;
        };
        shown.bars.clear()?;
        Ok(report(&status, published, self.json))
    }
}

/// Sleeps.
async fn tokio_pause(time: Duration) {
    let never = core::future::pending::<()>();
    let _ = lull_replication_daemon::service::within(time, core::pin::pin!(never)).await;
}

/// The time until then; nothing if it is over.
fn time_until(at: Timestamp) -> Duration {
    let left = at.duration_since(Timestamp::now());
    if left.is_positive() { left.unsigned_abs() } else { Duration::ZERO }
}

/// Nothing changes for it any more.
fn is_final(host: &HostStatus) -> bool {
    matches!(&*host.phase, "done" | "revoked")
}

/// The output so far.
struct Shown {
    json: bool,
    bars: MultiProgress,
    hosts: Vec<ShownHost>,
    all: ProgressBar,
}

struct ShownHost {
    bar: ProgressBar,
    phase: String,
    is_late: bool,
    last: Option<Value>,
    /// When it lacked how many bytes.
    samples: VecDeque<(Instant, u64)>,
}

impl Shown {
    fn new(json: bool, names: &[String]) -> Self {
        let bars = MultiProgress::with_draw_target(target());
        let host = |_: &String| ShownHost {
            bar: bars.add(bar(OF_BYTES)),
            phase: String::new(),
            is_late: false,
            last: None,
            samples: VecDeque::new(),
        };
        let hosts = names.iter().map(host).collect();
        let all = bars.add(bar(OF_BYTES));
        Shown { json, bars, hosts, all }
    }

    fn show(&mut self, status: &DistributionStatus) {
        let now = Instant::now();
        let all = status.bytes.unwrap_or(0);
        let mut missing_in_all = 0;
        for (host, shown) in status.hosts.iter().zip(&mut self.hosts) {
            let missing = host.missing_bytes.unwrap_or(all);
            missing_in_all += missing;
            shown.sample(now, missing);
            shown.bar.set_length(all);
            shown.bar.set_position(all.saturating_sub(missing));
            shown.bar.set_prefix(format!("{}: {}", host.name, host.phase));
            let rate = host.bytes_per_second.or_else(|| shown.rate());
            if self.json {
                shown.print_change(&self.bars, host, rate);
            } else {
                shown.print_phase(&self.bars, host);
            }
        }
        let count = status.hosts.len() as u64;
        self.all.set_length(all * count);
        self.all.set_position((all * count).saturating_sub(missing_in_all));
        self.all.set_prefix(format!("all {count}"));
    }
}

impl ShownHost {
    fn sample(&mut self, now: Instant, missing: u64) {
        self.samples.push_back((now, missing));
        while self.samples.len() > 2 && now - self.samples[1].0 > RATE_OVER {
            self.samples.pop_front();
        }
    }

    /// Bytes that arrive in a second; none before the second look.
    fn rate(&self) -> Option<f64> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let seconds = (last.0 - first.0).as_secs_f64();
        (seconds > 0.0).then(|| first.1.saturating_sub(last.1) as f64 / seconds)
    }

    /// A line of JSON, if anything but the rate has changed.
    fn print_change(&mut self, bars: &MultiProgress, host: &HostStatus, rate: Option<f64>) {
        let mut line = json!({
            "event": "host", "name": host.name, "phase": host.phase, "state": host.state,
            "missing_bytes": host.missing_bytes, "missing_files": host.missing_files,
            "late_by_seconds": host.late_by_seconds.map(f64::ceil),
        });
        if self.last.as_ref() == Some(&line) {
            return;
        }
        self.last = Some(line.clone());
        line["bytes_per_second"] = json!(rate);
        let missing = host.missing_bytes.unwrap_or(0) as f64;
        let left = rate.filter(|rate| *rate > 0.0).map(|rate| missing / rate);
        line["seconds_left"] = json!(left);
        bars.suspend(|| println!("{line}"));
    }

    /// A line for a new phase, and one for a deadline that cannot be met.
    fn print_phase(&mut self, bars: &MultiProgress, host: &HostStatus) {
        let name = &host.name;
        if host.phase != self.phase {
            let text = match &*host.phase {
                "away" => Some("not connected; gets the files when it is".to_owned()),
                "urgent" => {
                    Some("would be late in the background, so its files leave it".to_owned())
                }
                "background" if self.phase == "urgent" => {
                    Some("is in time in the background again".to_owned())
                }
                "done" => Some("has all files".to_owned()),
                "revoked" => Some("was revoked, and gets nothing".to_owned()),
                _ => None,
            };
            self.phase.clone_from(&host.phase);
            if let Some(text) = text {
                bars.suspend(|| eprintln!("{name}: {text}"));
            }
        }
        let late = host.late_by_seconds;
        if let Some(seconds) = late.filter(|_| !self.is_late) {
            let text = format!(
                "{name}: the deadline cannot be met at the best rate so far: late by {}",
                duration_text(seconds)
            );
            bars.suspend(|| eprintln!("{text}"));
        }
        if late.is_none() && self.is_late && host.phase != "done" {
            bars.suspend(|| eprintln!("{name}: the deadline can be met again"));
        }
        self.is_late = late.is_some();
    }
}

fn duration_text(seconds: f64) -> String {
    if seconds < 120.0 {
        return format!("{:.0} s", seconds.ceil());
    }
    let minutes = (seconds / 60.0).ceil() as u64;
    if minutes < 120 {
        format!("{minutes} min")
    } else {
        format!("{} h {} min", minutes / 60, minutes % 60)
    }
}

/// A time, to the second.
fn time_text(seconds: Option<f64>) -> Option<String> {
    Some(Timestamp::from_second(seconds? as i64).ok()?.to_string())
}

/// Prints which replica has what since when. Returns the exit code.
fn report(status: &DistributionStatus, published: &Published, json: bool) -> ExitCode {
    let tree = published.tree;
    let digest = |host: &HostStatus| host.has_all.then_some(tree.digest);
    if json {
        let hosts = status.hosts.iter().map(|host| {
            json!({
                "name": host.name, "phase": host.phase, "state": host.state,
                "digest": digest(host).as_ref().map(Digest::to_string),
                "done": time_text(host.done_at), "missing_bytes": host.missing_bytes,
            })
        });
        let report = json!({
            "event": "report", "state": status.state, "digest": tree.digest.to_string(),
            "files": tree.files, "bytes": tree.bytes, "hosts": hosts.collect::<Vec<_>>(),
        });
        println!("{report}");
    } else {
        println!("digest {} of {} files with {} bytes", tree.digest, tree.files, tree.bytes);
        let width = status.hosts.iter().map(|host| host.name.len()).max().unwrap_or(0);
        for host in &status.hosts {
            let state =
                host.state.map_or_else(|| "no state".to_owned(), |state| format!("state {state}"));
            let rest = match (digest(host), time_text(host.done_at)) {
                (Some(digest), Some(at)) => format!("digest {digest}, done {at}"),
                (None, Some(at)) => format!("without files that are not sent to it, done {at}"),
                _ => format!(
                    "{}, {} files with {} bytes are missing",
                    host.phase,
                    host.missing_files,
                    host.missing_bytes.unwrap_or(0)
                ),
            };
            println!("  {:width$}  {state}, {rest}", host.name);
        }
    }
    let missing = status.hosts.iter().filter(|host| host.done_at.is_none()).count();
    if missing == 0 {
        return ExitCode::SUCCESS;
    }
    if !json && io::stdout().is_terminal() {
        eprintln!(
            "{missing} of {} replicas do not have all files: they still get them",
            status.hosts.len()
        );
    }
    ExitCode::from(NOT_EVERYWHERE)
}
