//! Logs, states and bodies on a disk. The store executes the [`Effect`](lull_replication::origin::Effect)s of
//! an origin and of a replica, and restores their state after a crash.
//!
//! | what | where | why there |
//! |---|---|---|
//! | log, chain of hashes, state | `redb` | one durable step for all that has to change at once |
//! | bodies up to [`Settings::inline`] | the same | a small write is one durable step, not two |
//! | larger bodies | `object_store`, a local folder, each under its BLAKE3 hash | written beside, renamed when they are complete |
//! | the same, of an origin with `--store` | a bucket; the folder has copies | see `bucket` |
//! | steps and small bodies, of an origin with `--log` | a stream first, then `redb` | see [`Upstream`] |
//!
//! ```text
//!   effects ──▶ Worker ──▶ one thread: steps and small bodies, all that wait in one transaction
//!                  │
//!                  └─────▶ some threads: large bodies, each made durable by itself
//!   done    ◀── (called for each when it would survive a crash)
//! ```
//!
//! The state machines determine the order: they hand out a step when its bodies are durable, and announce it
//! when the step is durable. A store carries out jobs, and answers when the result would survive a crash. A
//! full disk is an answer, and nothing of the job was done. After any other failure the contents of the disk
//! are unknown: then the process restarts from them.
//!
//! Each body is compared with its hash when it is read: a missing or corrupt body is reported as none.

mod bodies;
mod body_name;
mod body_reader;
mod bucket;
mod chunks;
mod copies;
mod journal;
mod origin;
mod remote;
mod replay;
mod replica;
mod rows;
mod shortage;
#[cfg(test)]
mod tests;
mod upstream;
mod worker;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use lull_cc::Bytes;
use lull_replication::BodyEffect;
use lull_replication::types::{Digest, DiskFull, Payload};
use thiserror::Error;

use crate::remedies;

pub use bodies::{Bodies, Body, Staged, Stager};
pub use body_name::name_of;
pub use body_reader::BodyReader;
pub use body_reader::Opener;
pub use bucket::{AddressError, BucketAddress, Change, Patience};
pub use journal::first_life;
pub use journal::sealed::Tables;
pub use journal::{Opened, State, Store};
pub use origin::OriginState;
pub use remote::{Remote, SharedOrigin};
pub use replica::ReplicaState;
pub use rows::Rows;
pub use upstream::Upstream;
pub use worker::Worker;

/// The settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Memory for pages of the database.
    pub cache: Bytes,
    /// Bodies up to this size are in the database; 1 MiB at most, because larger ones go to a file as they
    /// arrive. For an origin it is [`Config::inline`](lull_replication::origin::Config::inline).
    pub inline: Bytes,
}

impl Default for Settings {
    fn default() -> Self {
        // redb's own default is 1 GiB: more than the whole memory of an origin with a million objects should
        // be.
        Settings { cache: Bytes(16 << 20), inline: Bytes(16 * 1024) }
    }
}

/// A durable operation.
#[derive(Clone, Debug)]
pub enum Job<S> {
    /// A step of the log, or of a replica's state.
    Step(S),
    /// A body to be stored.
    Store(Payload<Body>),
    /// A body is no longer needed.
    Drop(Digest),
}

impl<S> From<BodyEffect<Body>> for Job<S> {
    fn from(effect: BodyEffect<Body>) -> Self {
        match effect {
            BodyEffect::Store(payload) => Job::Store(payload),
            BodyEffect::Drop(digest) => Job::Drop(digest),
        }
    }
}

/// A result that would survive a crash now: to be reported to the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The step, or there was no space and nothing of it was done.
    Step(Result<(), DiskFull>),
    /// The same for the body.
    Stored(Digest, Result<(), DiskFull>),
    /// The body is deleted. (A crash may restore it; then the next start deletes it again.)
    Dropped(Digest),
}

/// Why a store cannot continue.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is no store in the folder.
    #[error(
        "`{}` has no store: `lull origin init DIR` makes an origin, `lull replica join TICKET \
         DIR` a replica",
        .0.display()
    )]
    Nothing(PathBuf),
    /// There is one already.
    #[error("`{}` has a store already: name another folder", .0.display())]
    Exists(PathBuf),
    /// Another process has it open.
    #[error("the store is in use by another process: it runs already")]
    InUse,
    /// It is that of the other role, or of another version of Lull.
    #[error("the store is {found}, not {expected}: name another folder, or install that release")]
    Other {
        /// Its kind.
        found: String,
        /// The expected kind.
        expected: String,
    },
    /// There is no room for a new one.
    #[error("the disk is full: free space first")]
    Full,
    /// Its contents are inconsistent.
    #[error("the store is damaged ({0}): restore it from a backup, or use an empty folder")]
    Damaged(String),
    /// The step may be durable or not.
    #[error(
        "the disk failed during a write: start again; the store continues from its last \
             durable state"
    )]
    Unsure,
    /// The database failed.
    #[error(
        "the database of the store failed: start again; the store continues from its last \
             durable state"
    )]
    Database(#[from] redb::Error),
    /// A file with a body failed.
    #[error(
        "the folder of bodies failed: start again; the store continues from its last durable \
             state"
    )]
    Bodies(#[from] object_store::Error),
    /// The folder cannot be used.
    #[error("`{}` cannot be used{}", path.display(), remedies::of_file(source))]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The bucket cannot be used.
    #[error("{0}")]
    Bucket(String),
    /// The bucket does not answer at the moment.
    #[error("{0}: Lull tries again by itself")]
    Away(String),
    /// The log of the origin cannot be used, or was changed by others.
    #[error("{0}")]
    Log(String),
    /// Another origin writes the log.
    #[error("{0}")]
    Replaced(String),
    /// The worker has ended.
    #[error(
        "the store has stopped after a failure: start again; it continues from its last \
             durable state"
    )]
    Stopped,
}

impl StoreError {
    /// Whether the machine was out of a resource that others will release. The contents of the disk are fine:
    /// the job should be repeated. So should it while a bucket is away, or there is no room for a copy of what
    /// is in it.
    pub fn is_passing(&self) -> bool {
        matches!(self, StoreError::Away(_) | StoreError::Full) || is_scarce(self)
    }
}

macro_rules! failures_of_the_database {
    ($($name:ident),+) => {
        $(impl From<redb::$name> for StoreError {
            fn from(error: redb::$name) -> Self {
                StoreError::Database(error.into())
            }
        })+
    };
}

failures_of_the_database!(CommitError, StorageError, TableError, TransactionError);

impl From<redb::DatabaseError> for StoreError {
    fn from(error: redb::DatabaseError) -> Self {
        match error {
            redb::DatabaseError::DatabaseAlreadyOpen => StoreError::InUse,
            other => StoreError::Database(other.into()),
        }
    }
}

/// The failure of a file that caused an error, if any.
fn cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref() {
            return Some(io);
        }
        // It has no source.
        if let Some(redb::Error::Io(io)) = error.downcast_ref() {
            return Some(io);
        }
        next = error.source();
    }
    None
}

/// Whether it was a full disk.
fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let kind = cause(error).map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

/// Pause before something is tried again, if the machine had no descriptor or no memory.
const PAUSE: Duration = Duration::from_millis(50);

/// The outcome of a write, with a full disk as an answer.
fn or_full<T>(outcome: object_store::Result<T>) -> Result<Result<T, DiskFull>, StoreError> {
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(error) if is_full(&error) => Ok(Err(DiskFull)),
        Err(error) => Err(error.into()),
    }
}

/// Error numbers of Linux: no memory; no descriptor in the system; no descriptor in this process.
const SCARCE: [i32; 3] = [12, 23, 24];

/// Whether it lacked a descriptor or memory.
fn is_scarce(error: &(dyn std::error::Error + 'static)) -> bool {
    let number = cause(error).and_then(io::Error::raw_os_error);
    number.is_some_and(|number| SCARCE.contains(&number))
}
