//! The run itself: events, and what each of them sets off.

use core::time::Duration;

use lull_cc::Timestamp;
use lull_replication::message::{Frame, Session, ToOrigin, ToReplica};
use lull_replication::origin::{self, Origin, ReadsPerWriteAndByte};
use lull_replication::replica::{self, Replica};
use lull_replication::time::LocalTime;
use lull_replication::types::{Digest, DiskFull, Incarnation, ReplicaId};
use lull_sim::events::EventQueue;
use lull_sim::random::Random;

use super::clients::Clients;
use super::clock::{MS, TrueTime};
use super::disk::Done;
use super::durable::Body;
use super::hosts::{Common, OriginHost, ReplicaHost};
use super::transfers::{InTransit, TransferId, Transfers};
use super::{Options, Outcome, Situation, Situations, topology};
use crate::pool::Pool;

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A message for the origin arrives by a connection.
    ToOrigin { replica: usize, connection: u32, slot: u32 },
    /// A message for a replica.
    ToReplica { replica: usize, connection: u32, slot: u32 },
    /// A body for a replica.
    Body { replica: usize, connection: u32, slot: u32 },
    /// A relay begins to receive a body, and may pass it on.
    Arriving { transfer: TransferId },
    /// A background connection of the origin accepts more.
    Free,
    /// One of a relay does, or the relay goes on with a large commit.
    FreeRelay { relay: usize, epoch: u32 },
    /// A disk operation of the origin ends.
    OriginDisk { epoch: u32, slot: u32 },
    /// Of a replica.
    ReplicaDisk { replica: usize, epoch: u32, slot: u32 },
    /// A timer of the origin.
    OriginTimer { epoch: u32 },
    /// Of a replica.
    ReplicaTimer { replica: usize, epoch: u32 },
    /// A replica tries to connect.
    Connect { replica: usize },
    /// The replica's side notices that the connection is closed.
    DownAtReplica { replica: usize, connection: u32 },
    /// The origin's side notices it.
    DownAtOrigin { replica: usize, connection: u32 },
    /// A replica's former parent notices that it is gone.
    Left { parent: Option<usize>, replica: usize, session: (Incarnation, u32) },
    /// The origin starts again.
    StartOrigin,
    /// A replica does.
    StartReplica { replica: usize },
    /// A session writes.
    Write,
    /// A session reads.
    Read { session: usize },
    /// A session repeats a read that failed.
    Again { session: usize, number: u32 },
    /// A session repeats a read of an open file that failed.
    GoOn { session: usize, number: u32 },
    /// A session cancels a read that takes too long.
    Cancel { session: usize, number: u32 },
    /// A replica crashes, or the origin.
    Crash { replica: Option<usize> },
    /// Something breaks.
    Trouble,
    /// A client writes a body again after it was reported as lost.
    PutBack { digest: Digest },
    /// A body is held, and its writer continues.
    Held { id: origin::HoldId },
    /// A replica that the origin has forgotten joins again.
    Join { replica: usize },
    /// A fault is repaired.
    Repair(Repair),
}

/// The repaired part.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repair {
    Slow { replica: usize },
    Deaf { replica: usize },
    OriginDisk,
    ReplicaDisk { replica: usize },
}

pub(super) struct World {
    pub(super) options: Options,
    pub(super) random: Random,
    /// For separate draws, so that the rest of a run is the same with and without them.
    pub(super) more_random: Random,
    pub(super) now: TrueTime,
    queue: EventQueue<Event>,
    pub(super) origin: OriginHost,
    pub(super) replicas: Vec<ReplicaHost>,
    pub(super) to_origin: Pool<Frame<ToOrigin>>,
    pub(super) to_replica: Pool<Frame<ToReplica>>,
    pub(super) bodies: Pool<InTransit>,
    /// Bodies on their way to relays.
    pub(super) transfers: Transfers,
    pub(super) clients: Clients,
    pub(super) situations: Situations,
    /// No further failures occur.
    pub(super) calm: bool,
    steps: u64,
    pub(super) stuck: Vec<String>,
}

impl World {
    pub(super) fn new(options: Options) -> Self {
        let mut random = Random::new(options.seed);
        let count = 2 + random.below(2) as usize;
        let (count, parents) = topology::topology(&options, count);
        // Drawn separately, so that the rest of a run is the same with each of them.
        let mut bounds = Random::new(options.seed ^ 0x626f_756e);
        let origin = OriginHost::draw(&options, &mut random, &mut bounds);
        let order = if random.below(2) == 0 {
            replica::Order::Conservative
        } else {
            replica::Order::Aggressive
        };
        let bounded = random.below(4) > 0;
        let replicas = (0..count).map(|at| {
            let common = Common { order, bounded, lanes: origin.config.lanes };
            ReplicaHost::draw(at, &options, common, &mut random, &mut bounds)
        });
        let mut replicas: Vec<_> = replicas.collect();
        topology::arrange(&mut replicas, &parents);
        let clients = Clients::new(&mut random, replicas.len());
        World {
            options,
            random,
            more_random: Random::new(options.seed ^ 0x6d6f_7265),
            now: 0,
            queue: EventQueue::default(),
            origin,
            replicas,
            to_origin: Pool::default(),
            to_replica: Pool::default(),
            bodies: Pool::default(),
            transfers: Transfers::default(),
            clients,
            situations: Situations::default(),
            calm: false,
            steps: 0,
            stuck: Vec::new(),
        }
    }

    pub(super) fn at(&mut self, time: TrueTime, event: Event) {
        self.queue.insert(Timestamp::from_nanos(time.max(self.now)), event);
    }

    pub(super) fn after(&mut self, delay: TrueTime, event: Event) {
        self.at(self.now + delay, event);
    }

    /// A random time with this mean.
    pub(super) fn random_delay(&mut self, mean: TrueTime) -> TrueTime {
        self.random.exponential(Duration::from_nanos(mean)).as_nanos() as TrueTime
    }

    pub(super) fn run(mut self) -> Outcome {
        self.start_origin();
        for replica in 0..self.replicas.len() {
            self.start_replica(replica);
        }
        self.after(MS, Event::Write);
        for session in 0..self.clients.sessions() {
            let delay = self.random_delay(20 * MS);
            self.after(delay, Event::Read { session });
        }
        self.after(50 * MS, Event::Trouble);
        while self.steps < self.options.steps {
            if !self.step(u64::MAX) {
                break;
            }
        }
        self.end_faults();
        let violations = self.clients.check(&self.origin.log);
        self.stuck.extend(self.clients.wrong_snapshots(&self.origin.log));
        self.restore();
        Outcome {
            steps: self.steps,
            reads: self.clients.reads(),
            writes: self.clients.acknowledged(),
            situations: self.situations,
            violations,
            stuck: self.stuck,
        }
    }

    /// Runs the next event, if it is before `until`.
    pub(super) fn step(&mut self, until: TrueTime) -> bool {
        let Some((at, event)) = self.queue.pop(Timestamp::from_nanos(until)) else { return false };
        self.now = at.as_nanos();
        self.steps += 1;
        self.handle_event(event);
        true
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::ToOrigin { replica, connection, slot } => {
                self.deliver_to_origin(replica, connection, slot);
            }
            Event::ToReplica { replica, connection, slot } => {
                self.deliver_to_replica(replica, connection, slot);
            }
            Event::Body { replica, connection, slot } => {
                self.deliver_body(replica, connection, slot);
            }
            Event::Arriving { transfer } => self.begin_forwarding(transfer),
            Event::Free => self.pump_origin(),
            Event::FreeRelay { relay, epoch } => self.free_relay(relay, epoch),
            Event::OriginDisk { epoch, slot } => self.origin_disk(epoch, slot),
            Event::ReplicaDisk { replica, epoch, slot } => {
                let host = &mut self.replicas[replica];
                if host.epoch == epoch
                    && let Some(done) = host.disk.finish(slot)
                {
                    self.replica_disk(replica, done);
                }
            }
            Event::OriginTimer { epoch } => {
                if self.origin.epoch == epoch {
                    self.origin.timer = None;
                    self.pump_origin();
                }
            }
            Event::ReplicaTimer { replica, epoch } => {
                if self.replicas[replica].epoch == epoch {
                    self.replicas[replica].timer = None;
                    self.with_replica(replica, Replica::handle_timeout);
                }
            }
            Event::Connect { replica } => self.connect(replica),
            Event::DownAtReplica { replica, connection } => {
                if self.replicas[replica].link.at_replica == Some(connection) {
                    self.lose_connection(replica);
                    self.with_replica(replica, Replica::handle_disconnected);
                }
            }
            Event::DownAtOrigin { replica, connection } => {
                if self.replicas[replica].link.at_origin == Some(connection) {
                    self.origin_loses(replica);
                }
            }
            Event::Left { parent, replica, session } => self.has_left(parent, replica, session),
            Event::StartOrigin => self.start_origin(),
            Event::StartReplica { replica } => self.start_replica(replica),
            Event::Write => self.write(),
            Event::Read { session } => self.read(session),
            Event::Again { session, number } => self.again(session, number),
            Event::GoOn { session, number } => self.go_on(session, number),
            Event::Cancel { session, number } => self.cancel(session, number),
            Event::Crash { replica } => self.crash(replica),
            Event::Trouble => self.inject_fault(),
            Event::PutBack { digest } => self.put_back(digest),
            Event::Held { id } => self.use_held(id),
            Event::Join { replica } => self.join(replica),
            Event::Repair(repair) => self.repair(repair),
        }
    }

    /// A message for the origin arrives, if its connection still delivers it.
    fn deliver_to_origin(&mut self, replica: usize, connection: u32, slot: u32) {
        let Some(frame) = self.to_origin.take(slot) else { return };
        if self.replicas[replica].link.arrives(connection, true, &mut self.random) {
            if let Some(relay) = self.replicas[replica].parent {
                return self.deliver_to_relay(relay, replica, frame);
            }
            self.with_origin(|machine, now| {
                machine.handle_frame(now, ReplicaId(replica as u32), frame);
            });
        }
    }

    /// The same for a replica.
    fn deliver_to_replica(&mut self, replica: usize, connection: u32, slot: u32) {
        let Some(frame) = self.to_replica.take(slot) else { return };
        if self.replicas[replica].link.arrives(connection, false, &mut self.random) {
            let host = &mut self.replicas[replica];
            let present = (host.disk.image.incarnation, host.link.of_this_life);
            host.link.welcomed |= matches!(frame.message, ToReplica::Welcome { .. })
                && (frame.session.replica, frame.session.connection) == present;
            if host.link.welcomed && core::mem::take(&mut host.has_moved) {
                self.situations.add(Situation::FoundParent);
            }
            self.with_replica(replica, |machine, now| machine.handle_control(now, frame));
        }
    }

    /// The same for a body.
    fn deliver_body(&mut self, replica: usize, connection: u32, slot: u32) {
        let Some(InTransit { frame, payload, from, to }) = self.bodies.take(slot) else { return };
        // It was cut off at the relay, and so behind it.
        let payload = payload.filter(|_| from.is_none_or(|from| self.transfers.is_whole(from)));
        let arrives = self.replicas[replica].link.arrives(connection, false, &mut self.random);
        let announced = frame.message.version.map(|version| version.content.digest);
        let is_whole = arrives && payload.as_ref().map(|payload| payload.digest) == announced;
        if arrives {
            self.with_replica(replica, |machine, now| {
                machine.handle_body(now, frame, payload);
            });
        }
        if let Some(transfer) = to {
            self.end_forwarding(transfer, is_whole);
        }
    }

    fn origin_disk(&mut self, epoch: u32, slot: u32) {
        if self.origin.epoch != epoch {
            return;
        }
        let Some(done) = self.origin.disk.finish(slot) else { return };
        self.take_log();
        match done {
            Done::Stored(digest, outcome) => {
                self.with_origin(|machine, now| machine.handle_stored(now, &digest, outcome));
            }
            Done::Dropped(digest) => {
                self.with_origin(|machine, now| machine.handle_dropped(now, &digest));
            }
            Done::Step(outcome) => {
                self.with_origin(|machine, now| machine.handle_appended(now, outcome));
            }
            Done::Failed => self.crash_origin(),
        }
    }

    fn replica_disk(&mut self, replica: usize, done: Done) {
        match done {
            Done::Stored(digest, outcome) => {
                let excused = &mut self.replicas[replica].excused;
                match outcome {
                    Ok(()) => excused.remove(&digest),
                    Err(DiskFull) => excused.insert(digest),
                };
                self.with_replica(replica, |machine, now| {
                    machine.handle_stored(now, &digest, outcome);
                });
            }
            Done::Dropped(digest) => {
                self.with_replica(replica, |machine, _| machine.handle_dropped(&digest));
            }
            Done::Step(outcome) => self.with_replica(replica, |machine, now| {
                machine.handle_committed(now, outcome);
            }),
            Done::Failed => self.crash_replica(replica),
        }
    }

    /// Keeps the durable commits, further back than the origin's log.
    pub(super) fn take_log(&mut self) {
        let image = &self.origin.disk.image;
        let known = self.origin.log.len() as u64;
        let new = image.log.iter().filter(|entry| entry.commit.sequence.0 > known);
        self.origin.log.extend(new.map(|entry| entry.commit.clone()));
    }

    fn start_origin(&mut self) {
        let now = self.origin.clock.read(self.now);
        let (image, bodies) = self.origin.disk.start();
        let policy = Box::new(ReadsPerWriteAndByte);
        let mut machine = Origin::recover(now, self.origin.config, policy, image, bodies);
        machine.seed_fault(self.options.fault);
        let lost = machine.lost().count();
        self.situations.count(Situation::LostAtStart, lost as u64);
        self.origin.machine = Some(machine);
        self.pump_origin();
    }

    pub(super) fn start_replica(&mut self, replica: usize) {
        let host = &mut self.replicas[replica];
        let now = host.clock.read(self.now);
        let (image, bodies) = host.disk.start();
        let mut machine = Replica::recover(now, host.config, image, bodies);
        machine.seed_fault(self.options.fault);
        let only = self.clients.subscription(self.options.seed, replica, host.epoch);
        self.situations.count(Situation::Subscribed, only.patterns().len() as u64);
        host.took_some |= !only.is_all();
        machine.subscribe(only);
        let relay =
            host.is_relay.then(|| topology::start(&self.options, &self.origin, now, &mut machine));
        if let Some(before) = host.before.take() {
            machine.keep_lease(&before);
        }
        (host.machine, host.relay) = (Some(machine), relay);
        host.link.of_this_life = 0;
        self.connect_soon(replica, 5 * MS);
        self.pump_replica(replica);
    }

    pub(super) fn connect_soon(&mut self, replica: usize, mean: TrueTime) {
        if !self.replicas[replica].connecting {
            self.replicas[replica].connecting = true;
            let delay = self.random_delay(mean);
            self.after(delay, Event::Connect { replica });
        }
    }

    fn connect(&mut self, replica: usize) {
        let up = match self.replicas[replica].parent {
            None => self.origin.machine.is_some(),
            Some(relay) => self.replicas[relay].machine.is_some(),
        };
        let now = self.now;
        let host = &mut self.replicas[replica];
        host.connecting = false;
        if host.machine.is_none() || host.link.at_replica.is_some() {
            return;
        }
        if !up || host.link.cut_until > now {
            self.connect_soon(replica, 60 * MS);
            if !up {
                self.find_parent(replica);
            }
            return;
        }
        let link = &mut host.link;
        link.connections += 1;
        link.of_this_life += 1;
        link.at_replica = Some(link.connections);
        link.welcomed = false;
        // The origin's side learns of it by the hello, which ends an older connection there.
        link.at_origin = Some(link.connections);
        link.at_origin_before.push((host.disk.image.incarnation, link.of_this_life));
        self.with_replica(replica, Replica::handle_connected);
    }

    /// The replica's side of a connection has ended.
    pub(super) fn lose_connection(&mut self, replica: usize) {
        let link = &mut self.replicas[replica].link;
        link.at_replica = None;
        let was_welcomed = core::mem::take(&mut link.welcomed);
        self.connect_soon(replica, 60 * MS);
        if !was_welcomed {
            self.find_parent(replica);
        }
    }

    pub(super) fn origin_loses(&mut self, replica: usize) {
        let host = &mut self.replicas[replica];
        host.link.at_origin = None;
        let gone = core::mem::take(&mut host.link.at_origin_before);
        if let Some(relay) = host.parent {
            return self.relay_loses(relay, replica, gone);
        }
        self.with_origin(|machine, _| {
            for (life, connection) in gone {
                let session = Session { replica: life, connection, ..Session::default() };
                machine.handle_disconnected(ReplicaId(replica as u32), session);
            }
        });
    }

    pub(super) fn with_origin(
        &mut self,
        call: impl FnOnce(&mut Origin<Body>, lull_replication::time::Reading),
    ) {
        let now = self.origin.clock.read(self.now);
        if let Some(machine) = &mut self.origin.machine {
            call(machine, now);
            self.pump_origin();
        }
    }

    pub(super) fn with_replica(
        &mut self,
        replica: usize,
        call: impl FnOnce(&mut Replica<Body>, lull_replication::time::Reading),
    ) {
        let host = &mut self.replicas[replica];
        let now = host.clock.read(self.now);
        if let Some(machine) = &mut host.machine {
            call(machine, now);
            self.pump_replica(replica);
            self.pump_relay(replica);
        }
    }

    pub(super) fn forget_timers_of_origin(&mut self) {
        self.origin.epoch += 1;
        self.origin.timer = None;
    }

    pub(super) fn forget_timers_of_replica(&mut self, replica: usize) {
        self.replicas[replica].epoch += 1;
        self.replicas[replica].timer = None;
    }

    /// Δ for an answer that is given now: the smaller one while there is a connection (§6.2.2).
    pub(super) fn bound(&self, replica: usize) -> Option<Duration> {
        let host = &self.replicas[replica];
        if host.link.welcomed {
            Some(host.config.staleness.connected)
        } else {
            host.config.staleness.disconnected
        }
    }

    /// The time of a replica's interval clock.
    pub(super) fn local(&self, replica: usize) -> LocalTime {
        self.replicas[replica].clock.read(self.now).local
    }
}
