//! `lull lab distribute`: a publication for many receivers behind relays, simulated.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use lull_cc::{Bytes, Rate};
use lull_emulator::parse_duration;
use lull_replication_sim::distribute::{self, Options, Outcome};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  lull lab distribute
      simulate 100 MB for 100 receivers behind two levels of relays
  lull lab distribute --receivers 10000 --json | jq .copies
      print how many copies leave the origin for 10,000 receivers
  lull lab distribute --levels 1 --receivers 20 --files 100 --bytes 1000000
      simulate an origin without relays, and many files

The simulation runs the state machines of lull origin and lull replica, without disks. Each machine sends at --rate to
all below it together. Machines are spread evenly over the levels.";

/// Simulate a publication for many receivers behind relays
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DistributeArgs {
    /// Number of receivers, relays not included
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    receivers: u32,
    /// Levels below the origin, of which the last one has the receivers: with 1 there are no relays
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=8))]
    levels: u32,
    /// Number of files
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    files: u32,
    /// Bytes of each file
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(20_000..=16_000_000_000))]
    bytes: u64,
    /// Rate at which each machine sends to all below it
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    rate: Rate,
    /// Delay between a machine and those below it, one way
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration)]
    delay: Duration,
    /// Seed of the times at which machines start
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Simulates it.
pub(crate) fn distribute(args: &DistributeArgs) -> anyhow::Result<ExitCode> {
    let DistributeArgs { receivers, levels, files, bytes, rate, delay, seed, json } = *args;
    let options = Options { receivers, levels, files, size: Bytes(bytes), rate, delay, seed };
    let outcome = distribute::run(options);
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("cannot read the processor time")?;
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    let value = to_json(&options, &outcome, Duration::from_micros(micros.unsigned_abs()));
    let text = if json {
        format!("{}\n", serde_json::to_string_pretty(&value)?)
    } else {
        to_text(&options, &outcome)
    };
    io::stdout().write_all(text.as_bytes()).context("cannot write")?;
    Ok(ExitCode::SUCCESS)
}

/// Bytes of one copy of all files.
fn copy(options: &Options) -> u64 {
    options.size.0 * u64::from(options.files)
}

/// How many copies have left the origin.
fn copies(options: &Options, outcome: &Outcome) -> f64 {
    rounded(outcome.body_bytes as f64 / copy(options) as f64)
}

fn to_json(options: &Options, outcome: &Outcome, processor: Duration) -> Value {
    let seconds = |time: Duration| rounded(time.as_secs_f64());
    let link = options.rate.time_for(Bytes(copy(options)));
    json!({
        "receivers": options.receivers,
        "relays": outcome.relays,
        "served": outcome.served,
        "first_s": seconds(outcome.first),
        "mean_s": seconds(outcome.mean),
        "last_s": seconds(outcome.last),
        "known_s": seconds(outcome.known),
        "link_s": seconds(link),
        "copies": copies(options, outcome),
        "origin_body_bytes": outcome.body_bytes,
        "origin_control_bytes": outcome.control_bytes,
        "origin_messages": outcome.messages,
        "steps": outcome.steps,
        "processor_s": seconds(processor),
    })
}

/// Six digits: the rest is noise.
fn rounded(value: f64) -> f64 {
    format!("{value:.6}").parse().unwrap_or(value)
}

fn to_text(options: &Options, outcome: &Outcome) -> String {
    let Outcome { relays, served, first, mean, last, known, .. } = outcome;
    let [first, mean, last, known] = [first, mean, last, known].map(Duration::as_secs_f64);
    format!(
        "{} receivers behind {relays} relays; the origin serves {served} machines\n\
         completion  first {first:.1} s, mean {mean:.1} s, last {last:.1} s; known at the origin after {known:.1} s\n\
         origin      sent {} copies, {:.1} kB of messages; got {} messages\n",
        options.receivers,
        copies(options, outcome),
        outcome.control_bytes as f64 / 1e3,
        outcome.messages,
    )
}
