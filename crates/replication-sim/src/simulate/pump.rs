//! Carries out the requests of the machines: disks, messages, timers.

use lull_replication::message::{Refusal, ToOrigin};
use lull_replication::origin::Refused;
use lull_replication::types::ReplicaId;
use lull_replication::{origin, replica};

use super::Situation;
use super::clients::OriginEvents;
use super::clock::{MS, TrueTime};
use super::durable::Operation;
use super::hosts::ReplicaHost;
use super::network::Way;
use super::serve::Consequences;
use super::world::{Event, World};

impl World {
    /// Carries out the origin's requests until there are no more.
    pub(super) fn pump_origin(&mut self) {
        if self.origin.machine.is_none() {
            return;
        }
        let mut new = Consequences::default();
        self.begin_at_origin(&mut new);
        let news = self.take_events_of_origin(&mut new);
        for at in self.served_by(None) {
            self.serve(at, &mut new);
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

    /// The origin's timer, if it is due earlier than the one that is set.
    fn timer_of_origin(&mut self) -> Option<(TrueTime, Event)> {
        let origin = &mut self.origin;
        let machine = origin.machine.as_ref()?;
        let ignores_messages =
            |host: &ReplicaHost| host.link.at_origin.is_some_and(|at| host.link.is_unread(at));
        let direct = || (0..).zip(&self.replicas).filter(|(_, host)| host.parent.is_none());
        let timeout = if direct().any(|(_, host)| ignores_messages(host)) {
            // A replica that reads nothing gets no messages at that time either.
            let hosts = direct().filter(|(_, host)| !ignores_messages(host));
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
        self.update_relay(replica);
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
