//! Packets under way, in the order of their arrival.
//!
//! A link with few of them keeps them in a pool that all links share: a list through its places, of
//! which the one that was left last is taken first. So thousands of links with a packet each share a
//! few pages of memory that stay in the processor's cache, where buffers of their own would push
//! each other out. A link that once had many has a ring of its own instead: what it delivers next
//! lies beside what it has delivered, where the processor looks for it by itself, and not anywhere
//! in the pool.

use std::collections::VecDeque;

use lull_cc::Timestamp;

use crate::packet::Packet;

/// The end of a list.
const NONE: u32 = u32::MAX;
/// In place of a list's last: it is a ring, and this is its number in place of the first.
const RING: u32 = u32::MAX - 1;

/// The most packets that a list in the pool holds.
const SHORT: u32 = 64;

/// A packet under way: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Place {
    arrives: Timestamp,
    packet: Packet,
    next: u32,
}

/// The pool, and the rings.
#[derive(Debug)]
pub(super) struct Pool {
    places: Vec<Place>,
    /// The list of places that are free.
    free: u32,
    rings: Vec<VecDeque<(Timestamp, Packet)>>,
}

impl Default for Pool {
    fn default() -> Self {
        Pool { places: Vec::new(), free: NONE, rings: Vec::new() }
    }
}

/// The packets of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    first: u32,
    last: u32,
    /// How many the list holds; a ring knows by itself.
    count: u32,
}

impl Lane {
    pub(super) const EMPTY: Lane = Lane { first: NONE, last: NONE, count: 0 };

    pub(super) fn is_empty(&self, pool: &Pool) -> bool {
        match self.last {
            RING => pool.rings[self.first as usize].is_empty(),
            _ => self.first == NONE,
        }
    }

    /// Puts a packet at the end of the lane, where it arrives no sooner than any other.
    pub(super) fn push(&mut self, pool: &mut Pool, arrives: Timestamp, packet: Packet) {
        if self.count == SHORT {
            self.become_ring(pool);
        }
        if self.last == RING {
            let ring = &mut pool.rings[self.first as usize];
            debug_assert!(ring.back().is_none_or(|(last, _)| *last <= arrives), "{OVERTAKEN}");
            ring.push_back((arrives, packet));
            return;
        }
        let place = Place { arrives, packet, next: NONE };
        let at = pool.free;
        let at = if at == NONE {
            let at = u32::try_from(pool.places.len()).ok().filter(|&at| at < RING);
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
            debug_assert!(last.arrives <= arrives, "{OVERTAKEN}");
            last.next = at;
        }
        self.last = at;
        self.count += 1;
    }

    fn become_ring(&mut self, pool: &mut Pool) {
        let mut ring = VecDeque::with_capacity(2 * SHORT as usize);
        while let Some(packet) = self.pop(pool) {
            ring.push_back(packet);
        }
        let number = u32::try_from(pool.rings.len()).expect("four thousand million links");
        pool.rings.push(ring);
        *self = Lane { first: number, last: RING, count: 0 };
    }

    /// When the first packet arrives.
    pub(super) fn due(&self, pool: &Pool) -> Option<Timestamp> {
        match (self.first, self.last) {
            (ring, RING) => pool.rings[ring as usize].front().map(|(arrives, _)| *arrives),
            (NONE, _) => None,
            (first, _) => Some(pool.places[first as usize].arrives),
        }
    }

    /// Takes the first packet, with the time at which it arrives.
    pub(super) fn pop(&mut self, pool: &mut Pool) -> Option<(Timestamp, Packet)> {
        if self.last == RING {
            return pool.rings[self.first as usize].pop_front();
        }
        if self.first == NONE {
            return None;
        }
        let at = self.first;
        let place = &mut pool.places[at as usize];
        self.first = core::mem::replace(&mut place.next, pool.free);
        pool.free = at;
        self.count -= 1;
        Some((place.arrives, place.packet))
    }

    /// Packets in the lane.
    pub(super) fn len(&self, pool: &Pool) -> u64 {
        match self.last {
            RING => pool.rings[self.first as usize].len() as u64,
            _ => u64::from(self.count),
        }
    }
}

const OVERTAKEN: &str = "a packet overtook another on a link";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Body, Owner, TrafficClass};

    #[test]
    fn a_place_is_a_cache_line() {
        assert_eq!(size_of::<Place>(), 64);
    }

    /// Two lanes that take places from one pool, one of which becomes long and short again.
    #[test]
    fn packets_come_out_in_their_order_however_many_there_are() {
        let packet = |number: u32| Packet {
            owner: Owner::new(number, 0),
            hop: 0,
            bytes: 1,
            generation: 0,
            class: TrafficClass::default(),
            body: Body::Syn,
        };
        let mut pool = Pool::default();
        let (mut long, mut other) = (Lane::EMPTY, Lane::EMPTY);
        let mut next = 0;
        let mut expected = 0;
        for (pushed, popped) in [(3, 2), (SHORT, 1), (5 * SHORT, 2), (1, 6 * SHORT), (2, 2)] {
            for _ in 0..pushed {
                long.push(&mut pool, Timestamp::from_nanos(next.into()), packet(next));
                other.push(&mut pool, Timestamp::from_nanos(next.into()), packet(1000 + next));
                assert_eq!(other.pop(&mut pool).unwrap().1.owner.place(), 1000 + next);
                next += 1;
            }
            for _ in 0..popped {
                assert_eq!(long.len(&pool), u64::from(next - expected));
                let due = long.due(&pool);
                assert_eq!(due.is_none(), long.is_empty(&pool));
                let Some((arrives, packet)) = long.pop(&mut pool) else { break };
                assert_eq!((Some(arrives), packet.owner.place()), (due, expected));
                expected += 1;
            }
        }
        assert!(long.is_empty(&pool) && expected == next && other.is_empty(&pool));
    }
}
