//! `lull lab speed fan-out`: how fast replicas are told of writes, and what that takes.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use lull_replicate::speed::fan_out::{Report, Settings, run};

use super::{Place, length};

const EXAMPLES: &str = "\
Examples:
  lull lab speed fan-out
      a hundred replicas, and rates up to 2,000 writes a second
  lull lab speed fan-out --replicas 10,100,1000 --rates 20
      what an invalidation takes of the processor, by the number of replicas
  lull lab speed fan-out --json | jq '.knees[]'
      the highest rate at which p99 holds, by the number of replicas

Replicas are so as far as the protocol goes: they have certificates and all three connections, decode what
comes and say what a replica says, and keep nothing. Nothing is pushed but invalidations. A time counts from
a write's acknowledgement until the last replica has decoded it. What a write takes of the processor without
replicas is measured first, and left out of what an invalidation takes of the origin's.";

/// See how fast many replicas are told of writes, and what that takes of the processor
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Replicas; several numbers are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    replicas: Vec<u32>,
    /// Writes offered a second; several make a curve
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "250,500,1000,2000",
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
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = length)]
    within: Duration,
    #[command(flatten)]
    place: Place,
}

/// Offers writes to an origin with replicas.
pub(super) fn fan_out(args: &Args) -> anyhow::Result<ExitCode> {
    let work = |folder: &std::path::Path| {
        Ok(run(&Settings {
            folder: folder.to_owned(),
            replicas: args.replicas.clone(),
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
    let limit = report.limit_ms;
    for knee in &report.knees {
        let of = report.points.iter().filter(|point| point.replicas == knee.replicas);
        let most = of.map(|point| point.rate).max();
        let _ = match knee.rate {
            None => writeln!(
                text,
                "knee with {} replicas: below all of them, p99 is over {limit} ms",
                knee.replicas
            ),
            Some(rate) if most == Some(rate) => writeln!(
                text,
                "knee with {} replicas: {rate} writes/s or more, p99 is within {limit} ms at all rates",
                knee.replicas
            ),
            Some(rate) => writeln!(
                text,
                "knee with {} replicas: {rate} writes/s, up to which p99 is within {limit} ms",
                knee.replicas
            ),
        };
    }
    text
}
