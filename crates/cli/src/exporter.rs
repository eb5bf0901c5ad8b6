//! `lull exporter`: metrics of the background for Prometheus.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;

const EXAMPLES: &str = "\
Examples:
  sudo lull exporter
      serve the metrics of this machine at http://127.0.0.1:9848/metrics
  sudo lull exporter --listen 192.0.2.7:9848
      serve them to a Prometheus on another machine
  sudo lull exporter --once | grep lull_job_sent_bytes
      print the metrics once, for a text file collector, and end";

/// Serve metrics of the background programs of this machine
///
/// Serves jobs, their traffic, windows, queueing delays and yielding, and the paths that they share (all connections to
/// one network: a /24 of IPv4 or a /48 of IPv6), in the format of Prometheus. docs/reference/metrics.md lists the
/// metrics; packaging/grafana/lull.json is a dashboard for Grafana. Each scrape reads the kernel once. Names of jobs
/// and networks of destinations are in the metrics, so listen on loopback or on a network that you trust: there is no
/// password.
///
/// Needs root, or a running 'lull kernel serve' and membership in its group: then destinations of other users are
/// 'hidden'. The exit code is 1 on failure, and 2 if the arguments are wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Address and port to listen at
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9848")]
    listen: SocketAddr,
    /// Print the metrics once, and end
    #[arg(long, conflicts_with = "listen")]
    once: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.once {
        let text = lull_monitor::metrics(&lull_kernel::read_background()?);
        std::io::stdout().write_all(text.as_bytes()).context("cannot write")?;
        return Ok(ExitCode::SUCCESS);
    }
    // Errors of a scrape are reported at the start.
    lull_kernel::read_background()?;
    let ready = |address| eprintln!("lull: metrics at http://{address}/metrics");
    lull_monitor::export(args.listen, lull_kernel::read_background, ready)
        .with_context(|| format!("cannot listen at {}", args.listen))?;
    Ok(ExitCode::SUCCESS)
}
