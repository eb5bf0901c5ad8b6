//! The cache of a client in an evaluation: its requests, and its prefetches.
//!
//! Each predictor is used in many ways: by lists of several lengths, and down to several priorities. Of two
//! ways of one kind the more generous one has fetched all that the other one has. So a URL needs no cache per
//! way; it is enough to store the strictest way that has fetched it.

use crate::observe::UrlId;
use crate::table::mix;

/// No segment.
const NONE: u32 = u32::MAX;
/// Slots of the smallest table; a power of two, as all numbers of slots.
const FIRST_SLOTS: usize = 64;

/// Ways from the strictest to the most generous one, as places in a [`Row`](super::tally::Row).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ways {
    /// The strictest way.
    pub(super) begin: u8,
    /// The place after the most generous one.
    pub(super) end: u8,
}

/// The fetch of one URL by some policies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    pub(super) ways: Ways,
    pub(super) slice: u16,
    pub(super) bytes: u64,
    next: u32,
}

/// A URL of a predictor, or one that the client asked for.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// 0 for an empty slot.
    key: u64,
    /// The strictest policy of each kind that has it; for a client's own request, whether in a cacheable
    /// form, and whether in another one.
    marks: [u8; 2],
    /// The latest of its [`Fetched`].
    first: u32,
}

const VACANT: Slot = Slot { key: 0, marks: [0; 2], first: NONE };

/// The cache of one client, for all predictors.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    slots: Vec<Slot>,
    count: usize,
    fetched: Vec<Fetched>,
}

impl Cache {
    /// Forgets all, and keeps the memory.
    pub(super) fn clear(&mut self) {
        if self.count > 0 {
            self.slots.fill(VACANT);
        }
        self.count = 0;
        self.fetched.clear();
    }

    /// Notes that the client asks for a URL, and returns whether this is the first time of this kind.
    pub(super) fn demand(&mut self, url: UrlId, is_cacheable: bool) -> bool {
        let at = self.enter(u64::from(url.raw()), [0; 2]);
        let mark = &mut self.slots[at].marks[usize::from(!is_cacheable)];
        core::mem::replace(mark, 1) == 0
    }

    /// Whether the client has a URL because it requested it.
    pub(super) fn is_demanded(&self, url: UrlId) -> bool {
        self.find(u64::from(url.raw())).is_some_and(|slot| slot.marks[0] == 1)
    }

    /// Prefetches a URL by the ways of a kind. `begin` is the strictest way that does, and `all` are the ways
    /// of that kind. Returns those of them that did not have it.
    pub(super) fn fetch(
        &mut self,
        (predictor, url): (usize, UrlId),
        kind: usize,
        begin: u8,
        all: [Ways; 2],
        (slice, bytes): (u16, u64),
    ) -> Option<Ways> {
        let at = self.enter(key(predictor, url), [all[0].end, all[1].end]);
        let slot = &mut self.slots[at];
        let ways = Ways { begin, end: slot.marks[kind] };
        if ways.begin >= ways.end {
            return None;
        }
        slot.marks[kind] = begin;
        let next = core::mem::replace(&mut slot.first, self.fetched.len() as u32);
        self.fetched.push(Fetched { ways, slice, bytes, next });
        Some(ways)
    }

    /// Takes out a URL that was prefetched: by which ways, and when. Returns nothing if it was not.
    pub(super) fn take(&mut self, predictor: usize, url: UrlId) -> Taken<'_> {
        let first = match self.place(key(predictor, url)) {
            Some(at) => {
                let slot = &mut self.slots[at];
                // The client has asked for it, so no way fetches it any more.
                core::mem::replace(&mut slot.first, NONE)
            }
            None => NONE,
        };
        Taken { fetched: &self.fetched, next: first }
    }

    fn find(&self, key: u64) -> Option<&Slot> {
        self.place(key).map(|at| &self.slots[at])
    }

    fn place(&self, key: u64) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = mix(key) as usize & mask;
        loop {
            match self.slots[at].key {
                0 => return None,
                found if found == key => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// The slot of a key, which is made if necessary.
    fn enter(&mut self, key: u64, marks: [u8; 2]) -> usize {
        // Probes are short up to half full.
        if 2 * (self.count + 1) > self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut at = mix(key) as usize & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.key == key {
                return at;
            }
            if slot.key == 0 {
                *slot = Slot { key, marks, first: NONE };
                self.count += 1;
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let slots = vec![VACANT; (4 * self.slots.len()).max(FIRST_SLOTS)];
        let mask = slots.len() - 1;
        let before = core::mem::replace(&mut self.slots, slots);
        for slot in before.into_iter().filter(|slot| slot.key != 0) {
            let mut at = mix(slot.key) as usize & mask;
            while self.slots[at].key != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
    }
}

/// The fetches taken out of a cache, the latest first.
pub(super) struct Taken<'c> {
    fetched: &'c [Fetched],
    next: u32,
}

impl Iterator for Taken<'_> {
    type Item = Fetched;

    fn next(&mut self) -> Option<Fetched> {
        let fetched = *self.fetched.get(self.next as usize)?;
        self.next = fetched.next;
        Some(fetched)
    }
}

/// The key of a URL that a predictor had fetched. URLs that the client asked for have 0 above.
fn key(predictor: usize, url: UrlId) -> u64 {
    (predictor as u64 + 1) << 32 | u64::from(url.raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Ways; 2] = [Ways { begin: 0, end: 4 }, Ways { begin: 5, end: 9 }];

    fn url(number: u32) -> UrlId {
        UrlId::from_raw(number).unwrap()
    }

    #[test]
    fn stricter_policy_fetches_for_the_policies_without_a_copy() {
        let mut cache = Cache::default();
        let mut fetch = |begin, bytes| cache.fetch((0, url(7)), 0, begin, ALL, (1, bytes));
        assert_eq!(fetch(2, 10), Some(Ways { begin: 2, end: 4 }));
        assert_eq!(fetch(3, 20), None);
        assert_eq!(fetch(0, 30), Some(Ways { begin: 0, end: 2 }));
        let ways = cache.fetch((0, url(7)), 1, 8, ALL, (1, 40));
        assert_eq!(ways, Some(Ways { begin: 8, end: 9 }));
        assert_eq!(cache.take(1, url(7)).count(), 0, "of another predictor");
        assert_eq!(cache.take(0, url(7)).map(|one| one.bytes).collect::<Vec<_>>(), [40, 30, 10]);
        assert_eq!(cache.take(0, url(7)).count(), 0, "taken");
    }

    #[test]
    fn large_cache_finds_each_url_until_cleared() {
        let mut cache = Cache::default();
        for number in 1..=5_000 {
            assert!(cache.demand(url(number), number % 2 == 0));
            cache.fetch((3, url(number)), 0, 1, ALL, (0, u64::from(number)));
        }
        for number in 1..=5_000 {
            assert!(!cache.demand(url(number), number % 2 == 0));
            assert_eq!(cache.is_demanded(url(number)), number % 2 == 0);
            let bytes: Vec<u64> = cache.take(3, url(number)).map(|one| one.bytes).collect();
            assert_eq!(bytes, [u64::from(number)]);
        }
        assert!(!cache.is_demanded(url(5_001)));
        cache.clear();
        assert!(!cache.is_demanded(url(2)) && cache.demand(url(2), true));
    }
}
