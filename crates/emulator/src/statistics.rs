//! The measurements of the emulator: counts, queueing delays, time series, and its own accuracy.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hdrhistogram::{Counter, Histogram};
use lull_sim::queue::Discipline;
use lull_sim::queue::Limit;
use serde::{Deserialize, Serialize, Serializer};

use super::{Backend, Link, LinkRate, Topology};

/// A flow: the five-tuple, which also determines the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The source address of its packets.
    pub source: IpAddr,
    /// The source port; 0 for protocols without ports.
    pub source_port: u16,
    /// The destination address.
    pub destination: IpAddr,
    /// The destination port; 0 for protocols without ports.
    pub destination_port: u16,
    /// The transport protocol's number (IANA): 6 is TCP, 17 UDP.
    pub protocol: u8,
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = SocketAddr::new(self.source, self.source_port);
        let destination = SocketAddr::new(self.destination, self.destination_port);
        write!(f, "{source} > {destination} ")?;
        match self.protocol {
            6 => f.write_str("tcp"),
            17 => f.write_str("udp"),
            1 | 58 => f.write_str("icmp"),
            other => write!(f, "protocol {other}"),
        }
    }
}

impl Serialize for FlowKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Mean, percentiles and maximum of a delay, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// The 95th percentile.
    pub p95_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The largest.
    pub max_ms: f64,
}

/// Rounds to four decimals, which is more precise than any measurement here and halves the size of a record.
pub fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

impl Spread {
    /// From values in nanoseconds whose mean in milliseconds is known; none without values.
    pub fn of<C: Counter>(nanos: &Histogram<C>, mean_ms: f64) -> Option<Self> {
        let millis = |nanos: u64| nanos as f64 / 1e6;
        (!nanos.is_empty()).then(|| Spread {
            mean_ms,
            p50_ms: millis(nanos.value_at_quantile(0.50)),
            p95_ms: millis(nanos.value_at_quantile(0.95)),
            p99_ms: millis(nanos.value_at_quantile(0.99)),
            max_ms: millis(nanos.max()),
        })
    }
}

/// Packets of a flow, of a class, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Packets that the link has sent.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Their bytes after the transport header, including TCP retransmissions.
    pub payload_bytes: u64,
    /// The goodput: payload without TCP retransmissions. Everything that passes the link arrives, so these
    /// are the bytes that receivers can read.
    pub goodput_bytes: u64,
    /// Packets that the queue dropped.
    pub dropped: u64,
    /// Packets that the queue marked "congestion experienced".
    pub marked: u64,
    /// How long they waited before the link began to send them; none if none was sent.
    pub queueing_delay: Option<Spread>,
}

/// The counts of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassStatistics {
    /// The differentiated-services codepoint.
    pub dscp: u8,
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The counts of one flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowStatistics {
    /// The flow.
    pub flow: FlowKey,
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// One direction within a window of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DirectionStatistics {
    /// All packets together.
    pub all: Counts,
    /// Bytes that the link could have sent.
    pub capacity_bytes: u64,
    /// The longest queue, in bytes.
    pub longest_queue_bytes: u64,
    /// By DSCP, ascending.
    pub classes: Vec<ClassStatistics>,
    /// By flow, in order of their keys.
    pub flows: Vec<FlowStatistics>,
}

impl DirectionStatistics {
    /// The share of the link's capacity that was used, 0 to about 1.
    pub fn utilisation(&self) -> f64 {
        self.all.bytes as f64 / self.capacity_bytes.max(1) as f64
    }
}

/// Everything within a window of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// Its name: "start" until the first mark, then the mark's.
    pub name: String,
    /// When it began, in seconds since the emulator's start.
    pub start_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// From left to right.
    pub forward: DirectionStatistics,
    /// From right to left.
    pub reverse: DirectionStatistics,
    /// How much later than due packets were delivered to the receiving host.
    pub timing_error: Option<Spread>,
    /// How much later than their arrival packets entered the queue, on its clock. Packet sockets have the
    /// kernel's timestamps; the rest is packets that were found after younger ones. TUN has no timestamps: a
    /// packet counts from when it is read. It is late by the time since the thread woke up or last found
    /// nothing to read. The time of waking up is not included, and is similar to `timing_error`.
    pub arrival_error: Option<Spread>,
}

impl Window {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.end_s - self.start_s
    }
}

/// One point of a time series: an interval and its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// The interval's end, in seconds since the emulator's start.
    pub time_s: f64,
    /// Bytes waiting at the interval's end.
    pub queue_bytes: u64,
    /// The mean queueing delay of packets that left within the interval, in milliseconds; none if none left.
    pub queueing_delay_ms: Option<f64>,
    /// Packets dropped within the interval.
    pub dropped: u64,
    /// Bytes that left within the interval, by flow: its index in [`Series::flows`] and the bytes. Flows
    /// without such bytes are not listed.
    pub bytes: Vec<(u32, u64)>,
}

/// The time series of both directions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The interval in seconds.
    pub interval_s: f64,
    /// The flows that samples name by index.
    pub flows: Vec<FlowKey>,
    /// From left to right.
    pub forward: Vec<Sample>,
    /// From right to left.
    pub reverse: Vec<Sample>,
}

/// One direction of the bottleneck, with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkDescription {
    /// Bits per second; for a trace, the average.
    pub rate_bit_s: u64,
    /// The trace's name.
    pub trace: Option<String>,
    /// Propagation delay in seconds.
    pub delay_s: f64,
    /// The size of the buffer.
    pub buffer: Limit,
    /// The discipline with its parameters.
    pub discipline: Discipline,
    /// The given seed; each direction derives its own from it.
    pub seed: u64,
}

/// The topology, with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopologyDescription {
    /// Hosts on the left side.
    pub left: usize,
    /// Hosts on the right side.
    pub right: usize,
    /// Whether each right host has a link of its own.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub separate: bool,
    /// From left to right.
    pub forward: LinkDescription,
    /// From right to left.
    pub reverse: LinkDescription,
    /// How packets were captured.
    pub backend: Backend,
    /// The hosts' default congestion control.
    pub congestion_control: String,
    /// The largest packet in bytes.
    pub mtu: u32,
}

impl TopologyDescription {
    pub(super) fn new(topology: &Topology, backend: Backend, congestion_control: String) -> Self {
        let link = |link: &Link| LinkDescription {
            rate_bit_s: link.rate.mean().bits_per_second(),
            trace: match &link.rate {
                LinkRate::Fixed(_) => None,
                LinkRate::Trace(trace) => Some(trace.name().to_owned()),
            },
            delay_s: link.delay.as_secs_f64(),
            buffer: topology.limit(link),
            discipline: topology.discipline(link),
            seed: link.seed,
        };
        TopologyDescription {
            left: topology.left,
            right: topology.right,
            separate: topology.separate,
            forward: link(&topology.forward),
            reverse: link(&topology.reverse),
            backend,
            congestion_control,
            mtu: topology.mtu,
        }
    }
}

/// The whole run of an emulator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// The emulated topology.
    pub topology: TopologyDescription,
    /// From start to end.
    pub total: Window,
    /// From mark to mark.
    pub windows: Vec<Window>,
    /// The time series, if the topology enabled one.
    pub series: Option<Series>,
    /// Processor time of the emulator's thread, in seconds.
    pub cpu_s: f64,
    /// Packets that were lost between a host and the emulator because this machine was too slow. A run with
    /// any of them is invalid.
    pub overruns: u64,
    /// Packets to an unknown address, which were dropped.
    pub unroutable: u64,
}

/// A delay's distribution: values in nanoseconds, two significant digits.
#[derive(Clone, Debug)]
pub(super) struct Distribution(Histogram<u32>);

impl Default for Distribution {
    fn default() -> Self {
        let mut histogram = Histogram::new(2).expect("two significant digits are allowed");
        histogram.auto(true);
        Distribution(histogram)
    }
}

impl Distribution {
    pub(super) fn record(&mut self, delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        // A delay of more than five hundred years cannot occur.
        let _ = self.0.record(nanos);
    }

    fn merge(&mut self, other: &Distribution) {
        // Cannot fail: the histogram grows automatically.
        let _ = self.0.add(&other.0);
    }

    pub(super) fn spread(&self) -> Option<Spread> {
        Spread::of(&self.0, self.0.mean() / 1e6)
    }
}

/// Counts in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    pub(super) delay: Distribution,
}

impl Tally {
    fn merge(&mut self, other: &Tally) {
        self.counts.packets += other.counts.packets;
        self.counts.bytes += other.counts.bytes;
        self.counts.payload_bytes += other.counts.payload_bytes;
        self.counts.goodput_bytes += other.counts.goodput_bytes;
        self.counts.dropped += other.counts.dropped;
        self.counts.marked += other.counts.marked;
        self.delay.merge(&other.delay);
    }

    fn counts(&self) -> Counts {
        Counts { queueing_delay: self.delay.spread(), ..self.counts }
    }
}

/// One direction of a window in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct DirectionTally {
    pub(super) flows: BTreeMap<u32, Tally>,
    pub(super) classes: BTreeMap<u8, Tally>,
    pub(super) longest_queue: u64,
    pub(super) capacity: u64,
}

impl DirectionTally {
    /// Applies `count` to the flow's and the class's tallies.
    pub(super) fn count(&mut self, flow: u32, dscp: u8, count: impl Fn(&mut Tally)) {
        count(self.flows.entry(flow).or_default());
        count(self.classes.entry(dscp).or_default());
    }

    fn merge(&mut self, other: &DirectionTally) {
        for (flow, tally) in &other.flows {
            self.flows.entry(*flow).or_default().merge(tally);
        }
        for (dscp, tally) in &other.classes {
            self.classes.entry(*dscp).or_default().merge(tally);
        }
        self.longest_queue = self.longest_queue.max(other.longest_queue);
        self.capacity += other.capacity;
    }

    fn statistics(&self, keys: &[FlowKey]) -> DirectionStatistics {
        let mut all = Tally::default();
        for class in self.classes.values() {
            all.merge(class);
        }
        let mut flows: Vec<_> = self
            .flows
            .iter()
            .map(|(flow, tally)| FlowStatistics {
                flow: keys[*flow as usize],
                counts: tally.counts(),
            })
            .collect();
        flows.sort_by_key(|statistics| statistics.flow);
        DirectionStatistics {
            all: all.counts(),
            capacity_bytes: self.capacity,
            longest_queue_bytes: self.longest_queue,
            classes: self
                .classes
                .iter()
                .map(|(dscp, tally)| ClassStatistics { dscp: *dscp, counts: tally.counts() })
                .collect(),
            flows,
        }
    }
}

/// A window in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowTally {
    pub(super) name: String,
    pub(super) start_s: f64,
    pub(super) end_s: f64,
    /// Forward, reverse.
    pub(super) directions: [DirectionTally; 2],
    pub(super) timing: Distribution,
    pub(super) arrival: Distribution,
}

impl WindowTally {
    pub(super) fn merge(&mut self, other: &WindowTally) {
        for (mine, its) in self.directions.iter_mut().zip(&other.directions) {
            mine.merge(its);
        }
        self.timing.merge(&other.timing);
        self.arrival.merge(&other.arrival);
        self.start_s = self.start_s.min(other.start_s);
        self.end_s = self.end_s.max(other.end_s);
    }

    pub(super) fn window(&self, keys: &[FlowKey]) -> Window {
        Window {
            name: self.name.clone(),
            start_s: self.start_s,
            end_s: self.end_s,
            forward: self.directions[0].statistics(keys),
            reverse: self.directions[1].statistics(keys),
            timing_error: self.timing.spread(),
            arrival_error: self.arrival.spread(),
        }
    }
}
