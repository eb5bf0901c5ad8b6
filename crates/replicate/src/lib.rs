//! Origin and replica as daemons: the state machines of [`lull_replication`] with sockets, disks and clocks.
//!
//! | module | contents | paper |
//! |---|---|---|
//! | [`store`] | logs, states and bodies on a disk | §6.2.3.1 |
//! | [`identity`] | certificates of origin and replicas, tickets | |
//! | [`daemon`] | origin and replica over TCP and TLS, with their stores and clocks | §6.2 |
//! | [`fuse`] | a replica's files as a file system | §6.2.2 |
//! | [`mod@http`] | the HTTP servers of origin and replica, and a client | §6.2.2 |
//! | [`watch`] | a folder whose files are committed as they are written | |
//! | [`service`] | origin and replica as processes | |
//! | [`speed`] | how fast both are on this machine | |

#![forbid(unsafe_code)]

pub mod daemon;
mod folder;
pub mod fuse;
pub mod http;
pub mod identity;
pub mod service;
mod source;
pub mod speed;
pub mod store;
pub mod watch;
mod ways;
