//! `lull lab speed`: how fast origin and replicas are on this machine.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use lull_emulator::{Signals, contain, parse_duration};
use lull_replication_daemon::speed::{Settings, file_system};
use serde::Serialize;
use serde_json::json;

mod fan_out;
mod memory;
mod mount;
mod publish;
mod relays;
mod writes;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lull lab speed writes
      measure how many durable writes per second an origin acknowledges in time
  lull lab speed fan-out --replicas 10,100,1000 --rates 20
      measure how fast replicas are notified of writes, and the processor time of that
  lull lab speed memory --json | jq .most_resident_bytes
      measure the largest memory of an origin with a million objects and 100 replicas
  lull lab speed publish --files 1000,10000,100000
      measure how long files take from lull publish to a replica, compared with rsync
  lull lab speed relays --relays 5 --receivers 50
      measure the bytes that leave an origin whose replicas are behind relays
  sudo lull lab speed mount
      compare the time of open in a replica's mount with that in a pass-through mount

Origin and replicas are those of lull origin and lull replica, on a disk and over TLS on the loopback
device. Use an idle machine.";

/// The measurement.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Writes(writes::Args),
    FanOut(fan_out::Args),
    Memory(memory::Args),
    Mount(mount::Args),
    Publish(publish::Args),
    Relays(relays::Args),
    /// Run replicas; `lull lab speed memory` starts this
    #[command(hide = true)]
    Replicas,
    /// Open files; `lull lab speed mount` starts this
    #[command(hide = true)]
    Opens(mount::OpensArgs),
}

/// Measures it.
pub(crate) fn speed(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Writes(args) => writes::writes(&args),
        Command::FanOut(args) => fan_out::fan_out(&args),
        Command::Memory(args) => memory::memory(&args),
        Command::Mount(args) => mount::mount(&args),
        Command::Publish(args) => publish::publish(&args),
        Command::Relays(args) => relays::relays(&args),
        Command::Replicas => memory::replicas(),
        Command::Opens(args) => mount::opens(&args),
    }
}

/// The folder of the measurement, and the output format.
#[derive(Debug, clap::Args)]
struct TargetArgs {
    /// Folder on the disk to measure. A folder is created in it, and deleted at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// The offered load of an origin, for any measurement.
#[derive(Debug, clap::Args)]
struct Load {
    /// Number of writers, which take turns
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    writers: u32,
    /// Bytes of each write
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    bytes: u32,
    /// Objects that are written in turn
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    objects: u64,
    /// Time before the measurement
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = length)]
    settle: Duration,
    /// Time of the measurement
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = length)]
    length: Duration,
}

impl Load {
    fn settings(&self, folder: &Path, rates: &[u32], limit: Duration) -> Settings {
        Settings {
            folder: folder.to_owned(),
            rates: rates.to_vec(),
            writers: self.writers,
            size: self.bytes as usize,
            objects: self.objects,
            settle: self.settle,
            length: self.length,
            limit,
        }
    }
}

/// The position of the knee among the rates, of which `most` is the highest.
fn knee(knee: Option<u32>, most: Option<u32>, limit_ms: f64) -> String {
    match knee {
        None => format!("below all of them, p99 is over {limit_ms} ms"),
        Some(rate) if most == Some(rate) => {
            format!("{rate} writes/s or more, p99 is within {limit_ms} ms at all rates")
        }
        Some(rate) => format!("{rate} writes/s, up to which p99 is within {limit_ms} ms"),
    }
}

impl TargetArgs {
    /// Measures in a new folder, and shows the result. A separate process does it, which ends all of its
    /// children and mounts with itself, so that nothing is left after any end.
    fn measure<R: Serialize>(
        &self,
        work: impl FnOnce(&Path) -> anyhow::Result<R>,
        to_text: impl FnOnce(&R, &str) -> String,
    ) -> anyhow::Result<ExitCode> {
        let named = || format!("`{}` cannot be used: name another --folder", self.folder.display());
        let folder = fs::canonicalize(&self.folder).with_context(named)?;
        let system = file_system(&folder).ok().flatten();
        let system = system.unwrap_or_else(|| "an unknown file system".to_owned());
        if system == "tmpfs" {
            eprintln!(
                "lull: `{}` is in memory (tmpfs), where nothing is durable: name a folder on a disk \
                 by --folder",
                folder.display()
            );
        }
        let scratch = tempfile::Builder::new().prefix("lull-speed-").tempdir_in(&folder);
        let scratch = scratch.with_context(named)?;
        let shown = || {
            let report = work(scratch.path())?;
            let text = if self.json {
                let mut value = serde_json::to_value(&report)?;
                value["file_system"] = json!(system);
                format!("{}\n", serde_json::to_string_pretty(&value)?)
            } else {
                to_text(&report, &system)
            };
            io::stdout().write_all(text.as_bytes()).context("cannot write")
        };
        let code = contain(Signals::End, |_| match shown() {
            Ok(()) => 0,
            Err(error) => {
                crate::print_error(&error);
                1
            }
        })?;
        scratch.close().context("the folder for the measurement cannot be deleted")?;
        Ok(ExitCode::from(code))
    }
}

/// A time above zero.
fn length(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(time) if time.is_zero() => Err("write a time above zero, such as 10s".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_duration_is_rejected() {
        assert_eq!(length("1500ms"), Ok(Duration::from_millis(1_500)));
        assert!(length("0s").is_err() && length("soon").is_err());
    }
}
