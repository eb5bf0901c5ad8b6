//! `lull jobs`: the programs and slices in the background.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use lull_cc::Bytes;
use lull_kernel::Job;
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  sudo lull jobs
      list the background programs, and how much they have sent
  sudo lull jobs pause backup
      pause the job of 'lull exec --name backup' while you need the network
  sudo lull jobs resume backup
      continue the job
  sudo lull jobs foreground 1234.0
      let a job without a name send at full speed, by its number
  lull jobs list --json | jq -r '.[].command'
      print the command lines only";

/// List, pause and resume background programs
///
/// A job is all running processes that one 'lull exec' put into the background, also with --pid. Name it with
/// 'lull exec --name', or use its number in the list. A slice is a cgroup of 'lull kernel slice'; its name is that of
/// the cgroup, and pausing it pauses all its units or containers. The exit code is 0 on success, 1 on failure, and 2 if the
/// arguments are wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the jobs (default)
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Print JSON; a value that this user must not see is null
        #[arg(long)]
        json: bool,
    },
    /// Freeze the processes of a job. Its connections stay open until the other side closes them
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause {
        /// Name or number of the job
        job: String,
    },
    /// Resume the processes of a job
    #[command(after_help = RESUME_EXAMPLES)]
    Resume {
        /// Name or number of the job
        job: String,
    },
    /// Move a job and its open connections out of the background
    #[command(after_help = FOREGROUND_EXAMPLES)]
    Foreground {
        /// Name or number of the job
        job: String,
    },
}

const LIST_EXAMPLES: &str = "\
Examples:
  sudo lull jobs list
      print one line per job
  sudo lull jobs list --json
      print JSON";

const PAUSE_EXAMPLES: &str = "\
Examples:
  sudo lull jobs pause backup
      pause it during a video call; 'sudo lull jobs resume backup' resumes it";

const RESUME_EXAMPLES: &str = "\
Examples:
  sudo lull jobs resume backup
      continue the paused processes";

const FOREGROUND_EXAMPLES: &str = "\
Examples:
  sudo lull jobs foreground backup
      finish the backup at full speed";

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let text = match args.command.unwrap_or(Command::List { json: false }) {
        Command::List { json: true } => {
            Value::from_iter(lull_kernel::jobs()?.iter().map(as_json)).to_string() + "\n"
        }
        Command::List { json: false } => table(&lull_kernel::jobs()?),
        Command::Pause { job } => format!("job {} is paused\n", name(&lull_kernel::pause(&job)?)),
        Command::Resume { job } => format!("job {} continues\n", name(&lull_kernel::resume(&job)?)),
        Command::Foreground { job } => {
            let moved = lull_kernel::job_to_foreground(&job)?;
            let stays = moved.foreground.iter();
            let stays: String =
                stays.map(|what| format!("in the background stays: {what}\n")).collect();
            format!("job {job} is in the foreground now\n{stays}")
        }
    };
    io::stdout().write_all(text.as_bytes()).context("cannot write")?;
    Ok(ExitCode::SUCCESS)
}

fn name(job: &Job) -> &str {
    job.name.as_deref().unwrap_or(&job.id)
}

fn table(jobs: &[Job]) -> String {
    if jobs.is_empty() {
        return "no job is running\n".to_owned();
    }
    let head = ["job", "name", "state", "since", "sent", "processes", "command"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(jobs.iter().map(|job| {
        [
            if job.is_slice { "slice".to_owned() } else { job.id.clone() },
            job.name.clone().unwrap_or("-".to_owned()),
            state(job).to_owned(),
            age(job.age),
            job.tcp_bytes.map_or("-".to_owned(), |bytes| Bytes(bytes).to_string()),
            job.processes.len().to_string(),
            if job.command.is_empty() { "-".to_owned() } else { job.command.clone() },
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..7).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn state(job: &Job) -> &'static str {
    match (job.is_paused, job.processes.is_empty()) {
        (true, _) => "paused",
        (false, true) => "empty",
        (false, false) => "running",
    }
}

/// Hours, minutes and seconds.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn as_json(job: &Job) -> Value {
    json!({
        "job": job.id,
        "name": job.name,
        "is_slice": job.is_slice,
        "state": state(job),
        "age_seconds": job.age.as_secs_f64(),
        "tcp_bytes": job.tcp_bytes,
        "tcp_bytes_received": job.tcp_received,
        "udp_bytes": job.udp_bytes,
        "udp_in_the_background": job.udp,
        "congestion": job.congestion,
        "cgroup": job.cgroup,
        "processes": job.processes,
        "command": job.command,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_table_has_a_line_per_job() {
        assert_eq!(table(&[]), "no job is running\n");
        let job = Job {
            id: "12.0".to_owned(),
            name: Some("backup".to_owned()),
            is_slice: false,
            congestion: "nice".to_owned(),
            cgroup: "/lull.nice.12.0".into(),
            processes: vec![13, 14],
            command: "restic backup".to_owned(),
            age: Duration::from_secs(3_661),
            is_paused: true,
            tcp_bytes: None,
            tcp_received: None,
            udp_bytes: None,
            udp: Vec::new(),
            yielded: None,
        };
        let slice = Job {
            id: "/a.slice/b.slice".to_owned(),
            name: Some("b.slice".to_owned()),
            is_slice: true,
            processes: Vec::new(),
            command: String::new(),
            age: Duration::ZERO,
            is_paused: false,
            ..job.clone()
        };
        let expected = "job    name     state   since    sent  processes  command\n\
            12.0   backup   paused  1:01:01  -     2          restic backup\n\
            slice  b.slice  empty   0:00:00  -     0          -\n";
        assert_eq!(table(&[job, slice]), expected);
    }
}
