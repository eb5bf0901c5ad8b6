//! The quantities and times of an evaluation.

use lull_cc::Timestamp;

/// The measurements, and their times.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The beginnings of the log's slices, in ascending order. The time before the first only trains; a slice
    /// ends where the next one begins.
    pub slices: Vec<Timestamp>,
    /// Lengths of lists, from short to long.
    pub lengths: Vec<usize>,
    /// Least priorities from strict to generous, in seconds per byte ([`crate::observe::Urls::priority`]).
    pub priorities: Vec<f32>,
}

impl Plan {
    /// The plan for a log from `first` to `last`: it trains on the share `train` of the time, uses the
    /// following share `validate` for the choice, and the rest for the judgement. Lists up to 50, and
    /// priorities from a small certain page down to a large improbable object.
    pub fn split(first: Timestamp, last: Timestamp, train: f64, validate: f64) -> Self {
        let length = last.saturating_since(first);
        let at = |share: f64| first + length.mul_f64(share.clamp(0.0, 1.0));
        Plan {
            slices: vec![at(train), at(train + validate)],
            lengths: vec![1, 2, 3, 5, 10, 20, 50],
            priorities: (0..20).map(|k| 2e-4 / (1u32 << k) as f32).collect(),
        }
    }

    pub(super) fn slice(&self, at: Timestamp) -> Option<usize> {
        self.slices.partition_point(|begin| *begin <= at).checked_sub(1)
    }

    pub(super) fn ways(&self) -> usize {
        self.lengths.len() + self.priorities.len()
    }
}
