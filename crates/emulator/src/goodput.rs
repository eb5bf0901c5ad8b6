//! Detects which bytes of a TCP flow pass for the first time.

use std::collections::BTreeMap;

/// Holes that are stored for a flow; beyond that, retransmissions count as seen. A slow start that overshoots
/// leaves one for each second packet of its last window: 8300 at 100 Mbit/s, 200 ms and a buffer of four
/// bandwidth-delay products.
const MAX_HOLES: usize = 1 << 16;

/// The position of a segment in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// RFC 9293 §3.1: the sequence number of its first byte.
    pub(super) sequence: u32,
    /// Whether it opens a connection: it then takes a sequence number, and earlier data between the same
    /// ports belongs to another flow.
    pub(super) is_first: bool,
}

/// The passed bytes of one direction of a connection: all up to the highest one, except holes.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    /// The end of the highest byte, in a numbering that does not wrap; none before the first segment.
    end: Option<u64>,
    /// Begin and end of missing ranges below it.
    holes: BTreeMap<u64, u64>,
}

impl Passed {
    /// Records a segment of `bytes` bytes; returns how many of them pass for the first time.
    pub(super) fn pass(&mut self, segment: Segment, bytes: u32) -> u32 {
        if segment.is_first {
            *self = Passed::default();
        }
        let first = segment.sequence.wrapping_add(u32::from(segment.is_first));
        // RFC 9293 §3.4: of two numbers that are less than half the space apart, one is before the other.
        // Begins high enough that no number is below 0.
        let end = self.end.unwrap_or((1 << 32) + u64::from(first));
        let distance = i64::from(first.wrapping_sub(end as u32) as i32);
        let from = end.saturating_add_signed(distance);
        let to = from + u64::from(bytes);
        if from > end {
            self.holes.insert(end, from);
            if self.holes.len() > MAX_HOLES {
                // Data that fills the oldest one counts as a retransmission.
                self.holes.pop_first();
            }
        }
        let above = to.saturating_sub(end.max(from));
        self.end = Some(end.max(to));
        (above + self.fill(from, to.min(end))) as u32
    }

    /// Fills holes from `from` to `to`; returns the number of bytes.
    fn fill(&mut self, from: u64, to: u64) -> u64 {
        if from >= to {
            return 0;
        }
        let mut filled = 0;
        // From the last one that begins before `to`, backwards.
        while let Some((&begin, &end)) = self.holes.range(..to).next_back() {
            if end <= from {
                break;
            }
            self.holes.remove(&begin);
            filled += end.min(to) - begin.max(from);
            if end > to {
                self.holes.insert(to, end);
            }
            if begin < from {
                self.holes.insert(begin, from);
                break;
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(sequence: u32) -> Segment {
        Segment { sequence, is_first: false }
    }

    #[test]
    fn retransmission_adds_no_goodput_and_filled_hole_does() {
        let mut passed = Passed::default();
        for (sequence, bytes, new) in [
            (1000, 100, 100),
            (1100, 100, 100),
            // All of it again, half of it again, and some of both.
            (1100, 100, 0),
            (1000, 150, 0),
            (1150, 100, 50),
            // 1250 to 1400 was dropped; the hole is filled from its middle.
            (1400, 100, 100),
            (1300, 50, 50),
            (1300, 50, 0),
            (1200, 250, 100),
            (1250, 150, 0),
            // An acknowledgement has no new bytes.
            (1500, 0, 0),
        ] {
            assert_eq!(passed.pass(data(sequence), bytes), new, "{sequence}+{bytes}");
        }
        assert!(passed.holes.is_empty(), "{:?}", passed.holes);
    }

    #[test]
    fn sequence_numbers_may_wrap_and_ports_be_reused() {
        let mut passed = Passed::default();
        let first = Segment { sequence: u32::MAX - 50, is_first: true };
        assert_eq!(passed.pass(first, 0), 0);
        assert_eq!(passed.pass(data(u32::MAX - 49), 100), 100);
        assert_eq!(passed.pass(data(50), 10), 10);
        assert_eq!(passed.pass(data(u32::MAX - 49), 100), 0);
        // A new connection with any initial number.
        assert_eq!(passed.pass(Segment { sequence: 7, is_first: true }, 0), 0);
        assert_eq!(passed.pass(data(8), 10), 10);
    }

    #[test]
    fn old_holes_are_dropped_to_bound_memory() {
        let mut passed = Passed::default();
        let count = 2 * MAX_HOLES as u32;
        for packet in 0..count {
            assert_eq!(passed.pass(data(packet * 20), 10), 10);
        }
        assert_eq!(passed.holes.len(), MAX_HOLES);
        assert_eq!(passed.pass(data(10), 10), 0, "the oldest");
        assert_eq!(passed.pass(data((count - 2) * 20 + 10), 10), 10, "the newest");
    }

    /// Compared with a set of bytes.
    #[test]
    fn random_segments_count_each_byte_once() {
        let mut passed = Passed::default();
        let mut seen = vec![false; 4000];
        let mut state = 12_345u32;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        passed.pass(data(0), 0);
        for _ in 0..5000 {
            let (from, bytes) = (random(3900), random(100));
            let range = &mut seen[from as usize..(from + bytes) as usize];
            let new = range.iter().filter(|seen| !**seen).count();
            range.fill(true);
            assert_eq!(passed.pass(data(from), bytes) as usize, new, "{from}+{bytes}");
        }
    }
}
