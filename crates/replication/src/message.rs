//! The protocol as values. [`wire`](crate::wire) encodes them as bytes.
//!
//! Three channels, as in SSR §3.2 (table I):
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
//! no read waits for a body any more:
//!    │ Withdraw                       │
//!    ├───────────────────────────────▶│
//!    │ Withdrawn │ the body's end     │   whole if it had left, otherwise cut off
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

use core::net::SocketAddr;
use core::time::Duration;

use lull_cc::Bytes;
use thiserror::Error;

use crate::path::Path;
use crate::subscription::Subscription;
use crate::time::{LocalTime, WallTime};
use crate::types::{Change, Digest, Incarnation, Position, ReplicaId, Sequence, Version};

/// The version of the protocol that this code speaks.
pub const PROTOCOL: u16 = 15;
/// The first version in which a receiver says which pieces of a long body it wants.
pub const WITH_RANGES: u16 = 13;
/// The first version in which a relay is sent the urgent replicas below it.
pub const WITH_URGENT: u16 = 14;
/// The first version in which neighbours exchange pieces.
pub const WITH_NEIGHBOURS: u16 = 15;
/// Paths in one message, at most.
pub const MAX_PATHS: usize = 1_000;
/// Changes in one message, at most: larger commits go in parts.
pub const MAX_CHANGES: usize = 1_000;
/// Objects in one answer to a receiver, at most.
pub const MAX_FOUND: usize = 1_000;
/// Names in one answer that are like the one that does not exist, at most.
pub const MAX_NEAR: usize = 3;
/// Entries of a leaf in one message, at most: further entries go in further parts. A user who names files may
/// choose names that all fall into one leaf.
pub const MAX_ENTRIES: usize = 1_000;
/// Bodies that have arrived in part, at most.
pub const MAX_PARTIAL: usize = 64;
/// Ranges of pieces in one [`Wanted`](ToOrigin::Wanted), at most.
pub const MAX_RANGES: usize = 4_096;
/// Neighbours of a replica, at most, itself included.
pub const MAX_NEIGHBOURS: usize = 256;
/// Relays below a relay, at most.
pub const MAX_RELAYS: usize = 1_000;
/// Replicas in one [`Below`](ToOrigin::Below), at most: a relay sends one with a ping, so its rate is bounded, too.
pub const MAX_BELOW: usize = 64;
/// Publications in one [`Urgent`](ToReplica::Urgent), at most.
pub const MAX_URGENT: usize = 64;
/// Replicas of each of them, at most.
pub const MAX_URGENT_REPLICAS: usize = 10_000;
/// Commits in one [`Delivered`] whose bodies are to come, at most.
pub const MAX_EXCEPT: usize = 16;

/// The channel that a message takes.
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
    /// For one-off receivers: questions and answers, in the background.
    Fetch,
    /// Between two replicas of one parent: pieces of a long body, in the background.
    Exchange,
}

/// The connection of a message. Messages of an earlier connection are dropped on every channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// The origin's incarnation; zero in `Hello`, which does not know it so far.
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
    /// The message.
    pub message: M,
}

/// Messages of replicas, all on the control channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToOrigin {
    /// The first message.
    Hello {
        /// The version of the protocol that is spoken.
        protocol: u16,
        /// The sender.
        replica: ReplicaId,
        /// Up to where invalidations have arrived; none if this replica has never had a state.
        position: Option<Position>,
        /// Up to where they are on its disk. The difference is waiting to be applied.
        committed: Sequence,
        /// The names whose bodies are to be pushed.
        only: Subscription,
    },
    /// Requests a heartbeat, which echoes it.
    Ping {
        /// By the replica's clock; meaningless to the origin.
        sent: LocalTime,
    },
    /// Up to where the replica answers reads, on stable storage.
    Ack(Sequence),
    /// How many speculative bodies of this connection are in the store so far, or were discarded, in the
    /// order of their arrival.
    Taken(u64),
    /// The same for the bodies that reads have requested, in the order in which they ended.
    Fetched(u64),
    /// How often objects were read since the last report.
    Reads(Vec<(Path, u32)>),
    /// A read waits for this object. It is not requested again before one answer.
    Demand(Path),
    /// No read waits for this object any more. The answer is [`Withdrawn`](ToReplica::Withdrawn), or the end
    /// of a body that had begun.
    Withdraw(Path),
    /// Objects whose bodies are missing here. Sent to an origin that lost its queue in a crash, and for
    /// bodies that the disk had no space for.
    Lacking(Vec<Path>),
    /// Requests a part of a tree.
    Ask {
        /// The tree of this state.
        of: Sequence,
        /// Which part.
        part: Ask,
    },
    /// The state now has the announced root.
    Resynced(Sequence),
    /// How it is.
    Report(Report),
    /// The sender is a relay: its number, and those of the relays below it. One that finds itself here refuses the
    /// sender.
    Relays(Vec<ReplicaId>),
    /// A relay asks whether it may serve a replica.
    Vouch(Vouch),
    /// A relay reports on replicas below it: those with news.
    Below(Vec<BelowReport>),
    /// The link has a price: of a body that is certain to be read there before it is overwritten, at most this many
    /// bytes are worth being pushed. Of one with a smaller chance it is that part of them.
    Price(Bytes),
    /// The bodies that have arrived in part, and how many pieces of each: all of them, instead of earlier ones. A
    /// transfer may begin behind these pieces.
    Partial(Vec<(Digest, u32)>),
    /// The answer to the hashes of a long body's pieces.
    Wanted(Wanted),
    /// The address where the sender gives pieces to neighbours: replicas that connect from the same network, and share.
    /// Once a session.
    Share(SocketAddr),
}

/// The pieces that a replica wants of a long body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The hash of the body.
    pub digest: Digest,
    /// Whether it comes for a read.
    pub demand: bool,
    /// Counts the long bodies that have begun on its channel, from one: answers to earlier transfers may be late.
    pub number: u64,
    /// Ranges of pieces, in ascending order: the first one, and their number. None: the replica has an older version of
    /// the object, and asks for the chunks of this one first.
    pub ranges: Vec<(u32, u32)>,
    /// The sender waits behind these pieces for another answer: the replica may get the others from neighbours. Then these
    /// pieces may be in any place, and the last one of the body is not among them.
    pub more: bool,
}

/// The question whether a replica follows the origin's log, and is still admitted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vouch {
    /// The sender's number for the question.
    pub question: u64,
    /// The replica.
    pub replica: ReplicaId,
    /// The hash of its certificate; zeros where there are no certificates.
    pub certificate: Digest,
    /// Its position; none if it has no state.
    pub position: Option<Position>,
}

/// A relay's report on a replica below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BelowReport {
    /// The replica.
    pub replica: ReplicaId,
    /// The relay that serves it.
    pub relay: ReplicaId,
    /// Whether it is connected there.
    pub connected: bool,
    /// Up to where it answers reads.
    pub committed: Sequence,
    /// The bodies that it has.
    pub delivered: Delivered,
    /// Bodies that wait for it.
    pub waiting: u64,
    /// Its last report, and how long ago it arrived at the relay.
    pub report: Option<(Duration, Report)>,
}

/// Commits whose bodies have all arrived at a replica, without those that are not pushed to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Delivered {
    /// All commits up to here, at most up to where the replica answers reads.
    pub up_to: Sequence,
    /// But not these, in ascending order.
    pub except: Vec<Sequence>,
}

impl Delivered {
    /// All commits up to `up_to` but these. If they are too many, fewer commits count as delivered.
    pub fn new(up_to: Sequence, pending: impl IntoIterator<Item = Sequence>) -> Self {
        let mut except: Vec<_> = pending.into_iter().filter(|one| *one <= up_to).collect();
        except.sort_unstable();
        except.dedup();
        let up_to = match except.get(MAX_EXCEPT) {
            Some(next) => Sequence(next.0.saturating_sub(1)),
            None => up_to,
        };
        except.truncate(MAX_EXCEPT);
        Delivered { up_to, except }
    }

    /// Whether all bodies of the commit at `at` have arrived.
    pub fn has(&self, at: Sequence) -> bool {
        at <= self.up_to && self.except.binary_search(&at).is_err()
    }
}

/// The state of a replica, for users who look at the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Report {
    /// The origin's time of its state: all commits before it are included. None if unknown. A staleness would
    /// grow old on its way to the origin.
    pub reflects: Option<WallTime>,
    /// For how long it would answer reads if the connection were lost now; none if forever.
    pub lasts: Option<Duration>,
    /// By how many nanoseconds its wall clock is ahead of the origin's: at least, and at most.
    pub skew: Option<(i64, i64)>,
    /// Its stock.
    pub stock: Stock,
}

/// How many objects there are, and how many of their bodies are here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stock {
    /// Objects.
    pub objects: u64,
    /// Objects whose bodies are here.
    pub valid_objects: u64,
    /// The bytes of all of them.
    pub bytes: Bytes,
    /// Bytes of objects whose bodies are here.
    pub valid_bytes: Bytes,
    /// Objects whose bodies are not here because the replica does not subscribe to their names.
    pub unsubscribed_objects: u64,
    /// Their bytes, which were not transferred.
    pub unsubscribed_bytes: Bytes,
}

impl Stock {
    /// Bytes of objects whose bodies are not here.
    pub fn missing(&self) -> Bytes {
        Bytes(self.bytes.0.saturating_sub(self.valid_bytes.0))
    }

    /// The part of them that is pushed to the replica.
    pub(crate) fn missing_and_pushed(&self) -> Bytes {
        Bytes(self.missing().0.saturating_sub(self.unsubscribed_bytes.0))
    }
}

/// Parts of a tree of hashes, see [`crate::merkle`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// The hashes of all branches.
    Branches,
    /// The hashes of the leaves of these branches.
    Leaves(Vec<u8>),
    /// The entries of these leaves.
    Entries(Vec<u16>),
}

/// The answer to an [`Ask`]. Leaves and entries come one message per branch or leaf, but a leaf may come in
/// several parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tree {
    /// The branches that are not empty.
    Branches(Vec<(u8, Digest)>),
    /// The leaves of a branch that are not empty.
    Leaves(u8, Vec<(u16, Digest)>),
    /// The entries of a leaf, or a part of them.
    Entries {
        /// Which leaf.
        leaf: u16,
        /// In the order of the paths.
        entries: Vec<(Path, Version)>,
        /// Whether more parts of the same leaf follow.
        more: bool,
    },
}

/// Messages of the origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToReplica {
    /// The handshake succeeded.
    Welcome {
        /// How invalidations continue.
        start: Start,
        /// Whether invalidations are applied on arrival, which follows from the push strategy: see
        /// [`Strategy::is_eager`](crate::origin::Strategy::is_eager).
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
        /// Its changes.
        changes: Vec<Change>,
        /// Whether more parts of the same commit follow.
        more: bool,
    },
    /// Everything committed by the origin's time `stamp` has at most the sequence `committed`.
    Heartbeat {
        /// The origin's time when this was sent, not when it is received.
        stamp: WallTime,
        /// The last commit by then. Its invalidation was sent before.
        committed: Sequence,
        /// When the replica sent the last ping that has arrived.
        echo: Option<LocalTime>,
    },
    /// A requested part of the tree.
    Tree {
        /// The tree of this state.
        of: Sequence,
        /// The part.
        part: Tree,
    },
    /// The replica's certificate is of an authority that is being replaced, or it trusts one that was
    /// replaced: it has to get a new one.
    Renew,
    /// The body of this object was requested, and withdrawn before any of it had left.
    Withdrawn(Path),
    /// The answer to [`Vouch`](ToOrigin::Vouch).
    Vouched {
        /// The number of the question.
        question: u64,
        /// Why the relay must refuse the replica, if it must.
        refusal: Option<Refusal>,
    },
    /// The neighbours of a replica that shares. All of them, instead of earlier ones.
    Neighbours(Vec<Neighbour>),
    /// To a relay: publications that would be late at replicas below it. All of them, instead of earlier ones.
    Urgent(Vec<Urgent>),
}

/// A replica that exchanges pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// Its number.
    pub replica: ReplicaId,
    /// The hash of its certificate.
    pub certificate: Digest,
    /// Where it gives pieces.
    pub address: SocketAddr,
}

/// A publication whose bodies leave the background on the way to some replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Urgent {
    /// Its state.
    pub at: Sequence,
    /// The prefix of its files' paths.
    pub within: Vec<u8>,
    /// The replicas, in ascending order.
    pub replicas: Vec<ReplicaId>,
}

impl Urgent {
    /// Whether a version is part of it.
    pub(crate) fn has(&self, path: &Path, at: Sequence) -> bool {
        at <= self.at && path.as_bytes().starts_with(&self.within)
    }
}

/// How invalidations continue after the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// After the replica's position.
    Log,
    /// By comparing trees: the log does not reach back to the replica's position.
    Resync {
        /// The position of the tree.
        position: Position,
        /// The origin's time when the tree was taken.
        stamp: WallTime,
        /// The hash of the tree.
        root: Digest,
    },
}

/// The header of a body, on the demand or speculative channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BodyHeader {
    /// The object.
    pub path: Path,
    /// The version of the body; none if the object does not exist at `at`.
    pub version: Option<Version>,
    /// The origin's sequence when it read the object: the version is the current one there.
    pub at: Sequence,
    /// Whether it answers a demand.
    pub demand: bool,
    /// Whether the origin has lost the body: nothing follows. Only for a version.
    pub lost: bool,
}

/// Why the origin rejects a replica.
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
        "the histories of replica and origin differ: the origin was restored from an old backup, \
         or replaced. Restore a newer backup, or give the replica an empty folder"
    )]
    Diverged,
    /// The origin no longer knows whether it is the same log.
    #[error(
        "the replica was away for longer than the origin's log, which begins at {0}: give the \
         replica an empty folder"
    )]
    Forgotten(Sequence),
    /// It was revoked.
    #[error("it was revoked: let it join again with a new ticket")]
    Revoked,
    /// Another replica has joined under this name.
    #[error(
        "another machine has joined under its name: stop this one, or let it join again with a \
         ticket of another name"
    )]
    Replaced,
    /// Its certificate was issued by the origin, which no longer knows it.
    #[error(
        "the origin does not know its certificate: the origin, or this replica, was restored from an old \
         backup. Let it join again with a new ticket"
    )]
    Unknown,
    /// The relay that it has connected to is below it.
    #[error(
        "the relays form a loop: this one gets its files from a relay below it. Start one of them with the \
         origin's address"
    )]
    Loop,
}

/// Messages to the origin as an authority, from an unknown peer or a replica. There is no session; it is all
/// zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToAuthority {
    /// A machine with a ticket asks to become a replica.
    Enrol(Enrol),
    /// The replica with this certificate requests one for another key: a request (PKCS #10), in DER.
    Renew(Vec<u8>),
}

/// Answers of the origin as an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromAuthority {
    /// It has issued a certificate.
    Enrolled(Enrolled),
    /// It has not.
    Refused(NotEnrolled),
}

/// A request to become a replica, on a connection without a client certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Enrol {
    /// Its number, from the ticket.
    pub replica: ReplicaId,
    /// The secret of the ticket.
    pub secret: [u8; 32],
    /// A certificate request (PKCS #10), in DER. Only its key is used.
    pub request: Vec<u8>,
}

/// The identity that a new replica gets. Its private key is missing, because that never leaves the replica.
#[derive(Clone, PartialEq, Eq)]
pub struct Enrolled {
    /// Its number.
    pub replica: ReplicaId,
    /// Its certificate, in DER.
    pub certificate: Vec<u8>,
    /// The certificates of the authorities to trust, in DER.
    pub authorities: Vec<Vec<u8>>,
    /// The key that makes session tokens, see [`TokenKey`](crate::token::TokenKey).
    pub token_key: [u8; 32],
    /// A second accepted key, during a replacement.
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

/// Why the origin issues no certificate, as far as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum NotEnrolled {
    /// There is no such ticket, or it was used.
    #[error("the origin does not know this ticket, or it was used: ask for a new one")]
    Ticket,
    /// It was valid once.
    #[error("the ticket has expired: ask for a new one")]
    Expired,
    /// The replica was revoked.
    #[error("the replica was revoked: ask for a new ticket")]
    Revoked,
    /// The request is malformed, or was not signed with its key.
    #[error("the certificate request is not valid: install the same release on both")]
    Request,
    /// The origin has a problem.
    #[error("the origin could not issue a certificate: its log says why")]
    Failed,
}
