//! `lull lab speed writes`: how fast durable writes are acknowledged.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use lull_replication_daemon::speed::writes::{Report, run};

use super::{Load, TargetArgs, knee, length};

const EXAMPLES: &str = "\
Examples:
  lull lab speed writes
      offer up to 10,000 writes per second by 64 writers, on the disk of the working folder
  lull lab speed writes --rates 1000,2000,4000 --length 30s --folder /srv
      offer other rates, for longer, on another disk
  lull lab speed writes --json | jq '.points[] | {rate, p99: .acknowledgement.p99_ms}'
      print the curve; .knee is the highest rate with p99 below the limit

The loop is open: a write starts when it is due, also if earlier ones still wait, and its time counts from
then. A write that is rejected, or has no response after ten seconds, counts as ten seconds. Each rate has
a new origin.";

/// Measure how many durable writes per second an origin acknowledges in time
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Writes offered per second, by all writers together. Several rates make a curve
    #[arg(long, value_name = "N", value_delimiter = ',',
        default_value = "1000,2000,3000,4000,5000,6000,8000,10000",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rates: Vec<u32>,
    /// Limit of the 99th percentile (p99)
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = length)]
    within: Duration,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    target: TargetArgs,
}

/// Offers writes to an origin.
pub(super) fn writes(args: &Args) -> anyhow::Result<ExitCode> {
    let work = |folder: &Path| {
        let settings = args.load.settings(folder, &args.rates, args.within);
        Ok(run(&settings)?)
    };
    args.target.measure(work, to_text)
}

fn to_text(report: &Report, system: &str) -> String {
    let mut text = format!(
        "{} writers, {} bytes a write, on {system}; times from when a write was due\n\
         offered/s  acknowledged/s   p50 ms   p99 ms    max ms  late p99 ms  refused  unanswered\n",
        report.writers, report.bytes
    );
    for point in &report.points {
        let times = &point.acknowledgement;
        // Writing into a text cannot fail.
        let _ = writeln!(
            text,
            "{:>9}  {:>14.1}  {:>7.2}  {:>7.2}  {:>8.2}  {:>11.2}  {:>7}  {:>10}",
            point.rate,
            point.per_second,
            times.p50_ms,
            times.p99_ms,
            times.max_ms,
            point.late.p99_ms,
            point.refused,
            point.unanswered
        );
    }
    let most = report.points.iter().map(|point| point.rate).max();
    let _ = writeln!(text, "knee: {}", knee(report.knee, most, report.limit_ms));
    text
}
