//! Sends what the origin, or a relay, has for the replicas that it serves.

use core::time::Duration;
use std::collections::BTreeSet;

use lull_replication::lane::Lanes;
use lull_replication::origin::Origin;
use lull_replication::time::Reading;
use lull_replication::types::{Digest, Payload, ReplicaId};
use lull_sim::random::Random;

use super::clock::TrueTime;
use super::durable::Body;
use super::hosts::{OriginHost, ReplicaHost};
use super::network::Way;
use super::transfers::InTransit;
use super::turns::Sending;
use super::world::{Event, World};
use super::{Situation, Situations};

/// The consequences of a machine's requests, to be added at the end.
#[derive(Default)]
pub(super) struct Consequences {
    pub(super) events: Vec<(TrueTime, Event)>,
    /// Bodies to be sent that are not stored.
    pub(super) missing: Vec<Digest>,
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

/// Finds a body on the disk of a machine.
type Stored<'a> = dyn Fn(&Digest) -> Option<Payload<Body>> + 'a;

/// The machine that serves a replica.
struct Server<'a> {
    machine: &'a mut Origin<Body>,
    now: Reading,
    lanes: Lanes,
    stored: Box<Stored<'a>>,
    /// The event for when one of its connections accepts more.
    free: Event,
}

impl<'a> Server<'a> {
    /// The server of the replica at `at`, if it runs, and the replica.
    fn of(
        now: TrueTime,
        origin: &'a mut OriginHost,
        replicas: &'a mut [ReplicaHost],
        at: usize,
    ) -> Option<(Self, &'a mut ReplicaHost)> {
        let lanes = origin.config.lanes;
        let Some(parent) = replicas[at].parent else {
            let OriginHost { machine, disk, clock, .. } = origin;
            let (machine, now) = (machine.as_mut()?, clock.read(now));
            let stored = Box::new(|digest: &Digest| disk.body(digest).cloned());
            return Some((
                Server { machine, now, lanes, stored, free: Event::Free },
                &mut replicas[at],
            ));
        };
        let [host, child] = replicas.get_disjoint_mut([parent, at]).ok()?;
        let ReplicaHost { relay, disk, clock, epoch, .. } = host;
        let (machine, now) = (relay.as_mut()?.origin(), clock.read(now));
        let stored = Box::new(|digest: &Digest| disk.body(digest).cloned());
        let free = Event::FreeRelay { relay: parent, epoch: *epoch };
        Some((Server { machine, now, lanes, stored, free }, child))
    }
}

impl World {
    /// Sends all that a replica is to get now.
    pub(super) fn serve(&mut self, at: usize, new: &mut Consequences) {
        let link = &self.replicas[at].link;
        let Some(connection) = link.at_origin.filter(|one| !link.is_unread(*one)) else { return };
        self.send_control(at, connection, new);
        self.send_demanded(at, connection, new);
        self.send_in_background(at, connection, new);
    }

    /// Sends control messages to a replica.
    fn send_control(&mut self, at: usize, connection: u32, new: &mut Consequences) {
        let World { origin, replicas, random, .. } = self;
        let Some((server, host)) = Server::of(self.now, origin, replicas, at) else { return };
        while let Some(frame) = server.machine.poll_control(server.now, ReplicaId(at as u32)) {
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
        let World { origin, replicas, random, .. } = self;
        let Some((server, host)) = Server::of(self.now, origin, replicas, at) else { return };
        let Server { machine, lanes, stored, free, .. } = server;
        let (id, link) = (ReplicaId(at as u32), &mut host.link);
        loop {
            let mut ended = link.demanded.unwanted(|frame| machine.is_wanted(id, frame));
            let is_wanted = ended.is_none();
            let mut leaves = self.now;
            if is_wanted {
                while let Some(frame) = machine.poll_demand_in_turn(id) {
                    let digest = frame.message.version.map(|version| version.content.digest);
                    let payload = digest.and_then(|digest| stored(&digest));
                    new.missing.extend(digest.filter(|_| payload.is_none()));
                    link.demanded.add(lanes, frame, payload);
                }
                if link.demanded.busy_until > self.now {
                    break;
                }
                let Some((bytes, whole, passes)) = link.demanded.send(lanes) else { break };
                leaves += link.demand_slowdown * link.service(bytes, &mut self.more_random);
                link.demanded.busy_until = leaves;
                new.events.push((leaves, free));
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
            let slot = self.bodies.insert(InTransit { frame, payload, from: None, to: None });
            new.events.push((arrival, Event::Body { replica: at, connection, slot }));
        }
    }

    /// Sends the next body to a replica in the background, if its connection accepts more.
    fn send_in_background(&mut self, at: usize, connection: u32, new: &mut Consequences) {
        let World { origin, replicas, random, .. } = self;
        let Some((server, host)) = Server::of(self.now, origin, replicas, at) else { return };
        let link = &mut host.link;
        if link.busy_until > self.now {
            return;
        }
        let Some(frame) = server.machine.poll_speculative(ReplicaId(at as u32)) else { return };
        let digest = frame.message.version.map(|version| version.content.digest);
        let stored = digest.and_then(|digest| (server.stored)(&digest));
        // Stored pieces come from the disk, and the rest as it arrives.
        let arriving = host.parent.zip(digest.filter(|_| stored.is_none()));
        let arriving = arriving.and_then(|(relay, digest)| self.transfers.arriving(relay, &digest));
        let from = arriving.as_ref().map(|(id, ..)| *id);
        let until = arriving.as_ref().map_or(self.now, |(_, until, _)| *until);
        let payload = stored.or_else(|| arriving.map(|(.., payload)| payload));
        new.missing.extend(digest.filter(|_| payload.is_none()));
        let size = payload.as_ref().map_or(0, |payload| payload.size.0);
        // The last piece leaves after it has arrived at the relay.
        link.busy_until = (self.now + link.service(size, random)).max(until + 1);
        let arrival = link.arrival(link.busy_until, Way::Speculative, random);
        new.events.push((link.busy_until, server.free));
        if let Some(from) = from {
            self.transfers.pass_on(from, at, frame.clone());
        }
        let sound = payload.clone().filter(|_| host.is_relay);
        let payload =
            damaged(payload, &mut self.more_random, &mut self.situations, &mut host.excused);
        let to = sound.map(|sound| {
            let id = self.transfers.add((at, host.epoch, connection), sound, arrival);
            let begins = self.now + self.more_random.below(arrival - self.now);
            new.events.push((begins, Event::Arriving { transfer: id }));
            id
        });
        let slot = self.bodies.insert(InTransit { frame, payload, from, to });
        new.events.push((arrival, Event::Body { replica: at, connection, slot }));
    }
}
