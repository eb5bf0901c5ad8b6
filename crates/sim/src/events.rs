//! The event queue: a timing wheel that is exact to the nanosecond.
//!
//! Time is read as digits of nine bits, and a last one of eleven. A later event waits on the level of the
//! highest digit in which its time differs from the present, in the slot of that digit:
//!
//! ```text
//! level 0    512 slots of   2.048 µs
//! level 1    512 slots of   1.049 ms
//! level 2    512 slots of   0.537 s
//!   …
//! level 5    256 slots of   2.283 years
//! ```
//!
//! The present is a row of events in order, up to some time. When it is empty, it becomes the nearest slot:
//! at once if that is of the finest level or has few events. Otherwise these move down to finer levels first.
//! So an event moves once or twice, from one row of events to the end of another, for any number of waiting
//! events. It is compared only with the few that are due about the same time. There is no allocation once
//! there are enough blocks. Reading a row costs little, while reading scattered events would wait for memory.
//!
//! A slot of level 1 is so short that events that move down from it stay in the processor's cache, also with
//! thousands of flows. Level 1 is so long that events within a round trip need not pass another level.
//!
//! `cargo bench -p lull-sim --bench events` measures the number per second.
//!
//! Events of the same nanosecond come out in the order in which they went in. No digit differs between them,
//! so they always wait in the same slot. Moving keeps their order, and so does sorting them by time.

use lull_cc::Timestamp;

/// Bits of the last digit, which selects no slot.
const FINE: u32 = 11;
/// Bits of the others.
const BITS: u32 = 9;
const SLOTS: usize = 1 << BITS;
/// 64 bits of nanoseconds.
const LEVELS: usize = (64 - FINE as usize).div_ceil(BITS as usize);
/// Words of a level's bits.
const WORDS: usize = SLOTS / 64;

/// Events of a block: half a kilobyte, with events of half a cache line.
const BLOCK: usize = 16;
/// No block.
const NONE: u32 = u32::MAX;

/// The last nanosecond of a time's slot on this level.
const fn slot_end(time: u64, level: u32) -> u64 {
    time | ((1 << (FINE + level * BITS)) - 1)
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

/// Some events in the order of their insertion.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Block<E>([(u64, E); BLOCK]);

/// The blocks of all lists. The most recently released one is used first. So the events occupy a few pages of
/// memory, which stay in the processor's cache.
#[derive(Clone, Debug)]
struct Blocks<E> {
    blocks: Vec<Block<E>>,
    /// The block behind each.
    next: Vec<u32>,
    free: u32,
}

impl<E: Copy> Blocks<E> {
    fn push(&mut self, list: &mut List, time: u64, event: E) {
        if list.filled as usize == BLOCK || list.first == NONE {
            let block = self.take((time, event));
            if list.first == NONE {
                list.first = block;
            } else {
                self.next[list.last as usize] = block;
            }
            list.last = block;
            list.filled = 0;
        }
        self.blocks[list.last as usize].0[list.filled as usize] = (time, event);
        list.filled += 1;
        list.earliest = list.earliest.min(time);
    }

    fn take(&mut self, filler: (u64, E)) -> u32 {
        if self.free == NONE {
            let block = u32::try_from(self.blocks.len()).ok().filter(|&block| block != NONE);
            self.blocks.push(Block([filler; BLOCK]));
            self.next.push(NONE);
            return block.expect("sixty thousand million events");
        }
        let block = self.free;
        self.free = self.next[block as usize];
        block
    }

    /// Releases a block; returns the one behind it in its list.
    fn release(&mut self, block: u32) -> u32 {
        let next = core::mem::replace(&mut self.next[block as usize], self.free);
        self.free = block;
        next
    }

    /// The events in a block of a list.
    fn events(&self, list: &List, block: u32) -> &[(u64, E)] {
        let filled = if block == list.last { list.filled as usize } else { BLOCK };
        &self.blocks[block as usize].0[..filled]
    }
}

/// Slots that have events, and words of these bits that are not zero.
#[derive(Clone, Copy, Debug, Default)]
struct Occupied {
    words: u64,
    slots: [u64; WORDS],
}

impl Occupied {
    fn set(&mut self, slot: usize) {
        self.words |= 1 << (slot / 64);
        self.slots[slot / 64] |= 1 << (slot % 64);
    }

    fn clear(&mut self, slot: usize) {
        self.slots[slot / 64] &= !(1 << (slot % 64));
        if self.slots[slot / 64] == 0 {
            self.words &= !(1 << (slot / 64));
        }
    }

    /// The first slot that has events.
    fn first(&self) -> Option<usize> {
        if self.words == 0 {
            return None;
        }
        let word = self.words.trailing_zeros() as usize;
        Some(word * 64 + self.slots[word].trailing_zeros() as usize)
    }
}

/// Events with their due times.
///
/// Calling order: [`insert`](EventQueue::insert) no event before the present, which is the time of the last
/// event taken; [`pop`](EventQueue::pop) returns them in order of time and, within a nanosecond, of
/// insertion.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    now: u64,
    /// All events up to this time, in order; `served` of them have already been taken.
    present: Vec<(u64, E)>,
    present_end: u64,
    served: usize,
    occupied: [Occupied; LEVELS],
    slots: Vec<List>,
    blocks: Blocks<E>,
    len: usize,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue {
            now: 0,
            present: Vec::new(),
            present_end: slot_end(0, 0),
            served: 0,
            occupied: [Occupied::default(); LEVELS],
            slots: vec![List::EMPTY; LEVELS * SLOTS],
            blocks: Blocks { blocks: Vec::new(), next: Vec::new(), free: NONE },
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
        if time > self.present_end {
            return self.place(time, event);
        }
        // After those of the same nanosecond. Most often all others are earlier.
        let waiting = &self.present[self.served..];
        let later = waiting.iter().rev().take_while(|(other, _)| *other > time).count();
        self.present.insert(self.present.len() - later, (time, event));
        if self.present.len() > 2 * BLOCK {
            self.shorten_present();
        }
    }

    /// Keeps the row of the present short: removes taken events. Events that are not of the finest slot move
    /// into slots, if they are too many to sort one by one.
    #[cold]
    fn shorten_present(&mut self) {
        let finest_end = slot_end(self.now, 0);
        let is_finest = self.present_end == finest_end;
        if is_finest && self.served < self.present.len() / 2 {
            return;
        }
        self.present.drain(..self.served);
        self.served = 0;
        if is_finest || self.present.len() <= BLOCK {
            return;
        }
        self.present_end = finest_end;
        let kept = self.present.partition_point(|(time, _)| *time <= finest_end);
        for at in kept..self.present.len() {
            let (time, event) = self.present[at];
            self.place(time, event);
        }
        self.present.truncate(kept);
    }

    /// Puts a later event into its slot.
    fn place(&mut self, time: u64, event: E) {
        let level = (63 - FINE - (time ^ self.now).leading_zeros()) / BITS;
        let slot = (time >> (FINE + level * BITS)) as usize % SLOTS;
        let level = level as usize;
        self.occupied[level].set(slot);
        self.blocks.push(&mut self.slots[level * SLOTS + slot], time, event);
    }

    /// Takes the next event that is due at `limit` or before, with its time.
    pub fn pop(&mut self, limit: Timestamp) -> Option<(Timestamp, E)> {
        self.pop_expecting(limit, |_| ()).map(|(time, event)| (time, *event))
    }

    /// Like [`pop`](EventQueue::pop), and shows events that come within two microseconds: all that do at
    /// once. It is a hint for prefetching memory, all of it at the same time. Some events are never shown,
    /// and those shown may come late.
    #[inline]
    pub fn pop_expecting(
        &mut self,
        limit: Timestamp,
        expect: impl FnMut(&E),
    ) -> Option<(Timestamp, &E)> {
        if self.served == self.present.len() {
            self.advance(limit.as_nanos(), expect)?;
        }
        let (time, event) = &self.present[self.served];
        if *time > limit.as_nanos() {
            return None;
        }
        self.served += 1;
        self.now = *time;
        self.len -= 1;
        Some((Timestamp::from_nanos(*time), event))
    }

    /// Moves on to the next events, if they are due at `limit` or before.
    fn advance(&mut self, limit: u64, mut expect: impl FnMut(&E)) -> Option<()> {
        self.present.clear();
        self.served = 0;
        while self.present.is_empty() {
            let (level, slot) = self.nearest()?;
            let list = self.slots[level * SLOTS + slot];
            if list.earliest > limit {
                return None;
            }
            self.slots[level * SLOTS + slot] = List::EMPTY;
            self.occupied[level].clear(slot);
            self.now = list.earliest;
            if level == 0 || list.first == list.last {
                // Sorting a few events is as fast here as on the levels below.
                self.present_end = slot_end(self.now, level as u32);
                self.take_all(list);
            } else {
                self.present_end = slot_end(self.now, 0);
                self.move_down(list);
            }
        }
        // Stable: those of a nanosecond stay as they were inserted.
        self.present.sort_by_key(|(time, _)| *time);
        // With few events, there are not enough flows to need a prefetch.
        let is_crowded = self.present.len() > 1 && self.present_end == slot_end(self.now, 0);
        if is_crowded {
            self.present.iter().for_each(|(_, event)| expect(event));
        }
        Some(())
    }

    /// The level and the slot of the next events after the present.
    fn nearest(&self) -> Option<(usize, usize)> {
        let levels = self.occupied.iter().enumerate();
        levels.into_iter().find_map(|(level, occupied)| Some((level, occupied.first()?)))
    }

    /// Takes the events of a list into the present.
    fn take_all(&mut self, list: List) {
        let mut block = list.first;
        loop {
            self.present.extend_from_slice(self.blocks.events(&list, block));
            let is_last = block == list.last;
            block = self.blocks.release(block);
            if is_last {
                return;
            }
        }
    }

    /// Puts the events of a list into their present slots.
    fn move_down(&mut self, list: List) {
        let mut block = list.first;
        loop {
            for at in 0..self.blocks.events(&list, block).len() {
                let (time, event) = self.blocks.blocks[block as usize].0[at];
                if time > self.present_end {
                    self.place(time, event);
                } else {
                    self.present.push((time, event));
                }
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
    fn simultaneous_events_keep_insertion_order() {
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
                // Later insertions for the present come after it.
                queue.insert(time, 40);
            }
            assert_eq!(queue.pop(Timestamp::FAR_FUTURE), Some((time, event)));
        }
        assert_eq!(queue.pop(Timestamp::FAR_FUTURE), Some((time, 40)));
        assert!(queue.is_empty());
    }

    #[test]
    fn nothing_beyond_the_limit_is_taken() {
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
    fn near_events_are_visible_before_the_first_is_taken() {
        let mut queue = EventQueue::default();
        // A slot of the finest level, with more events than a block holds.
        for event in 0..40 {
            queue.insert(at(8_192 + event * 32), event);
        }
        let mut shown = Vec::new();
        let first = queue.pop_expecting(Timestamp::FAR_FUTURE, |event| shown.push(*event));
        assert_eq!(first, Some((at(8_192), &0)));
        assert_eq!(shown, (0..40).collect::<Vec<_>>());
        for event in 1..40 {
            let next = queue.pop_expecting(Timestamp::FAR_FUTURE, |_| panic!("shown again"));
            assert_eq!(next, Some((at(8_192 + event * 32), &event)));
        }
    }

    #[test]
    fn sparse_calendar_accepts_a_crowd_of_events() {
        let mut random = Random::new(1);
        let mut queue = EventQueue::default();
        queue.insert(at(600_000_000), 0);
        queue.insert(at(1_000_000_000), 1);
        assert_eq!(queue.pop(Timestamp::FAR_FUTURE), Some((at(600_000_000), 0)));
        let mut crowd: Vec<_> =
            (2..500).map(|event| (600_000_000 + random.below(1_000) * 390_000, event)).collect();
        for &(time, event) in &crowd {
            queue.insert(at(time), event);
        }
        assert!(queue.present.len() <= 2 * BLOCK, "{} kept in order", queue.present.len());
        crowd.push((1_000_000_000, 1));
        crowd.sort_by_key(|(time, _)| *time);
        for (time, event) in crowd {
            assert_eq!(queue.pop(Timestamp::FAR_FUTURE), Some((at(time), event)));
        }
        assert!(queue.is_empty());
    }

    #[test]
    fn taken_events_are_forgotten() {
        let mut queue = EventQueue::default();
        queue.insert(at(1 << 60), 0);
        queue.pop(Timestamp::FAR_FUTURE);
        // Always two waiting events, in a slot of years.
        queue.insert(at((1 << 60) + 1), 0);
        for time in 2..10_000 {
            queue.insert(at((1 << 60) + time), 0);
            queue.pop(Timestamp::FAR_FUTURE);
        }
        assert!(queue.present.len() <= 3 * BLOCK, "{} kept", queue.present.len());
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
    fn event_in_the_past_is_rejected() {
        let mut queue = EventQueue::default();
        queue.insert(at(10), ());
        queue.pop(Timestamp::FAR_FUTURE);
        queue.insert(at(9), ());
    }

    #[test]
    fn queue_agrees_with_a_binary_heap() {
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
