//! Aggregated acknowledgements: how much must be in flight beyond the BDP so that sending does not stop while
//! the receiver, or a link like Wi-Fi, delays them.

use super::{BANDWIDTH_SHIFT, LIMIT_PACKETS};

/// Rounds that each of the two slots covers.
const ROUNDS: u32 = 5;
/// At most the data that the bandwidth carries in 100 ms.
const LIMIT_MICROS: u64 = 100_000;
/// An epoch ends after this many packets, at any bandwidth.
const EPOCH_PACKETS: u64 = 1 << 20;

/// How many packets more were acknowledged than the bandwidth explains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Aggregation {
    epoch_start: u64,
    epoch_acked: u64,
    /// The most in this and in the last five rounds.
    extra: [u64; 2],
    rounds: u32,
}

impl Aggregation {
    /// Takes an acknowledgement of `acked` packets. Bandwidth is in packets per microsecond with
    /// [`BANDWIDTH_SHIFT`] fractional bits, the window in packets.
    pub(super) fn update(
        &mut self,
        now: u64,
        acked: u32,
        bandwidth: u64,
        window: u64,
        starts_round: bool,
    ) {
        if starts_round {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.extra = [0, self.extra[0]];
            }
        }
        let acked = u64::from(acked);
        let mut expected = carried(bandwidth, now.saturating_sub(self.epoch_start));
        // An epoch lasts while acknowledgements are ahead of the bandwidth.
        if self.epoch_acked <= expected || self.epoch_acked + acked >= EPOCH_PACKETS {
            self.restart(now);
            expected = 0;
        }
        self.epoch_acked = (self.epoch_acked + acked).min(EPOCH_PACKETS - 1);
        let extra = self.epoch_acked.saturating_sub(expected).min(window);
        self.extra[0] = self.extra[0].max(extra);
    }

    /// Begins a new epoch.
    pub(super) fn restart(&mut self, now: u64) {
        self.epoch_start = now;
        self.epoch_acked = 0;
    }

    /// Packets to have in flight beyond the BDP.
    pub(super) fn packets(&self, bandwidth: u64) -> u64 {
        self.extra[0].max(self.extra[1]).min(carried(bandwidth, LIMIT_MICROS)).min(LIMIT_PACKETS)
    }
}

/// The packets that a bandwidth carries in a time, rounded down.
fn carried(bandwidth: u64, micros: u64) -> u64 {
    let packets = (u128::from(bandwidth) * u128::from(micros)) >> BANDWIDTH_SHIFT;
    u64::try_from(packets).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One packet a millisecond.
    const BANDWIDTH: u64 = (1 << BANDWIDTH_SHIFT) / 1_000 + 1;

    #[test]
    fn target_is_one_packet_when_acks_come_at_the_bandwidth() {
        let mut aggregation = Aggregation::default();
        for i in 1..100 {
            aggregation.update(i * 1_000, 1, BANDWIDTH, 50, i % 10 == 0);
        }
        assert_eq!(aggregation.packets(BANDWIDTH), 1);
    }

    #[test]
    fn bunch_is_remembered_for_five_to_ten_rounds() {
        let mut aggregation = Aggregation::default();
        aggregation.update(1_000, 20, BANDWIDTH, 50, false);
        for round in 1..=10 {
            assert_eq!(aggregation.packets(BANDWIDTH), 20, "round {round}");
            aggregation.update(round * 100_000, 1, BANDWIDTH, 50, true);
        }
        assert_eq!(aggregation.packets(BANDWIDTH), 1);
    }

    #[test]
    fn burst_is_limited_to_window_and_100_ms_of_bandwidth() {
        let mut aggregation = Aggregation::default();
        aggregation.update(1_000, 5_000, BANDWIDTH, 300, false);
        assert_eq!(aggregation.packets(u64::MAX), 300);
        assert_eq!(aggregation.packets(BANDWIDTH), 100);
    }
}
