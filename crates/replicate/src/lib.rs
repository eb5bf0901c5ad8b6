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
//! | [`store`] | logs, states and bodies on a disk | §6.2.3.1 |
//! | [`identity`] | certificates of origin and replicas, tickets | |
//! | [`daemon`] | origin and replica over TCP and TLS, with their stores and clocks | §6.2 |
//! | [`fuse`] | a replica's files as a file system | §6.2.2 |
//! | [`mod@http`], [`service`] | their faces in HTTP, what asks them, and both as processes | §6.2.2 |
//! | [`watch`] | a folder whose files are committed as they are written | |
//! | [`speed`] | how fast both are on this machine | |
//! | [`checker`] | finds broken promises in a history of writes and reads | §6.1 |
//! | [`evaluate`] | the paper's simulation of response time, staleness and availability | §6.3 |
//! | [`simulate`] | origin, replicas, clients, network and disks that fail, from a seed | |
//!
//! The state machines are pure: time comes in as a [`time::Reading`], effects go out as values.
//! Equal calls give equal results. `docs/replication.md` lists what the paper says, what it leaves
//! open and what we do there, with the argument for Δ.

#![forbid(unsafe_code)]

pub mod checker;
pub mod daemon;
pub mod evaluate;
mod faults;
mod folder;
pub mod fuse;
pub mod http;
pub mod identity;
pub mod lane;
pub mod merkle;
pub mod message;
pub mod origin;
pub mod path;
pub mod replica;
pub mod service;
mod shelf;
pub mod simulate;
mod source;
pub mod speed;
pub mod store;
pub mod time;
pub mod token;
pub mod types;
pub mod watch;
mod ways;
pub mod wire;

pub use faults::Fault;
pub use path::Path;
pub use shelf::BodyEffect;
