//! `lull try`: what a transfer does to the user's own link, with and without Lull.

mod ping;
mod remote;
mod report;
mod transfer;

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use ping::Ping;
use remote::Remote;
use report::{Phase, Report};
use transfer::{Limits, Transfer};

const EXAMPLES: &str = "\
Examples:
  lull try backup.example.org
      show the delay beside an upload, without Lull and under 'lull exec'
  lull try --download --seconds 5 --most 20 me@backup.example.org
      the same for a download, 5 seconds and 20 MB each
  lull try --rsh 'ssh -p 2222' --json host | jq '.phases[] | {name, ping_ms, bits_per_second}'
      print JSON; times are in milliseconds";

/// Show what a transfer does to your link, with and without Lull
///
/// Logs in to HOST with ssh, twice at a time. One connection sends a few bytes ten times per second and measures their
/// round-trip time. The other transfers data: first without Lull, then under 'lull exec'. HOST needs sh, dd, wc and
/// cat. Use a host of your own: each transfer fills the link for up to 10 seconds or 100 MB, whichever comes first.
///
/// Run it as yourself, without sudo. If 'lull exec' needs root here, it calls sudo. ssh may ask for a password three
/// times. The exit code is 0 on success, 1 on failure, and 2 if the arguments are wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The other end, as for ssh: a host of your own
    host: String,
    /// Receive from HOST instead of sending to it
    #[arg(long)]
    download: bool,
    /// Maximum time of each transfer, in seconds, from 2 to 60
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=60))]
    seconds: u32,
    /// Maximum payload of each transfer, in megabytes, from 1 to 1000
    #[arg(long, value_name = "MB", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    most: u32,
    /// Program that runs a command at HOST, with its options
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    rsh: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long the link may take to become idle again after a transfer.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if lull_kernel::is_called_by_sudo() {
        bail!(
            "lull try runs as yourself: leave out sudo, it calls sudo for 'lull exec' if need be"
        );
    }
    let remote = Remote::new(&args.rsh, &args.host)?;
    let report = measure(args, &remote)?;
    let text = if args.json { report.to_json() + "\n" } else { report.to_text() };
    io::stdout().write_all(text.as_bytes()).context("cannot write")?;
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &Args, remote: &Remote) -> anyhow::Result<Report> {
    let time = Duration::from_secs(args.seconds.into());
    let limits = Limits { time, bytes: u64::from(args.most) * 1_000_000 };
    let mut ping = Ping::start(remote)?;
    if !args.json {
        let what = if args.download { "download from" } else { "upload to" };
        let (seconds, most) = (args.seconds, args.most);
        eprintln!("{what} {}: twice, each for at most {seconds} s and {most} MB", args.host);
    }
    let mut phases = Vec::new();
    let begin = ping.elapsed();
    thread::sleep((time / 2).max(Duration::from_secs(2)));
    ping.check()?;
    phases.push(Phase::new("alone", begin, ping.elapsed(), None));
    for (name, prefix) in [("plain", Vec::new()), ("lull", remote::exec_prefix()?)] {
        let transfer = Transfer::start(remote, &prefix, args.download, limits)?;
        let (begin, started) = (ping.elapsed(), Instant::now());
        while started.elapsed() < limits.time && !transfer.is_complete() {
            thread::sleep(Duration::from_millis(20));
            ping.check()?;
        }
        phases.push(Phase::new(name, begin, ping.elapsed(), Some(transfer.bytes())));
        transfer.end()?;
        let quiet = phases[0].median(&ping.samples());
        wait_until_quiet(&mut ping, quiet)?;
    }
    let samples = ping.finish();
    Ok(Report { host: args.host.clone(), is_download: args.download, phases, samples })
}

/// Waits until replies take about as long as alone.
fn wait_until_quiet(ping: &mut Ping, quiet_ms: f64) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(250));
        ping.check()?;
        let since = ping.elapsed().saturating_sub(Duration::from_secs(1)).as_secs_f64();
        let samples = ping.samples();
        let mut recent = samples.iter().filter(|sample| sample.sent_at >= since).peekable();
        let is_quiet =
            recent.peek().is_some() && recent.all(|sample| sample.ms < 1.5 * quiet_ms + 10.0);
        if is_quiet && started.elapsed() > Duration::from_secs(1) {
            return Ok(());
        }
        if started.elapsed() > SETTLES_WITHIN {
            bail!(
                "other traffic delays packets: replies take more than {:.0} ms, {} s after the transfer",
                1.5 * quiet_ms + 10.0,
                SETTLES_WITHIN.as_secs()
            );
        }
    }
}
