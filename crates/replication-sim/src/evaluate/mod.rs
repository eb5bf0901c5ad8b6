//! The paper's simulation of transparent replication (SSR §6.3) on the very state machines that the
//! daemons run: one origin, its replicas, and the origin's link as the only bottleneck.
//!
//! As in the paper, the link carries a body of so many bytes in bytes / bandwidth, messages arrive
//! half a round trip later, and what is no body costs nothing. Disks take no time, clocks are right,
//! and what is there when it begins is valid everywhere. Where the paper is silent:
//!
//! - the link carries one body after the other, and replicas take turns. A body of the background
//!   gives way in the middle and goes on when nothing else waits;
//! - strategies that push in order have one stream a replica, which takes turns with its demand reads;
//! - they and demand only apply invalidations as they come, and promise nothing about staleness unless
//!   they are told to.
//!
//! Equal calls give equal results.

mod cut;
mod link;
mod measure;
mod workload;
mod world;

use core::time::Duration;

use lull_replication::origin::Strategy;
use lull_replication::replica::Order;

pub use measure::{Outcome, Spread};
pub use workload::{Read, Updates, Workload, Write};

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which bodies are pushed, and how.
    pub strategy: Strategy,
    /// Whether replicas apply invalidations as they come.
    pub eager: bool,
    /// Whether newer bodies overtake those that were overwritten, or each invalidation waits for its own.
    pub overtake: bool,
    /// Whether reads may pass others that wait.
    pub order: Order,
    /// Δ while connected; none for no bound.
    pub delta: Option<Duration>,
    /// Bytes a second that the origin's link carries.
    pub bandwidth: f64,
    /// The mean round-trip time between the origin and a replica.
    pub round_trip: Duration,
    /// By which part of it those of replicas differ at most, evenly.
    pub spread: f64,
    /// How long a read takes that need not wait.
    pub hit: Duration,
    /// At how many moments of the first half, each by itself, the origin is cut off from all replicas.
    pub cuts: u32,
    /// Decides what is drawn.
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
