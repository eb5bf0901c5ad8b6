//! One algorithm, two compilations, of controllers whose connections share the state of a path: C and Rust
//! get the same joins, leaves, acknowledgements and losses, and have equal states after each.

use std::collections::BTreeMap;

use lull_cc::{Ack, Timestamp};
use lull_testing::shared_trace::{
    CONNECTIONS, Foreground, PATHS, SharedEvent, SharedHistory, SharedKind,
};
use lull_testing::trace::{Event, seed};

use crate::mirror::{Mirror, compile};
use crate::shared_lull::Lull;
use crate::shared_receive::Receive;

const EVENTS: usize = 100_000;
/// A connection begins to lead before it sends.
const BEGINS: &str = "leads begin with a send";
/// The events that must occur in every history, with their minimum counts. A path that wanders seldom lets
/// the background return.
const KINDS: [(&str, usize); 6] = [
    ("joins", 21),
    ("leaves", 21),
    ("leaders leave", 10),
    ("yields", 3),
    ("returns", 3),
    (BEGINS, 3),
];

/// A controller whose connections share a path, in Rust.
pub(crate) trait SharedAlgorithm {
    /// `bpf/host_MIRROR.c` is the same in C.
    const MIRROR: &'static str;
    /// Words in an answer of the mirror.
    const ANSWER: usize;
    /// A connection begins to lead when it sends.
    const BEGINS_BY_SENDING: bool = true;
    /// The shared state.
    type Path;
    /// The state of a connection.
    type Member;

    /// The initial input of the mirror.
    fn parameters(&self) -> Vec<u64> {
        Vec::new()
    }

    /// An unused path.
    fn path(&self) -> Self::Path;
    fn join(&self, path: &mut Self::Path, now: Timestamp) -> Self::Member;
    fn leave(&self, path: &mut Self::Path, member: Self::Member, now: Timestamp);
    fn leads(&self, path: &Self::Path, member: &Self::Member) -> bool;
    /// Whether the path is left to others.
    fn yields(&self, path: &Self::Path) -> bool;
    fn feed(&self, path: &mut Self::Path, member: &mut Self::Member, event: &Event);
    fn foreground(&self, path: &mut Self::Path, now: Timestamp, foreground: Foreground);
    fn send(
        &self,
        path: &mut Self::Path,
        member: &mut Self::Member,
        now: Timestamp,
        delivered: u32,
        in_flight: u32,
    );
    /// The expected answer of the mirror. `ack` is that of the event, or all zero.
    fn answer(&self, path: &Self::Path, member: &Self::Member, ack: &Ack) -> Vec<u64>;
}

/// The mirror of `bpf/host_shared.h`.
struct Host<A: SharedAlgorithm> {
    algorithm: A,
    paths: Vec<A::Path>,
    connections: Vec<Option<(usize, A::Member)>>,
    /// How often each kind of event had an effect, so that a test can check that it did.
    counts: BTreeMap<&'static str, usize>,
    yielded: [bool; PATHS],
}

impl<A: SharedAlgorithm> Host<A> {
    fn new(algorithm: A) -> Self {
        Host {
            paths: (0..PATHS).map(|_| algorithm.path()).collect(),
            connections: (0..CONNECTIONS).map(|_| None).collect(),
            counts: BTreeMap::new(),
            yielded: [false; PATHS],
            algorithm,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn leave(&mut self, connection: usize, now: Timestamp) {
        if let Some((path, member)) = self.connections[connection].take() {
            self.algorithm.leave(&mut self.paths[path], member, now);
            self.count("leaves");
        }
    }

    fn join(&mut self, connection: usize, path: usize, now: Timestamp) {
        if self.connections[connection].is_none() {
            let member = self.algorithm.join(&mut self.paths[path], now);
            self.connections[connection] = Some((path, member));
            self.count("joins");
        }
    }

    fn leader(&self, path: usize) -> Option<usize> {
        self.connections.iter().position(|connection| {
            connection.as_ref().is_some_and(|(on, member)| {
                *on == path && self.algorithm.leads(&self.paths[path], member)
            })
        })
    }

    fn step(&mut self, event: &SharedEvent) {
        let SharedEvent { now, connection, kind } = *event;
        match kind {
            SharedKind::Join(path) => self.join(connection, path, now),
            SharedKind::Leave => self.leave(connection, now),
            SharedKind::LeaderLeaves(path) => {
                if let Some(connection) = self.leader(path) {
                    self.leave(connection, now);
                    self.count("leaders leave");
                }
            }
            SharedKind::Move(path) => {
                self.leave(connection, now);
                self.join(connection, path, now);
            }
            SharedKind::Send(delivered, in_flight) => {
                if let Some((path, member)) = &mut self.connections[connection] {
                    let path = &mut self.paths[*path];
                    let led = self.algorithm.leads(path, member);
                    self.algorithm.send(path, member, now, delivered, in_flight);
                    if !led && self.algorithm.leads(path, member) {
                        self.count(BEGINS);
                    }
                }
            }
            SharedKind::Foreground(path, foreground) => {
                self.algorithm.foreground(&mut self.paths[path], now, foreground);
            }
            SharedKind::Own(event) => {
                if let Some((path, member)) = &mut self.connections[connection] {
                    self.algorithm.feed(&mut self.paths[*path], member, &event);
                }
            }
        }
    }

    /// Counts the paths that are used again, or no longer.
    fn count_yields(&mut self) {
        let yields = core::array::from_fn(|path| self.algorithm.yields(&self.paths[path]));
        for (before, after) in self.yielded.into_iter().zip(yields) {
            match (before, after) {
                (false, true) => self.count("yields"),
                (true, false) => self.count("returns"),
                _ => {}
            }
        }
        self.yielded = yields;
    }

    fn answer(&self, event: &SharedEvent) -> Vec<u64> {
        let ack = match event.kind {
            SharedKind::Own(Event::Ack(ack)) => ack,
            SharedKind::Send(_, in_flight) => Ack { in_flight, ..Ack::default() },
            _ => Ack::default(),
        };
        match &self.connections[event.connection] {
            Some((path, member)) => self.algorithm.answer(&self.paths[*path], member, &ack),
            None => vec![0; A::ANSWER],
        }
    }
}

/// `struct host_event` of `bpf/host_shared.h`.
fn words(event: &SharedEvent) -> [u64; 14] {
    let plain = |kind, path: usize, delivered: u32| {
        let (path, connection) = (path as u64, event.connection as u64);
        let delivered = delivered.into();
        [kind, path, connection, event.now.as_micros(), delivered, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    };
    match event.kind {
        SharedKind::Own(Event::Ack(ack)) => acknowledgement(event.connection, &ack),
        SharedKind::Own(Event::Loss(_, delivered)) => plain(1, 0, delivered),
        SharedKind::Own(Event::Mark(_, delivered)) => plain(2, 0, delivered),
        SharedKind::Own(Event::Timeout(_, delivered)) => plain(3, 0, delivered),
        SharedKind::Own(Event::Idle(_)) => plain(4, 0, 0),
        SharedKind::Send(delivered, in_flight) => {
            let mut words = plain(5, 0, delivered);
            words[8] = in_flight.into();
            words
        }
        SharedKind::Join(path) => plain(6, path, 0),
        SharedKind::Leave => plain(7, 0, 0),
        SharedKind::LeaderLeaves(path) => plain(8, path, 0),
        SharedKind::Move(path) => plain(9, path, 0),
        SharedKind::Foreground(path, foreground) => {
            let mut words = plain(10, path, 0);
            words[4] = foreground.connected.as_micros();
            words[5] = foreground.sent.as_micros();
            words[6] = foreground.bytes;
            words
        }
    }
}

fn acknowledgement(connection: usize, ack: &Ack) -> [u64; 14] {
    [
        0,
        0,
        connection as u64,
        ack.now.as_micros(),
        ack.delivered.into(),
        ack.prior_delivered.into(),
        ack.acked.into(),
        ack.lost.into(),
        ack.in_flight.into(),
        ack.rtt_micros.map_or(0, |rtt| rtt.get().into()),
        ack.interval_micros.map_or(0, |interval| interval.get().into()),
        ack.app_limited.into(),
        ack.maybe_delayed.into(),
        ack.is_small.into(),
    ]
}

/// Gives both the same events, and compares after each.
fn compare<A: SharedAlgorithm>(mirror: &Mirror, algorithm: A, events: &[SharedEvent], what: &str) {
    let mut input = algorithm.parameters();
    input.extend(events.iter().flat_map(words));
    let in_c = mirror.run(&input);
    assert_eq!(in_c.len(), events.len() * A::ANSWER, "the mirror answers every event: {what}");
    let mut host = Host::new(algorithm);
    for (i, event) in events.iter().enumerate() {
        host.step(event);
        host.count_yields();
        assert_eq!(
            in_c[i * A::ANSWER..(i + 1) * A::ANSWER],
            host.answer(event),
            "{what} event {i} {event:?}"
        );
    }
    // A trace on which nothing happens would prove nothing.
    for (kind, least) in KINDS {
        let is_one = events.iter().all(|event| event.connection == 0);
        if kind == BEGINS && (is_one || !A::BEGINS_BY_SENDING) {
            // A single one leads from its first acknowledgement, and a receiver sends nothing.
            continue;
        }
        let count = host.counts.get(kind).copied().unwrap_or(0);
        assert!(count >= least, "{what}: {count} {kind}");
    }
}

/// Compares them over histories of one to eight connections.
pub(crate) fn compare_all<A: SharedAlgorithm>(algorithm: impl Fn() -> A) {
    let mirror = compile(A::MIRROR);
    let seed = seed();
    for connections in 1..=CONNECTIONS {
        for (kind, history) in [
            ("plausible", SharedHistory::plausible(seed, connections)),
            ("wild", SharedHistory::wild(seed, connections)),
        ] {
            let events: Vec<SharedEvent> = history.take(EVENTS).collect();
            let what = format!("LULL_SEED={seed} {kind}, {connections} connections:");
            compare(&mirror, algorithm(), &events, &what);
        }
    }
}

#[test]
fn downloads_are_equal_in_c_and_rust_bit_for_bit() {
    compare_all(|| Receive);
}

#[test]
fn shared_state_is_equal_in_c_and_rust_bit_for_bit() {
    compare_all(|| Lull);
}
