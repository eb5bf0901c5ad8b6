//! Relays among the replicas: some replicas get all from them, and not from the origin.

use lull_replication::message::{Frame, Session, ToOrigin};
use lull_replication::origin::{self, ReadsPerWriteAndByte, Strategy};
use lull_replication::relay::Relay;
use lull_replication::replica::Replica;
use lull_replication::time::Reading;
use lull_replication::types::{Digest, Incarnation, ReplicaId};
use lull_sim::random::Random;

use super::clock::MS;
use super::durable::Body;
use super::hosts::{OriginHost, ReplicaHost};
use super::serve::Consequences;
use super::turns::Turns;
use super::world::{Event, World};
use super::{Options, Situation, Topology};

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

impl World {
    /// The replicas that a relay serves, or the origin.
    pub(super) fn served_by(&self, parent: Option<usize>) -> Vec<usize> {
        let hosts = self.replicas.iter().enumerate();
        hosts.filter(|(_, host)| host.parent == parent).map(|(at, _)| at).collect()
    }

    /// Does something with a relay.
    fn with_relay<T>(
        &mut self,
        relay: usize,
        call: impl FnOnce(&mut Relay<Body>, &mut Replica<Body>, Reading) -> T,
    ) -> Option<T> {
        let host = &mut self.replicas[relay];
        let now = host.clock.read(self.now);
        let (Some(machine), Some(replica)) = (&mut host.relay, &mut host.machine) else {
            return None;
        };
        Some(call(machine, replica, now))
    }

    fn pump_both(&mut self, relay: usize) {
        self.pump_replica(relay);
        self.pump_relay(relay);
    }

    /// A message of a child arrives.
    pub(super) fn deliver_to_relay(&mut self, relay: usize, child: usize, frame: Frame<ToOrigin>) {
        let id = ReplicaId(child as u32);
        let is_hello = matches!(frame.message, ToOrigin::Hello { .. });
        self.with_relay(relay, |machine, replica, now| {
            if is_hello {
                machine.handle_hello(now, replica, (id, Digest::default()), frame);
            } else {
                machine.handle_child(now, replica, id, frame);
            }
        });
        self.pump_both(relay);
    }

    /// A relay notices that connections of a child have ended.
    pub(super) fn relay_loses(
        &mut self,
        relay: usize,
        child: usize,
        gone: Vec<(Incarnation, u32)>,
    ) {
        self.with_relay(relay, |machine, replica, now| {
            for (life, connection) in gone {
                let session = Session { replica: life, connection, ..Session::default() };
                machine.handle_disconnected(now, replica, ReplicaId(child as u32), session);
            }
        });
        self.pump_both(relay);
    }

    /// A replica has joined again.
    pub(super) fn join_at_relay(&mut self, child: usize) {
        if let Some(relay) = self.replicas[child].parent {
            self.with_relay(relay, |machine, _, now| {
                machine.handle_joined(now, ReplicaId(child as u32));
            });
        }
    }

    /// The connections to a relay that has stopped are closed.
    pub(super) fn stop_relay(&mut self, relay: usize) {
        self.replicas[relay].relay = None;
        self.replicas[relay].relay_timer = None;
        for child in self.served_by(Some(relay)) {
            self.close_child(child);
        }
    }

    fn close_child(&mut self, child: usize) {
        let link = &mut self.replicas[child].link;
        link.at_origin = None;
        link.at_origin_before.clear();
        link.demanded = Turns::default();
        if let Some(connection) = link.at_replica {
            let delay = self.random_delay(50 * MS);
            self.after(delay, Event::DownAtReplica { replica: child, connection });
        }
    }

    pub(super) fn settle_relay(&mut self, relay: usize) {
        let change = self.with_relay(relay, |machine, replica, now| {
            let before = machine.serves();
            machine.settle(now, replica);
            (before, machine.serves())
        });
        if change == Some((true, false)) {
            self.situations.add(Situation::RelayCut);
        }
    }

    /// Carries out the requests of a relay for its children, until there are no more.
    pub(super) fn pump_relay(&mut self, relay: usize) {
        if self.replicas[relay].relay.is_none() {
            return;
        }
        let closed = self.with_relay(relay, |machine, _, _| {
            while machine.origin().poll_garbage().is_some() {}
            let events = core::iter::from_fn(|| machine.poll_event());
            let closed = events.filter_map(|event| match event {
                origin::Event::Close(child) => Some(child.0 as usize),
                _ => None,
            });
            closed.collect::<Vec<_>>()
        });
        closed.into_iter().flatten().for_each(|child| self.close_child(child));
        self.count_relay(relay);
        let mut new = Consequences::default();
        for child in self.served_by(Some(relay)) {
            self.serve(child, &mut new);
        }
        let Consequences { events, missing } = new;
        for (at, event) in events {
            self.at(at, event);
        }
        for digest in &missing {
            self.with_relay(relay, |machine, replica, now| {
                machine.handle_missing(now, replica, digest);
            });
        }
        self.set_relay_timer(relay);
        if !missing.is_empty() {
            // The consequences; each body is found missing once.
            self.pump_both(relay);
        }
    }

    /// Notes what has happened at a relay.
    fn count_relay(&mut self, relay: usize) {
        let is_below = self.replicas[relay].parent.is_some();
        let seen = self.with_relay(relay, |machine, _, _| {
            (machine.origin().take_counters(), machine.serves() && is_below)
        });
        let Some((counters, serves_below)) = seen else { return };
        self.situations.count(Situation::RelayFetched, counters.held);
        self.situations.count(Situation::RelayCompared, counters.resyncs);
        self.situations.count(Situation::RelayOfRelay, u64::from(serves_below));
        self.situations.of_origin(&counters);
    }

    fn set_relay_timer(&mut self, relay: usize) {
        let has_more = self.with_relay(relay, |machine, _, _| machine.origin().has_more());
        let host = &mut self.replicas[relay];
        if has_more == Some(true) && host.relay_timer.is_none() {
            let (at, epoch) = (self.now + MS / 10, host.epoch);
            host.relay_timer = Some(at);
            self.at(at, Event::FreeRelay { relay, epoch });
        }
    }

    /// One of its connections accepts more, or it goes on with a large commit.
    pub(super) fn free_relay(&mut self, relay: usize, epoch: u32) {
        let host = &mut self.replicas[relay];
        if host.epoch != epoch {
            return;
        }
        if host.relay_timer.is_some_and(|at| at <= self.now) {
            host.relay_timer = None;
            self.with_relay(relay, |machine, replica, now| {
                if machine.origin().has_more() {
                    machine.go_on(now, replica);
                }
            });
        }
        self.pump_both(relay);
    }
}
