//! `lull lab edits`: edits files in one place, and reads them in another.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use lull_cc::Bytes;
use lull_emulator::parse_duration;
use lull_load::readers::{
    self, Arrivals, Edits, Load, Origin, Readers, Report, Source, violations,
};
use lull_replication::checker::Violation;
use serde_json::json;

use super::readers::{add_violations, exceptions};
use crate::UsageError;
use crate::progress::bar;
use crate::values::positive;

const EXAMPLES: &str = "\
Examples:
  lull lab edits --into first
      write the first version of all files, to copy to both places
  lull lab edits --in one --read other --ready
      make one edit, to check that the two folders are synchronized
  lull lab edits --in one --read other --length 120s --json
      edit files in one folder for two minutes, and read them in the other
  lull lab edits --to 127.0.0.1:7071 --token-file token --read /srv/files --delta 60s
      edit at an origin, and read in the mount of a replica

An edit writes a new file beside the old one, and renames it. All files are edited with the same
probability, and read in turns. Each body carries its number. The time of an edit is from its beginning
until a read gets it or a later edit of that file. An edit that no read gets counts with its age. All
reads are one session, which must see the edits in their order. With --delta, no read may miss an edit
that was acknowledged longer than that before. Violations are counted. The exit code is 1 if a read or a
write failed, and 2 if the arguments are wrong.";

/// Edit files in one place, and measure when and in which order the edits arrive in another
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EditsArgs {
    /// Write the first version of all files into this folder, and exit
    #[arg(long, value_name = "DIR", conflicts_with_all = ["folder", "to", "read"])]
    into: Option<PathBuf>,
    /// Folder in which files are edited
    #[arg(long = "in", value_name = "DIR", required_unless_present_any = ["into", "to"],
        conflicts_with = "to", requires = "read")]
    folder: Option<PathBuf>,
    /// Address where an origin accepts PUT, instead of a folder
    #[arg(long, value_name = "ADDRESS:PORT", requires_all = ["token_file", "read"])]
    to: Option<SocketAddr>,
    /// File whose first line is the token for --to
    #[arg(long, value_name = "FILE", requires = "to")]
    token_file: Option<PathBuf>,
    /// Folder in which files are read
    #[arg(long, value_name = "DIR")]
    read: Option<PathBuf>,
    /// Edit one extra file, called ready, wait until it can be read, and exit
    #[arg(long, requires = "read")]
    ready: bool,
    /// Number of files
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    files: u32,
    /// Bytes of the smallest file
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(20..=1 << 30))]
    smallest: u32,
    /// Bytes of the largest file
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(20..=1 << 30))]
    largest: u32,
    /// Edits per second, on average
    #[arg(long, value_name = "NUMBER", default_value = "4", value_parser = positive)]
    rate: f64,
    /// Duration of the edits
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    length: Duration,
    /// Reads per second
    #[arg(long, value_name = "NUMBER", default_value = "200", value_parser = positive)]
    reads: f64,
    /// Time of reading after the last edit; with --ready, the timeout
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    tail: Duration,
    /// Maximum staleness that is promised, to be checked
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    delta: Option<Duration>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// How long to wait for answers after the last read.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A read that took this long was blocked.
const WAITS: Duration = Duration::from_millis(100);

/// Edits and reads, and shows the result.
pub(crate) fn edits(args: &EditsArgs) -> anyhow::Result<ExitCode> {
    lull_cli::message::usage_error(|| {
        if args.smallest > args.largest {
            let text = "--smallest is more than --largest: make it the lesser one".to_owned();
            return Err(UsageError(text).into());
        }
        let text = match &args.into {
            Some(folder) => {
                let bytes = args.load().write_first(folder)?;
                format!("{}: {} files, {}\n", folder.display(), args.files, Bytes(bytes))
            }
            None => args.run()?,
        };
        io::stdout().write_all(text.as_bytes()).context("cannot write")
    })
}

impl EditsArgs {
    fn load(&self) -> Load {
        let edits = Edits {
            files: self.files as usize,
            bytes: (self.smallest as usize, self.largest as usize),
            per_second: self.rate,
            length: self.length,
            reads: self.reads,
            tail: self.tail,
            seed: self.seed,
        };
        edits.draw()
    }

    fn source(&self) -> anyhow::Result<Source> {
        if let Some(folder) = &self.folder {
            return Ok(Source::Folder(folder.clone()));
        }
        // Required by --to.
        let (Some(address), Some(token)) = (self.to, &self.token_file) else {
            anyhow::bail!("name where files are written, by --in, or by --to and --token-file");
        };
        Ok(Source::Origin(Origin { address, token: lull_cli::arguments::token(token)? }))
    }

    fn run(&self) -> anyhow::Result<String> {
        let source = self.source()?;
        let read = self.read.as_ref().context("name where files are read, by --read")?;
        if self.ready {
            readers::ready(&source, read, self.tail)?;
            return Ok(if self.json { "{}\n".to_owned() } else { String::new() });
        }
        let load = Arc::new(self.load());
        let readers = Readers::in_folder(read, &load)?;
        let bar = bar(self.length + self.tail);
        let history = readers.run(&load, source, TIMEOUT, &mut |progress| {
            bar.set_position(progress.now.as_millis() as u64);
        });
        bar.finish_and_clear();
        let history = history?;
        let violations = violations(&load, &history, self.delta)?;
        let report = Report::new(&load, &history, WAITS);
        let arrivals = Arrivals::of(&load, &history);
        let written =
            history.writes.iter().map(|one| load.files[load.writes[one.write].file].bytes);
        let bytes = Bytes(written.map(|bytes| bytes as u64).sum());
        if self.json {
            let mut value = serde_json::to_value(&report)?;
            value["until_read"] = serde_json::to_value(arrivals)?;
            value["length_s"] = json!(self.length.as_secs_f64());
            value["written_bytes"] = json!(bytes.0);
            add_violations(&mut value, &violations);
            return Ok(format!("{}\n", serde_json::to_string_pretty(&value)?));
        }
        Ok(to_text(&report, &arrivals, bytes, &violations))
    }
}

fn to_text(report: &Report, arrivals: &Arrivals, bytes: Bytes, violations: &[Violation]) -> String {
    let Report { response, staleness, .. } = report;
    let Arrivals { missing, times, .. } = arrivals;
    let seconds = |ms: f64| format!("{:.2} s", ms / 1e3);
    let text = format!(
        "{} edits of {} files, {bytes}, and {} reads in {:.0} s\n\
         until read  median {}, p99 {}, at most {}; {missing} were not\n\
         staleness   mean {:.2} s, at most {:.2} s; {:.1} % of reads\n\
         response    median {:.2} ms, p99 {:.2} ms, at most {:.2} ms\n\
         begun late  p99 {:.2} ms\n\
         {} reads out of order\n",
        report.writes,
        report.files,
        report.reads,
        report.seconds,
        seconds(times.p50_ms),
        seconds(times.p99_ms),
        seconds(times.max_ms),
        staleness.mean_s,
        staleness.max_s,
        100.0 * staleness.stale,
        response.p50_ms,
        response.p99_ms,
        response.max_ms,
        report.late.p99_ms,
        violations.len(),
    );
    text + &exceptions(report, violations)
}
