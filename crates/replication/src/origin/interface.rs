//! The interface of an origin, beside messages.

use core::time::Duration;

use lull_cc::Bytes;

use super::arrivals::UnderWay;
use super::holds::HoldId;
use super::image::Append;
use super::strategy::Strategy;
use super::writes::{CaseClashes, Refused, TransactionId};
use crate::body_references::BodyEffect;
use crate::lane::Lanes;
use crate::message::{MAX_CHANGES, MAX_ENTRIES, Refusal};
use crate::path::Path;
use crate::time::Drift;
use crate::types::{Change, Digest, DiskFull, ReplicaId, Sequence, Version};
use crate::wire::{length_of, length_of_entry};

/// The configuration of an origin.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bodies up to this size are stored with the log: one durable step instead of two.
    pub inline: Bytes,
    /// Commits that the log keeps, at most, with the bodies that they overwrote or deleted.
    pub log: usize,
    /// Their changes, at most: they are in memory. New ones are always kept until the next ones come.
    pub log_changes: usize,
    /// Bytes of the bodies that they overwrote or deleted.
    pub log_bytes: Bytes,
    /// Hashes of the log that are kept beyond it, 32 bytes each: a replica that was away for more commits has
    /// to start over.
    pub chain: usize,
    /// Commits in one durable step, at most.
    pub batch: usize,
    /// Changes, bodies or objects handled in one step of a call, at most: the rest of a larger transaction or tree is
    /// left for [`go_on`](super::Origin::go_on), and other calls come in between.
    pub slice: usize,
    /// Transactions that wait for the disk, at most: further ones are rejected.
    pub queue: usize,
    /// Changes in one message, or entries of a leaf, at most: larger commits and leaves go in parts. At most
    /// [`MAX_CHANGES`](crate::message::MAX_CHANGES) and [`MAX_ENTRIES`](crate::message::MAX_ENTRIES).
    pub part: usize,
    /// The maximum size of a part on the wire, in bytes, unless one change takes more: a slow line carries
    /// this before any other message.
    pub part_bytes: Bytes,
    /// Time between heartbeats.
    pub heartbeat: Duration,
    /// Which bodies are pushed, and how.
    pub strategy: Strategy,
    /// The maximum number of speculative bodies in flight to one replica until they are in its store. Bodies
    /// in flight can no longer be overtaken or merged, and are in the replica's memory if its disk is slow.
    pub under_way: usize,
    /// More small bodies are permitted, as long as all bodies take less than this many bytes. That includes
    /// their names and their overhead.
    pub under_way_bytes: Bytes,
    /// Demand reads of one replica that wait, at most; a replica with more is disconnected.
    pub demands: usize,
    /// The lane of a demanded body. Only a simulation deviates from the protocol.
    pub lanes: Lanes,
    /// Counts of reads and writes are halved after this time.
    pub half_life: Duration,
    /// The treatment of paths that differ only in case.
    pub case_clashes: CaseClashes,
    /// How fast the clock for commits follows the machine's.
    pub slew: Drift,
    /// The largest error of any clock's rate, including slewing. The longer a replica was not heard, the less
    /// is known of the error of its clock.
    pub drift: Drift,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            inline: Bytes(16 * 1024),
            log: 100_000,
            // Some 140 MB.
            log_changes: 1_000_000,
            log_bytes: Bytes(10_000_000_000),
            chain: 4_000_000,
            batch: 256,
            slice: 256,
            queue: 4_096,
            part: 512,
            part_bytes: Bytes(16 * 1024),
            heartbeat: Duration::from_secs(1),
            strategy: Strategy::default(),
            under_way: 16,
            under_way_bytes: Bytes(1 << 20),
            demands: 4_096,
            lanes: Lanes::default(),
            half_life: Duration::from_secs(3_600),
            case_clashes: CaseClashes::Allow,
            // The largest slew of NTP (RFC 5905's reference implementation: 500 ppm).
            slew: Drift(500),
            // The same again for a bad oscillator, as replicas assume.
            drift: Drift(1_000),
        }
    }
}

impl Config {
    /// Speculative bodies under way to one replica, at most, of any size: each is a message, and a row in the
    /// replica's database.
    const MAX_IN_FLIGHT: usize = 1_024;

    /// Whether one more body may be handed out.
    pub(super) fn has_room_under_way(&self, pushed: &UnderWay) -> bool {
        let are_small = pushed.len() < Self::MAX_IN_FLIGHT && pushed.bytes() < self.under_way_bytes;
        pushed.len() < self.under_way || are_small
    }

    /// How many of these changes fit into one message.
    pub(super) fn first_part(&self, changes: &[Change]) -> usize {
        self.fitting(changes.len().min(MAX_CHANGES), changes.iter().map(length_of))
    }

    /// How many of these entries of a leaf fit into one message.
    pub(super) fn first_entries(&self, entries: &[(Path, Version)]) -> usize {
        self.fitting(entries.len().min(MAX_ENTRIES), entries.iter().map(length_of_entry))
    }

    fn fitting(&self, most: usize, lengths: impl Iterator<Item = usize>) -> usize {
        let mut bytes = 0;
        let fits = lengths.take(self.part.clamp(1, most.max(1))).take_while(|length| {
            bytes += *length as u64;
            bytes <= self.part_bytes.0
        });
        // One at least, whatever its size.
        fits.count().max(1).min(most)
    }
}

/// The jobs of the origin's stores. Each is answered; appends in order, and one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<P> {
    /// For the store of bodies: answered by [`Origin::handle_stored`](super::Origin::handle_stored) and
    /// [`Origin::handle_dropped`](super::Origin::handle_dropped).
    Body(BodyEffect<P>),
    /// A durable step of the log: answered by [`Origin::handle_appended`](super::Origin::handle_appended).
    Append(Append<P>),
}

/// The events of an origin for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The transaction would survive a crash, and has the final position `sequence`.
    Acknowledged {
        /// The caller's name for it.
        transaction: TransactionId,
        /// Its position.
        sequence: Sequence,
    },
    /// Nothing of the transaction was written.
    Refused {
        /// The caller's name for it.
        transaction: TransactionId,
        /// Why.
        why: Refused,
    },
    /// The store has a body to be held, or no room for it: then it is not held.
    Held {
        /// The caller's name for it.
        id: HoldId,
        /// Whether it is stored.
        outcome: Result<(), DiskFull>,
    },
    /// A replica answers reads with the state at `committed`, or a later one.
    Progress {
        /// Which.
        replica: ReplicaId,
        /// Up to where.
        committed: Sequence,
    },
    /// More bodies have arrived at a replica, or it is known now which ones have: ask
    /// [`Origin::has_arrived`](super::Origin::has_arrived).
    Arrived(ReplicaId),
    /// Bodies of a publication with a deadline are sent to a replica at normal priority, or no longer: ask
    /// [`Origin::is_urgent`](super::Origin::is_urgent), and for more to send.
    Urgency(ReplicaId),
    /// A replica is rejected. The message about it is still to be sent.
    Turned {
        /// Which.
        replica: ReplicaId,
        /// Why.
        why: Refusal,
    },
    /// A replica violates the protocol: close its connections.
    Close(ReplicaId),
    /// A body is missing or corrupt: its objects cannot be fetched until it is written again. Replicas that
    /// request it get that answer.
    Lost {
        /// Which.
        digest: Digest,
        /// The objects, if any have it now.
        paths: Vec<Path>,
    },
}

/// Counts since they were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Writes that found an older version of the object in a queue, and replaced it.
    pub absorbed: u64,
    /// Messages of earlier connections.
    pub stale_frames: u64,
    /// Re-syncs that were begun.
    pub resyncs: u64,
    /// Re-syncs that restarted because the log had passed the snapshot.
    pub resyncs_again: u64,
    /// Bodies that waited for their own deletion before they were stored.
    pub dedup_waits: u64,
    /// Commits that went in parts.
    pub in_parts: u64,
    /// Demand reads that were answered.
    pub demands: u64,
    /// Demand reads whose bodies a relay had to fetch.
    pub held: u64,
    /// Demand reads that were withdrawn before their answer.
    pub withdrawn: u64,
    /// Bodies that were cancelled because no read waited for them any more.
    pub broken_off: u64,
    /// Speculative bodies that were handed out.
    pub pushed: u64,
    /// Speculative bodies that were cut off because a read waits for them, and gets them whole.
    pub handed_over: u64,
}
