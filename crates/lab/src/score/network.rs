//! The simulated bottleneck of a cell.

use std::time::Duration;

use lull_cc::{Rate, Timestamp};
use lull_sim::link::LinkParameters;
use lull_sim::queue::{Discipline, FqCodelParameters, Limit, RedParameters};
use lull_sim::{Dumbbell, NodeId, Simulation, Trace};

use super::cells::{Cell, Link, Network, Queue};

/// Bytes of a full packet.
pub(super) const PACKET: u64 = 1500;
/// Bytes of payload in a full packet.
pub(super) const PAYLOAD: u64 = 1448;
/// Packets that the way back can queue on links with pauses.
const BACK_BUFFER: u64 = 1000;
/// The cycle of a link with pauses, in seconds.
const PAUSING_CYCLE: u64 = 60;
/// Sets the pauses of the way back apart from those of the way there.
const BACK_SEED: u64 = 1000;

/// A simulation with its bottleneck, still without traffic.
pub(super) struct Bottleneck {
    pub(super) simulation: Simulation,
    /// The source and the destination of data.
    pub(super) ends: (NodeId, NodeId),
    rate: Rate,
    trace: Option<Trace>,
}

impl Bottleneck {
    /// Builds the cell's bottleneck; `recorded` is the trace of a recorded link.
    pub(super) fn new(cell: &Cell, recorded: Option<&Trace>) -> Self {
        let Network { mbit, rtt_ms } = cell.network;
        let rate = Rate::from_bits_per_second(mbit * 1_000_000);
        let delay = Duration::from_micros(rtt_ms * 500);
        let (discipline, buffer) = queue(cell);
        let there = LinkParameters {
            discipline,
            ..LinkParameters::drop_tail(rate, delay, Limit::Packets(buffer))
        };
        let back = match cell.link {
            Link::Steady => LinkParameters::delay(delay),
            _ => LinkParameters::drop_tail(rate, delay, Limit::Packets(BACK_BUFFER)),
        };
        let built =
            Dumbbell { bottleneck: there, back: Some(back), access: vec![], pairs: 1 }.build();
        let mut simulation = Simulation::new(built.topology, cell.seed);
        let pausing = |longest_ms, seed| Trace::pausing(rate, longest_ms, PAUSING_CYCLE, seed);
        let trace = match cell.link {
            Link::Steady => None,
            Link::Pausing { longest_ms } => {
                simulation.follow_trace(built.back, pausing(longest_ms, cell.seed + BACK_SEED));
                Some(pausing(longest_ms, cell.seed))
            }
            Link::Recorded { .. } => recorded.cloned(),
        };
        if let Some(trace) = &trace {
            simulation.follow_trace(built.bottleneck, trace.clone());
        }
        Bottleneck { simulation, ends: (built.left[0], built.right[0]), rate, trace }
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

/// The queue's discipline, and its buffer in packets.
fn queue(cell: &Cell) -> (Discipline, u64) {
    let Network { mbit, rtt_ms } = cell.network;
    let bdp = |percent: u64| mbit * 125 * rtt_ms * percent / (PACKET * 100);
    match cell.queue {
        Queue::DropTail { percent_of_bdp } => (Discipline::DropTail, bdp(percent_of_bdp).max(4)),
        Queue::Red => {
            let packet_time_nanos = PACKET * 8 * 1000 / mbit;
            let red = RedParameters { packet_time_nanos, ..RedParameters::default() };
            (Discipline::Red(red), bdp(200).max(20))
        }
        Queue::Codel => (Discipline::Codel(Default::default()), bdp(400).max(100)),
        Queue::FqCodel => {
            // No flow asks for ECN here.
            let fq_codel =
                FqCodelParameters { codel: Default::default(), ..FqCodelParameters::default() };
            (Discipline::FqCodel(fq_codel), bdp(400).max(100))
        }
    }
}
