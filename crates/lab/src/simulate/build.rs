//! From a scenario to a simulation: links, and sources of traffic for each stay of a group.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lull_cc::lull::SharedPath;
use lull_cc::{Bytes, Rate, Timestamp};
use lull_sim::link::LinkParameters;
use lull_sim::queue::Limit;
use lull_sim::random::Random;
use lull_sim::tcp::Parameters;
use lull_sim::topology::{ParkingLot, Topology};
use lull_sim::traffic::{self, Demand, Documents, Flow, Pattern, Request, Tcp};
use lull_sim::{Dumbbell, LinkId, NodeId, Simulation, SourceId};

use super::data::{self, nanos};
use super::{SimulateError, controllers};
use crate::plan::{
    Arrivals, Capacity, Control, Datagrams, Flows, Group, Intensity, Kind, Scenario, Simulated,
};
use crate::record::{DemandRecord, LinkRecord, rounded};
use lull_emulator::suited;
use lull_emulator::traffic::Work;

/// A simulation with all of its traffic, by group.
pub(super) struct Stage {
    pub(super) simulation: Simulation,
    /// The bottlenecks, each from left to right, and the links back beside them.
    pub(super) forward: Vec<LinkId>,
    pub(super) backward: Vec<LinkId>,
    pub(super) rate: Rate,
    /// For each group, the routers where its data begin and end.
    ways: Vec<(usize, usize)>,
    /// For each group, its sources in each of its stays.
    pub(super) periods: Vec<Vec<ActivePhases>>,
    /// The demand of groups of documents.
    pub(super) demands: Vec<Option<DemandRecord>>,
    /// Propagation delay there and back of each group's connections.
    pub(super) round_trips: Vec<Duration>,
    limit: Limit,
}

/// A group's sources from the beginning of one phase to the end of that or a later one.
pub(super) struct ActivePhases {
    /// The numbers of its first and last phase.
    pub(super) phases: (usize, usize),
    pub(super) sources: Vec<SourceId>,
}

/// The nodes and links of a network.
struct Wires {
    topology: Topology,
    /// The end nodes of each connection, on the left and on the right; group by group.
    pairs: Vec<(NodeId, NodeId)>,
    forward: Vec<LinkId>,
    backward: Vec<LinkId>,
}

/// The nodes that connections run between: each has its own pair.
struct Hosts {
    pairs: Vec<(NodeId, NodeId)>,
    next: usize,
}

impl Hosts {
    /// The end nodes of the next connection, at the source and at the destination of its data.
    fn pair(&mut self, (from, to): (usize, usize)) -> (NodeId, NodeId) {
        let (left, right) = self.pairs[self.next % self.pairs.len()];
        self.next += 1;
        if from > to { (right, left) } else { (left, right) }
    }
}

/// The routers at the source and at the destination of a group's data, counted from 0 at the left.
fn way(network: &Simulated, group: &Group) -> Result<(usize, usize), SimulateError> {
    let router = |host: &str| {
        let no_host = || SimulateError::Scenario(format!("there is no host '{host}'"));
        network.router(host).ok_or_else(no_host)
    };
    Ok((router(&group.from)?, router(&group.to)?))
}

/// The log of each group that replays one, and its demand.
type Logs = (Vec<Option<Vec<Request>>>, Vec<Option<DemandRecord>>);

fn read_logs(scenario: &Scenario, folder: &Path) -> Result<Logs, SimulateError> {
    let (mut logs, mut demands) = (Vec::new(), Vec::new());
    for group in &scenario.groups {
        let section = match &group.kind {
            Kind::Documents(documents) => Some(&documents.section),
            Kind::Datagrams(Datagrams::Log { section, .. }) => Some(section),
            _ => None,
        };
        let requests = section.map(|section| data::requests(folder, section)).transpose()?;
        let demand = section.zip(requests.as_ref());
        demands.push(demand.map(|(section, requests)| data::demand(requests, section)));
        logs.push(requests);
    }
    Ok((logs, demands))
}

/// The rate of a bottleneck.
fn rate(
    scenario: &Scenario,
    network: &Simulated,
    demands: &[Option<DemandRecord>],
) -> Result<Rate, SimulateError> {
    match &network.capacity {
        Capacity::Rate(rate) => Ok(rate.value),
        Capacity::Demand { group: name, spare } => {
            let at = scenario.groups.iter().position(|group| group.name == *name);
            let demand = at.and_then(|at| demands[at]).ok_or_else(|| {
                SimulateError::Scenario(format!("no group of documents is called '{name}'"))
            })?;
            Ok(Rate::from_bits_per_second(((1.0 + spare) * demand.mbit * 1e6).round() as u64))
        }
    }
}

/// The first number for a group's random numbers, different from those of links and sources.
const GROUPS: u64 = 2 << 32;

impl Stage {
    pub(super) fn set(
        scenario: &Scenario,
        network: &Simulated,
        folder: &Path,
        seed: u64,
    ) -> Result<Self, SimulateError> {
        let (logs, demands) = read_logs(scenario, folder)?;
        let rate = rate(scenario, network, &demands)?;
        let groups = || scenario.groups.iter();
        let ways: Vec<_> = groups().map(|group| way(network, group)).collect::<Result<_, _>>()?;
        let round_trips = groups().zip(&ways).map(|(group, way)| round_trip(network, group, *way));
        let round_trips = round_trips.collect();
        let wires = match network.bottlenecks {
            1 => dumbbell(scenario, network, rate, &logs),
            _ => parking_lot(scenario, network, rate, &logs, &ways),
        };
        let mut simulation = Simulation::new(wires.topology, seed);
        for (&forward, &backward) in wires.forward.iter().zip(&wires.backward) {
            simulation.observe_link(forward);
            simulation.observe_link(backward);
            // The second round trip contains the senders' reports of the first drop, and the data that they
            // had sent by then.
            simulation.set_overflow(forward, 2 * longest_round_trip(network, rate));
        }
        let mut stage = Stage {
            simulation,
            forward: wires.forward,
            backward: wires.backward,
            rate,
            ways,
            periods: Vec::new(),
            demands,
            round_trips,
            limit: network.limit(rate),
        };
        let mut hosts = Hosts { pairs: wires.pairs, next: 0 };
        for (number, group) in scenario.groups.iter().enumerate() {
            let random = Random::of_part(seed, GROUPS | number as u64);
            let way = stage.ways[number];
            let (parameters, path) = (None, SharedPath::default());
            let maker = SourceBuilder {
                scenario,
                network,
                folder,
                rate,
                group,
                way,
                random,
                parameters,
                path,
            };
            stage.add_group(maker, &mut hosts, number, &logs[number])?;
        }
        Ok(stage)
    }

    /// Adds the sources of a group.
    fn add_group(
        &mut self,
        mut maker: SourceBuilder<'_>,
        hosts: &mut Hosts,
        number: usize,
        log: &Option<Vec<Request>>,
    ) -> Result<(), SimulateError> {
        let mut periods = Vec::new();
        // The hosts stay the same from one stay to the next.
        let first = hosts.next;
        for phases in active_phases_of(maker.scenario, maker.group) {
            hosts.next = first;
            let sources = maker.sources(&mut self.simulation, hosts, phases, log)?;
            for &source in &sources {
                self.simulation.set_group(source, number as u8);
            }
            periods.push(ActivePhases { phases, sources });
        }
        self.periods.push(periods);
        Ok(())
    }

    /// Whether a group's data go from right to left.
    pub(super) fn is_backward(&self, group: usize) -> bool {
        let (from, to) = self.ways[group];
        from > to
    }

    /// The bottlenecks that a group's data cross.
    pub(super) fn crossed(&self, group: usize) -> Range<usize> {
        let (from, to) = self.ways[group];
        from.min(to)..from.max(to)
    }

    /// The last bottleneck that they cross.
    pub(super) fn last_crossed(&self, group: usize) -> usize {
        let crossed = self.crossed(group);
        if self.is_backward(group) { crossed.start } else { crossed.end - 1 }
    }

    /// The record of a bottleneck.
    pub(super) fn link_record(&self, network: &Simulated) -> LinkRecord {
        let full = 1500.0;
        let rtt_s = network.round_trip().as_secs_f64();
        LinkRecord {
            rate_mbit: self.rate.bits_per_second() as f64 / 1e6,
            rtt_ms: rtt_s * 1e3,
            bdp: rounded(self.rate.bytes_per_second() as f64 * rtt_s / full),
            buffer: rounded(match self.limit {
                Limit::Bytes(bytes) => bytes as f64 / full,
                Limit::Packets(packets) => packets as f64 * f64::from(network.packet) / full,
            }),
            queue: network.queue.value.name().to_owned(),
            backend: None,
        }
    }

    /// Data packets and datagrams that have arrived.
    pub(super) fn delivered_packets(&self) -> u64 {
        let counters = self.simulation.sources().map(|source| self.simulation.source(source));
        counters.map(|counters| counters.received.segments + counters.datagrams_received).sum()
    }

    /// Connections that are open now.
    pub(super) fn open_connections(&self) -> u64 {
        let sources = self.simulation.sources();
        sources.map(|source| self.simulation.senders(source).count() as u64).sum()
    }
}

/// The ranges of phases in which a group is active without a break.
fn active_phases_of(scenario: &Scenario, group: &Group) -> Vec<(usize, usize)> {
    let mut periods: Vec<(usize, usize)> = Vec::new();
    for (at, phase) in scenario.phases.iter().enumerate() {
        if !group.phases.contains(&phase.name) {
            continue;
        }
        match periods.last_mut() {
            Some((_, last)) if *last + 1 == at => *last = at,
            _ => periods.push((at, at)),
        }
    }
    periods
}

/// How many pairs of hosts a group needs.
fn pairs(group: &Group, log: &Option<Vec<Request>>) -> usize {
    match (&group.kind, log) {
        (Kind::Documents(_), Some(requests)) => {
            requests.iter().map(|request| request.client as usize + 1).max().unwrap_or(1)
        }
        _ => group.count as usize,
    }
}

fn access_delay(network: &Simulated, group: &Group) -> Duration {
    group.tcp.access_delay.as_ref().map_or(network.access_delay, |delay| delay.value.0)
}

fn round_trip(network: &Simulated, group: &Group, (from, to): (usize, usize)) -> Duration {
    network.rtt.value.0 * from.abs_diff(to) as u32 + 4 * access_delay(network, group)
}

/// A round trip over a bottleneck whose queue is full.
fn longest_round_trip(network: &Simulated, rate: Rate) -> Duration {
    let waiting = match network.limit(rate) {
        Limit::Bytes(bytes) => bytes,
        Limit::Packets(packets) => packets.saturating_mul(u64::from(network.packet)),
    };
    network.round_trip() + rate.time_for(Bytes(waiting))
}

/// A bottleneck in one direction.
fn bottleneck(network: &Simulated, rate: Rate, limit: Limit) -> LinkParameters {
    LinkParameters {
        discipline: suited(network.queue.value, rate, u64::from(network.packet)),
        ..LinkParameters::drop_tail(rate, network.rtt.value.0 / 2, limit)
    }
}

/// The access links of all connections, group by group. None if connections begin and end at the routers,
/// where such links would have no effect.
fn access(
    scenario: &Scenario,
    network: &Simulated,
    logs: &[Option<Vec<Request>>],
) -> Vec<Vec<Option<LinkParameters>>> {
    let has_delay = |group: &Group| !access_delay(network, group).is_zero();
    let has_access = network.access_rate.is_some() || scenario.groups.iter().any(has_delay);
    let of_group = |(group, log): (&Group, &Option<Vec<Request>>)| {
        let link = has_access.then(|| LinkParameters {
            bits_per_second: network.access_rate.map(Rate::bits_per_second),
            ..LinkParameters::delay(access_delay(network, group))
        });
        vec![link; pairs(group, log)]
    };
    scenario.groups.iter().zip(logs).map(of_group).collect()
}

fn dumbbell(
    scenario: &Scenario,
    network: &Simulated,
    rate: Rate,
    logs: &[Option<Vec<Request>>],
) -> Wires {
    let links: Vec<_> = access(scenario, network, logs).into_iter().flatten().collect();
    let is_even = network.reverse_rate.is_none() && network.reverse_buffer.is_none();
    let back = (!is_even).then(|| {
        let rate = network.reverse_rate.unwrap_or(rate);
        bottleneck(network, rate, network.reverse_limit(rate))
    });
    let built = Dumbbell {
        bottleneck: bottleneck(network, rate, network.limit(rate)),
        back,
        pairs: links.len().max(1) as u32,
        access: links.into_iter().flatten().collect(),
    }
    .build();
    Wires {
        topology: built.topology,
        pairs: built.left.into_iter().zip(built.right).collect(),
        forward: vec![built.bottleneck],
        backward: vec![built.back],
    }
}

fn parking_lot(
    scenario: &Scenario,
    network: &Simulated,
    rate: Rate,
    logs: &[Option<Vec<Request>>],
    ways: &[(usize, usize)],
) -> Wires {
    let link = bottleneck(network, rate, network.limit(rate));
    let bottlenecks = vec![link; network.bottlenecks];
    // Each connection has its own hosts, with its group's links: they are added later.
    let built = ParkingLot { bottlenecks, access: None, hosts: 1 }.build();
    let routers: Vec<NodeId> = built.hosts.iter().map(|at_router| at_router[0]).collect();
    let mut topology = built.topology;
    let back = |ends: &[NodeId]| {
        let way = topology.route(ends[1], ends[0]).expect("a row of bottlenecks leads back, too");
        way[0]
    };
    let backward = routers.windows(2).map(back).collect();
    let mut pairs = Vec::new();
    for (links, &(from, to)) in access(scenario, network, logs).into_iter().zip(ways) {
        for link in links {
            let mut end = |router: NodeId| match link {
                None => router,
                Some(link) => {
                    let host = topology.add_host();
                    topology.add_links(host, router, link);
                    host
                }
            };
            pairs.push((end(routers[from.min(to)]), end(routers[from.max(to)])));
        }
    }
    Wires { topology, pairs, forward: built.bottlenecks, backward }
}

/// Why a source always has a path.
const CONNECTED: &str = "routers in a row connect their hosts";

/// The requests of a log that begins at `begin`, if they are before `end`.
fn moved(log: &[Request], begin: Timestamp, end: Option<Timestamp>) -> Vec<Request> {
    let end = end.map_or(u64::MAX, Timestamp::as_nanos);
    let moved = log
        .iter()
        .map(|request| Request { at_nanos: begin.as_nanos() + request.at_nanos, ..*request });
    moved.filter(|request| request.at_nanos < end).collect()
}

/// Makes the sources of one group.
struct SourceBuilder<'a> {
    scenario: &'a Scenario,
    network: &'a Simulated,
    folder: &'a Path,
    rate: Rate,
    group: &'a Group,
    /// The routers where its data begin and end.
    way: (usize, usize),
    random: Random,
    /// The shared parameters of its connections.
    parameters: Option<Arc<Parameters>>,
    /// The path that the group's connections share under `lull`: they are of one host.
    path: SharedPath,
}

impl SourceBuilder<'_> {
    /// Beginning and end of a range of phases; no end for the last.
    fn times(&self, (first, last): (usize, usize)) -> (Timestamp, Option<Timestamp>) {
        let until = |count: usize| {
            let time: Duration =
                self.scenario.phases[..count].iter().map(|phase| phase.duration()).sum();
            Timestamp::ZERO + time
        };
        let is_last = last + 1 == self.scenario.phases.len();
        (until(first), (!is_last).then(|| until(last + 1)))
    }

    /// The start time of one of several.
    fn start(&mut self, begin: Timestamp) -> Timestamp {
        begin + self.group.spread.mul_f64(self.random.uniform())
    }

    fn tcp(&mut self, pace: Option<u64>) -> Result<Tcp, SimulateError> {
        let pace = pace.map(Rate::from_bytes_per_second);
        let parameters = self.group.tcp.parameters(self.network, self.rate, pace);
        let known = self.parameters.take().filter(|known| **known == parameters);
        let parameters = known.unwrap_or_else(|| Arc::new(parameters));
        self.parameters = Some(Arc::clone(&parameters));
        let control = Control::named(&self.group.control, &self.scenario.controls);
        let seed = self.random.bits();
        let path = self.path.clone();
        let controller = control.and_then(|control| {
            controllers::factory(&control, parameters.segment_bytes, seed, path)
        });
        Ok(Tcp { parameters, controller: controller?, dscp: self.group.dscp })
    }

    /// The sources of the group in a range of phases.
    fn sources(
        &mut self,
        simulation: &mut Simulation,
        hosts: &mut Hosts,
        phases: (usize, usize),
        log: &Option<Vec<Request>>,
    ) -> Result<Vec<SourceId>, SimulateError> {
        let (begin, end) = self.times(phases);
        let group = self.group;
        let one = match &group.kind {
            Kind::Work(Work::Bulk { pace }) => {
                return self.bulk(simulation, hosts, (begin, end), *pace, Demand::Backlogged);
            }
            Kind::Messages { pace, bytes, every } => {
                let demand = Demand::Periodic { bytes: *bytes, every_nanos: nanos(*every) };
                return self.bulk(simulation, hosts, (begin, end), *pace, demand);
            }
            Kind::Datagrams(datagrams) => {
                return self.datagrams(simulation, hosts, (begin, end), datagrams, log);
            }
            Kind::Work(Work::Requests { bytes, think, persistent }) => {
                let until = end.unwrap_or(Timestamp::ZERO + self.scenario.duration());
                let pairs = (0..group.count).map(|_| hosts.pair(self.way)).collect();
                let requests = self.thinking(begin, until, *bytes, *think);
                let arrivals = traffic::Arrivals::Think(requests);
                self.documents(simulation, pairs, arrivals, *persistent)?
            }
            Kind::Documents(documents) => {
                let pairs = (0..pairs(group, log)).map(|_| hosts.pair(self.way)).collect();
                let requests = moved(log.as_deref().unwrap_or_default(), begin, end);
                let arrivals = match documents.arrivals {
                    Arrivals::Logged => traffic::Arrivals::Logged(requests),
                    Arrivals::Think => traffic::Arrivals::Think(requests),
                };
                self.documents(simulation, pairs, arrivals, documents.persistent)?
            }
            Kind::Flows(flows) => {
                let until = end.unwrap_or(Timestamp::ZERO + self.scenario.duration());
                let pairs = (0..group.count).map(|_| hosts.pair(self.way)).collect();
                let arrivals = self.random_flows(flows, begin, until)?;
                self.documents(simulation, pairs, arrivals, false)?
            }
            Kind::Work(Work::Command { .. } | Work::Probes(_)) => {
                let text = "this traffic is not simulated".to_owned();
                return Err(SimulateError::Scenario(text));
            }
        };
        Ok(vec![one])
    }

    /// A connection for each of the group's, all with the same demand.
    fn bulk(
        &mut self,
        simulation: &mut Simulation,
        hosts: &mut Hosts,
        (begin, stop): (Timestamp, Option<Timestamp>),
        pace: Option<u64>,
        demand: Demand,
    ) -> Result<Vec<SourceId>, SimulateError> {
        let mut sources = Vec::new();
        for _ in 0..self.group.count {
            let (from, to) = hosts.pair(self.way);
            let (start, tcp) = (self.start(begin), self.tcp(pace)?);
            let flow = Flow { from, to, tcp, start, stop, demand };
            sources.push(simulation.add_flow(flow).expect(CONNECTED));
        }
        Ok(sources)
    }

    fn datagrams(
        &mut self,
        simulation: &mut Simulation,
        hosts: &mut Hosts,
        (begin, stop): (Timestamp, Option<Timestamp>),
        datagrams: &Datagrams,
        log: &Option<Vec<Request>>,
    ) -> Result<Vec<SourceId>, SimulateError> {
        let mut sources = Vec::new();
        for _ in 0..self.group.count {
            let (from, to) = hosts.pair(self.way);
            let (start, pattern) = match datagrams {
                Datagrams::Pattern(pattern) => (self.start(begin), pattern.clone()),
                Datagrams::Recorded { file } => {
                    (begin, Pattern::Trace(data::recorded(self.folder, file)?))
                }
                Datagrams::Log { rate, bytes, .. } => {
                    let requests = log.as_deref().unwrap_or_default();
                    (begin, Pattern::Trace(data::bursts(requests, *rate, *bytes)))
                }
            };
            let dscp = self.group.dscp;
            let datagrams = traffic::Datagrams { from, to, dscp, start, stop, pattern };
            sources.push(simulation.add_datagrams(datagrams).expect(CONNECTED));
        }
        Ok(sources)
    }

    fn documents(
        &mut self,
        simulation: &mut Simulation,
        pairs: Vec<(NodeId, NodeId)>,
        arrivals: traffic::Arrivals,
        persistent: bool,
    ) -> Result<SourceId, SimulateError> {
        let connections = match persistent {
            true => traffic::Connections::PerClient,
            false => traffic::Connections::PerDocument,
        };
        let tcp = self.tcp(None)?;
        let documents = Documents { pairs, tcp, connections, arrivals };
        Ok(simulation.add_documents(documents).expect(CONNECTED))
    }

    /// Flows that begin at random between two times.
    fn random_flows(
        &self,
        flows: &Flows,
        start: Timestamp,
        stop: Timestamp,
    ) -> Result<traffic::Arrivals, SimulateError> {
        let sizes = data::sizes(self.folder, &flows.sizes)?;
        let bits_per_second = match flows.intensity {
            Intensity::Load(load) => {
                let Simulated { packet, header, .. } = *self.network;
                let payload = f64::from(packet - header) / f64::from(packet);
                load * self.rate.bits_per_second() as f64 * payload
            }
            Intensity::PerSecond(rate) => rate * sizes.mean() * 8.0,
        };
        let rate = Rate::from_bits_per_second((bits_per_second.round() as u64).max(8));
        Ok(traffic::Arrivals::Poisson { start, stop, rate, sizes })
    }

    /// Requests of clients that think for exponential times. A client's requests are delayed by its
    /// responses, so these are enough to the end.
    fn thinking(
        &mut self,
        begin: Timestamp,
        end: Timestamp,
        bytes: u64,
        think: Duration,
    ) -> Vec<Request> {
        let mut requests = Vec::new();
        for client in 0..self.group.count {
            let mut at = self.start(begin);
            while at < end {
                requests.push(Request { at_nanos: at.as_nanos(), client, bytes });
                at += self.random.exponential(think).max(Duration::from_nanos(1));
            }
        }
        requests
    }
}
