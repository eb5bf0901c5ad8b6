//! The bandwidth that BBR has recently seen.

/// Rounds that a sample counts for after its own: a cycle of gains, so that the result of one probe is known
/// until the next, and two rounds.
const ROUNDS: u32 = 10;
const SLOTS: usize = ROUNDS as usize + 1;

/// The highest of the samples of the last rounds. Samples expire only when a new one arrives, so that a
/// connection without samples keeps its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MaxFilter {
    /// The highest sample of each round, by its number modulo the slots.
    slots: [u64; SLOTS],
    newest: u32,
}

impl MaxFilter {
    pub(super) fn update(&mut self, round: u32, sample: u64) {
        let passed = round.wrapping_sub(self.newest).min(SLOTS as u32);
        for i in 0..passed {
            self.slots[round.wrapping_sub(i) as usize % SLOTS] = 0;
        }
        self.newest = round;
        let slot = &mut self.slots[round as usize % SLOTS];
        *slot = (*slot).max(sample);
    }

    pub(super) fn max(&self) -> u64 {
        self.slots.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_sample_lasts_its_round_and_ten_more() {
        let mut filter = MaxFilter::default();
        filter.update(0, 100);
        for round in 1..=10 {
            filter.update(round, 50 + u64::from(round));
            assert_eq!(filter.max(), 100, "round {round}");
        }
        filter.update(11, 20);
        assert_eq!(filter.max(), 60);
    }

    #[test]
    fn no_sample_is_forgotten_without_a_newer_one() {
        let mut filter = MaxFilter::default();
        filter.update(3, 100);
        assert_eq!(filter.max(), 100);
        filter.update(1_000, 7);
        assert_eq!(filter.max(), 7);
    }
}
