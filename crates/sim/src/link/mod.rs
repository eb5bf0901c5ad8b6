//! Links: a queue, a rate, a propagation delay, in one direction.
//!
//! A link has no event when a packet has been sent. When a packet arrives, or another one is delivered, the
//! link first catches up. Packets that could leave before now are taken from the queue at exactly the times
//! at which the link became free. So the discipline sees the same calls as if each had its own event. A
//! packet in flight is one event, its delivery.
//!
//! A packet that arrives in the nanosecond in which the link becomes free finds it free.
//!
//! Observers of a link see it caught up as well. But packets that have left since are not put on the wire
//! earlier, because events of one nanosecond would change their order.

use core::time::Duration;

use lull_cc::{Rate, Timestamp};
use serde::{Deserialize, Serialize};

use crate::memory::bytes_of;
use crate::packet::Packet;
use crate::queue::{Dequeued, Discipline, Effects, Limit, Queue, Verdict};
use crate::random::Random;
use crate::trace::Trace;

mod service;
mod statistics;

use service::TraceService;
pub use statistics::{ClassDelay, ClassDelays, LinkCounters};

/// The parameters of a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkParameters {
    /// Bits per second; none for a link that carries any number of packets at once, and therefore has no
    /// queue.
    #[serde(default)]
    pub bits_per_second: Option<u64>,
    /// Propagation delay in nanoseconds.
    #[serde(default)]
    pub delay_nanos: u64,
    /// The queue discipline.
    #[serde(default)]
    pub discipline: Discipline,
    /// The buffer's size; the packet being sent does not count.
    #[serde(default = "unlimited")]
    pub buffer: Limit,
    /// Losses that are independent of the queue.
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

    /// A link that only delays.
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

/// The state that a link needs for every packet: a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Link {
    /// Bits per second; zero for none.
    rate: u64,
    delay: u64,
    /// When the packet being sent has left. After that, the link is free.
    free_at: u64,
    arrived: u64,
    delivered: u64,
    sent_bytes: u64,
    /// Packets in flight.
    in_flight: u32,
    /// Packets up to this length bypass an empty queue, which would return them unchanged. Zero for
    /// disciplines that observe every packet.
    bypass_bytes: u16,
    /// The discipline knows that the link is free and nothing waits.
    idle: bool,
    /// A packet waits, or the discipline does not know yet that none does.
    backlogged: bool,
    /// An observer has read the state, and [`Rare::seen`] must be put on the wire.
    was_seen: bool,
    /// [`Rare::trace`] decides when packets leave, not the rate.
    follows_trace: bool,
}

const _: () = assert!(size_of::<Link>() == 64, "a link is a cache line");

/// The state that a link needs if packets wait, are lost or are measured. An access link without congestion
/// does not touch it: thousands of them must not evict each other from the cache.
#[derive(Debug)]
struct Rare {
    loss: Loss,
    lost: u64,
    dropped: u64,
    marked: u64,
    queue: Queue<Packet>,
    effects: Effects<Packet>,
    random: Random,
    delays: Option<Box<ClassDelays>>,
    /// The packets that left during catching up for an observer.
    seen: CarriedPackets,
    trace: Option<TraceService>,
}

/// Packets that must be put on a wire, with the times at which they reach its end.
#[derive(Debug, Default)]
struct CarriedPackets(Vec<(Timestamp, Packet)>);

impl Wire for CarriedPackets {
    fn carry(&mut self, arrives: Timestamp, packet: &Packet) {
        self.0.push((arrives, *packet));
    }
}

/// Links in operation, by number.
///
/// Calling order for each link, with `now` never before that of an earlier call: [`arrive`](Links::arrive)
/// when a packet comes; [`deliver`](Links::deliver) when a packet that the link has put on a [`Wire`] reaches
/// its end.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: Vec<Link>,
    rare: Vec<Rare>,
}

/// Carries packets from their departure to the end of the link.
pub(crate) trait Wire {
    /// A packet has left, and reaches the end of its link at `arrives`, in order with all others.
    fn carry(&mut self, arrives: Timestamp, packet: &Packet);
}

impl Links {
    /// Adds an empty link. `seed` is for the discipline and the losses.
    pub(crate) fn add(&mut self, parameters: &LinkParameters, seed: u64) {
        let LinkParameters { bits_per_second, delay_nanos, discipline, buffer, loss } = *parameters;
        assert!(bits_per_second != Some(0), "a link of no rate never sends anything");
        let bypass_bytes = match (discipline, buffer) {
            _ if loss != Loss::None => 0,
            (Discipline::Red(_) | Discipline::Codel(_), _) => 0,
            (Discipline::FqCodel(_) | Discipline::Tins(_), _) => 0,
            (_, Limit::Packets(0)) => 0,
            (_, Limit::Packets(_)) => u16::MAX,
            (_, Limit::Bytes(bytes)) => u16::try_from(bytes).unwrap_or(u16::MAX),
        };
        let mut random = Random::new(seed);
        self.links.push(Link {
            rate: bits_per_second.unwrap_or(0),
            delay: delay_nanos,
            free_at: 0,
            arrived: 0,
            delivered: 0,
            sent_bytes: 0,
            in_flight: 0,
            bypass_bytes,
            idle: true,
            backlogged: false,
            was_seen: false,
            follows_trace: false,
        });
        self.rare.push(Rare {
            loss,
            lost: 0,
            dropped: 0,
            marked: 0,
            queue: discipline.queue(buffer, random.bits()),
            effects: Effects::default(),
            random,
            delays: None,
            seen: CarriedPackets::default(),
            trace: None,
        });
    }

    /// The number of links.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Measures the queueing delay of each class of a link from now on.
    pub(crate) fn observe(&mut self, link: usize) {
        // Also for packets that do not wait.
        self.links[link].bypass_bytes = 0;
        self.rare[link].delays = Some(Box::default());
    }

    /// Makes a link follow a trace.
    pub(crate) fn follow_trace(&mut self, link: usize, trace: Trace) {
        let (link, rare) = (&mut self.links[link], &mut self.rare[link]);
        assert!(link.rate > 0 && link.arrived == 0, "a link follows a trace from its first packet");
        link.bypass_bytes = 0;
        link.follows_trace = true;
        rare.trace = Some(TraceService::new(trace));
    }

    /// Packets sent from `now` on take this many nanoseconds.
    pub(crate) fn set_delay(
        &mut self,
        wire: &mut impl Wire,
        link: usize,
        now: Timestamp,
        nanos: u64,
    ) {
        let (link, rare) = (&mut self.links[link], &mut self.rare[link]);
        link.catch_up(rare, wire, now.as_nanos());
        link.delay = nanos;
    }

    /// For an observed link: counts drops within this many nanoseconds of the first as one overflow.
    pub(crate) fn set_overflow(&mut self, link: usize, lasts_nanos: u64) {
        if let Some(delays) = &mut self.rare[link].delays {
            delays.set_overflow(lasts_nanos);
        }
    }

    /// The measurements, including packets that have left the queue by `now`.
    pub(crate) fn delays(&mut self, link: usize, now: Timestamp) -> Option<&ClassDelays> {
        self.links[link].preview(&mut self.rare[link], now.as_nanos());
        self.rare[link].delays.as_deref()
    }

    /// All counters so far, with the queue at `now`.
    pub(crate) fn counters(&mut self, link: usize, now: Timestamp) -> LinkCounters {
        let (link, rare) = (&mut self.links[link], &mut self.rare[link]);
        link.preview(rare, now.as_nanos());
        LinkCounters {
            arrived: link.arrived,
            lost: rare.lost,
            dropped: rare.dropped,
            marked: rare.marked,
            delivered: link.delivered,
            queued: rare.queue.packets(),
            queued_bytes: rare.queue.bytes().0,
            in_flight: u64::from(link.in_flight),
            sent_bytes: link.sent_bytes,
        }
    }

    /// Memory of all links, including waiting packets.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let waiting = self.rare.iter().map(|rare| rare.queue.packets()).sum::<u64>();
        bytes_of::<Link>(self.links.len())
            + bytes_of::<Rare>(self.rare.len())
            + bytes_of::<(Timestamp, Packet)>(waiting as usize)
    }

    /// Prefetches the memory that an arrival or a delivery will need.
    pub(crate) fn touch(&self, link: u32) {
        core::hint::black_box(self.links[link as usize].free_at);
    }

    /// A packet arrives.
    pub(crate) fn arrive(
        &mut self,
        wire: &mut impl Wire,
        link: u32,
        now: Timestamp,
        packet: &Packet,
    ) {
        let (link, rare) = (&mut self.links[link as usize], &mut self.rare[link as usize]);
        link.arrived += 1;
        link.catch_up(rare, wire, now.as_nanos());
        if link.idle && packet.bytes <= link.bypass_bytes {
            link.transmit(wire, now.as_nanos(), packet);
        } else {
            link.arrive_slowly(rare, wire, now, packet);
        }
    }

    /// A packet has reached the end of the link.
    pub(crate) fn deliver(&mut self, wire: &mut impl Wire, link: u32, now: Timestamp) {
        let (link, rare) = (&mut self.links[link as usize], &mut self.rare[link as usize]);
        assert!(link.in_flight > 0, "a link delivered what it had not sent");
        link.in_flight -= 1;
        link.delivered += 1;
        link.catch_up(rare, wire, now.as_nanos());
        // The last packet in flight left when the link became free. So without one, the link has been free by
        // now, and nothing can wait.
        debug_assert!(link.in_flight > 0 || rare.queue.is_empty(), "a free link left packets");
    }
}

impl Link {
    fn arrive_slowly(
        &mut self,
        rare: &mut Rare,
        wire: &mut impl Wire,
        now: Timestamp,
        packet: &Packet,
    ) {
        if rare.is_lost(self.arrived) {
            rare.lost += 1;
            return;
        }
        if self.rate == 0 {
            rare.record(packet, 0);
            return self.transmit(wire, now.as_nanos(), packet);
        }
        let verdict = rare.queue.enqueue(now, *packet, &mut rare.effects);
        // FQ-CoDel drops other packets than the arriving one.
        if verdict != Verdict::Queued || !rare.effects.dropped.is_empty() {
            rare.take_effects(now.as_nanos());
        }
        // Also if it was dropped: the discipline must learn again that nothing waits.
        self.idle = false;
        self.backlogged = true;
        self.catch_up(rare, wire, now.as_nanos());
    }

    /// Takes packets from the queue that have left it by now.
    fn catch_up(&mut self, rare: &mut Rare, wire: &mut impl Wire, now: u64) {
        if self.was_seen {
            self.was_seen = false;
            for (arrives, packet) in rare.seen.0.drain(..) {
                wire.carry(arrives, &packet);
            }
        }
        self.move_on(rare, wire, now);
    }

    /// The same for an observer, without an effect outside of the link.
    fn preview(&mut self, rare: &mut Rare, now: u64) {
        let mut seen = core::mem::take(&mut rare.seen);
        self.move_on(rare, &mut seen, now);
        self.was_seen = !seen.0.is_empty();
        rare.seen = seen;
    }

    fn move_on(&mut self, rare: &mut Rare, wire: &mut impl Wire, now: u64) {
        if self.free_at > now {
            return;
        }
        if self.backlogged {
            self.drain(rare, wire, now);
        } else {
            self.idle = true;
        }
        if self.idle {
            // A later packet starts when it arrives.
            self.free_at = now;
        }
    }

    fn drain(&mut self, rare: &mut Rare, wire: &mut impl Wire, now: u64) {
        while self.backlogged && self.free_at <= now {
            let start = self.free_at;
            let dequeued = rare.queue.dequeue(Timestamp::from_nanos(start), &mut rare.effects);
            if !rare.effects.dropped.is_empty() || rare.effects.marked > 0 {
                rare.take_effects(start);
            }
            match dequeued {
                Some(Dequeued { packet, waited }) => {
                    rare.record(&packet, waited.as_nanos() as u64);
                    match &mut rare.trace {
                        Some(trace) => {
                            let leaves = trace.serve(start, packet.bytes);
                            self.put_on(wire, leaves, &packet);
                        }
                        None => self.transmit(wire, start, &packet),
                    }
                }
                None => {
                    self.idle = true;
                    self.backlogged = false;
                }
            }
        }
    }

    fn transmit(&mut self, wire: &mut impl Wire, start: u64, packet: &Packet) {
        let mut leaves = self.free_at;
        if self.rate > 0 {
            self.idle = false;
            leaves = start + serialization_nanos(packet.bytes, self.rate);
        }
        self.put_on(wire, leaves, packet);
    }

    fn put_on(&mut self, wire: &mut impl Wire, leaves: u64, packet: &Packet) {
        self.sent_bytes += u64::from(packet.bytes);
        self.free_at = leaves;
        self.in_flight += 1;
        wire.carry(Timestamp::from_nanos(self.free_at + self.delay), packet);
    }
}

impl Rare {
    fn is_lost(&mut self, arrived: u64) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::EveryNth(n) => n > 0 && arrived.is_multiple_of(n),
            Loss::Bernoulli(probability) => self.random.uniform() < probability,
        }
    }

    fn record(&mut self, packet: &Packet, waited: u64) {
        if let Some(delays) = &mut self.delays {
            delays.record(packet, waited);
        }
    }

    fn take_effects(&mut self, now: u64) {
        self.dropped += self.effects.dropped.len() as u64;
        self.marked += self.effects.marked;
        if let Some(delays) = &mut self.delays {
            for dropped in &self.effects.dropped {
                delays.record_drop(&dropped.packet, now);
            }
        }
        self.effects.dropped.clear();
        self.effects.marked = 0;
    }
}

/// How long the link is busy with a packet, rounded up to the next nanosecond.
fn serialization_nanos(bytes: u16, rate: u64) -> u64 {
    // The same as `Rate::time_for`, in 64 bits.
    (u64::from(bytes) * 8_000_000_000).div_ceil(rate)
}

#[cfg(test)]
mod tests;
