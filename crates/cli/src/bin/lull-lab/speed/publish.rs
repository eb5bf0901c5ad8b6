//! `lull lab speed publish`: the cost of files until a replica has them.

use std::path::Path;
use std::process::ExitCode;

use lull_replication_daemon::speed::publish::{Point, Report, Settings, run};

use super::TargetArgs;

const EXAMPLES: &str = "\
Examples:
  lull lab speed publish
      publish 1000, 10,000 and 100,000 files of 4 kB, and copy them by rsync
  lull lab speed publish --files 1000,1000000 --json | jq .points
      print the measurements for a program

`times` is the time relative to rsync. Meanwhile another file is read at the replica at fixed times.";

/// Measure the cost of publishing files to a replica, compared with rsync
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Numbers of files, each published once
    #[arg(long, value_name = "N,…", default_value = "1000,10000,100000", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    files: Vec<u64>,
    /// Bytes of each file
    #[arg(long, value_name = "N", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(32..=1 << 20))]
    bytes: u32,
    #[command(flatten)]
    target: TargetArgs,
}

/// Publishes them.
pub(super) fn publish(args: &Args) -> anyhow::Result<ExitCode> {
    let work = |folder: &Path| {
        let (folder, files) = (folder.to_owned(), args.files.clone());
        Ok(run(&Settings { folder, files, size: args.bytes as usize })?)
    };
    args.target.measure(work, to_text)
}

fn to_text(report: &Report, system: &str) -> String {
    let bytes = report.bytes;
    let mut text = format!(
        "Publications of files of {bytes} bytes, on {system}:\n\n{:>9} {:>9} {:>9} {:>9} {:>6}   {}\n",
        "files", "lull", "CPU", "rsync", "times", "reads of another file: median, p99, longest"
    );
    for Point { files, seconds, processor_seconds, rsync_seconds, ratio, reads, .. } in
        &report.points
    {
        text += &format!(
            "{files:>9} {seconds:>7.2} s {processor_seconds:>7.2} s {rsync_seconds:>7.2} s {ratio:>6.1}   \
             {:.2} ms, {:.2} ms, {:.2} ms\n",
            reads.p50_ms, reads.p99_ms, reads.max_ms
        );
    }
    if let (Some(time), Some(processor)) = (report.exponent, report.processor_exponent) {
        text += &format!(
            "\nTime grows with the number of files to the power of {time:.2}, CPU time to {processor:.2}\n"
        );
    }
    text += &format!(
        "With {} objects the origin starts in {:.2} s, the replica in {:.2} s; the most memory of all was {:.0} MiB\n",
        report.objects,
        report.origin_start_seconds,
        report.replica_start_seconds,
        report.most_resident_bytes as f64 / 1_048_576.0
    );
    text
}
