//! The queue that a UDP upload would have at a link of the allowed rate.

use crate::{Bytes, Timestamp};

/// The level of a queue is kept in bytes times a microsecond's part of a second, so that no division is needed.
const MICROS: u64 = 1_000_000;
/// The longest time that the queue drains for at once. It keeps the product with the rate below 64 bits.
const MAX_DRAIN_MICROS: u64 = MICROS;
/// Rates above this are cut: 2^34 bytes per second.
const RATE_LIMIT: u64 = 1 << 34;
/// Numbers of bytes above this are cut.
const BYTES_LIMIT: u64 = 1 << 40;

/// The allowance of a virtual queue. `bpf/virtual_queue_types.h` mirrors it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// When it was measured, in microseconds; 0: never.
    pub written: u64,
    /// Bytes that the path may hold.
    pub limit: u64,
    /// Bytes per second that leave the path.
    pub rate: u64,
    /// Bytes of [`VirtualQueue::passed`] that the path had delivered at that time; `None` if that is not known.
    pub delivered: Option<u64>,
}

impl Allowance {
    /// Measurements are used for this long, in microseconds.
    pub const FRESH_MICROS: u64 = 2_000_000;
    /// The rate without measurements: 1 Mbit/s.
    pub const UNKNOWN_RATE: u64 = 125_000;
    /// The limit without measurements: ten packets, as the initial window of QUIC (RFC 9002 §7.2).
    pub const UNKNOWN_LIMIT: u64 = 15_000;

    /// Whether its measurements are recent.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        let age = now.as_micros().saturating_sub(self.written);
        self.written > 0 && age <= Self::FRESH_MICROS
    }

    /// The rate in bytes per second, and the limit in bytes.
    fn in_force(&self, now: Timestamp) -> (u64, u64) {
        match self.is_fresh(now) {
            true => (self.rate.min(RATE_LIMIT), self.limit.min(BYTES_LIMIT)),
            false => (Self::UNKNOWN_RATE, Self::UNKNOWN_LIMIT),
        }
    }
}

/// A packet that is about to leave; with segmentation offload several at once, which have one fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Length with all headers from IP on.
    pub bytes: u64,
    /// The sender supports ECN: its ECN field is ECT(0), ECT(1) or CE (RFC 3168 §5).
    pub is_ecn_capable: bool,
}

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves as it is.
    Pass = 0,
    /// It leaves with the mark Congestion Experienced.
    Mark = 1,
    /// It is dropped.
    Drop = 2,
}

/// A model of the packets that a path holds: it fills with each packet that passes and drains at the allowed rate.
/// Measurements correct it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtualQueue {
    /// Bytes times [`MICROS`].
    level: u64,
    /// When the level was computed, in microseconds.
    updated: u64,
    /// [`Allowance::written`] of the last correction.
    corrected: u64,
    passed: u64,
}

impl VirtualQueue {
    /// Bytes in the queue at the last packet.
    pub fn level(&self) -> Bytes {
        Bytes(self.level / MICROS)
    }

    /// Bytes that have passed so far.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// All of its state, for the comparison with the mirror in C: level, time, last correction and bytes passed.
    pub fn state(&self) -> [u64; 4] {
        [self.level, self.updated, self.corrected, self.passed]
    }

    fn drain(&mut self, now: u64, rate: u64) {
        let elapsed = now.saturating_sub(self.updated).min(MAX_DRAIN_MICROS);
        self.level = self.level.saturating_sub(rate * elapsed);
        self.updated = self.updated.max(now);
    }

    /// Sets the level to what the path holds by measurement, once for each.
    fn correct(&mut self, now: u64, rate: u64, allowance: &Allowance) {
        let Some(delivered) = allowance.delivered else { return };
        if allowance.written <= self.corrected {
            return;
        }
        self.corrected = allowance.written;
        let held = self.passed.saturating_sub(delivered).min(BYTES_LIMIT) * MICROS;
        let elapsed = now.saturating_sub(allowance.written).min(MAX_DRAIN_MICROS);
        self.level = held.saturating_sub(rate * elapsed);
    }

    /// Decides on a packet. An empty queue takes any packet, so that even the largest one makes progress. A queue above
    /// the limit marks packets, if their sender knows marks, up to a quarter more: it takes a round-trip time to slow down,
    /// in which slow start doubles its rate.
    pub fn admit(&mut self, now: Timestamp, packet: Packet, allowance: &Allowance) -> Verdict {
        let (rate, limit) = allowance.in_force(now);
        let limit = limit * MICROS;
        let now_micros = now.as_micros();
        self.drain(now_micros, rate);
        if allowance.is_fresh(now) {
            self.correct(now_micros, rate, allowance);
        }
        let bytes = packet.bytes.min(BYTES_LIMIT);
        let filled = self.level + bytes * MICROS;
        let verdict = if self.level == 0 || filled <= limit {
            Verdict::Pass
        } else if packet.is_ecn_capable && filled <= limit + limit / 4 {
            Verdict::Mark
        } else {
            return Verdict::Drop;
        };
        self.level = filled;
        self.passed += bytes;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Packet = Packet { bytes: 1_000, is_ecn_capable: false };

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn allowance(written: u64) -> Allowance {
        Allowance { written, limit: 3_000, rate: 1_000_000, delivered: None }
    }

    fn verdicts(queue: &mut VirtualQueue, now: u64, packet: Packet, times: u32) -> Vec<Verdict> {
        (0..times).map(|_| queue.admit(at(now), packet, &allowance(1))).collect()
    }

    #[test]
    fn queue_drops_above_its_limit_and_drains_at_its_rate() {
        use Verdict::{Drop, Pass};
        let mut queue = VirtualQueue::default();
        assert_eq!(verdicts(&mut queue, 10, PACKET, 5), [Pass, Pass, Pass, Drop, Drop]);
        assert_eq!(verdicts(&mut queue, 1_010, PACKET, 2), [Pass, Drop]);
        assert_eq!((queue.level(), queue.passed()), (Bytes(3_000), 4_000));
    }

    #[test]
    fn ecn_capable_packets_are_marked_up_to_a_quarter_more() {
        use Verdict::{Drop, Mark, Pass};
        let packet = Packet { bytes: 250, is_ecn_capable: true };
        let found = verdicts(&mut VirtualQueue::default(), 10, packet, 16);
        assert_eq!(found[..12], [Pass; 12]);
        assert_eq!(found[12..], [Mark, Mark, Mark, Drop]);
    }

    #[test]
    fn empty_queue_takes_a_packet_above_its_limit() {
        let large = Packet { bytes: 60_000, ..PACKET };
        let mut queue = VirtualQueue::default();
        assert_eq!(verdicts(&mut queue, 10, large, 2), [Verdict::Pass, Verdict::Drop]);
        assert_eq!(verdicts(&mut queue, 60_009, large, 1), [Verdict::Drop]);
        assert_eq!(verdicts(&mut queue, 60_010, large, 1), [Verdict::Pass]);
    }

    #[test]
    fn measurement_replaces_the_level_once() {
        let mut queue = VirtualQueue::default();
        verdicts(&mut queue, 10, PACKET, 3);
        let measured = Allowance { delivered: Some(2_000), ..allowance(500) };
        assert_eq!(queue.admit(at(510), PACKET, &measured), Verdict::Pass);
        assert_eq!(queue.level(), Bytes(1_990), "1000 bytes less 10 microseconds, and the packet");
        assert_eq!(queue.admit(at(510), PACKET, &measured), Verdict::Pass);
        assert_eq!(queue.level(), Bytes(2_990));
    }

    #[test]
    fn old_measurements_leave_a_megabit_per_second() {
        let mut queue = VirtualQueue::default();
        let now = 1 + Allowance::FRESH_MICROS;
        let found = verdicts(&mut queue, now + 1, PACKET, 20);
        assert_eq!(found.iter().filter(|&&it| it == Verdict::Pass).count(), 15);
        let found = verdicts(&mut queue, now + 40_001, PACKET, 20);
        assert_eq!(found.iter().filter(|&&it| it == Verdict::Pass).count(), 5);
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let mut queue = VirtualQueue::default();
        let (all, late) = (u64::MAX, u64::MAX / 1_000);
        for (now, delivered) in [(1, Some(all)), (late, Some(0)), (5, None), (late, Some(1))] {
            let allowance = Allowance { written: now.max(1), limit: all, rate: all, delivered };
            for is_ecn_capable in [false, true] {
                let packet = Packet { bytes: all >> 20, is_ecn_capable };
                queue.admit(at(now), packet, &allowance);
            }
        }
    }
}
