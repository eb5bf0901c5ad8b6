//! `lull lab speed mount`: the cost of opening a file in a mount.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use lull_load::opens::{self, Compared, OneProcessor, Opened, PassThrough, Report, Settings};
use lull_replication_daemon::speed::mount::MountedReplica;

use super::TargetArgs;

const EXAMPLES: &str = "\
Examples:
  sudo lull lab speed mount
      open each of 100 files of 4 kB 200 times in each mount and in a folder
  sudo lull lab speed mount --files 1000 --bytes 65536 --opens 100000
      open more and larger files
  sudo lull lab speed mount --json | jq .ratio
      print the ratio of the medians

A program opens, reads and closes files that it has read before. It alternates between the mount of a replica,
a mount that passes a folder through, and that folder. Both mounts have the same options: no permission checks by the
kernel, no cached names or attributes, cached pages, and the same number of threads. For each open the kernel
wakes three threads, which may take longer than the responses. So the measurement is repeated with all
threads on one processor.";

/// Compare the time of open in a replica's mount with that in a pass-through mount
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    counts: Counts,
    #[command(flatten)]
    target: TargetArgs,
}

/// The files to open, and how often.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Counts {
    /// Number of files
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    files: u32,
    /// Bytes of each file
    #[arg(long, value_name = "N", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    bytes: u32,
    /// Number of opens in each mount and in the folder
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    opens: u64,
    /// Number of opens before the next folder takes its turn
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    turn: u64,
    /// Seed of the choice of files
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Counts {
    fn settings(&self) -> Settings {
        Settings {
            files: self.files as usize,
            size: self.bytes as usize,
            opens: self.opens,
            turn: self.turn,
            seed: self.seed,
        }
    }

    /// As arguments of the program that opens files.
    fn arguments(&self) -> Vec<String> {
        let Counts { files, bytes, opens, turn, seed } = self;
        vec![
            format!("--files={files}"),
            format!("--bytes={bytes}"),
            format!("--opens={opens}"),
            format!("--turn={turn}"),
            format!("--seed={seed}"),
        ]
    }
}

/// The options of opening files.
#[derive(Debug, clap::Args)]
pub(crate) struct OpensArgs {
    /// The mount of a replica
    measured: PathBuf,
    /// The one that passes through
    beside: PathBuf,
    /// A folder with the files
    plain: PathBuf,
    #[command(flatten)]
    counts: Counts,
}

/// Opens files in both mounts.
pub(super) fn mount(args: &Args) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("this program cannot find itself")?;
    args.target.measure(|folder| compare(&program, folder, &args.counts), to_text)
}

/// Opens files in both, and prints the times.
pub(super) fn opens(args: &OpensArgs) -> anyhow::Result<ExitCode> {
    lull_lab::run::end_with_parent_thread();
    let report =
        opens::compare(&args.counts.settings(), [&args.measured, &args.beside, &args.plain])?;
    let text = serde_json::to_vec(&report)?;
    io::stdout().write_all(&text).context("cannot write")?;
    Ok(ExitCode::SUCCESS)
}

fn compare(program: &Path, folder: &Path, counts: &Counts) -> anyhow::Result<Report> {
    let [files, replica, beside] = ["files", "mount", "beside"].map(|name| folder.join(name));
    for folder in [&files, &replica, &beside] {
        fs::create_dir(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    }
    opens::write(&files, &counts.settings())?;
    let mounted = MountedReplica::start(folder, &files, &replica)?;
    let through = PassThrough::mount(&files, &beside, MountedReplica::threads())?;
    let anywhere = opened(program, [&replica, &beside, &files], counts)?;
    let kept = OneProcessor::pin().context("threads cannot be kept on one processor")?;
    let one_processor = opened(program, [&replica, &beside, &files], counts)?;
    drop(kept);
    drop(through);
    mounted.stop()?;
    let Settings { files, size, .. } = counts.settings();
    Ok(Report { files, bytes: size, anywhere, one_processor })
}

/// Another process opens the files. A blocked thread of this one could not be killed: only the end of all
/// threads closes the descriptor that the kernel waits for.
fn opened(program: &Path, folders: [&Path; 3], counts: &Counts) -> anyhow::Result<Compared> {
    let mut command = Command::new(program);
    command.args(["speed", "opens"]).args(folders).args(counts.arguments());
    // A signal of the terminal ends this process, and this process ends that one: it reports nothing about
    // it.
    command.stdin(Stdio::null()).process_group(0);
    let said = command.output().context("the program that opens the files cannot be started")?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr);
        let why = why.trim();
        match why.strip_prefix("lull: ").unwrap_or(why) {
            "" => bail!("the program that opens the files has failed ({})", said.status),
            why => bail!("{why}"),
        }
    }
    serde_json::from_slice(&said.stdout).context(
        "the program that opens the files printed no \
                                                  result",
    )
}

fn to_text(report: &Report, system: &str) -> String {
    let line = |name: &str, opened: &Opened| {
        format!(
            "{name:<16}  {:>9}  {:>7.1}  {:>7.1}  {:>8.1}\n",
            opened.opens, opened.p50_us, opened.p99_us, opened.max_us
        )
    };
    let lines = |compared: &Compared| {
        line("replica", &compared.measured)
            + &line("passed through", &compared.beside)
            + &line("folder", &compared.plain)
    };
    format!(
        "{} files of {} bytes, on {system}: open, read and close\n\
         {:<16}      opens   p50 µs   p99 µs    max µs\n{}all on one processor\n{}\
         a replica's mount takes {:.3} × as long, on one processor {:.3} × (medians)\n",
        report.files,
        report.bytes,
        "",
        lines(&report.anywhere),
        lines(&report.one_processor),
        report.anywhere.ratio,
        report.one_processor.ratio
    )
}
