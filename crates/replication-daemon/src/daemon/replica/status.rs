//! What a replica tells of itself.

use core::time::Duration;
use std::sync::atomic::Ordering;

use lull_replication::replica::{Counters, Outage};
use lull_replication::time::LocalTime;
use serde::Serialize;

use super::ReplicaHandle;

/// A replica at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplicaStatus {
    /// Its number at the origin.
    pub replica: u32,
    /// Which life this is: another number after each start, from which everything is counted.
    pub life: u64,
    /// Whether the origin talks to it.
    pub connected: bool,
    /// Why the origin does not, if it has said so.
    pub refused: Option<String>,
    /// For how long there has been no connection, in seconds: since the last word of the origin, or since the
    /// start.
    pub away_seconds: Option<f64>,
    /// For how long of that all reads were answered, in seconds: until one had to wait for what is not
    /// here, or Δ of a disconnected replica was over.
    pub masked_seconds: Option<f64>,
    /// The last time since the start that a connection was lost and came back.
    pub last_outage: Option<OutageStatus>,
    /// The state that reads are answered from.
    pub sequence: u64,
    /// Commits that were received, and are not applied yet.
    pub buffered: u64,
    /// How stale the state may be at most, in seconds; none if nothing is known since the start.
    pub staleness_seconds: Option<f64>,
    /// How far the wall clock is ahead of the origin's, in seconds: at least, and at most.
    pub skew_seconds: Option<(f64, f64)>,
    /// Objects.
    pub objects: u64,
    /// Those whose bodies are here.
    pub valid_objects: u64,
    /// The bytes of all objects.
    pub bytes: u64,
    /// Those that are here.
    pub valid_bytes: u64,
    /// Bodies of the commits that were received and are not applied yet.
    pub buffered_bodies: u64,
    /// Those that are here.
    pub buffered_valid_bodies: u64,
    /// The bytes of all of these bodies.
    pub buffered_bytes: u64,
    /// Those that are here, with the pieces of bodies that are under way.
    pub buffered_valid_bytes: u64,
    /// Whether the disk had no room within the last minute: reads of newer state wait until it has.
    pub disk_full: bool,
    /// Reads that wait.
    pub waiting: u64,
    /// Bytes sent to the origin since the start: acknowledgements, pings, and what reads ask for.
    pub control_bytes: u64,
    /// Bytes of bodies that reads waited for, since the start.
    pub demand_bytes: u64,
    /// Bytes of bodies that came in the background, since the start.
    pub speculative_bytes: u64,
    /// Demand reads that were sent, since the start.
    pub demands: u64,
    /// Reads that were answered under the larger Δ only, since the start.
    pub masked: u64,
    /// Bodies that were found missing, since the start.
    pub missing: u64,
}

/// A time without a connection that is over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OutageStatus {
    /// How long ago it began, in seconds: with the last word of the origin.
    pub began_seconds_ago: f64,
    /// How long it lasted, in seconds.
    pub lasted_seconds: f64,
    /// For how long of that all reads were answered, in seconds.
    pub masked_seconds: f64,
}

impl OutageStatus {
    fn of(outage: Outage, now: LocalTime) -> Self {
        OutageStatus {
            began_seconds_ago: now.since(outage.began).as_secs_f64(),
            lasted_seconds: outage.ended.since(outage.began).as_secs_f64(),
            masked_seconds: outage.masked.as_secs_f64(),
        }
    }
}

impl ReplicaHandle {
    /// What there is to tell.
    pub fn status(&self) -> ReplicaStatus {
        let replica = self.replica().0;
        let seconds = |nanos: i64| nanos as f64 / 1e9;
        self.0.with(|core, now| {
            let new = core.machine.take_counters();
            add(&mut core.counters, new);
            let machine = &core.machine;
            let stock = machine.stock();
            let (all, lacking) = machine.buffered_bodies();
            let pieces = self.0.arriving.load(Ordering::Relaxed).min(lacking.bytes.0);
            let skew = machine.skew(now.local);
            let away = machine.away_since().map(|at| now.local.since(at).as_secs_f64());
            ReplicaStatus {
                replica,
                life: machine.image().incarnation.0,
                connected: machine.is_connected(),
                refused: machine.refusal().map(|why| why.to_string()),
                away_seconds: away,
                masked_seconds: away.map(|_| machine.masked(now.local).as_secs_f64()),
                last_outage: core.outage.map(|outage| OutageStatus::of(outage, now.local)),
                sequence: machine.position().0,
                buffered: machine.received().0.saturating_sub(machine.position().0),
                staleness_seconds: machine.staleness(now.local).as_ref().map(Duration::as_secs_f64),
                skew_seconds: skew.map(|skew| (seconds(skew.least), seconds(skew.most))),
                objects: stock.objects,
                valid_objects: stock.valid_objects,
                bytes: stock.bytes.0,
                valid_bytes: stock.valid_bytes.0,
                buffered_bodies: all.bodies,
                buffered_valid_bodies: all.bodies - lacking.bodies,
                buffered_bytes: all.bytes.0,
                buffered_valid_bytes: all.bytes.0 - lacking.bytes.0 + pieces,
                disk_full: machine.is_disk_full(now.local),
                waiting: machine.waiting() as u64,
                control_bytes: self.0.said.load(Ordering::Relaxed),
                demand_bytes: self.0.received[0].load(Ordering::Relaxed),
                speculative_bytes: self.0.received[1].load(Ordering::Relaxed),
                demands: core.counters.demands,
                masked: core.counters.masked,
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
