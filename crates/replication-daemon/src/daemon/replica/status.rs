//! The status of a replica.

use core::time::Duration;
use std::sync::atomic::Ordering;

use lull_replication::replica::{Counters, Outage};
use lull_replication::time::{LocalTime, Reading};
use lull_replication::token::Keyring;
use lull_replication::types::{ReplicaId, Sequence};
use serde::Serialize;

use super::{ReplicaHandle, lock};
use crate::daemon::reads_per_gb;

/// The status of a replica.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicaStatus {
    /// Its number at the origin.
    pub replica: u32,
    /// Which life this is: another number after each start. Everything is counted from the start.
    pub life: u64,
    /// Whether the origin has accepted its connection.
    pub connected: bool,
    /// Why the origin rejects it, if it does.
    pub refused: Option<String>,
    /// For how long there has been no connection, in seconds: since the last message of the origin, or since
    /// the start.
    pub disconnected_seconds: Option<f64>,
    /// How long of that all reads were answered, in seconds: until one had to wait for a missing body, or Δ
    /// of a disconnected replica was over.
    pub served_while_disconnected_seconds: Option<f64>,
    /// The last lost connection since the start that was restored.
    pub last_outage: Option<OutageStatus>,
    /// The state that reads are answered from.
    pub sequence: u64,
    /// Received commits that are not applied so far.
    pub buffered: u64,
    /// Upper bound of the state's staleness, in seconds; none if it is unknown since the start.
    pub staleness_seconds: Option<f64>,
    /// How far the wall clock is ahead of the origin's, in seconds: at least, and at most.
    pub skew_seconds: Option<(f64, f64)>,
    /// Objects.
    pub objects: u64,
    /// Objects whose bodies are here.
    pub valid_objects: u64,
    /// The bytes of all objects.
    pub bytes: u64,
    /// Bytes of objects whose bodies are here.
    pub valid_bytes: u64,
    /// The patterns of names that it takes; none if it takes all.
    pub only: Vec<PatternStatus>,
    /// Objects that it leaves out, folders included: no pattern matches them, and no read has fetched them.
    pub unsubscribed_objects: u64,
    /// Their bytes, which were not transferred.
    pub unsubscribed_bytes: u64,
    /// Whether the link is metered: no body comes before it is read.
    pub metered: bool,
    /// The price of the link: a gigabyte is worth being sent for this many reads. None if it has no price.
    pub reads_per_gb: Option<f64>,
    /// Bytes that were not transferred for that reason, with those in transit.
    pub saved_bytes: Option<u64>,
    /// Bodies of received commits that are not applied so far.
    pub buffered_bodies: u64,
    /// The part of these that is stored here.
    pub buffered_valid_bodies: u64,
    /// The bytes of all of these bodies.
    pub buffered_bytes: u64,
    /// Bytes that are here, with the received pieces of unfinished bodies.
    pub buffered_valid_bytes: u64,
    /// Whether the disk was full within the last minute: reads of newer state wait until it has space.
    pub disk_full: bool,
    /// Reads that wait.
    pub waiting: u64,
    /// Bytes sent to the origin since the start: acknowledgements, pings, and requests of reads.
    pub control_bytes: u64,
    /// Bytes of bodies that reads waited for, since the start.
    pub demand_bytes: u64,
    /// Bytes of bodies that came in the background, since the start.
    pub speculative_bytes: u64,
    /// Replicas that it exchanges pieces with; none if it does not share.
    pub neighbours: Option<u64>,
    /// Bytes of bodies that came from neighbours, since the start; none if it does not share.
    pub neighbour_bytes: Option<u64>,
    /// Bytes of bodies that were sent to neighbours, since the start.
    pub given_bytes: Option<u64>,
    /// Demand reads that were sent, since the start.
    pub demands: u64,
    /// Reads that only the larger Δ permitted to answer, since the start.
    pub reads_while_disconnected: u64,
    /// Bodies that were found missing, since the start.
    pub missing: u64,
}

/// A pattern of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PatternStatus {
    /// Its text.
    pub pattern: String,
    /// How many objects it matches, folders included.
    pub objects: u64,
}

/// A finished time without a connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OutageStatus {
    /// How long ago it began, in seconds: with the last message of the origin.
    pub began_seconds_ago: f64,
    /// How long it lasted, in seconds.
    pub lasted_seconds: f64,
    /// For how long of that all reads were answered, in seconds.
    pub served_seconds: f64,
}

impl OutageStatus {
    fn of(outage: Outage, now: LocalTime) -> Self {
        OutageStatus {
            began_seconds_ago: now.since(outage.began).as_secs_f64(),
            lasted_seconds: outage.ended.since(outage.began).as_secs_f64(),
            served_seconds: outage.masked.as_secs_f64(),
        }
    }
}

impl ReplicaHandle {
    /// The current status.
    pub fn status(&self) -> ReplicaStatus {
        let replica = self.replica().0;
        let sharing = self.0.sharing.as_ref();
        let seconds = |nanos: i64| nanos as f64 / 1e9;
        self.0.with(|core, now| {
            let new = core.machine.take_counters();
            add(&mut core.counters, new);
            let machine = &core.machine;
            let stock = machine.stock();
            let metered = machine.is_metered();
            let reads_per_gb = machine.bytes_per_read().map(reads_per_gb);
            let saves = metered || reads_per_gb.is_some();
            let patterns = machine
                .patterns()
                .filter(|_| !metered)
                .map(|(pattern, objects)| PatternStatus { pattern: pattern.to_string(), objects });
            let (all, lacking) = machine.buffered_bodies();
            let pieces = self.0.arriving.load(Ordering::Relaxed).min(lacking.bytes.0);
            let skew = machine.skew(now.local);
            let away = machine.away_since().map(|at| now.local.since(at).as_secs_f64());
            ReplicaStatus {
                replica,
                life: machine.image().incarnation.0,
                connected: machine.is_connected(),
                refused: machine.refusal().map(|why| why.to_string()),
                disconnected_seconds: away,
                served_while_disconnected_seconds: away
                    .map(|_| machine.masked(now.local).as_secs_f64()),
                last_outage: core.outage.map(|outage| OutageStatus::of(outage, now.local)),
                sequence: machine.position().0,
                buffered: machine.received().0.saturating_sub(machine.position().0),
                staleness_seconds: machine.staleness(now.local).as_ref().map(Duration::as_secs_f64),
                skew_seconds: skew.map(|skew| (seconds(skew.least), seconds(skew.most))),
                objects: stock.objects,
                valid_objects: stock.valid_objects,
                bytes: stock.bytes.0,
                valid_bytes: stock.valid_bytes.0,
                only: patterns.collect(),
                metered,
                reads_per_gb,
                saved_bytes: saves.then_some(stock.missing().0),
                unsubscribed_objects: stock.unsubscribed_objects,
                unsubscribed_bytes: stock.unsubscribed_bytes.0,
                buffered_bodies: all.bodies,
                buffered_valid_bodies: all.bodies - lacking.bodies,
                buffered_bytes: all.bytes.0,
                buffered_valid_bytes: all.bytes.0 - lacking.bytes.0 + pieces,
                disk_full: machine.is_disk_full(now.local),
                waiting: machine.waiting() as u64,
                control_bytes: self.0.control_bytes.load(Ordering::Relaxed),
                demand_bytes: self.0.received[0].load(Ordering::Relaxed),
                speculative_bytes: self.0.received[1].load(Ordering::Relaxed),
                neighbours: sharing.map(|one| one.neighbours().len() as u64),
                neighbour_bytes: sharing.map(|one| one.received.load(Ordering::Relaxed)),
                given_bytes: sharing.map(|one| one.sent.load(Ordering::Relaxed)),
                demands: core.counters.demands,
                reads_while_disconnected: core.counters.masked,
                missing: core.counters.missing,
            }
        })
    }
}

fn add(total: &mut Counters, new: Counters) {
    total.demands += new.demands;
    total.masked += new.masked;
    total.missing += new.missing;
}

impl ReplicaHandle {
    /// The replica's number at its origin.
    pub fn replica(&self) -> ReplicaId {
        lock(&self.0.identity).replica()
    }

    /// Makes and verifies session tokens, for now: keys are replaced with the authority.
    pub fn tokens(&self) -> Keyring {
        lock(&self.0.identity).keyring()
    }

    /// Upper bound of the state's staleness; none if it is unknown since the start.
    pub fn staleness(&self) -> Option<Duration> {
        self.0.with(|core, now| core.machine.staleness(now.local))
    }

    /// The time of its clocks.
    pub(crate) fn now(&self) -> Reading {
        self.0.clock.read()
    }

    /// The state that reads are answered from.
    pub fn position(&self) -> Sequence {
        self.0.with(|core, _| core.machine.position())
    }
}
