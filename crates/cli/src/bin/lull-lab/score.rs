//! `lull lab score`: background congestion control, judged by a few hundred simulations.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lull_lab::score::{self, AblatedPart, Group, Scheme, Set, Settings};

use lull_cli::text::is_terminal_output;

const EXAMPLES: &str = "\
Examples:
  lull lab score
      score the default controllers, nice and lull, on all groups
  lull lab score bulk shallow --cc lull --seeds 2
      score lull on two groups, with the seeds 7 and 8
  lull lab score --validation-cells
      use the rates, round-trip times and seeds that nothing was tuned on
  lull lab score --download-cells --cc download-cubic,download-bbr
      count the cells that are at the targets for downloads
  lull lab score bulk --cells
      show every cell of the group
  lull lab score --validation-cells --check
      judge lull by its targets, and exit with 1 if it misses one
  lull lab score bulk --cc lull --without memory
      score lull without a part of it
  lull lab score --json | jq '.lines[] | {group, scheme, kept}'
      read the results with a program

Groups:
  bulk       CUBIC downloads, buffers of 1 and 4 bandwidth-delay products (BDP)
  shallow    CUBIC downloads, buffer of 0.25 BDP
  deep       CUBIC downloads, buffer of 16 BDP
  aqm        CUBIC downloads under RED and CoDel
  fq         CUBIC downloads under FQ-CoDel
  reno       Reno downloads
  bbr        BBR downloads
  many       CUBIC downloads beside 256 background connections
  tiny       CUBIC downloads, buffer of 0.1 BDP
  mixed      CUBIC downloads with a half to four times the background's round-trip time
  ecn        CUBIC downloads under RED and CoDel, all with ECN
  tins       CUBIC downloads under two classes, as CAKE has them
  two-way    CUBIC downloads while another fills the way back
  hosts      CUBIC downloads beside four background hosts
  late       the background starts beside a CUBIC download that fills the link
  crowd      64 background connections start at once beside a CUBIC download
  lasting    a CUBIC download that never ends
  udp        datagrams, on and off
  jitter     CUBIC downloads over a link with pauses, as Wi-Fi has them
  requests   requests of 100 kB that use a third of the link
  documents  documents of random size that use 40 % of the link
  local-requests   the same requests, from the background's host
  local-documents  the same documents, from the background's host
  idle       no foreground, over steady links and links with pauses
  recorded   no foreground, over recorded Wi-Fi and cellular links; needs --data
  recorded-bulk    CUBIC downloads over these links; needs --data
  cellular   no foreground and CUBIC downloads, over links whose rate changes at random
  lan        no foreground and CUBIC downloads, 100 Mbit/s and 1 Gbit/s within a building

Columns, each with the median and the worst cell of the group:
  kept    bytes that the foreground received, relative to the foreground alone
  reaped  bytes that the background received, relative to the spare capacity. The spare capacity is
          capacity x time less what the foreground receives alone. No value if it is below 5 %.
  return  time until the background has 80 % of the capacity after a download, relative to a limit of
          0.5 s and ten round-trip times; 14 s if it takes longer
  mean    mean response time, relative to the foreground alone
  p99     99th percentile of response times, relative to the foreground alone
  rtt     mean round-trip time of a BBR download, relative to the foreground alone

Tune on the default cells: seeds 7 and 8, mostly 10 Mbit/s x 50 ms, 100 x 20, 100 x 200 and 1 x 100.
Judge on --validation-cells: seeds from 101, mostly 20 Mbit/s x 30 ms, 50 x 80, 5 x 120 and 200 x 10. The results
depend on the cells and their seeds only, not on the machine or on --jobs.";

/// Score background congestion control: hundreds of simulations, one line per group
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ScoreArgs {
    /// The groups of cells [default: all]
    #[arg(value_name = "GROUP")]
    groups: Vec<Group>,
    /// The background's congestion control: lull, nice, cubic, ledbat++, tcp-lp, download-cubic, download-reno or
    /// download-bbr (receivers that yield to such senders), or none; several are separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "nice,lull")]
    cc: Vec<Scheme>,
    /// Leave out parts of lull, to show what each contributes: sharing, host-foreground, memory, floor-by-time,
    /// minimum-progress, shallow-rules, noise-floor, trains, longer-path, emptying-round; several are separated by commas
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    without: Vec<AblatedPart>,
    /// How many seeds each cell runs with
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=50))]
    seeds: u64,
    /// Use the cells that nothing was tuned on
    #[arg(long, alias = "held-out")]
    validation_cells: bool,
    /// Use the cells of the targets for downloads: 10 and 100 Mbit/s, 20, 50 and 200 ms, buffers of 0.25, 1 and 4 BDP, CoDel and
    /// FQ-CoDel, 1, 8 and 64 connections. After the table is how many of them are at each target
    #[arg(long, conflicts_with = "validation_cells")]
    download_cells: bool,
    /// Show every cell, and with --check every cell beyond the limit of its target
    #[arg(long)]
    cells: bool,
    /// Judge lull by its targets, and by nice if that runs as well: exit with 1 if it misses one
    #[arg(long)]
    check: bool,
    /// How many simulations run at once [default: one per processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// The folder of recorded links [default: shared/data beside the working folder or beside a parent of it]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Show the results as JSON
    #[arg(long)]
    json: bool,
}

/// Scores the controllers.
pub(crate) fn score(args: ScoreArgs) -> anyhow::Result<ExitCode> {
    let set = match (args.validation_cells, args.download_cells) {
        (_, true) => Set::Downloads,
        (true, false) => Set::HeldOut,
        (false, false) => Set::Tuned,
    };
    let mut groups = distinct(&args.groups);
    if groups.is_empty() {
        groups = Group::ALL.to_vec();
        // A group that was not requested by name must not prevent the others from running.
        if args.data.is_none() && !score::has_data(set, None) {
            groups.retain(|group| !group.needs_data());
            let _ = writeln!(
                io::stderr(),
                "without the recorded links: their traces were not found; name their folder by --data DIR"
            );
        }
    }
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok());
    let settings = Settings {
        groups,
        schemes: distinct(&args.cc),
        set,
        seeds: args.seeds,
        jobs: jobs.unwrap_or(NonZeroUsize::MIN),
        data: args.data,
        without: distinct(&args.without),
        judge: args.check,
    };
    if args.check && !settings.schemes.contains(&Scheme::Lull) {
        anyhow::bail!("--check judges lull: name it in --cc");
    }
    let bar = bar();
    let report = score::score(&settings, &|progress| {
        bar.set_length(progress.all as u64);
        bar.set_position(progress.ended as u64);
    });
    bar.finish_and_clear();
    let report = report?;
    let text = if args.json {
        let mut value = serde_json::to_value(&report)?;
        if !args.cells {
            value.as_object_mut().map(|value| value.remove("cells"));
        }
        format!("{}\n", serde_json::to_string_pretty(&value)?)
    } else if args.check {
        let verdicts = score::verdict_table(&report.verdicts, args.cells);
        format!("{}\n{verdicts}", score::table(&report, false))
    } else {
        score::table(&report, args.cells)
    };
    io::stdout().write_all(text.as_bytes()).context("cannot write")?;
    let is_met = report.verdicts.iter().all(|verdict| verdict.is_met);
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The values without repetitions, in their order.
fn distinct<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let mut kept = Vec::new();
    for &value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

/// A progress line on a terminal; nothing elsewhere.
fn bar() -> ProgressBar {
    let target = if is_terminal_output() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("score [{bar:30}] {pos}/{len}, about {eta} left")
        .expect("the template is well formed");
    ProgressBar::with_draw_target(Some(0), target).with_style(style.progress_chars("=> "))
}
