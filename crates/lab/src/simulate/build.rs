//! From a scenario to a simulation: links, and sources of traffic for each stay of a group.

use std::path::Path;
use std::time::Duration;

use lull_cc::{Rate, Timestamp};
use lull_sim::link::LinkParameters;
use lull_sim::queue::Limit;
use lull_sim::random::Random;
use lull_sim::topology::DumbbellNodes;
use lull_sim::traffic::{self, Demand, Documents, Flow, Pattern, Request, Tcp};
use lull_sim::{Dumbbell, LinkId, NodeId, Simulation, SourceId};

use super::data::{self, nanos};
use super::{SimulateError, controllers};
use crate::emulate::suited;
use crate::plan::{Arrivals, Capacity, Control, Datagrams, Group, Kind, Scenario, Simulated};
use crate::record::{DemandRecord, LinkRecord, rounded};

/// A simulation with all of its traffic, and whose it is.
pub(super) struct Stage {
    pub(super) simulation: Simulation,
    /// The bottleneck from left to right, and back.
    pub(super) forward: LinkId,
    pub(super) backward: LinkId,
    pub(super) rate: Rate,
    /// For each group, what it sends in each of its stays.
    pub(super) stays: Vec<Vec<Stay>>,
    /// What groups of documents ask for.
    pub(super) demands: Vec<Option<DemandRecord>>,
    /// Propagation delay there and back of each group's connections.
    pub(super) round_trips: Vec<Duration>,
    limit: Limit,
}

/// A group's sources from the beginning of one phase to the end of that or a later one.
pub(super) struct Stay {
    /// The numbers of its first and last phase.
    pub(super) phases: (usize, usize),
    pub(super) sources: Vec<SourceId>,
}

/// Between which nodes connections run: each has a pair of its own.
struct Hosts {
    nodes: DumbbellNodes,
    next: usize,
}

impl Hosts {
    fn pair(&mut self, group: &Group) -> (NodeId, NodeId) {
        let at = self.next % self.nodes.left.len();
        self.next += 1;
        let (left, right) = (self.nodes.left[at], self.nodes.right[at]);
        if is_backward(group) { (right, left) } else { (left, right) }
    }
}

/// Whether a group's data go from right to left.
pub(super) fn is_backward(group: &Group) -> bool {
    group.from.starts_with("right")
}

/// What a group's randomness is numbered by, apart from links and sources.
const GROUPS: u64 = 2 << 32;

impl Stage {
    pub(super) fn set(
        scenario: &Scenario,
        network: &Simulated,
        folder: &Path,
        seed: u64,
    ) -> Result<Self, SimulateError> {
        let mut logs: Vec<Option<Vec<Request>>> = Vec::new();
        let mut demands = Vec::new();
        for group in &scenario.groups {
            let section = match &group.kind {
                Kind::Documents(documents) => Some(&documents.section),
                Kind::Datagrams(Datagrams::Log { section, .. }) => Some(section),
                _ => None,
            };
            let requests = section.map(|section| data::requests(folder, section)).transpose()?;
            demands.push(
                section
                    .zip(requests.as_ref())
                    .map(|(section, requests)| data::demand(requests, section)),
            );
            logs.push(requests);
        }
        let rate = match &network.capacity {
            Capacity::Rate(rate) => rate.value,
            Capacity::Demand { group: name, spare } => {
                let at = scenario.groups.iter().position(|group| group.name == *name);
                let demand = at.and_then(|at| demands[at]).ok_or_else(|| {
                    SimulateError::Scenario(format!("no group of documents is called '{name}'"))
                })?;
                Rate::from_bits_per_second(((1.0 + spare) * demand.mbit * 1e6).round() as u64)
            }
        };
        let nodes = dumbbell(scenario, network, rate, &logs).build();
        let simulation = Simulation::new(nodes.topology.clone(), seed);
        let mut stage = Stage {
            simulation,
            forward: nodes.bottleneck,
            backward: nodes.back,
            rate,
            stays: Vec::new(),
            demands,
            round_trips: scenario.groups.iter().map(|group| round_trip(network, group)).collect(),
            limit: network.limit(rate),
        };
        stage.simulation.observe_link(stage.forward);
        stage.simulation.observe_link(stage.backward);
        let mut hosts = Hosts { nodes, next: 0 };
        for (number, group) in scenario.groups.iter().enumerate() {
            let random = Random::of_part(seed, GROUPS | number as u64);
            let mut maker = Maker { scenario, network, folder, rate, group, random };
            let mut stays = Vec::new();
            // The hosts stay the same from one stay to the next.
            let first = hosts.next;
            for phases in stays_of(scenario, group) {
                hosts.next = first;
                let sources =
                    maker.sources(&mut stage.simulation, &mut hosts, phases, &logs[number])?;
                for &source in &sources {
                    stage.simulation.set_group(source, number as u8);
                }
                stays.push(Stay { phases, sources });
            }
            stage.stays.push(stays);
        }
        Ok(stage)
    }

    /// What the bottleneck is.
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

/// The stretches of phases in which a group is there without a break.
fn stays_of(scenario: &Scenario, group: &Group) -> Vec<(usize, usize)> {
    let mut stays: Vec<(usize, usize)> = Vec::new();
    for (at, phase) in scenario.phases.iter().enumerate() {
        if !group.phases.contains(&phase.name) {
            continue;
        }
        match stays.last_mut() {
            Some((_, last)) if *last + 1 == at => *last = at,
            _ => stays.push((at, at)),
        }
    }
    stays
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

fn round_trip(network: &Simulated, group: &Group) -> Duration {
    network.rtt.value.0 + 4 * access_delay(network, group)
}

fn dumbbell(
    scenario: &Scenario,
    network: &Simulated,
    rate: Rate,
    logs: &[Option<Vec<Request>>],
) -> Dumbbell {
    let bottleneck = LinkParameters {
        discipline: suited(network.queue.value, rate, u64::from(network.packet)),
        ..LinkParameters::drop_tail(rate, network.rtt.value.0 / 2, network.limit(rate))
    };
    let has_delay = |group: &Group| !access_delay(network, group).is_zero();
    let has_access = network.access_rate.is_some() || scenario.groups.iter().any(has_delay);
    let mut access = Vec::new();
    for (group, log) in scenario.groups.iter().zip(logs) {
        let link = LinkParameters {
            bits_per_second: network.access_rate.map(Rate::bits_per_second),
            ..LinkParameters::delay(access_delay(network, group))
        };
        access.extend(std::iter::repeat_n(link, pairs(group, log)));
    }
    let pairs = access.len().max(1) as u32;
    // Without links of their own connections begin and end at the routers.
    let access = if has_access { access } else { Vec::new() };
    Dumbbell { bottleneck, back: None, access, pairs }
}

/// Makes the sources of one group.
struct Maker<'a> {
    scenario: &'a Scenario,
    network: &'a Simulated,
    folder: &'a Path,
    rate: Rate,
    group: &'a Group,
    random: Random,
}

impl Maker<'_> {
    /// Beginning and end of a stretch of phases; no end for the last.
    fn times(&self, (first, last): (usize, usize)) -> (Timestamp, Option<Timestamp>) {
        let until = |count: usize| {
            let time: Duration =
                self.scenario.phases[..count].iter().map(|phase| phase.duration()).sum();
            Timestamp::ZERO + time
        };
        let is_last = last + 1 == self.scenario.phases.len();
        (until(first), (!is_last).then(|| until(last + 1)))
    }

    /// When one of several begins.
    fn start(&mut self, begin: Timestamp) -> Timestamp {
        begin + self.group.spread.mul_f64(self.random.uniform())
    }

    fn tcp(&mut self, pace: Option<u64>) -> Result<Tcp, SimulateError> {
        let pace = pace.map(Rate::from_bytes_per_second);
        let parameters = self.group.tcp.parameters(self.network, self.rate, pace);
        let control = Control::named(&self.group.control, &self.scenario.controls);
        let seed = self.random.bits();
        let controller = control
            .and_then(|control| controllers::factory(&control, parameters.segment_bytes, seed));
        Ok(Tcp {
            parameters,
            controller: controller.map_err(SimulateError::Scenario)?,
            dscp: self.group.dscp,
        })
    }

    fn sources(
        &mut self,
        simulation: &mut Simulation,
        hosts: &mut Hosts,
        phases: (usize, usize),
        log: &Option<Vec<Request>>,
    ) -> Result<Vec<SourceId>, SimulateError> {
        let connected = "a dumbbell connects its hosts";
        let (begin, end) = self.times(phases);
        let group = self.group;
        let mut sources = Vec::new();
        match &group.kind {
            Kind::Bulk { pace, messages } => {
                for _ in 0..group.count {
                    let (from, to) = hosts.pair(group);
                    let demand = match *messages {
                        None => Demand::Backlogged,
                        Some((bytes, every)) => {
                            Demand::Periodic { bytes, every_nanos: nanos(every) }
                        }
                    };
                    let (start, tcp) = (self.start(begin), self.tcp(*pace)?);
                    let flow = Flow { from, to, tcp, start, stop: end, demand };
                    sources.push(simulation.add_flow(flow).expect(connected));
                }
            }
            Kind::Requests { bytes, think, persistent } => {
                let until = end.unwrap_or(Timestamp::ZERO + self.scenario.duration());
                let pairs = (0..group.count).map(|_| hosts.pair(group)).collect();
                let requests = self.thinking(begin, until, *bytes, *think);
                let arrivals = traffic::Arrivals::Think(requests);
                sources.push(self.documents(simulation, pairs, arrivals, *persistent)?);
            }
            Kind::Documents(documents) => {
                let requests = log.as_deref().unwrap_or_default();
                let pairs = (0..pairs(group, log)).map(|_| hosts.pair(group)).collect();
                let end = end.map_or(u64::MAX, Timestamp::as_nanos);
                let moved = requests.iter().map(|request| Request {
                    at_nanos: begin.as_nanos() + request.at_nanos,
                    ..*request
                });
                let requests = moved.filter(|request| request.at_nanos < end).collect();
                let arrivals = match documents.arrivals {
                    Arrivals::Logged => traffic::Arrivals::Logged(requests),
                    Arrivals::Think => traffic::Arrivals::Think(requests),
                };
                sources.push(self.documents(simulation, pairs, arrivals, documents.persistent)?);
            }
            Kind::Datagrams(datagrams) => {
                for _ in 0..group.count {
                    let (from, to) = hosts.pair(group);
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
                    let dscp = group.dscp;
                    let datagrams =
                        traffic::Datagrams { from, to, dscp, start, stop: end, pattern };
                    sources.push(simulation.add_datagrams(datagrams).expect(connected));
                }
            }
            Kind::Command { .. } | Kind::Probes(_) => {
                let text = "this traffic is not simulated".to_owned();
                return Err(SimulateError::Scenario(text));
            }
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
        Ok(simulation.add_documents(documents).expect("a dumbbell connects its hosts"))
    }

    /// Requests of clients that think for exponential times. What a client asks for comes later by
    /// what its answers take, so these are enough to the end.
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
