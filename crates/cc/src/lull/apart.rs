//! Whether a connection has a longer path than the others with which it shares one.
//!
//! Hosts of one network may be at different distances. To a shared path, the pairs of a farther host always meet a
//! queue, and the background leaves without a reason. While others meet none, such pairs are evidence: a queue would delay
//! others as well.

/// A connection is apart after so many pairs that took longer, over so many microseconds.
const MIN_PAIRS: u32 = 12;
const MIN_MICROS: u64 = 2_000_000;
/// Others must have met no queue in so many microseconds before the pair: a burst of others may be over soon.
const RECENT_MICROS: u64 = 600_000;
/// Such pairs differ by less than this part of what they take longer, and than jitter and so many microseconds.
const VARYING_PART: u32 = 8;
const MIN_VARIATION_MICROS: u32 = 250;

/// The evidence of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Apart {
    /// When its last pair arrived, in microseconds; 0 before the first.
    last: u64,
    /// Since when its pairs have been alike, the round-trip time of the first of them, and how many there were.
    since: u64,
    first: u32,
    pairs: u32,
}

impl Apart {
    /// A packet has met no queue.
    pub(super) fn handle_no_queue(&mut self, now: u64) {
        *self = Apart { last: now, ..Apart::default() };
    }

    /// A pair of the round-trip time `rtt` has met a queue of `queue` microseconds. Another connection has last met
    /// none at `others_at`. Returns whether the connection has a path of its own.
    pub(super) fn handle_queue(
        &mut self,
        now: u64,
        rtt: u32,
        (queue, noise): (u32, u32),
        others_at: u64,
    ) -> bool {
        let is_evidence =
            self.last > 0 && others_at > self.last && now <= others_at + RECENT_MICROS;
        self.last = now;
        if is_evidence {
            let most = (queue / VARYING_PART).max(MIN_VARIATION_MICROS + noise);
            if self.pairs == 0 || rtt.abs_diff(self.first) > most {
                (self.since, self.first, self.pairs) = (now, rtt, 0);
            }
            self.pairs = (self.pairs + 1).min(MIN_PAIRS);
        }
        self.pairs == MIN_PAIRS && now >= self.since + MIN_MICROS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When pairs 400 ms apart, with these round-trip times, show a path of their own.
    fn shown(rtts: impl Iterator<Item = u32>, others_meet_none: bool) -> Option<u64> {
        let mut apart = Apart::default();
        for (turn, rtt) in (1..).zip(rtts) {
            let now = turn * 400_000;
            let others_at = if others_meet_none { now - 100_000 } else { 0 };
            if apart.handle_queue(now, rtt, (rtt - 20_000, 0), others_at) {
                return Some(now);
            }
        }
        None
    }

    #[test]
    fn constant_delay_that_others_do_not_meet_is_a_path_apart() {
        assert_eq!(shown([50_000; 20].into_iter(), true), Some(13 * 400_000));
        assert_eq!(shown([50_000; 20].into_iter(), false), None, "a queue delays others as well");
    }

    #[test]
    fn varying_queue_and_a_pair_without_one_are_no_path_apart() {
        assert_eq!(shown((0..40).map(|turn| 50_000 + turn % 4 * 5_000), true), None);
        let mut apart = Apart::default();
        for turn in 1..30 {
            let now = turn * 400_000;
            if turn % 12 == 0 {
                apart.handle_no_queue(now);
            } else {
                assert!(!apart.handle_queue(now, 50_000, (30_000, 0), now - 100_000));
            }
        }
    }
}
