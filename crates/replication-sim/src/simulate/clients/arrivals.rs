//! Clients that wait until a commit has arrived at a replica, with its bodies (`--wait`): if the origin says
//! so, it must be true.

use std::collections::VecDeque;
use std::sync::Arc;

use lull_replication::origin::{Event, Origin, Strategy};
use lull_replication::types::{Change, ReplicaId, Sequence, Version};

use super::super::Situation;
use super::super::disk::Body;
use super::super::world::{OriginHost, ReplicaHost, World};
use super::Clients;

/// Waits at a time, at most: the oldest are dropped.
const WAITS: usize = 12;

/// A waiting client.
struct Wait {
    replica: usize,
    at: Sequence,
    changes: Arc<[Change]>,
    /// The replica was found to show it, with bodies still to come.
    shown: bool,
}

/// The waiting clients. When the origin crashes they ask again.
#[derive(Default)]
pub(super) struct Waits(VecDeque<Wait>);

/// Events of the origin that may begin or end a wait.
#[derive(Default)]
pub(in super::super) struct News {
    committed: Vec<Sequence>,
    of: Vec<ReplicaId>,
}

impl News {
    pub(in super::super) fn add(&mut self, event: &Event) {
        match event {
            Event::Acknowledged { sequence, .. } => self.committed.push(*sequence),
            Event::Progress { replica, .. } | Event::Arrived(replica) => self.of.push(*replica),
            _ => {}
        }
    }
}

impl Wait {
    fn is_over(&mut self, machine: &Origin<Body>) -> bool {
        let replica = ReplicaId(self.replica as u32);
        if machine.progress(replica).is_none_or(|(committed, _)| committed < self.at) {
            return false;
        }
        let has = |change: &Change| machine.has_arrived(replica, &change.path, self.at);
        let arrived = self.changes.iter().all(has);
        self.shown |= !arrived;
        arrived
    }

    /// Versions whose bodies the replica must have by then: those that are current, were pushed to it, and
    /// were not discarded.
    fn promised(&self, origin: &OriginHost, host: &ReplicaHost) -> Vec<(&Change, Version)> {
        let Some(machine) = &origin.machine else { return Vec::new() };
        // The pushes of other strategies depend on when they are asked.
        let pushes_all = matches!(origin.config.strategy, Strategy::Trip | Strategy::PushAll);
        if !pushes_all || host.config.quota.is_some() {
            return Vec::new();
        }
        let promised = self.changes.iter().filter_map(|change| {
            let version = Version { sequence: self.at, content: change.content? };
            let digest = version.content.digest;
            let is_current = machine.image().objects.get(&change.path) == Some(&version);
            (is_current && machine.has_body(&digest) && !host.excused.contains(&digest))
                .then_some((change, version))
        });
        promised.collect()
    }
}

impl World {
    /// Checks whether waits are over, after an event of the origin.
    pub(in super::super) fn look_for_arrivals(&mut self, news: &News) {
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
            let promised = wait.promised(origin, host);
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
            }
            false
        });
    }
}

impl Clients {
    /// Waits that have not ended, in words.
    pub(in super::super) fn unarrived(&self) -> impl Iterator<Item = String> {
        let tell = |wait: &Wait| format!("{} never came to replica {}", wait.at, wait.replica);
        self.waits.0.iter().map(tell)
    }

    /// Drops all waits.
    pub(in super::super) fn wait_for_nothing(&mut self) {
        self.waits.0.clear();
    }
}
