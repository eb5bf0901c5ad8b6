//! What an origin tells of itself.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::{OriginHandle, lock};
use crate::origin::Counters;

/// An origin at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OriginStatus {
    /// The last state.
    pub sequence: u64,
    /// The log begins after this one: rollbacks reach as far back.
    pub log_after: u64,
    /// Objects.
    pub objects: u64,
    /// The bytes of all of them.
    pub bytes: u64,
    /// Writes that wait for the disk.
    pub writing: u64,
    /// Bodies that were handed out to the background since the start.
    pub pushed: u64,
    /// Demand reads of replicas since the start.
    pub demands: u64,
    /// Writes since the start that took the place of an older version in a queue.
    pub absorbed: u64,
    /// Re-syncs since the start.
    pub resyncs: u64,
    /// The replicas by name.
    pub replicas: Vec<PeerStatus>,
}

/// What an origin knows of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Whether it has joined, and was not revoked.
    pub admitted: bool,
    /// Whether it is connected.
    pub connected: bool,
    /// The state that it answers reads with; none if it was not here since the start.
    pub sequence: Option<u64>,
    /// Commits behind the last one.
    pub lag: Option<u64>,
    /// Bodies that wait for it.
    pub queue: u64,
    /// Bytes sent by this connection: invalidations and heartbeats.
    pub control_bytes: u64,
    /// Bodies that a read waited for.
    pub demand_bytes: u64,
    /// Bodies in the background.
    pub speculative_bytes: u64,
}

impl OriginHandle {
    /// What there is to tell.
    pub fn status(&self) -> OriginStatus {
        let known: Vec<_> = {
            let identity = lock(&self.0.identity);
            let all = identity.replicas();
            all.map(|(id, name, admitted)| (id, name.to_owned(), admitted)).collect()
        };
        self.0.with(|core, _| {
            let new = core.machine.take_counters();
            add(&mut core.counters, new);
            let image = core.machine.image();
            let last = image.last().sequence;
            let replicas = known.into_iter().map(|(id, name, admitted)| {
                let progress = core.machine.progress(id);
                let link = core.links.get(&id);
                let sent = |channel: usize| {
                    link.map_or(0, |link| link.sent[channel].load(Ordering::Relaxed))
                };
                PeerStatus {
                    name,
                    admitted,
                    connected: progress.is_some_and(|(_, connected)| connected),
                    sequence: progress.map(|(to, _)| to.0),
                    lag: progress.map(|(to, _)| last.0.saturating_sub(to.0)),
                    queue: core.machine.waiting(id),
                    control_bytes: sent(0),
                    demand_bytes: sent(1),
                    speculative_bytes: sent(2),
                }
            });
            let replicas = replicas.collect();
            OriginStatus {
                sequence: last.0,
                log_after: image.log_after().0,
                objects: image.objects.len() as u64,
                bytes: image.objects.values().map(|version| version.content.size.0).sum(),
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

fn add(total: &mut Counters, new: Counters) {
    total.pushed += new.pushed;
    total.demands += new.demands;
    total.absorbed += new.absorbed;
    total.resyncs += new.resyncs;
}
