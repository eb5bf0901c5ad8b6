//! A table with lookup by hash that never grows beyond a limit.
//!
//! The standard library's map has a random order, and a tree of a million entries costs twenty cache misses
//! per search. Here entries are in one vector by number, and an index of hashes finds the number. No result
//! depends on places in the index.

mod index;

use index::Index;

/// An entry of a [`Table`].
pub(crate) trait Entry {
    /// The order of eviction in a full table: the lowest goes.
    type Worth: PartialOrd;

    /// The hash by which it is found.
    fn hash(&self) -> u64;

    /// The value of keeping it.
    fn worth(&self) -> Self::Worth;
}

/// Entries by number, up to a limit.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    index: Index,
    entries: Vec<T>,
    limit: usize,
    hand: usize,
}

/// This many entries under the hand are compared for an eviction: the lowest of eight is usually among the
/// lowest eighth, and the search is bounded for any requests.
const COMPARED: usize = 8;

/// With well-spread hashes, the farthest of a million entries is some hundred places behind its own. A saved
/// table with farther entries was made to be slow.
const FARTHEST: usize = 4096;

impl<T: Entry> Table<T> {
    /// An empty table of at most `limit` entries.
    ///
    /// # Panics
    /// If the limit is 0.
    pub(crate) fn new(limit: usize) -> Self {
        assert!(limit > 0, "a table needs room");
        Table { index: Index::default(), entries: Vec::new(), limit, hand: 0 }
    }

    /// The number of the entry with this hash for which `is` holds.
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<u32> {
        self.index.find(hash, |number| is(&self.entries[number as usize]))
    }

    /// The number at the first place of the search for a hash, which may belong to no entry, or to another
    /// one. It costs one access to the index, and tells the processor early where the search continues.
    pub(crate) fn prefetch(&self, hash: u64) -> u32 {
        self.index.prefetch(hash)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.entries[number as usize]
    }

    /// Inserts a new entry, and returns the evicted one.
    pub(crate) fn insert(&mut self, entry: T) -> (u32, Option<T>) {
        let hash = entry.hash();
        if self.entries.len() < self.limit {
            let number = self.entries.len() as u32;
            grow_within(&mut self.entries, self.limit);
            self.entries.push(entry);
            self.index.insert(hash, number);
            return (number, None);
        }
        let number = self.least();
        let evicted = core::mem::replace(&mut self.entries[number as usize], entry);
        self.index.remove(evicted.hash(), number);
        self.index.insert(hash, number);
        (number, Some(evicted))
    }

    /// Restores the entry of the next number in a saved table. None if it cannot have been there: there is no
    /// room, or an equal entry, or the hash was chosen to collide.
    pub(crate) fn restore(&mut self, entry: T, is_same: impl Fn(&T, &T) -> bool) -> Option<()> {
        let hash = entry.hash();
        let number = self.entries.len();
        if number >= self.limit || self.find(hash, |other| is_same(other, &entry)).is_some() {
            return None;
        }
        grow_within(&mut self.entries, self.limit);
        self.entries.push(entry);
        (self.index.insert(hash, u32::try_from(number).ok()?) <= FARTHEST).then_some(())
    }

    /// Where the search for the lowest continues.
    pub(crate) fn eviction_hand(&self) -> usize {
        self.hand
    }

    /// Sets the same in a saved table; none if it cannot have been there.
    pub(crate) fn set_eviction_hand(&mut self, hand: usize) -> Option<()> {
        self.hand = hand;
        (hand == 0 || hand < self.entries.len()).then_some(())
    }

    /// Changes an entry into one with another hash.
    pub(crate) fn replace(&mut self, number: u32, entry: T) -> T {
        let hash = entry.hash();
        let before = core::mem::replace(&mut self.entries[number as usize], entry);
        self.index.remove(before.hash(), number);
        self.index.insert(hash, number);
        before
    }

    /// The entry of least worth among the next few.
    pub(crate) fn least(&mut self) -> u32 {
        self.least_by(T::worth)
    }

    /// The least of the next few entries by another measure.
    pub(crate) fn least_by<W: PartialOrd>(&mut self, worth: impl Fn(&T) -> W) -> u32 {
        let count = self.entries.len();
        let mut least = self.hand % count;
        for at in 1..COMPARED.min(count) {
            let other = (self.hand + at) % count;
            if worth(&self.entries[other]) < worth(&self.entries[least]) {
                least = other;
            }
        }
        self.hand = (self.hand + COMPARED) % count;
        least as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries by number.
    pub(crate) fn entries(&self) -> &[T] {
        &self.entries
    }

    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut()
    }

    /// The size of the table in bytes, without what its entries point to.
    pub(crate) fn resident(&self) -> u64 {
        self.index.resident() + (self.entries.capacity() * size_of::<T>()) as u64
    }

    /// The memory of a full table of `limit` entries.
    pub(crate) fn most_resident(limit: usize) -> u64 {
        Index::most_resident(limit) + limit as u64 * size_of::<T>() as u64
    }
}

/// Makes space for one more as vectors do, by doubling, but for no more than `limit` in all: a vector that
/// doubles at its limit takes twice the granted memory.
pub(crate) fn grow_within<T>(entries: &mut Vec<T>, limit: usize) {
    let count = entries.len();
    if count == entries.capacity() && count < limit {
        entries.reserve_exact(count.max(4).min(limit - count));
    }
}

/// SplitMix64's output function: every bit of the result depends on every bit of `value`.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Counted {
        key: u64,
        worth: u32,
    }

    impl Entry for Counted {
        type Worth = u32;

        fn hash(&self) -> u64 {
            // Few different hashes, so that many entries share a place.
            mix(self.key % 7)
        }

        fn worth(&self) -> u32 {
            self.worth
        }
    }

    fn find(table: &Table<Counted>, key: u64) -> Option<u32> {
        table.find(mix(key % 7), |entry| entry.key == key)
    }

    #[test]
    fn full_table_evicts_the_least_of_a_few() {
        let mut table = Table::new(4);
        for (key, worth) in [(1, 9), (2, 8), (3, 1), (4, 7)] {
            assert_eq!(table.insert(Counted { key, worth }).1, None);
        }
        let (number, evicted) = table.insert(Counted { key: 5, worth: 5 });
        assert_eq!((number, evicted), (2, Some(Counted { key: 3, worth: 1 })));
        assert_eq!((find(&table, 3), find(&table, 5), table.len()), (None, Some(2), 4));
    }

    #[test]
    fn table_uses_no_more_than_its_stated_memory() {
        for limit in [1, 3, 4, 12, 13, 100, 1_000, 4_097] {
            let mut table = Table::new(limit);
            for key in 0..2 * limit as u64 {
                table.insert(Counted { key, worth: 1 });
            }
            assert_eq!(table.resident(), Table::<Counted>::most_resident(limit), "{limit}");
        }
    }

    #[test]
    fn table_is_restored_entry_by_entry() {
        let same = |a: &Counted, b: &Counted| a.key == b.key;
        let mut table = Table::new(2);
        let one = |key| Counted { key, worth: 1 };
        assert_eq!(table.restore(one(1), same), Some(()));
        assert_eq!(table.restore(one(1), same), None, "twice");
        assert_eq!(table.restore(one(2), same), Some(()));
        assert_eq!(table.restore(one(3), same), None, "no room");
        assert_eq!((find(&table, 1), find(&table, 2)), (Some(0), Some(1)));
        assert_eq!((table.set_eviction_hand(1), table.set_eviction_hand(2)), (Some(()), None));
    }

    #[test]
    fn hashes_chosen_to_collide_are_rejected() {
        // All are in one run of slots; a search would go through half of them.
        let mut table = Table::new(1 << 20);
        let alike = |key: u64| Counted { key: key * 7, worth: 1 };
        let taken =
            (0..1u64 << 20).take_while(|key| table.restore(alike(*key), |_, _| false).is_some());
        assert_eq!(taken.count(), FARTHEST + 1);
    }

    proptest! {
        /// As a map that is informed of every eviction.
        #[test]
        fn table_agrees_with_a_reference_map(
            limit in 1usize..40,
            steps in prop::collection::vec((0u64..60, any::<u32>(), any::<bool>()), 0..400),
        ) {
            let mut table: Table<Counted> = Table::new(limit);
            let mut model: BTreeMap<u64, (u32, Counted)> = BTreeMap::new();
            for (key, worth, replace) in steps {
                let entry = Counted { key, worth };
                if let Some((number, there)) = model.get_mut(&key) {
                    table.get_mut(*number).worth = worth;
                    there.worth = worth;
                } else if replace && table.len() > 0 {
                    let number = table.least();
                    let before = table.replace(number, entry);
                    prop_assert!(model.remove(&before.key).is_some());
                    model.insert(key, (number, entry));
                } else {
                    let (number, evicted) = table.insert(entry);
                    if let Some(evicted) = evicted {
                        prop_assert_eq!(model.remove(&evicted.key), Some((number, evicted)));
                    }
                    model.insert(key, (number, entry));
                }
                prop_assert!(table.len() <= limit);
                for key in 0..60 {
                    let expected = model.get(&key).map(|(number, _)| *number);
                    prop_assert_eq!(find(&table, key), expected);
                }
            }
        }
    }
}
