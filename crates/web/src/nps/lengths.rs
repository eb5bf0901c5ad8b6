//! The length of a URL's body, without content coding: the unit of scripts in browsers.

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use super::lock::lock;

/// Number of URLs that are remembered; of two in one slot the later one.
const SLOTS: usize = 1 << 14;

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    bytes: u64,
}

/// The latest lengths.
#[derive(Debug)]
pub(super) struct Lengths {
    key: RandomState,
    slots: Mutex<Box<[Slot]>>,
}

impl Default for Lengths {
    fn default() -> Self {
        let slots = vec![Slot { key: 0, bytes: 0 }; SLOTS].into();
        Lengths { key: RandomState::new(), slots: Mutex::new(slots) }
    }
}

impl Lengths {
    /// Notes the length of a complete body.
    pub(super) fn record(&self, path: &str, bytes: u64) {
        let key = self.key.hash_one(path);
        lock(&self.slots)[key as usize % SLOTS] = Slot { key, bytes };
    }

    /// The length; `None` if it is unknown.
    pub(super) fn get(&self, path: &str) -> Option<u64> {
        let key = self.key.hash_one(path);
        let slot = lock(&self.slots)[key as usize % SLOTS];
        (slot.key == key && slot.bytes > 0).then_some(slot.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_length_is_known_and_memory_is_bounded() {
        let lengths = Lengths::default();
        assert_eq!(lengths.get("/a"), None);
        lengths.record("/a", 5);
        lengths.record("/a", 7);
        assert_eq!((lengths.get("/a"), lengths.get("/b")), (Some(7), None));
        for number in 0..1 << 17 {
            lengths.record(&format!("/{number}"), 1);
        }
        assert_eq!(lengths.slots.lock().unwrap().len(), SLOTS);
    }
}
