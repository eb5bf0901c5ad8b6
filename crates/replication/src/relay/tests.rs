//! An origin, a chain of relays and a replica, whose messages arrive at once and in order.

mod below;
mod forward;
mod urgent;

use std::collections::{BTreeMap, VecDeque};

use lull_cc::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::BodyEffect;
use crate::message::{BodyHeader, ToReplica};
use crate::origin::{self, Put, ReadsPerWriteAndByte, Transaction, TransactionId};
use crate::replica::{self, Image, Outcome, ReadId, ReadTarget, Request, WaitReason};
use crate::subscription::{Pattern, Subscription};
use crate::time::{LocalTime, WallTime};
use crate::types::{Metadata, Payload, Position};

const ORIGIN: usize = 0;

/// A replica, its disk and what is on the way.
struct Node {
    /// Which node serves it.
    parent: usize,
    replica: Replica<()>,
    relay: Option<Relay<()>>,
    is_relay: bool,
    disk: Image,
    bodies: BTreeMap<Digest, Bytes>,
    config: replica::Config,
    only: Subscription,
    /// How far its wall clock is ahead.
    ahead: i64,
    connected: bool,
    up: VecDeque<Frame<ToOrigin>>,
    down: VecDeque<Frame<ToReplica>>,
    /// Nothing is delivered in either direction.
    is_cut: bool,
    /// Heartbeats that it has received.
    heartbeats: Vec<(Sequence, Option<LocalTime>)>,
    events: Vec<replica::Event>,
}

struct Tree {
    ms: i64,
    origin: Origin<()>,
    /// From 1; the origin is 0.
    nodes: Vec<Node>,
    writes: u64,
    /// When each commit was acknowledged.
    acknowledged: Vec<i64>,
    answers: Vec<replica::Answer>,
}

fn path(text: &str) -> Path {
    Path::new(text).expect("a path")
}

fn clock(ms: i64, ahead: i64) -> Reading {
    let nanos = ms * 1_000_000;
    Reading { local: LocalTime::from_nanos(nanos), wall: WallTime::from_nanos(nanos + ahead) }
}

fn payload(number: u64) -> Payload<()> {
    Payload { digest: Digest::of(&number.to_le_bytes()), size: Bytes(40_000), bytes: () }
}

impl Node {
    fn start(&mut self, now: Reading) {
        self.disk.incarnation = Incarnation(self.disk.incarnation.0 + 1);
        let bodies = self.bodies.iter().map(|(digest, size)| (*digest, *size));
        self.replica = Replica::recover(now, self.config, self.disk.clone(), bodies);
        self.replica.subscribe(self.only.clone());
        self.relay = None;
        if self.is_relay {
            let policy = Box::new(ReadsPerWriteAndByte);
            let config = origin::Config::default();
            self.relay = Some(Relay::new(now, config, policy, &mut self.replica));
        }
    }

    /// Runs all jobs of its disk.
    fn run_disk(&mut self, now: Reading) {
        while let Some(effect) = self.replica.poll_effect() {
            match effect {
                replica::Effect::Body(BodyEffect::Store(body)) => {
                    self.bodies.insert(body.digest, body.size);
                    self.replica.handle_stored(now, &body.digest, Ok(()));
                }
                replica::Effect::Body(BodyEffect::Drop(digest)) => {
                    self.bodies.remove(&digest);
                    self.replica.handle_dropped(&digest);
                }
                replica::Effect::Commit(step) => {
                    self.disk.apply(&step);
                    self.replica.handle_committed(now, Ok(()));
                }
            }
        }
    }
}

impl Tree {
    /// Nodes with these parents; each parent but the origin is a relay.
    fn new(parents: &[usize]) -> Self {
        Tree::of(parents, &Subscription::default())
    }

    /// Of nodes that take only these names.
    fn taking(parents: &[usize], names: &str) -> Self {
        let pattern = Pattern::new(names.as_bytes()).expect("a pattern");
        Tree::of(parents, &Subscription::new(vec![pattern]).expect("one pattern"))
    }

    fn of(parents: &[usize], only: &Subscription) -> Self {
        let now = clock(0, 0);
        let policy = Box::new(ReadsPerWriteAndByte);
        let mut image = origin::Image::empty([7; 32]);
        image.incarnation = Incarnation(1);
        let origin = Origin::recover(now, origin::Config::default(), policy, image, []);
        let node = |(at, parent): (usize, &usize)| {
            let id = ReplicaId(at as u32 + 1);
            let staleness = replica::Staleness {
                connected: core::time::Duration::from_secs(5),
                disconnected: Some(core::time::Duration::from_secs(60)),
                ..replica::Staleness::default()
            };
            let config = replica::Config { replica: id, staleness, ..replica::Config::default() };
            let disk = Image::default();
            let replica = Replica::recover(now, config, disk.clone(), []);
            let is_relay = parents.contains(&(at + 1));
            let (bodies, up, down, heartbeats, events) = Default::default();
            Node {
                parent: *parent,
                replica,
                relay: None,
                is_relay,
                disk,
                bodies,
                config,
                only: only.clone(),
                ahead: 0,
                connected: false,
                up,
                down,
                is_cut: false,
                heartbeats,
                events,
            }
        };
        let nodes = parents.iter().enumerate().map(node).collect();
        let (writes, acknowledged, answers) = Default::default();
        let mut tree = Tree { ms: 0, origin, nodes, writes, acknowledged, answers };
        (1..=parents.len()).for_each(|at| tree.restart(at));
        tree
    }

    fn node(&mut self, at: usize) -> &mut Node {
        &mut self.nodes[at - 1]
    }

    fn now(&self, at: usize) -> Reading {
        clock(self.ms, if at == ORIGIN { 0 } else { self.nodes[at - 1].ahead })
    }

    /// Starts a node from its disk.
    fn restart(&mut self, at: usize) {
        let now = self.now(at);
        self.disconnect(at);
        for child in 1..=self.nodes.len() {
            if self.nodes[child - 1].parent == at {
                self.disconnect(child);
            }
        }
        self.node(at).start(now);
    }

    fn disconnect(&mut self, at: usize) {
        let now = self.now(at);
        let node = self.node(at);
        node.up.clear();
        node.down.clear();
        if core::mem::take(&mut node.connected) {
            node.replica.handle_disconnected(now);
        }
    }

    fn write(&mut self, names: &[&str]) -> Sequence {
        let now = self.now(ORIGIN);
        self.writes += 1;
        let number = self.writes;
        let changes = names.iter().enumerate().map(|(at, name)| {
            let body = payload(number * 100 + at as u64);
            (path(name), Put::Body(body, Metadata::default()))
        });
        let changes = changes.collect();
        self.origin.handle_transaction(now, TransactionId(number), Transaction { changes });
        self.run_origin_disk(now);
        self.acknowledged.push(self.ms);
        self.origin.last().sequence
    }

    fn run_origin_disk(&mut self, now: Reading) {
        while let Some(effect) = self.origin.poll_effect() {
            match effect {
                origin::Effect::Body(BodyEffect::Store(body)) => {
                    self.origin.handle_stored(now, &body.digest, Ok(()));
                }
                origin::Effect::Body(BodyEffect::Drop(digest)) => {
                    self.origin.handle_dropped(now, &digest);
                }
                origin::Effect::Append(_) => self.origin.handle_appended(now, Ok(())),
            }
        }
    }

    /// Moves messages of one node; returns whether there were any.
    fn exchange(&mut self, at: usize) -> bool {
        let (now, parent) = (self.now(at), self.nodes[at - 1].parent);
        let mut moved = false;
        let node = self.node(at);
        if let Some(relay) = &mut node.relay {
            relay.handle_replica(now, &mut node.replica);
        }
        node.run_disk(now);
        while let Some(event) = node.replica.poll_event() {
            node.events.push(event);
        }
        if !node.connected {
            node.connected = true;
            node.replica.handle_connected(now);
        }
        while let Some(frame) = node.replica.poll_send() {
            node.up.push_back(frame);
            moved = true;
        }
        let answers = core::iter::from_fn(|| node.replica.poll_answer());
        let answers: Vec<_> = answers.collect();
        self.answers.extend(answers);
        if !self.node(at).is_cut {
            moved |= self.move_up(at, parent);
            moved |= self.move_down(at, parent);
        }
        moved
    }

    fn move_up(&mut self, at: usize, parent: usize) -> bool {
        let id = ReplicaId(at as u32);
        let frames = core::mem::take(&mut self.node(at).up);
        let (now, moved) = (self.now(parent), !frames.is_empty());
        for frame in frames {
            if parent == ORIGIN {
                self.origin.handle_frame(now, id, frame);
                continue;
            }
            let Node { relay: Some(relay), replica, .. } = &mut self.nodes[parent - 1] else {
                continue;
            };
            if matches!(frame.message, ToOrigin::Hello { .. }) {
                relay.handle_hello(now, replica, (id, Digest::default()), frame);
            } else {
                relay.handle_child(now, replica, id, frame);
            }
        }
        moved
    }

    fn move_down(&mut self, at: usize, parent: usize) -> bool {
        let id = ReplicaId(at as u32);
        let (now, theirs) = (self.now(parent), self.now(at));
        let mut bodies: Vec<(Frame<BodyHeader>, bool)> = Vec::new();
        let mut closed = false;
        let machine = match parent {
            ORIGIN => &mut self.origin,
            _ => {
                let node = &mut self.nodes[parent - 1];
                let Some(relay) = &mut node.relay else { return false };
                while let Some(event) = relay.poll_event() {
                    closed |= matches!(event, Event::Close(child) if child == id);
                }
                relay.origin()
            }
        };
        while machine.has_more() {
            machine.go_on(now);
        }
        let frames: Vec<_> = core::iter::from_fn(|| machine.poll_control(now, id)).collect();
        while let Some(frame) = machine.poll_demand_in_turn(id) {
            let is_body = frame.message.version.is_some() && !frame.message.lost;
            machine.handle_demand_sent(id, &frame, true);
            bodies.push((frame, is_body));
        }
        while let Some(frame) = machine.poll_speculative(id) {
            bodies.push((frame, true));
        }
        if closed {
            self.disconnect(at);
            return true;
        }
        let moved = !frames.is_empty() || !bodies.is_empty();
        let node = self.node(at);
        for frame in frames {
            if let ToReplica::Heartbeat { committed, echo, .. } = &frame.message {
                node.heartbeats.push((*committed, *echo));
            }
            node.replica.handle_control(theirs, frame);
        }
        for (frame, is_body) in bodies {
            let content = frame.message.version.filter(|_| is_body).map(|one| one.content);
            let payload =
                content.map(|one| Payload { digest: one.digest, size: one.size, bytes: () });
            node.replica.handle_body(theirs, frame, payload);
        }
        node.run_disk(theirs);
        moved
    }

    /// Delivers everything.
    fn deliver_all(&mut self) {
        for _ in 0..100 {
            let nodes = 1..=self.nodes.len();
            if !nodes.map(|at| self.exchange(at)).fold(false, |one, other| one | other) {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// Lets time pass, in steps.
    fn pass(&mut self, ms: i64) {
        let until = self.ms + ms;
        while self.ms < until {
            self.ms += 50;
            for at in 1..=self.nodes.len() {
                let now = self.now(at);
                self.node(at).replica.handle_timeout(now);
                if self.node(at).events.drain(..).any(|event| event == replica::Event::Close) {
                    self.node(at).connected = false;
                }
            }
            self.deliver_all();
        }
    }

    fn read(&mut self, at: usize, name: &str) -> Result<(Outcome, Sequence), Option<WaitReason>> {
        let now = self.now(at);
        let request = Request { target: ReadTarget::Object(path(name)), after: Sequence::ZERO };
        self.answers.clear();
        let why = self.node(at).replica.handle_read(now, ReadId(1), request);
        self.deliver_all();
        let why = self.node(at).replica.why(ReadId(1)).or(why);
        match self.answers.pop() {
            Some(answer) => Ok((answer.outcome, answer.at)),
            None => {
                self.node(at).replica.cancel_read(now, ReadId(1));
                Err(why)
            }
        }
    }

    /// A node that would answer has received all that was acknowledged before the time that it states.
    fn expect_true_leases(&self) {
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(stale) = node.replica.staleness(self.now(at + 1).local) else { continue };
            let reflects = self.ms - i64::try_from(stale.as_millis()).expect("it is short");
            let before = self.acknowledged.iter().filter(|at| **at < reflects).count();
            let has = node.replica.received().0;
            assert!(has >= before as u64, "node {}: {has} of {before}", at + 1);
        }
    }
}

#[test]
fn commits_pass_through_relays_unchanged() {
    let mut tree = Tree::new(&[ORIGIN, 1, 2]);
    tree.deliver_all();
    tree.write(&["a", "b"]);
    let last = tree.write(&["a"]);
    tree.pass(200);
    let expected: Position = tree.origin.last();
    for at in 1..=3 {
        assert_eq!(tree.nodes[at - 1].replica.image().position, Some(expected), "node {at}");
        let (outcome, seen) = tree.read(at, "a").expect("an answer");
        assert_eq!((outcome.version().map(|one| one.sequence), seen), (Some(last), last));
        let stock = tree.nodes[at - 1].replica.stock();
        assert_eq!((stock.objects, stock.valid_objects), (2, 2), "node {at}");
    }
}

/// A relay that is cut off extends no lease below it, and does not say that it lives either.
#[test]
fn ping_is_echoed_when_the_origin_has_echoed() {
    let mut tree = Tree::new(&[ORIGIN, 1]);
    tree.pass(3_000);
    tree.node(1).is_cut = true;
    tree.node(2).heartbeats.clear();
    let cut = LocalTime::from_nanos(tree.ms * 1_000_000);
    tree.pass(4_000);
    assert_eq!(tree.node(2).heartbeats, []);
    tree.expect_true_leases();
    tree.node(1).is_cut = false;
    tree.pass(3_000);
    let heartbeats = &tree.node(2).heartbeats;
    assert!(heartbeats.iter().any(|(_, echo)| *echo > Some(cut)), "{heartbeats:?}");
}

#[test]
fn relay_without_parent_disconnects_its_children() {
    let mut tree = Tree::new(&[ORIGIN, 1]);
    tree.write(&["a"]);
    tree.pass(2_000);
    assert!(tree.node(2).replica.is_connected());
    tree.disconnect(1);
    tree.node(1).is_cut = true;
    tree.deliver_all();
    assert!(!tree.node(2).replica.is_connected());
    // Without a connection the larger Δ counts.
    tree.pass(10_000);
    assert!(tree.read(2, "a").is_ok());
    tree.write(&["a"]);
    tree.disconnect(1);
    tree.node(1).is_cut = false;
    tree.pass(500);
    assert!(tree.node(2).replica.is_connected());
    assert_eq!(tree.node(2).replica.position(), Sequence(2));
}

#[test]
fn demand_is_answered_by_the_nearest_body() {
    let mut tree = Tree::taking(&[ORIGIN, 1, 1], "other");
    tree.write(&["a"]);
    tree.pass(200);
    let demands = |tree: &mut Tree| tree.origin.take_counters().demands;
    assert_eq!((demands(&mut tree), tree.node(1).bodies.len()), (0, 0));
    assert!(matches!(tree.read(2, "a"), Ok((Outcome::Object(_), _))));
    assert_eq!((demands(&mut tree), tree.node(1).bodies.len()), (1, 1));
    // The relay has it by now.
    assert!(matches!(tree.read(3, "a"), Ok((Outcome::Object(_), _))));
    assert_eq!(demands(&mut tree), 0);
}

#[test]
fn lost_body_is_reported_through_the_relay() {
    let mut tree = Tree::taking(&[ORIGIN, 1], "other");
    tree.deliver_all();
    tree.write(&["a"]);
    let now = tree.now(ORIGIN);
    tree.origin.handle_missing(now, &payload(100).digest);
    tree.pass(6_000);
    assert!(matches!(tree.read(2, "a"), Ok((Outcome::Lost(_), _))));
    assert!(tree.read(2, "a").is_ok());
}

#[test]
fn loop_of_relays_is_refused() {
    let mut tree = Tree::new(&[2, 1]);
    tree.deliver_all();
    let refused = tree.nodes.iter().filter(|node| node.replica.refusal() == Some(Refusal::Loop));
    assert_eq!(refused.count(), 1);
    let mut alone = Tree::new(&[1]);
    alone.deliver_all();
    assert_eq!(alone.node(1).replica.refusal(), Some(Refusal::Loop));
    let mut three = Tree::new(&[3, 1, 2]);
    three.deliver_all();
    assert!(three.nodes.iter().any(|node| node.replica.refusal() == Some(Refusal::Loop)));
}

/// The relay has lost its disk and does not know the position, but the origin does.
#[test]
fn replica_of_another_log_is_refused_by_the_origin() {
    for case in ["present", "behind", "another"] {
        let mut tree = Tree::new(&[ORIGIN, 1]);
        tree.write(&["a"]);
        tree.pass(200);
        let behind = tree.node(2).disk.position;
        tree.write(&["a"]);
        tree.pass(200);
        let incarnation = tree.node(1).disk.incarnation;
        tree.node(1).disk = Image { incarnation, ..Image::default() };
        tree.node(1).bodies.clear();
        let another = Position { sequence: Sequence(1), chain: Digest([9; 32]) };
        let present = tree.node(2).disk.position;
        tree.node(2).disk.position = match case {
            "present" => present,
            "behind" => behind,
            _ => Some(another),
        };
        tree.restart(2);
        tree.restart(1);
        tree.pass(2_000);
        let refusal = tree.node(2).replica.refusal();
        if case == "another" {
            assert_eq!(refusal, Some(Refusal::Diverged));
        } else {
            assert_eq!((refusal, tree.node(2).replica.position()), (None, Sequence(2)), "{case}");
        }
    }
}

#[test]
fn restarted_relay_serves_children_ahead_of_it() {
    let mut tree = Tree::new(&[ORIGIN, 1]);
    tree.write(&["a"]);
    tree.pass(200);
    let (old, bodies) = (tree.node(1).disk.clone(), tree.node(1).bodies.clone());
    tree.write(&["b"]);
    tree.pass(200);
    let life = tree.node(1).disk.incarnation;
    tree.node(1).disk = Image { incarnation: life, ..old };
    tree.node(1).bodies = bodies;
    tree.restart(1);
    tree.write(&["c"]);
    tree.pass(200);
    for at in 1..=2 {
        assert_eq!(tree.node(at).replica.position(), Sequence(3));
        assert_eq!(tree.node(at).replica.stock().valid_objects, 3, "node {at}");
    }
}

/// An event in a tree.
#[derive(Clone, Copy, Debug)]
enum Act {
    Write(usize),
    Pass(i64),
    Cut(usize, bool),
    Restart(usize),
    Empty(usize),
    Clock(usize, i64),
    Disconnect(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..3_usize).prop_map(Act::Write),
        3 => (1..40_i64).prop_map(|steps| Act::Pass(50 * steps)),
        2 => (1..5_usize, any::<bool>()).prop_map(|(at, cut)| Act::Cut(at, cut)),
        1 => (1..5_usize).prop_map(Act::Restart),
        1 => (1..5_usize).prop_map(Act::Empty),
        1 => (1..5_usize, -900..900_i64).prop_map(|(at, ms)| Act::Clock(at, ms)),
        1 => (1..5_usize).prop_map(Act::Disconnect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// With one clock for intervals, a lease can be compared with the acknowledgements.
    #[test]
    fn lease_never_covers_commits_that_were_not_received(acts in vec(act(), 1..40)) {
        let mut tree = Tree::new(&[ORIGIN, 1, 1, 2]);
        tree.deliver_all();
        for act in acts {
            match act {
                Act::Write(count) => {
                    tree.write(&["a", "b", "c"][..=count]);
                }
                Act::Pass(ms) => tree.pass(ms),
                Act::Cut(at, is_cut) => tree.node(at).is_cut = is_cut,
                Act::Restart(at) => tree.restart(at),
                Act::Empty(at) => {
                    let incarnation = tree.node(at).disk.incarnation;
                    tree.node(at).disk = Image { incarnation, ..Image::default() };
                    tree.node(at).bodies.clear();
                    tree.restart(at);
                }
                Act::Clock(at, ms) => tree.node(at).ahead = ms * 1_000_000,
                Act::Disconnect(at) => tree.disconnect(at),
            }
            tree.expect_true_leases();
        }
        (1..=4).for_each(|at| tree.node(at).is_cut = false);
        tree.pass(25_000);
        tree.expect_true_leases();
        let last = tree.origin.last();
        for node in &tree.nodes {
            prop_assert_eq!(node.replica.image().position.unwrap_or(last), last);
            prop_assert_eq!(node.replica.received(), last.sequence);
            let stock = node.replica.stock();
            prop_assert_eq!(stock.valid_objects, stock.objects);
        }
    }
}
