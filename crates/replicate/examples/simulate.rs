//! How fast the simulation runs: `cargo run --release -p lull-replicate --features simulate
//! --example simulate -- SEEDS STEPS`.

use std::process::ExitCode;
use std::time::Instant;

use lull_replicate::simulate::{Options, Storage, run};

/// Seeds and steps; none if the arguments are something else.
fn asked() -> Option<(u64, u64)> {
    let numbers = std::env::args_os().skip(1).map(|word| word.to_str()?.parse().ok());
    let (seeds, steps) = match numbers.collect::<Option<Vec<u64>>>()?[..] {
        [] => (100, 2_000),
        [seeds] => (seeds, 2_000),
        [seeds, steps] => (seeds, steps),
        _ => return None,
    };
    (seeds > 0 && steps > 0).then_some((seeds, steps))
}

fn main() -> ExitCode {
    let Some((seeds, steps)) = asked() else {
        eprintln!("usage: simulate [SEEDS [STEPS]], at least one of each");
        return ExitCode::from(2);
    };
    let begun = Instant::now();
    let (mut done, mut reads, mut broken) = (0, 0, 0);
    for seed in 0..seeds {
        let outcome = run(Options { seed, steps, fault: None, storage: Storage::Model });
        done += outcome.steps;
        reads += outcome.reads;
        if !outcome.is_fine() {
            broken += 1;
            println!("seed {seed}: {:?} {:?}", outcome.violations, outcome.stuck);
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {done} steps, {reads} reads, {broken} broken; {:.0} steps a second",
        done as f64 / seconds
    );
    ExitCode::from(u8::from(broken > 0))
}
