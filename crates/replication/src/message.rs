//! The protocol as values. How they become bytes is the matter of [`wire`](crate::wire).
//!
//! Three channels, as SSR §3.2 has them (table I):
//!
//! | channel | order | priority | what |
//! |---|---|---|---|
//! | control | in order, lossless | normal | handshake, invalidations, heartbeats, re-sync, all that replicas say |
//! | demand | any | normal | bodies that a read waits for |
//! | speculative | any | background | bodies that may be wanted |
//!
//! ```text
//! replica                          origin
//!    │ Hello (position received)      │
//!    ├───────────────────────────────▶│   compares the chains of hashes
//!    │ Welcome (log) │ Refused        │
//!    │◀───────────────────────────────┤
//!    │ Invalidation …, Heartbeat …    │   in order; Heartbeat echoes the last Ping
//!    │◀───────────────────────────────┤
//!    │ Ping, Ack, Reads, Demand …     │
//!    ├───────────────────────────────▶│
//!    │ Body (demand, speculative)     │
//!    │◀───────────────────────────────┤
//!
//! nobody waits for a body any more:
//!    │ Withdraw                       │
//!    ├───────────────────────────────▶│
//!    │ Withdrawn │ the body's end     │   whole if it had left, else broken off
//!    │◀───────────────────────────────┤
//!
//! away longer than the log:
//!    │ Welcome (re-sync to a root)    │
//!    │◀───────────────────────────────┤
//!    │ Ask (branches, leaves, entries)│   each says of which tree
//!    ├───────────────────────────────▶│
//!    │ Tree (what was asked) …        │   a leaf with much in it in parts
//!    │◀───────────────────────────────┤
//!    │ Resynced                       │
//!    ├───────────────────────────────▶│   invalidations go on behind the root
//! ```

use core::time::Duration;

use lull_cc::Bytes;
use thiserror::Error;

use crate::path::Path;
use crate::time::{LocalTime, WallTime};
use crate::types::{Change, Digest, Incarnation, Position, ReplicaId, Sequence, Version};

/// The version of the protocol that this code speaks.
pub const PROTOCOL: u16 = 9;
/// Paths in one message, at most.
pub const MOST_PATHS: usize = 1_000;
/// Changes in one message, at most: larger commits go in parts.
pub const MOST_CHANGES: usize = 1_000;
/// Entries of a leaf in one message, at most: what more stands in it goes in further parts. Whoever names files
/// may choose names that all stand in one.
pub const MOST_ENTRIES: usize = 1_000;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// In order, at normal priority.
    Control,
    /// At normal priority, in any order.
    Demand,
    /// In the background, in any order.
    Speculative,
    /// For certificates: one question and one answer.
    Enrolment,
}

/// Which connection a message belongs to. What comes from an earlier one is dropped, whichever
/// channel it comes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// The origin's life; zero in `Hello`, which does not know it yet.
    pub origin: Incarnation,
    /// The replica's life.
    pub replica: Incarnation,
    /// Counts the connections of the replica's life.
    pub connection: u32,
}

/// A message with its session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame<M> {
    /// The connection it belongs to.
    pub session: Session,
    /// What is said.
    pub message: M,
}

/// What replicas say. All of it goes by the control channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToOrigin {
    /// The first message.
    Hello {
        /// The version of the protocol that is spoken.
        protocol: u16,
        /// Who speaks.
        replica: ReplicaId,
        /// Up to where invalidations are here; none if this replica has never had any state.
        position: Option<Position>,
        /// Up to where they are on its disk. The two differ by what waits to be applied.
        committed: Sequence,
    },
    /// To be answered by a heartbeat, which echoes it.
    Ping {
        /// By the replica's clock; means nothing to the origin.
        sent: LocalTime,
    },
    /// Up to where the replica answers reads, on stable storage.
    Ack(Sequence),
    /// How many speculative bodies of this connection are in the store so far, or were discarded, in
    /// the order in which they came.
    Taken(u64),
    /// The same of the bodies that reads have asked for, in the order in which they ended.
    Fetched(u64),
    /// How often objects were read since the last report.
    Reads(Vec<(Path, u32)>),
    /// A read waits for this object. Until it was answered, once, it is not asked for again.
    Demand(Path),
    /// No read does any more. It is answered all the same: by [`Withdrawn`](ToReplica::Withdrawn), or by the
    /// end of a body that had begun.
    Withdraw(Path),
    /// Objects whose bodies are missing here: said to an origin that lost its queue in a crash, and of
    /// those that found no room when they came.
    Lacking(Vec<Path>),
    /// A part of a tree to be told.
    Ask {
        /// Which tree: that of this state.
        of: Sequence,
        /// Which part.
        part: Ask,
    },
    /// The state is that of the root now.
    Resynced(Sequence),
    /// How it is.
    Report(Report),
}

/// How a replica is, for people who look at the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Report {
    /// The origin's time by which all that was committed is in its state; none if it knows of none. What
    /// it says of how stale it is would be older by its way to the origin.
    pub reflects: Option<WallTime>,
    /// For how long it would answer reads if the connection were lost now; none: for ever.
    pub lasts: Option<Duration>,
    /// By how many nanoseconds its wall clock is ahead of the origin's: at least, and at most.
    pub skew: Option<(i64, i64)>,
    /// What it has.
    pub stock: Stock,
}

/// How much there is, and how much of that is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stock {
    /// Objects.
    pub objects: u64,
    /// Those whose bodies are here.
    pub valid_objects: u64,
    /// The bytes of all of them.
    pub bytes: Bytes,
    /// Those that are here.
    pub valid_bytes: Bytes,
}

/// Parts of a tree of hashes, see [`crate::merkle`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// The hashes of all branches.
    Branches,
    /// The hashes of the leaves of these branches.
    Leaves(Vec<u8>),
    /// What stands in these leaves.
    Entries(Vec<u16>),
}

/// The answer to an [`Ask`]; those of leaves and entries come one for each, but that a leaf may come in parts,
/// one behind the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tree {
    /// The branches that are not empty.
    Branches(Vec<(u8, Digest)>),
    /// The leaves of a branch that are not empty.
    Leaves(u8, Vec<(u16, Digest)>),
    /// What stands in a leaf, or a part of that.
    Entries {
        /// Which leaf.
        leaf: u16,
        /// By the order of the paths.
        entries: Vec<(Path, Version)>,
        /// Whether further parts of the same leaf follow.
        more: bool,
    },
}

/// What the origin says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToReplica {
    /// The handshake succeeded.
    Welcome {
        /// How it goes on.
        start: Start,
        /// Whether invalidations are to be applied as they come, which follows from what the origin
        /// pushes: see [`Strategy::is_eager`](crate::origin::Strategy::is_eager).
        eager: bool,
    },
    /// It did not.
    Refused(Refusal),
    /// A commit, or a part of a large one (SSR §6.2, number 2 of figure 15).
    Invalidation {
        /// Its position.
        sequence: Sequence,
        /// Its time.
        stamp: WallTime,
        /// What it changes.
        changes: Vec<Change>,
        /// Whether further parts of the same commit follow.
        more: bool,
    },
    /// Everything committed by the origin's time `stamp` has a sequence of `committed` at most.
    Heartbeat {
        /// The origin's time when this was said, never when it is received.
        stamp: WallTime,
        /// The last commit by then. Its invalidation went before.
        committed: Sequence,
        /// When the replica sent the last ping that has come.
        echo: Option<LocalTime>,
    },
    /// A part of the tree that was asked for.
    Tree {
        /// Which tree: that of this state.
        of: Sequence,
        /// The part.
        part: Tree,
    },
    /// The replica's certificate is of an authority that is being replaced, or it trusts one that was:
    /// it is to get a new one.
    Renew,
    /// The body of this object was asked for, and that was withdrawn before any of it had left.
    Withdrawn(Path),
}

/// How invalidations go on after the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// Behind the replica's position.
    Log,
    /// By comparing trees: the log does not reach back to the replica's position.
    Resync {
        /// What the tree is the state of.
        position: Position,
        /// The origin's time when the tree was taken.
        stamp: WallTime,
        /// The hash of the tree.
        root: Digest,
    },
}

/// What comes with a body, on the demand or speculative channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BodyHeader {
    /// The object.
    pub path: Path,
    /// Which version the body is; none if the object does not exist at `at`.
    pub version: Option<Version>,
    /// The origin's sequence when it read the object: the version is the current one there.
    pub at: Sequence,
    /// Whether a read waits for it.
    pub demand: bool,
    /// Whether the origin has lost it: nothing follows. Only of a version.
    pub lost: bool,
}

/// Why the origin does not talk to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Refusal {
    /// Another version of the protocol.
    #[error("the origin speaks version {0} of the protocol: install the same release on both")]
    Protocol(u16),
    /// The replica is ahead of the origin's log.
    #[error(
        "the replica has commits that the origin has lost, its log ends at {0}: restore the origin \
         from a newer backup, or give the replica an empty folder"
    )]
    Ahead(Sequence),
    /// The replica followed another log.
    #[error(
        "the replica followed another history than the origin's: the origin was restored from an \
         old backup, or is not the one it was. Restore a newer one, or give the replica an empty \
         folder"
    )]
    Diverged,
    /// The origin no longer knows whether it is the same log.
    #[error(
        "the replica was away for longer than the origin remembers, which begins at {0}: give the \
         replica an empty folder"
    )]
    Forgotten(Sequence),
    /// It was revoked.
    #[error("it was revoked: let it join again with a new ticket")]
    Revoked,
    /// Somebody else is the replica of that name by now.
    #[error(
        "another one has joined under its name: stop this one, or let it join again with a ticket of \
         another name"
    )]
    Replaced,
    /// Its certificate is one of the origin's, and not one that the origin knows of.
    #[error(
        "the origin does not know its certificate: the origin, or this replica, was restored from an old \
         backup. Let it join again with a new ticket"
    )]
    Unknown,
}

/// What is said to the origin as an authority: by whom it does not know yet, or by a replica. There is
/// no session; it is all zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToAuthority {
    /// Somebody with a ticket wants to be a replica.
    Enrol(Enrol),
    /// The replica that shows its certificate wants one for another key: a request (PKCS #10), in DER.
    Renew(Vec<u8>),
}

/// What the origin answers as an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromAuthority {
    /// It has issued a certificate.
    Enrolled(Enrolled),
    /// It has not.
    Refused(NotEnrolled),
}

/// What somebody says to be a replica, on a connection without a certificate of its own.
#[derive(Clone, PartialEq, Eq)]
pub struct Enrol {
    /// Its number, from the ticket.
    pub replica: ReplicaId,
    /// The secret of the ticket.
    pub secret: [u8; 32],
    /// A certificate request (PKCS #10), in DER. Only the key in it is looked at.
    pub request: Vec<u8>,
}

/// What it gets: all that it needs to be this replica, but for the key, which never leaves it.
#[derive(Clone, PartialEq, Eq)]
pub struct Enrolled {
    /// Its number.
    pub replica: ReplicaId,
    /// Its certificate, in DER.
    pub certificate: Vec<u8>,
    /// The certificates of the authorities to trust, in DER.
    pub authorities: Vec<Vec<u8>>,
    /// The key that session tokens are made with, see [`TokenKey`](crate::token::TokenKey).
    pub token_key: [u8; 32],
    /// Another one to believe in, while one takes the place of the other.
    pub other_token_key: Option<[u8; 32]>,
}

macro_rules! without_secrets {
    ($($name:ident),+) => {
        $(impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut shown = f.debug_struct(stringify!($name));
                shown.field("replica", &self.replica).finish_non_exhaustive()
            }
        })+
    };
}

without_secrets!(Enrol, Enrolled);

/// Why the origin issues no certificate, as far as it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum NotEnrolled {
    /// There is no such ticket, or it was used.
    #[error("the ticket is not one of this origin's, or was used: ask for a new one")]
    Ticket,
    /// It was good once.
    #[error("the ticket is too old: ask for a new one")]
    Expired,
    /// The replica was revoked.
    #[error("the replica was revoked: ask for a new ticket")]
    Revoked,
    /// The request is none, or was not signed with the key in it.
    #[error("the certificate request is not valid: install the same release on both")]
    Request,
    /// It is the origin that has a problem.
    #[error("the origin could not issue a certificate: its log says why")]
    Failed,
}
