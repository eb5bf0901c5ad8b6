//! The foreground of a cell: its sources, and when it is measured.

use std::time::Duration;

use lull_cc::{Rate, Timestamp};
use lull_sim::random::Random;
use lull_sim::tcp::Parameters;
use lull_sim::traffic::{
    Arrivals, Connections, Datagrams, Demand, Documents, Flow, FlowSizes, Pattern, Request, Tcp,
};
use lull_sim::{NodeId, Simulation, SourceId};

use super::cells::{Cell, Foreground, ForegroundControl, Variation};
use super::network::PACKET;
use super::scheme::foreground_control;

/// Time advances in steps of this many milliseconds.
pub(super) const STEP_MS: u64 = 50;
/// Steps in a second.
pub(super) const STEPS: u64 = 1000 / STEP_MS;

/// When the four downloads begin and end, in seconds. They last between 3 and 30 s.
const DOWNLOADS: [(u64, u64); 4] = [(20, 50), (65, 75), (90, 110), (130, 133)];
/// When a cell with downloads ends, in seconds.
const DOWNLOADS_END: u64 = 148;
/// When the measurement begins for everything but a crowd, in seconds: the background has the link by then.
const BEGIN: u64 = 10;
/// When requests stop, and when the last response must have arrived, in seconds.
const REQUESTS_END: (u64, u64) = (120, 130);
/// When a crowd joins and when it is measured, in seconds.
const CROWD: (u64, u64) = (20, 30);
/// When the downloads count that begin before the background, in seconds. It joins when the first one counts.
const EARLIER: [(u64, u64); 2] = [(10, 30), (45, 55)];
/// When a cell with them ends, in seconds.
const EARLIER_END: u64 = 70;
/// Bytes of a response.
const RESPONSE: u64 = 100_000;
/// The shortest mean time between requests, in seconds.
const MIN_GAP: f64 = 0.3;
/// Sizes of documents and the part of documents that is not longer.
const SIZES: &str = "100 0.0\n1000 0.15\n5000 0.4\n10000 0.55\n30000 0.75\n100000 0.92\n\
                     500000 0.985\n3000000 1.0\n";

const CONNECTED: &str = "a dumbbell connects its ends";

/// The time after this many steps.
pub(super) fn at_step(step: u64) -> Timestamp {
    Timestamp::from_micros(step * STEP_MS * 1000)
}

fn at_second(second: u64) -> Timestamp {
    at_step(second * STEPS)
}

/// When a cell is measured, in steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// When measuring begins, and when it ends.
    pub(super) measured: (u64, u64),
    /// The times at which the foreground counts.
    pub(super) counted: Vec<(u64, u64)>,
    /// When the background joins.
    pub(super) join: u64,
    /// Whether to measure the background's return after each counted time.
    pub(super) has_returns: bool,
}

impl Times {
    pub(super) fn of(cell: &Cell) -> Self {
        let steps = |(from, to): (u64, u64)| (from * STEPS, to * STEPS);
        let once = |measured| Times {
            measured: steps(measured),
            counted: vec![steps(measured)],
            join: 2,
            has_returns: false,
        };
        match cell.foreground {
            Foreground::None => once((BEGIN, 60)),
            Foreground::Bulk(_) => Times {
                counted: downloads(cell.seed).to_vec(),
                has_returns: true,
                ..once((BEGIN, DOWNLOADS_END))
            },
            Foreground::Established => Times { join: CROWD.0 * STEPS, ..once(CROWD) },
            Foreground::Earlier => Times {
                counted: EARLIER.map(steps).to_vec(),
                join: EARLIER[0].0 * STEPS,
                has_returns: true,
                ..once((EARLIER[0].0, EARLIER_END))
            },
            Foreground::Lasting => once((20, 140)),
            Foreground::Requests | Foreground::Documents => once((BEGIN, REQUESTS_END.1)),
            Foreground::Datagrams => once((BEGIN, 140)),
        }
    }
}

/// When the downloads begin and end, in steps; the seed moves all of them by less than a second.
fn downloads(seed: u64) -> [(u64, u64); 4] {
    let offset = (seed * 37 % 100 * STEPS + 50) / 100;
    DOWNLOADS.map(|(from, to)| (from * STEPS + offset, to * STEPS + offset))
}

/// Adds a download that fills the way back.
pub(super) fn add_reverse(simulation: &mut Simulation, (from, to): (NodeId, NodeId), cell: &Cell) {
    let tcp = tcp(ForegroundControl::Cubic, cell);
    let (from, to, start) = (to, from, at_step(STEPS));
    let flow = Flow { from, to, tcp, start, stop: None, demand: Demand::Backlogged };
    simulation.add_flow(flow).expect(CONNECTED);
}

/// Adds the foreground's sources. Downloads use the `ends` in turn.
pub(super) fn add(
    simulation: &mut Simulation,
    ends: &[(NodeId, NodeId)],
    cell: &Cell,
) -> Vec<SourceId> {
    let (from, to) = ends[0];
    let mut turns = ends.iter().cycle();
    let mut flow = |controller, start, stop| {
        let (from, to) = *turns.next().expect("a cell has ends");
        let tcp = tcp(controller, cell);
        let flow = Flow { from, to, tcp, start, stop, demand: Demand::Backlogged };
        simulation.add_flow(flow).expect(CONNECTED)
    };
    let arrivals = match cell.foreground {
        Foreground::None => return Vec::new(),
        Foreground::Bulk(controller) => {
            let spans = downloads(cell.seed).into_iter();
            return spans
                .map(|(start, stop)| flow(controller, at_step(start), Some(at_step(stop))))
                .collect();
        }
        Foreground::Established => {
            return vec![flow(ForegroundControl::Cubic, at_step(STEPS / 2), None)];
        }
        Foreground::Earlier => {
            let spans =
                [(STEPS / 2, EARLIER[0].1 * STEPS), (EARLIER[1].0 * STEPS, EARLIER[1].1 * STEPS)];
            return spans
                .map(|(start, stop)| {
                    flow(ForegroundControl::Cubic, at_step(start), Some(at_step(stop)))
                })
                .to_vec();
        }
        Foreground::Lasting => return vec![flow(ForegroundControl::Cubic, at_second(BEGIN), None)],
        Foreground::Requests => Arrivals::Logged(requests(cell)),
        Foreground::Documents => Arrivals::Poisson {
            start: at_second(BEGIN),
            stop: at_second(REQUESTS_END.0),
            rate: Rate::from_bits_per_second(cell.network.mbit * 400_000),
            sizes: SIZES.parse::<FlowSizes>().expect("the sizes are well formed"),
        },
        Foreground::Datagrams => {
            let datagrams = datagrams((from, to), cell.network.mbit);
            return vec![simulation.add_datagrams(datagrams).expect(CONNECTED)];
        }
    };
    let documents = Documents {
        pairs: vec![(from, to)],
        tcp: tcp(ForegroundControl::Cubic, cell),
        connections: Connections::PerDocument,
        arrivals,
    };
    vec![simulation.add_documents(documents).expect(CONNECTED)]
}

fn tcp(controller: ForegroundControl, cell: &Cell) -> Tcp {
    let parameters = parameters(cell).into();
    Tcp { parameters, controller: foreground_control(controller), dscp: 0 }
}

/// The parameters of all connections of a cell.
pub(super) fn parameters(cell: &Cell) -> Parameters {
    Parameters { ecn: cell.variation == Variation::Ecn, ..Parameters::default() }
}

/// Requests that use a third of the link, each from a separate client.
fn requests(cell: &Cell) -> Vec<Request> {
    let gap = RESPONSE as f64 * 8.0 / (cell.network.mbit as f64 * 1e6) * 3.0;
    let mut random = Random::new(cell.seed * 7 + 1);
    let mut requests = Vec::new();
    let mut seconds = BEGIN as f64;
    while seconds < REQUESTS_END.0 as f64 {
        seconds += gap.max(MIN_GAP) * (0.3 + 1.4 * random.uniform());
        requests.push(Request {
            at_nanos: (seconds * 1e9) as u64,
            client: requests.len() as u32,
            bytes: RESPONSE,
        });
    }
    requests
}

/// Datagrams for 2 s and none for 2 s on average, at 70 % of the rate while they come.
fn datagrams((from, to): (NodeId, NodeId), mbit: u64) -> Datagrams {
    let two_seconds = Duration::from_secs(2).as_nanos() as u64;
    Datagrams {
        from,
        to,
        dscp: 0,
        start: at_second(BEGIN),
        stop: None,
        pattern: Pattern::OnOffPareto {
            bits_per_second: mbit * 700_000,
            bytes: PACKET as u16,
            on_nanos: two_seconds,
            off_nanos: two_seconds,
            shape: 1.5,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_moves_downloads_by_less_than_a_second() {
        for seed in 0..200 {
            for ((from, to), (start, stop)) in DOWNLOADS.into_iter().zip(downloads(seed)) {
                assert_eq!(stop - start, (to - from) * STEPS);
                assert!((from * STEPS..=(from + 1) * STEPS).contains(&start), "seed {seed}");
            }
        }
        assert_ne!(downloads(7), downloads(8));
    }
}
