//! `lull lab torture`: the real daemons while everything around them fails.

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lull_load::torture::{
    History, Judgement, Parts, Progress, Results, Sabotage, Torture, Watch, changes_of, judge,
};
use lull_replication_daemon::daemon::{Clock, MachineClock};
use lull_replication_daemon::store::{OriginState, Settings, Store};

use lull_cli::text::is_terminal_output;

const EXAMPLES: &str = "\
Examples:
  sudo lull lab torture
      run an origin and three replicas for a minute, while links are cut, daemons are killed, machines
      lose power and clocks are set wrong
  sudo lull lab torture --seconds 1800 --seed 7 --json
      run for half an hour, and print the results as one JSON object
  sudo lull lab torture --seconds 300 --nats
      write the origin's log to three NATS servers, one of which is killed every ten seconds
  sudo lull lab torture --seconds 300 --nats --s3 --standby --relay
      also store bodies in an S3 server that fails, with a second origin that takes over, and a relay
  sudo lull lab torture --seconds 20 --sabotage disk
      check that a disk is found which confirms writes that it does not keep

The seed decides the faults, reads and writes; the machine decides how they interleave. Clients read over
HTTP and in mounts, and write over HTTP and with lull publish. Their reads are checked against the log on
the origin's disk after a last power cut. The exit code is 1 if a guarantee was broken or another error
happened. Nothing is left on the machine, however the run ends.";

/// Break networks, disks, clocks and processes around an origin and its replicas, and check its guarantees
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TortureArgs {
    /// Seconds during which faults happen
    #[arg(long, value_name = "N", default_value = "60", value_parser = lull_cli::arguments::seconds)]
    seconds: Duration,
    /// Seed of the schedule of faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Break a guarantee on purpose, to check that it is found: disk (the origin's disk confirms writes that
    /// it does not keep), or clock (a replica's clock runs at half speed)
    #[arg(long, value_name = "WHAT", value_parser = sabotage)]
    sabotage: Option<Sabotage>,
    /// Write the origin's log to three NATS servers, and kill one of them every ten seconds. Needs nats-server
    #[arg(long)]
    nats: bool,
    /// Store the bodies in an S3 server. Every ten seconds, kill it or have it refuse all requests. Needs versitygw
    #[arg(long)]
    s3: bool,
    /// Run a second origin, which takes over when the first one fails
    #[arg(long, requires = "nats", requires = "s3")]
    standby: bool,
    /// Make one of the replicas a relay for another one
    #[arg(long)]
    relay: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

fn sabotage(text: &str) -> Result<Sabotage, &'static str> {
    match text {
        "disk" => Ok(Sabotage::Disk),
        "clock" => Ok(Sabotage::Clock),
        _ => Err("write disk or clock"),
    }
}

/// Makes a run, and shows the result.
pub(crate) fn torture(args: &TortureArgs) -> anyhow::Result<ExitCode> {
    let torture = Torture {
        length: args.seconds,
        seed: args.seed,
        program: crate::lull()?,
        sabotage: args.sabotage,
        parts: Parts { nats: args.nats, s3: args.s3, relay: args.relay, standby: args.standby },
        asked: crate::program(),
    };
    let mut watcher = Watcher::new(args);
    Ok(ExitCode::from(torture.run(&mut watcher)?))
}

/// Shows the progress of a run, judges it, and prints the result.
struct Watcher {
    bar: ProgressBar,
    json: bool,
    /// Without a terminal, a line is printed at each of these times.
    next_line: Duration,
}

/// Between two lines.
const LINES: Duration = Duration::from_secs(60);

impl Watcher {
    fn new(args: &TortureArgs) -> Self {
        let target = if is_terminal_output() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(args.seconds.as_secs()), target);
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} s, {msg}")
            .expect("the template is well formed");
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(format!("seed {}", args.seed));
        Watcher { bar, json: args.json, next_line: LINES }
    }
}

impl Watch for Watcher {
    fn progress(&mut self, progress: Progress) {
        let Progress { elapsed, reads, writes, faults } = progress;
        let text = format!("{reads} reads, {writes} writes, {faults} faults");
        self.bar.set_position(elapsed.as_secs());
        if self.bar.is_hidden() && elapsed >= self.next_line {
            self.next_line += LINES;
            eprintln!("{} s: {text}", elapsed.as_secs());
        }
        self.bar.set_message(text);
    }

    fn judge(
        &mut self,
        history: &History,
        store: &Path,
    ) -> Result<Judgement, Box<dyn Error + Send + Sync>> {
        self.bar.finish_and_clear();
        let now = MachineClock.read().wall;
        let opened = Store::<OriginState>::open(store, Settings::default(), now)
            .context("the origin's store cannot be opened")?;
        Ok(judge(history, changes_of(history, &opened.image)?))
    }

    fn show(&mut self, results: &Results) -> io::Result<()> {
        let mut text = Vec::new();
        if self.json {
            text = serde_json::to_vec_pretty(results)?;
            text.push(b'\n');
        } else {
            write_table(&mut text, results)?;
        }
        io::stdout().write_all(&text)
    }
}

fn write_table(to: &mut impl io::Write, results: &Results) -> io::Result<()> {
    let share = 100.0 * results.reads_during_faults as f64 / results.reads.max(1) as f64;
    writeln!(
        to,
        "{} reads, {share:.0} % of them during faults, and {} writes in {} s, at {} replicas",
        results.reads, results.writes, results.seconds, results.replicas
    )?;
    for (fault, count) in &results.faults {
        writeln!(to, "  {fault}: {count}")?;
    }
    if let Some(kills) = results.log_server_kills {
        writeln!(to, "  NATS servers killed: {kills}")?;
    }
    if let Some(faults) = results.body_server_faults {
        writeln!(to, "  faults of the S3 server: {faults}")?;
    }
    writeln!(
        to,
        "{} reads without faults; replicas reported clocks that are too far apart {} times",
        results.reads_in_calm, results.skews.told
    )?;
    writeln!(
        to,
        "{} violations, {} acknowledged writes lost",
        results.violations, results.lost_writes
    )?;
    for line in results.first_violations.iter().chain(&results.failures) {
        writeln!(to, "  {line}")?;
    }
    Ok(())
}
