//! How fast origin and replicas are on this machine (feature `speed`): the real daemons, on a real
//! disk, over TLS on the loopback.
//!
//! | what | how |
//! |---|---|
//! | [`writes`] | durable writes at fixed times, even if others still wait |
//! | [`fan_out`] | from the acknowledgement of a write to the moment at which the last of many replicas has decoded its invalidation, and what that takes of the processor |
//! | [`memory`] | the peak memory of an origin with many objects and replicas |
//! | [`publish`] | files from `lull publish` to a replica, their growth, `rsync` of the same files, and reads meanwhile |
//! | [`relays`] | a body through relays to receivers, and the bytes that leave the origin |
//! | [`mount`] | a replica in a mount, to be opened by the measuring program |
//!
//! Replicas of `fan_out` and `memory` implement only the protocol: `swarm`. A time counts from when an
//! operation was due (no coordinated omission). An operation that is not finished by the end counts as
//! [`TIMEOUT`].

pub mod fan_out;
pub mod memory;
pub mod mount;
mod offered;
mod processor;
pub mod publish;
pub mod relays;
mod swarm;
mod times;
pub mod writes;

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lull_replication::origin::{Put, Strategy, Transaction};
use lull_replication::path::Path;
use lull_replication::types::{DiskFull, Metadata};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

use crate::daemon::{
    Clock, DaemonError, LinkError, MachineClock, OriginDaemon, OriginHandle, OriginOptions,
    WriteError, create_origin,
};
use crate::fuse::{MountError, mounted_at};
use crate::identity::{IdentityError, Ticket};
use crate::store::{Body, StoreError};

use offered::Offer;
pub use times::Spread;

/// The offered load of an origin.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder in which the origin is created, on the disk in question.
    pub folder: PathBuf,
    /// Writes per second; each rate has a new origin.
    pub rates: Vec<u32>,
    /// The number of writers.
    pub writers: u32,
    /// Bytes of each write.
    pub size: usize,
    /// Objects that are written in turn.
    pub objects: u64,
    /// How long before the counted time.
    pub settle: Duration,
    /// Length of the counted time.
    pub length: Duration,
    /// The largest permitted p99.
    pub limit: Duration,
}

impl Settings {
    fn offer(&self, rate: u32) -> Offer {
        let Settings { writers, size, objects, settle, length, .. } = *self;
        Offer { rate, writers, size, objects, length: settle + length, first: 0 }
    }

    fn limit_ms(&self) -> f64 {
        self.limit.as_secs_f64() * 1e3
    }
}

/// The type of a folder's file system, from the kernel's table of mounts.
///
/// # Errors
/// If the folder or the table cannot be read.
pub fn file_system(folder: &FilePath) -> io::Result<Option<String>> {
    let whole = std::fs::canonicalize(folder)?;
    for above in whole.ancestors() {
        if let Some(kind) = mounted_at(above)? {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

/// How long unfinished operations are awaited after the last one was due.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a ticket is valid.
const TICKET: Duration = Duration::from_secs(3_600);
/// Descriptors of a process in addition to its connections.
const FILES: u64 = 256;

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum SpeedError {
    /// A daemon has failed, or did not start.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A ticket could not be made, or an identity could not be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A body could not be received.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no room for one.
    #[error(transparent)]
    Full(#[from] DiskFull),
    /// The origin does not write.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Nothing is mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A replica's connection has failed.
    #[error("replica {replica} could not follow its origin")]
    Replica {
        /// Its number.
        replica: u32,
        /// Why.
        #[source]
        why: LinkError,
    },
    /// The origin has sent a replica another message than the expected one.
    #[error("replica {replica} got {told}")]
    SwarmReport {
        /// Its number.
        replica: u32,
        /// The message.
        told: String,
    },
    /// The system allows too few open files.
    #[error(
        "{replicas} replicas take {needed} open files and {limit} are allowed: \
         `ulimit -n {needed}`, or take fewer replicas"
    )]
    Files {
        /// Replicas.
        replicas: u32,
        /// The number that is needed.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// An expected event did not occur.
    #[error("no {what} within {} s: the machine is too slow for that many", .after.as_secs())]
    Late {
        /// The operation.
        what: &'static str,
        /// The length of the wait.
        after: Duration,
    },
    /// Counts that must be equal differ.
    #[error("the counts are inconsistent: {0}")]
    Sums(String),
    /// The process of the replicas has failed.
    #[error("the process of the replicas has failed: {0}")]
    Process(String),
    /// A folder or a file cannot be used.
    #[error("`{}` cannot be used", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system gives no threads, or does not report their usage.
    #[error("the system gives no threads, or does not report their processor time")]
    System(#[source] io::Error),
}

/// A runtime whose threads have their own name during its lifetime.
fn runtime(name: &str) -> Result<Runtime, SpeedError> {
    /// Beyond any run: with a thread, the record of its processor time is lost.
    const KEPT: Duration = Duration::from_secs(86_400);
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name(name).thread_keep_alive(KEPT).enable_all();
    builder.build().map_err(SpeedError::System)
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(MachineClock)
}

/// A new, empty origin in a folder.
async fn origin(folder: &FilePath, strategy: Strategy) -> Result<OriginDaemon, SpeedError> {
    let clock = clock();
    create_origin(folder, clock.read().wall)?;
    let mut options = OriginOptions::new(folder, "127.0.0.1:0");
    options.config.strategy = strategy;
    Ok(OriginDaemon::start(options, clock, |_| {}).await?)
}

/// Tickets for this many replicas.
fn tickets(origin: &OriginDaemon, replicas: u32) -> Result<Vec<Ticket>, SpeedError> {
    let (handle, address) = (origin.handle(), origin.address().to_string());
    let ticket = |number| Ok(handle.ticket(&name_of(number), &address, TICKET)?);
    (0..replicas).map(ticket).collect()
}

/// The name of a replica.
fn name_of(number: u32) -> String {
    format!("replica-{number}")
}

/// A write of one object. Different numbers have different bytes.
fn write_of(
    handle: &OriginHandle,
    object: u64,
    number: u64,
    size: usize,
) -> Result<Transaction<Body>, SpeedError> {
    let path = Path::new(&format!("folder-{}/file-{object}", object % 997)).expect("a path");
    let mut stager = handle.bodies().stage();
    stager.write(&bytes_of(number, size))??;
    let put = Put::Body(stager.finish()??, Metadata::default());
    Ok(Transaction { changes: [(path, put)].into() })
}

fn bytes_of(number: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![b'.'; size];
    for (to, from) in bytes.iter_mut().zip(number.to_le_bytes()) {
        *to = from;
    }
    bytes
}

/// Raises this process's limit of open files to what this many replicas need, with `each` per replica.
fn raise_files(replicas: u32, each: u64) -> Result<(), SpeedError> {
    let system = |error: nix::Error| SpeedError::System(error.into());
    let (now, limit) = getrlimit(Resource::RLIMIT_NOFILE).map_err(system)?;
    let needed = u64::from(replicas) * each + FILES;
    if now >= needed {
        return Ok(());
    }
    if limit < needed {
        return Err(SpeedError::Files { replicas, needed, limit });
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, limit).map_err(system)
}

/// A folder that is removed when this is dropped.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(path: PathBuf) -> Result<Self, SpeedError> {
        let made = std::fs::create_dir(&path);
        made.map_err(|source| SpeedError::File { path: path.clone(), source })?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The owner of its parent folder removes the rest.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The highest rate at which it holds, as at all lower ones; none if it does not hold at the lowest.
fn knee(mut points: Vec<(u32, bool)>) -> Option<u32> {
    points.sort_unstable();
    points.into_iter().take_while(|(_, holds)| *holds).map(|(offered, _)| offered).last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knee_is_the_last_point_before_the_first_failure() {
        for (points, expected) in [
            (vec![(300, false), (100, true), (200, true), (400, true)], Some(200)),
            (vec![(100, true), (200, true)], Some(200)),
            (vec![(100, false), (200, true)], None),
            (Vec::new(), None),
        ] {
            assert_eq!(knee(points), expected);
        }
    }

    #[test]
    fn every_write_has_different_bytes() {
        assert_eq!(bytes_of(7, 1_000).len(), 1_000);
        assert_ne!(bytes_of(7, 8), bytes_of(8, 8));
    }
}
