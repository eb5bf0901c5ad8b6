//! `lull lab replicate`: an origin and its replicas, simulated with the reads of a log.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use lull_emulator::parse_duration;
use lull_replication::origin::Strategy;
use lull_replication::replica::Order;
use lull_replication_sim::evaluate::{self, Options, Outcome, Spread, Workload};
use serde_json::{Value, json};

use super::workload::{Drawn, WorkloadArgs};
use crate::values::positive;
use lull_cli::logs::Contents;

const EXAMPLES: &str = "\
Examples:
  lull lab replicate access.log
      simulate 20 replicas, and a link with twice the capacity that pushing everything needs
  lull lab replicate --bandwidth 0.5 --strategy push-all access.log
      simulate a quarter of that capacity, with everything pushed in order
  lull lab replicate --bandwidth 0.5 --aggressive --cuts 50 --json access.log
      let reads overtake each other, and measure how long replicas mask disconnections

The simulation runs the state machines of lull origin and lull replica, without disks. The link of the
origin is the only bottleneck (Safe Speculative Replication, section 6.3). The log gives the reads. It has
no writes, so writes are random: --updates for each read. The part --popular of them goes to files in
proportion to their reads, the rest to any file. All files have the longest length of the log.";

/// Simulate an origin and its replicas, with the reads of an access log
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplicateArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Push strategy: demand, push-all, threshold=P or trip, as for lull origin run --strategy
    #[arg(long, value_name = "STRATEGY", default_value = "trip")]
    strategy: Strategy,
    /// Apply invalidations at once, as all strategies but trip do: trip with Δ = 0
    #[arg(long)]
    eager: bool,
    /// As in the paper: each invalidation waits for its own body, also if a newer body is there
    #[arg(long, alias = "letter")]
    paper_exact: bool,
    /// Answer a read although an earlier one still waits. By default later reads wait as well
    #[arg(long)]
    aggressive: bool,
    /// Maximum staleness of reads, or none for no bound [default: 60s; none for strategies that push in order]
    #[arg(long, value_name = "TIME", value_parser = delta)]
    delta: Option<Delta>,
    /// Capacity of the origin's link, in multiples of what pushing everything needs
    #[arg(long, value_name = "NUMBER", default_value = "2", value_parser = positive)]
    bandwidth: f64,
    /// Number of replicas, over which the log's clients are distributed at random
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    replicas: u32,
    /// Disconnect the origin at this many moments of the first half, in one run for each
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    cuts: u32,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
struct Delta(Option<Duration>);

fn delta(text: &str) -> Result<Delta, String> {
    match text {
        "none" => Ok(Delta(None)),
        text => parse_duration(text)
            .map(|time| Delta(Some(time)))
            .map_err(|error| format!("{error}, or none")),
    }
}

/// Simulates an origin and its replicas.
pub(crate) fn replicate(args: &ReplicateArgs) -> anyhow::Result<ExitCode> {
    lull_cli::message::usage_error(|| {
        let Drawn { workload, contents, .. } = args.workload.draw(args.replicas)?;
        let usual = Options::new(args.strategy, args.bandwidth * workload.need());
        let outcome = evaluate::run(
            &workload,
            Options {
                eager: args.eager || usual.eager,
                overtake: !args.paper_exact,
                order: if args.aggressive { Order::Aggressive } else { Order::Conservative },
                delta: args.delta.map_or(usual.delta, |delta| delta.0),
                cuts: args.cuts,
                seed: args.workload.seed,
                ..usual
            },
        );
        let value = to_json(&workload, &outcome, args.bandwidth, &contents);
        let text = if args.json {
            format!("{}\n", serde_json::to_string_pretty(&value)?)
        } else {
            to_text(&workload, &outcome, args)
        };
        io::stdout().write_all(text.as_bytes()).context("cannot write")
    })
}

fn to_json(workload: &Workload, outcome: &Outcome, times: f64, contents: &[Contents]) -> Value {
    let milliseconds = |spread: &Spread| {
        let ms = |seconds: f64| rounded(seconds * 1e3);
        json!({
            "mean_ms": ms(spread.mean), "p50_ms": ms(spread.p50), "p99_ms": ms(spread.p99),
            "max_ms": ms(spread.max),
        })
    };
    let staleness = &outcome.staleness;
    let [invalid, order, lease, applying] = outcome.blocked.map(rounded);
    let masked: Vec<f64> = outcome.masked.iter().map(|time| rounded(time.as_secs_f64())).collect();
    let (mean, median) = centre(&masked);
    json!({
        "logs": contents.iter().map(Contents::json).collect::<Vec<_>>(),
        "objects": workload.objects.len(),
        "replicas": workload.replicas,
        "seconds": rounded(workload.length.as_secs_f64()),
        "reads": outcome.reads,
        "writes": outcome.writes,
        "need_bytes_per_second": rounded(workload.need()),
        "bandwidth_bytes_per_second": rounded(times * workload.need()),
        "response": milliseconds(&outcome.response),
        "unanswered": outcome.unanswered,
        "blocked": { "body": invalid, "order": order, "lease": lease, "applying": applying },
        "unavailable": rounded(outcome.unavailable),
        "staleness": {
            "mean_s": rounded(staleness.mean), "p50_s": rounded(staleness.p50),
            "p99_s": rounded(staleness.p99), "max_s": rounded(staleness.max),
        },
        "stale": rounded(outcome.stale),
        "demanded_bytes": outcome.demanded_bytes,
        "pushed_bytes": outcome.pushed_bytes,
        "utilisation": rounded(outcome.utilisation),
        "masked": {
            "cuts": masked.len(), "mean_s": mean, "median_s": median,
            "to_the_end": outcome.masked_to_the_end,
        },
        "steps": outcome.steps,
    })
}

/// The mean and the median; none without values.
fn centre(values: &[f64]) -> (Option<f64>, Option<f64>) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len().saturating_sub(1) / 2).copied();
    let mean = median.map(|_| rounded(values.iter().sum::<f64>() / values.len() as f64));
    (mean, median)
}

/// Six digits: the rest is noise.
fn rounded(value: f64) -> f64 {
    format!("{value:.6}").parse().unwrap_or(value)
}

fn to_text(workload: &Workload, outcome: &Outcome, args: &ReplicateArgs) -> String {
    let Outcome { response, staleness, .. } = outcome;
    let megabytes = |bytes: f64| format!("{:.3} MB", bytes / 1e6);
    let mut text = format!(
        "{} reads of {} files at {} replicas in {:.0} s, {} writes\n\
         pushing everything takes {}/s; the link carries {}/s\n\
         response    mean {:.1} ms, median {:.1} ms, p99 {:.1} ms\n\
         staleness   mean {:.3} s, p99 {:.3} s, at most {:.3} s; {:.2} % of reads\n\
         waited      {:.2} % of reads for a body, {:.2} % for an earlier read; {:.2} % came without a lease\n\
         sent        {} for reads, {} pushed; link busy {:.1} %\n",
        outcome.reads,
        workload.objects.len(),
        workload.replicas,
        workload.length.as_secs_f64(),
        outcome.writes,
        megabytes(workload.need()),
        megabytes(args.bandwidth * workload.need()),
        response.mean * 1e3,
        response.p50 * 1e3,
        response.p99 * 1e3,
        staleness.mean,
        staleness.p99,
        staleness.max,
        outcome.stale * 100.0,
        outcome.blocked[0] * 100.0,
        outcome.blocked[1] * 100.0,
        outcome.unavailable * 100.0,
        megabytes(outcome.demanded_bytes as f64),
        megabytes(outcome.pushed_bytes as f64),
        outcome.utilisation * 100.0,
    );
    if outcome.unanswered > 0 {
        text += &format!("unanswered  {} reads, an hour after the last one\n", outcome.unanswered);
    }
    let masked: Vec<f64> = outcome.masked.iter().map(Duration::as_secs_f64).collect();
    if let (Some(mean), Some(median)) = centre(&masked) {
        text += &format!(
            "masked      {} cuts, mean {mean:.1} s, median {median:.1} s; {} to the end\n",
            masked.len(),
            outcome.masked_to_the_end
        );
    }
    text
}
