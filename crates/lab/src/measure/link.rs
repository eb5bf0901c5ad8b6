//! The emulator's measurements of a cell.

use std::collections::BTreeMap;

use lull_sim::queue::Limit;

use super::cell::{CellObservations, ObservedPhase};
use super::owners::{Owners, ends_of};
use super::series;
use crate::record::{GroupRecord, LinkRecord, PhaseRecord, SeriesRecord, rounded};
use lull_emulator::traffic::Work;
use lull_emulator::{
    Counts, DirectionStatistics, FlowKey, FlowStatistics, Record, Sample, Series, Spread, Window,
};

/// Packets in the plans' formulas: full-sized ones.
const PACKET: f64 = 1500.0;

/// Sums over some flows of one direction.
#[derive(Default)]
struct Sum {
    packets: u64,
    bytes: u64,
    goodput_bytes: u64,
    dropped: u64,
    delay_ms: f64,
}

impl Sum {
    fn of<'a>(flows: impl Iterator<Item = &'a FlowStatistics>) -> Self {
        let mut sum = Sum::default();
        for flow in flows {
            let Counts { packets, bytes, goodput_bytes, dropped, queueing_delay, .. } = flow.counts;
            sum.packets += packets;
            sum.bytes += bytes;
            sum.goodput_bytes += goodput_bytes;
            sum.dropped += dropped;
            sum.delay_ms += queueing_delay.map_or(0.0, |delay| delay.mean_ms) * packets as f64;
        }
        sum
    }

    fn mean_delay_ms(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.delay_ms / self.packets as f64)
    }
}

/// The emulator's record, with the known properties of its flows.
pub(super) struct View<'a> {
    observed: &'a CellObservations,
    record: &'a Record,
    owners: Owners,
    pub(super) link: LinkRecord,
}

/// The samples of both directions in a range of time.
struct SampleRange<'a> {
    series: &'a Series,
    forward: &'a [Sample],
    reverse: &'a [Sample],
}

/// All of a spread's values rounded.
pub(crate) fn rounded_spread(spread: Option<Spread>) -> Option<Spread> {
    spread.map(|Spread { mean_ms, p50_ms, p95_ms, p99_ms, max_ms }| Spread {
        mean_ms: rounded(mean_ms),
        p50_ms: rounded(p50_ms),
        p95_ms: rounded(p95_ms),
        p99_ms: rounded(p99_ms),
        max_ms: rounded(max_ms),
    })
}

impl<'a> View<'a> {
    pub(super) fn new(observed: &'a CellObservations, record: &'a Record) -> Self {
        let topology = &record.topology;
        let rate = topology.forward.rate_bit_s as f64;
        let rtt_s = topology.forward.delay_s + topology.reverse.delay_s;
        let link = LinkRecord {
            rate_mbit: rate / 1e6,
            rtt_ms: rtt_s * 1e3,
            bdp: rate / 8.0 * rtt_s / PACKET,
            buffer: match topology.forward.buffer {
                Limit::Bytes(bytes) => bytes as f64 / PACKET,
                Limit::Packets(packets) => packets as f64,
            },
            queue: topology.forward.discipline.name().to_owned(),
            backend: Some(topology.backend),
        };
        let mut owners = Owners::new(&observed.groups, &observed.hosts);
        for phase in &observed.phases {
            for name in [&phase.settling, &phase.measured] {
                if let Some(window) = CellObservations::window(record, name) {
                    owners.learn(window, &phase.after.1, &phase.active);
                }
            }
        }
        View { observed, record, owners, link }
    }

    pub(super) fn phase(&self, phase: &ObservedPhase) -> Option<PhaseRecord> {
        let settling = CellObservations::window(self.record, &phase.settling)?;
        let measured = CellObservations::window(self.record, &phase.measured)?;
        let stretch = self.record.series.as_ref().map(|series| {
            let stretch = |samples| {
                series::within(samples, series.interval_s, settling.start_s, measured.end_s)
            };
            let (forward, reverse) = (stretch(&series.forward), stretch(&series.reverse));
            SampleRange { series, forward, reverse }
        });
        let mut groups = BTreeMap::new();
        let mut bytes = BTreeMap::new();
        for &number in &phase.active {
            let name = self.observed.groups[number].name.clone();
            let mut record = self.group(number, phase, measured);
            if let Some(stretch) = &stretch {
                let own = self.bytes(number, stretch);
                self.fill_times(&mut record, &own, stretch.series.interval_s);
                bytes.insert(name.clone(), own);
            }
            groups.insert(name, record);
        }
        Some(PhaseRecord {
            begin_s: rounded(settling.start_s),
            measured_from_s: rounded(measured.start_s),
            measured_to_s: rounded(measured.end_s),
            utilisation: Some(rounded(measured.forward.utilisation())),
            queueing: rounded_spread(measured.forward.all.queueing_delay),
            timing_error: rounded_spread(measured.timing_error),
            arrival_error: rounded_spread(measured.arrival_error),
            groups,
            series: self.observed.keep_series.zip(stretch).map(|(keep, stretch)| {
                let interval_s = stretch.series.interval_s;
                let factor = (keep.as_secs_f64() / interval_s).round().max(1.0) as usize;
                SeriesRecord {
                    interval_s: interval_s * factor as f64,
                    mbit: series::rates(&bytes, interval_s, factor),
                    queueing_ms: series::coarser(&series::queueing(stretch.forward), factor),
                }
            }),
            ..self.observed.bare_phase(phase)
        })
    }

    /// A group's bytes in either direction, sample by sample.
    fn bytes(&self, number: usize, stretch: &SampleRange<'_>) -> Vec<u64> {
        let is_of = |flow: &FlowKey| self.owners.is_of(number, ends_of(flow));
        let forward = series::bytes_of(stretch.forward, &stretch.series.flows, is_of);
        let reverse = series::bytes_of(stretch.reverse, &stretch.series.flows, is_of);
        forward.iter().zip(&reverse).map(|(a, b)| a + b).collect()
    }

    /// When the group reached its share.
    fn fill_times(&self, record: &mut GroupRecord, bytes: &[u64], interval_s: f64) {
        let bytes_per_second = |megabits: f64| megabits * 1e6 / 8.0;
        let link = bytes_per_second(self.link.rate_mbit);
        record.time_to_80_s = series::time_to(bytes, interval_s, 0.8 * link).map(rounded);
        let own = bytes_per_second(record.sent_mbit);
        if own > 0.0 {
            record.time_to_90_s = series::time_to(bytes, interval_s, 0.9 * own).map(rounded);
        }
    }

    fn group(&self, number: usize, phase: &ObservedPhase, window: &Window) -> GroupRecord {
        let sum = |direction: &DirectionStatistics, is_data: bool| {
            Sum::of(direction.flows.iter().filter(|statistics| {
                let (source, destination) = ends_of(&statistics.flow);
                let ends = if is_data { (source, destination) } else { (destination, source) };
                self.owners.is_of(number, ends)
            }))
        };
        // Data and acknowledgements have opposite directions, which the hosts decide.
        let forward = sum(&window.forward, true);
        let reverse = sum(&window.reverse, true);
        let (data, acknowledgements) = if forward.packets >= reverse.packets {
            (forward, sum(&window.reverse, false))
        } else {
            (reverse, sum(&window.forward, false))
        };
        let seconds = window.seconds();
        let megabits = |bytes: u64| rounded(bytes as f64 * 8.0 / 1e6 / seconds);
        let mut record = self.observed.bare_group(number, phase);
        record.sent_mbit = megabits(data.bytes);
        record.packets = data.packets;
        record.dropped = data.dropped;
        record.rtt_ms = data.mean_delay_ms().map(|delay| {
            rounded(self.link.rtt_ms + delay + acknowledgements.mean_delay_ms().unwrap_or(0.0))
        });
        if let Some(Work::Command { .. }) = self.observed.groups[number].kind.work() {
            // The bytes that a program reads are not seen; those that passed the link are.
            record.goodput_mbit = megabits(data.goodput_bytes);
        }
        record
    }
}
