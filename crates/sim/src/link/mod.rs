//! Links: a queue, a rate, a propagation delay, in one direction.
//!
//! A link does not wake up when a packet has been sent. When a packet arrives, or another one is
//! delivered, it first catches up: whatever became free before now is taken from the queue at the
//! very times at which the link became free, so the discipline sees the calls that it would see
//! if each had an event of its own. Packets under way lie in one lane in order, so that the event
//! queue holds one entry a link, and one event a packet.
//!
//! A packet that arrives in the nanosecond in which the link becomes free finds it free.

use std::collections::VecDeque;

use core::time::Duration;

use lull_cc::{Rate, Timestamp};
use serde::{Deserialize, Serialize};

use crate::packet::Packet;
use crate::queue::{Discipline, Effects, Limit, Queue, QueuedPacket, Verdict};
use crate::random::Random;

mod statistics;

pub use statistics::{ClassDelay, ClassDelays, LinkCounters};

/// A link that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkParameters {
    /// Bits per second; none for a link that takes any number of packets at once, and therefore
    /// has no queue.
    #[serde(default)]
    pub bits_per_second: Option<u64>,
    /// Propagation delay in nanoseconds.
    #[serde(default)]
    pub delay_nanos: u64,
    /// What the queue does.
    #[serde(default)]
    pub discipline: Discipline,
    /// How much may wait; the packet being sent does not count.
    #[serde(default = "unlimited")]
    pub buffer: Limit,
    /// Losses that have nothing to do with the queue.
    #[serde(default)]
    pub loss: Loss,
}

fn unlimited() -> Limit {
    Limit::Packets(u64::MAX)
}

impl LinkParameters {
    /// A link of this rate and delay under drop-tail, with a buffer of `buffer`.
    pub fn drop_tail(rate: Rate, delay: Duration, buffer: Limit) -> Self {
        LinkParameters {
            bits_per_second: Some(rate.bits_per_second()),
            buffer,
            ..Self::delay(delay)
        }
    }

    /// A link that delays and does nothing else.
    pub fn delay(delay: Duration) -> Self {
        LinkParameters {
            bits_per_second: None,
            delay_nanos: u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX),
            discipline: Discipline::DropTail,
            buffer: unlimited(),
            loss: Loss::None,
        }
    }
}

/// Losses on a link, before its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each n-th packet, counting from the first; none if n is zero.
    EveryNth(u64),
    /// Each packet with this probability, independently.
    Bernoulli(f64),
}

/// A packet under way, and when it arrives.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    arrives: Timestamp,
    packet: Packet,
}

/// A link in operation.
///
/// Calling order, with `now` never before that of an earlier call: [`arrive`](Link::arrive) when a
/// packet comes; [`deliver`](Link::deliver) at the time that `arrive` or the last `deliver` gave.
#[derive(Debug)]
pub(crate) struct Link {
    /// Bits per second; zero for none.
    rate: u64,
    delay: u64,
    /// When the packet being sent has left. Beyond it the link is free.
    free_at: u64,
    /// Packets up to this length need not pass the queue when nothing waits: it would hand them
    /// out as they came. Zero for disciplines that learn from every packet.
    bypass_bytes: u32,
    /// The discipline knows that the link is free and nothing waits.
    idle: bool,
    loss: Loss,
    counters: LinkCounters,
    lane: VecDeque<InFlight>,
    queue: Queue<Packet>,
    effects: Effects<Packet>,
    random: Random,
    delays: Option<Box<ClassDelays>>,
}

impl Link {
    /// A link with nothing on it. `seed` feeds the discipline and the losses.
    pub(crate) fn new(parameters: &LinkParameters, seed: u64) -> Self {
        let LinkParameters { bits_per_second, delay_nanos, discipline, buffer, loss } = *parameters;
        assert!(bits_per_second != Some(0), "a link of no rate never sends anything");
        let bypass_bytes = match discipline {
            Discipline::DropTail | Discipline::Priority(_) => match buffer {
                Limit::Packets(0) => 0,
                Limit::Packets(_) => u32::MAX,
                Limit::Bytes(bytes) => u32::try_from(bytes).unwrap_or(u32::MAX),
            },
            Discipline::Red(_) | Discipline::Codel(_) | Discipline::FqCodel(_) => 0,
        };
        let mut random = Random::new(seed);
        Link {
            rate: bits_per_second.unwrap_or(0),
            delay: delay_nanos,
            free_at: 0,
            bypass_bytes,
            idle: true,
            loss,
            counters: LinkCounters::default(),
            lane: VecDeque::new(),
            queue: discipline.queue(buffer, random.bits()),
            effects: Effects::default(),
            random,
            delays: None,
        }
    }

    /// Measures the queueing delay of each class from now on.
    pub(crate) fn observe(&mut self) {
        self.delays = Some(Box::default());
    }

    pub(crate) fn delays(&self) -> Option<&ClassDelays> {
        self.delays.as_deref()
    }

    /// Everything counted so far, with the queue as it is at `now`.
    pub(crate) fn counters(&mut self, now: Timestamp) -> LinkCounters {
        self.catch_up(now.as_nanos());
        LinkCounters {
            queued: self.queue.packets(),
            queued_bytes: self.queue.bytes().0,
            in_flight: self.lane.len() as u64,
            ..self.counters
        }
    }

    /// A packet comes. Gives the time of the next delivery if none was due before.
    pub(crate) fn arrive(&mut self, now: Timestamp, packet: Packet) -> Option<Timestamp> {
        self.counters.arrived += 1;
        if self.is_lost() {
            self.counters.lost += 1;
            return None;
        }
        let was_empty = self.lane.is_empty();
        let now = now.as_nanos();
        if self.rate == 0 {
            self.counters.sent_bytes += u64::from(packet.bytes);
            self.launch(now, packet);
        } else {
            self.catch_up(now);
            if self.idle && packet.bytes <= self.bypass_bytes {
                self.transmit(now, packet, 0);
            } else {
                self.enqueue(now, packet);
            }
        }
        if was_empty { self.lane.front().map(|first| first.arrives) } else { None }
    }

    fn enqueue(&mut self, now: u64, packet: Packet) {
        let verdict = self.queue.enqueue(Timestamp::from_nanos(now), packet, &mut self.effects);
        // FQ-CoDel drops others than the packet that has come.
        if verdict != Verdict::Queued || !self.effects.dropped.is_empty() {
            self.take_effects();
        }
        // Also where it was dropped: the discipline is told anew that nothing waits.
        self.idle = false;
        self.catch_up(now);
    }

    /// The packet whose time has come, and when the next one arrives.
    ///
    /// # Panics
    /// If no packet is due now.
    pub(crate) fn deliver(&mut self, now: Timestamp) -> (Packet, Option<Timestamp>) {
        let first = self.lane.pop_front().filter(|first| first.arrives == now);
        let Some(InFlight { packet, .. }) = first else {
            panic!("no packet of this link is due at {now}");
        };
        self.counters.delivered += 1;
        if self.rate > 0 {
            self.catch_up(now.as_nanos());
        }
        // The last packet of the lane left when the link became free, so with an empty lane the
        // link has been free by now, and nothing can wait.
        debug_assert!(!self.lane.is_empty() || self.queue.is_empty(), "a free link left packets");
        (packet, self.lane.front().map(|next| next.arrives))
    }

    /// Takes from the queue what has left it by now.
    fn catch_up(&mut self, now: u64) {
        while !self.idle && self.free_at <= now {
            let start = Timestamp::from_nanos(self.free_at);
            let dequeued = self.queue.dequeue(start, &mut self.effects);
            if !self.effects.dropped.is_empty() || self.effects.marked > 0 {
                self.take_effects();
            }
            match dequeued {
                Some(dequeued) => {
                    let waited = dequeued.waited.as_nanos() as u64;
                    self.transmit(self.free_at, dequeued.packet, waited);
                }
                None => {
                    self.idle = true;
                    // A packet that comes later starts when it comes.
                    self.free_at = now;
                }
            }
        }
        if self.idle {
            self.free_at = now;
        }
    }

    fn transmit(&mut self, start: u64, packet: Packet, waited: u64) {
        if let Some(delays) = &mut self.delays {
            delays.record(packet.dscp, waited, packet.bytes);
        }
        self.counters.sent_bytes += u64::from(packet.bytes);
        self.idle = false;
        self.free_at = start + serialization_nanos(packet.bytes, self.rate);
        self.launch(self.free_at, packet);
    }

    fn launch(&mut self, leaves: u64, packet: Packet) {
        let arrives = Timestamp::from_nanos(leaves + self.delay);
        self.lane.push_back(InFlight { arrives, packet });
    }

    fn take_effects(&mut self) {
        self.counters.dropped += self.effects.dropped.len() as u64;
        self.counters.marked += self.effects.marked;
        if let Some(delays) = &mut self.delays {
            for dropped in &self.effects.dropped {
                delays.record_drop(dropped.packet.dscp());
            }
        }
        self.effects.dropped.clear();
        self.effects.marked = 0;
    }

    fn is_lost(&mut self) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::EveryNth(n) => n > 0 && self.counters.arrived.is_multiple_of(n),
            Loss::Bernoulli(probability) => self.random.uniform() < probability,
        }
    }
}

/// How long the link is busy with a packet, rounded up to the next nanosecond.
fn serialization_nanos(bytes: u32, rate: u64) -> u64 {
    // 2^32 bytes are below 2^63 / (8 · 10^9) · 2^30: the product fits for every packet of up to
    // two gigabytes, without the 128 bits of `Rate::time_for`.
    debug_assert!(bytes < 1 << 31, "a packet of {bytes} bytes");
    (u64::from(bytes) * 8_000_000_000).div_ceil(rate)
}

#[cfg(test)]
mod tests;
