//! `lull lab speed relays`: a body through relays to receivers.

use std::path::Path;
use std::process::ExitCode;

use lull_replication_daemon::speed::relays::{Report, Settings, run};

use super::TargetArgs;

const EXAMPLES: &str = "\
Examples:
  lull lab speed relays
      send 10 MB to 50 receivers behind 5 relays
  lull lab speed relays --relays 2 --receivers 8 --bytes 100000000 --json | jq .copies
      print how many copies leave the origin for each relay

All daemons run in one process, and their disk is shared. So the times are those of this machine, not of a network.";

/// Measure what leaves an origin whose replicas are behind relays, and how long it takes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Number of relays
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    relays: u32,
    /// Number of receivers, which connect to the relays in equal shares
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    receivers: u32,
    /// Bytes of the body
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(8..=1 << 30))]
    bytes: u32,
    #[command(flatten)]
    target: TargetArgs,
}

/// Sends it.
pub(super) fn relays(args: &Args) -> anyhow::Result<ExitCode> {
    let Args { relays, receivers, bytes, .. } = *args;
    let work = |folder: &Path| {
        let (folder, size) = (folder.to_owned(), bytes as usize);
        Ok(run(&Settings { folder, relays, receivers, size })?)
    };
    args.target.measure(work, to_text)
}

fn to_text(report: &Report, system: &str) -> String {
    let Report { relays, receivers, bytes, origin_bytes, copies, .. } = report;
    format!(
        "A body of {bytes} bytes to {receivers} receivers behind {relays} relays, on {system}:\n\
         \n\
         {origin_bytes} bytes of bodies left the origin: {copies:.3} copies for each relay\n\
         all relays had it after {:.2} s, all receivers after {:.2} s\n",
        report.relays_seconds, report.receivers_seconds
    )
}
