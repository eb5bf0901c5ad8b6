//! The event queue: a timing wheel that is exact to the nanosecond.
//!
//! Time is read as digits of six bits. An event waits on the level of the highest digit in which
//! its time differs from the present, in the slot of that digit:
//!
//! ```text
//! level 0   64 slots of      1 ns   events of this very 64 ns
//! level 1   64 slots of     64 ns
//! level 2   64 slots of  4.096 µs
//!   …
//! level 10  16 slots of   36.5 years
//! ```
//!
//! When nothing nearer is left, the present jumps to the earliest event of the nearest slot, and
//! the others of that slot move down to finer levels. Each event moves a few times at the most,
//! from one row of events to the end of another, whatever the number of events waiting: there is
//! no logarithm, and no allocation once there are blocks enough. An event may be a cache line long:
//! what is read in a row costs little, where a look at a place of its own would wait for memory.
//!
//! Events of the same nanosecond come out in the order in which they went in. They can't be told
//! apart by any digit, so they always wait in the same slot, and moving keeps their order.

use lull_cc::Timestamp;

/// Bits of a digit.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// 64 bits of nanoseconds.
const LEVELS: usize = 64usize.div_ceil(BITS as usize);

/// Events of a block: with events of a cache line each, and the number of the next block, a
/// kilobyte.
const BLOCK: usize = 15;
/// No block.
const NONE: u32 = u32::MAX;

/// Events on a level at which those of a slot are a few microseconds apart at the most: soon
/// enough for what they need to be still in the processor's cache when they come.
const SOON: usize = 2;

/// Some events in the order of their insertion, and the block with those behind them.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Block<E> {
    events: [(u64, E); BLOCK],
    next: u32,
}

/// A list of events: blocks, of which all but the last are full.
#[derive(Clone, Copy, Debug)]
struct List {
    earliest: u64,
    first: u32,
    last: u32,
    /// Events in the last block.
    filled: u32,
}

impl List {
    const EMPTY: List = List { earliest: u64::MAX, first: NONE, last: NONE, filled: 0 };
}

/// The blocks of all lists. One that was given back last is taken first, so that a few pages of
/// memory, which stay in the processor's cache, hold the events that come and go.
#[derive(Clone, Debug)]
struct Blocks<E> {
    blocks: Vec<Block<E>>,
    free: u32,
}

impl<E: Copy> Blocks<E> {
    fn push(&mut self, list: &mut List, time: u64, event: E) {
        if list.filled as usize == BLOCK || list.first == NONE {
            let block = self.take((time, event));
            if list.first == NONE {
                list.first = block;
            } else {
                self.blocks[list.last as usize].next = block;
            }
            list.last = block;
            list.filled = 0;
        }
        self.blocks[list.last as usize].events[list.filled as usize] = (time, event);
        list.filled += 1;
        list.earliest = list.earliest.min(time);
    }

    fn take(&mut self, filler: (u64, E)) -> u32 {
        if self.free == NONE {
            let block = u32::try_from(self.blocks.len()).ok().filter(|&block| block != NONE);
            self.blocks.push(Block { events: [filler; BLOCK], next: NONE });
            return block.expect("sixty thousand million events");
        }
        let block = self.free;
        self.free = core::mem::replace(&mut self.blocks[block as usize].next, NONE);
        block
    }

    /// Gives a block back, and the one behind it in its list.
    fn release(&mut self, block: u32) -> u32 {
        let next = core::mem::replace(&mut self.blocks[block as usize].next, self.free);
        self.free = block;
        next
    }

    /// The events in a block of a list.
    fn events(&self, list: &List, block: u32) -> &[(u64, E)] {
        let filled = if block == list.last { list.filled as usize } else { BLOCK };
        &self.blocks[block as usize].events[..filled]
    }
}

/// Events with the time at which each is due.
///
/// Calling order: [`insert`](EventQueue::insert) no event before the present, which is the time
/// of the last event taken; [`pop`](EventQueue::pop) gives them in order of time and, within a
/// nanosecond, of insertion.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    now: u64,
    /// Bit n is set when level n has an event.
    levels: u32,
    /// Bit n of a level is set when its slot n has an event.
    occupied: [u64; LEVELS],
    slots: Vec<List>,
    blocks: Blocks<E>,
    /// Events of the present, in order, up to `served` of its first block already taken.
    present: List,
    served: usize,
    len: usize,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue {
            now: 0,
            levels: 0,
            occupied: [0; LEVELS],
            slots: vec![List::EMPTY; LEVELS * SLOTS],
            blocks: Blocks { blocks: Vec::new(), free: NONE },
            present: List::EMPTY,
            served: 0,
            len: 0,
        }
    }
}

impl<E: Copy> EventQueue<E> {
    /// Events waiting.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time of the last event taken.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    /// Adds an event that is due at `time`.
    ///
    /// # Panics
    /// If `time` lies before the present.
    pub fn insert(&mut self, time: Timestamp, event: E) {
        let time = time.as_nanos();
        assert!(time >= self.now, "an event at {time} ns comes after {} ns has passed", self.now);
        self.len += 1;
        self.place(time, event);
    }

    fn place(&mut self, time: u64, event: E) {
        let level = match time ^ self.now {
            0 => 0,
            difference => (63 - difference.leading_zeros()) / BITS,
        };
        let slot = (time >> (level * BITS)) as usize % SLOTS;
        let level = level as usize;
        self.levels |= 1 << level;
        self.occupied[level] |= 1 << slot;
        self.blocks.push(&mut self.slots[level * SLOTS + slot], time, event);
    }

    /// Takes the next event that is due at `limit` or before, with its time.
    pub fn pop(&mut self, limit: Timestamp) -> Option<(Timestamp, E)> {
        self.pop_expecting(limit, |_| ())
    }

    /// Like [`pop`](EventQueue::pop), and shows events that come soon: all that do at once, and
    /// then all of them again. It is a hint, which memory can be fetched by, all of it at a time:
    /// some events are never shown, and those shown may come late.
    pub fn pop_expecting(
        &mut self,
        limit: Timestamp,
        expect: impl FnMut(&E),
    ) -> Option<(Timestamp, E)> {
        let (time, event) = self.next(limit.as_nanos(), expect)?;
        self.len -= 1;
        Some((Timestamp::from_nanos(time), event))
    }

    fn next(&mut self, limit: u64, mut expect: impl FnMut(&E)) -> Option<(u64, E)> {
        loop {
            let present = self.present.first;
            if present != NONE {
                let events = self.blocks.events(&self.present, present);
                let (time, event) = events[self.served];
                if time > limit {
                    return None;
                }
                self.served += 1;
                if self.served == events.len() {
                    self.served = 0;
                    let is_last = present == self.present.last;
                    let next = self.blocks.release(present);
                    self.present.first = if is_last { NONE } else { next };
                }
                return Some((time, event));
            }
            if self.levels == 0 {
                return None;
            }
            let level = self.levels.trailing_zeros() as usize;
            let slot = self.occupied[level].trailing_zeros() as usize;
            let list = self.slots[level * SLOTS + slot];
            if list.earliest > limit {
                return None;
            }
            self.slots[level * SLOTS + slot] = List::EMPTY;
            self.occupied[level] &= !(1 << slot);
            if self.occupied[level] == 0 {
                self.levels &= !(1 << level);
            }
            self.now = list.earliest;
            if list.first == list.last && list.filled == 1 {
                // Alone in its slot, it is the next one, and need not pass the levels below.
                let next = self.blocks.events(&list, list.first)[0];
                self.blocks.release(list.first);
                return Some(next);
            }
            if level == 0 {
                self.present = list;
                continue;
            }
            if level == SOON {
                self.each(&list, &mut expect);
                self.each(&list, &mut expect);
            }
            self.move_down(list);
        }
    }

    /// Shows the events of a list.
    fn each(&self, list: &List, expect: &mut impl FnMut(&E)) {
        let mut block = list.first;
        loop {
            for (_, event) in self.blocks.events(list, block) {
                expect(event);
            }
            if block == list.last {
                return;
            }
            block = self.blocks.blocks[block as usize].next;
        }
    }

    /// Puts the events of a list where they belong now.
    fn move_down(&mut self, list: List) {
        let mut block = list.first;
        loop {
            for at in 0..self.blocks.events(&list, block).len() {
                let (time, event) = self.blocks.blocks[block as usize].events[at];
                self.place(time, event);
            }
            let is_last = block == list.last;
            block = self.blocks.release(block);
            if is_last {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BinaryHeap;

    use core::cmp::Reverse;

    use super::*;
    use crate::random::Random;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn events_of_one_nanosecond_come_in_the_order_of_insertion() {
        let mut queue = EventQueue::default();
        let time = at(5_000_000_017);
        queue.insert(time, 0);
        queue.insert(at(5_000_000_016), 100);
        for event in 1..40 {
            queue.insert(time, event);
        }
        assert_eq!(queue.pop(Timestamp::FAR_FUTURE), Some((at(5_000_000_016), 100)));
        for event in 0..40 {
            if event == 20 {
                // Later insertions for the present come behind.
                queue.insert(time, 40);
            }
            assert_eq!(queue.pop(Timestamp::FAR_FUTURE), Some((time, event)));
        }
        assert_eq!(queue.pop(Timestamp::FAR_FUTURE), Some((time, 40)));
        assert!(queue.is_empty());
    }

    #[test]
    fn nothing_beyond_the_limit_is_taken_and_the_present_stays() {
        let mut queue = EventQueue::default();
        queue.insert(at(1_000), 'a');
        queue.insert(at(1_000), 'b');
        queue.insert(at(70_000), 'c');
        assert_eq!(queue.pop(at(999)), None);
        queue.insert(at(10), 'd');
        assert_eq!(queue.pop(at(1_000)), Some((at(10), 'd')));
        assert_eq!(queue.pop(at(1_000)), Some((at(1_000), 'a')));
        assert_eq!(queue.pop(at(1_000)), Some((at(1_000), 'b')));
        assert_eq!(queue.pop(at(69_999)), None);
        queue.insert(at(2_000), 'e');
        assert_eq!(queue.pop(at(70_000)), Some((at(2_000), 'e')));
        assert_eq!(queue.pop(at(70_000)), Some((at(70_000), 'c')));
    }

    #[test]
    fn events_that_come_soon_are_shown_twice_and_in_full_before_the_first_comes() {
        let mut queue = EventQueue::default();
        // A slot of the level of microseconds, with more events than a block holds.
        for event in 0..40 {
            queue.insert(at(8_192 + event * 64), event);
        }
        let mut shown = Vec::new();
        let first = queue.pop_expecting(Timestamp::FAR_FUTURE, |event| shown.push(*event));
        assert_eq!(first, Some((at(8_192), 0)));
        assert_eq!(shown, (0..40).chain(0..40).collect::<Vec<_>>());
        for event in 1..40 {
            let next = queue.pop_expecting(Timestamp::FAR_FUTURE, |_| panic!("shown again"));
            assert_eq!(next, Some((at(8_192 + event * 64), event)));
        }
    }

    #[test]
    fn blocks_are_used_again() {
        let mut queue = EventQueue::default();
        for round in 0..1_000 {
            for event in 0..100 {
                queue.insert(at(round * 1_000_000 + event * 7_919), event);
            }
            while queue.pop(Timestamp::FAR_FUTURE).is_some() {}
        }
        let blocks = queue.blocks.blocks.len();
        assert!(blocks <= 100, "{blocks} blocks for a hundred events at a time");
    }

    #[test]
    #[should_panic(expected = "comes after")]
    fn an_event_in_the_past_is_refused() {
        let mut queue = EventQueue::default();
        queue.insert(at(10), ());
        queue.pop(Timestamp::FAR_FUTURE);
        queue.insert(at(9), ());
    }

    #[test]
    fn it_agrees_with_a_heap_of_times_and_insertion_numbers() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut queue = EventQueue::default();
            let mut heap = BinaryHeap::new();
            let mut now = 0;
            for number in 0..20_000u64 {
                // Spans from nanoseconds to minutes, with many ties.
                let span = 1u64 << random.below(38);
                let time = now + random.below(span) / 16 * 16;
                queue.insert(at(time), number);
                heap.push(Reverse((time, number)));
                let limit = now + random.below(1 << 30);
                while random.below(2) == 0 {
                    let next = heap.peek().filter(|Reverse((time, _))| *time <= limit).copied();
                    assert_eq!(
                        queue.pop(at(limit)),
                        next.map(|Reverse((time, number))| (at(time), number)),
                        "seed {seed}"
                    );
                    let Some(Reverse((time, _))) = next else { break };
                    heap.pop();
                    now = time;
                }
            }
            assert_eq!(queue.len(), heap.len());
        }
    }
}
