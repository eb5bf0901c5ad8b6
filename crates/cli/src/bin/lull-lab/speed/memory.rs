//! `lull lab speed memory`: the memory of an origin with many objects and replicas.

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use lull_cc::Bytes;
use lull_replication_daemon::speed::memory::{self, Report, Settings};

use super::TargetArgs;

const EXAMPLES: &str = "\
Examples:
  lull lab speed memory
      measure a million objects and 100 replicas
  lull lab speed memory --objects 100000 --replicas 10 --folder /srv
      measure fewer of both, on another disk
  lull lab speed memory --json | jq .most_resident_bytes
      print the largest resident size (VmHWM)

This process runs the origin only; another one runs the replicas. They are notified of each write, and take
a few bodies each. All other bodies wait, which is the largest state that an origin can have. At the end the
origin starts again with all objects.";

/// Measure the largest memory of an origin with many objects and replicas
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Number of objects, each written once
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    objects: u64,
    /// Number of replicas
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    replicas: u32,
    /// Bytes of each object
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    bytes: u32,
    #[command(flatten)]
    target: TargetArgs,
}

/// Fills an origin.
pub(super) fn memory(args: &Args) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("this program cannot find itself")?;
    let arguments = ["speed", "replicas"].map(str::to_owned).to_vec();
    let work = |folder: &std::path::Path| {
        Ok(memory::run(&Settings {
            folder: folder.to_owned(),
            objects: args.objects,
            replicas: args.replicas,
            size: args.bytes as usize,
            program: (program, arguments),
        })?)
    };
    args.target.measure(work, to_text)
}

/// Runs the replicas that the standard input names.
pub(super) fn replicas() -> anyhow::Result<ExitCode> {
    lull_lab::run::end_with_parent_thread();
    memory::replicas(io::stdin(), io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

fn to_text(report: &Report, system: &str) -> String {
    format!(
        "{} objects of {} bytes, written and sent to {} replicas in {:.1} s, on {system}\n{} \
         invalidations decoded, {} bodies wait, {} came\nthe origin had {} at most, and started again in \
         {:.1} s\n",
        report.objects,
        report.bytes,
        report.replicas,
        report.seconds,
        report.delivered,
        report.waiting,
        report.bodies,
        Bytes(report.most_resident_bytes),
        report.start_seconds,
    )
}
