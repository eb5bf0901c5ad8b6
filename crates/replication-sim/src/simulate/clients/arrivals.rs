//! Clients that wait until a commit has arrived at a replica, with its bodies (`--wait`): if the origin says
//! so, it must be true.

use std::collections::VecDeque;
use std::sync::Arc;

use lull_replication::origin::{Event, Origin, Strategy};
use lull_replication::subscription::{Pattern, Subscription};
use lull_replication::types::{Change, Digest, ReplicaId, Sequence, Version};

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
        replicas: &[ReplicaHost],
    ) -> Vec<(&Change, Version)> {
        let host = &replicas[self.replica];
        let Some(machine) = &origin.machine else { return Vec::new() };
        // The pushes of other strategies, and over links with a price, depend on when they are asked.
        let pushes_all = matches!(origin.config.strategy, Strategy::Trip | Strategy::PushAll);
        let has_price = host.config.bytes_per_read.is_some();
        if !pushes_all || has_price || host.config.quota.is_some() {
            return Vec::new();
        }
        // A relay passes on what it gets, and keeps.
        let keeps_all = |host: &ReplicaHost| host.config.quota.is_none() && !host.took_some;
        if !host.parents.is_empty() && (host.took_some || !relays(replicas).all(keeps_all)) {
            return Vec::new();
        }
        let only = machine.subscription(ReplicaId(self.replica as u32));
        let is_taken = |change: &&Change| only.is_none_or(|only| only.has(&change.path));
        let promised = self.changes.iter().filter(is_taken).filter_map(|change| {
            let version = Version { sequence: self.at, content: change.content? };
            let digest = version.content.digest;
            let is_current = machine.image().objects.get(&change.path) == Some(&version);
            (is_current && machine.has_body(&digest) && !self.is_excused(replicas, &digest))
                .then_some((change, version))
        });
        promised.collect()
    }

    /// Whether a body may be missing at the replica, or at a relay, although its arrival was reported.
    fn is_excused(&self, replicas: &[ReplicaHost], digest: &Digest) -> bool {
        let host = &replicas[self.replica];
        host.excused.contains(digest)
            || !host.parents.is_empty()
                && relays(replicas).any(|relay| relay.excused.contains(digest))
    }
}

/// The relays, each of which may have been above a replica.
fn relays(replicas: &[ReplicaHost]) -> impl Iterator<Item = &ReplicaHost> {
    replicas.iter().filter(|host| host.is_relay)
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
    pub(in super::super) fn unarrived(
        &self,
        origin: &Origin<Body>,
        replicas: &[ReplicaHost],
    ) -> impl Iterator<Item = String> {
        // A relay that has lost a body, or never got it, waits until a read asks for it.
        let is_excused = |wait: &&Wait| {
            let current = |change: &&Change| {
                let version = origin.image().objects.get(&change.path);
                version.is_some_and(|version| version.sequence == wait.at)
            };
            let contents = wait.changes.iter().filter(current).filter_map(|change| change.content);
            let mut digests = contents.map(|content| content.digest);
            let lacks =
                |digest: Digest| relays(replicas).any(|relay| relay.disk.body(&digest).is_none());
            !replicas[wait.replica].parents.is_empty() && digests.any(lacks)
        };
        let waits = self.waits.0.iter().filter(move |wait| !is_excused(wait));
        waits.map(|wait| {
            let id = ReplicaId(wait.replica as u32);
            let (known, above) = (origin.progress(id), origin.relay_above(id));
            format!("{} never came to replica {id:?}: {known:?} below {above:?}", wait.at)
        })
    }

    /// Drops all waits.
    pub(in super::super) fn drop_waits(&mut self) {
        self.waits.0.clear();
    }
}
