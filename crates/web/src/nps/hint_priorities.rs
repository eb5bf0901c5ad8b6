//! The worth of waiting prefetches: by their place on the list that named them.

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use super::lock::lock;
use crate::policy::Client;
use crate::protocol::Hint;

/// Number of hints that are remembered. If two share a slot the later one counts, so memory is bounded.
const SLOTS: usize = 1 << 13;
/// A URL that is not known to be on a list, such as on an older list.
const UNKNOWN: f64 = 0.1;
/// A link under the pointer, which is mostly clicked within a second.
const POINTED: f64 = 4.0;

/// The hints of the last lists.
#[derive(Debug)]
pub(super) struct HintPriorities {
    key: RandomState,
    slots: Mutex<Box<[(u64, f32)]>>,
}

impl Default for HintPriorities {
    fn default() -> Self {
        HintPriorities { key: RandomState::new(), slots: Mutex::new(vec![(0, 0.0); SLOTS].into()) }
    }
}

impl HintPriorities {
    /// A client has a list, the best first.
    pub(super) fn listed(&self, client: Client, hints: &[Hint]) {
        let mut slots = lock(&self.slots);
        for (rank, hint) in hints.iter().enumerate() {
            let worth = if hint.pointed { POINTED } else { 1.0 / (rank + 1) as f64 };
            let key = self.key.hash_one((client, hint.url.as_str()));
            slots[key as usize % SLOTS] = (key, worth as f32);
        }
    }

    /// The worth of a page that a client prefetches.
    pub(super) fn get(&self, client: Client, url: &str) -> f64 {
        let key = self.key.hash_one((client, url));
        let (of, worth) = lock(&self.slots)[key as usize % SLOTS];
        if of == key { worth.into() } else { UNKNOWN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Kind;

    #[test]
    fn prefetch_is_worth_more_the_earlier_it_is_on_the_list() {
        let hint = |url: &str, pointed| Hint {
            url: url.into(),
            kind: Kind::Document,
            bytes: None,
            pointed,
            by: None,
        };
        let worths = HintPriorities::default();
        worths.listed(Client(1), &[hint("/a", false), hint("/b", false), hint("/c", true)]);
        let of = |url| worths.get(Client(1), url);
        assert!(of("/a") > of("/b") && of("/b") > of("/d") && of("/c") > of("/a"));
        assert_eq!(worths.get(Client(2), "/a"), UNKNOWN);
    }
}
