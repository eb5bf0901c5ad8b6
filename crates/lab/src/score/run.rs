//! One simulation of a cell, with or without its background.

use std::sync::Arc;

use lull_cc::{Timestamp, lull, receive};
use lull_sim::traffic::{Demand, Flow, Tcp};
use lull_sim::{LinkId, Simulation, SourceId, Trace};

use super::cells::{Cell, Foreground, ForegroundControl, Variation};
use super::foreground::{self, STEPS, Times, at_step};
use super::network::{Bottleneck, PAYLOAD};
use super::scheme::{AblatedPart, Scheme};

/// Background packets carry the DSCP of lower effort (RFC 8622).
const LOWER_EFFORT: u8 = 1;
/// Steps between the starts of two background connections, in microseconds.
const STAGGER_MICROS: u64 = 20_000;
/// The background has returned at this part of the capacity, over [`RETURN_STEPS`].
const RETURNED: f64 = 0.8;
/// Steps over which a return is measured: a quarter of a second.
const RETURN_STEPS: usize = 5;
/// After this many steps a background counts as not having returned: 14 s.
pub(super) const RETURN_LIMIT: u64 = 14 * STEPS;

/// The measurements of one simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// Bytes of payload that the foreground received while it counts.
    pub(super) foreground: f64,
    /// Bytes of payload that the foreground received while the cell is measured.
    pub(super) foreground_measured: f64,
    /// Bytes of payload that the background received while the cell is measured.
    pub(super) background: f64,
    /// Bytes of payload that the bottleneck can carry while the cell is measured.
    pub(super) capacity: f64,
    /// Seconds until the background has the link again, after each download.
    pub(super) returns: Vec<f64>,
    /// Seconds from each request to the end of its response, ascending.
    pub(super) responses: Vec<f64>,
    /// The foreground's mean round-trip time in milliseconds while it counts, of a BBR download.
    pub(super) rtt_ms: Option<f64>,
}

/// Simulates a cell. `recorded` is the trace of a recorded link.
pub(super) fn run(
    cell: &Cell,
    (scheme, without): (Scheme, &[AblatedPart]),
    recorded: Option<&Trace>,
) -> Measured {
    let times = Times::of(cell);
    let mut bottleneck = Bottleneck::new(cell, recorded);
    let ends = bottleneck.ends;
    let foreground_ends = &bottleneck.foreground_ends;
    let foreground = foreground::add(&mut bottleneck.simulation, foreground_ends, cell);
    if cell.variation == Variation::TwoWay {
        foreground::add_reverse(&mut bottleneck.simulation, ends, cell);
    }
    let scheme_and_parts = (scheme, without);
    let background = add_background(&mut bottleneck, &foreground, cell, scheme_and_parts, &times);
    let (begin, end) = times.measured;
    let capacity = bottleneck.capacity(at_step(begin), at_step(end));
    let simulation = &mut bottleneck.simulation;
    // Only BBR has a target for it.
    let measures_rtt = cell.foreground == Foreground::Bulk(ForegroundControl::Bbr);
    if measures_rtt {
        simulation.observe_link(bottleneck.link);
    }
    let mut meter =
        Meter::new(cell, (&foreground, &background), measures_rtt.then_some(bottleneck.link));
    for step in begin..=end {
        simulation.run_until(at_step(step));
        meter.read(simulation);
    }
    let counted = |&(from, to): &(u64, u64)| {
        meter.foreground[(to - begin) as usize] - meter.foreground[(from - begin) as usize]
    };
    let capacity_per_step = capacity / (end - begin) as f64;
    Measured {
        foreground: times.counted.iter().map(counted).sum::<u64>() as f64,
        foreground_measured: span(&meter.foreground),
        background: span(&meter.background),
        capacity,
        returns: match times.has_returns && scheme != Scheme::None {
            true => returns(&meter.background, &times, capacity_per_step),
            false => Vec::new(),
        },
        responses: responses(simulation, &foreground),
        rtt_ms: measures_rtt
            .then(|| cell.network.rtt_ms as f64 + meter.mean_wait_ms(&times.counted, begin)),
    }
}

fn add_background(
    bottleneck: &mut Bottleneck,
    foreground: &[SourceId],
    cell: &Cell,
    (scheme, without): (Scheme, &[AblatedPart]),
    times: &Times,
) -> Vec<SourceId> {
    let (from, to) = bottleneck.ends;
    let parameters = Arc::new(foreground::parameters(cell));
    let mut sources = Vec::new();
    for host in 0..cell.hosts {
        let path = lull::SharedPath::default();
        let Some(controller) = scheme.host(&path, without) else { continue };
        if cell.foreground_is_local && !without.contains(&AblatedPart::HostForeground) {
            foreground.iter().for_each(|&one| bottleneck.simulation.share_host(one, &path));
        }
        let received = receive::SharedPath::default();
        for connection in 0..cell.connections {
            let tcp = Tcp {
                parameters: Arc::clone(&parameters),
                controller: controller.clone(),
                dscp: LOWER_EFFORT,
            };
            let stagger = match cell.foreground {
                // A crowd starts at once.
                Foreground::Established => 0,
                _ => (host * cell.connections + connection) as u64 * STAGGER_MICROS,
            };
            let start = Timestamp::from_micros(at_step(times.join).as_micros() + stagger);
            let flow = Flow { from, to, tcp, start, stop: None, demand: Demand::Backlogged };
            let added = bottleneck.simulation.add_flow(flow);
            let source = added.expect("a dumbbell connects its ends");
            if scheme.steers() {
                bottleneck.simulation.steer(source, &received);
            }
            sources.push(source);
        }
    }
    sources
}

/// Bytes that foreground and background have received by each step.
struct Meter<'a> {
    sources: (&'a [SourceId], &'a [SourceId]),
    has_datagrams: bool,
    foreground: Vec<u64>,
    background: Vec<u64>,
    /// The link at which the foreground's packets wait, and how many did and for how many nanoseconds by each step.
    link: Option<LinkId>,
    waits: Vec<(u64, u128)>,
}

impl<'a> Meter<'a> {
    fn new(cell: &Cell, sources: (&'a [SourceId], &'a [SourceId]), link: Option<LinkId>) -> Self {
        Meter {
            sources,
            has_datagrams: cell.foreground == Foreground::Datagrams,
            foreground: Vec::new(),
            background: Vec::new(),
            link,
            waits: Vec::new(),
        }
    }

    fn read(&mut self, simulation: &mut Simulation) {
        if let Some(link) = self.link {
            let of_foreground = simulation.delays(link).and_then(|delays| delays.class(0));
            let wait = of_foreground.map(|class| (class.packets, class.waited_nanos));
            self.waits.push(wait.unwrap_or_default());
        }
        let goodput = |sources: &[SourceId]| -> u64 {
            sources.iter().map(|&source| simulation.source(source).goodput_bytes()).sum()
        };
        let datagrams = |sources: &[SourceId]| -> u64 {
            let delays = sources.iter().filter_map(|&source| simulation.datagram_delays(source));
            // A datagram is a full packet, which would carry this much of a download.
            delays.map(|delays| delays.delays.len() * PAYLOAD).sum()
        };
        let (foreground, background) = self.sources;
        self.foreground.push(match self.has_datagrams {
            true => datagrams(foreground),
            false => goodput(foreground),
        });
        self.background.push(goodput(background));
    }

    /// How long the foreground's packets waited on average, in milliseconds; 0 without packets.
    fn mean_wait_ms(&self, counted: &[(u64, u64)], begin: u64) -> f64 {
        let (mut packets, mut nanos) = (0, 0);
        for &(from, to) in counted {
            let (first, last) =
                (self.waits[(from - begin) as usize], self.waits[(to - begin) as usize]);
            packets += last.0 - first.0;
            nanos += last.1 - first.1;
        }
        if packets == 0 { 0.0 } else { nanos as f64 / packets as f64 / 1e6 }
    }
}

/// The bytes received from the first to the last step.
fn span(bytes: &[u64]) -> f64 {
    match bytes {
        [first, .., last] => (last - first) as f64,
        _ => 0.0,
    }
}

/// Seconds until the background has the link again after each counted time.
fn returns(bytes: &[u64], times: &Times, capacity_per_step: f64) -> Vec<f64> {
    let begin = times.measured.0;
    let enough = RETURNED * capacity_per_step * RETURN_STEPS as f64;
    let has_returned = |step: u64| {
        let now = (step - begin) as usize;
        bytes.get(now).is_some_and(|&sum| (sum - bytes[now - RETURN_STEPS]) as f64 > enough)
    };
    let steps_after = |&(_, end): &(u64, u64)| {
        let found = (1..RETURN_LIMIT).find(|after| has_returned(end + after));
        found.unwrap_or(RETURN_LIMIT) as f64 / STEPS as f64
    };
    times.counted.iter().map(steps_after).collect()
}

fn responses(simulation: &Simulation, foreground: &[SourceId]) -> Vec<f64> {
    let own = simulation.transfers().iter().filter(|one| foreground.contains(&one.source));
    let mut seconds: Vec<f64> =
        own.map(|one| (one.acknowledged - one.requested).as_secs_f64()).collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}
