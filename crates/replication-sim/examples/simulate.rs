//! How fast the simulation runs: `cargo run --release -p lull-replication-daemon
//! --example simulate -- [database] [least=RATE] SEEDS STEPS`, over the model of a store or over the real
//! one. With `least` it fails where there are fewer steps a second.

use std::process::ExitCode;

use lull_replication_sim::simulate::{Options, Storage, run};
use nix::time::{ClockId, clock_gettime};

/// The requested run.
struct Asked {
    storage: Storage,
    /// Fewer steps per second are a failure.
    least: f64,
    seeds: u64,
    steps: u64,
}

/// None if the arguments are invalid.
fn asked() -> Option<Asked> {
    let mut asked = Asked { storage: Storage::Model, least: 0.0, seeds: 100, steps: 2_000 };
    let mut numbers = Vec::new();
    for word in std::env::args_os().skip(1) {
        let word = word.into_string().ok()?;
        if word == "database" {
            asked.storage = Storage::Database;
        } else if let Some(least) = word.strip_prefix("least=") {
            asked.least = least.parse().ok()?;
        } else {
            numbers.push(word.parse().ok()?);
        }
    }
    match numbers[..] {
        [] => {}
        [seeds] => asked.seeds = seeds,
        [seeds, steps] => (asked.seeds, asked.steps) = (seeds, steps),
        _ => return None,
    }
    (asked.seeds > 0 && asked.steps > 0).then_some(asked)
}

/// Processor seconds of this process: unlike elapsed time, they do not depend on other load on the machine.
fn busy() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(0.0, |time| std::time::Duration::from(time).as_secs_f64())
}

fn main() -> ExitCode {
    let Some(Asked { storage, least, seeds, steps }) = asked() else {
        eprintln!("usage: simulate [database] [least=RATE] [SEEDS [STEPS]], at least one of each");
        return ExitCode::from(2);
    };
    let begun = busy();
    let (mut done, mut reads, mut broken) = (0, 0, 0);
    for seed in 0..seeds {
        let outcome = run(Options { seed, steps, fault: None, storage, ..Options::default() });
        done += outcome.steps;
        reads += outcome.reads;
        if !outcome.has_no_violation() {
            broken += 1;
            println!("seed {seed}: {:?} {:?}", outcome.violations, outcome.stuck);
        }
    }
    let rate = done as f64 / (busy() - begun);
    println!(
        "{seeds} seeds, {done} steps, {reads} reads, {broken} broken; {rate:.0} steps a second of a processor"
    );
    if rate < least {
        println!("these are less than {least:.0}");
    }
    ExitCode::from(u8::from(broken > 0 || rate < least))
}
