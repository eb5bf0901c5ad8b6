//! `lull lab speed fan-out`: how fast replicas are informed of writes, and at what cost.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use lull_replication_daemon::speed::fan_out::{Report, run};

use super::{Load, TargetArgs, knee, length};

const EXAMPLES: &str = "\
Examples:
  lull lab speed fan-out
      measure 100 replicas, with up to 2,000 writes per second
  lull lab speed fan-out --replicas 10,100,1000 --rates 20
      measure the processor time of an invalidation, by the number of replicas
  lull lab speed fan-out --json | jq '.knees[]'
      print the highest rate with p99 below the limit, by the number of replicas

The replicas speak the protocol only: they have certificates and all three connections, decode messages and
reply, and store nothing. Only invalidations are pushed. A time counts from the acknowledgement of a write
until the last replica has decoded it. The processor time of a write without replicas is measured first,
and subtracted.";

/// Measure how fast many replicas are notified of writes, and the processor time of that
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Number of replicas. Several numbers are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    replicas: Vec<u32>,
    /// Writes offered per second. Several rates make a curve
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "250,500,1000,2000",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rates: Vec<u32>,
    /// Limit of the 99th percentile (p99)
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = length)]
    within: Duration,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    target: TargetArgs,
}

/// Offers writes to an origin with replicas.
pub(super) fn fan_out(args: &Args) -> anyhow::Result<ExitCode> {
    let work = |folder: &Path| {
        let settings = args.load.settings(folder, &args.rates, args.within);
        Ok(run(&settings, &args.replicas)?)
    };
    args.target.measure(work, to_text)
}

fn to_text(report: &Report, system: &str) -> String {
    let mut text = format!(
        "{} bytes a write, on {system}; times from the acknowledgement to the last replica, processor \
         time of the origin for each invalidation\n\
         replicas  offered/s   p50 ms   p99 ms    max ms  undelivered  invalidation µs  write µs\n",
        report.bytes
    );
    for point in &report.points {
        let times = &point.decoded;
        // Writing into a text cannot fail.
        let _ = writeln!(
            text,
            "{:>8}  {:>9}  {:>7.2}  {:>7.2}  {:>8.2}  {:>11}  {:>15.2}  {:>8.1}",
            point.replicas,
            point.rate,
            times.p50_ms,
            times.p99_ms,
            times.max_ms,
            point.undelivered,
            point.cpu_us,
            point.write_cpu_us
        );
    }
    for own in &report.knees {
        let of = report.points.iter().filter(|point| point.replicas == own.replicas);
        let found = knee(own.rate, of.map(|point| point.rate).max(), report.limit_ms);
        let _ = writeln!(text, "knee with {} replicas: {found}", own.replicas);
    }
    text
}
