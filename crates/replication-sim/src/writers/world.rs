//! Writers, replicas and clients on a virtual clock, with networks and machines that fail.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_sim::random::Random;

use super::checker::{self, Event as Seen, Logged};
use super::link::{Direction, Link};
use super::replica::{Answer, Replica, Request};
use super::writer::{Acknowledgement, Write, Writer};
use super::{
    Commit, Object, Options, Outcome, SeededBug, SessionId, Situation, Vector, WriteId, WriterId,
};

/// Objects of a subtree.
const OBJECTS: u64 = 4;
/// How often a replica pings each writer.
const PING: Duration = Duration::from_millis(300);
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The mean delay of a message.
const DELAY: Duration = Duration::from_millis(20);
/// The mean delay of a slow one, which is one in twenty.
const LONG_DELAY: Duration = Duration::from_millis(700);
/// The mean time between two operations of a client, and between two faults.
const THINK: Duration = Duration::from_millis(150);
const BETWEEN_FAULTS: Duration = Duration::from_millis(1_500);
/// The mean time of a sync, and of a cut.
const SYNC: Duration = Duration::from_millis(15);
const CUT: Duration = Duration::from_secs(3);
/// After the repair, clients are idle for this long. Then each reads all objects once more.
const SETTLING: Duration = Duration::from_secs(20);
/// How much faster or slower a replica's clock may run, in millionths.
const DRIFT_PPM: u64 = 1_000;

/// A message between a replica and a writer.
#[derive(Debug)]
enum Message {
    Hello(u64),
    Ping(Duration),
    Commit(Commit),
    Heartbeat { echo: Duration, position: u64 },
}

/// Something that happens.
#[derive(Debug)]
enum Event {
    Message { replica: usize, writer: usize, connection: u64, message: Message },
    WriteArrives(usize, Write),
    Synced { writer: usize, life: u64 },
    AckArrives { writer: usize, ack: Acknowledgement, at: Duration },
    ReadArrives { replica: usize, operation: Operation, request: Request },
    AnswerArrives(Operation, Answer),
    ClientActs(usize),
    ClientGivesUp(Operation),
    LastRead(usize),
    PingDue(usize),
    Reconnect { replica: usize, writer: usize, connection: u64 },
    Fault,
    Repair,
}

/// A read or write: its client in the last eight bits, and its number at the client above them. It is also the
/// name of the write, so it is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation(u64);

impl Operation {
    fn new(client: usize, number: u64) -> Self {
        assert!(client < 256 && number > 0, "client {client}, operation {number}");
        Operation((number << 8) | client as u64)
    }

    fn client(self) -> usize {
        (self.0 & 0xff) as usize
    }
}

/// An operation that is not answered.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    operation: Operation,
    began: Duration,
    is_write: bool,
}

#[derive(Debug)]
struct Client {
    token: Vector,
    replica: usize,
    /// How many operations it has begun.
    begun: u64,
    waiting: Option<Waiting>,
}

/// A replica's clock: it starts anywhere, and is a little too fast or slow.
#[derive(Clone, Copy, Debug)]
struct LocalClock {
    offset: Duration,
    ppm: u64,
}

impl LocalClock {
    fn draw(random: &mut Random) -> Self {
        let offset = Duration::from_millis(random.below(1_000_000));
        LocalClock { offset, ppm: 1_000_000 - DRIFT_PPM + random.below(2 * DRIFT_PPM + 1) }
    }

    fn read(self, now: Duration) -> Duration {
        let micros = now.as_micros() * u128::from(self.ppm) / 1_000_000;
        self.offset + Duration::from_micros(u64::try_from(micros).expect("a short run"))
    }
}

/// The whole simulation.
pub(super) struct World {
    options: Options,
    random: Random,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    scheduled: u64,
    writers: Vec<Writer>,
    /// By writer, how often it has started, and whether a sync is running.
    syncing: Vec<(u64, bool)>,
    replicas: Vec<Replica>,
    clocks: Vec<LocalClock>,
    /// By replica and writer.
    links: Vec<Vec<Link>>,
    clients: Vec<Client>,
    is_repaired: bool,
    history: Vec<Seen>,
    outcome: Outcome,
}

impl World {
    pub(super) fn new(options: Options) -> Self {
        let Options { seed, writers, replicas, sessions, bug, .. } = options;
        let mut random = Random::new(seed);
        // Even a clock that is too slow then counts Δ in less than Δ.
        let delta = options.delta * (1_000_000 - DRIFT_PPM as u32) / 1_000_000;
        let client =
            |replica| Client { token: Vector::zero(writers), replica, begun: 0, waiting: None };
        let mut world = World {
            options,
            now: Duration::ZERO,
            events: BTreeMap::new(),
            scheduled: 0,
            writers: (0..writers).map(|id| Writer::new(WriterId(id), writers, bug)).collect(),
            syncing: vec![(0, false); writers],
            replicas: (0..replicas).map(|_| Replica::new(writers, delta, bug)).collect(),
            clocks: (0..replicas).map(|_| LocalClock::draw(&mut random)).collect(),
            links: vec![vec![Link::default(); writers]; replicas],
            clients: (0..sessions).map(|at| client(at % replicas)).collect(),
            is_repaired: false,
            history: Vec::new(),
            outcome: Outcome::default(),
            random,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for replica in 0..self.replicas.len() {
            for writer in 0..self.writers.len() {
                self.connect(replica, writer);
            }
            self.schedule(Duration::ZERO, Event::PingDue(replica));
        }
        for client in 0..self.clients.len() {
            self.schedule(Duration::ZERO, Event::ClientActs(client));
            let last = self.options.time + SETTLING;
            self.schedule(last, Event::LastRead(client));
        }
        self.schedule(BETWEEN_FAULTS, Event::Fault);
        self.schedule(self.options.time, Event::Repair);
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.scheduled += 1;
        self.events.insert((self.now + after, self.scheduled), event);
    }

    /// Runs to the end, and checks it.
    pub(super) fn run(mut self) -> Outcome {
        let end = self.options.time + 2 * SETTLING;
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > end {
                break;
            }
            self.now = at;
            self.handle(event);
        }
        self.finish()
    }

    fn finish(mut self) -> Outcome {
        let logged =
            |commit: &Commit| Logged { write: commit.write, objects: commit.objects.clone() };
        let logs: Vec<Vec<Logged>> =
            self.writers.iter().map(|writer| writer.log().iter().map(logged).collect()).collect();
        self.outcome.violations = checker::check(&logs, &self.history, self.options.delta);
        for (at, replica) in self.replicas.iter().enumerate() {
            self.outcome.situations.extend(replica.situations());
            for (writer, log) in logs.iter().enumerate() {
                let applied = replica.applied().get(WriterId(writer));
                if applied != log.len() as u64 {
                    let what = format!("replica {at} has {applied} of {} commits", log.len());
                    self.outcome.stuck.push(what);
                }
            }
        }
        self.outcome
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Message { replica, writer, connection, message } => {
                if self.links[replica][writer].connection == connection {
                    self.deliver(replica, writer, message);
                }
            }
            Event::WriteArrives(writer, write) => self.accept(writer, write),
            Event::Synced { writer, life } => self.synced(writer, life),
            Event::AckArrives { writer, ack, at } => self.acknowledged(writer, &ack, at),
            Event::ReadArrives { replica, operation, request } => {
                self.replicas[replica].handle_read(operation.0, request);
                self.answer_reads(replica);
            }
            Event::AnswerArrives(operation, answer) => self.answered(operation, answer),
            Event::ClientActs(client) => self.act(client),
            Event::ClientGivesUp(operation) => self.give_up(operation),
            Event::LastRead(client) => {
                let objects = (0..self.writers.len()).flat_map(|owner| {
                    (0..OBJECTS as u32).map(move |number| Object { owner: WriterId(owner), number })
                });
                let objects = objects.collect();
                self.read(client, objects);
            }
            Event::PingDue(replica) => {
                for writer in 0..self.writers.len() {
                    let ping = Message::Ping(self.clocks[replica].read(self.now));
                    self.send(Direction::ToWriter, replica, writer, ping);
                }
                self.schedule(PING, Event::PingDue(replica));
            }
            Event::Reconnect { replica, writer, connection } => {
                if self.links[replica][writer].connection == connection {
                    self.connect(replica, writer);
                }
            }
            Event::Fault => self.fail(),
            Event::Repair => self.repair(),
        }
    }
}

/// Networks.
impl World {
    fn delay(&mut self) -> Duration {
        let is_long = !self.is_repaired && self.random.below(20) == 0;
        self.random.exponential(if is_long { LONG_DELAY } else { DELAY })
    }

    fn is_lost(&mut self) -> bool {
        !self.is_repaired && self.random.below(25) == 0
    }

    fn send(&mut self, direction: Direction, replica: usize, writer: usize, message: Message) {
        let delay = self.delay();
        let link = &mut self.links[replica][writer];
        if !link.is_up {
            return;
        }
        let (at, connection) = (link.arrival(direction, self.now, delay), link.connection);
        self.schedule(at - self.now, Event::Message { replica, writer, connection, message });
    }

    fn deliver(&mut self, replica: usize, writer: usize, message: Message) {
        match message {
            Message::Hello(position) => {
                self.writers[writer].handle_hello(replica, position);
                self.send_commits(writer);
            }
            Message::Ping(echo) => {
                // The commits up to there have been sent before.
                let position = self.writers[writer].durable_position();
                let heartbeat = Message::Heartbeat { echo, position };
                self.send(Direction::ToReplica, replica, writer, heartbeat);
            }
            Message::Commit(commit) => {
                self.replicas[replica].handle_commit(WriterId(writer), commit);
                self.answer_reads(replica);
            }
            Message::Heartbeat { echo, position } => {
                self.replicas[replica].handle_heartbeat(WriterId(writer), echo, position);
                self.answer_reads(replica);
            }
        }
    }

    fn connect(&mut self, replica: usize, writer: usize) {
        self.links[replica][writer].is_up = true;
        let received = self.replicas[replica].received(WriterId(writer));
        self.send(Direction::ToWriter, replica, writer, Message::Hello(received));
    }

    fn cut(&mut self, replica: usize, writer: usize, time: Duration) {
        self.links[replica][writer].cut();
        self.writers[writer].handle_disconnected(replica);
        let connection = self.links[replica][writer].connection;
        self.schedule(time, Event::Reconnect { replica, writer, connection });
    }

    fn send_commits(&mut self, writer: usize) {
        for replica in 0..self.replicas.len() {
            while let Some(commit) = self.writers[writer].poll_commit(replica) {
                self.send(Direction::ToReplica, replica, writer, Message::Commit(commit));
            }
        }
    }
}

/// Machines.
impl World {
    fn accept(&mut self, writer: usize, write: Write) {
        let early = self.writers[writer].handle_write(write);
        if let Some(ack) = early {
            self.acknowledge(writer, ack);
        }
        let (life, is_syncing) = &mut self.syncing[writer];
        if !std::mem::replace(is_syncing, true) {
            let life = *life;
            let time = self.random.exponential(SYNC);
            self.schedule(time, Event::Synced { writer, life });
        }
    }

    fn synced(&mut self, writer: usize, life: u64) {
        if self.syncing[writer].0 != life {
            return;
        }
        self.syncing[writer].1 = false;
        for ack in self.writers[writer].handle_synced() {
            self.acknowledge(writer, ack);
        }
        self.send_commits(writer);
    }

    fn acknowledge(&mut self, writer: usize, ack: Acknowledgement) {
        let (delay, at) = (self.delay(), self.now);
        if !self.is_lost() {
            self.schedule(delay, Event::AckArrives { writer, ack, at });
        }
    }

    fn answer_reads(&mut self, replica: usize) {
        let local = self.clocks[replica].read(self.now);
        for (operation, answer) in self.replicas[replica].poll_answers(local) {
            let delay = self.delay();
            if !self.is_lost() {
                self.schedule(delay, Event::AnswerArrives(Operation(operation), answer));
            }
        }
    }

    fn fail(&mut self) {
        if self.is_repaired {
            return;
        }
        let replica = self.random.below(self.replicas.len() as u64) as usize;
        let writer = self.random.below(self.writers.len() as u64) as usize;
        let time = self.random.exponential(CUT);
        match self.random.below(4) {
            0 | 1 => self.cut(replica, writer, time),
            2 => {
                if self.writers[writer].restart() {
                    self.outcome.situations.insert(Situation::WriteLost);
                }
                self.syncing[writer] = (self.syncing[writer].0 + 1, false);
                for replica in 0..self.replicas.len() {
                    self.cut(replica, writer, DELAY);
                }
            }
            _ => {
                self.replicas[replica].restart();
                self.clocks[replica] = LocalClock::draw(&mut self.random);
                for writer in 0..self.writers.len() {
                    self.cut(replica, writer, DELAY);
                }
            }
        }
        let next = self.random.exponential(BETWEEN_FAULTS);
        self.schedule(next, Event::Fault);
    }

    fn repair(&mut self) {
        self.is_repaired = true;
        for replica in 0..self.replicas.len() {
            for writer in 0..self.writers.len() {
                if !self.links[replica][writer].is_up {
                    self.cut(replica, writer, DELAY);
                }
            }
        }
    }
}

/// Clients.
impl World {
    fn some_objects(&mut self, owner: usize, most: u64) -> BTreeSet<Object> {
        let count = 1 + self.random.below(most);
        let object = |number: u64| Object { owner: WriterId(owner), number: number as u32 };
        (0..count).map(|_| object(self.random.below(OBJECTS))).collect()
    }

    fn act(&mut self, client: usize) {
        if self.is_repaired {
            return;
        }
        let next = self.random.exponential(THINK);
        self.schedule(next, Event::ClientActs(client));
        if self.clients[client].waiting.is_some() {
            return;
        }
        let owner = self.random.below(self.writers.len() as u64) as usize;
        if self.random.below(3) == 0 {
            let objects = self.some_objects(owner, 3);
            self.write(client, owner, objects);
            return;
        }
        if self.random.below(3) == 0 {
            self.clients[client].replica = self.random.below(self.replicas.len() as u64) as usize;
        }
        let mut objects = self.some_objects(owner, 3);
        if self.random.below(2) == 0 {
            let other = self.random.below(self.writers.len() as u64) as usize;
            objects.append(&mut self.some_objects(other, 2));
        }
        self.read(client, objects);
    }

    fn start(&mut self, client: usize, is_write: bool) -> Operation {
        let state = &mut self.clients[client];
        state.begun += 1;
        let operation = Operation::new(client, state.begun);
        state.waiting = Some(Waiting { operation, began: self.now, is_write });
        self.schedule(PATIENCE, Event::ClientGivesUp(operation));
        operation
    }

    fn write(&mut self, client: usize, writer: usize, objects: BTreeSet<Object>) {
        let id = WriteId(self.start(client, true).0);
        self.history.push(Seen::Began { session: SessionId(client), write: id });
        let after = match self.options.bug {
            Some(SeededBug::WritesWithoutToken) => Vector::zero(self.writers.len()),
            _ => self.clients[client].token.clone(),
        };
        let delay = self.delay();
        if !self.is_lost() {
            self.schedule(delay, Event::WriteArrives(writer, Write { id, objects, after }));
        }
    }

    fn read(&mut self, client: usize, objects: BTreeSet<Object>) {
        let operation = self.start(client, false);
        let Client { token, replica, .. } = &self.clients[client];
        let (replica, request) = (*replica, Request { objects, token: token.clone() });
        let delay = self.delay();
        if !self.is_lost() {
            self.schedule(delay, Event::ReadArrives { replica, operation, request });
        }
    }

    /// Ends the operation; none if its client no longer waits for it.
    fn end(&mut self, operation: Operation) -> Option<Waiting> {
        self.clients[operation.client()].waiting.take_if(|waiting| waiting.operation == operation)
    }

    fn acknowledged(&mut self, writer: usize, ack: &Acknowledgement, at: Duration) {
        let operation = Operation(ack.write.0);
        if self.end(operation).is_none() {
            return;
        }
        let (client, writer) = (operation.client(), WriterId(writer));
        self.clients[client].token.join(&ack.stamp);
        let (session, write) = (SessionId(client), ack.write);
        let position = ack.stamp.get(writer);
        self.history.push(Seen::Acknowledged { session, write, writer, position, at });
        self.outcome.writes += 1;
    }

    fn answered(&mut self, operation: Operation, answer: Answer) {
        let Some(Waiting { began, .. }) = self.end(operation) else { return };
        let client = operation.client();
        self.clients[client].token = answer.token;
        self.history.push(Seen::Read { session: SessionId(client), began, seen: answer.values });
        self.outcome.reads += 1;
    }

    fn give_up(&mut self, operation: Operation) {
        let Some(Waiting { began, is_write, .. }) = self.end(operation) else { return };
        if is_write {
            self.outcome.situations.insert(Situation::ResultUnknown);
        }
        for replica in &mut self.replicas {
            replica.handle_cancelled(operation.0);
        }
        if began >= self.options.time + SETTLING {
            let client = operation.client();
            self.outcome.stuck.push(format!("the last read of client {client} was not answered"));
        }
    }
}
