//! The simulated bottleneck of a cell.

use std::time::Duration;

use lull_cc::{Rate, Timestamp};
use lull_sim::link::LinkParameters;
use lull_sim::queue::{
    CodelParameters, Discipline, FqCodelParameters, Limit, RedParameters, TinsParameters,
};
use lull_sim::{Dumbbell, LinkId, NodeId, Simulation, Trace};

use super::cells::{Cell, Link, Network, Queue, Variation};

/// Bytes of a full packet.
pub(super) const PACKET: u64 = 1500;
/// Bytes of payload in a full packet.
pub(super) const PAYLOAD: u64 = 1448;
/// Packets that the way back can queue on links with pauses.
const BACK_BUFFER: u64 = 1000;
/// The cycle of a link with pauses or with a rate that changes at random, in seconds.
const CYCLE: u64 = 60;
/// The round-trip times of the foreground's downloads relative to the background's, where they differ.
const MIXED: [(u32, u32); 4] = [(1, 2), (1, 1), (2, 1), (4, 1)];
/// Sets the pauses of the way back apart from those of the way there.
const BACK_SEED: u64 = 1000;

/// A simulation with its bottleneck, still without traffic.
pub(super) struct Bottleneck {
    pub(super) simulation: Simulation,
    /// The bottleneck.
    pub(super) link: LinkId,
    /// The source and the destination of the background's data.
    pub(super) ends: (NodeId, NodeId),
    /// Sources and destinations of the foreground's downloads, in turn.
    pub(super) foreground_ends: Vec<(NodeId, NodeId)>,
    rate: Rate,
    trace: Option<Trace>,
}

impl Bottleneck {
    /// Builds the cell's bottleneck; `recorded` is the trace of a recorded link.
    pub(super) fn new(cell: &Cell, recorded: Option<&Trace>) -> Self {
        let Network { mbit, rtt_ms } = cell.network;
        let rate = Rate::from_bits_per_second(mbit * 1_000_000);
        let rtt = Duration::from_millis(rtt_ms);
        let mixes = cell.variation == Variation::MixedRtts;
        // The access links add the rest.
        let delay = if mixes { rtt / 4 } else { rtt / 2 };
        let (discipline, buffer) = queue(cell);
        let there = LinkParameters {
            discipline,
            ..LinkParameters::drop_tail(rate, delay, Limit::Packets(buffer))
        };
        let back = match (cell.link, cell.variation) {
            (_, Variation::TwoWay) => {
                LinkParameters::drop_tail(rate, delay, Limit::Packets(bdp(cell.network, 100)))
            }
            (Link::Steady, _) => LinkParameters::delay(delay),
            _ => LinkParameters::drop_tail(rate, delay, Limit::Packets(BACK_BUFFER)),
        };
        let access = if mixes { MIXED.map(|part| access(rtt, part)).to_vec() } else { vec![] };
        let pairs = access.len().max(1) as u32;
        let built = Dumbbell { bottleneck: there, back: Some(back), access, pairs }.build();
        let mut simulation = Simulation::new(built.topology, cell.seed);
        let trace = trace(cell, rate, cell.seed, recorded);
        if let (Link::Pausing { .. } | Link::Cellular, Some(back)) =
            (cell.link, self::trace(cell, rate, cell.seed + BACK_SEED, None))
        {
            simulation.follow_trace(built.back, back);
        }
        if let Some(trace) = &trace {
            simulation.follow_trace(built.bottleneck, trace.clone());
        }
        let foreground_ends: Vec<_> = built.left.into_iter().zip(built.right).collect();
        // With several pairs, the second one's round-trip time is the cell's.
        let ends = foreground_ends.get(1).copied().unwrap_or(foreground_ends[0]);
        Bottleneck { simulation, link: built.bottleneck, ends, foreground_ends, rate, trace }
    }

    /// Bytes of payload that the bottleneck can carry between two times.
    pub(super) fn capacity(&self, from: Timestamp, to: Timestamp) -> f64 {
        let packets = match &self.trace {
            Some(trace) => (trace.opportunities_until(to) - trace.opportunities_until(from)) as f64,
            None => {
                let bytes = self.rate.bits_per_second() as f64 / 8.0;
                bytes / PACKET as f64 * (to - from).as_secs_f64()
            }
        };
        packets * PAYLOAD as f64
    }
}

/// Both access links of a pair of hosts: with them, the round-trip time is this part of the cell's.
fn access(rtt: Duration, (part, of): (u32, u32)) -> LinkParameters {
    LinkParameters::delay((rtt * part / of).saturating_sub(rtt / 2) / 4)
}

/// How the link's capacity changes; nothing at a constant rate.
fn trace(cell: &Cell, rate: Rate, seed: u64, recorded: Option<&Trace>) -> Option<Trace> {
    match cell.link {
        Link::Steady => None,
        Link::Pausing { longest_ms } => Some(Trace::pausing(rate, longest_ms, CYCLE, seed)),
        Link::Cellular => Some(Trace::cellular(rate, CYCLE, seed)),
        Link::Recorded { .. } => recorded.cloned(),
    }
}

/// Packets of a part of the bandwidth-delay product.
fn bdp(Network { mbit, rtt_ms }: Network, percent: u64) -> u64 {
    (mbit * 125 * rtt_ms * percent / (PACKET * 100)).max(4)
}

/// The queue's discipline, and its buffer in packets.
fn queue(cell: &Cell) -> (Discipline, u64) {
    let bdp = |percent| bdp(cell.network, percent);
    let ecn = cell.variation == Variation::Ecn;
    let codel = CodelParameters { ecn, ..CodelParameters::default() };
    let fq_codel = FqCodelParameters { codel, ..FqCodelParameters::default() };
    match cell.queue {
        Queue::DropTail { percent_of_bdp } => (Discipline::DropTail, bdp(percent_of_bdp)),
        Queue::Red => {
            let packet_time_nanos = PACKET * 8 * 1000 / cell.network.mbit;
            let red = RedParameters { packet_time_nanos, ecn, ..RedParameters::default() };
            (Discipline::Red(red), bdp(200).max(20))
        }
        Queue::Codel => (Discipline::Codel(codel), bdp(400).max(100)),
        Queue::FqCodel => (Discipline::FqCodel(fq_codel), bdp(400).max(100)),
        Queue::Tins => {
            let tins = TinsParameters { fq_codel, ..TinsParameters::default() };
            (Discipline::Tins(tins), bdp(400).max(100))
        }
    }
}
