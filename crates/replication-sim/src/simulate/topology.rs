//! Which machine serves which replica: in a tree, some replicas get all from relays, and not from the origin.

use lull_replication::origin::{self, ReadsPerWriteAndByte, Strategy};
use lull_replication::relay::Relay;
use lull_replication::replica::Replica;
use lull_replication::time::Reading;
use lull_sim::random::Random;

use super::durable::Body;
use super::hosts::{OriginHost, ReplicaHost};
use super::{Options, Topology};

/// Relays in a tree. They come before the other replicas.
const RELAYS: usize = 2;

/// How many replicas there are, and the relay above each.
pub(super) fn topology(options: &Options, count: usize) -> (usize, Vec<Option<usize>>) {
    match options.topology {
        Topology::Star => (count, vec![None; count]),
        Topology::Tree => {
            let mut random = Random::new(options.seed ^ 0x7472_6565);
            let leaves = 2 + random.below(3) as usize;
            let chain = (random.below(4) == 0).then_some(0);
            let above = (0..leaves).map(|at| Some(at % RELAYS));
            let all = [None, chain].into_iter().chain(above).collect();
            (RELAYS + leaves, all)
        }
    }
}

/// Gives each replica its parent.
pub(super) fn arrange(replicas: &mut [ReplicaHost], parents: &[Option<usize>]) {
    for (at, (host, parent)) in replicas.iter_mut().zip(parents).enumerate() {
        host.parent = *parent;
        host.is_relay = parents.contains(&Some(at));
        if parent.is_some() {
            // A relay in a chain finds only those above it.
            let relays = if host.is_relay { at } else { RELAYS };
            host.parents = (0..relays).map(Some).chain([None]).collect();
        }
    }
}

/// A relay starts with its replica.
pub(super) fn start(
    options: &Options,
    origin: &OriginHost,
    now: Reading,
    replica: &mut Replica<Body>,
) -> Relay<Body> {
    // In order, an invalidation would wait for bodies that the relay may not have.
    let strategy = match origin.config.strategy {
        Strategy::DemandOnly => Strategy::DemandOnly,
        _ => Strategy::Trip,
    };
    let config = origin::Config { strategy, ..origin.config };
    let mut relay = Relay::new(now, config, Box::new(ReadsPerWriteAndByte), replica);
    relay.seed_fault(options.fault);
    relay
}
