//! A publication for many receivers behind relays: completion, and what leaves the origin.
//!
//! Origin, relays and receivers are the state machines of [`lull_replication`], with messages, leases, reports and
//! bodies. Each machine sends bodies over a link of its own to all below it, in turns of [`TURN`]. A relay passes on what
//! has arrived. Nothing fails, disks are fast, and control messages only take the delay of a link.
//!
//! ```text
//!   origin ═▶ relay ═▶ relay ═▶ receiver       levels = 3
//!          ═▶ …      ═▶ …     ═▶ …             each with the same number below it
//! ```

mod link;
mod node;
#[cfg(test)]
mod tests;
mod tree;
mod world;

use core::time::Duration;

use lull_cc::{Bytes, Rate};

/// Bytes of a body that a link sends in one turn.
pub const TURN: Bytes = Bytes(256 * 1024);

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Machines that receive files and serve no others.
    pub receivers: u32,
    /// Levels below the origin: one level has no relays.
    pub levels: u32,
    /// Files of the publication.
    pub files: u32,
    /// The size of each.
    pub size: Bytes,
    /// The rate at which each machine sends to all below it.
    pub rate: Rate,
    /// The one-way delay between a machine and those below it.
    pub delay: Duration,
    /// The seed of all draws.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            receivers: 100,
            levels: 3,
            files: 1,
            size: Bytes(100_000_000),
            rate: Rate::from_bits_per_second(100_000_000),
            delay: Duration::from_millis(10),
            seed: 1,
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Relays on all levels.
    pub relays: u32,
    /// Machines that the origin serves itself.
    pub served: u32,
    /// From the publication until the first receiver had all files.
    pub first: Duration,
    /// The mean over all receivers.
    pub mean: Duration,
    /// Until the last one had them.
    pub last: Duration,
    /// Until the origin knew that all had them.
    pub known: Duration,
    /// Bytes of bodies that left the origin.
    pub body_bytes: u64,
    /// Bytes of messages that left the origin during the publication.
    pub control_bytes: u64,
    /// Messages that arrived at the origin meanwhile.
    pub messages: u64,
    /// Steps of the run.
    pub steps: u64,
}

/// Does a run.
///
/// # Panics
/// If a machine does not do what it has to where nothing fails: then it has a fault.
pub fn run(options: Options) -> Outcome {
    world::World::new(options).run()
}
