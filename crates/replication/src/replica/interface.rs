//! The interface of a replica, beside messages.

use core::time::Duration;
use std::sync::Arc;

use lull_cc::Bytes;

use super::{Order, Outage, Skew, Staleness, Step};
use crate::body_references::BodyEffect;
use crate::lane::Lanes;
use crate::message::Refusal;
use crate::path::Path;
use crate::subscription::Pattern;
use crate::types::ReplicaId;

/// The configuration of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its number at the origin.
    pub replica: ReplicaId,
    /// Its staleness bounds.
    pub staleness: Staleness,
    /// Whether invalidations are applied on arrival while the origin is connected, and not up to Δ later: all
    /// strategies except TRIP do, and TRIP with Δ = 0 (SSR §6.3.1, §6.3.2.2). None: as the origin says. Δ
    /// limits how long reads are answered all the same.
    pub eager: Option<bool>,
    /// Whether a commit is applied without its overwritten bodies, as one step, once the newer ones are here
    /// (ADR 7). In the paper an invalidation waits for its own body, for up to Δ.
    pub overtake: bool,
    /// Whether a read may overtake a waiting one.
    pub order: Order,
    /// Time between pings.
    pub ping: Duration,
    /// Without a byte from the origin on the control channel for this long, the connection is closed.
    pub silence: Duration,
    /// How long an overwritten body can still be fetched.
    pub grace: Duration,
    /// Bytes of bodies to keep, if there is a limit. While a newer body waits for its invalidation, the body
    /// that it replaces is kept beyond that limit.
    pub quota: Option<Bytes>,
    /// The retry time after a full disk, and for a demand read whose body the origin did not have. Bodies
    /// without a waiting read are retried after the disk was not full for [`QUIET`](Config::QUIET) times as
    /// long.
    pub retry: Duration,
    /// Demand reads under way at a time.
    pub demands: usize,
    /// Bytes of their bodies, which may be in memory until the disk has them. Each lane has a share of this,
    /// and fetches one body of any size.
    pub demand_bytes: Bytes,
    /// Memory for commits that wait to be applied. From one half on they are applied on arrival, without
    /// their bodies. When it is full, because the disk takes nothing, the connection is closed, and not
    /// reopened before half of it is free. One more commit is accepted, whatever its size.
    pub buffer: Bytes,
    /// The lane of a body. Only a simulation deviates from the protocol.
    pub lanes: Lanes,
    /// How long a demanded body is still wanted after its last reader has gone: that reader may ask again.
    pub linger: Duration,
    /// Bodies settled in one call, at most, after a large step: other work is done in between.
    pub slice: usize,
    /// Changes of a step handled in one call, at most, while the step is made and when it is shown: other
    /// work is done in between.
    pub step_slice: usize,
    /// The bytes that one read is worth on its link, if that has a price: the origin pushes no body that costs more than
    /// its reads are worth (SSR §6.3.1).
    pub bytes_per_read: Option<Bytes>,
    /// Time between this replica's reports to the origin; none: no reports.
    pub report: Option<Duration>,
}

impl Config {
    /// See [`retry`](Config::retry).
    pub const QUIET: u32 = 60;
}

impl Default for Config {
    fn default() -> Self {
        Config {
            replica: ReplicaId(0),
            staleness: Staleness::default(),
            eager: None,
            overtake: true,
            order: Order::Conservative,
            ping: Duration::from_secs(1),
            silence: Duration::from_secs(10),
            grace: Duration::from_secs(60),
            quota: None,
            retry: Duration::from_secs(1),
            demands: 1_024,
            demand_bytes: Bytes(64 << 20),
            // Half is 200,000 commits of one file: twice as many as the origin's log keeps. So a replica that
            // drops more would soon have to compare anyway.
            buffer: Bytes(128 << 20),
            lanes: Lanes::default(),
            linger: Duration::from_secs(10),
            slice: 512,
            step_slice: 256,
            bytes_per_read: None,
            report: Some(Duration::from_secs(2)),
        }
    }
}

/// The jobs of the replica's stores. Each is answered; steps come one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect<P> {
    /// For the store of bodies: answered by [`Replica::handle_stored`](super::Replica::handle_stored) and
    /// [`Replica::handle_dropped`](super::Replica::handle_dropped).
    Body(BodyEffect<P>),
    /// A durable step of the state: answered by
    /// [`Replica::handle_committed`](super::Replica::handle_committed).
    Commit(Arc<Step>),
}

/// The events of a replica for its caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The origin has accepted this replica.
    Connected {
        /// The time without a connection that this ends; none if it is the first connection since the start.
        after: Option<Outage>,
    },
    /// Close the connections: the origin is silent, or violates the protocol; or there is no room for more
    /// waiting commits.
    Close,
    /// The origin rejects this replica.
    Refused(Refusal),
    /// The wall clocks of origin and replica are further apart than maxSkew. This breaks no promise: leases
    /// are counted from echoes until they are closer.
    SkewExceeded(Skew),
    /// Get a new certificate: the origin is replacing its authority.
    Renew,
    /// No object matches this pattern of the subscription. Reported once.
    Unmatched(Pattern),
    /// The disk is full: bodies are discarded, and reads that need newer state wait. Reported once while that
    /// lasts.
    DiskFull,
    /// The origin has lost the body of this object. It cannot be read here until it is published there again.
    /// Reported once.
    Lost(Path),
}

/// Counts since they were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Commits applied because their bodies were stored (§6.2.1 rule 2.1).
    pub with_bodies: u64,
    /// Commits applied because their deadline had come (rule 2.2).
    pub at_deadline: u64,
    /// Commits applied on arrival: by an eager replica, before their age was known, or because there is no
    /// space for their missing bodies, or for them to wait.
    pub at_once: u64,
    /// Commits applied because a later demand body, or a session's token, required it (rule 2.3).
    pub on_demand: u64,
    /// Commits applied without their bodies, with later ones: all together made no object invalid.
    pub overtaken: u64,
    /// Commits with several changes.
    pub transactions: u64,
    /// Bodies that came before their invalidation, and were kept.
    pub early: u64,
    /// Bodies that made an object valid after its invalidation was applied.
    pub late: u64,
    /// Bodies that were out of date, and were discarded.
    pub stale: u64,
    /// Bodies whose content differed from the announcement.
    pub corrupt: u64,
    /// Speculative bodies for which there was no room.
    pub refused: u64,
    /// Objects evicted because the disk or the quota was full.
    pub evicted: u64,
    /// Bodies that a read found missing.
    pub missing: u64,
    /// Commits whose bodies were here already under another name.
    pub deduplicated: u64,
    /// Bodies that waited for their own deletion before they were stored.
    pub dedup_waits: u64,
    /// Connections closed because there was no room for more waiting commits.
    pub overfull: u64,
    /// Invalidations that were overdue when the connection came back, because of the outage.
    pub overdue: u64,
    /// Re-syncs that were applied, except for a replica's first one.
    pub resyncs: u64,
    /// Messages of earlier connections.
    pub stale_frames: u64,
    /// Heartbeats that counted by the wall clock.
    pub certified: u64,
    /// Heartbeats that counted by their echo.
    pub uncertified: u64,
    /// Demand reads that were sent.
    pub demands: u64,
    /// Demands that were withdrawn, because no read waited any more.
    pub withdrawn: u64,
    /// Bodies that came nevertheless.
    pub withdrawn_late: u64,
    /// Objects that were read again before the end of their withdrawn demand.
    pub awaited_again: u64,
    /// Reads that waited because the lease had run out.
    pub blocked_stale: u64,
    /// Reads that waited because there was none so far.
    pub blocked_unheard: u64,
    /// Reads that waited for an invalidation to be applied.
    pub blocked_applying: u64,
    /// Reads that waited for a body.
    pub blocked_invalid: u64,
    /// Reads that waited behind others.
    pub blocked_order: u64,
    /// Reads of sessions that had seen a later state than this one.
    pub blocked_behind: u64,
    /// Reads that passed one that waited.
    pub passed: u64,
    /// Reads that only the larger Δ of a disconnected replica permitted to answer.
    pub masked: u64,
}
