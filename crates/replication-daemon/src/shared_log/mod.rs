//! The log of an origin in a stream of NATS, which several origins share: one writes, the others stand by.
//!
//! ```text
//!   Store ── jobs of a transaction ─▶ SharedLog ── expects the last sequence ─▶ stream ─▶ standbys
//!         ◀─ position, durable ─────────────┘                                     │
//!         ── transaction ─▶ redb, which has a prefix of the stream ◀──────────────┘ replay, at a start
//! ```
//!
//! - *Fence.* Each message names the last sequence of the stream that its writer knows. If another origin has written
//!   since, the server refuses it. So two writers never both append.
//! - *Lease.* The origin of replicas must know that no other origin acknowledges writes. While there is a standby, the
//!   writer speaks to replicas only for 4 s after it sent its last message that the stream confirmed. A standby takes over
//!   when it has seen no message for longer than that. Without a standby no lease is needed, because a standby may
//!   take over only after a message of the writer that came after its own: the writer knows of it then.
//! - *Gaps.* Messages are numbered, see `follower`. A stream that was truncated, restored or made again is refused.

mod address;
mod client;
mod failover;
mod follower;
mod message;
mod record;
mod records;
mod writer;
mod writer_lease;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

pub use address::{LogAddress, LogAddressError};
pub(crate) use failover::Opening;
pub(crate) use writer::{LogClock, SharedLog};

/// How often the writer sends a message, or looks for those of others.
const RENEWAL: Duration = Duration::from_secs(1);
/// How long the servers may fail until they count as away.
const OUTAGE: Duration = Duration::from_secs(15);

/// The options of an origin's log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Where it is. None: the log of the last start, if there was one.
    pub address: Option<LogAddress>,
    /// The address of this origin for replicas, as other origins show it.
    pub advertised: String,
}

/// An event of a log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogEvent {
    /// The servers do not answer.
    #[error(
        "the log {log} does not answer ({why}): writes are refused until it does; check the servers"
    )]
    Away {
        /// The log.
        log: String,
        /// Why.
        why: String,
    },
    /// They answer again.
    #[error("the log answers again")]
    Back,
    /// Another origin writes.
    #[error("standing by: the origin at {0} writes the log")]
    Standby(String),
    /// The writer is silent, but does not know of this standby.
    #[error(
        "the origin at {0} is silent, but has not seen this standby, so it may still serve replicas: start it, or make \
         sure that it has ended and restart this one with --take-over"
    )]
    Unconfirmed(String),
    /// This origin writes the log.
    #[error("this origin writes the log {0}")]
    Writing(String),
}

/// The receiver of events.
pub(crate) type LogSink = Arc<dyn Fn(LogEvent) + Send + Sync>;

/// The status of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogStatus {
    /// Its address.
    pub log: String,
    /// The sequence of the last message.
    pub last: u64,
    /// The replicas of the stream.
    pub replicas: usize,
    /// The address of the writer.
    pub writer: String,
    /// The addresses of standbys.
    pub standbys: Vec<String>,
    /// Why the servers do not answer.
    pub away: Option<String>,
}
