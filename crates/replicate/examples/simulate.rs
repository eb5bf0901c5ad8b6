//! How fast the simulation runs: `cargo run --release -p lull-replicate --features simulate
//! --example simulate -- [database] SEEDS STEPS`, over the model of a store or over the real one.

use std::process::ExitCode;

use lull_replicate::simulate::{Options, Storage, run};
use nix::time::{ClockId, clock_gettime};

/// Over what, seeds and steps; none if the arguments are something else.
fn asked() -> Option<(Storage, u64, u64)> {
    let words: Option<Vec<String>> =
        std::env::args_os().skip(1).map(|word| word.into_string().ok()).collect();
    let words = words?;
    let (storage, numbers) = match words.split_first() {
        Some((first, numbers)) if first == "database" => (Storage::Database, numbers),
        _ => (Storage::Model, &words[..]),
    };
    let numbers = numbers.iter().map(|word| word.parse().ok());
    let (seeds, steps) = match numbers.collect::<Option<Vec<u64>>>()?[..] {
        [] => (100, 2_000),
        [seeds] => (seeds, 2_000),
        [seeds, steps] => (seeds, steps),
        _ => return None,
    };
    (seeds > 0 && steps > 0).then_some((storage, seeds, steps))
}

/// Seconds that this process has had a processor: other load on the machine makes none of it, which
/// it would of the time that passes.
fn busy() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(0.0, |time| std::time::Duration::from(time).as_secs_f64())
}

fn main() -> ExitCode {
    let Some((storage, seeds, steps)) = asked() else {
        eprintln!("usage: simulate [database] [SEEDS [STEPS]], at least one of each");
        return ExitCode::from(2);
    };
    let begun = busy();
    let (mut done, mut reads, mut broken) = (0, 0, 0);
    for seed in 0..seeds {
        let outcome = run(Options { seed, steps, fault: None, storage });
        done += outcome.steps;
        reads += outcome.reads;
        if !outcome.is_fine() {
            broken += 1;
            println!("seed {seed}: {:?} {:?}", outcome.violations, outcome.stuck);
        }
    }
    let seconds = busy() - begun;
    println!(
        "{seeds} seeds, {done} steps, {reads} reads, {broken} broken; {:.0} steps a second of a processor",
        done as f64 / seconds
    );
    ExitCode::from(u8::from(broken > 0))
}
