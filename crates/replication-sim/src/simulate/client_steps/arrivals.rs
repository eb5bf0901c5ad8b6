//! Waits for a commit at a replica.

use std::sync::Arc;

use lull_replication::types::ReplicaId;

use super::super::Situation;
use super::super::clients::{OriginEvents, Wait};
use super::super::world::World;

/// Waits at a time, at most: the oldest are dropped.
const WAITS: usize = 12;

impl World {
    /// Checks whether waits are over, after an event of the origin.
    pub(in super::super) fn look_for_arrivals(&mut self, news: &OriginEvents) {
        if self.options.fault.is_some() {
            return;
        }
        let World { origin, replicas, clients, more_random: random, situations, stuck, .. } = self;
        let Some(machine) = &origin.machine else { return };
        let waits = &mut clients.waits.0;
        for &at in &news.committed {
            // A bound of the log may have removed it immediately.
            if random.below(3) == 0
                && let Some(entry) = machine.image().entry(at)
            {
                let replica = random.below(replicas.len() as u64) as usize;
                let changes = Arc::clone(&entry.commit.changes);
                waits.push_back(Wait { replica, at, changes, shown: false });
            }
        }
        while waits.len() > WAITS {
            waits.pop_front();
        }
        if news.committed.is_empty() && news.of.is_empty() {
            return;
        }
        waits.retain_mut(|wait| {
            // An overwritten body is not pending any more.
            let is_told =
                !news.committed.is_empty() || news.of.contains(&ReplicaId(wait.replica as u32));
            if !is_told || !wait.is_over(machine) {
                return true;
            }
            let (host, at) = (&replicas[wait.replica], wait.at);
            let image = &host.disk.image;
            let mut is_there = image.position.is_some_and(|here| here.sequence >= at);
            let promised = wait.promised(origin, replicas);
            for (change, version) in &promised {
                let here = image.objects.get(&change.path);
                is_there &= here.is_some_and(|object| object.version == *version)
                    && host.disk.body(&version.content.digest).is_some();
            }
            if !is_there {
                let replica = wait.replica;
                stuck.push(format!("{at} was said to be at replica {replica}, and was not"));
            }
            if !promised.is_empty() {
                situations.add(Situation::Arrived);
                situations.count(Situation::ArrivedLater, u64::from(wait.shown));
                situations.count(Situation::ArrivedBelow, u64::from(host.parent.is_some()));
            }
            false
        });
    }
}
