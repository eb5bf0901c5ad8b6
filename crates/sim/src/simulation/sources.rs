//! Sources of traffic at work.

use std::collections::BTreeMap;
use std::sync::Arc;

use core::time::Duration;

use lull_cc::receive::SharedPath;
use lull_cc::{Timestamp, Window, lull};

use super::connection::{Connection, Connections, Echoes, Selective};
use super::record::{DatagramDelays, SourceCounters, SourceId, SourceSample};
use super::{Event, Simulation};
use crate::memory::bytes_of;
use crate::packet::{Body, Ecn, Owner, Packet, TrafficClass};
use crate::random::Random;
use crate::tcp::receiver::FIRST_WINDOW;
use crate::tcp::{Receiver, Sender};
use crate::topology::NoRouteError;
use crate::traffic::datagrams::{DueDatagram, Schedule};
use crate::traffic::documents::Requests;
use crate::traffic::{self, Datagrams, Demand, Documents, Flow, Tcp};

/// There and back, as the beginnings of routes.
type Way = (u32, u32);

/// A source, its counters, and its open connections.
#[derive(Debug)]
pub(super) struct Source {
    kind: Kind,
    /// Counts of connections that are closed, and of datagrams.
    counters: SourceCounters,
    /// The places of its open connections, in the order in which they were opened.
    open: Vec<u32>,
    /// The group of its packets in the statistics of links.
    group: u8,
    /// The receivers of its connections yield, and share this.
    steering: Option<(SharedPath, u32)>,
    /// Background connections of the same host see what it sends.
    pub(super) host_path: Option<lull::SharedPath>,
}

#[derive(Debug)]
enum Kind {
    Flow {
        flow: Flow,
        way: Way,
        /// The next message of a periodic one.
        next: Timestamp,
        is_open: bool,
    },
    Documents {
        tcp: Tcp,
        connections: traffic::Connections,
        ways: Vec<Way>,
        requests: Requests,
        /// The places of clients' connections, if each client has one for all documents.
        clients: BTreeMap<u32, u32>,
        /// When the next event is scheduled.
        scheduled: Timestamp,
    },
    Datagrams {
        schedule: Schedule,
        next: Option<DueDatagram>,
        stop: Timestamp,
        forward: u32,
        dscp: u8,
        delays: Box<DatagramDelays>,
    },
}

impl Source {
    fn new(kind: Kind) -> Self {
        Source {
            kind,
            counters: SourceCounters::default(),
            open: Vec::new(),
            group: 0,
            steering: None,
            host_path: None,
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        bytes_of::<Source>(1) + bytes_of::<u32>(self.open.capacity())
    }

    pub(super) fn open(&self) -> &[u32] {
        &self.open
    }

    pub(super) fn counters(&self, connections: &Connections) -> SourceCounters {
        let mut counters = self.counters;
        for connection in self.open.iter().filter_map(|&at| connections.get(at)) {
            counters.sent += connection.sender.counters();
            counters.received += connection.receiver.counters();
        }
        counters
    }

    pub(super) fn sample(&self, source: SourceId, connections: &Connections) -> SourceSample {
        let mut window = 0;
        let mut in_flight = 0;
        for connection in self.open.iter().filter_map(|&at| connections.get(at)) {
            window += connection.sender.controller().window().raw();
            in_flight += connection.sender.in_flight();
        }
        SourceSample {
            source,
            goodput_bytes: self.counters(connections).goodput_bytes(),
            window: Window::from_raw(window),
            in_flight,
            open: self.open.len() as u32,
        }
    }

    pub(super) fn datagram_delays(&self) -> Option<&DatagramDelays> {
        match &self.kind {
            Kind::Datagrams { delays, .. } => Some(delays),
            Kind::Flow { .. } | Kind::Documents { .. } => None,
        }
    }

    pub(super) fn handle_datagram(&mut self, bytes: u16, delay_nanos: u64) {
        self.counters.datagrams_received += 1;
        self.counters.datagram_bytes += u64::from(bytes);
        if let Kind::Datagrams { delays, .. } = &mut self.kind {
            delays.record(delay_nanos);
        }
    }

    /// A connection has ended and left its place.
    pub(super) fn handle_finished(&mut self, at: u32, connection: &Connection) {
        self.counters.finished += 1;
        self.counters.sent += connection.sender.counters();
        self.counters.received += connection.receiver.counters();
        self.open.retain(|&open| open != at);
        if let Kind::Documents { clients, .. } = &mut self.kind
            && clients.get(&connection.client) == Some(&at)
        {
            clients.remove(&connection.client);
        }
    }
}

impl Simulation {
    fn add_source(&mut self, kind: Kind, first: Option<Timestamp>) -> SourceId {
        let at = u32::try_from(self.sources.len()).expect("four thousand million sources");
        self.sources.push(Source::new(kind));
        if let Some(first) = first {
            assert!(first >= self.now, "a source that begins at {first} is too late");
            self.events.insert(first, Event::Source(at));
        }
        SourceId(at)
    }

    /// Sets the group of a source's packets, and of the answers to them, in the statistics of links. By
    /// default, a source belongs to group 0.
    pub fn set_group(&mut self, source: SourceId, group: u8) {
        self.sources[source.0 as usize].group = group;
    }

    /// Makes the receivers of a source's connections yield by their advertised windows. Call it before the
    /// source starts. Sources with the same path share its window.
    pub fn steer(&mut self, source: SourceId, path: &SharedPath) {
        self.steer_with_weight(source, path, lull::Member::USUAL_WEIGHT);
    }

    /// The same; each connection's part of the window is relative to its weight.
    pub fn steer_with_weight(&mut self, source: SourceId, path: &SharedPath, weight: u32) {
        self.sources[source.0 as usize].steering = Some((path.clone(), weight));
    }

    /// Makes a source's connections the foreground of a host with background connections on `path`, which see what it
    /// sends. Call it before the source starts.
    pub fn share_host(&mut self, source: SourceId, path: &lull::SharedPath) {
        self.sources[source.0 as usize].host_path = Some(path.clone());
    }

    fn ways(&mut self, from: crate::NodeId, to: crate::NodeId) -> Result<Way, NoRouteError> {
        Ok((self.route(from, to)?, self.route(to, from)?))
    }

    /// Adds a single connection.
    ///
    /// # Errors
    /// If its ends are not connected, in both directions.
    pub fn add_flow(&mut self, flow: Flow) -> Result<SourceId, NoRouteError> {
        let way = self.ways(flow.from, flow.to)?;
        let start = flow.start;
        if let Demand::Periodic { every_nanos, .. } = flow.demand {
            assert!(every_nanos > 0, "messages come at intervals above zero");
        }
        Ok(self.add_source(Kind::Flow { flow, way, next: start, is_open: false }, Some(start)))
    }

    /// Adds clients and the documents that they request.
    ///
    /// # Errors
    /// If a pair is not connected, in both directions.
    ///
    /// # Panics
    /// If there is no pair, or a request's time has passed.
    pub fn add_documents(&mut self, documents: Documents) -> Result<SourceId, NoRouteError> {
        let Documents { pairs, tcp, connections, arrivals } = documents;
        assert!(!pairs.is_empty(), "documents travel between at least one pair of hosts");
        let ways = pairs.iter().map(|&(from, to)| self.ways(from, to)).collect::<Result<_, _>>()?;
        let random = self.random_of_next_source();
        let requests = Requests::new(arrivals, random);
        let first = requests.next_time();
        let scheduled = first.unwrap_or(Timestamp::FAR_FUTURE);
        let clients = BTreeMap::new();
        let kind = Kind::Documents { tcp, connections, ways, requests, clients, scheduled };
        Ok(self.add_source(kind, first))
    }

    /// Adds a source of datagrams.
    ///
    /// # Errors
    /// If there is no route from its beginning to its end.
    pub fn add_datagrams(&mut self, datagrams: Datagrams) -> Result<SourceId, NoRouteError> {
        let Datagrams { from, to, dscp, start, stop, pattern } = datagrams;
        let forward = self.route(from, to)?;
        let mut schedule = Schedule::new(pattern, start, self.random_of_next_source());
        let stop = stop.unwrap_or(Timestamp::FAR_FUTURE);
        let next = schedule.next().filter(|due| due.at < stop);
        let delays = Box::default();
        let kind = Kind::Datagrams { schedule, next, stop, forward, dscp, delays };
        Ok(self.add_source(kind, next.map(|due| due.at)))
    }

    /// Sources use other random numbers than links.
    fn random_of_next_source(&self) -> Random {
        Random::of_part(self.seed, 1 << 32 | self.sources.len() as u64)
    }

    pub(super) fn handle_source(&mut self, now: Timestamp, at: u32) {
        match self.sources[at as usize].kind {
            Kind::Flow { .. } => self.handle_flow(now, at),
            Kind::Documents { .. } => self.handle_documents(now, at),
            Kind::Datagrams { .. } => self.handle_datagrams(now, at),
        }
    }

    fn connect(&mut self, at: u32, tcp: &Tcp, (forward, backward): Way, client: u32) -> u32 {
        let group = self.sources[at as usize].group;
        let mut sender = Sender::new(Arc::clone(&tcp.parameters), tcp.controller.make());
        let mut receiver = Receiver::new(&tcp.parameters);
        if let Some((path, weight)) = &self.sources[at as usize].steering {
            receiver.steer(path.join_with_weight(*weight));
            sender.limit_window(FIRST_WINDOW);
        }
        sender.open();
        let slot = self.connections.add(Connection {
            sender,
            receiver,
            forward,
            backward,
            header_bytes: tcp.parameters.header_bytes,
            source: at,
            client,
            dscp: tcp.dscp,
            group,
            window: tcp.parameters.receive_window,
            selective: Selective::default(),
            echoes: Echoes::default(),
        });
        let source = &mut self.sources[at as usize];
        source.counters.opened += 1;
        source.open.push(slot);
        slot
    }

    /// Lets the application of a connection act, and sends the resulting packets.
    fn with_sender(&mut self, now: Timestamp, slot: u32, act: impl FnOnce(&mut Sender)) {
        if let Some(connection) = &mut self.connections.slot(slot).connection {
            act(&mut connection.sender);
            self.transmit(now, slot);
        }
    }

    fn handle_flow(&mut self, now: Timestamp, at: u32) {
        let source = &mut self.sources[at as usize];
        let Kind::Flow { flow, way, next, is_open } = &mut source.kind else { return };
        let Flow { demand, stop, .. } = *flow;
        let is_first = !core::mem::replace(is_open, true);
        let is_over = stop.is_some_and(|stop| now >= stop);
        // The next event is the next message or the end, whichever comes first.
        let mut due = if is_over { None } else { stop };
        let writes = now == *next && !is_over;
        if let Demand::Periodic { every_nanos, .. } = demand
            && !is_over
        {
            if writes {
                *next += Duration::from_nanos(every_nanos);
            }
            due = Some(due.map_or(*next, |stop| stop.min(*next)));
        }
        let (way, tcp) = (*way, is_first.then(|| flow.tcp.clone()));
        source.counters.written += u64::from(match demand {
            Demand::Backlogged => false,
            Demand::Bytes(_) => is_first,
            Demand::Periodic { .. } => writes,
        });
        let slot = match tcp {
            Some(tcp) => self.connect(at, &tcp, way, 0),
            None => match self.sources[at as usize].open.first() {
                Some(&slot) => slot,
                // It ended without being stopped.
                None => return,
            },
        };
        self.with_sender(now, slot, |sender| {
            match demand {
                Demand::Backlogged if is_first => sender.write_without_end(now),
                Demand::Bytes(bytes) if is_first => {
                    sender.write(now, bytes);
                    sender.close(now);
                }
                Demand::Periodic { bytes, .. } if writes => sender.write(now, bytes),
                Demand::Backlogged | Demand::Bytes(_) | Demand::Periodic { .. } => {}
            }
            if is_over {
                sender.close(now);
            }
        });
        if let Some(due) = due {
            self.events.insert(due, Event::Source(at));
        }
    }

    fn handle_documents(&mut self, now: Timestamp, at: u32) {
        // An event that was scheduled before an earlier one was added is obsolete.
        if let Kind::Documents { scheduled, .. } = &self.sources[at as usize].kind
            && *scheduled != now
        {
            return;
        }
        loop {
            let source = &mut self.sources[at as usize];
            let Kind::Documents { tcp, connections, ways, requests, clients, scheduled } =
                &mut source.kind
            else {
                return;
            };
            let Some((client, bytes)) = requests.poll(now) else {
                *scheduled = Timestamp::FAR_FUTURE;
                break;
            };
            source.counters.written += 1;
            let is_shared = *connections == traffic::Connections::PerClient;
            let known = clients.get(&client).copied().filter(|_| is_shared);
            let slot = match known {
                Some(slot) => slot,
                None => {
                    let way = ways[client as usize % ways.len()];
                    let tcp = tcp.clone();
                    let slot = self.connect(at, &tcp, way, client);
                    let source = &mut self.sources[at as usize];
                    if let (Kind::Documents { clients, .. }, true) = (&mut source.kind, is_shared) {
                        clients.insert(client, slot);
                    }
                    slot
                }
            };
            self.with_sender(now, slot, |sender| {
                sender.write(now, bytes);
                if !is_shared {
                    sender.close(now);
                }
            });
        }
        self.schedule_documents(at);
    }

    /// Makes sure that an event is scheduled for the next request.
    fn schedule_documents(&mut self, at: u32) {
        let Kind::Documents { requests, scheduled, .. } = &mut self.sources[at as usize].kind
        else {
            return;
        };
        if let Some(next) = requests.next_time()
            && next < *scheduled
        {
            *scheduled = next;
            self.events.insert(next, Event::Source(at));
        }
    }

    /// A message of a source is complete.
    pub(super) fn handle_completed(&mut self, now: Timestamp, at: u32, client: u32) {
        let source = &mut self.sources[at as usize];
        source.counters.completed += 1;
        if let Kind::Documents { requests, .. } = &mut source.kind {
            requests.handle_completed(now, client);
            self.schedule_documents(at);
        }
    }

    fn handle_datagrams(&mut self, now: Timestamp, at: u32) {
        let source = &mut self.sources[at as usize];
        let group = source.group;
        let Kind::Datagrams { schedule, next, stop, forward, dscp, .. } = &mut source.kind else {
            return;
        };
        let Some(DueDatagram { bytes, .. }) = *next else { return };
        *next = schedule.next().filter(|due| due.at < *stop);
        source.counters.datagrams_sent += 1;
        let packet = Packet {
            owner: Owner::new(at, group),
            hop: *forward,
            bytes,
            generation: 0,
            class: TrafficClass::new(*dscp, Ecn::NotCapable),
            body: Body::Datagram(now.into()),
        };
        if let Some(due) = next {
            self.events.insert(due.at, Event::Source(at));
        }
        self.network.send(&mut self.events, now, &packet);
    }
}
