//! Origin and replica as daemons: the state machines of [`lull_replication`] with
//! sockets, disks and clocks.
//!
//! | module | contents | paper |
//! |---|---|---|
//! | [`store`] | logs, states and bodies on a disk | §6.2.3.1 |
//! | [`identity`] | certificates of origin and replicas, tickets | |
//! | [`shared_log`] | the log of an origin in a stream that several origins share | |
//! | [`daemon`] | origin and replica over TCP and TLS, with their stores and clocks | §6.2 |
//! | [`fuse`] | a replica's files as a file system | §6.2.2 |
//! | [`mod@http`] | the HTTP servers of origin and replica, and a client | §6.2.2 |
//! | [`nfs`] | a replica's files as an NFS export | §6.2.2 |
//! | [`watch`] | a folder whose files are committed as they are written | |
//! | [`service`] | origin and replica as processes | |
//! | [`speed`] | how fast both are on this machine | |
//!
//! ```
//! use std::sync::Arc;
//!
//! use lull_replication::Path;
//! use lull_replication::origin::{Put, Transaction};
//! use lull_replication::types::Metadata;
//! use lull_replication_daemon::daemon::{Clock, MachineClock, OriginDaemon, OriginOptions, create_origin};
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let folder = tempfile::tempdir()?;
//! let clock: Arc<dyn Clock> = Arc::new(MachineClock);
//! create_origin(folder.path(), clock.read().wall)?;
//! let options = OriginOptions::new(folder.path(), "127.0.0.1:0");
//! let origin = OriginDaemon::start(options, clock, |event| println!("{event:?}")).await?;
//!
//! let mut stager = origin.handle().bodies().stage();
//! stager.write(b"hello")?.expect("room on the disk");
//! let body = stager.finish()?.expect("room on the disk");
//! let changes = [(Path::new("greeting.txt")?, Put::Body(body, Metadata::default()))].into();
//! let state = origin.handle().write(Transaction { changes }).await?;
//! assert_eq!(state.0, 1);
//! origin.stop().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/embed.rs` has a replica as well.

#![forbid(unsafe_code)]

pub mod daemon;
mod error_chain;
mod folder;
pub mod fuse;
pub mod http;
pub mod identity;
pub mod nfs;
mod remedies;
pub mod service;
pub mod shared_log;
mod source;
pub mod speed;
pub mod store;
pub mod watch;
