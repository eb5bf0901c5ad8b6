//! Carries out the requests of the machines: disks, messages, timers.

use core::time::Duration;
use std::collections::BTreeSet;

use lull_replication::message::{Refusal, ToOrigin};
use lull_replication::origin::Refused;
use lull_replication::types::{Digest, Payload, ReplicaId};
use lull_replication::{origin, replica};
use lull_sim::random::Random;

use super::clients::News;
use super::clock::MS;
use super::durable::{Body, Operation};
use super::hosts::ReplicaHost;
use super::network::Way;
use super::turns::Sending;
use super::world::{Event, World};
use super::{Situation, Situations};

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
        let World { origin, random, .. } = self;
        let Some(machine) = &mut origin.machine else { return };
        let now = origin.clock.read(self.now);
        let mut new = Vec::new();
        let mut news = News::default();
        while let Some(effect) = machine.poll_effect() {
            let operation = match effect {
                origin::Effect::Body(effect) => Operation::from(effect),
                origin::Effect::Append(append) => Operation::Step(append),
            };
            let slot = origin.disk.begin(operation);
            let at = self.now + origin.disk.latency(random);
            new.push((at, Event::OriginDisk { epoch: origin.epoch, slot }));
        }
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
                    new.push((at, Event::Held { id: *id }));
                }
                origin::Event::Lost { digest, .. } => {
                    self.situations.add(Situation::LostAtOrigin);
                    let at = self.now + random.below(100 * MS);
                    new.push((at, Event::PutBack { digest: *digest }));
                }
                _ => {}
            }
            news.add(&event);
            self.clients.handle_origin(self.now, &event);
            self.situations.count(Situation::Rollback, self.clients.rollbacks());
        }
        // Bodies to be sent that are not stored.
        let mut missing = Vec::new();
        for (at, host) in self.replicas.iter_mut().enumerate() {
            let (id, link) = (ReplicaId(at as u32), &mut host.link);
            let Some(connection) = link.at_origin else { continue };
            if link.is_deaf(connection) {
                continue;
            }
            while let Some(frame) = machine.poll_control(now, id) {
                let arrival = link.arrival(self.now, Way::Control, random);
                let took = Duration::from_nanos(arrival - self.now);
                if took > host.config.staleness.connected {
                    self.situations.add(Situation::Delayed);
                }
                let slot = self.to_replica.insert(frame);
                new.push((arrival, Event::ToReplica { replica: at, connection, slot }));
            }
            // Demanded bodies travel in lanes that take turns, a piece at a time.
            let lanes = origin.config.lanes;
            loop {
                let mut ended = link.demanded.unwanted(|frame| machine.is_wanted(id, frame));
                let is_wanted = ended.is_none();
                let mut leaves = self.now;
                if is_wanted {
                    while let Some(frame) = machine.poll_demand_in_turn(id) {
                        let digest = frame.message.version.map(|version| version.content.digest);
                        let payload = digest.and_then(|digest| origin.disk.body(&digest).cloned());
                        missing.extend(digest.filter(|_| payload.is_none()));
                        link.demanded.add(lanes, frame, payload);
                    }
                    if link.demanded.busy_until > self.now {
                        break;
                    }
                    let Some((bytes, whole, passes)) = link.demanded.send(lanes) else { break };
                    leaves += link.narrow * link.service(bytes, &mut self.more_random);
                    link.demanded.busy_until = leaves;
                    new.push((leaves, Event::Free));
                    self.situations.count(Situation::Overtook, u64::from(passes));
                    ended = whole;
                }
                let Some(Sending { frame, payload, .. }) = ended else { continue };
                let payload = payload.filter(|_| is_wanted);
                let is_body = frame.message.version.is_some() && !frame.message.lost;
                machine.handle_demand_sent(id, &frame, payload.is_some() || is_wanted && !is_body);
                let payload = damaged(
                    payload,
                    &mut self.more_random,
                    &mut self.situations,
                    &mut host.excused,
                );
                let arrival = link.arrival(leaves, Way::Demand, random);
                let slot = self.bodies.insert((frame, payload));
                new.push((arrival, Event::Body { replica: at, connection, slot }));
            }
            if link.busy_until <= self.now
                && let Some(frame) = machine.poll_speculative(id)
            {
                let digest = frame.message.version.map(|version| version.content.digest);
                let payload = digest.and_then(|digest| origin.disk.body(&digest).cloned());
                missing.extend(digest.filter(|_| payload.is_none()));
                let size = payload.as_ref().map_or(0, |payload| payload.size.0);
                link.busy_until = self.now + link.service(size, random);
                let arrival = link.arrival(link.busy_until, Way::Speculative, random);
                new.push((link.busy_until, Event::Free));
                let payload = damaged(
                    payload,
                    &mut self.more_random,
                    &mut self.situations,
                    &mut host.excused,
                );
                let slot = self.bodies.insert((frame, payload));
                new.push((arrival, Event::Body { replica: at, connection, slot }));
            }
        }
        missing.retain(|digest| machine.has_body(digest));
        for digest in &missing {
            machine.handle_missing(now, digest);
        }
        let deaf = |host: &ReplicaHost| host.link.at_origin.is_some_and(|at| host.link.is_deaf(at));
        let timeout = if self.replicas.iter().any(deaf) {
            // A replica that reads nothing gets no messages at that time either.
            let hosts = (0..).zip(&self.replicas).filter(|(_, host)| !deaf(host));
            hosts.filter_map(|(at, _)| machine.heartbeat_at(ReplicaId(at))).min()
        } else {
            machine.poll_timeout()
        };
        if let Some(local) = timeout {
            // A connection that only the origin regards as alive is not polled repeatedly.
            let when = origin.clock.when(local, self.now).max(self.now + MS / 10);
            if origin.timer.is_none_or(|at| when < at) {
                origin.timer = Some(when);
                new.push((when, Event::OriginTimer { epoch: origin.epoch }));
            }
        }
        for (at, event) in new {
            self.at(at, event);
        }
        self.look_for_arrivals(&news);
        if !missing.is_empty() {
            // The consequences; each body is found missing once.
            self.pump_origin();
        }
    }

    /// Carries out a replica's requests until there are no more.
    pub(super) fn pump_replica(&mut self, replica: usize) {
        let (mut closed, mut forgotten) = (false, false);
        loop {
            let host = &mut self.replicas[replica];
            let Some(machine) = &mut host.machine else { return };
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
            if says_what_it_has && host.link.mute_until > self.now {
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
                let delay = self.some(50 * MS);
                self.after(delay, Event::DownAtOrigin { replica, connection });
            }
        }
    }
}
