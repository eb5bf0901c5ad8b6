//! Packets under way, in one pool for all links.
//!
//! A link's packets are a list through the pool, in order of arrival. The place that was left last
//! is taken first, so thousands of links with a packet each share a few pages of memory that stay
//! in the processor's cache, where buffers of their own would push each other out.

use lull_cc::Timestamp;

use crate::packet::Packet;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// A packet under way: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Place {
    arrives: Timestamp,
    packet: Packet,
    next: u32,
}

/// The pool.
#[derive(Debug)]
pub(super) struct Pool {
    places: Vec<Place>,
    /// The list of places that are free.
    free: u32,
}

impl Default for Pool {
    fn default() -> Self {
        Pool { places: Vec::new(), free: NONE }
    }
}

/// A list of packets in the pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    first: u32,
    last: u32,
}

impl Lane {
    pub(super) const EMPTY: Lane = Lane { first: NONE, last: NONE };

    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Puts a packet at the end of the lane, where it arrives no sooner than any other.
    pub(super) fn push(&mut self, pool: &mut Pool, arrives: Timestamp, packet: Packet) {
        let place = Place { arrives, packet, next: NONE };
        let at = pool.free;
        let at = if at == NONE {
            let at = u32::try_from(pool.places.len()).ok().filter(|&at| at != NONE);
            pool.places.push(place);
            at.expect("four thousand million packets")
        } else {
            let free = &mut pool.places[at as usize];
            pool.free = free.next;
            *free = place;
            at
        };
        if self.first == NONE {
            self.first = at;
        } else {
            let last = &mut pool.places[self.last as usize];
            debug_assert!(last.arrives <= arrives, "a packet overtook another on a link");
            last.next = at;
        }
        self.last = at;
    }

    /// When the first packet arrives.
    pub(super) fn due(&self, pool: &Pool) -> Option<Timestamp> {
        (self.first != NONE).then(|| pool.places[self.first as usize].arrives)
    }

    /// Takes the first packet, with the time at which it arrives.
    pub(super) fn pop(&mut self, pool: &mut Pool) -> Option<(Timestamp, Packet)> {
        if self.first == NONE {
            return None;
        }
        let at = self.first;
        let place = &mut pool.places[at as usize];
        self.first = core::mem::replace(&mut place.next, pool.free);
        pool.free = at;
        Some((place.arrives, place.packet))
    }

    /// Packets in the lane, counted one by one.
    pub(super) fn count(&self, pool: &Pool) -> u64 {
        let mut count = 0;
        let mut at = self.first;
        while at != NONE {
            count += 1;
            at = pool.places[at as usize].next;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_cache_line() {
        assert_eq!(size_of::<Place>(), 64);
    }
}
