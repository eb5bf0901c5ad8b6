//! The status of an origin.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use lull_replication::origin::Counters;
use lull_replication::subscription::Subscription;
use lull_replication::time::Reading;
use lull_replication::types::{ReplicaId, Sequence};
use serde::Serialize;

use super::core::Core;
use super::{OriginHandle, lock};
use crate::daemon::reads_per_gb;
use crate::shared_log::LogStatus;

/// The status of an origin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OriginStatus {
    /// Which life this is: another number after each start. Everything is counted from the start.
    pub life: u64,
    /// The last state.
    pub sequence: u64,
    /// The log begins after this state: rollbacks reach back to it.
    pub log_after: u64,
    /// Bytes of overwritten and deleted bodies that are kept for rollbacks.
    pub overwritten_bytes: u64,
    /// Objects.
    pub objects: u64,
    /// The bytes of all of them.
    pub bytes: u64,
    /// Lost bodies: their objects cannot be read until they are published again.
    pub lost: u64,
    /// Whether the disk was full within the last minute: writes are refused until it has space.
    pub disk_full: bool,
    /// The address of the bucket for large bodies, if there is one.
    pub store: Option<String>,
    /// Why the bucket does not answer, if it is away: until it does, writes of large bodies are refused.
    pub store_away: Option<String>,
    /// The log that several origins share, if there is one.
    pub log: Option<LogStatus>,
    /// Whether the authority is being replaced.
    pub rotating: bool,
    /// Writes that wait for the disk.
    pub writing: u64,
    /// Bodies that were handed out to the background since the start.
    pub pushed: u64,
    /// Demand reads of replicas since the start.
    pub demands: u64,
    /// Writes since the start that replaced an older version in a queue.
    pub absorbed: u64,
    /// Re-syncs since the start.
    pub resyncs: u64,
    /// The replicas by name.
    pub replicas: Vec<PeerStatus>,
}

/// The origin's knowledge of a replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Whether it has joined and was not revoked.
    pub admitted: bool,
    /// Whether it is connected, here or to the relay.
    pub connected: bool,
    /// The name of the relay that serves it, and reports on it; none if the origin does.
    pub below: Option<String>,
    /// Whether it still needs a new certificate, because the authority is being replaced, or was.
    pub to_renew: bool,
    /// The state that the replica has to answer reads with, before the session-token key that was replaced
    /// with the authority is dropped. None if the key does not wait for this replica.
    pub to_reach: Option<u64>,
    /// It was not heard since the start of the origin, or since it joined. Its earlier state is unknown: it
    /// is behind, stale and away by at least the values here.
    pub never_connected: bool,
    /// The state that it answers reads with; none if it has not connected since the start.
    pub sequence: Option<u64>,
    /// Commits behind the last one. If it is `never_connected`, at least those since the start of the origin.
    pub lag: Option<u64>,
    /// The maximum staleness of its state, in seconds, by this machine's clock alone: it depends neither on
    /// the delay of its report nor on another clock. Before its first report of the state's time, this is the
    /// time since the start of the origin, which is a lower bound.
    pub staleness_seconds: Option<f64>,
    /// Whether it has not, so that its state may be staler.
    pub stale_at_least: bool,
    /// For how long the origin has not heard of it, in seconds, if it is not connected. If it is `never_connected`,
    /// at least the time since the start of the origin.
    pub silent_seconds: Option<f64>,
    /// How long at most it may have answered all reads meanwhile, in seconds: by its Δ. Reads that missed a
    /// body are not known here.
    pub served_while_disconnected_seconds: Option<f64>,
    /// How far its wall clock is ahead of this one, in seconds: at least, and at most. The range widens with
    /// the age of its last report, by as much as both clocks may have drifted apart.
    pub skew_seconds: Option<(f64, f64)>,
    /// Objects that it knows.
    pub objects: Option<u64>,
    /// Objects whose bodies it has.
    pub valid_objects: Option<u64>,
    /// The bytes of the objects that it knows.
    pub bytes: Option<u64>,
    /// Bytes of objects whose bodies it has.
    pub valid_bytes: Option<u64>,
    /// The patterns of names that it takes; none if it takes all.
    pub only: Vec<String>,
    /// Objects that it leaves out for that, folders included.
    pub unsubscribed_objects: Option<u64>,
    /// Their bytes, which were not transferred.
    pub unsubscribed_bytes: Option<u64>,
    /// Whether its link is metered: no body is sent before it is read.
    pub metered: bool,
    /// The price of its link: a gigabyte is worth being sent for this many reads. None if it has no price.
    pub reads_per_gb: Option<f64>,
    /// Bytes that were not transferred for that reason, by its last report, with those in transit.
    pub saved_bytes: Option<u64>,
    /// Bodies that wait for it; none if it was not connected since the start, because its stock is unknown
    /// then.
    pub queue: Option<u64>,
    /// Bytes sent since the start: invalidations and heartbeats.
    pub control_bytes: u64,
    /// Bodies that a read waited for.
    pub demand_bytes: u64,
    /// Bodies in the background.
    pub speculative_bytes: u64,
    /// The part of these that was sent at normal priority, to meet the deadline of a publication.
    pub urgent_bytes: u64,
    /// Whether bodies of a publication are sent at normal priority now: in the background they would miss its deadline.
    pub urgent: bool,
}

impl PeerStatus {
    /// The objects that it has or waits for: all but those that it leaves out.
    pub fn subscribed_objects(&self) -> Option<u64> {
        Some(self.objects?.saturating_sub(self.unsubscribed_objects.unwrap_or(0)))
    }

    /// The bytes of these.
    pub fn subscribed_bytes(&self) -> Option<u64> {
        Some(self.bytes?.saturating_sub(self.unsubscribed_bytes.unwrap_or(0)))
    }
}

/// The identity's knowledge of a replica.
struct KnownReplica {
    id: ReplicaId,
    name: String,
    admitted: bool,
    to_renew: bool,
}

impl OriginHandle {
    /// The current status.
    pub fn status(&self) -> OriginStatus {
        let (rotating, to_reach, known): (_, _, Vec<_>) = {
            let identity = lock(&self.0.identity);
            let all = identity.replicas().filter(|(id, ..)| !identity.is_for_receivers(*id));
            let all = all.map(|(id, name, admitted)| KnownReplica {
                id,
                name: name.to_owned(),
                admitted,
                to_renew: admitted && identity.is_behind(id),
            });
            (identity.is_rotating(), identity.to_reach(), all.collect())
        };
        self.0.with(|core, now| {
            let new = core.machine.take_counters();
            add(&mut core.counters, new);
            let machine = &core.machine;
            core.lost.retain(|digest| machine.is_lost(digest));
            let image = core.machine.image();
            let last = image.last().sequence;
            let names: BTreeMap<_, _> =
                known.iter().map(|known| (known.id, known.name.clone())).collect();
            let status = |known: KnownReplica| {
                let below = core.machine.relay_above(known.id);
                let below = below.and_then(|relay| names.get(&relay)).cloned();
                PeerStatus { below, ..status_of(core, now, known, to_reach) }
            };
            let replicas = known.into_iter().map(status);
            let replicas = replicas.collect();
            OriginStatus {
                life: image.incarnation.0,
                sequence: last.0,
                log_after: image.log_after().0,
                overwritten_bytes: core.machine.overwritten().0,
                objects: image.objects.len() as u64,
                bytes: core.machine.bytes().0,
                lost: core.lost.len() as u64,
                disk_full: core.is_disk_full(now.local),
                store: self.0.bodies.bucket(),
                store_away: self.0.bodies.away(),
                log: self.0.log.as_ref().map(|log| log.status()),
                rotating,
                writing: core.writes.len() as u64,
                pushed: core.counters.pushed,
                demands: core.counters.demands,
                absorbed: core.counters.absorbed,
                resyncs: core.counters.resyncs,
                replicas,
            }
        })
    }
}

/// The origin's knowledge of a replica. `to_reach`: the state that replicas have to reach before the replaced
/// session-token key is dropped.
fn status_of(
    core: &Core,
    now: Reading,
    known: KnownReplica,
    to_reach: Option<Sequence>,
) -> PeerStatus {
    let KnownReplica { id, name, admitted, to_renew } = known;
    let machine = &core.machine;
    let progress = machine.progress(id);
    let sent = core.sent.get(&id);
    let sent = |channel: usize| sent.map_or(0, |sent| sent[channel].load(Ordering::Relaxed));
    let connected = progress.is_some_and(|(_, connected)| connected);
    let report = machine.report(id).map(|(_, report)| report);
    // A replica that is not admitted is not waited for.
    let never_connected = admitted && progress.is_none();
    let is_known = admitted || progress.is_some();
    let away = machine.away(now, id).filter(|_| is_known);
    let staleness = machine.staleness(now, id);
    let stale_at_least = is_known && staleness.is_none();
    let least = stale_at_least.then(|| machine.stale_at_least(now, id));
    let nanos = |nanos: i64| nanos as f64 / 1e9;
    let only = machine.subscription(id);
    let metered = only.is_some_and(Subscription::is_nothing);
    let patterns = only.filter(|_| !metered).into_iter().flat_map(|only| only.patterns());
    let reads_per_gb = machine.bytes_per_read(id).map(reads_per_gb);
    let saves = metered || reads_per_gb.is_some();
    let saved = report.filter(|_| saves).map(|report| report.stock.missing().0);
    PeerStatus {
        name,
        admitted,
        connected,
        below: None,
        to_renew,
        to_reach: to_reach
            .filter(|at| admitted && progress.is_none_or(|(to, _)| to < *at))
            .map(|at| at.0),
        never_connected,
        staleness_seconds: staleness.or(least).map(|time| time.as_secs_f64()),
        stale_at_least,
        silent_seconds: away.map(|time| time.as_secs_f64()),
        served_while_disconnected_seconds: away.map(|time| {
            let lasts = report.and_then(|report| report.lasts);
            lasts.map_or(time, |lasts| lasts.min(time)).as_secs_f64()
        }),
        skew_seconds: machine.skew(now, id).map(|(least, most)| (nanos(least), nanos(most))),
        objects: report.map(|report| report.stock.objects),
        valid_objects: report.map(|report| report.stock.valid_objects),
        bytes: report.map(|report| report.stock.bytes.0),
        valid_bytes: report.map(|report| report.stock.valid_bytes.0),
        only: patterns.map(ToString::to_string).collect(),
        metered,
        reads_per_gb,
        saved_bytes: saved,
        unsubscribed_objects: report.map(|report| report.stock.unsubscribed_objects),
        unsubscribed_bytes: report.map(|report| report.stock.unsubscribed_bytes.0),
        sequence: progress.map(|(to, _)| to.0),
        lag: is_known.then(|| machine.lag(id)),
        queue: progress.map(|_| machine.waiting(id)),
        control_bytes: sent(0),
        demand_bytes: sent(1),
        speculative_bytes: sent(2),
        urgent_bytes: sent(3),
        urgent: machine.is_urgent(id),
    }
}

fn add(total: &mut Counters, new: Counters) {
    total.pushed += new.pushed;
    total.demands += new.demands;
    total.absorbed += new.absorbed;
    total.resyncs += new.resyncs;
}
