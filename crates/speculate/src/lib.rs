//! The core of safe speculative replication (SSR): what may be wanted next, in which order it is
//! fetched, and how much of that a server bears.
//!
//! | module | what | paper |
//! |---|---|---|
//! | [`log`] | reads access logs | |
//! | [`observe`] | makes visits out of requests: clients without addresses, URLs as numbers | SSR §5.1 |
//! | [`predict`] | ranks what a client may want next | SSR §3.1.1, Nice §6.1 |
//! | [`model`] | what was learned, to be written and read | |
//! | [`evaluate`] | measures predictors on a log | |
//! | [`scheduler`] | demand first, then speculation by priority | SSR §3.1.2, §3.1.3 |
//! | [`budget`] | how many prefetches a second the server bears, and who gets them | SSR §5.2 |
//!
//! Everything in this crate is pure: time comes in as a [`lull_cc::Timestamp`], randomness as a
//! number that was drawn, the key of the clients' hashes as an argument; effects go out as values.
//! Equal calls give equal results on every machine. `docs/predictor.md` and `docs/budget.md` list
//! what the papers say, what they leave open, and what we do there.

#![forbid(unsafe_code)]

mod address;
pub mod budget;
pub mod evaluate;
pub mod log;
pub mod model;
pub mod observe;
pub mod predict;
pub mod scheduler;
mod table;
