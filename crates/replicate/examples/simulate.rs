//! How fast the simulation runs: `cargo run --release -p lull-replicate --features simulate
//! --example simulate -- SEEDS STEPS`.

use std::time::Instant;

use lull_replicate::simulate::{Options, run};

fn main() {
    let mut arguments = std::env::args().skip(1).map_while(|text| text.parse().ok());
    let seeds: u64 = arguments.next().unwrap_or(100);
    let steps: u64 = arguments.next().unwrap_or(2_000);
    let begun = Instant::now();
    let (mut done, mut reads, mut broken) = (0, 0, 0);
    for seed in 0..seeds {
        let outcome = run(Options { seed, steps, fault: None });
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
}
