//! `lull lab readers`: the readers in the mounts of replicas, and the writers at their origin.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use lull_emulator::parse_duration;
use lull_load::readers::{File, Load, Origin, Read, Readers, Report, Source, Write, violations};
use lull_replication::checker::Violation;
use lull_replication_daemon::http::client::Client;
use lull_replication_daemon::service::runtime;
use lull_replication_sim::evaluate::Workload;
use serde_json::{Value, json};

use super::workload::{Drawn, WorkloadArgs};
use crate::progress::bar;
use lull_cli::logs::Contents;

const EXAMPLES: &str = "\
Examples:
  lull lab readers --into first access.log
      write the first version of all files, for lull publish
  lull lab readers --replica paris=/srv/paris --replica london=/srv/london --origin origin \\
      --to 127.0.0.1:7071 --token-file token --length 3600s --speed 12 access.log
      play an hour of the log in five minutes, at two running replicas with these files

The clients of the log are distributed over the mounts at random. The log has no writes, so writes are
random: --updates for each read. The part --popular of them goes to files in proportion to their reads,
the rest to any file. A read starts when it is due, also if earlier ones still wait. Its time is from
open to the last byte. Each body carries its number, so the reads are checked: one order of all writes,
and no read misses a write that was acknowledged longer than Δ before. Violations are counted. Byte
counts come from the origin and the replicas. The exit code is 1 if a read or a write failed, and 2 if
the arguments are wrong.";

/// Play an access log in the mounts of replicas, while files are written at their origin
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReadersArgs {
    /// Write the first version of all files into this folder, for the origin to publish, and exit
    #[arg(long, value_name = "DIR", conflicts_with = "replicas")]
    into: Option<PathBuf>,
    /// A replica: its folder, and its mount. Repeat for each replica
    #[arg(
        long = "replica",
        value_name = "DIR=MOUNT",
        required_unless_present = "into",
        requires_all = ["origin", "to", "token_file"]
    )]
    replicas: Vec<ReplicaMount>,
    /// Folder of their origin
    #[arg(long, value_name = "DIR")]
    origin: Option<PathBuf>,
    /// Address where the origin accepts PUT
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: Option<SocketAddr>,
    /// File whose first line is the token for --to
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Maximum staleness that the replicas permit
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    delta: Duration,
    /// A read that takes this long has waited for the origin
    #[arg(long, alias = "waits", value_name = "TIME", value_parser = parse_duration,
        default_value = "100ms")]
    slow_read_threshold: Duration,
    /// Time to wait for responses after the last read
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    patience: Duration,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// A replica.
#[derive(Clone, Debug, PartialEq)]
struct ReplicaMount {
    folder: PathBuf,
    mount: PathBuf,
}

impl FromStr for ReplicaMount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((folder, mount)) if !folder.is_empty() && !mount.is_empty() => {
                Ok(ReplicaMount { folder: folder.into(), mount: mount.into() })
            }
            _ => Err("write its folder and the mount, as in paris=/srv/paris"),
        }
    }
}

/// Reads and writes, and shows the result.
pub(crate) fn readers(args: &ReadersArgs) -> anyhow::Result<ExitCode> {
    lull_cli::message::usage_error(|| {
        let Drawn { workload, documents, contents } =
            args.workload.draw(u32::try_from(args.replicas.len().max(1))?)?;
        let files = documents.iter().enumerate().map(|(at, document)| File::of(document, at));
        let load = load(&workload, files.collect());
        let text = match &args.into {
            Some(folder) => {
                let bytes = load.write_first(folder)?;
                first(&load, bytes, folder.display(), args.json)?
            }
            None => run(args, load, &contents)?,
        };
        io::stdout().write_all(text.as_bytes()).context("cannot write")
    })
}

fn load(workload: &Workload, files: Vec<File>) -> Load {
    let reads = workload.reads.iter().map(|read| Read {
        at: read.at,
        replica: read.replica as usize,
        file: read.object as usize,
    });
    let writes =
        workload.writes.iter().map(|write| Write { at: write.at, file: write.object as usize });
    Load { reads: reads.collect(), writes: writes.collect(), files }
}

fn first(
    load: &Load,
    bytes: u64,
    folder: std::path::Display<'_>,
    as_json: bool,
) -> anyhow::Result<String> {
    let files = load.files.len();
    Ok(if as_json {
        format!("{}\n", serde_json::to_string_pretty(&json!({ "files": files, "bytes": bytes }))?)
    } else {
        format!("{folder}: {files} files, {}\n", lull_cc::Bytes(bytes))
    })
}

fn run(args: &ReadersArgs, load: Load, contents: &[Contents]) -> anyhow::Result<String> {
    let (Some(origin), Some(address), Some(token)) = (&args.origin, args.to, &args.token_file)
    else {
        // Required by --replica.
        bail!("name the origin by --origin, --to and --token-file");
    };
    let token = lull_cli::arguments::token(token)?;
    let mounts: Vec<PathBuf> =
        args.replicas.iter().map(|replica_mount| replica_mount.mount.clone()).collect();
    let readers = Readers::gather(&mounts, &load)?;
    let folders: Vec<&PathBuf> = [origin]
        .into_iter()
        .chain(args.replicas.iter().map(|replica_mount| &replica_mount.folder))
        .collect();
    let before = Sent::ask(&folders)?;
    let load = Arc::new(load);
    let bar = bar(load.reads.last().map(|read| read.at).unwrap_or_default());
    let source = Source::Origin(Origin { address, token });
    let history = readers.run(&load, source, args.patience, &mut |progress| {
        bar.set_position(progress.now.as_millis() as u64);
        bar.set_message(format!("{} of {} answered", progress.answered, progress.due));
    });
    bar.finish_and_clear();
    let history = history?;
    let sent = Sent::ask(&folders)?.since(&before)?;
    let violations = violations(&load, &history, Some(args.delta))?;
    let report = Report::new(&load, &history, args.slow_read_threshold);
    if args.json {
        let mut value = serde_json::to_value(&report)?;
        value["logs"] = contents.iter().map(Contents::json).collect::<Value>();
        value["delta_s"] = json!(args.delta.as_secs_f64());
        add_violations(&mut value, &violations);
        value["sent"] = sent.json();
        return Ok(format!("{}\n", serde_json::to_string_pretty(&value)?));
    }
    Ok(to_text(&report, &violations, &sent))
}

/// The number of violations that are described.
const MAX_LISTED: usize = 20;

/// The bytes that origin and replicas have sent since they started, by their own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sent {
    /// The sum of their lives: it changes when one of them has started again.
    lives: u64,
    /// Bytes sent by the origin and all replicas: on the control channels, for reads that waited, and in
    /// advance of reads.
    control: u64,
    demand: u64,
    speculative: u64,
    /// Bodies that reads waited for, and those that were pushed.
    demands: u64,
    pushed: u64,
    /// Bodies that were overwritten before they were pushed.
    absorbed: u64,
}

impl Sent {
    /// The present counters of the origin and the replicas in these folders, the origin's first.
    fn ask(folders: &[&PathBuf]) -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let ask = |folder: &&PathBuf| -> anyhow::Result<Value> {
            let text = runtime.block_on(Client::new(*folder).status())?;
            Ok(serde_json::from_str(&text)?)
        };
        let told = folders.iter().map(ask).collect::<anyhow::Result<Vec<Value>>>()?;
        Ok(told.iter().fold(Sent::default(), Sent::add))
    }

    fn add(self, status: &Value) -> Self {
        let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or(0);
        let lives = self.lives.wrapping_add(number(status, "life"));
        let Some(replicas) = status["replicas"].as_array() else {
            // A replica's: the origin counts its bodies.
            let control = self.control + number(status, "control_bytes");
            return Sent { lives, control, ..self };
        };
        let sum = |name: &str| replicas.iter().map(|one| number(one, name)).sum::<u64>();
        Sent {
            lives,
            control: self.control + sum("control_bytes"),
            demand: self.demand + sum("demand_bytes"),
            speculative: self.speculative + sum("speculative_bytes"),
            demands: self.demands + number(status, "demands"),
            pushed: self.pushed + number(status, "pushed"),
            absorbed: self.absorbed + number(status, "absorbed"),
        }
    }

    fn since(self, before: &Self) -> anyhow::Result<Self> {
        let again = "the origin or a replica was restarted during the run, which reset its byte \
                     counters: try again";
        if self.lives != before.lives {
            bail!(again);
        }
        let more = |after: u64, before: u64| after.checked_sub(before).context(again);
        Ok(Sent {
            lives: self.lives,
            control: more(self.control, before.control)?,
            demand: more(self.demand, before.demand)?,
            speculative: more(self.speculative, before.speculative)?,
            demands: more(self.demands, before.demands)?,
            pushed: more(self.pushed, before.pushed)?,
            absorbed: more(self.absorbed, before.absorbed)?,
        })
    }

    fn bytes(&self) -> u64 {
        self.control + self.demand + self.speculative
    }

    fn json(&self) -> Value {
        json!({
            "bytes": self.bytes(),
            "control_bytes": self.control,
            "demand_bytes": self.demand,
            "speculative_bytes": self.speculative,
            "demands": self.demands,
            "pushed": self.pushed,
            "absorbed": self.absorbed,
        })
    }
}

fn to_text(report: &Report, violations: &[Violation], sent: &Sent) -> String {
    let Report { response, staleness, hits, waited, .. } = report;
    let megabytes = |bytes: u64| format!("{:.3} MB", bytes as f64 / 1e6);
    let text = format!(
        "{} reads of {} files at {} replicas in {:.0} s, {} writes\n\
         response    mean {:.2} ms, median {:.2} ms, p99 {:.2} ms, at most {:.2} ms\n\
         hits        {}, mean {:.2} ms\n\
         waited      {}, mean {:.2} ms\n\
         staleness   mean {:.3} s, at most {:.3} s; {:.2} % of reads\n\
         sent        {} for reads, {} pushed, {} of control\n\
         begun late  p99 {:.2} ms\n\
         {} broken promises\n",
        report.reads,
        report.files,
        report.replicas.len(),
        report.seconds,
        report.writes,
        response.mean_ms,
        response.p50_ms,
        response.p99_ms,
        response.max_ms,
        hits.count,
        hits.times.mean_ms,
        waited.count,
        waited.times.mean_ms,
        staleness.mean_s,
        staleness.max_s,
        100.0 * staleness.stale,
        megabytes(sent.demand),
        megabytes(sent.speculative),
        megabytes(sent.control),
        report.late.p99_ms,
        violations.len(),
    );
    text + &exceptions(report, violations)
}

/// The failures, a line each.
pub(super) fn exceptions(report: &Report, violations: &[Violation]) -> String {
    let mut text: String =
        violations.iter().take(MAX_LISTED).map(|violation| format!("  {violation}\n")).collect();
    if report.unanswered > 0 {
        text += &format!("unanswered  {} reads\n", report.unanswered);
    }
    text
}

/// The violations as fields of a report in JSON.
pub(super) fn add_violations(value: &mut Value, violations: &[Violation]) {
    let told = violations.iter().take(MAX_LISTED).map(ToString::to_string);
    value["violations"] = json!(violations.len());
    value["first_violations"] = told.collect::<Value>();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_reported_by_purpose() {
        let origin = json!({ "pushed": 5, "demands": 2, "absorbed": 1, "replicas": [
            { "control_bytes": 10, "demand_bytes": 200, "speculative_bytes": 3_000 },
            { "control_bytes": 1, "demand_bytes": 0, "speculative_bytes": 4_000 },
        ] });
        let replica = json!({ "control_bytes": 7, "demand_bytes": 200 });
        let sent = Sent::default().add(&origin).add(&replica);
        let expected = Sent {
            lives: 0,
            control: 18,
            demand: 200,
            speculative: 7_000,
            demands: 2,
            pushed: 5,
            absorbed: 1,
        };
        assert_eq!(sent, expected);
        assert_eq!(sent.since(&Sent { control: 8, ..Sent::default() }).unwrap().bytes(), 7_210);
        let error = sent.since(&Sent { demand: 201, ..expected }).unwrap_err().to_string();
        assert!(error.contains("was restarted during the run"), "{error}");
    }

    #[test]
    fn restart_is_noticed_after_any_amount_sent() {
        let sent = |life: u64, bytes: u64| {
            Sent::default().add(&json!({ "life": life, "control_bytes": bytes }))
        };
        assert_eq!(sent(3, 9).since(&sent(3, 7)).unwrap().bytes(), 2);
        let error = sent(4, 9).since(&sent(3, 7)).unwrap_err().to_string();
        assert!(error.contains("was restarted during the run"), "{error}");
    }

    #[test]
    fn replica_is_named_by_folder_and_mount() {
        let replica_mount = |text: &str| text.parse::<ReplicaMount>().ok();
        let expected = ReplicaMount { folder: "paris".into(), mount: "/srv/a=b".into() };
        assert_eq!(replica_mount("paris=/srv/a=b"), Some(expected));
        for text in ["", "paris", "=", "paris=", "=/srv"] {
            assert_eq!(replica_mount(text), None, "{text}");
        }
    }
}
