//! The counters of a link.

use hdrhistogram::Histogram;

use crate::packet::Packet;
use crate::queue::QueuedPacket;

/// Counts of a link since the beginning of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that the loss model dropped.
    pub lost: u64,
    /// Packets that the queue dropped.
    pub dropped: u64,
    /// Packets that the queue marked "congestion experienced".
    pub marked: u64,
    /// Packets that reached the far end.
    pub delivered: u64,
    /// Packets waiting now.
    pub queued: u64,
    /// Packets being sent or propagating now.
    pub in_flight: u64,
    /// Bytes waiting now.
    pub queued_bytes: u64,
    /// Bytes of packets that the link has started to send.
    pub sent_bytes: u64,
}

impl LinkCounters {
    /// Whether every packet that arrived is accounted for.
    pub const fn is_conserved(&self) -> bool {
        self.arrived == self.lost + self.dropped + self.delivered + self.queued + self.in_flight
    }

    /// The share of `nanos` nanoseconds in which a link of `bits_per_second` was busy with the data that it
    /// sent between `earlier` and this count; 1 is full use.
    pub fn utilisation(&self, earlier: &LinkCounters, bits_per_second: u64, nanos: u64) -> f64 {
        let bits = (self.sent_bytes - earlier.sent_bytes) * 8;
        bits as f64 * 1e9 / (bits_per_second as f64 * nanos as f64)
    }
}

/// The counts of the packets of one group of sources and one DSCP.
#[derive(Clone, Debug)]
pub struct ClassDelay {
    /// The group of the sources.
    pub group: u8,
    /// The codepoint.
    pub dscp: u8,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets dropped by the queue.
    pub dropped: u64,
    /// Sum of the waiting times in nanoseconds.
    pub waited_nanos: u128,
    /// Waiting times in nanoseconds, to three digits.
    pub waiting: Histogram<u64>,
}

impl ClassDelay {
    /// The mean waiting time in nanoseconds, exact; 0 without packets.
    pub fn mean_nanos(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { self.waited_nanos as f64 / self.packets as f64 }
    }
}

/// How long packets waited in a queue, by group and DSCP, in order of their first appearance.
#[derive(Clone, Debug, Default)]
pub struct ClassDelays {
    classes: Vec<ClassDelay>,
    overflows: Overflows,
}

/// Drops that count as one overflow. Senders learn of the first drop a round trip later, from three packets
/// behind it (RFC 5681 §3.2). The data that they have sent by then may be dropped as well.
#[derive(Clone, Copy, Debug, Default)]
struct Overflows {
    lasts_nanos: u64,
    /// The first drop from here on is another overflow.
    over_at: u64,
    count: u64,
}

impl Overflows {
    fn record_drop(&mut self, now: u64) {
        if now >= self.over_at {
            self.count += 1;
            self.over_at = now.saturating_add(self.lasts_nanos);
        }
    }
}

impl ClassDelays {
    /// All classes that have sent or lost a packet.
    pub fn classes(&self) -> &[ClassDelay] {
        &self.classes
    }

    /// The counts of a codepoint; if several groups use it, those of the first of them.
    pub fn class(&self, dscp: u8) -> Option<&ClassDelay> {
        self.classes.iter().find(|class| class.dscp == dscp)
    }

    /// How often the queue overflowed, for packets of any flow: each drop is a separate overflow unless the
    /// duration of one was set.
    pub fn overflows(&self) -> u64 {
        self.overflows.count
    }

    pub(super) fn set_overflow(&mut self, lasts_nanos: u64) {
        self.overflows.lasts_nanos = lasts_nanos;
    }

    fn class_mut(&mut self, packet: &Packet) -> &mut ClassDelay {
        let (group, dscp) = (packet.owner.group(), packet.dscp());
        let is_of = |class: &ClassDelay| class.dscp == dscp && class.group == group;
        // A link sees a few classes: looking through them is faster than any index.
        let at = match self.classes.iter().position(is_of) {
            Some(at) => at,
            None => {
                // Three digits is within the histogram's range; it grows automatically.
                let waiting = Histogram::new(3).expect("three digits are supported");
                self.classes.push(ClassDelay {
                    group,
                    dscp,
                    packets: 0,
                    bytes: 0,
                    dropped: 0,
                    waited_nanos: 0,
                    waiting,
                });
                self.classes.len() - 1
            }
        };
        &mut self.classes[at]
    }

    pub(super) fn record(&mut self, packet: &Packet, waited: u64) {
        let class = self.class_mut(packet);
        class.packets += 1;
        class.bytes += u64::from(packet.bytes);
        class.waited_nanos += u128::from(waited);
        // `saturating_record` would not let it grow.
        class.waiting.record(waited).expect("a histogram that grows takes every value");
    }

    pub(super) fn record_drop(&mut self, packet: &Packet, now: u64) {
        self.class_mut(packet).dropped += 1;
        self.overflows.record_drop(now);
    }
}
