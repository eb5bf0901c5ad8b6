//! What goes into a replica and comes out of it, beside messages.

use core::time::Duration;
use std::sync::Arc;

use lull_cc::Bytes;

use super::{Order, Outage, Skew, Staleness, Step};
use crate::lane::Lanes;
use crate::message::Refusal;
use crate::path::Path;
use crate::shelf::BodyEffect;
use crate::types::ReplicaId;

/// What a replica is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its number at the origin.
    pub replica: ReplicaId,
    /// What it promises about staleness.
    pub staleness: Staleness,
    /// Whether invalidations are applied as they come while the origin is connected, and not up to Δ
    /// later: what all strategies but TRIP do, and TRIP with Δ = 0 (SSR §6.3.1, §6.3.2.2). None: as the
    /// origin says. For how long reads are answered is Δ all the same.
    pub eager: Option<bool>,
    /// Whether commits are applied without bodies that were overwritten, as one step, once the newer ones
    /// are here (ADR 7). In the paper an invalidation waits for its own body, for up to Δ.
    pub overtake: bool,
    /// Whether a read may pass one that waits.
    pub order: Order,
    /// Time between pings.
    pub ping: Duration,
    /// Without a byte from the origin on the control channel for so long the connection is given up.
    pub silence: Duration,
    /// How long a body that was overwritten can still be fetched.
    pub grace: Duration,
    /// Bytes of bodies to keep, if there is a limit. For as long as a newer body waits for its invalidation
    /// the one that it replaces is kept beyond that.
    pub quota: Option<Bytes>,
    /// After a full disk it is tried again in so long, and so is a demand read that the origin had no
    /// body for. What nobody waits for is tried again when the disk was not full for
    /// [`QUIET`](Config::QUIET) times as long.
    pub retry: Duration,
    /// Demand reads under way at a time.
    pub demands: usize,
    /// Bytes of their bodies, which may be in memory until the disk has them: a share of this for each lane, of
    /// which one body is fetched however large it is.
    pub demand_bytes: Bytes,
    /// Memory for commits that wait to be applied. From a half of it on they are applied as they come, without
    /// their bodies. When it is full, because the disk takes nothing, the connection is given up, and there is no
    /// new one before half of it is free. One more commit is taken in, however large.
    pub buffer: Bytes,
    /// By which lane a body comes. Only a simulation has others than the protocol.
    pub lanes: Lanes,
    /// For so long a body that was asked for is still wanted when nobody waits for it any more: who has given
    /// up may ask again.
    pub linger: Duration,
    /// Bodies that are settled in one call, at most, after a step that has many: others have their turn between.
    pub slice: usize,
    /// Changes of a step that are taken in one call, at most, while the step is made and when it is shown: others have
    /// their turn between.
    pub step_slice: usize,
    /// Time between reports to the origin of how this replica is; none: no reports.
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
            // A half is 200,000 commits of one file: twice as many as the origin's log keeps, so what is given up
            // there and then would soon have to be compared anyway.
            buffer: Bytes(128 << 20),
            lanes: Lanes::default(),
            linger: Duration::from_secs(10),
            slice: 512,
            step_slice: 256,
            report: Some(Duration::from_secs(2)),
        }
    }
}

/// What the replica asks its stores to do. Each is answered; steps come one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect<P> {
    /// Of the store of bodies: answered by [`Replica::handle_stored`](super::Replica::handle_stored) and
    /// [`Replica::handle_dropped`](super::Replica::handle_dropped).
    Body(BodyEffect<P>),
    /// A durable step of the state: answered by
    /// [`Replica::handle_committed`](super::Replica::handle_committed).
    Commit(Arc<Step>),
}

/// What the replica tells whoever runs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The origin talks to this replica.
    Connected {
        /// The time without a connection that this has ended; none if it is the first one since the start.
        after: Option<Outage>,
    },
    /// Give up the connections: the origin is silent, or does not keep to the protocol; or there is no room for
    /// more commits that wait.
    Close,
    /// The origin does not want to talk to this replica.
    Refused(Refusal),
    /// The wall clocks of origin and replica are further apart than maxSkew. Nothing is broken by
    /// that: leases are counted from echoes until they are closer.
    SkewExceeded(Skew),
    /// Get a new certificate: the origin is replacing its authority.
    Renew,
    /// There is no room: bodies are discarded, and reads that need newer state wait. Told once for as
    /// long as that lasts.
    DiskFull,
    /// The origin has lost the body of this object, and nobody can read it here until it is published
    /// there again. Told once.
    Lost(Path),
}

/// Counts since they were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Commits applied because their bodies were there (§6.2.1 rule 2.1).
    pub with_bodies: u64,
    /// Commits applied because their deadline had come (rule 2.2).
    pub at_deadline: u64,
    /// Commits applied as they came: by an eager replica, before anything told how old they are, or
    /// because there is no room for what they lack, or for them to wait.
    pub at_once: u64,
    /// Commits applied because a later demand body, or a session's token, asked for it (rule 2.3).
    pub on_demand: u64,
    /// Commits applied without their bodies, with later ones: no object became invalid by all of them.
    pub overtaken: u64,
    /// Commits with several changes.
    pub transactions: u64,
    /// Bodies that came before their invalidation, and were kept.
    pub early: u64,
    /// Bodies that made an object valid after its invalidation was applied.
    pub late: u64,
    /// Bodies that were out of date, and were discarded.
    pub stale: u64,
    /// Bodies of which the content was not what had been announced.
    pub corrupt: u64,
    /// Speculative bodies for which there was no room.
    pub refused: u64,
    /// Objects given up for want of room.
    pub evicted: u64,
    /// Bodies that a read found missing.
    pub missing: u64,
    /// Commits whose bodies were here already, under another name.
    pub deduplicated: u64,
    /// Bodies that waited for their own deletion before they were stored.
    pub dedup_waits: u64,
    /// Connections that were given up because there was no room for more commits that wait.
    pub overfull: u64,
    /// Invalidations that were overdue when the connection came back, and would not have been without.
    pub overdue: u64,
    /// Re-syncs that were applied, without the one that a replica begins with.
    pub resyncs: u64,
    /// Messages of earlier connections.
    pub stale_frames: u64,
    /// Heartbeats that counted by the wall clock.
    pub certified: u64,
    /// Heartbeats that counted by their echo.
    pub uncertified: u64,
    /// Demand reads that were sent.
    pub demands: u64,
    /// Those that were withdrawn, because nobody waited any more.
    pub withdrawn: u64,
    /// Bodies that came all the same.
    pub withdrawn_late: u64,
    /// Objects that reads had come for again before the end of what was withdrawn.
    pub awaited_again: u64,
    /// Reads that waited because the lease had run out.
    pub blocked_stale: u64,
    /// Reads that waited because there was none yet.
    pub blocked_unheard: u64,
    /// Reads that waited for an invalidation to be applied.
    pub blocked_applying: u64,
    /// Reads that waited for a body.
    pub blocked_invalid: u64,
    /// Reads that waited behind others.
    pub blocked_order: u64,
    /// Reads of sessions that had seen later state than was here.
    pub blocked_behind: u64,
    /// Reads that passed one that waited.
    pub passed: u64,
    /// Reads that were answered under the larger Δ of a disconnected replica only.
    pub masked: u64,
}
