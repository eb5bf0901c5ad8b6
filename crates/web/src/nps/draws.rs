//! Random numbers.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Unpredictable numbers of 64 bits: a keyed hash of a counter.
#[derive(Debug, Default)]
pub(super) struct Draws {
    key: RandomState,
    count: AtomicU64,
}

impl Draws {
    pub(super) fn next(&self) -> u64 {
        self.key.hash_one(self.count.fetch_add(1, Ordering::Relaxed))
    }
}
