//! The run itself: events, and their effects.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_cc::{Bytes, Rate, Timestamp};
use lull_replication::message::{Frame, ToOrigin, ToReplica};
use lull_replication::origin::{
    self, Image, Origin, Put, ReadsPerWriteAndByte, Transaction, TransactionId,
};
use lull_replication::path::Path;
use lull_replication::time::{LocalTime, Reading, WallTime};
use lull_replication::types::{Digest, Incarnation, Metadata, Payload, ReplicaId, Sequence};
use lull_replication::wire;
use lull_sim::events::EventQueue;
use lull_sim::random::Random;

use super::link::{Link, Transfer};
use super::node::Node;
use super::tree::Tree;
use super::{Options, Outcome};
use crate::instant_disk;
use crate::pool::Pool;

const SECOND: u64 = 1_000_000_000;
/// Machines start within this time: shorter than a replica waits for the answer of a parent that waits for its own.
const STARTS: u64 = 5 * SECOND;
/// The publication: all are connected by then.
const PUBLISHED: u64 = 60 * SECOND;
/// Until all have the files, at most.
const PATIENCE: u64 = 30 * 86_400 * SECOND;

/// Something that happens at a time. Machines are numbered as in [`Tree`].
#[derive(Clone, Copy, Debug)]
enum Event {
    Start {
        node: u32,
    },
    Up {
        node: u32,
        slot: u32,
    },
    Down {
        node: u32,
        slot: u32,
    },
    /// A turn has left a machine.
    Sent {
        parent: u32,
    },
    /// It has arrived.
    Arrived {
        transfer: usize,
    },
    Timer {
        node: u32,
    },
    /// The origin has a heartbeat for a machine.
    Beat {
        node: u32,
    },
    Publish,
}

pub(super) struct World {
    options: Options,
    tree: Tree,
    children: Vec<Vec<u32>>,
    now: u64,
    queue: EventQueue<Event>,
    up: Pool<Frame<ToOrigin>>,
    down: Pool<Frame<ToReplica>>,
    origin: Origin<()>,
    beats: BTreeMap<u32, u64>,
    /// By number; the origin has none.
    nodes: Vec<Option<Node>>,
    links: Vec<Link>,
    transfers: Vec<Option<Transfer>>,
    free: Vec<usize>,
    published: Option<Sequence>,
    /// When each machine had all files.
    complete: Vec<Option<u64>>,
    /// Receivers without them, and those of which the origin does not know that they have them.
    incomplete: u32,
    unknown: BTreeSet<u32>,
    known: u64,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    control_bytes: u64,
    messages: u64,
    steps: u64,
}

/// Clocks are right everywhere.
fn reading(now: u64) -> Reading {
    let nanos = i64::try_from(now).unwrap_or(i64::MAX);
    Reading { local: LocalTime::from_nanos(nanos), wall: WallTime::from_nanos(nanos) }
}

fn path(file: u32) -> Path {
    Path::new(&format!("file-{file}")).expect("a name")
}

impl World {
    pub(super) fn new(options: Options) -> Self {
        let tree = Tree::new(options.receivers, options.levels);
        let children = tree.children();
        let count = tree.parents.len() as u32;
        let now = reading(0);
        let node = |at| (at > 0).then(|| Node::new(at, !children[at as usize].is_empty(), now));
        let nodes: Vec<_> = (0..count).map(node).collect();
        let mut image = Image::empty([1; 32]);
        image.incarnation = Incarnation(1);
        let policy = Box::new(ReadsPerWriteAndByte);
        let origin = Origin::recover(now, origin::Config::default(), policy, image, []);
        let receivers = count - options.receivers..count;
        World {
            options,
            now: 0,
            queue: EventQueue::default(),
            up: Pool::default(),
            down: Pool::default(),
            origin,
            beats: BTreeMap::new(),
            nodes,
            links: (0..count).map(|_| Link::default()).collect(),
            transfers: Vec::new(),
            free: Vec::new(),
            published: None,
            complete: vec![None; count as usize],
            incomplete: options.receivers,
            unknown: receivers.collect(),
            known: 0,
            counts: Counts::default(),
            tree,
            children,
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.queue.insert(Timestamp::from_nanos(time.max(self.now)), event);
    }

    fn delay(&self) -> u64 {
        u64::try_from(self.options.delay.as_nanos()).unwrap_or(u64::MAX / 4)
    }

    fn receivers(&self) -> core::ops::Range<u32> {
        let count = self.tree.parents.len() as u32;
        count - self.options.receivers..count
    }

    fn node(&mut self, number: u32) -> &mut Node {
        self.nodes[number as usize].as_mut().expect("it is not the origin")
    }

    pub(super) fn run(mut self) -> Outcome {
        let mut random = Random::new(self.options.seed);
        for node in 1..self.tree.parents.len() as u32 {
            self.at(random.below(STARTS), Event::Start { node });
        }
        self.at(PUBLISHED, Event::Publish);
        let until = Timestamp::from_nanos(PUBLISHED + PATIENCE);
        while self.published.is_none() || !self.unknown.is_empty() {
            let Some((at, event)) = self.queue.pop(until) else {
                panic!(
                    "{} receivers have no files, {} are unknown",
                    self.incomplete,
                    self.unknown.len()
                );
            };
            self.now = at.as_nanos();
            self.counts.steps += 1;
            self.handle_event(event);
        }
        self.outcome()
    }

    fn outcome(&self) -> Outcome {
        let times: Vec<u64> =
            self.receivers().filter_map(|at| self.complete[at as usize]).collect();
        let since = |time: u64| Duration::from_nanos(time - PUBLISHED);
        let sum: Duration = times.iter().map(|time| since(*time)).sum();
        Outcome {
            relays: self.tree.relays,
            served: self.children[0].len() as u32,
            first: times.iter().min().map_or(Duration::ZERO, |time| since(*time)),
            mean: sum / self.options.receivers.max(1),
            last: times.iter().max().map_or(Duration::ZERO, |time| since(*time)),
            known: since(self.known),
            body_bytes: self.links[0].bytes,
            control_bytes: self.counts.control_bytes,
            messages: self.counts.messages,
            steps: self.counts.steps,
        }
    }

    fn handle_event(&mut self, event: Event) {
        let now = reading(self.now);
        match event {
            Event::Start { node } => {
                self.node(node).machine.handle_connected(now);
                self.pump(node);
            }
            Event::Up { node, slot } => {
                if let Some(frame) = self.up.take(slot) {
                    self.deliver_up(node, frame);
                }
            }
            Event::Down { node, slot } => {
                if let Some(frame) = self.down.take(slot) {
                    self.node(node).machine.handle_control(now, frame);
                    self.pump(node);
                }
            }
            Event::Sent { parent } => self.turn_sent(parent),
            Event::Arrived { transfer } => self.turn_arrived(transfer),
            Event::Timer { node } => {
                let host = self.nodes[node as usize].as_mut().expect("it is not the origin");
                if host.timer == Some(self.now) {
                    host.timer = None;
                    host.machine.handle_timeout(now);
                    self.pump(node);
                }
            }
            Event::Beat { node } => {
                if self.beats.get(&node) == Some(&self.now) {
                    self.beats.remove(&node);
                    self.serve(node);
                }
            }
            Event::Publish => self.publish(),
        }
    }

    /// A message arrives at the parent of a machine.
    fn deliver_up(&mut self, node: u32, frame: Frame<ToOrigin>) {
        let (now, id) = (reading(self.now), ReplicaId(node));
        let parent = self.tree.parents[node as usize];
        if parent == 0 {
            self.counts.messages += u64::from(self.published.is_some());
            self.origin.handle_frame(now, id, frame);
            self.work_at_origin();
            return self.serve(node);
        }
        let Node { machine, relay, .. } = self.node(parent);
        let relay = relay.as_mut().expect("it has children");
        if matches!(frame.message, ToOrigin::Hello { .. }) {
            relay.handle_hello(now, machine, (id, Digest::default()), frame);
        } else {
            relay.handle_child(now, machine, id, frame);
        }
        self.pump(parent);
        self.serve(node);
    }

    /// Writes all files in one transaction.
    fn publish(&mut self) {
        let Options { files, size, .. } = self.options;
        let put = |file: u32| {
            let digest = Digest::of(&file.to_le_bytes());
            let payload = Payload { digest, size, bytes: () };
            (path(file), Put::Body(payload, Metadata::default()))
        };
        let changes = (0..files).map(put).collect();
        let transaction = Transaction { changes };
        self.origin.handle_transaction(reading(self.now), TransactionId(1), transaction);
        self.work_at_origin();
        for child in self.children[0].clone() {
            self.serve(child);
        }
    }

    /// Carries out the origin's requests.
    fn work_at_origin(&mut self) {
        let now = reading(self.now);
        loop {
            instant_disk::carry_out(&mut self.origin, now);
            while self.origin.poll_garbage().is_some() {}
            if !self.origin.has_more() {
                break;
            }
            self.origin.go_on(now);
        }
        while let Some(event) = self.origin.poll_event() {
            match event {
                origin::Event::Acknowledged { sequence, .. } => self.published = Some(sequence),
                origin::Event::Progress { replica, .. } | origin::Event::Arrived(replica) => {
                    self.look_at(replica);
                }
                event => panic!("nothing here fails: {event:?}"),
            }
        }
    }

    /// The origin has heard of a machine.
    fn look_at(&mut self, replica: ReplicaId) {
        let Some(sequence) = self.published else { return };
        let has = |file| self.origin.has_arrived(replica, &path(file), sequence);
        if self.unknown.contains(&replica.0) && (0..self.options.files).all(has) {
            self.unknown.remove(&replica.0);
            self.known = self.now;
        }
    }

    /// Sends all that a machine is to get from its parent now.
    fn serve(&mut self, node: u32) {
        let (now, id) = (reading(self.now), ReplicaId(node));
        let parent = self.tree.parents[node as usize];
        let arrival = self.now + self.delay();
        loop {
            let frame = if parent == 0 {
                self.origin.poll_control(now, id)
            } else {
                let relay = self.node(parent).relay.as_mut();
                relay.and_then(|relay| relay.origin().poll_control(now, id))
            };
            let Some(frame) = frame else { break };
            if parent == 0 && self.published.is_some() {
                let mut bytes = Vec::new();
                wire::encode(&frame, &mut bytes).expect("it fits");
                self.counts.control_bytes += bytes.len() as u64;
            }
            let slot = self.down.insert(frame);
            self.at(arrival, Event::Down { node, slot });
        }
        self.send_body(node);
        if parent == 0
            && let Some(at) = self.origin.heartbeat_at(id)
        {
            let at = u64::try_from(at.as_nanos()).unwrap_or(0).max(self.now + 1);
            if self.beats.get(&node).is_none_or(|beat| at < *beat) {
                self.beats.insert(node, at);
                self.at(at, Event::Beat { node });
            }
        }
    }

    /// Begins to send the next body to a machine, unless one is sent.
    fn send_body(&mut self, node: u32) {
        let (parent, id) = (self.tree.parents[node as usize], ReplicaId(node));
        if self.node(node).is_receiving {
            return;
        }
        let frame = if parent == 0 {
            self.origin.poll_speculative(id)
        } else {
            let relay = self.node(parent).relay.as_mut();
            relay.and_then(|relay| relay.origin().poll_speculative(id))
        };
        let Some(frame) = frame else { return };
        self.node(node).is_receiving = true;
        let number = self.free.pop().unwrap_or_else(|| {
            self.transfers.push(None);
            self.transfers.len() - 1
        });
        self.transfers[number] = Some(Transfer::new(parent, node, frame));
        self.go_on(number);
    }

    /// A transfer sends its next turn, or waits for it.
    fn go_on(&mut self, number: usize) {
        let transfer = self.transfers[number].as_ref().expect("it is not over");
        let (parent, turns) = (transfer.parent, transfer.turns());
        let digest = digest_of(transfer);
        let parent_node = self.nodes[parent as usize].as_mut();
        let here = parent_node.as_ref().map_or(turns, |node| node.turns_of(&digest, turns));
        if transfer.can_send(here) {
            self.links[parent as usize].add(number);
            self.fill(parent);
        } else if let Some(node) = parent_node {
            let arriving = node.arriving.get_mut(&digest).expect("it is stored, or arrives");
            arriving.waiting.push(number);
        }
    }

    fn fill(&mut self, parent: u32) {
        if let Some(bytes) = self.links[parent as usize].begin(&mut self.transfers) {
            let at = self.now + nanos_for(self.options.rate, bytes);
            self.at(at, Event::Sent { parent });
        }
    }

    /// A turn has left a machine.
    fn turn_sent(&mut self, parent: u32) {
        let number = self.links[parent as usize].end().expect("a turn was sent");
        let arrival = self.now + self.delay();
        self.at(arrival, Event::Arrived { transfer: number });
        let transfer = self.transfers[number].as_ref().expect("it is not over");
        let (child, is_sent) = (transfer.child, transfer.is_sent());
        if is_sent {
            self.node(child).is_receiving = false;
            self.send_body(child);
        } else {
            self.go_on(number);
        }
        self.fill(parent);
    }

    /// A turn has arrived.
    fn turn_arrived(&mut self, number: usize) {
        let transfer = self.transfers[number].as_mut().expect("it is not over");
        transfer.arrived += 1;
        let (child, arrived) = (transfer.child, transfer.arrived);
        let (is_whole, digest) = (arrived == transfer.turns(), digest_of(transfer));
        let node = self.node(child);
        if node.relay.is_some() {
            let arriving = node.arriving.entry(digest).or_default();
            arriving.here = arrived;
            let waiting = core::mem::take(&mut arriving.waiting);
            if arrived == 1 {
                let serves = node.relay.as_mut().map(|relay| relay.handle_arriving(digest, false));
                assert_eq!(serves, Some(true), "it is connected");
                self.pump(child);
            }
            for waiting in waiting {
                self.go_on(waiting);
            }
        }
        if is_whole {
            self.body_arrived(number);
        }
    }

    fn body_arrived(&mut self, number: usize) {
        let Some(transfer) = self.transfers[number].take() else { return };
        self.free.push(number);
        let Transfer { child, frame, .. } = transfer;
        let content = frame.message.version.map(|version| version.content);
        let Some(content) = content else { return };
        let payload = Payload { digest: content.digest, size: content.size, bytes: () };
        let now = reading(self.now);
        let node = self.node(child);
        node.machine.handle_body(now, frame, Some(payload));
        self.pump(child);
        let node = self.node(child);
        if let Some(relay) = &mut node.relay {
            relay.handle_arrived(content.digest, false);
            let gone = node.arriving.remove(&content.digest);
            assert!(gone.is_none_or(|one| one.waiting.is_empty()), "all of it is here");
            self.pump(child);
        }
    }

    /// Carries out the requests of a relay or receiver, and sends its messages.
    fn pump(&mut self, number: u32) {
        let (now, delay) = (reading(self.now), self.delay());
        let node = self.nodes[number as usize].as_mut().expect("it is not the origin");
        let has_news = node.work(now);
        while let Some(frame) = node.machine.poll_send() {
            let up = Event::Up { node: number, slot: self.up.insert(frame) };
            self.queue.insert(Timestamp::from_nanos(self.now + delay), up);
        }
        if let Some(at) = node.machine.poll_timeout() {
            let at = u64::try_from(at.as_nanos()).unwrap_or(0).max(self.now + 1);
            if node.timer.is_none_or(|timer| at < timer) {
                node.timer = Some(at);
                self.queue.insert(Timestamp::from_nanos(at), Event::Timer { node: number });
            }
        }
        if let Some(sequence) = self.published
            && self.complete[number as usize].is_none()
            && node.shows(sequence)
        {
            self.complete[number as usize] = Some(self.now);
            self.incomplete -= u32::from(self.receivers().contains(&number));
        }
        if has_news {
            for child in 0..self.children[number as usize].len() {
                self.serve(self.children[number as usize][child]);
            }
        }
    }
}

fn digest_of(transfer: &Transfer) -> Digest {
    let version = transfer.frame.message.version;
    version.map_or_else(Digest::default, |version| version.content.digest)
}

fn nanos_for(rate: Rate, bytes: u64) -> u64 {
    u64::try_from(rate.time_for(Bytes(bytes)).as_nanos()).unwrap_or(u64::MAX / 4)
}
