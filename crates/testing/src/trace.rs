//! Generated histories of a connection, for tests of congestion controllers.
//!
//! A history depends only on its seed and its length. It does not react to the controller that it is given
//! to, so the same one can be given to two of them.

use core::num::NonZeroU32;
use core::time::Duration;

use lull_cc::{Ack, Controller, Timestamp};

/// A small random number generator: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; zero if `bound` is zero.
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// `true` once in `of` times.
    pub fn one_in(&mut self, of: u32) -> bool {
        self.below(of) == 0
    }
}

/// The seed of this run: `LULL_SEED`, otherwise a fixed one. Print it when a test fails.
///
/// # Panics
/// If `LULL_SEED` is set and is not a number.
pub fn seed() -> u64 {
    match std::env::var("LULL_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("LULL_SEED={text} is not a number")),
        Err(_) => 0x6c75_6c6c,
    }
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An acknowledgement.
    Ack(Ack),
    /// A loss found without one.
    Loss(Timestamp, u32),
    /// A congestion mark.
    Mark(Timestamp, u32),
    /// The retransmission timer.
    Timeout(Timestamp, u32),
    /// Sending again after a pause.
    Idle(Timestamp),
}

impl Event {
    /// Passes the event to the controller.
    pub fn feed(&self, controller: &mut impl Controller) {
        match *self {
            Event::Ack(ref ack) => controller.handle_ack(ack),
            Event::Loss(now, delivered) => controller.handle_loss(now, delivered),
            Event::Mark(now, delivered) => controller.handle_mark(now, delivered),
            Event::Timeout(now, delivered) => controller.handle_timeout(now, delivered),
            Event::Idle(now) => controller.handle_idle(now),
        }
    }
}

/// A history of rounds over a path with a varying queue, with route changes, losses, marks, timeouts, pauses,
/// delayed acknowledgements, and counts that wrap around.
#[derive(Debug)]
pub struct History {
    random: Random,
    now: Timestamp,
    delivered: u32,
    round_start: u32,
    left_in_round: u32,
    base_rtt: u32,
    queue: u32,
    buffer: u32,
    /// Share of events that follow no path at all, one in this many.
    wild: u32,
}

impl History {
    /// A history that a path could have had.
    pub fn plausible(seed: u64) -> Self {
        Self::new(seed, 100_000)
    }

    /// A history with any events and values that the types allow.
    pub fn wild(seed: u64) -> Self {
        Self::new(seed, 3)
    }

    fn new(seed: u64, wild: u32) -> Self {
        let mut random = Random::new(seed);
        // Start before the wrap, so that every history passes it.
        let delivered = u32::MAX - random.below(5_000);
        let now = Timestamp::from_micros(1_000_000 + u64::from(random.below(1 << 30)));
        let mut history = History {
            random,
            now,
            delivered,
            round_start: delivered,
            left_in_round: 0,
            base_rtt: 0,
            queue: 0,
            buffer: 0,
            wild,
        };
        history.change_route();
        history
    }

    fn change_route(&mut self) {
        // 50 µs to about 800 ms, with equal probability for each order of magnitude.
        let scale = 1 << self.random.below(15);
        self.base_rtt = 50 * scale / 2 + self.random.below(50 * scale / 2 + 1) + 25;
        self.buffer = self.base_rtt / 8 + self.random.below(4 * self.base_rtt);
        self.queue = 0;
    }

    fn wild_ack(&mut self) -> Ack {
        let random = &mut self.random;
        self.now += Duration::from_micros(u64::from(random.below(20_000_000)));
        let acked = random.below(70);
        self.delivered = self.delivered.wrapping_add(acked);
        let rtt = match random.below(4) {
            0 => 0,
            1 => random.below(1 << 12),
            2 => random.below(1 << 26),
            _ => u32::MAX - random.below(10),
        };
        Ack {
            now: self.now,
            delivered: self.delivered,
            prior_delivered: self.delivered.wrapping_sub(acked + random.below(200)),
            acked,
            lost: random.below(8).saturating_sub(5),
            lost_in_recovery: acked / 30,
            in_flight: random.below(100),
            rtt_micros: NonZeroU32::new(rtt),
            one_way_micros: Some(random.below(u32::MAX)).filter(|_| !random.one_in(5)),
            interval_micros: NonZeroU32::new(random.below(1 << 26)),
            app_limited: random.one_in(5),
            maybe_delayed: random.one_in(5),
            is_small: random.one_in(5),
        }
    }

    fn path_ack(&mut self) -> Ack {
        if self.left_in_round == 0 {
            let random = &mut self.random;
            let magnitude = random.below(8);
            self.left_in_round = 1 + random.below(1 << magnitude);
            self.round_start = self.delivered;
            // The queue changes by up to a quarter of the buffer a round.
            let step = random.below(self.buffer / 2 + 1);
            self.queue = (self.queue + step).saturating_sub(self.buffer / 4).min(self.buffer);
        }
        let acked = (1 + self.random.below(4)).min(self.left_in_round);
        let in_flight = self.left_in_round;
        self.left_in_round -= acked;
        self.delivered = self.delivered.wrapping_add(acked);
        let jitter = self.random.below(self.base_rtt / 50 + 2);
        let rtt = self.base_rtt + self.queue + jitter;
        self.now += Duration::from_micros(u64::from(rtt / (1 + self.random.below(16))));
        let overflows = self.queue == self.buffer && self.random.one_in(3);
        let one_way = self.base_rtt / 2 + self.queue + jitter / 2;
        let interval = rtt.max(self.base_rtt + self.queue);
        Ack {
            now: self.now,
            delivered: self.delivered,
            prior_delivered: self.round_start,
            acked,
            lost: u32::from(overflows || self.random.one_in(2_000)),
            lost_in_recovery: 0,
            in_flight,
            rtt_micros: NonZeroU32::new(rtt).filter(|_| !self.random.one_in(20)),
            one_way_micros: Some(one_way),
            interval_micros: NonZeroU32::new(interval),
            app_limited: self.random.one_in(10),
            maybe_delayed: in_flight == 1,
            is_small: self.random.one_in(50),
        }
    }
}

impl Iterator for History {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        Some(match self.random.below(3_000) {
            0 => Event::Timeout(self.now, self.delivered),
            1..4 => Event::Mark(self.now, self.delivered),
            4..8 => Event::Loss(self.now, self.delivered),
            8 => {
                self.now += Duration::from_millis(u64::from(self.random.below(60_000)));
                Event::Idle(self.now)
            }
            9 if self.random.one_in(4) => {
                self.change_route();
                Event::Ack(self.path_ack())
            }
            _ if self.random.one_in(self.wild) => Event::Ack(self.wild_ack()),
            _ => Event::Ack(self.path_ack()),
        })
    }
}
