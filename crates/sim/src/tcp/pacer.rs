//! Spreading packets over time, one by one or in pairs.

use lull_cc::{Pacing, Rate};

/// When the next packet may leave.
///
/// The packets of a burst of `n` leave one spacing apart, and the next burst begins `n` packet times after
/// the beginning of this one. With the rate and the pairs of `Nice` below two packets, this is Nice §2.3: two
/// packets, and the next two 2/W smoothed round-trip times later.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// When the next burst may begin, in nanoseconds.
    next: u64,
    /// Packets that may still leave in the current burst.
    left: u32,
    /// When the next of them may leave.
    within: u64,
}

impl Pacer {
    /// When the next packet may leave.
    pub(super) fn due(&self) -> u64 {
        if self.left > 0 { self.within } else { self.next }
    }

    /// Packets of the current burst that have not left.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// A packet leaves at `now`.
    pub(super) fn send(&mut self, now: u64, packet_bytes: u32, pacing: Option<Pacing>) {
        let is_paced = |pacing: &Pacing| pacing.rate != Rate::default();
        let Some(Pacing { rate, burst, spacing_micros }) = pacing.filter(is_paced) else {
            *self = Pacer::default();
            return;
        };
        // The same as `Rate::time_for`, in 64 bits.
        let gap = (u64::from(packet_bytes) * 8_000_000_000).div_ceil(rate.bits_per_second());
        if self.left > 0 && now < self.next {
            self.left -= 1;
            self.next += gap;
        } else {
            // Unused time gives no credit.
            self.left = burst.saturating_sub(1);
            self.next = now + gap;
        }
        self.within = now + u64::from(spacing_micros) * 1_000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacing(burst: u32) -> Option<Pacing> {
        // A thousand bytes in 1 ms.
        Some(Pacing { rate: Rate::from_bits_per_second(8_000_000), burst, spacing_micros: 0 })
    }

    #[test]
    fn single_packets_leave_one_gap_apart() {
        let mut pacer = Pacer::default();
        pacer.send(500, 1_000, pacing(1));
        assert_eq!(pacer.due(), 1_000_500);
        pacer.send(1_000_500, 1_000, pacing(1));
        assert_eq!(pacer.due(), 2_000_500);
    }

    /// TCP Nice §2.3.
    #[test]
    fn next_pair_is_due_two_gaps_after_the_first_packet() {
        let mut pacer = Pacer::default();
        pacer.send(0, 1_000, pacing(2));
        assert_eq!(pacer.due(), 0, "the second packet leaves with the first");
        pacer.send(0, 1_000, pacing(2));
        assert_eq!(pacer.due(), 2_000_000);
    }

    #[test]
    fn pair_spacing_does_not_delay_the_next_pair() {
        let mut pacer = Pacer::default();
        let spaced = pacing(2).map(|pacing| Pacing { spacing_micros: 300, ..pacing });
        pacer.send(0, 1_000, spaced);
        assert_eq!((pacer.left(), pacer.due()), (1, 300_000));
        pacer.send(300_000, 1_000, spaced);
        assert_eq!((pacer.left(), pacer.due()), (0, 2_000_000));
    }

    #[test]
    fn elapsed_time_gives_no_credit() {
        let mut pacer = Pacer::default();
        pacer.send(0, 1_000, pacing(1));
        pacer.send(50_000_000, 1_000, pacing(1));
        assert_eq!(pacer.due(), 51_000_000);
    }

    #[test]
    fn packet_left_from_a_burst_keeps_its_time() {
        let mut pacer = Pacer::default();
        pacer.send(0, 1_000, pacing(2));
        pacer.send(9_000_000, 1_000, pacing(2));
        assert_eq!(pacer.due(), 9_000_000, "this one began a burst of its own");
        pacer.send(9_000_000, 1_000, pacing(2));
        assert_eq!(pacer.due(), 11_000_000);
    }

    #[test]
    fn unpaced_sender_never_waits() {
        let mut pacer = Pacer::default();
        pacer.send(0, 1_000, pacing(1));
        pacer.send(1_000_000, 1_000, None);
        assert_eq!(pacer.due(), 0);
    }
}
