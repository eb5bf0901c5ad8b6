//! Records: the results that every run writes. All tables and plots are made from them.
//!
//! A record is a file of JSON lines. The first is a header, and each run that continues the file adds
//! another. Then comes a line for each cell as it ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod file;
mod header;
mod quantities;
mod transfers;

pub(crate) use file::place;
pub use file::{RecordError, RecordFile, Recorder};
pub use header::Header;
pub use lull_emulator::provenance::Program;
pub(crate) use lull_emulator::provenance::cores;
pub(crate) use lull_emulator::rounded;
pub(crate) use quantities::QUANTITIES_BY_GROUP;
pub use transfers::{ActionRecord, Transfers};

use lull_emulator::{Backend, Spread};

/// A line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The origin of the following lines.
    Header(Header),
    /// A cell with results.
    Cell(Box<CellRecord>),
    /// A cell without results.
    Failed(Failed),
}

/// A cell that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// Its name within the plan.
    pub key: String,
    /// SHA-256 of the cell, as in [`CellRecord`].
    pub hash: String,
    /// The reason.
    pub error: String,
}

/// The measurements of a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// Its name within the plan.
    pub key: String,
    /// SHA-256 of everything that decides the cell's behaviour.
    pub hash: String,
    /// The values of the sweep.
    pub values: Map<String, Value>,
    /// Counted from 1.
    pub repetition: u32,
    /// The seed of its random numbers.
    pub seed: u64,
    /// From its start to its end, in seconds. A simulated cell has no such time: see `cost`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub duration_s: f64,
    /// The bottleneck, if there is one.
    pub link: Option<LinkRecord>,
    /// Its phases, in order.
    pub phases: Vec<PhaseRecord>,
    /// Processor time of the whole cell, traffic and emulator, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cpu_s: f64,
    /// Processor time of the emulator alone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub emulator_cpu_s: f64,
    /// How often it was run again because the emulator was late. The run with the least delay is kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub again: u32,
    /// The load average over one minute when it ended, which shows other activity on the machine.
    #[serde(default, skip_serializing_if = "is_default")]
    pub load: f64,
    /// The simulator's counts, if it was simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<SimulationRecord>,
    /// The cost of the simulation: everything in a simulated cell's record that another run may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostRecord>,
    /// The commit of the program that measured it, if it differs from that of the header above it.
    #[serde(skip)]
    pub commit: Option<String>,
}

/// How late one packet in a hundred may be delivered, in milliseconds.
const LATE_MS: f64 = 1.0;

/// A cell's key without its repetition.
pub(crate) fn combination(key: &str) -> &str {
    key.rsplit_once("repetition=").map_or(key, |(before, _)| before.trim_end())
}

impl CellRecord {
    /// Whether it is a run of the cell called `key` with `seed`. Its repetition number at that time does not
    /// matter: it is counted from the first seed of a run.
    pub(crate) fn is_run_of(&self, key: &str, seed: u64) -> bool {
        self.seed == seed && combination(&self.key) == combination(key)
    }

    /// The same as the cell called `key` of a run that begins with another seed, in which it is another
    /// repetition.
    pub(crate) fn as_cell(&self, key: &str, repetition: u32) -> CellRecord {
        CellRecord { key: key.to_owned(), repetition, ..self.clone() }
    }

    /// How late the emulator delivered one packet in a hundred, in its worst phase, in milliseconds.
    pub fn late_ms(&self) -> f64 {
        let late = self.phases.iter().filter_map(|phase| phase.timing_error);
        late.map(|late| late.p99_ms).fold(0.0, f64::max)
    }

    /// Whether the machine was busy, so that the cell's results are in doubt: the emulator delivered one
    /// packet in a hundred more than a millisecond late.
    pub fn is_disturbed(&self) -> bool {
        self.late_ms() > LATE_MS
    }
}

/// Counts of a simulated cell, the same on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulationRecord {
    /// Simulated events.
    pub events: u64,
    /// Data packets and datagrams that reached their destination.
    pub delivered_packets: u64,
}

/// The cost of a simulated cell on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostRecord {
    /// Seconds from the beginning of the simulation to its end.
    pub wall_s: f64,
    /// Processor time of these, in seconds.
    pub cpu_s: f64,
    /// Memory of connections with their links, paths and packets in flight at the end, in bytes per open
    /// connection.
    pub memory_bytes_per_flow: f64,
}

/// Whether a value is the default, and need not be written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The bottleneck.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// Rate in Mbit/s.
    pub rate_mbit: f64,
    /// Propagation delay there and back, in milliseconds.
    pub rtt_ms: f64,
    /// Bandwidth-delay product in packets of 1500 bytes.
    pub bdp: f64,
    /// The size of the buffer, in packets of 1500 bytes.
    pub buffer: f64,
    /// The queue discipline.
    pub queue: String,
    /// How the emulator captured packets, which decides what is known of their arrival. None for a simulated
    /// link, and in records from before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<Backend>,
}

/// The measurements of a phase, after it had settled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Its name.
    pub name: String,
    /// Its title in tables and plots, if that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When it began, in seconds since the emulator's start.
    pub begin_s: f64,
    /// When measuring began.
    pub measured_from_s: f64,
    /// When measuring ended.
    pub measured_to_s: f64,
    /// The part of the link's capacity that was used, 0 to 1, from left to right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// How long packets waited at the bottleneck, from left to right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<Spread>,
    /// How often the bottlenecks' queues overflowed from left to right, for packets of any flow. Drops within
    /// two round trips of the first, with a full queue, are one overflow. Simulated only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflows: Option<u64>,
    /// How much later than due the emulator delivered packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing_error: Option<Spread>,
    /// How much later than their arrival packets entered the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival_error: Option<Spread>,
    /// Processor time during the measurement.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cpu: CpuRecord,
    /// How often it had been measured before, while a hypervisor took processor time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub again: u32,
    /// The groups that were active.
    pub groups: BTreeMap<String, GroupRecord>,
    /// Time series, if the plan keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesRecord>,
}

/// Processor time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// Of the cell's process, in user and kernel mode. It includes interrupts during the process, on kernels
    /// that do not count interrupts separately.
    pub process_s: f64,
    /// Processor time that is counted for no task: interrupts while nothing ran, or all interrupts where the
    /// kernel counts them separately. Only of cells that run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts_s: Option<f64>,
    /// Of all other tasks of the machine. Only of cells that run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_s: Option<f64>,
    /// Time that a hypervisor took from the processors of the cell (`steal` of proc(5)), for other machines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stolen_s: f64,
    /// The part of the time, 0 to 1, in which the cell's processors were not idle, for any task. A packet
    /// that arrives at such a time has to wait. It may wait at the hosts as well, which the emulator cannot
    /// see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<f64>,
}

/// Bytes over this many seconds, in Mbit/s.
pub(crate) fn megabits(bytes: u64, seconds: f64) -> f64 {
    rounded(bytes as f64 * 8.0 / 1e6 / seconds)
}

/// Time series of a whole phase, including its settling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesRecord {
    /// The interval in seconds; the first one begins with the phase.
    pub interval_s: f64,
    /// Mbit/s on the link, headers included, by group.
    pub mbit: BTreeMap<String, Vec<f64>>,
    /// Mean queueing delay in milliseconds.
    pub queueing_ms: Vec<f64>,
}

/// The most connections whose goodputs a record lists one by one: those of a crowd would fill most of it.
pub const MAX_FLOWS: usize = 16;

/// Jain's index (Jain, Chiu, Hawe 1984); none if nothing was received.
fn fairness(flows: &[u64]) -> Option<f64> {
    let sum: f64 = flows.iter().map(|bytes| *bytes as f64).sum();
    let squares: f64 = flows.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (flows.len() as f64 * squares))
}

/// The measurements of a group in a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Its title in tables and plots, if that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its configured congestion control.
    pub control: String,
    /// Connections, clients or programs.
    pub count: u32,
    /// Payload that its receivers read, in Mbit/s.
    pub goodput_mbit: f64,
    /// Data that passed the link, headers included, in Mbit/s.
    pub sent_mbit: f64,
    /// Packets that passed the link.
    pub packets: u64,
    /// Packets that the queue dropped.
    pub dropped: u64,
    /// Propagation delay and mean queueing delay of its packets and their acknowledgements, in
    /// milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Mean of its senders' smoothed round-trip times in the kernel (`TCP_INFO`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srtt_ms: Option<f64>,
    /// Mean of its senders' congestion windows in the kernel, in packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<f64>,
    /// Retransmitted segments.
    pub retransmitted: u64,
    /// Jain's index of its connections' goodputs, 1/n to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// Each connection's goodput in Mbit/s, ascending. None for more than [`MAX_FLOWS`], where the fairness
    /// is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows_mbit: Vec<f64>,
    /// The response times of its requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Seconds from the beginning of the phase until it had had 80 % of the link for two seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_to_80_s: Option<f64>,
    /// Seconds from the beginning of the phase until it had 90 % of its goodput during the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_to_90_s: Option<f64>,
    /// Its transfers, if it is one of probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfers: Option<Transfers>,
    /// Seconds from the start of its programs to the end of the last one, in the phase in which that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_s: Option<f64>,
    /// The report of its program, in the phase in which it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<serde_json::Value>,
    /// Bytes of payload that arrived. This and all following fields are simulated only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transferred_bytes: Option<u64>,
    /// How long its packets waited at the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Spread>,
    /// The one-way delay of its datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Spread>,
    /// Retransmission timeouts of its senders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<u64>,
    /// Its reactions to congestion: recoveries begun, timeouts, and reductions for marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuts: Option<u64>,
    /// The demand of the log section that it replays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<DemandRecord>,
}

/// The demand of a log section, as it is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DemandRecord {
    /// Documents.
    pub requests: u64,
    /// Clients.
    pub clients: u64,
    /// Bytes of all documents.
    pub bytes: u64,
    /// Their mean rate in Mbit/s (Nice §4.2: all bytes over the duration).
    pub mbit: f64,
    /// The mean number of active clients. A client is active from the first request of a visit to its last
    /// one. A visit ends after five minutes of the log's clock without a request.
    pub active_clients: f64,
}

/// Response times: from the first packet of a new connection, or from the request on an existing one, to the
/// last byte received.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Requests made and answered during the measurement.
    pub count: u64,
    /// Requests made during the measurement and not answered by its end. For simulated ones, not answered by
    /// the end of the run.
    pub unanswered: u64,
    /// Requests whose connections failed.
    pub failed: u64,
    /// The mean, in milliseconds. In a simulation, this and the following values include unanswered requests,
    /// with the time until the end of the run.
    pub mean_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// The 95th percentile.
    pub p95_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl GroupRecord {
    /// Records how the connections' payload was divided, in bytes over this many seconds.
    pub(crate) fn divide(&mut self, mut flows: Vec<u64>, seconds: f64) {
        flows.sort_unstable();
        self.fairness = fairness(&flows).map(rounded);
        if flows.len() <= MAX_FLOWS {
            self.flows_mbit = flows.iter().map(|bytes| megabits(*bytes, seconds)).collect();
        }
    }
}

impl Latency {
    /// From the times of answered requests in milliseconds, with nearest-rank percentiles; none without
    /// requests.
    pub(crate) fn of(answered_ms: Vec<f64>, unanswered: u64, failed: u64) -> Option<Self> {
        let latency = Latency::with_unanswered(answered_ms, Vec::new(), failed);
        latency.map(|latency| Latency { unanswered, ..latency })
    }

    /// From the times of answered and of unanswered requests in milliseconds; none without requests.
    pub(crate) fn with_unanswered(
        answered_ms: Vec<f64>,
        unanswered_ms: Vec<f64>,
        failed: u64,
    ) -> Option<Self> {
        let (answered, unanswered) = (answered_ms.len() as u64, unanswered_ms.len() as u64);
        let mut all = [answered_ms, unanswered_ms].concat();
        all.sort_by(f64::total_cmp);
        let count = all.len();
        let longest = *all.last()?;
        let quantile = |share: f64| {
            let rank = (share * count as f64).ceil() as usize;
            rounded(all[rank.clamp(1, count) - 1])
        };
        Some(Latency {
            count: answered,
            unanswered,
            failed,
            mean_ms: rounded(all.iter().sum::<f64>() / count as f64),
            p50_ms: quantile(0.50),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            max_ms: rounded(longest),
        })
    }
}

impl CellRecord {
    /// All measurements, without the cost of simulating. For a simulated cell they are the same on every
    /// machine, byte by byte when written.
    #[must_use]
    pub fn measured(&self) -> CellRecord {
        CellRecord { cost: None, ..self.clone() }
    }

    /// The phase called `name`.
    pub fn phase(&self, name: &str) -> Option<&PhaseRecord> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

#[cfg(test)]
mod tests;
