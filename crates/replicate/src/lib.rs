//! Transparent replication (TRIP): the same files everywhere, sequentially consistent, stale by Δ at
//! most, with bodies that are pushed ahead of need (SSR §3.2 and §6).
//!
//! | module | what | paper |
//! |---|---|---|
//! | [`types`], [`path`](mod@path), [`time`] | positions, versions, names, two kinds of time | §6.2 |
//! | [`message`] | the protocol as values | §3.2, table I |
//! | [`lane`] | which bodies that reads wait for take turns | |
//! | [`origin`] | the one place where writes happen: log, invalidations, queue of bodies | §6.2, §6.2.3.1 |
//! | [`replica`] | applies what comes in an order that keeps the promises, and answers reads | §6.2.1, §6.2.2 |
//! | [`merkle`] | finds what differs between two states | |
//! | [`token`] | what a client that changes replicas carries | §6.1 |
//! | [`wire`] | the protocol as bytes | §3.2, table I |
//! | `store` | logs, states and bodies on a disk (feature `store`) | §6.2.3.1 |
//! | `identity` | certificates of origin and replicas, tickets (feature `identity`) | |
//! | `daemon` | origin and replica over TCP and TLS, with their stores and clocks (feature `daemon`) | §6.2 |
//! | `fuse` | a replica's files as a file system (feature `fuse`) | §6.2.2 |
//! | `http`, `service` | their faces in HTTP, what asks them, and both as processes (feature `http`) | §6.2.2 |
//! | `watch` | a folder whose files are committed as they are written (feature `watch`) | |
//! | `speed` | how fast both are on this machine (feature `speed`) | |
//! | [`checker`] | finds broken promises in a history of writes and reads | §6.1 |
//! | `evaluate` | the paper's simulation of response time, staleness and availability (feature `evaluate`) | §6.3 |
//! | `simulate` | origin, replicas, clients, network and disks that fail, from a seed (feature `simulate`) | |
//!
//! The state machines are pure: time comes in as a [`time::Reading`], effects go out as values.
//! Equal calls give equal results. `docs/replication.md` lists what the paper says, what it leaves
//! open and what we do there, with the argument for Δ.

#![forbid(unsafe_code)]

pub mod checker;
#[cfg(feature = "daemon")]
pub mod daemon;
#[cfg(feature = "evaluate")]
pub mod evaluate;
mod faults;
#[cfg(any(feature = "identity", feature = "store"))]
mod folder;
#[cfg(feature = "fuse")]
pub mod fuse;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "identity")]
pub mod identity;
pub mod lane;
pub mod merkle;
pub mod message;
pub mod origin;
pub mod path;
pub mod replica;
#[cfg(feature = "http")]
pub mod service;
mod shelf;
#[cfg(feature = "simulate")]
pub mod simulate;
#[cfg(any(feature = "http", feature = "watch"))]
mod source;
#[cfg(feature = "speed")]
pub mod speed;
#[cfg(feature = "store")]
pub mod store;
pub mod time;
pub mod token;
pub mod types;
#[cfg(feature = "watch")]
pub mod watch;
#[cfg(any(feature = "identity", feature = "store"))]
mod ways;
pub mod wire;

#[cfg(feature = "simulate")]
pub use faults::Fault;
pub use path::Path;
pub use shelf::BodyEffect;
