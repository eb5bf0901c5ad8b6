//! A running network.
//!
//! ```text
//!   source ──▶ Sender ──▶ link ──▶ link ──▶ link ──▶ Receiver
//!                 ▲                                      │
//!                 └──── link ◀── link ◀── link ◀─────────┘
//! ```
//!
//! Everything that happens is an event of the [`EventQueue`]: a packet comes out of a link, a timer fires, a
//! source has data to send. Events of one nanosecond happen in the order in which they were scheduled. So a
//! run depends only on its construction and its seed.

use std::collections::BTreeMap;

use core::time::Duration;

use lull_cc::Timestamp;

use crate::events::EventQueue;
use crate::link::{ClassDelays, LinkCounters, Links, Wire};
use crate::memory::bytes_of;
use crate::packet::{AckHeader, Body, DataHeader, Ecn, Owner, Packet, TrafficClass};
use crate::random::Random;
use crate::tcp::{Sender, Transmit};
use crate::topology::{LinkId, NoRouteError, NodeId, Topology};
use crate::trace::Trace;

mod connection;
mod memory;
mod record;
mod sources;

use connection::{Connection, Connections, TimerKind};
pub use record::{
    Conservation, DatagramDelays, LinkSample, Sample, SourceCounters, SourceId, SourceSample,
    Transfer,
};
use sources::Source;

/// An event. With its time it is half a cache line: moving events is a large part of all work.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A packet comes out of its link.
    Delivery(Packet),
    /// A timer of a connection.
    Timer(TimerKind, u32),
    /// A source has data to send.
    Source(u32),
    /// A sample of the state is due.
    Sample,
}

impl Wire for EventQueue<Event> {
    fn carry(&mut self, arrives: Timestamp, packet: &Packet) {
        self.insert(arrives, Event::Delivery(*packet));
    }
}

const _: () = assert!(size_of::<(u64, Event)>() == 32, "an event is half a cache line");

/// The end of a route.
const END: u32 = u32::MAX;

/// Links, and the routes over them, one after the other, each with an end.
#[derive(Debug, Default)]
struct Network {
    links: Links,
    hops: Vec<u32>,
    routes: BTreeMap<(NodeId, NodeId), u32>,
    /// Packets given to links, and packets finally taken from them.
    sent: u64,
    received: u64,
}

impl Network {
    /// Gives a packet to its link.
    fn forward(&mut self, events: &mut EventQueue<Event>, now: Timestamp, packet: &Packet) {
        let link = self.hops[packet.hop as usize];
        self.links.arrive(events, link, now, packet);
    }

    /// Prefetches the memory that the delivery of a packet will need.
    fn touch(&self, connections: &Connections, packet: &Packet) {
        self.links.touch(self.hops[packet.hop as usize]);
        match self.hops[packet.hop as usize + 1] {
            END => connections.touch(packet),
            next => self.links.touch(next),
        }
    }

    fn memory_bytes(&self) -> u64 {
        let routes = bytes_of::<((NodeId, NodeId), u32)>(self.routes.len());
        routes + bytes_of::<u32>(self.hops.len()) + self.links.memory_bytes()
    }

    fn send(&mut self, events: &mut EventQueue<Event>, now: Timestamp, packet: &Packet) {
        self.sent += 1;
        self.forward(events, now, packet);
    }
}

/// A simulation of a topology and of traffic over it.
///
/// Calling order: [`new`](Simulation::new); then [`observe_link`](Simulation::observe_link),
/// [`sample_every`](Simulation::sample_every) and the `add_…` of sources, which may come later as well, for
/// future times; [`run_until`](Simulation::run_until) any number of times, with counts and records read in
/// between.
#[derive(Debug)]
pub struct Simulation {
    topology: Topology,
    seed: u64,
    now: Timestamp,
    events: EventQueue<Event>,
    network: Network,
    connections: Connections,
    sources: Vec<Source>,
    transfers: Vec<Transfer>,
    observed: Vec<LinkId>,
    sampling: Option<Duration>,
    samples: Vec<Sample>,
    happened: u64,
}

impl Simulation {
    /// A network at time zero with no traffic. All randomness comes from `seed`, and each link and
    /// source has its own.
    pub fn new(topology: Topology, seed: u64) -> Self {
        let mut links = Links::default();
        for (LinkId(at), parameters) in topology.links() {
            links.add(parameters, Random::of_part(seed, u64::from(at)).bits());
        }
        Simulation {
            topology,
            seed,
            now: Timestamp::ZERO,
            events: EventQueue::default(),
            network: Network { links, ..Network::default() },
            connections: Connections::default(),
            sources: Vec::new(),
            transfers: Vec::new(),
            observed: Vec::new(),
            sampling: None,
            samples: Vec::new(),
            happened: 0,
        }
    }

    /// Measures the queueing delays of a link from now on, and adds it to samples.
    pub fn observe_link(&mut self, link: LinkId) {
        self.network.links.observe(link.0 as usize);
        if !self.observed.contains(&link) {
            self.observed.push(link);
        }
    }

    /// Makes a link follow a trace instead of a fixed rate, from now on.
    ///
    /// # Panics
    /// If the link has no rate, or a packet has reached it already.
    pub fn follow_trace(&mut self, link: LinkId, trace: Trace) {
        self.network.links.follow_trace(link.0 as usize, trace);
    }

    /// Changes a link's propagation delay for packets sent from now on, like a change of route. Packets over
    /// a shorter route overtake earlier ones.
    pub fn set_delay(&mut self, link: LinkId, delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.network.links.set_delay(&mut self.events, link.0 as usize, self.now, nanos);
    }

    /// For an observed link: counts drops within this time of the first as one overflow of its queue.
    pub fn set_overflow(&mut self, link: LinkId, lasts: Duration) {
        let nanos = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        self.network.links.set_overflow(link.0 as usize, nanos);
    }

    /// Takes a sample after each `interval` from now on.
    ///
    /// # Panics
    /// If the interval is zero, or samples are being taken already.
    pub fn sample_every(&mut self, interval: Duration) {
        assert!(!interval.is_zero(), "samples are taken at intervals above zero");
        assert!(self.sampling.is_none(), "samples are being taken already");
        self.sampling = Some(interval);
        self.events.insert(self.now + interval, Event::Sample);
    }

    /// The start of the route between two nodes in the list of hops.
    fn route(&mut self, from: NodeId, to: NodeId) -> Result<u32, NoRouteError> {
        if let Some(&start) = self.network.routes.get(&(from, to)) {
            return Ok(start);
        }
        let links = self.topology.route(from, to)?;
        let start = u32::try_from(self.network.hops.len()).expect("four thousand million hops");
        self.network.hops.extend(links.iter().map(|link| link.0));
        self.network.hops.push(END);
        self.network.routes.insert((from, to), start);
        Ok(start)
    }

    /// Runs all events up to and including `end`.
    ///
    /// # Panics
    /// If `end` has passed.
    pub fn run_until(&mut self, end: Timestamp) {
        assert!(end >= self.now, "the simulation is at {}, and {end} has passed", self.now);
        loop {
            let (network, connections) = (&self.network, &self.connections);
            // With thousands of flows, most of the time is spent waiting for memory. The data for the next
            // events is prefetched at once; this has no other effect.
            let touch = |event: &Event| match event {
                Event::Delivery(packet) => network.touch(connections, packet),
                Event::Timer(_, slot) => connections.touch_sender(*slot),
                Event::Source(_) | Event::Sample => {}
            };
            let Some((now, event)) = self.events.pop_expecting(end, touch) else { break };
            self.now = now;
            self.happened += 1;
            match *event {
                Event::Delivery(mut packet) => self.deliver(now, &mut packet),
                Event::Timer(kind, slot) => self.handle_timer(now, kind, slot),
                Event::Source(source) => self.handle_source(now, source),
                Event::Sample => self.take_sample(now),
            }
        }
        self.now = end;
    }

    fn deliver(&mut self, now: Timestamp, packet: &mut Packet) {
        let link = self.network.hops[packet.hop as usize];
        self.network.links.deliver(&mut self.events, link, now);
        packet.hop += 1;
        if self.network.hops[packet.hop as usize] == END {
            self.network.received += 1;
            self.receive(now, packet);
        } else {
            self.network.forward(&mut self.events, now, packet);
        }
    }

    /// A packet has reached its destination.
    fn receive(&mut self, now: Timestamp, packet: &Packet) {
        if let Body::Datagram(sent) = packet.body {
            let nanos = (now - sent.seen_at(now)).as_nanos() as u64;
            self.sources[packet.owner.slot() as usize].handle_datagram(packet.bytes, nanos);
            return;
        }
        let at = packet.owner.slot();
        let slot = self.connections.slot(at);
        let Some(connection) = &mut slot.connection else { return };
        if slot.generation != packet.generation {
            return;
        }
        match packet.body {
            Body::Data(sent, number, flags) => {
                let data = DataHeader::new(number, packet.bytes - connection.header_bytes, flags);
                let marked = packet.class.ecn() == Ecn::CongestionExperienced;
                let sent = sent.seen_at(now);
                if connection.receiver.is_steered() {
                    let echo = connection.echoes.of_segment(sent);
                    connection.receiver.handle_echo(now, echo);
                }
                connection.receiver.handle_data(now, &data, sent, marked);
                self.acknowledge(now, at);
            }
            Body::Syn => self.answer(now, at, Body::SynAck),
            Body::Ack { cumulative, one_way_micros, echo } => {
                let window = connection.window;
                let header =
                    AckHeader { cumulative, window, one_way_micros, echo, ..AckHeader::default() };
                connection.sender.handle_ack(now, &header);
                self.transmit(now, at);
            }
            Body::Selective(number) => {
                let header = connection.selective.arrive(number);
                if connection.receiver.is_steered() {
                    connection.echoes.arrive(now, header.clock);
                }
                connection.sender.handle_ack(now, &header);
                self.transmit(now, at);
            }
            Body::SynAck => {
                connection.sender.handle_syn_ack(now);
                self.transmit(now, at);
            }
            Body::Datagram(_) => {}
        }
    }

    fn handle_timer(&mut self, now: Timestamp, kind: TimerKind, at: u32) {
        let slot = self.connections.slot(at);
        if !slot.timers.expire(kind, now) {
            return;
        }
        let Some(connection) = &mut slot.connection else { return };
        match kind {
            TimerKind::Retransmission => connection.sender.handle_timeout(now),
            TimerKind::Pacing => {}
            TimerKind::Acknowledgement => {
                connection.receiver.handle_timeout(now);
                return self.acknowledge(now, at);
            }
        }
        self.transmit(now, at);
    }

    /// Sends the receiver's acknowledgements, and sets its timer.
    fn acknowledge(&mut self, now: Timestamp, at: u32) {
        let slot = self.connections.slot(at);
        let Some(connection) = &mut slot.connection else { return };
        if let Some(deadline) = connection.receiver.deadline() {
            slot.timers.arm(&mut self.events, TimerKind::Acknowledgement, at, deadline);
        } else if let Some(header) = connection.receiver.poll_transmit(now) {
            let AckHeader { cumulative, one_way_micros, echo, .. } = header;
            let body = match header.blocks {
                0 if !connection.receiver.is_steered() => {
                    Body::Ack { cumulative, one_way_micros, echo }
                }
                _ => Body::Selective(connection.selective.send(header)),
            };
            self.answer(now, at, body);
        }
    }

    /// Sends a packet without data from the receiver.
    fn answer(&mut self, now: Timestamp, at: u32, body: Body) {
        let slot = self.connections.slot(at);
        let Some(Connection { backward, header_bytes, dscp, group, .. }) = slot.connection else {
            return;
        };
        let packet = Packet {
            owner: Owner::new(at, group),
            hop: backward,
            bytes: header_bytes,
            generation: slot.generation,
            // RFC 3168 §6.1.4: acknowledgements are not ECN-capable.
            class: TrafficClass::new(dscp, Ecn::NotCapable),
            body,
        };
        self.network.send(&mut self.events, now, &packet);
    }

    /// Sends the sender's packets, records completed messages, and sets its timers.
    fn transmit(&mut self, now: Timestamp, at: u32) {
        let slot = self.connections.slot(at);
        let Some(connection) = &mut slot.connection else { return };
        while let Some(transmit) = connection.sender.poll_transmit(now) {
            let (body, payload, ecn) = match transmit {
                Transmit::Syn => (Body::Syn, 0, Ecn::NotCapable),
                Transmit::Data { header, ecn_capable } => {
                    let ecn = if ecn_capable { Ecn::Capable } else { Ecn::NotCapable };
                    (Body::Data(now.into(), header.number, (&header).into()), header.payload, ecn)
                }
            };
            let packet = Packet {
                owner: Owner::new(at, connection.group),
                hop: connection.forward,
                bytes: connection.header_bytes + payload,
                generation: slot.generation,
                class: TrafficClass::new(connection.dscp, ecn),
                body,
            };
            if let Some(path) = &self.sources[connection.source as usize].host_path {
                path.count_foreground(now, matches!(body, Body::Syn), payload.into());
            }
            self.network.send(&mut self.events, now, &packet);
        }
        let sender = &mut connection.sender;
        let deadline = sender.retransmission_deadline();
        if deadline < Timestamp::FAR_FUTURE {
            slot.timers.arm(&mut self.events, TimerKind::Retransmission, at, deadline);
        }
        if let Some(deadline) = sender.pacing_deadline(now) {
            slot.timers.arm(&mut self.events, TimerKind::Pacing, at, deadline);
        }
        let (source, client) = (connection.source, connection.client);
        let first_transfer = self.transfers.len();
        while let Some(completed) = sender.poll_completed() {
            self.transfers.push(Transfer {
                source: SourceId(source),
                client,
                bytes: completed.bytes,
                requested: completed.written,
                first_sent: completed.first_sent,
                acknowledged: completed.acknowledged,
            });
        }
        let is_finished = sender.is_finished();
        if is_finished && let Some(connection) = self.connections.remove(at) {
            self.sources[source as usize].handle_finished(at, &connection);
        }
        for _ in first_transfer..self.transfers.len() {
            self.handle_completed(now, source, client);
        }
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Events that have happened.
    pub fn events(&self) -> u64 {
        self.happened
    }

    /// Counts of a link, and its present queue.
    pub fn link(&mut self, link: LinkId) -> LinkCounters {
        self.network.links.counters(link.0 as usize, self.now)
    }

    /// Queueing delays of a link by class; none if it is not observed.
    pub fn delays(&mut self, link: LinkId) -> Option<&ClassDelays> {
        self.network.links.delays(link.0 as usize, self.now)
    }

    /// Counts of a source.
    pub fn source(&self, source: SourceId) -> SourceCounters {
        self.sources[source.0 as usize].counters(&self.connections)
    }

    /// Delays of the datagrams of a source; none for other sources.
    pub fn datagram_delays(&self, source: SourceId) -> Option<&DatagramDelays> {
        self.sources[source.0 as usize].datagram_delays()
    }

    /// The sending ends of a source's open connections.
    pub fn senders(&self, source: SourceId) -> impl Iterator<Item = &Sender> {
        let slots = self.sources[source.0 as usize].open().iter();
        slots.filter_map(|&at| self.connections.get(at)).map(|connection| &connection.sender)
    }

    /// All sources, in the order in which they were added.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = SourceId> + use<> {
        (0..self.sources.len() as u32).map(SourceId)
    }

    /// Completed messages, in the order of completion, since the last call of
    /// [`take_transfers`](Simulation::take_transfers).
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// Takes the completed messages.
    pub fn take_transfers(&mut self) -> Vec<Transfer> {
        core::mem::take(&mut self.transfers)
    }

    /// Samples taken so far.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The locations of all packets.
    pub fn conservation(&mut self) -> Conservation {
        let mut conservation = Conservation {
            sent: self.network.sent,
            received: self.network.received,
            ..Conservation::default()
        };
        for link in 0..self.network.links.len() {
            let counters = self.network.links.counters(link, self.now);
            debug_assert!(counters.is_conserved(), "a link made or lost a packet: {counters:?}");
            conservation.add(&counters);
        }
        conservation
    }

    fn take_sample(&mut self, now: Timestamp) {
        let Some(interval) = self.sampling else { return };
        let sources = (0..).map(SourceId).zip(&self.sources);
        let sources = sources.map(|(id, source)| source.sample(id, &self.connections)).collect();
        let links = self
            .observed
            .iter()
            .map(|&link| {
                let counters = self.network.links.counters(link.0 as usize, now);
                LinkSample { link, counters }
            })
            .collect();
        self.samples.push(Sample { at: now, sources, links });
        self.events.insert(now + interval, Event::Sample);
    }
}
