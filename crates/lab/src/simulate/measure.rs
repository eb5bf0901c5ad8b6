//! The measurements of a simulation, phase by phase.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;
use lull_cc::{Rate, Timestamp};
use lull_sim::link::{ClassDelay, ClassDelays, LinkCounters};
use lull_sim::simulation::{DatagramDelays, SourceCounters, Transfer};
use lull_sim::tcp::SenderCounters;
use lull_sim::{LinkId, SourceId};

use super::build::{ActivePhases, Stage};
use super::seconds;
use crate::measure::{rounded_spread, series};
use crate::plan::{Group, Kind, Phase, Scenario};
use crate::record::{GroupRecord, Latency, PhaseRecord, SeriesRecord, megabits, rounded};
use lull_emulator::Spread;
use lull_emulator::traffic::Work;

/// How often the state is sampled: the interval of time series, as in the emulator.
const INTERVAL: Duration = Duration::from_millis(100);

/// All observations of a run.
pub(super) struct RunObservations {
    phases: Vec<PhaseObservations>,
    transfers: Vec<Transfer>,
    end: Timestamp,
}

/// The observations of a phase.
struct PhaseObservations {
    begin: Timestamp,
    /// When the measurement began and ended.
    from: Timestamp,
    to: Timestamp,
    before: Snapshot,
    after: Snapshot,
    /// For each group, sums over its connections at each sample during the measurement.
    states: Vec<State>,
    /// For each group, bytes that it sent over the bottleneck in each interval of the phase.
    bytes: Vec<Vec<u64>>,
    /// Mean waiting time in each interval, in milliseconds.
    queueing_ms: Vec<f64>,
    /// The times of the samples during the measurement.
    looks: Vec<Timestamp>,
    /// For each group of documents, the number of requests from one sample to the next.
    asked: Vec<Vec<u64>>,
}

/// All counts at one time.
struct Snapshot {
    links: Vec<LinkCounters>,
    /// By bottleneck, from left to right and back.
    forward: Vec<ClassDelays>,
    backward: Vec<ClassDelays>,
    /// By group, those of its source in the stay of that time.
    sources: Vec<Vec<SourceCounters>>,
    datagrams: Vec<Vec<DatagramDelays>>,
}

/// Sums over connections and samples.
#[derive(Clone, Copy, Default)]
struct State {
    window: f64,
    windows: u64,
    smoothed_rtt: f64,
    rtts: u64,
}

/// The stay of a group in a phase.
fn period(periods: &[ActivePhases], phase: usize) -> Option<&ActivePhases> {
    periods.iter().find(|period| (period.phases.0..=period.phases.1).contains(&phase))
}

/// A group's sources in a phase.
fn sources_in(periods: &[ActivePhases], phase: usize) -> &[SourceId] {
    period(periods, phase).map_or(&[], |period| &period.sources)
}

impl Snapshot {
    fn take(stage: &mut Stage, phase: usize) -> Self {
        let simulation = &mut stage.simulation;
        let mut delays = |links: &[LinkId]| -> Vec<ClassDelays> {
            let all = links.iter().map(|&link| simulation.delays(link).cloned());
            all.map(Option::unwrap_or_default).collect()
        };
        let (forward, backward) = (delays(&stage.forward), delays(&stage.backward));
        Snapshot {
            links: stage.forward.iter().map(|&link| simulation.link(link)).collect(),
            forward,
            backward,
            sources: stage
                .periods
                .iter()
                .map(|periods| {
                    sources_in(periods, phase).iter().map(|id| simulation.source(*id)).collect()
                })
                .collect(),
            datagrams: stage
                .periods
                .iter()
                .map(|periods| {
                    let all = sources_in(periods, phase).iter();
                    all.filter_map(|id| simulation.datagram_delays(*id).cloned()).collect()
                })
                .collect(),
        }
    }
}

impl RunObservations {
    /// Runs the phases.
    pub(super) fn run(stage: &mut Stage, scenario: &Scenario) -> Self {
        let mut phases = Vec::new();
        let mut begin = Timestamp::ZERO;
        for (number, phase) in scenario.phases.iter().enumerate() {
            phases.push(PhaseObservations::see(stage, scenario, number, phase, begin));
            begin += phase.duration();
        }
        RunObservations { phases, transfers: stage.simulation.take_transfers(), end: begin }
    }

    /// The phases' records.
    pub(super) fn phases(
        &self,
        stage: &Stage,
        scenario: &Scenario,
        keep_series: Option<Duration>,
    ) -> Vec<PhaseRecord> {
        let mut records = Vec::new();
        for (number, phase) in scenario.phases.iter().enumerate() {
            records.push(self.phase(stage, scenario, number, phase, keep_series));
        }
        records
    }

    fn phase(
        &self,
        stage: &Stage,
        scenario: &Scenario,
        number: usize,
        phase: &Phase,
        keep_series: Option<Duration>,
    ) -> PhaseRecord {
        let observed = &self.phases[number];
        let (before, after) = (&observed.before, &observed.after);
        let mut groups = BTreeMap::new();
        let mut rates = BTreeMap::new();
        for (at, group) in scenario.groups.iter().enumerate() {
            if let Some(period) = period(&stage.periods[at], number) {
                let record = self.group(stage, group, at, observed, period);
                groups.insert(group.name.clone(), record);
                rates.insert(group.name.clone(), observed.bytes[at].clone());
            }
        }
        let rate = stage.rate.bits_per_second();
        let nanos = (observed.to - observed.from).as_nanos() as u64;
        let waited = Waited::of(&before.forward, &after.forward, None);
        let overflows =
            |links: &[ClassDelays]| links.iter().map(ClassDelays::overflows).sum::<u64>();
        PhaseRecord {
            name: phase.name.clone(),
            title: phase.title.clone(),
            begin_s: rounded(seconds(observed.begin)),
            measured_from_s: rounded(seconds(observed.from)),
            measured_to_s: rounded(seconds(observed.to)),
            utilisation: Some(rounded(utilisation(&before.links, &after.links, rate, nanos))),
            queueing: waited.spread(),
            overflows: Some(overflows(&after.forward) - overflows(&before.forward)),
            groups,
            series: keep_series.map(|keep| {
                let interval_s = INTERVAL.as_secs_f64();
                let factor = (keep.as_secs_f64() / interval_s).round().max(1.0) as usize;
                SeriesRecord {
                    interval_s: interval_s * factor as f64,
                    mbit: series::rates(&rates, interval_s, factor),
                    queueing_ms: series::coarser(&observed.queueing_ms, factor),
                }
            }),
            ..PhaseRecord::default()
        }
    }

    fn group(
        &self,
        stage: &Stage,
        group: &Group,
        at: usize,
        observed: &PhaseObservations,
        period: &ActivePhases,
    ) -> GroupRecord {
        let (before, after) = (&observed.before, &observed.after);
        let length = seconds(observed.to) - seconds(observed.from);
        let pairs = || before.sources[at].iter().zip(&after.sources[at]);
        let sum = |count: fn(&SourceCounters) -> u64| -> u64 {
            pairs().map(|(before, after)| count(after) - count(before)).sum()
        };
        let number = Some(at as u8);
        let on = |links: Range<usize>, is_forward: bool| match is_forward {
            true => Waited::of(&before.forward[links.clone()], &after.forward[links], number),
            false => Waited::of(&before.backward[links.clone()], &after.backward[links], number),
        };
        let is_forward = !stage.is_backward(at);
        let (crossed, last) = (stage.crossed(at), stage.last_crossed(at));
        // The last bottleneck decides which data got through; drops and waiting times are those of all
        // bottlenecks.
        let (data, through) = (on(crossed.clone(), is_forward), on(last..last + 1, is_forward));
        let wait_ms = |is_forward: bool| -> f64 {
            let means = crossed.clone().map(|link| on(link..link + 1, is_forward).mean_ms());
            means.map(|mean| mean.unwrap_or(0.0)).sum()
        };
        let transferred = sum(SourceCounters::goodput_bytes);
        let state = observed.states[at];
        let mean = |sum: f64, count: u64| (count > 0).then(|| rounded(sum / count as f64));
        let mut record = GroupRecord {
            title: group.title.clone(),
            control: group.control.clone(),
            count: group.count,
            goodput_mbit: megabits(transferred, length),
            sent_mbit: megabits(through.bytes, length),
            packets: through.packets,
            dropped: data.dropped,
            retransmitted: sum(|counters| counters.sent.retransmissions),
            timeouts: Some(sum(|counters| counters.sent.timeouts)),
            cuts: Some(sum(|counters| {
                let SenderCounters { recoveries, timeouts, marks, .. } = counters.sent;
                recoveries + timeouts + marks
            })),
            transferred_bytes: Some(transferred),
            waiting: data.spread(),
            demand: stage.demands[at],
            window: mean(state.window, state.windows),
            srtt_ms: mean(state.smoothed_rtt * 1e3, state.rtts),
            ..GroupRecord::default()
        };
        record.rtt_ms = data.mean_ms().map(|_| {
            let path = stage.round_trips[at].as_secs_f64() * 1e3;
            rounded(path + wait_ms(is_forward) + wait_ms(!is_forward))
        });
        self.fill_by_kind(&mut record, group, at, observed, period);
        fill_times(&mut record, stage.rate, &observed.bytes[at]);
        record
    }

    /// Fills in fields that only some kinds of traffic have.
    fn fill_by_kind(
        &self,
        record: &mut GroupRecord,
        group: &Group,
        at: usize,
        observed: &PhaseObservations,
        period: &ActivePhases,
    ) {
        let (before, after) = (&observed.before, &observed.after);
        match &group.kind {
            Kind::Work(Work::Bulk { .. }) | Kind::Messages { .. } | Kind::Datagrams(_) => {
                let pairs = before.sources[at].iter().zip(&after.sources[at]);
                let each =
                    pairs.map(|(before, after)| after.goodput_bytes() - before.goodput_bytes());
                record.divide(each.collect(), seconds(observed.to) - seconds(observed.from));
            }
            Kind::Work(Work::Requests { .. }) | Kind::Documents(_) | Kind::Flows(_) => {
                record.latency = self.latency(period, at, observed);
            }
            Kind::Work(Work::Command { .. } | Work::Probes(_)) => {}
        }
        if let Kind::Datagrams(_) = group.kind {
            (record.timeouts, record.cuts) = (None, None);
            record.delay = one_way(&before.datagrams[at], &after.datagrams[at]);
        }
    }

    /// The times of a group's documents that were requested while a phase was measured (Nice §4.1: from the
    /// first packet sent to the acknowledgement of the last), also if they were complete later. Leaving out
    /// the others would leave out the slowest ones. They count with the time from the sample after their
    /// request to the end of the run.
    fn latency(
        &self,
        period: &ActivePhases,
        group: usize,
        observed: &PhaseObservations,
    ) -> Option<Latency> {
        let own = || {
            self.transfers.iter().filter(|transfer| {
                period.sources.contains(&transfer.source)
                    && transfer.requested >= observed.from
                    && transfer.requested < observed.to
            })
        };
        let answered = own().map(|own| own.latency_nanos() as f64 / 1e6).collect();
        let mut open = observed.asked[group].clone();
        for transfer in own() {
            let look = observed.looks.partition_point(|look| *look < transfer.requested);
            open[look] -= 1;
        }
        let unanswered = observed.looks.iter().zip(&open).flat_map(|(look, open)| {
            let waited_ms = (self.end - *look).as_nanos() as f64 / 1e6;
            std::iter::repeat_n(waited_ms, *open as usize)
        });
        Latency::with_unanswered(answered, unanswered.collect(), 0)
    }
}

/// When a group reached its share of a link of this rate, and its own goodput.
fn fill_times(record: &mut GroupRecord, rate: Rate, bytes: &[u64]) {
    let time_to = |level: f64| {
        let time = series::time_to(bytes, INTERVAL.as_secs_f64(), level);
        time.map(rounded)
    };
    record.time_to_80_s = time_to(0.8 * rate.bytes_per_second() as f64);
    if record.sent_mbit > 0.0 {
        record.time_to_90_s = time_to(0.9 * (record.sent_mbit * 1e6 / 8.0));
    }
}

impl PhaseObservations {
    fn see(
        stage: &mut Stage,
        scenario: &Scenario,
        number: usize,
        phase: &Phase,
        begin: Timestamp,
    ) -> Self {
        let groups = scenario.groups.len();
        let mut progress = Progress {
            number,
            sent: sent(stage, groups),
            waited: waited(stage),
            states: vec![State::default(); groups],
            bytes: vec![Vec::new(); groups],
            queueing_ms: Vec::new(),
            written: written(stage, scenario, number),
            looks: Vec::new(),
            asked: vec![Vec::new(); groups],
        };
        let (from, to) = (begin + phase.settle.value.0, begin + phase.duration());
        progress.pass(stage, scenario, from);
        progress.states.fill(State::default());
        progress.looks.clear();
        progress.asked.fill(Vec::new());
        let before = Snapshot::take(stage, number);
        progress.pass(stage, scenario, to);
        let after = Snapshot::take(stage, number);
        let Progress { states, bytes, queueing_ms, looks, asked, .. } = progress;
        PhaseObservations {
            begin,
            from,
            to,
            before,
            after,
            states,
            bytes,
            queueing_ms,
            looks,
            asked,
        }
    }
}

/// A phase that is running.
struct Progress {
    number: usize,
    /// Bytes that each group had sent over the bottleneck at the last sample.
    sent: Vec<u64>,
    /// Packets, and how long they had waited, at the last sample.
    waited: (u64, u128),
    states: Vec<State>,
    bytes: Vec<Vec<u64>>,
    queueing_ms: Vec<f64>,
    /// Documents that each group had requested at the last sample.
    written: Vec<u64>,
    looks: Vec<Timestamp>,
    asked: Vec<Vec<u64>>,
}

impl Progress {
    /// Advances the time until just before `end`, with a sample after each interval. Events at a phase's end,
    /// such as the first request of the next one, belong to the next one.
    fn pass(&mut self, stage: &mut Stage, scenario: &Scenario, end: Timestamp) {
        let end = Timestamp::from_nanos(end.as_nanos().saturating_sub(1));
        while stage.simulation.now() < end {
            let next = stage.simulation.now() + INTERVAL;
            stage.simulation.run_until(next.min(end));
            self.sample(stage, scenario);
        }
    }

    fn sample(&mut self, stage: &mut Stage, scenario: &Scenario) {
        let sent = sent(stage, self.bytes.len());
        for ((series, now), before) in self.bytes.iter_mut().zip(&sent).zip(&self.sent) {
            series.push(now - before);
        }
        self.sent = sent;
        let (packets, nanos) = waited(stage);
        let (packets_before, nanos_before) = self.waited;
        let mean = match packets - packets_before {
            // If no packet left, as in the interval before.
            0 => self.queueing_ms.last().copied().unwrap_or(0.0),
            packets => (nanos - nanos_before) as f64 / 1e6 / packets as f64,
        };
        self.queueing_ms.push(mean);
        self.waited = (packets, nanos);
        let written = written(stage, scenario, self.number);
        for ((asked, now), before) in self.asked.iter_mut().zip(&written).zip(&self.written) {
            asked.push(now - before);
        }
        self.written = written;
        self.looks.push(stage.simulation.now());
        for (state, periods) in self.states.iter_mut().zip(&stage.periods) {
            for sender in
                sources_in(periods, self.number).iter().flat_map(|id| stage.simulation.senders(*id))
            {
                state.window += sender.controller().window().as_f64();
                state.windows += 1;
                if let Some(rtt) = sender.smoothed_rtt() {
                    state.smoothed_rtt += rtt.as_secs_f64();
                    state.rtts += 1;
                }
            }
        }
    }
}

/// Documents that each group has requested in its stay of a phase. Groups without requests are left out.
fn written(stage: &Stage, scenario: &Scenario, phase: usize) -> Vec<u64> {
    let of = |(group, periods): (&Group, &Vec<ActivePhases>)| match group.kind {
        Kind::Work(Work::Requests { .. }) | Kind::Documents(_) | Kind::Flows(_) => {
            let sources = sources_in(periods, phase).iter();
            sources.map(|id| stage.simulation.source(*id).written).sum()
        }
        _ => 0,
    };
    scenario.groups.iter().zip(&stage.periods).map(of).collect()
}

/// The utilization of the bottlenecks: the part of their rate that was used; the mean of several.
fn utilisation(before: &[LinkCounters], after: &[LinkCounters], rate: u64, nanos: u64) -> f64 {
    let all =
        before.iter().zip(after).map(|(before, after)| after.utilisation(before, rate, nanos));
    all.sum::<f64>() / after.len() as f64
}

/// Bytes that each group has sent over the last bottleneck that its data cross. This is the higher count of
/// the two directions, of its data or of its acknowledgements.
fn sent(stage: &mut Stage, groups: usize) -> Vec<u64> {
    let mut most = vec![0; groups];
    for at in 0..stage.forward.len() {
        for link in [stage.forward[at], stage.backward[at]] {
            let mut sums = vec![0; groups];
            for class in stage.simulation.delays(link).map_or(&[][..], ClassDelays::classes) {
                sums[usize::from(class.group)] += class.bytes;
            }
            for (group, sum) in sums.into_iter().enumerate() {
                if stage.last_crossed(group) == at {
                    most[group] = sum.max(most[group]);
                }
            }
        }
    }
    most
}

/// Packets that have left the queues from left to right, and how long they waited in nanoseconds.
fn waited(stage: &mut Stage) -> (u64, u128) {
    let mut sum = (0, 0);
    for &link in &stage.forward {
        for class in stage.simulation.delays(link).map_or(&[][..], ClassDelays::classes) {
            sum = (sum.0 + class.packets, sum.1 + class.waited_nanos);
        }
    }
    sum
}

/// The counts of links between two times, for one group or all.
struct Waited {
    packets: u64,
    bytes: u64,
    dropped: u64,
    nanos: u128,
    times: Histogram<u64>,
}

impl Waited {
    fn of(before: &[ClassDelays], after: &[ClassDelays], group: Option<u8>) -> Self {
        let is_of = |class: &&ClassDelay| group.is_none_or(|group| group == class.group);
        let mut sum = Waited { packets: 0, bytes: 0, dropped: 0, nanos: 0, times: no_times() };
        for class in after.iter().flat_map(ClassDelays::classes).filter(is_of) {
            sum.packets += class.packets;
            sum.bytes += class.bytes;
            sum.dropped += class.dropped;
            sum.nanos += class.waited_nanos;
            add(&mut sum.times, &class.waiting);
        }
        for class in before.iter().flat_map(ClassDelays::classes).filter(is_of) {
            sum.packets -= class.packets;
            sum.bytes -= class.bytes;
            sum.dropped -= class.dropped;
            sum.nanos -= class.waited_nanos;
            subtract(&mut sum.times, &class.waiting);
        }
        sum
    }

    fn mean_ms(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.nanos as f64 / 1e6 / self.packets as f64)
    }

    fn spread(&self) -> Option<Spread> {
        self.mean_ms().and_then(|mean_ms| rounded_spread(Spread::of(&self.times, mean_ms)))
    }
}

/// The delays of datagrams that arrived between two times.
fn one_way(before: &[DatagramDelays], after: &[DatagramDelays]) -> Option<Spread> {
    let mut times = no_times();
    let mut sum = 0;
    for delays in after {
        add(&mut times, &delays.delays);
        sum += delays.sum_nanos;
    }
    for delays in before {
        subtract(&mut times, &delays.delays);
        sum -= delays.sum_nanos;
    }
    rounded_spread(Spread::of(&times, sum as f64 / 1e6 / times.len() as f64))
}

/// An empty histogram, in nanoseconds and with the precision of the simulator's own.
fn no_times() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are supported")
}

/// Adds later counts to the same times.
fn add(times: &mut Histogram<u64>, others: &Histogram<u64>) {
    times.add(others).expect("a histogram that grows takes every value");
}

/// Subtracts earlier counts.
fn subtract(times: &mut Histogram<u64>, before: &Histogram<u64>) {
    times.subtract(before).expect("what was counted before is among it");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_cover_the_time_since_the_last_look() {
        let mut times: Histogram<u64> = Histogram::new(3).unwrap();
        for millis in 1..=100 {
            times.record(millis * 10_000_000).unwrap();
        }
        let before = times.clone();
        for millis in 1..=200 {
            times.record(millis * 1_000_000).unwrap();
        }
        let mut since = no_times();
        add(&mut since, &times);
        subtract(&mut since, &before);
        let spread = Spread::of(&since, 100.5).unwrap();
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.002;
        assert!(near(spread.p50_ms, 100.0) && near(spread.p95_ms, 190.0), "{spread:?}");
        assert!(near(spread.max_ms, 200.0) && spread.mean_ms == 100.5, "{spread:?}");
    }
}
