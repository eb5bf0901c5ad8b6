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
//! always between the ends of vectors, whatever the number of events waiting: there is no
//! logarithm, and no allocation once the vectors have grown.
//!
//! Events of the same nanosecond come out in the order in which they went in. They can't be told
//! apart by any digit, so they always wait in the same slot, and moving keeps their order.

use lull_cc::Timestamp;

/// Bits of a digit.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// 64 bits of nanoseconds.
const LEVELS: usize = 64usize.div_ceil(BITS as usize);

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
    slots: Vec<Vec<(u64, E)>>,
    /// Events of the present, in order, up to `served` already taken.
    present: Vec<(u64, E)>,
    served: usize,
    /// A slot on its way to finer levels.
    moving: Vec<(u64, E)>,
    len: usize,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue {
            now: 0,
            levels: 0,
            occupied: [0; LEVELS],
            slots: core::iter::repeat_with(Vec::new).take(LEVELS * SLOTS).collect(),
            present: Vec::new(),
            served: 0,
            moving: Vec::new(),
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
        self.slots[level * SLOTS + slot].push((time, event));
    }

    /// Takes the next event that is due at `limit` or before, with its time.
    pub fn pop(&mut self, limit: Timestamp) -> Option<(Timestamp, E)> {
        let limit = limit.as_nanos();
        let (time, event) = self.next(limit)?;
        self.len -= 1;
        Some((Timestamp::from_nanos(time), event))
    }

    /// An event that is likely to be the next one, or one of the next: a guess that costs nothing.
    pub fn upcoming(&self) -> Option<E> {
        if let Some(&(_, event)) = self.present.get(self.served) {
            return Some(event);
        }
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let slot = self.occupied[level].trailing_zeros() as usize;
        self.slots[level * SLOTS + slot].first().map(|&(_, event)| event)
    }

    fn next(&mut self, limit: u64) -> Option<(u64, E)> {
        loop {
            if let Some(&(time, event)) = self.present.get(self.served) {
                if time > limit {
                    return None;
                }
                self.served += 1;
                return Some((time, event));
            }
            if self.levels == 0 {
                return None;
            }
            let level = self.levels.trailing_zeros() as usize;
            let slot = self.occupied[level].trailing_zeros() as usize;
            let index = level * SLOTS + slot;
            if let [(time, event)] = self.slots[index][..] {
                // Alone in its slot, it is the next one, and need not pass the levels below.
                if time > limit {
                    return None;
                }
                self.slots[index].clear();
                self.vacate(level, slot);
                self.now = time;
                return Some((time, event));
            }
            let earliest = self.slots[index].iter().map(|&(time, _)| time).min()?;
            if earliest > limit {
                return None;
            }
            self.vacate(level, slot);
            self.now = earliest;
            if level == 0 {
                self.present.clear();
                self.served = 0;
                core::mem::swap(&mut self.present, &mut self.slots[index]);
                continue;
            }
            core::mem::swap(&mut self.moving, &mut self.slots[index]);
            for at in 0..self.moving.len() {
                let (time, event) = self.moving[at];
                self.place(time, event);
            }
            self.moving.clear();
        }
    }

    fn vacate(&mut self, level: usize, slot: usize) {
        self.occupied[level] &= !(1 << slot);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
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
    fn the_upcoming_event_of_a_single_one_is_that() {
        let mut queue = EventQueue::default();
        assert_eq!(queue.upcoming(), None);
        queue.insert(at(70_000), 'a');
        assert_eq!(queue.upcoming(), Some('a'));
        assert_eq!(queue.len(), 1);
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
