//! The run itself: events, and their effects.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_cc::Bytes;
use lull_replication::BodyEffect;
use lull_replication::message::{BodyHeader, Frame, ToOrigin, ToReplica};
use lull_replication::origin::{
    self, Origin, Put, ReadsPerWriteAndByte, Transaction, TransactionId,
};
use lull_replication::replica::{self, ReadId, Replica, Staleness};
use lull_replication::types::{Content, Digest, Metadata, Payload, ReplicaId};
use lull_sim::random::Random;

use super::clock::{due, reading};
use super::link::{Carried, Link};
use super::measure::{Outcome, Tally, seconds};
use super::objects::{beginning, path, payload, request};
use super::{Options, Workload, cut};
use crate::instant_disk;

/// How long to wait for answers after the last read.
const TIMEOUT: u64 = 3_600_000_000_000;

/// Something that happens at a time.
#[derive(Debug)]
enum Event {
    ToOrigin {
        replica: usize,
        frame: Frame<ToOrigin>,
    },
    Control {
        replica: usize,
        frame: Frame<ToReplica>,
    },
    Body {
        replica: usize,
        frame: Frame<BodyHeader>,
    },
    /// A body is transmitted.
    Through {
        number: u64,
    },
    Read(usize),
    Write(usize),
    OriginTimer,
    ReplicaTimer {
        replica: usize,
    },
    Cut,
}

/// A replica, and the delay to it.
struct Host {
    machine: Replica<()>,
    /// One-way delay, in nanoseconds.
    latency: u64,
    timer: Option<u64>,
    /// Demand reads that the origin has not answered.
    asked: u64,
    /// Reads that wait here.
    waiting: BTreeSet<u64>,
}

pub(super) struct World<'a> {
    workload: &'a Workload,
    options: Options,
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    count: u64,
    origin: Origin<()>,
    timer: Option<u64>,
    hosts: Vec<Host>,
    link: Link,
    tally: Tally,
}

impl<'a> World<'a> {
    pub(super) fn new(workload: &'a Workload, options: Options) -> Self {
        let (image, theirs) = beginning(workload);
        let bodies: Vec<(Digest, Bytes)> = image
            .objects
            .values()
            .map(|version| (version.content.digest, version.content.size))
            .collect();
        let config = origin::Config {
            strategy: options.strategy,
            under_way_bytes: Bytes(0),
            ..origin::Config::default()
        };
        let tally = Tally::new(workload, image.last().sequence);
        let policy = Box::new(ReadsPerWriteAndByte);
        let origin = Origin::recover(reading(0), config, policy, image, bodies.iter().copied());
        const LATENCIES: u64 = 2;
        let mut random = Random::of_part(options.seed, LATENCIES);
        let hosts = (0..workload.replicas).map(|number| {
            let staleness = Staleness {
                connected: options.delta.unwrap_or(Duration::MAX),
                disconnected: None,
                ..Staleness::default()
            };
            let config = replica::Config {
                replica: ReplicaId(number),
                staleness,
                eager: Some(options.eager),
                overtake: options.overtake,
                order: options.order,
                grace: Duration::ZERO,
                report: None,
                ..replica::Config::default()
            };
            let image = theirs.clone();
            let machine = Replica::recover(reading(0), config, image, bodies.iter().copied());
            let factor = 1.0 + options.spread * (2.0 * random.uniform() - 1.0);
            let latency = (options.round_trip.mul_f64(factor) / 2).as_nanos() as u64;
            Host { machine, latency, timer: None, asked: 0, waiting: BTreeSet::new() }
        });
        World {
            workload,
            options,
            now: 0,
            queue: BTreeMap::new(),
            count: 0,
            origin,
            timer: None,
            hosts: hosts.collect(),
            link: Link::new(options.bandwidth),
            tally,
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.queue.insert((time.max(self.now), self.count), event);
    }

    pub(super) fn run(mut self) -> Outcome {
        for replica in 0..self.hosts.len() {
            self.hosts[replica].machine.handle_connected(reading(0));
            self.pump_replica(replica);
        }
        if let Some(read) = self.workload.reads.first() {
            self.at(due(read.at), Event::Read(0));
        }
        if let Some(write) = self.workload.writes.first() {
            self.at(due(write.at), Event::Write(0));
        }
        const CUTS: u64 = 3;
        let mut random = Random::of_part(self.options.seed, CUTS);
        for _ in 0..self.options.cuts {
            let moment = self.workload.length.mul_f64(random.uniform() / 2.0);
            self.at(due(moment), Event::Cut);
        }
        let end = due(self.workload.length);
        let mut busy = None;
        while let Some(((now, _), event)) = self.queue.pop_first() {
            if now > end {
                busy.get_or_insert(self.link.busy(end));
                if now > end + TIMEOUT || self.tally.all_answered() {
                    break;
                }
            }
            self.now = now;
            self.tally.outcome.steps += 1;
            self.handle_event(event);
        }
        let busy = seconds(busy.unwrap_or_else(|| self.link.busy(end)));
        self.tally.outcome.utilisation = busy / self.workload.length.as_secs_f64();
        self.tally.finish(self.now, self.options.hit)
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::ToOrigin { replica, frame } => {
                let id = ReplicaId(replica as u32);
                self.hosts[replica].asked +=
                    u64::from(matches!(frame.message, ToOrigin::Demand(_)));
                self.origin.handle_frame(reading(self.now), id, frame);
                self.pump_origin(replica..replica + 1);
            }
            Event::Control { replica, frame } => {
                self.hosts[replica].machine.handle_control(reading(self.now), frame);
                self.pump_replica(replica);
            }
            Event::Body { replica, frame } => {
                let content = frame.message.version.map(|version| version.content);
                let payload =
                    content.map(|Content { digest, size, .. }| Payload { digest, size, bytes: () });
                self.hosts[replica].machine.handle_body(reading(self.now), frame, payload);
                self.pump_replica(replica);
            }
            Event::Through { number } => {
                let Some(body) = self.link.end(self.now, number) else { return };
                let Carried { replica, frame, .. } = body;
                self.at(self.now + self.hosts[replica].latency, Event::Body { replica, frame });
                self.fill_link();
            }
            Event::Read(number) => self.read(number),
            Event::Write(number) => self.write(number),
            Event::OriginTimer => {
                if self.timer == Some(self.now) {
                    self.timer = None;
                    self.pump_origin(0..self.hosts.len());
                }
            }
            Event::ReplicaTimer { replica } => {
                if self.hosts[replica].timer == Some(self.now) {
                    self.hosts[replica].timer = None;
                    self.hosts[replica].machine.handle_timeout(reading(self.now));
                    self.pump_replica(replica);
                }
            }
            Event::Cut => self.cut(),
        }
    }

    /// The workload's read of this number begins.
    fn read(&mut self, number: usize) {
        let read = self.workload.reads[number];
        let replica = read.replica as usize;
        let id = ReadId(number as u64);
        let Host { machine, waiting, .. } = &mut self.hosts[replica];
        let why = machine.handle_read(reading(self.now), id, request(read.object));
        if why.is_some() {
            waiting.insert(id.0);
        }
        let first = waiting.first().and_then(|first| machine.why(ReadId(*first)));
        self.tally.arrived(self.now, number, why, first);
        self.pump_replica(replica);
        if let Some(next) = self.workload.reads.get(number + 1) {
            self.at(due(next.at), Event::Read(number + 1));
        }
    }

    /// The workload's write of this number begins.
    fn write(&mut self, number: usize) {
        let object = self.workload.writes[number].object;
        let size = self.workload.objects[object as usize];
        let put = Put::Body(payload(number as u64, size), Metadata::default());
        let changes = BTreeMap::from([(path(object), put)]);
        let id = TransactionId(number as u64);
        self.origin.handle_transaction(reading(self.now), id, Transaction { changes });
        self.pump_origin(0..self.hosts.len());
        if let Some(next) = self.workload.writes.get(number + 1) {
            self.at(due(next.at), Event::Write(number + 1));
        }
    }

    /// Finds out how long a cut at this moment would be masked.
    fn cut(&mut self) {
        let machines = self.hosts.iter().map(|host| &host.machine);
        let (masked, to_the_end) = cut::mask(self.workload, &self.tally, machines, self.now);
        self.tally.outcome.masked.push(masked);
        self.tally.outcome.masked_to_the_end += u64::from(to_the_end);
    }

    /// Carries out the origin's requests, and sends its messages to these replicas.
    fn pump_origin(&mut self, told: core::ops::Range<usize>) {
        let now = reading(self.now);
        instant_disk::carry_out(&mut self.origin, now);
        while let Some(event) = self.origin.poll_event() {
            match event {
                origin::Event::Acknowledged { transaction, sequence } => {
                    let write = self.workload.writes[transaction.0 as usize];
                    self.tally.wrote(self.now, write.object, sequence);
                }
                origin::Event::Progress { .. } | origin::Event::Arrived(_) => {}
                // Nothing fails here, so none of these events may happen.
                event => panic!("the origin: {event:?}"),
            }
        }
        for replica in told {
            let id = ReplicaId(replica as u32);
            while let Some(frame) = self.origin.poll_control(now, id) {
                let at = self.now + self.hosts[replica].latency;
                self.at(at, Event::Control { replica, frame });
            }
        }
        self.fill_link();
        if let Some(at) = self.origin.poll_timeout() {
            // One that only waits for a message is not called repeatedly.
            let at = u64::try_from(at.as_nanos()).unwrap_or(0).max(self.now + 1_000_000);
            if self.timer.is_none_or(|timer| at < timer) {
                self.timer = Some(at);
                self.at(at, Event::OriginTimer);
            }
        }
    }

    /// Gives the link the next body, if it takes one.
    fn fill_link(&mut self) {
        if self.link.yields()
            && let Some((replica, frame)) = self.next_before_background()
        {
            self.carry(replica, frame, false);
        }
        if !self.link.is_idle() {
            return;
        }
        if let Some(body) = self.link.waiting.take() {
            let (until, number) = self.link.begin(self.now, body);
            self.at(until, Event::Through { number });
        } else if self.options.strategy.is_background()
            && let Some((replica, frame)) = self.next_of_background()
        {
            self.carry(replica, frame, true);
        }
    }

    fn carry(&mut self, replica: usize, frame: Frame<BodyHeader>, is_background: bool) {
        let size = frame.message.version.map_or(0, |version| version.content.size.0);
        let outcome = &mut self.tally.outcome;
        if frame.message.demand {
            outcome.demanded_bytes += size;
        } else {
            outcome.pushed_bytes += size;
        }
        let left = self.link.cost(&frame);
        let body = Carried { replica, frame, is_background, left };
        let (until, number) = self.link.begin(self.now, body);
        self.at(until, Event::Through { number });
    }

    /// Demand reads, and pushes at normal priority: each replica has two streams, and all take turns.
    fn next_before_background(&mut self) -> Option<(usize, Frame<BodyHeader>)> {
        let streams = 2 * self.hosts.len();
        let in_order = self.options.strategy.is_in_order();
        for step in 0..streams {
            let stream = (self.link.turn[0] + step) % streams;
            let (replica, id) = (stream / 2, ReplicaId((stream / 2) as u32));
            let body = if stream.is_multiple_of(2) {
                (self.hosts[replica].asked > 0).then(|| self.origin.poll_demand(id)).flatten()
            } else {
                in_order.then(|| self.origin.poll_speculative(id)).flatten()
            };
            if let Some(frame) = body {
                self.hosts[replica].asked -= u64::from(frame.message.demand);
                self.link.turn[0] = (stream + 1) % streams;
                return Some((replica, frame));
            }
        }
        None
    }

    fn next_of_background(&mut self) -> Option<(usize, Frame<BodyHeader>)> {
        let count = self.hosts.len();
        (0..count).find_map(|step| {
            let replica = (self.link.turn[1] + step) % count;
            let frame = self.origin.poll_speculative(ReplicaId(replica as u32))?;
            self.link.turn[1] = (replica + 1) % count;
            Some((replica, frame))
        })
    }

    /// Carries out a replica's requests.
    fn pump_replica(&mut self, replica: usize) {
        let now = reading(self.now);
        let host = &mut self.hosts[replica];
        loop {
            while let Some(answer) = host.machine.poll_answer() {
                host.waiting.remove(&answer.id.0);
                let number = answer.id.0 as usize;
                let object = self.workload.reads[number].object;
                let replica::Outcome::Object(version) = answer.outcome else {
                    panic!("object {object} is not there: {answer:?}");
                };
                self.tally.answered(self.now, number, object, version.sequence);
            }
            let Some(effect) = host.machine.poll_effect() else { break };
            match effect {
                replica::Effect::Body(BodyEffect::Store(payload)) => {
                    host.machine.handle_stored(now, &payload.digest, Ok(()));
                }
                replica::Effect::Body(BodyEffect::Drop(digest)) => {
                    host.machine.handle_dropped(&digest);
                }
                replica::Effect::Commit(_) => host.machine.handle_committed(now, Ok(())),
            }
        }
        let mut said = Vec::new();
        while let Some(frame) = host.machine.poll_send() {
            said.push(frame);
        }
        while let Some(event) = host.machine.poll_event() {
            let connected = matches!(event, replica::Event::Connected { .. });
            assert!(connected, "nothing here fails: {event:?}");
        }
        let at = self.now + host.latency;
        let timer = host
            .machine
            .poll_timeout()
            .map(|at| u64::try_from(at.as_nanos()).unwrap_or(0).max(self.now + 1));
        let new = timer.filter(|at| host.timer.is_none_or(|timer| *at < timer));
        host.timer = new.or(host.timer);
        for frame in said {
            self.at(at, Event::ToOrigin { replica, frame });
        }
        if let Some(at) = new {
            self.at(at, Event::ReplicaTimer { replica });
        }
    }
}
