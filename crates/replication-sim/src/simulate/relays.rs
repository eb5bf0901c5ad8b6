//! The relays among the replicas.

use lull_replication::message::{Frame, Session, ToOrigin};
use lull_replication::origin;
use lull_replication::relay::Relay;
use lull_replication::replica::Replica;
use lull_replication::time::Reading;
use lull_replication::types::{Digest, Incarnation, ReplicaId};

use super::Situation;
use super::clock::MS;
use super::durable::Body;
use super::serve::Consequences;
use super::turns::Turns;
use super::world::{Event, World};

impl World {
    /// The replicas that a relay serves, or the origin.
    pub(super) fn served_by(&self, parent: Option<usize>) -> Vec<usize> {
        let hosts = self.replicas.iter().enumerate();
        hosts.filter(|(_, host)| host.parent == parent).map(|(at, _)| at).collect()
    }

    /// Does something with a relay.
    pub(super) fn with_relay<T>(
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

    /// The parent of a replica does not answer: it turns to the next one, if it knows others.
    pub(super) fn find_parent(&mut self, replica: usize) {
        let host = &mut self.replicas[replica];
        // At the end each stays where it is.
        let Some(at) = host.parents.iter().position(|one| *one == host.parent) else { return };
        if self.calm {
            return;
        }
        let former = host.parent;
        host.parent = host.parents[(at + 1) % host.parents.len()];
        host.has_moved = true;
        for session in host.link.leave_parent() {
            let delay = self.random_delay(200 * MS);
            self.after(delay, Event::Left { parent: former, replica, session });
        }
    }

    /// A replica that has another parent is gone from its former one, unless it is back there.
    pub(super) fn has_left(
        &mut self,
        parent: Option<usize>,
        child: usize,
        (life, connection): (Incarnation, u32),
    ) {
        let session = Session { replica: life, connection, ..Session::default() };
        if let Some(relay) = parent {
            return self.relay_loses(relay, child, vec![(life, connection)]);
        }
        self.with_origin(|machine, _| {
            machine.handle_disconnected(ReplicaId(child as u32), session);
        });
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

    pub(super) fn update_relay(&mut self, relay: usize) {
        let change = self.with_relay(relay, |machine, replica, now| {
            let before = machine.serves();
            machine.handle_replica(now, replica);
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
