//! Simulations of replication, with the state machines of [`lull_replication`] and without real time.
//!
//! | module | contents | paper |
//! |---|---|---|
//! | [`simulate`] | [`run`](simulate::run): origin, replicas, clients, and failing networks, disks and clocks | |
//! | [`faulty_disk`] | [`FaultyDisk`](faulty_disk::FaultyDisk): a disk that loses and tears unsynced writes | |
//! | [`evaluate`] | [`run`](evaluate::run): response time, staleness and availability over a log | *Safe Speculative Replication* §6.3 |
//! | [`distribute`] | [`run`](distribute::run): a publication for many receivers behind relays | |
//! | [`neighbours`] | [`run`](neighbours::run): receivers in one LAN that exchange pieces, some of them faulty | |
//! | [`writers`] | [`run`](writers::run): a prototype with a writer for each subtree, under the same failures | §7: PRACTI |
//!
//! A seed determines a run. Each failure is repeated from its seed.
//!
//! ```
//! use lull_replication_sim::simulate::{Options, run};
//!
//! let outcome = run(Options { seed: 17, steps: 500, ..Options::default() });
//! assert!(outcome.has_no_violation(), "{:?} {:?}", outcome.violations, outcome.stuck);
//! assert!(outcome.reads > 0);
//! ```

#![forbid(unsafe_code)]

pub mod distribute;
pub mod evaluate;
pub mod faulty_disk;
mod instant_disk;
pub mod neighbours;
mod pool;
pub mod simulate;
pub mod writers;
