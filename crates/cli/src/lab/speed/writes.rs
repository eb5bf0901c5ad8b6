//! `lull lab speed writes`: how fast durable writes are acknowledged.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use lull_replicate::speed::writes::{Report, Settings, run};

use super::{Place, length};

const EXAMPLES: &str = "\
Examples:
  lull lab speed writes
      64 writers, and rates up to 10,000 writes a second, on the disk of the working folder
  lull lab speed writes --rates 1000,2000,4000 --length 30s --folder /srv
      other rates, for longer, on another disk
  lull lab speed writes --json | jq '.points[] | {rate, p99: .acknowledgement.p99_ms}'
      the curve; .knee is the highest rate at which p99 holds

The loop is open: a write is made when it is due, whatever waits, and its time counts from then. What is
refused or has no answer ten seconds later counts as ten seconds. Each rate has a new origin.";

/// See how many durable writes a second the origin acknowledges in time
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Writes offered a second, by all writers together; several make a curve
    #[arg(long, value_name = "N", value_delimiter = ',',
        default_value = "1000,2000,3000,4000,5000,6000,8000,10000",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rates: Vec<u32>,
    /// Who take turns to write
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    writers: u32,
    /// Bytes of each write
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    bytes: u32,
    /// Objects that are written in turn
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    objects: u64,
    /// For how long before it counts
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = length)]
    settle: Duration,
    /// For how long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = length)]
    length: Duration,
    /// What p99 may be at most
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = length)]
    within: Duration,
    #[command(flatten)]
    place: Place,
}

/// Offers writes to an origin.
pub(super) fn writes(args: &Args) -> anyhow::Result<ExitCode> {
    let work = |folder: &std::path::Path| {
        Ok(run(&Settings {
            folder: folder.to_owned(),
            rates: args.rates.clone(),
            writers: args.writers,
            size: args.bytes as usize,
            objects: args.objects,
            settle: args.settle,
            length: args.length,
            limit: args.within,
        })?)
    };
    args.place.measure(work, in_words)
}

fn in_words(report: &Report, system: &str) -> String {
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
    let limit = report.limit_ms;
    let _ = match (report.knee, report.points.iter().map(|point| point.rate).max()) {
        (None, _) => writeln!(text, "knee: below all of them, p99 is over {limit} ms"),
        (Some(knee), most) if most == Some(knee) => {
            writeln!(text, "knee: {knee} writes/s or more, p99 is within {limit} ms at all rates")
        }
        (Some(knee), _) => {
            writeln!(text, "knee: {knee} writes/s, up to which p99 is within {limit} ms")
        }
    };
    text
}
