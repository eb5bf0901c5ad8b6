//! Numbers by hash: open addressing with linear probing.

/// Numbers that are found by the hash of their key.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    slots: Vec<Slot>,
    count: usize,
}

/// The upper half of a hash, and a number; `EMPTY` in a free slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u32,
    number: u32,
}

const EMPTY: u32 = u32::MAX;
const VACANT: Slot = Slot { tag: 0, number: EMPTY };
const FIRST_SLOTS: usize = 16;

impl Index {
    /// The number with this hash for which `is` holds.
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let tag = tag(hash);
        let mut at = self.home(tag);
        loop {
            let slot = self.slots[at];
            if slot.number == EMPTY {
                return None;
            }
            if slot.tag == tag && is(slot.number) {
                return Some(slot.number);
            }
            at = self.behind(at);
        }
    }

    /// The first number in the search for a hash; [`EMPTY`] if it belongs to another hash.
    pub(super) fn prefetch(&self, hash: u64) -> u32 {
        let tag = tag(hash);
        let first = (!self.slots.is_empty()).then(|| self.slots[self.home(tag)]);
        first.filter(|slot| slot.tag == tag).map_or(EMPTY, |slot| slot.number)
    }

    /// Adds a new number, and returns how many places behind its own it is.
    pub(super) fn insert(&mut self, hash: u64, number: u32) -> usize {
        debug_assert_ne!(number, EMPTY);
        if is_crowded(self.count + 1, self.slots.len()) {
            self.grow();
        }
        self.count += 1;
        self.place(Slot { tag: tag(hash), number })
    }

    /// Removes a number that is present.
    pub(super) fn remove(&mut self, hash: u64, number: u32) {
        let mut at = self.home(tag(hash));
        while self.slots[at].number != number {
            debug_assert_ne!(self.slots[at].number, EMPTY, "{number} is not in the index");
            at = self.behind(at);
        }
        self.count -= 1;
        // A later entry moves up if the hole is between its own place and it, so that no search ends at the
        // hole too early.
        let mut hole = at;
        let mut next = self.behind(hole);
        while self.slots[next].number != EMPTY {
            let home = self.home(self.slots[next].tag);
            let mask = self.slots.len() - 1;
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = self.behind(next);
        }
        self.slots[hole] = VACANT;
    }

    /// Its size in bytes.
    pub(super) fn resident(&self) -> u64 {
        (self.slots.capacity() * size_of::<Slot>()) as u64
    }

    /// Bytes that an index of `count` numbers takes.
    pub(super) fn most_resident(count: usize) -> u64 {
        let mut slots = FIRST_SLOTS;
        while is_crowded(count, slots) {
            slots *= 2;
        }
        (slots * size_of::<Slot>()) as u64
    }

    fn home(&self, tag: u32) -> usize {
        tag as usize & (self.slots.len() - 1)
    }

    fn behind(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    fn place(&mut self, slot: Slot) -> usize {
        let mut at = self.home(slot.tag);
        let mut steps = 0;
        while self.slots[at].number != EMPTY {
            at = self.behind(at);
            steps += 1;
        }
        self.slots[at] = slot;
        steps
    }

    fn grow(&mut self) {
        let count = (2 * self.slots.len()).max(FIRST_SLOTS);
        let before = core::mem::replace(&mut self.slots, vec![VACANT; count]);
        for slot in before.into_iter().filter(|slot| slot.number != EMPTY) {
            self.place(slot);
        }
    }
}

/// Probes are short up to three quarters full.
fn is_crowded(count: usize, slots: usize) -> bool {
    4 * count > 3 * slots
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}
