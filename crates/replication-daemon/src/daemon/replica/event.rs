//! Events of a replica daemon.

use std::net::SocketAddr;
use std::time::Duration;

use lull_replication::message::Refusal;
use lull_replication::path::Path;
use lull_replication::replica::Skew;
use lull_replication::subscription::Pattern;
use lull_replication::types::ReplicaId;
use thiserror::Error;

/// An event of a replica daemon.
#[derive(Debug, Error)]
pub enum ReplicaEvent {
    /// The origin accepts it.
    #[error("connected to the origin")]
    Connected,
    /// One of several parents is connected to, another one than before.
    #[error("trying {0}")]
    Parent(String),
    /// A parent has sent wrong bytes several times. They were discarded.
    #[error(
        "{0} has sent wrong bytes several times: they were discarded, and another parent is tried if there is one. Check \
         that machine and the network to it"
    )]
    WrongBytes(String),
    /// There is no connection.
    #[error("no connection to the origin, next attempt in {}.{:03} s: {why}",
        again.as_secs(), again.subsec_millis())]
    Disconnected {
        /// Why.
        why: String,
        /// When the next attempt begins.
        again: Duration,
    },
    /// The origin rejects it.
    #[error("the origin rejects this replica: {0}")]
    Refused(Refusal),
    /// The clocks are further apart than allowed.
    #[error(
        "the wall clocks of origin and replica are over {} ms apart: synchronize them; until then \
         staleness is measured by round trips",
        .0.least.unsigned_abs().min(.0.most.unsigned_abs()) / 1_000_000
    )]
    SkewExceeded(Skew),
    /// A pattern of its subscription matches no object.
    #[error(
        "no file matches `--only {0}`: check the pattern. `docs/**` is everything below `docs`"
    )]
    Unmatched(Pattern),
    /// The disk is full.
    #[error("the disk is full: free space; until then reads of newer state wait")]
    DiskFull,
    /// The origin has lost a body that is read here.
    #[error("the origin has lost the body of `{0}`, so it cannot be read: publish it there again")]
    Lost(Path),
    /// It serves other replicas from now on.
    #[error("replicas may connect to {0}")]
    Relaying(SocketAddr),
    /// A replica below this relay has connected.
    #[error("replica {} at {from} is connected", .child.0)]
    ChildConnected {
        /// Which.
        child: ReplicaId,
        /// Its address.
        from: SocketAddr,
    },
    /// A replica below this relay has no connection any more.
    #[error("replica {} is disconnected: {why}", .child.0)]
    ChildDisconnected {
        /// Which.
        child: ReplicaId,
        /// Why.
        why: String,
    },
    /// A body that replicas below have begun to get does not arrive whole.
    #[error("`{0}` was cut off on its way here, and so at replicas below: they get it later")]
    Cut(Path),
    /// A connection to this relay has failed.
    #[error("the connection from {from} failed: {why}")]
    ChildRejected {
        /// Its address.
        from: SocketAddr,
        /// Why.
        why: String,
    },
    /// It gives pieces to neighbours from now on.
    #[error("neighbours may connect to {0}")]
    Sharing(SocketAddr),
    /// A neighbour gives no pieces of a body any more.
    #[error(
        "neighbour {} at {address} gives no more pieces of `{path}`, which come from others: {why}",
        .neighbour.0
    )]
    NeighbourDropped {
        /// Its number at the parent.
        neighbour: ReplicaId,
        /// Its address.
        address: SocketAddr,
        /// The file.
        path: Path,
        /// Why.
        why: String,
    },
    /// A neighbour has sent a wrong piece. It was discarded.
    #[error(
        "neighbour {} at {address} has sent a wrong piece of `{path}`: it was discarded, and that neighbour is not used \
         until this replica starts again. Check that machine and the network to it",
        .neighbour.0
    )]
    WrongPiece {
        /// Its number at the parent.
        neighbour: ReplicaId,
        /// Its address.
        address: SocketAddr,
        /// The file.
        path: Path,
    },
    /// No new certificate could be requested.
    #[error("the certificate could not be renewed: {0}")]
    NotRenewed(String),
}
