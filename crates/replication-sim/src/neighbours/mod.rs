//! Receivers of one body in one LAN, which exchange its pieces: how much leaves the parent, and when each has all.
//!
//! The state machines are those of [`lull_replication::exchange`]. The parent's link carries one piece at a time, for the
//! receivers in turns. Each receiver sends to others over a link of its own. A faulty receiver lies, dies, is slow, or takes
//! pieces and gives none.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use lull_cc::{Bytes, Rate};
use lull_replication::exchange::{Exchange, Taken};
use lull_replication::time::LocalTime;
use lull_replication::types::ReplicaId;
use lull_replication::wire::PIECE;

/// Between the parent and the LAN, and inside it, one way.
const WIDE: Duration = Duration::from_millis(20);
const LOCAL: Duration = Duration::from_millis(1);
/// How often a receiver looks at the time.
const TICK: Duration = Duration::from_millis(500);
/// Longest run.
const MOST: Duration = Duration::from_secs(3_600);

/// The fault of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every third piece that it sends has other bytes.
    Lies,
    /// It does nothing from this time on, and its connections stay open.
    Dies(Duration),
    /// Its link has this rate.
    Slow(Rate),
    /// It asks others, and sends nothing.
    Selfish,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Receivers.
    pub receivers: u32,
    /// Bytes of the body.
    pub size: Bytes,
    /// The rate of the parent's link.
    pub parent: Rate,
    /// The rate of each receiver's link in the LAN.
    pub local: Rate,
    /// Whether they exchange pieces. Otherwise each gets all from the parent.
    pub exchange: bool,
    /// The faulty ones, by number from 1.
    pub faults: Vec<(u32, Fault)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            receivers: 50,
            size: Bytes(100_000_000),
            parent: Rate::from_bits_per_second(20_000_000),
            local: Rate::from_bits_per_second(1_000_000_000),
            exchange: true,
            faults: Vec::new(),
        }
    }
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How many copies of the body have left the parent.
    pub copies: f64,
    /// When each receiver without a fault had all of it, by number; none if one did not.
    pub completed: BTreeMap<u32, Option<Duration>>,
    /// Pieces with wrong bytes that were taken for right.
    pub wrong: u64,
    /// The time of one copy over the parent's link.
    pub link: Duration,
}

impl Outcome {
    /// When the last one had all; none if one did not.
    pub fn last(&self) -> Option<Duration> {
        self.completed.values().copied().try_fold(Duration::ZERO, |last, one| Some(last.max(one?)))
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The parent gets to know that a receiver wants these pieces.
    Wants {
        receiver: u32,
        first: u32,
        count: u32,
    },
    /// The parent's link is free.
    ParentFree,
    /// A piece of the parent arrives.
    FromParent {
        receiver: u32,
        piece: u32,
    },
    Asks {
        from: u32,
        to: u32,
        piece: u32,
    },
    /// A receiver's link is free.
    Free(u32),
    FromNeighbour {
        from: u32,
        to: u32,
        piece: u32,
        is_right: bool,
    },
    Tick(u32),
}

struct Receiver {
    exchange: Exchange,
    fault: Option<Fault>,
    /// Pieces to be sent to others, and whether one is being sent.
    outgoing: VecDeque<(u32, u32)>,
    is_sending: bool,
    sent: u64,
    completed: Option<Duration>,
}

struct World {
    options: Options,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    order: u64,
    receivers: BTreeMap<u32, Receiver>,
    /// Pieces that the parent has to send, by receiver, and the receiver of the last one.
    wants: BTreeMap<u32, BTreeSet<u32>>,
    last_turn: u32,
    is_sending: bool,
    sent: u64,
    wrong: u64,
}

/// Makes the run.
pub fn run(options: &Options) -> Outcome {
    let mut world = World::new(options);
    while world.receivers.values().any(Receiver::is_awaited)
        && let Some(Reverse((at, _, event))) = world.events.pop()
        && at <= MOST
    {
        world.now = at;
        world.handle(event);
    }
    let count = options.size.0.div_ceil(PIECE as u64).max(1);
    let good = world.receivers.iter().filter(|(_, one)| one.fault.is_none());
    Outcome {
        copies: world.sent as f64 / count as f64,
        completed: good.map(|(number, one)| (*number, one.completed)).collect(),
        wrong: world.wrong,
        link: options.parent.time_for(options.size),
    }
}

impl Receiver {
    fn is_awaited(&self) -> bool {
        self.fault.is_none() && self.completed.is_none()
    }

    fn is_dead(&self, now: Duration) -> bool {
        matches!(self.fault, Some(Fault::Dies(at)) if at <= now)
    }
}

impl World {
    fn new(options: &Options) -> Self {
        let count = u32::try_from(options.size.0.div_ceil(PIECE as u64)).unwrap_or(u32::MAX);
        let all = || (1..=options.receivers).map(ReplicaId);
        let receiver = |number: u32| {
            let neighbours: Vec<ReplicaId> =
                if options.exchange { all().collect() } else { Vec::new() };
            let exchange =
                Exchange::new(LocalTime::default(), ReplicaId(number), neighbours, count, |_| {
                    false
                });
            let fault = options.faults.iter().find(|(at, _)| *at == number);
            let (outgoing, is_sending, sent, completed) = Default::default();
            let fault = fault.map(|(_, fault)| *fault);
            (number, Receiver { exchange, fault, outgoing, is_sending, sent, completed })
        };
        let mut world = World {
            options: options.clone(),
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            order: 0,
            receivers: (1..=options.receivers).map(receiver).collect(),
            wants: BTreeMap::new(),
            last_turn: 0,
            is_sending: false,
            sent: 0,
            wrong: 0,
        };
        for number in 1..=options.receivers {
            world.pump(number);
            world.schedule(TICK, Event::Tick(number));
        }
        world
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + after, self.order, event)));
    }

    fn local(&self) -> LocalTime {
        LocalTime::default().plus(self.now)
    }

    fn handle(&mut self, event: Event) {
        let now = self.local();
        match event {
            Event::Wants { receiver, first, count } => {
                self.wants.entry(receiver).or_default().extend(first..first + count);
                self.send_from_parent();
            }
            Event::ParentFree => {
                self.is_sending = false;
                self.send_from_parent();
            }
            Event::Free(number) => {
                if let Some(one) = self.receivers.get_mut(&number) {
                    one.is_sending = false;
                }
                self.send(number);
            }
            Event::FromParent { receiver, piece } => {
                if let Some(one) = self.alive(receiver) {
                    one.exchange.handle_from_parent(now, piece);
                    self.answer_all(receiver);
                }
            }
            Event::Asks { from, to, piece } => {
                if let Some(one) = self.alive(to) {
                    one.exchange.handle_asked(ReplicaId(from), piece);
                    self.answer(to, from);
                    self.send(to);
                    self.pump(to);
                }
            }
            Event::FromNeighbour { from, to, piece, is_right } => {
                let Some(one) = self.alive(to) else { return };
                let sender = ReplicaId(from);
                let taken = one.exchange.handle_from_neighbour(now, sender, (piece, is_right));
                self.wrong += u64::from(taken == Taken::New && !is_right);
                self.answer_all(to);
            }
            Event::Tick(number) => {
                if let Some(one) = self.alive(number) {
                    one.exchange.handle_timeout(now);
                    self.pump(number);
                }
                self.schedule(TICK, Event::Tick(number));
            }
        }
    }

    fn alive(&mut self, number: u32) -> Option<&mut Receiver> {
        let now = self.now;
        self.receivers.get_mut(&number).filter(|one| !one.is_dead(now))
    }

    /// A receiver has another piece: neighbours may have asked for it.
    fn answer_all(&mut self, number: u32) {
        for other in 1..=self.options.receivers {
            self.answer(number, other);
        }
        self.send(number);
        self.pump(number);
    }

    fn answer(&mut self, number: u32, other: u32) {
        let Some(one) = self.receivers.get_mut(&number) else { return };
        while let Some(piece) = one.exchange.poll_answer(ReplicaId(other)) {
            if one.fault != Some(Fault::Selfish) {
                one.outgoing.push_back((other, piece));
            }
        }
    }

    /// The receiver's messages.
    fn pump(&mut self, number: u32) {
        let now = self.local();
        let at = self.now;
        let Some(one) = self.receivers.get_mut(&number) else { return };
        if one.exchange.is_complete() {
            one.completed.get_or_insert(at);
        }
        let wanted = one.exchange.poll_wanted();
        let asks = core::iter::from_fn(|| one.exchange.poll_ask(now));
        let asks: Vec<_> = asks.collect();
        for (first, count) in wanted {
            self.schedule(WIDE, Event::Wants { receiver: number, first, count });
        }
        for (ReplicaId(to), piece) in asks {
            self.schedule(LOCAL, Event::Asks { from: number, to, piece });
        }
    }

    /// The parent sends the next piece, for the receivers in turns.
    fn send_from_parent(&mut self) {
        if self.is_sending {
            return;
        }
        self.wants.retain(|_, pieces| !pieces.is_empty());
        let next = self.wants.range(self.last_turn + 1..).next().or(self.wants.iter().next());
        let Some(receiver) = next.map(|(receiver, _)| *receiver) else { return };
        let piece = self.wants.get_mut(&receiver).and_then(BTreeSet::pop_first);
        let Some(piece) = piece else { return };
        (self.last_turn, self.is_sending) = (receiver, true);
        self.sent += 1;
        let time = self.options.parent.time_for(Bytes(PIECE as u64));
        self.schedule(time, Event::ParentFree);
        self.schedule(time + WIDE, Event::FromParent { receiver, piece });
    }

    /// A receiver sends the next piece to a neighbour.
    fn send(&mut self, number: u32) {
        let (now, local) = (self.now, self.options.local);
        let Some(one) = self.receivers.get_mut(&number) else { return };
        if one.is_sending || one.is_dead(now) {
            return;
        }
        let Some((to, piece)) = one.outgoing.pop_front() else { return };
        one.is_sending = true;
        one.sent += 1;
        let rate = if let Some(Fault::Slow(rate)) = one.fault { rate } else { local };
        let is_right = one.fault != Some(Fault::Lies) || !one.sent.is_multiple_of(3);
        let time = rate.time_for(Bytes(PIECE as u64));
        self.schedule(time, Event::Free(number));
        self.schedule(time + LOCAL, Event::FromNeighbour { from: number, to, piece, is_right });
    }
}
