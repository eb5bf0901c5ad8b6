//! The counters of a simulation.

use core::ops::AddAssign;

use hdrhistogram::Histogram;
use lull_cc::{Timestamp, Window};

use crate::link::LinkCounters;
use crate::tcp::{ReceiverCounters, SenderCounters};
use crate::topology::LinkId;

/// A source of traffic of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub(super) u32);

/// Counts of a source of traffic since the beginning of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// The counters of its senders.
    pub sent: SenderCounters,
    /// The counters of its receivers.
    pub received: ReceiverCounters,
    /// Connections opened.
    pub opened: u64,
    /// Connections whose end was acknowledged.
    pub finished: u64,
    /// Messages that were written, or requested.
    pub written: u64,
    /// Messages that were acknowledged to their ends.
    pub completed: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams that arrived.
    pub datagrams_received: u64,
    /// Bytes of the datagrams that arrived.
    pub datagram_bytes: u64,
}

impl SourceCounters {
    /// Bytes that arrived for the first time: payload of segments, and datagrams.
    pub const fn goodput_bytes(&self) -> u64 {
        self.received.bytes + self.datagram_bytes
    }
}

impl AddAssign<&SenderCounters> for SenderCounters {
    fn add_assign(&mut self, other: &SenderCounters) {
        self.segments += other.segments;
        self.retransmissions += other.retransmissions;
        self.acknowledged_bytes += other.acknowledged_bytes;
        self.losses += other.losses;
        self.recoveries += other.recoveries;
        self.timeouts += other.timeouts;
        self.marks += other.marks;
    }
}

impl AddAssign<&ReceiverCounters> for ReceiverCounters {
    fn add_assign(&mut self, other: &ReceiverCounters) {
        self.segments += other.segments;
        self.bytes += other.bytes;
        self.duplicates += other.duplicates;
        self.marked += other.marked;
    }
}

/// One-way delays of the datagrams of a source, from sending to arrival.
#[derive(Clone, Debug)]
pub struct DatagramDelays {
    /// Their sum in nanoseconds.
    pub sum_nanos: u128,
    /// All of them in nanoseconds, to three digits.
    pub delays: Histogram<u64>,
}

impl Default for DatagramDelays {
    fn default() -> Self {
        let delays = Histogram::new(3).expect("three digits are supported");
        DatagramDelays { sum_nanos: 0, delays }
    }
}

impl DatagramDelays {
    /// The mean in nanoseconds, exact; 0 without datagrams.
    pub fn mean_nanos(&self) -> f64 {
        match self.delays.len() {
            0 => 0.0,
            count => self.sum_nanos as f64 / count as f64,
        }
    }

    pub(super) fn record(&mut self, nanos: u64) {
        self.sum_nanos += u128::from(nanos);
        // `saturating_record` would not let it grow.
        self.delays.record(nanos).expect("a histogram that grows takes every value");
    }
}

/// A message that has arrived completely, as the sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The source that it belongs to.
    pub source: SourceId,
    /// The client that had requested it; 0 for a single connection.
    pub client: u32,
    /// Its length.
    pub bytes: u64,
    /// When it was requested, or written.
    pub requested: Timestamp,
    /// When its first segment was sent.
    pub first_sent: Timestamp,
    /// When the acknowledgement of its last segment arrived.
    pub acknowledged: Timestamp,
}

impl Transfer {
    /// The latency of Nice §4.1 in nanoseconds: from the first segment sent to the acknowledgement
    /// of the last one.
    pub fn latency_nanos(&self) -> u64 {
        (self.acknowledged - self.first_sent).as_nanos() as u64
    }
}

/// All packets of a simulation, by location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conservation {
    /// Packets that endpoints gave to the network.
    pub sent: u64,
    /// Packets that the network gave to endpoints.
    pub received: u64,
    /// Packets that queues dropped.
    pub dropped: u64,
    /// Packets that loss models dropped.
    pub lost: u64,
    /// Packets that wait in queues.
    pub queued: u64,
    /// Packets being sent or propagating.
    pub in_flight: u64,
}

impl Conservation {
    /// Whether no packet was created or has vanished: sent = received + dropped + lost + queued + in flight.
    pub const fn holds(&self) -> bool {
        self.sent == self.received + self.dropped + self.lost + self.queued + self.in_flight
    }

    pub(super) fn add(&mut self, link: &LinkCounters) {
        self.dropped += link.dropped;
        self.lost += link.lost;
        self.queued += link.queued;
        self.in_flight += link.in_flight;
    }
}

/// The state of a source at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSample {
    /// The source.
    pub source: SourceId,
    /// Bytes that have arrived so far.
    pub goodput_bytes: u64,
    /// Sum of the windows of its open connections.
    pub window: Window,
    /// Segments in flight of its open connections.
    pub in_flight: u32,
    /// Connections open.
    pub open: u32,
}

/// The state of a link at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSample {
    /// The link.
    pub link: LinkId,
    /// Its counts so far, and its queue.
    pub counters: LinkCounters,
}

/// The state of all sources and observed links at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The time.
    pub at: Timestamp,
    /// Sources, in the order in which they were added.
    pub sources: Vec<SourceSample>,
    /// Observed links, in the order in which observation began.
    pub links: Vec<LinkSample>,
}
