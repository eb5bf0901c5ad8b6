//! Clients that wait until a commit has arrived at a replica, with its bodies (`--wait`): if the origin says
//! so, it must be true.

use std::collections::VecDeque;
use std::sync::Arc;

use lull_replication::origin::{Event, Origin, Strategy};
use lull_replication::subscription::{Pattern, Subscription};
use lull_replication::types::{Change, ReplicaId, Sequence, Version};

use lull_sim::random::Random;

use super::super::durable::Body;
use super::super::hosts::{OriginHost, ReplicaHost};
use super::Clients;

/// A waiting client.
pub(in super::super) struct Wait {
    pub(in super::super) replica: usize,
    pub(in super::super) at: Sequence,
    pub(in super::super) changes: Arc<[Change]>,
    /// The replica was found to show it, with bodies still to come.
    pub(in super::super) shown: bool,
}

/// The waiting clients. When the origin crashes they ask again.
#[derive(Default)]
pub(in super::super) struct Waits(pub(in super::super) VecDeque<Wait>);

/// Events of the origin that may begin or end a wait.
#[derive(Default)]
pub(in super::super) struct OriginEvents {
    pub(in super::super) committed: Vec<Sequence>,
    pub(in super::super) of: Vec<ReplicaId>,
}

impl OriginEvents {
    pub(in super::super) fn add(&mut self, event: &Event) {
        match event {
            Event::Acknowledged { sequence, .. } => self.committed.push(*sequence),
            Event::Progress { replica, .. } | Event::Arrived(replica) => self.of.push(*replica),
            _ => {}
        }
    }
}

impl Wait {
    pub(in super::super) fn is_over(&mut self, machine: &Origin<Body>) -> bool {
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
    pub(in super::super) fn promised(
        &self,
        origin: &OriginHost,
        host: &ReplicaHost,
    ) -> Vec<(&Change, Version)> {
        let Some(machine) = &origin.machine else { return Vec::new() };
        // The pushes of other strategies, and over links with a price, depend on when they are asked.
        let pushes_all = matches!(origin.config.strategy, Strategy::Trip | Strategy::PushAll);
        let has_price = host.config.bytes_per_read.is_some();
        if !pushes_all || has_price || host.config.quota.is_some() {
            return Vec::new();
        }
        let only = machine.subscription(ReplicaId(self.replica as u32));
        let is_taken = |change: &&Change| only.is_none_or(|only| only.has(&change.path));
        let promised = self.changes.iter().filter(is_taken).filter_map(|change| {
            let version = Version { sequence: self.at, content: change.content? };
            let digest = version.content.digest;
            let is_current = machine.image().objects.get(&change.path) == Some(&version);
            (is_current && machine.has_body(&digest) && !host.excused.contains(&digest))
                .then_some((change, version))
        });
        promised.collect()
    }
}

impl Clients {
    /// The names that a replica takes in a life: mostly all.
    pub(in super::super) fn subscription(
        &self,
        seed: u64,
        replica: usize,
        life: u32,
    ) -> Subscription {
        // Drawn separately, so that the rest of a run is the same with and without it.
        let drawn = seed ^ 0x6f6e_6c79 ^ (replica as u64) << 40 ^ u64::from(life) << 48;
        let mut random = Random::new(drawn);
        if random.below(4) > 0 {
            return Subscription::default();
        }
        if random.below(4) == 0 {
            // As behind a metered link.
            return Subscription::nothing();
        }
        let some = self.paths.iter().filter(|_| random.below(2) == 0);
        let patterns = some.map(|path| Pattern::new(path.as_bytes()).expect("a path is one"));
        Subscription::new(patterns.collect()).expect("there are few names")
    }

    /// Waits that have not ended, in words.
    pub(in super::super) fn unarrived(&self) -> impl Iterator<Item = String> {
        let describe = |wait: &Wait| format!("{} never came to replica {}", wait.at, wait.replica);
        self.waits.0.iter().map(describe)
    }

    /// Drops all waits.
    pub(in super::super) fn drop_waits(&mut self) {
        self.waits.0.clear();
    }
}
