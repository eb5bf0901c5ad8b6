//! `lull lab speed mount`: what opening a file in a mount costs.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use lull_lab::opens::{self, Opened, PassThrough, Report, Settings};
use lull_replicate::speed::mount::MountedReplica;

use super::Place;

const EXAMPLES: &str = "\
Examples:
  sudo lull lab speed mount
      a hundred files of 4 kB, each opened two hundred times in either mount
  sudo lull lab speed mount --files 1000 --bytes 65536 --opens 100000
      more and larger ones
  sudo lull lab speed mount --json | jq .ratio
      the one median by the other

A program opens, reads and closes files that it has read before, in the mount of a replica and in one that
passes through what lies in a folder, in turns. Both are mounted with the same options: the kernel compares no
permissions, names and attributes are remembered for no time, pages are kept, and as many threads answer.";

/// See what opening a file in a mount costs, beside a mount that only passes through
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    files: u32,
    /// Bytes of each
    #[arg(long, value_name = "N", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    bytes: u32,
    /// How often one is opened, in each mount
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    opens: u64,
    /// How often before it is the other mount's turn
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    turn: u64,
    /// What files are drawn by
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    place: Place,
}

/// Opens files in both mounts.
pub(super) fn mount(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = Settings {
        files: args.files as usize,
        size: args.bytes as usize,
        opens: args.opens,
        turn: args.turn,
        seed: args.seed,
    };
    args.place.measure(|folder| compare(folder, &settings), in_words)
}

fn compare(folder: &Path, settings: &Settings) -> anyhow::Result<Report> {
    let [files, replica, plain] = ["files", "mount", "plain"].map(|name| folder.join(name));
    for folder in [&files, &replica, &plain] {
        fs::create_dir(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    }
    opens::write(&files, settings)?;
    let mounted = MountedReplica::start(folder, &files, &replica)?;
    let through = PassThrough::mount(&files, &plain, MountedReplica::threads())?;
    let report = opens::compare(settings, &replica, &plain)?;
    drop(through);
    mounted.stop()?;
    Ok(report)
}

fn in_words(report: &Report, system: &str) -> String {
    let line = |name: &str, opened: &Opened| {
        format!(
            "{name:<16}  {:>9}  {:>7.1}  {:>7.1}  {:>8.1}\n",
            opened.opens, opened.p50_us, opened.p99_us, opened.max_us
        )
    };
    format!(
        "{} files of {} bytes, on {system}: open, read and close\n\
         {:<16}      opens   p50 µs   p99 µs    max µs\n{}{}\
         a replica's mount takes {:.3} × as long (medians)\n",
        report.files,
        report.bytes,
        "",
        line("replica", &report.measured),
        line("passed through", &report.beside),
        report.ratio
    )
}
