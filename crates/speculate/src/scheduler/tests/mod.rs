//! Tests of the scheduler: what must never happen (`safety`), what must happen in the end (`liveness`), and
//! its results with simulated servers (`policies`, over `upstream`).

mod liveness;
mod policies;
mod safety;
mod upstream;

use core::time::Duration;

use lull_cc::Timestamp;

use super::*;

fn at(seconds: f64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs_f64(seconds)
}

fn prefetch(id: Id, client: u64, priority: f64) -> Prefetch {
    Prefetch { id, client, priority }
}

/// All actions that are due now.
fn actions(scheduler: &mut Scheduler, now: Timestamp) -> Vec<Action> {
    core::iter::from_fn(|| scheduler.poll(now)).take(10_000).collect()
}
