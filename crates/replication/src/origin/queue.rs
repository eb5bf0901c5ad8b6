//! Queues of bodies for many replicas, in the space of one.
//!
//! Every replica has a queue by priority (SSR §6.2, number 4 of figure 15), and the priorities are the same
//! for all. So there is one order of the objects, and each replica has one bit per object: whether its body
//! waits. A write sets bits. A bit that was already set stands for the newer version from then on, so
//! rewrites are merged. With 10⁶ objects and 100 replicas the bits take 13 MB; separate queues would take
//! gigabytes.

use std::collections::BTreeMap;

use super::priority::Priority;
use crate::path::Path;

/// The position of an object in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePosition {
    priority: Priority,
    slot: u32,
}

/// The order of all objects.
///
/// The places of a priority have no gaps: the last object of the priority fills a freed place. So there are
/// as many places as objects, after any moves. Replicas report the reads of an object, and may move it
/// through all priorities.
#[derive(Debug, Default)]
pub(crate) struct Order {
    slots: BTreeMap<Priority, Vec<Path>>,
}

/// A slot that an object has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    position: QueuePosition,
    /// The slot of the object that has moved there. The same slot if it was the last one.
    last: u32,
}

impl Order {
    pub(crate) fn insert(&mut self, path: Path, priority: Priority) -> QueuePosition {
        let slots = self.slots.entry(priority).or_default();
        let slot = u32::try_from(slots.len()).expect("fewer objects than 2³²");
        slots.push(path);
        QueuePosition { priority, slot }
    }

    /// An object frees its place. The object there afterwards has moved, and each queue must be notified: see
    /// [`Waiting::close`].
    pub(crate) fn remove(&mut self, position: QueuePosition) -> Option<Gap> {
        let slots = self.slots.get_mut(&position.priority)?;
        let last = u32::try_from(slots.len())
            .ok()?
            .checked_sub(1)
            .filter(|&last| position.slot <= last)?;
        slots.swap_remove(position.slot as usize);
        if slots.is_empty() {
            self.slots.remove(&position.priority);
        } else {
            give_back(slots);
        }
        Some(Gap { position, last })
    }

    pub(crate) fn path(&self, position: QueuePosition) -> Option<&Path> {
        self.slots.get(&position.priority)?.get(position.slot as usize)
    }
}

/// A vector keeps at most four times the memory of its contents. It is copied when three quarters have gone
/// since the last copy. So each removed item pays for a third of a copied one.
fn give_back<T>(items: &mut Vec<T>) {
    if 4 * items.len() < items.capacity() {
        items.shrink_to(2 * items.len());
    }
}

impl QueuePosition {
    pub(crate) const fn priority(self) -> Priority {
        self.priority
    }
}

const WORD: u32 = u64::BITS;

/// Bits, and above them levels of bits that show which words of the level below are not zero. So the first
/// bit is found with one word per level.
#[derive(Debug, Default)]
struct Bits {
    words: Vec<u64>,
    /// From the lowest one to one of a single word.
    levels: Vec<Vec<u64>>,
    count: u32,
}

/// Sets or clears this bit of a level; returns whether its word was zero before, or is now.
fn write(words: &mut [u64], at: usize, bit: bool) -> bool {
    let (word, mask) = (&mut words[at / WORD as usize], 1 << (at % WORD as usize));
    let before = *word;
    *word = if bit { before | mask } else { before & !mask };
    (before == 0) != (*word == 0)
}

impl Bits {
    /// All of this many slots.
    fn full(slots: u32) -> Self {
        let mut words = vec![u64::MAX; (slots / WORD) as usize];
        words.extend((!slots.is_multiple_of(WORD)).then(|| (1 << (slots % WORD)) - 1));
        let mut bits = Bits { words, levels: Vec::new(), count: slots };
        bits.fit_levels();
        bits
    }

    fn has(&self, at: u32) -> bool {
        self.words.get((at / WORD) as usize).is_some_and(|bits| bits & 1 << (at % WORD) != 0)
    }

    /// Whether the bit was clear.
    fn set(&mut self, at: u32) -> bool {
        if self.has(at) {
            return false;
        }
        let word = (at / WORD) as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
            self.fit_levels();
        }
        self.put(at, true);
        self.count += 1;
        true
    }

    /// Whether the bit was set.
    fn clear(&mut self, at: u32) -> bool {
        if !self.has(at) {
            return false;
        }
        self.put(at, false);
        self.count -= 1;
        true
    }

    fn put(&mut self, at: u32, bit: bool) {
        let mut at = at as usize;
        let mut changes = write(&mut self.words, at, bit);
        for level in &mut self.levels {
            at /= WORD as usize;
            if !changes {
                return;
            }
            changes = write(level, at, bit);
        }
    }

    /// As many levels as the words need, each as long as necessary.
    fn fit_levels(&mut self) {
        let mut below = self.words.len();
        let mut depth = 0;
        while below > 1 {
            let length = below.div_ceil(WORD as usize);
            if depth == self.levels.len() {
                // Above what there is already.
                let under = if depth == 0 { &self.words } else { &self.levels[depth - 1] };
                let mut level = vec![0; length];
                for (at, _) in under.iter().enumerate().filter(|(_, bits)| **bits != 0) {
                    write(&mut level, at, true);
                }
                self.levels.push(level);
            }
            self.levels[depth].resize(length, 0);
            give_back(&mut self.levels[depth]);
            (below, depth) = (length, depth + 1);
        }
        self.levels.truncate(depth);
    }

    /// Reduces the number of slots; no bit is set beyond them.
    fn shorten(&mut self, slots: u32) {
        let words = slots.div_ceil(WORD) as usize;
        if words < self.words.len() {
            self.words.truncate(words);
            self.fit_levels();
            give_back(&mut self.words);
        }
    }

    /// The bits that are set.
    fn places(&self) -> impl Iterator<Item = u32> + '_ {
        let words = (0..).zip(&self.words).filter(|(_, bits)| **bits != 0);
        words.flat_map(|(at, bits)| {
            let (at, bits) = (at * WORD, *bits);
            (0..WORD).filter(move |bit| bits & 1 << bit != 0).map(move |bit| at + bit)
        })
    }

    fn first(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let bits = level[at];
            if bits == 0 {
                return None;
            }
            at = at * WORD as usize + bits.trailing_zeros() as usize;
        }
        let bits = *self.words.get(at).filter(|bits| **bits != 0)?;
        Some(at as u32 * WORD + bits.trailing_zeros())
    }
}

/// The queue of one replica: which objects' bodies wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    bits: BTreeMap<Priority, Bits>,
    count: u64,
}

impl Waiting {
    /// Whether it was not waiting; otherwise the newer version takes the older one's place.
    pub(crate) fn insert(&mut self, position: QueuePosition) -> bool {
        let new = self.bits.entry(position.priority).or_default().set(position.slot);
        self.count += u64::from(new);
        new
    }

    /// The bodies of all objects wait.
    pub(crate) fn fill(&mut self, order: &Order) {
        let full = |slots: &Vec<Path>| {
            Bits::full(u32::try_from(slots.len()).expect("fewer objects than 2³²"))
        };
        self.bits = order.slots.iter().map(|(priority, all)| (*priority, full(all))).collect();
        self.count = self.bits.values().map(|bits| u64::from(bits.count)).sum();
    }

    pub(crate) fn has(&self, position: QueuePosition) -> bool {
        self.bits.get(&position.priority).is_some_and(|bits| bits.has(position.slot))
    }

    pub(crate) fn remove(&mut self, position: QueuePosition) -> bool {
        let Some(bits) = self.bits.get_mut(&position.priority) else { return false };
        let was = bits.clear(position.slot);
        self.count -= u64::from(was);
        was
    }

    /// The object has moved in the order.
    pub(crate) fn moved(&mut self, from: QueuePosition, to: QueuePosition) {
        if self.remove(from) {
            self.insert(to);
        }
    }

    /// An object has left a slot at which it did not wait, and the last one of its priority has moved there.
    pub(crate) fn close(&mut self, gap: Gap) {
        let Gap { position, last } = gap;
        let Some(bits) = self.bits.get_mut(&position.priority) else { return };
        debug_assert!(!bits.has(position.slot), "{position:?} waits, and was given up");
        if bits.clear(last) {
            bits.set(position.slot);
        }
        if last == 0 {
            self.bits.remove(&position.priority);
        } else {
            bits.shorten(last);
        }
    }

    /// The place with the highest priority.
    pub(crate) fn first(&self) -> Option<QueuePosition> {
        let mut filled = self.bits.iter().rev().filter(|(_, bits)| bits.count > 0);
        let (priority, bits) = filled.next()?;
        Some(QueuePosition { priority: *priority, slot: bits.first()? })
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// All places, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = QueuePosition> + '_ {
        let of = |(priority, bits): (&Priority, &Bits)| {
            let priority = *priority;
            bits.places().map(move |slot| QueuePosition { priority, slot }).collect::<Vec<_>>()
        };
        self.bits.iter().filter(|(_, bits)| bits.count > 0).flat_map(of)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// An order, and two replicas for which bodies wait.
    #[derive(Default)]
    struct Bench {
        order: Order,
        positions: BTreeMap<usize, QueuePosition>,
        waiting: [Waiting; 2],
    }

    impl Bench {
        fn of(objects: usize) -> Self {
            let mut bench = Bench::default();
            (0..objects).for_each(|object| bench.rank(object, Priority(0)));
            bench
        }

        fn object(&self, position: QueuePosition) -> usize {
            let name = self.order.path(position).expect("it is there").to_string();
            name.parse().expect("a number")
        }

        /// An object is new, or moves.
        fn rank(&mut self, object: usize, priority: Priority) {
            let path = Path::new(&format!("{object}")).expect("a path");
            let position = self.order.insert(path, priority);
            if let Some(old) = self.positions.insert(object, position) {
                self.waiting.iter_mut().for_each(|waiting| waiting.moved(old, position));
                self.give_up(old);
            }
        }

        fn delete(&mut self, object: usize) {
            if let Some(old) = self.positions.remove(&object) {
                for waiting in &mut self.waiting {
                    waiting.remove(old);
                }
                self.give_up(old);
            }
        }

        fn give_up(&mut self, position: QueuePosition) {
            let gap = self.order.remove(position).expect("it had that place");
            if self.order.path(position).is_some() {
                self.positions.insert(self.object(position), position);
            }
            self.waiting.iter_mut().for_each(|waiting| waiting.close(gap));
        }

        /// Allocated places and bits, the latter at the replica with the most.
        fn room(&self) -> (usize, usize) {
            let bits = |waiting: &Waiting| {
                let words = waiting.bits.values().map(|bits| bits.words.capacity());
                words.sum::<usize>() * WORD as usize
            };
            let positions = self.order.slots.values().map(Vec::capacity).sum();
            (positions, self.waiting.iter().map(bits).max().unwrap_or(0))
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Wait(usize, usize),
        Fill(usize),
        Serve(usize),
        Rank(usize, u8),
        Delete(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..2_usize, 0..300_usize).prop_map(|(replica, object)| Step::Wait(replica, object)),
            (0..2_usize).prop_map(Step::Serve),
            (0..2_usize).prop_map(Step::Fill),
            (0..300_usize, 0..5_u8).prop_map(|(object, priority)| Step::Rank(object, priority)),
            (0..300_usize).prop_map(Step::Delete),
        ]
    }

    proptest! {
        #[test]
        fn highest_waiting_priority_is_served(
            steps in proptest::collection::vec(step(), 0..400),
        ) {
            let mut bench = Bench::of(300);
            let mut model = [BTreeSet::new(), BTreeSet::new()];
            for step in steps {
                match step {
                    Step::Wait(replica, object) => {
                        if let Some(position) = bench.positions.get(&object) {
                            let new = model[replica].insert(object);
                            prop_assert_eq!(bench.waiting[replica].insert(*position), new);
                        }
                    }
                    Step::Fill(replica) => {
                        bench.waiting[replica].fill(&bench.order);
                        model[replica].extend(bench.positions.keys());
                    }
                    Step::Serve(replica) => {
                        let priorities = model[replica].iter().map(|object| bench.positions[object].priority());
                        let best = priorities.max();
                        let first = bench.waiting[replica].first();
                        prop_assert_eq!(first.map(QueuePosition::priority), best);
                        if let Some(position) = first {
                            prop_assert!(model[replica].remove(&bench.object(position)));
                            prop_assert!(bench.waiting[replica].remove(position));
                        }
                    }
                    Step::Rank(object, priority) => {
                        bench.rank(object, Priority(priority));
                        prop_assert_eq!(bench.positions[&object].priority(), Priority(priority));
                    }
                    Step::Delete(object) => {
                        bench.delete(object);
                        model.iter_mut().for_each(|model| { model.remove(&object); });
                    }
                }
                for (waiting, model) in bench.waiting.iter().zip(&model) {
                    prop_assert_eq!(waiting.len(), model.len() as u64);
                    let all: BTreeSet<_> = waiting.iter().map(|at| bench.object(at)).collect();
                    prop_assert_eq!(&all, model);
                }
            }
            for (object, position) in &bench.positions {
                prop_assert_eq!(bench.object(*position), *object);
                for (waiting, model) in bench.waiting.iter().zip(&model) {
                    prop_assert_eq!(waiting.has(*position), model.contains(object));
                }
            }
        }
    }

    /// Objects that pass through many priorities.
    const MANY: usize = 5_000;

    #[test]
    fn objects_moved_through_all_priorities_leave_no_memory() {
        let mut bench = Bench::of(MANY);
        for priority in 1..=u8::MAX {
            for object in 0..MANY {
                bench.waiting[0].insert(bench.positions[&object]);
                bench.rank(object, Priority(priority));
            }
            let (positions, bits) = bench.room();
            assert!(positions <= 4 * MANY, "{positions} places at {priority}");
            assert!(bits <= 4 * (MANY + WORD as usize), "{bits} bits at {priority}");
        }
        (0..MANY).for_each(|object| bench.delete(object));
        assert_eq!((bench.room(), bench.waiting[0].len()), ((0, 0), 0));
    }

    #[test]
    fn objects_left_in_each_priority_use_only_their_own_memory() {
        for first_stays in [true, false] {
            let mut bench = Bench::of(MANY);
            let mut objects: Vec<usize> = (0..MANY).collect();
            for priority in 1..=u8::MAX {
                let stays = if first_stays { 0 } else { objects.len() - 1 };
                objects.remove(stays);
                for &object in &objects {
                    bench.waiting[0].insert(bench.positions[&object]);
                    bench.rank(object, Priority(priority));
                }
            }
            let (positions, bits) = bench.room();
            assert!(positions <= 4 * MANY, "{positions} places");
            // One object takes a word of them.
            assert!(bits <= 4 * (MANY + 256 * WORD as usize), "{bits} bits");
            assert_eq!(bench.waiting[0].len(), MANY as u64 - 1);
        }
    }
}
