//! How many distinct visitors there were, without storing them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits: the error is below 1 % up to 50,000 visitors.
const BITS: u64 = 1 << 16;

/// Linear counting (Whang et al. 1990): each visitor sets one bit, and the bits that are not set give the number.
#[derive(Debug)]
pub(super) struct Distinct(Box<[AtomicU64]>);

impl Default for Distinct {
    fn default() -> Self {
        Distinct((0..BITS / 64).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Distinct {
    /// A visitor came, by its hash.
    pub(super) fn record(&self, hash: u64) {
        let bit = hash % BITS;
        let (word, mask) = (&self.0[(bit / 64) as usize], 1 << (bit % 64));
        // Nearly always it is set already, and a load is cheaper than a store.
        if word.load(Ordering::Relaxed) & mask == 0 {
            word.fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// The number of visitors since the last call.
    pub(super) fn take(&self) -> u64 {
        let set: u32 = self.0.iter().map(|word| word.swap(0, Ordering::Relaxed).count_ones()).sum();
        let (bits, free) = (BITS as f64, (BITS - u64::from(set)).max(1) as f64);
        (bits * (bits / free).ln()).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    #[test]
    fn visitors_are_counted_once() {
        let (distinct, key) = (Distinct::default(), RandomState::new());
        assert_eq!(distinct.take(), 0);
        for visitors in [1, 10, 1_000, 30_000] {
            for visitor in (0..visitors).chain(0..visitors) {
                distinct.record(key.hash_one(visitor));
            }
            let (found, expected) = (distinct.take() as f64, visitors as f64);
            assert!(
                (found / expected - 1.0).abs() < 0.05 + 1.0 / expected,
                "{found} of {expected}"
            );
        }
        assert_eq!(distinct.take(), 0);
    }
}
