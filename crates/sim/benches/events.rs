//! How many events a second the event queue processes, by how many wait in it. One event is inserted for each
//! that is taken, as in a running simulation.
//!
//! ```text
//! cargo bench -p lull-sim --bench events
//! ```

use std::time::Instant;

use lull_cc::Timestamp;
use lull_sim::events::EventQueue;
use lull_sim::random::Random;

/// As long as an event of the simulator: with its time, half a cache line.
type Event = [u64; 3];

/// Events in one trial.
const EVENTS: u64 = 10_000_000;
/// The fastest of this many trials counts: other activity of the machine only makes a trial slower.
const TRIALS: usize = 5;

fn main() {
    println!("{:>9}  {:>8}  {:>11}", "waiting", "ns/event", "events/s");
    for waiting in [10, 1_000, 100_000, 1_000_000] {
        let trials = (0..TRIALS).map(|_| trial(waiting));
        let seconds = trials.fold(f64::INFINITY, f64::min);
        let nanos = seconds * 1e9 / EVENTS as f64;
        println!("{waiting:>9}  {nanos:>8.1}  {:>11.0}", EVENTS as f64 / seconds);
    }
}

/// Seconds for the events while this many of them wait.
fn trial(waiting: u64) -> f64 {
    let mut random = Random::new(1);
    let mut queue = EventQueue::<Event>::default();
    for number in 0..waiting {
        queue.insert(Timestamp::from_nanos(ahead(&mut random)), [number; 3]);
    }
    let (begin, cpu) = (Instant::now(), cpu_seconds());
    for _ in 0..EVENTS {
        let (now, event) = queue.pop(Timestamp::FAR_FUTURE).expect("as many wait as before");
        queue.insert(Timestamp::from_nanos(now.as_nanos() + ahead(&mut random)), event);
    }
    let wall = begin.elapsed().as_secs_f64();
    assert_eq!(queue.len() as u64, waiting);
    cpu_seconds().zip(cpu).map_or(wall, |(after, before)| after - before)
}

/// How far ahead an event is, in nanoseconds. It is up to a millisecond for the ends of packets on links, and
/// up to a hundred for deliveries. One in a hundred is up to ten seconds, like timers.
fn ahead(random: &mut Random) -> u64 {
    let limit = match random.below(100) {
        0 => 10_000_000_000,
        1..50 => 100_000_000,
        _ => 1_000_000,
    };
    1 + random.below(limit)
}

/// This process's processor time, if the system reports it.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let nanos: f64 = text.split(' ').next()?.parse().ok()?;
    Some(nanos / 1e9)
}
