//! Carries out the requests of the machines: disks, messages, timers.

use core::time::Duration;
use std::collections::BTreeSet;

use lull_replication::message::{Refusal, ToOrigin};
use lull_replication::origin::Refused;
use lull_replication::types::{Digest, Payload, ReplicaId};
use lull_replication::{origin, replica};
use lull_sim::random::Random;

use super::clients::OriginEvents;
use super::clock::{MS, TrueTime};
use super::durable::{Body, Operation};
use super::hosts::ReplicaHost;
use super::network::Way;
use super::turns::Sending;
use super::world::{Event, World};
use super::{Situation, Situations};

/// The consequences of a machine's requests, to be added at the end.
#[derive(Default)]
struct Consequences {
    events: Vec<(TrueTime, Event)>,
    /// Bodies to be sent that are not stored.
    missing: Vec<Digest>,
}

/// One body in this many arrives corrupted, and one is cut off.
const DAMAGED: u64 = 200;

/// The result of a body in transfer.
fn damaged(
    body: Option<Payload<Body>>,
    random: &mut Random,
    situations: &mut Situations,
    excused: &mut BTreeSet<Digest>,
) -> Option<Payload<Body>> {
    let mut body = body?;
    match random.below(DAMAGED) {
        0 => {
            situations.add(Situation::BrokenOff);
            excused.insert(body.digest);
            return None;
        }
        1 => {
            situations.add(Situation::Corrupted);
            excused.insert(body.digest);
            // The receiver computes the hash again.
            body.digest.0[0] ^= 1;
        }
        _ => {}
    }
    Some(body)
}

impl World {
    /// Carries out the origin's requests until there are no more.
    pub(super) fn pump_origin(&mut self) {
        if self.origin.machine.is_none() {
            return;
        }
        let mut new = Consequences::default();
        self.begin_at_origin(&mut new);
        let news = self.take_events_of_origin(&mut new);
        for at in 0..self.replicas.len() {
            let link = &self.replicas[at].link;
            let Some(connection) = link.at_origin else { continue };
            if link.is_unread(connection) {
                continue;
            }
            self.send_control(at, connection, &mut new);
            self.send_demanded(at, connection, &mut new);
            self.send_in_background(at, connection, &mut new);
        }
        let Consequences { mut events, mut missing } = new;
        let now = self.origin.clock.read(self.now);
        if let Some(machine) = &mut self.origin.machine {
            missing.retain(|digest| machine.has_body(digest));
            for digest in &missing {
                machine.handle_missing(now, digest);
            }
        }
        events.extend(self.timer_of_origin());
        for (at, event) in events {
            self.at(at, event);
        }
        self.look_for_arrivals(&news);
        if !missing.is_empty() {
            // The consequences; each body is found missing once.
            self.pump_origin();
        }
    }

    /// Begins the disk operations that the origin requests.
    fn begin_at_origin(&mut self, new: &mut Consequences) {
        let World { origin, random, .. } = self;
        let Some(machine) = &mut origin.machine else { return };
        let now = origin.clock.read(self.now);
        if machine.has_more() {
            machine.go_on(now);
        }
        while machine.poll_garbage().is_some() {}
        while let Some(effect) = machine.poll_effect() {
            let operation = match effect {
                origin::Effect::Body(effect) => Operation::from(effect),
                origin::Effect::Append(append) => Operation::Step(append),
            };
            let slot = origin.disk.begin(operation);
            let at = self.now + origin.disk.latency(random);
            new.events.push((at, Event::OriginDisk { epoch: origin.epoch, slot }));
        }
    }

    /// Reports the origin's events to the clients.
    fn take_events_of_origin(&mut self, new: &mut Consequences) -> OriginEvents {
        let mut news = OriginEvents::default();
        let World { origin, random, .. } = self;
        let Some(machine) = &mut origin.machine else { return news };
        while let Some(event) = machine.poll_event() {
            match &event {
                origin::Event::Refused { why: Refused::FileAndFolder(_), .. } => {
                    self.situations.add(Situation::RefusedTransaction);
                }
                origin::Event::Refused { why: Refused::Case(..), .. } => {
                    self.situations.add(Situation::CaseClash);
                }
                origin::Event::Refused { why: Refused::Disk(_), .. } => {
                    self.situations.add(Situation::OriginFull);
                }
                origin::Event::Refused { why: Refused::NotStored(_), .. } => {
                    self.situations.add(Situation::RefusedLost);
                }
                origin::Event::Held { id, outcome: Ok(()) } => {
                    let at = self.now + random.below(20 * MS);
                    new.events.push((at, Event::Held { id: *id }));
                }
                origin::Event::Lost { digest, .. } => {
                    self.situations.add(Situation::LostAtOrigin);
                    let at = self.now + random.below(100 * MS);
                    new.events.push((at, Event::PutBack { digest: *digest }));
                }
                _ => {}
            }
            news.add(&event);
            self.clients.handle_origin(self.now, &event);
            self.situations.count(Situation::Rollback, self.clients.rollbacks());
        }
        news
    }

    /// Sends the origin's control messages to a replica.
    fn send_control(&mut self, at: usize, connection: u32, new: &mut Consequences) {
        let World { origin, random, .. } = self;
        let Some(machine) = &mut origin.machine else { return };
        let now = origin.clock.read(self.now);
        let host = &mut self.replicas[at];
        while let Some(frame) = machine.poll_control(now, ReplicaId(at as u32)) {
            let arrival = host.link.arrival(self.now, Way::Control, random);
            let took = Duration::from_nanos(arrival - self.now);
            if took > host.config.staleness.connected {
                self.situations.add(Situation::Delayed);
            }
            let slot = self.to_replica.insert(frame);
            new.events.push((arrival, Event::ToReplica { replica: at, connection, slot }));
        }
    }

    /// Sends demanded bodies to a replica. They travel in lanes that take turns, a piece at a time.
    fn send_demanded(&mut self, at: usize, connection: u32, new: &mut Consequences) {
        let World { origin, random, .. } = self;
        let Some(machine) = &mut origin.machine else { return };
        let (id, host) = (ReplicaId(at as u32), &mut self.replicas[at]);
        let link = &mut host.link;
        let lanes = origin.config.lanes;
        loop {
            let mut ended = link.demanded.unwanted(|frame| machine.is_wanted(id, frame));
            let is_wanted = ended.is_none();
            let mut leaves = self.now;
            if is_wanted {
                while let Some(frame) = machine.poll_demand_in_turn(id) {
                    let digest = frame.message.version.map(|version| version.content.digest);
                    let payload = digest.and_then(|digest| origin.disk.body(&digest).cloned());
                    new.missing.extend(digest.filter(|_| payload.is_none()));
                    link.demanded.add(lanes, frame, payload);
                }
                if link.demanded.busy_until > self.now {
                    break;
                }
                let Some((bytes, whole, passes)) = link.demanded.send(lanes) else { break };
                leaves += link.demand_slowdown * link.service(bytes, &mut self.more_random);
                link.demanded.busy_until = leaves;
                new.events.push((leaves, Event::Free));
                self.situations.count(Situation::Overtook, u64::from(passes));
                ended = whole;
            }
            let Some(Sending { frame, payload, .. }) = ended else { continue };
            let payload = payload.filter(|_| is_wanted);
            let is_body = frame.message.version.is_some() && !frame.message.lost;
            machine.handle_demand_sent(id, &frame, payload.is_some() || is_wanted && !is_body);
            let payload =
                damaged(payload, &mut self.more_random, &mut self.situations, &mut host.excused);
            let arrival = link.arrival(leaves, Way::Demand, random);
            let slot = self.bodies.insert((frame, payload));
            new.events.push((arrival, Event::Body { replica: at, connection, slot }));
        }
    }

    /// Sends the next body to a replica in the background, if its connection accepts more.
    fn send_in_background(&mut self, at: usize, connection: u32, new: &mut Consequences) {
        let World { origin, random, .. } = self;
        let Some(machine) = &mut origin.machine else { return };
        let host = &mut self.replicas[at];
        let link = &mut host.link;
        if link.busy_until > self.now {
            return;
        }
        let Some(frame) = machine.poll_speculative(ReplicaId(at as u32)) else { return };
        let digest = frame.message.version.map(|version| version.content.digest);
        let payload = digest.and_then(|digest| origin.disk.body(&digest).cloned());
        new.missing.extend(digest.filter(|_| payload.is_none()));
        let size = payload.as_ref().map_or(0, |payload| payload.size.0);
        link.busy_until = self.now + link.service(size, random);
        let arrival = link.arrival(link.busy_until, Way::Speculative, random);
        new.events.push((link.busy_until, Event::Free));
        let payload =
            damaged(payload, &mut self.more_random, &mut self.situations, &mut host.excused);
        let slot = self.bodies.insert((frame, payload));
        new.events.push((arrival, Event::Body { replica: at, connection, slot }));
    }

    /// The origin's timer, if it is due earlier than the one that is set.
    fn timer_of_origin(&mut self) -> Option<(TrueTime, Event)> {
        let origin = &mut self.origin;
        let machine = origin.machine.as_ref()?;
        let ignores_messages =
            |host: &ReplicaHost| host.link.at_origin.is_some_and(|at| host.link.is_unread(at));
        let timeout = if self.replicas.iter().any(ignores_messages) {
            // A replica that reads nothing gets no messages at that time either.
            let hosts = (0..).zip(&self.replicas).filter(|(_, host)| !ignores_messages(host));
            hosts.filter_map(|(at, _)| machine.heartbeat_at(ReplicaId(at))).min()
        } else {
            machine.poll_timeout()
        };
        let timeout =
            if machine.has_more() { Some(origin.clock.read(self.now).local) } else { timeout };
        // A connection that only the origin regards as alive is not polled repeatedly.
        let when = origin.clock.when(timeout?, self.now).max(self.now + MS / 10);
        origin.timer.is_none_or(|at| when < at).then(|| {
            origin.timer = Some(when);
            (when, Event::OriginTimer { epoch: origin.epoch })
        })
    }

    /// Carries out a replica's requests until there are no more.
    pub(super) fn pump_replica(&mut self, replica: usize) {
        let Some((closed, forgotten)) = self.take_answers_of_replica(replica) else { return };
        let World { replicas, random, .. } = self;
        let host = &mut replicas[replica];
        let Some(machine) = &mut host.machine else { return };
        let mut new = Vec::new();
        while let Some(effect) = machine.poll_effect() {
            let operation = match effect {
                replica::Effect::Body(effect) => Operation::from(effect),
                replica::Effect::Commit(step) => Operation::Step(step),
            };
            let slot = host.disk.begin(operation);
            let at = self.now + host.disk.latency(random);
            new.push((at, Event::ReplicaDisk { replica, epoch: host.epoch, slot }));
        }
        while let Some(frame) = machine.poll_send() {
            let Some(connection) = host.link.at_replica else { continue };
            let says_what_it_has = matches!(
                frame.message,
                ToOrigin::Ack(_) | ToOrigin::Taken(_) | ToOrigin::Fetched(_)
            );
            if says_what_it_has && host.link.sends_delayed_until > self.now {
                self.situations.add(Situation::AcknowledgedNothing);
            }
            let arrival = host.link.arrival(self.now, Way::ToOrigin, random);
            let slot = self.to_origin.insert(frame);
            new.push((arrival, Event::ToOrigin { replica, connection, slot }));
        }
        if let Some(local) = machine.poll_timeout() {
            let when = host.clock.when(local, self.now);
            if host.timer.is_none_or(|at| when < at) {
                host.timer = Some(when);
                new.push((when, Event::ReplicaTimer { replica, epoch: host.epoch }));
            }
        }
        for (at, event) in new {
            self.at(at, event);
        }
        if forgotten {
            self.join_soon(replica);
        }
        if closed {
            let connection = self.replicas[replica].link.at_replica;
            self.lose_connection(replica);
            if let Some(connection) = connection {
                let delay = self.random_delay(50 * MS);
                self.after(delay, Event::DownAtOrigin { replica, connection });
            }
        }
    }

    /// Takes a replica's events and answers. Returns whether it has closed its connection, and whether the
    /// origin has forgotten it; none if it does not run.
    fn take_answers_of_replica(&mut self, replica: usize) -> Option<(bool, bool)> {
        let (mut closed, mut forgotten) = (false, false);
        loop {
            let host = &mut self.replicas[replica];
            let Some(machine) = &mut host.machine else { return None };
            while let Some(event) = machine.poll_event() {
                match event {
                    replica::Event::Close => closed = true,
                    replica::Event::SkewExceeded(_) => {
                        self.situations.add(Situation::SkewExceeded);
                    }
                    replica::Event::DiskFull => self.situations.add(Situation::ReplicaFull),
                    replica::Event::Refused(Refusal::Forgotten(_)) => forgotten = true,
                    replica::Event::Connected { .. }
                    | replica::Event::Refused(_)
                    | replica::Event::Unmatched(_)
                    | replica::Event::Lost(_)
                    | replica::Event::Renew => {}
                }
            }
            if closed {
                host.link.welcomed = false;
            }
            let Some(answer) = machine.poll_answer() else { break };
            self.answered(replica, answer);
        }
        Some((closed, forgotten))
    }
}
