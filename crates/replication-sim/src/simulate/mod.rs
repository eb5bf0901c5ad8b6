//! The state machines of origin and replicas among clients, networks and disks that fail, from a
//! seed.
//!
//! A seeded generator decides everything that a machine cannot know: how long a message takes, which
//! connection breaks, what a crash leaves on a disk, the error of a clock. A run is a sequence of steps, each
//! a message, a timer, the end of a disk operation or an act of a client. The reads of clients are recorded,
//! and the [`checker`](lull_replication::checker) verifies them at the end. Equal options give equal runs on
//! every machine.

mod client_steps;
mod clients;
mod clock;
mod disk;
mod durable;
mod fault_injection;
mod forwarding;
mod hosts;
mod join;
mod medium;
mod network;
mod pump;
mod relays;
mod serve;
mod situations;
mod topology;
mod transfers;
mod turns;
mod world;

use std::panic::{UnwindSafe, catch_unwind};

use lull_replication::Fault;
use lull_replication::checker::Violation;

pub use situations::{Situation, Situations};

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// Steps before all failures end and the system has to come to rest.
    pub steps: u64,
    /// A bug in all machines.
    pub fault: Option<Fault>,
    /// Their storage.
    pub storage: Storage,
    /// [`Config::step_slice`](lull_replication::replica::Config::step_slice) of the replicas.
    pub step_slice: usize,
    /// Which machines serve the replicas.
    pub topology: Topology,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 0,
            steps: 2_000,
            fault: None,
            storage: Storage::Model,
            step_slice: lull_replication::replica::Config::default().step_slice,
            topology: Topology::default(),
        }
    }
}

/// Which machines serve the replicas of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// The origin serves all.
    #[default]
    Star,
    /// The origin serves relays, and these the other replicas. In some runs a relay serves the other one.
    Tree,
}

/// The storage of the machines of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// A model of a disk and of the guarantees of a store, which is fast.
    #[default]
    Model,
    /// The real [`store`](lull_replication_daemon::store): its database on a backend that loses and tears
    /// unsynced data. The state after a crash is compared with the model.
    Database,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Steps, including those until rest.
    pub steps: u64,
    /// Reads that were answered.
    pub reads: usize,
    /// Writes that were acknowledged.
    pub writes: usize,
    /// The situations that occurred.
    pub situations: Situations,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// Parts that have not come to rest at the end, in words; or a wrong past state; or an accepted old
    /// backup.
    pub stuck: Vec<String>,
}

impl Outcome {
    /// Whether all guarantees held.
    pub fn has_no_violation(&self) -> bool {
        self.violations.is_empty() && self.stuck.is_empty()
    }
}

/// Does a run.
///
/// # Panics
/// If the run panics; the message names the run.
pub fn run(options: Options) -> Outcome {
    with_seed_in_panic(options, || world::World::new(options).run())
}

/// Adds the options, with the seed, to a panic within a run; without them it cannot be repeated.
fn with_seed_in_panic<T>(options: Options, run: impl FnOnce() -> T + UnwindSafe) -> T {
    catch_unwind(run).unwrap_or_else(|cause| {
        let words = cause.downcast_ref::<&str>().copied();
        let words = words.or_else(|| cause.downcast_ref::<String>().map(String::as_str));
        let words = words.unwrap_or("no words");
        panic!("a run has failed, of {options:?}: {words}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panicking_run_reports_its_seed() {
        let storage = Storage::Database;
        let options = Options { seed: 17, steps: 9, storage, ..Options::default() };
        let told = |run: fn()| {
            let cause = catch_unwind(|| with_seed_in_panic(options, run)).expect_err("it panics");
            *cause.downcast::<String>().expect("in words")
        };
        for (run, words) in [
            ((|| panic!("a plain one")) as fn(), "a plain one"),
            (|| assert_eq!(1, 2, "a formatted one"), "a formatted one"),
            (|| std::panic::panic_any(5), "no words"),
        ] {
            let told = told(run);
            assert!(told.contains("seed: 17, steps: 9") && told.contains(words), "{told}");
            assert!(told.contains("Database"), "{told}");
        }
        assert_eq!(with_seed_in_panic(options, || 3), 3);
    }
}
