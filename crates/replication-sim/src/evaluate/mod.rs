//! The paper's simulation of transparent replication (SSR §6.3) on the very state machines that the
//! daemons run: one origin, its replicas, and the origin's link as the only bottleneck.
//!
//! As in the paper, the link carries a body in bytes / bandwidth, messages arrive half a round trip later,
//! and everything else costs nothing. Disks take no time, clocks are right, and all initial objects are valid
//! everywhere. Where the paper is silent:
//!
//! - the link carries one body after the other, and replicas take turns. A background body is interrupted for
//!   others and continues when nothing else waits;
//! - strategies that push in order have one stream per replica, which takes turns with its demand reads;
//! - they and demand only apply invalidations on arrival, and bound staleness only if configured.
//!
//! Equal calls give equal results.

mod clock;
mod cut;
mod link;
mod measure;
mod objects;
mod workload;
mod world;

use core::time::Duration;

use lull_replication::origin::Strategy;
use lull_replication::replica::Order;

pub use measure::{Outcome, Spread};
pub use workload::{Read, Updates, Workload, Write};

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which bodies are pushed, and how.
    pub strategy: Strategy,
    /// Whether replicas apply invalidations on arrival.
    pub eager: bool,
    /// Whether newer bodies overtake overwritten ones, or each invalidation waits for its own.
    pub overtake: bool,
    /// Whether reads may overtake waiting ones.
    pub order: Order,
    /// Δ while connected; none for no bound.
    pub delta: Option<Duration>,
    /// Bytes per second that the origin's link carries.
    pub bandwidth: f64,
    /// The mean round-trip time between the origin and a replica.
    pub round_trip: Duration,
    /// The largest relative deviation of a replica's round-trip time, which is distributed evenly.
    pub spread: f64,
    /// How long a read takes that does not wait.
    pub hit: Duration,
    /// Number of moments in the first half at which the origin is cut off from all replicas, each
    /// independently.
    pub cuts: u32,
    /// The seed of all draws.
    pub seed: u64,
}

impl Options {
    /// The paper's setting for a strategy (SSR §6.3.1, §6.3.2.1): 200 ms ± 90 %, hits of 20 ms, and
    /// Δ = 60 s where it is promised.
    pub fn new(strategy: Strategy, bandwidth: f64) -> Self {
        let promised = !strategy.is_in_order();
        Options {
            strategy,
            eager: strategy.is_eager(),
            overtake: true,
            order: Order::Conservative,
            delta: promised.then_some(Duration::from_secs(60)),
            bandwidth,
            round_trip: Duration::from_millis(200),
            spread: 0.9,
            hit: Duration::from_millis(20),
            cuts: 0,
            seed: 1,
        }
    }
}

/// Simulates it.
pub fn run(workload: &Workload, options: Options) -> Outcome {
    world::World::new(workload, options).run()
}

#[cfg(test)]
mod tests;
