//! Queues of bodies for many replicas, in the space of one.
//!
//! Every replica has a queue by priority (SSR §6.2, number 4 of figure 15), and the priorities are
//! the same for all. So there is one order of the objects, and each replica has a bit for each of
//! them: whether its body waits. A write sets bits; one that was set already stands for the newer
//! version from then on, so rewrites are absorbed. With 10⁶ objects and 100 replicas the bits take
//! 13 MB, where queues of their own would take gigabytes.

use std::collections::BTreeMap;

use super::priority::Priority;
use crate::path::Path;

/// Where an object stands in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    priority: Priority,
    slot: u32,
}

#[derive(Debug, Default)]
struct Slots {
    paths: Vec<Option<Path>>,
    free: Vec<u32>,
}

/// The order of all objects.
#[derive(Debug, Default)]
pub(crate) struct Order {
    slots: BTreeMap<Priority, Slots>,
}

impl Order {
    pub(crate) fn insert(&mut self, path: Path, priority: Priority) -> Place {
        let slots = self.slots.entry(priority).or_default();
        let slot = match slots.free.pop() {
            Some(slot) => {
                slots.paths[slot as usize] = Some(path);
                slot
            }
            None => {
                slots.paths.push(Some(path));
                u32::try_from(slots.paths.len() - 1).expect("fewer objects than 2³²")
            }
        };
        Place { priority, slot }
    }

    pub(crate) fn remove(&mut self, place: Place) {
        if let Some(slots) = self.slots.get_mut(&place.priority)
            && slots.paths[place.slot as usize].take().is_some()
        {
            slots.free.push(place.slot);
        }
    }

    pub(crate) fn path(&self, place: Place) -> Option<&Path> {
        self.slots.get(&place.priority)?.paths.get(place.slot as usize)?.as_ref()
    }
}

impl Place {
    pub(crate) const fn priority(self) -> Priority {
        self.priority
    }
}

const WORD: u32 = u64::BITS;

/// Bits, and bits that say which words of them are not zero.
#[derive(Debug, Default)]
struct Bits {
    words: Vec<u64>,
    summary: Vec<u64>,
    count: u32,
}

impl Bits {
    fn has(&self, at: u32) -> bool {
        self.words.get((at / WORD) as usize).is_some_and(|bits| bits & 1 << (at % WORD) != 0)
    }

    /// Whether the bit was clear.
    fn set(&mut self, at: u32) -> bool {
        let word = (at / WORD) as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
            self.summary.resize(word / WORD as usize + 1, 0);
        }
        let mask = 1 << (at % WORD);
        let clear = self.words[word] & mask == 0;
        self.words[word] |= mask;
        self.summary[word / WORD as usize] |= 1 << (word % WORD as usize);
        self.count += u32::from(clear);
        clear
    }

    /// Whether the bit was set.
    fn clear(&mut self, at: u32) -> bool {
        let word = (at / WORD) as usize;
        let mask = 1 << (at % WORD);
        if self.words.get(word).is_none_or(|bits| bits & mask == 0) {
            return false;
        }
        self.words[word] &= !mask;
        if self.words[word] == 0 {
            self.summary[word / WORD as usize] &= !(1 << (word % WORD as usize));
        }
        self.count -= 1;
        true
    }

    fn first(&self) -> Option<u32> {
        let group = self.summary.iter().position(|&bits| bits != 0)?;
        let word = group as u32 * WORD + self.summary[group].trailing_zeros();
        Some(word * WORD + self.words[word as usize].trailing_zeros())
    }
}

/// The queue of one replica: which objects' bodies wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    bits: BTreeMap<Priority, Bits>,
    count: u64,
}

impl Waiting {
    /// Whether it did not wait yet; else the newer version takes the older one's place.
    pub(crate) fn insert(&mut self, place: Place) -> bool {
        let new = self.bits.entry(place.priority).or_default().set(place.slot);
        self.count += u64::from(new);
        new
    }

    pub(crate) fn has(&self, place: Place) -> bool {
        self.bits.get(&place.priority).is_some_and(|bits| bits.has(place.slot))
    }

    pub(crate) fn remove(&mut self, place: Place) -> bool {
        let Some(bits) = self.bits.get_mut(&place.priority) else { return false };
        let was = bits.clear(place.slot);
        self.count -= u64::from(was);
        was
    }

    /// The object has another place in the order.
    pub(crate) fn moved(&mut self, from: Place, to: Place) {
        if self.remove(from) {
            self.insert(to);
        }
    }

    /// What is worth most.
    pub(crate) fn first(&self) -> Option<Place> {
        let mut filled = self.bits.iter().rev().filter(|(_, bits)| bits.count > 0);
        let (priority, bits) = filled.next()?;
        Some(Place { priority: *priority, slot: bits.first()? })
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Wait(usize),
        Serve,
        Move(usize, u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..300_usize).prop_map(Step::Wait),
            Just(Step::Serve),
            (0..300_usize, 0..5_u8).prop_map(|(object, priority)| Step::Move(object, priority)),
        ]
    }

    proptest! {
        #[test]
        fn the_highest_priority_that_waits_is_served(
            steps in proptest::collection::vec(step(), 0..400),
        ) {
            let mut order = Order::default();
            let mut waiting = Waiting::default();
            let mut model = BTreeSet::new();
            let path = |object: usize| Path::new(&format!("{object}")).expect("a path");
            let mut places: Vec<_> =
                (0..300).map(|object| order.insert(path(object), Priority(0))).collect();
            for step in steps {
                match step {
                    Step::Wait(object) => {
                        prop_assert_eq!(waiting.has(places[object]), model.contains(&object));
                        let new = model.insert(object);
                        prop_assert_eq!(waiting.insert(places[object]), new);
                    }
                    Step::Serve => {
                        let best = model.iter().map(|object| places[*object].priority()).max();
                        let first = waiting.first();
                        prop_assert_eq!(first.map(Place::priority), best);
                        if let Some(place) = first {
                            let name = order.path(place).expect("it is there").to_string();
                            let object: usize = name.parse().expect("a number");
                            prop_assert!(model.remove(&object));
                            prop_assert!(waiting.remove(place));
                        }
                    }
                    Step::Move(object, priority) => {
                        order.remove(places[object]);
                        let to = order.insert(path(object), Priority(priority));
                        waiting.moved(places[object], to);
                        places[object] = to;
                    }
                }
                prop_assert_eq!(waiting.len(), model.len() as u64);
            }
        }
    }
}
