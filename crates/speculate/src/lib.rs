//! The core of *Safe Speculative Replication* (SSR): the probable next URLs, the order of fetching them, and
//! how many of them a server can serve.
//!
//! | module | what | paper |
//! |---|---|---|
//! | [`log`] | reads access logs | |
//! | [`observe`] | makes visits out of requests: clients without addresses, URLs as numbers | SSR §5.1 |
//! | [`predict`] | ranks the probable next URLs of a client | SSR §3.1.1, Nice §6.1 |
//! | [`model`] | the learned knowledge, to be saved and loaded | |
//! | [`evaluate`] | measures predictors on a log | |
//! | [`scheduler`] | demand first, then speculation by priority | SSR §3.1.2, §3.1.3 |
//! | [`budget`] | how many prefetches per second a server can serve, and for which clients | SSR §5.2 |
//!
//! Everything in this crate is pure: time comes in as a [`lull_cc::Timestamp`], randomness as a drawn number,
//! the key of the clients' hashes as an argument; effects go out as values. Equal calls give equal results on
//! every machine. `docs/predictor.md` and `docs/budget.md` list the rules of the papers, their open points,
//! and our choices there.
//!
//! ```
//! use core::time::Duration;
//! use lull_cc::Timestamp;
//! use lull_speculate::scheduler::{Action, Parameters, Prefetch, Scheduler};
//!
//! let mut scheduler = Scheduler::new(Parameters::default());
//! let now = Timestamp::from_micros(1_000_000);
//! scheduler.handle_prefetch(now, Prefetch { id: 1, client: 7, priority: 0.4 }, Duration::ZERO);
//! // The server is idle, so the prefetch is sent at once.
//! assert_eq!(scheduler.poll(now), Some(Action::Start(1)));
//! ```

#![forbid(unsafe_code)]

mod address;
pub mod budget;
mod encoding;
pub mod evaluate;
pub mod log;
pub mod model;
pub mod observe;
pub mod predict;
pub mod scheduler;
mod table;
