//! Queue disciplines: the treatment of packets that wait for a router's link.
//!
//! A [`Queue`] is driven by two calls: [`Queue::enqueue`] when a packet arrives and [`Queue::dequeue`] when
//! the link is free. Neither reads a clock. Dropped packets go into [`Effects`], whether on arrival
//! (drop-tail, RED, a full buffer) or on departure (CoDel), so that at any time
//!
//! > packets enqueued = packets dequeued + packets dropped + packets waiting.
//!
//! The packet that the link is sending has been dequeued and does not count against the buffer.

use core::time::Duration;
use std::collections::VecDeque;

use lull_cc::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

mod codel;
mod drop_tail;
mod fq_codel;
mod priority;
mod red;
mod tins;

pub use codel::{Codel, CodelParameters};
pub use drop_tail::DropTail;
pub use fq_codel::{FqCodel, FqCodelParameters};
pub use priority::{Priority, PriorityParameters};
pub use red::{Red, RedParameters};
pub use tins::{Tins, TinsParameters};

/// The DSCP of the lower-effort class (RFC 8622 §4: LE, 000001).
pub const DSCP_LOWER_EFFORT: u8 = 1;

/// Class selector 1, the codepoint that networks used for low-priority data before LE existed
/// (RFC 3662 §4, RFC 8622 §7).
pub const DSCP_CLASS_SELECTOR_1: u8 = 8;

/// The properties of a packet that a discipline needs.
pub trait QueuedPacket {
    /// Its length on the link, headers included.
    fn bytes(&self) -> Bytes;
    /// Its differentiated-services codepoint, 0 to 63 (RFC 2474 §3).
    fn dscp(&self) -> u8;
    /// Whether it carries ECT(0), ECT(1) or CE, so that it may be marked instead of dropped (RFC 3168 §5).
    fn ecn_capable(&self) -> bool;
    /// Sets "congestion experienced" (RFC 3168 §5); called only for ECN-capable packets.
    fn mark_ce(&mut self);
    /// A number that is the same for all packets of a flow and different for most other flows.
    fn flow(&self) -> u64;
}

/// The size of a queue's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// At most this many bytes.
    Bytes(u64),
    /// At most this many packets.
    Packets(u64),
}

impl Limit {
    /// The limit's number, in its unit.
    pub const fn amount(self) -> u64 {
        match self {
            Limit::Bytes(amount) | Limit::Packets(amount) => amount,
        }
    }

    /// The size of `bytes` and `packets` in the limit's own unit.
    const fn measure(self, packets: u64, bytes: u64) -> u64 {
        match self {
            Limit::Bytes(_) => bytes,
            Limit::Packets(_) => packets,
        }
    }

    /// Whether this amount fits.
    const fn allows(self, packets: u64, bytes: u64) -> bool {
        self.measure(packets, bytes) <= self.amount()
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The buffer was full.
    Overflow,
    /// RED's random decision, or an average queue above its upper threshold.
    Early,
    /// CoDel's control law.
    ControlLaw,
}

/// A dropped packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped<P> {
    /// The packet.
    pub packet: P,
    /// The reason.
    pub cause: Cause,
}

/// The effects besides the returned packet. The caller clears it at any time.
#[derive(Clone, Debug)]
pub struct Effects<P> {
    /// Dropped packets, in the order of the drops.
    pub dropped: Vec<Dropped<P>>,
    /// Packets marked "congestion experienced"; they stay in the queue or are being delivered.
    pub marked: u64,
}

impl<P> Default for Effects<P> {
    fn default() -> Self {
        Effects { dropped: Vec::new(), marked: 0 }
    }
}

impl<P> Effects<P> {
    fn drop(&mut self, packet: P, cause: Cause) {
        self.dropped.push(Dropped { packet, cause });
    }
}

/// The result for an arriving packet. A dropped packet is in [`Effects::dropped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits.
    Queued,
    /// It waits and has been marked "congestion experienced".
    Marked,
    /// It was dropped.
    Dropped,
}

/// A packet that leaves the queue for the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dequeued<P> {
    /// The packet.
    pub packet: P,
    /// How long it waited.
    pub waited: Duration,
}

/// A selectable discipline, with its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// First in, first out; packets that do not fit are dropped.
    #[default]
    #[serde(rename = "droptail")]
    DropTail,
    /// Two classes by DSCP, with a buffer for each or one for both; the lower is served when the
    /// higher is empty.
    Priority(PriorityParameters),
    /// Random early detection (Floyd and Jacobson 1993).
    Red(RedParameters),
    /// Controlled delay (RFC 8289).
    Codel(CodelParameters),
    /// Flow queues, each under CoDel (RFC 8290).
    FqCodel(FqCodelParameters),
    /// Two classes by DSCP that share the link by weight, as CAKE's tins do.
    Tins(TinsParameters),
}

impl Discipline {
    /// An empty queue under this discipline.
    ///
    /// `limit` is the buffer's size; with [`Discipline::Priority`] and [`Discipline::Tins`] each class has this size,
    /// unless they share it. `seed` is for RED's random decisions and FQ-CoDel's hash; others have no randomness.
    pub fn queue<P: QueuedPacket>(self, limit: Limit, seed: u64) -> Queue<P> {
        match self {
            Discipline::DropTail => Queue::DropTail(DropTail::new(limit)),
            Discipline::Priority(parameters) => Queue::Priority(Priority::new(parameters, limit)),
            Discipline::Red(parameters) => Queue::Red(Red::new(parameters, limit, seed)),
            Discipline::Codel(parameters) => Queue::Codel(Codel::new(parameters, limit)),
            Discipline::FqCodel(parameters) => {
                Queue::FqCodel(FqCodel::new(parameters, limit, seed))
            }
            Discipline::Tins(parameters) => {
                Queue::Tins(Box::new(Tins::new(parameters, limit, seed)))
            }
        }
    }

    /// The name used on command lines and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Discipline::DropTail => "droptail",
            Discipline::Priority(parameters) => {
                if parameters.single_queue {
                    "priority-single"
                } else {
                    "priority"
                }
            }
            Discipline::Red(parameters) => {
                if parameters.ecn {
                    "red-ecn"
                } else {
                    "red"
                }
            }
            Discipline::Codel(_) => "codel",
            Discipline::FqCodel(_) => "fq-codel",
            Discipline::Tins(_) => "tins",
        }
    }
}

/// An unknown name of a discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDisciplineError(String);

impl core::fmt::Display for ParseDisciplineError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "'{}' is not a queue discipline: write droptail, priority, priority-single, red, \
             red-ecn, codel, fq-codel or tins",
            self.0
        )
    }
}

impl core::error::Error for ParseDisciplineError {}

impl core::str::FromStr for Discipline {
    type Err = ParseDisciplineError;

    /// Reads a [`Discipline::name`]; parameters are the papers' and RFCs' defaults.
    fn from_str(text: &str) -> Result<Self, ParseDisciplineError> {
        Ok(match text {
            "droptail" => Discipline::DropTail,
            "priority" => Discipline::Priority(PriorityParameters::default()),
            "priority-single" => {
                let single_queue = true;
                Discipline::Priority(PriorityParameters { single_queue, ..Default::default() })
            }
            "red" => Discipline::Red(RedParameters::default()),
            "red-ecn" => Discipline::Red(RedParameters { ecn: true, ..RedParameters::default() }),
            "codel" => Discipline::Codel(CodelParameters::default()),
            "fq-codel" => Discipline::FqCodel(FqCodelParameters::default()),
            "tins" => Discipline::Tins(TinsParameters::default()),
            _ => return Err(ParseDisciplineError(text.to_owned())),
        })
    }
}

/// A queue under one of the disciplines; made by [`Discipline::queue`].
#[derive(Clone, Debug)]
pub enum Queue<P> {
    /// See [`DropTail`].
    DropTail(DropTail<P>),
    /// See [`Priority`].
    Priority(Priority<P>),
    /// See [`Red`].
    Red(Red<P>),
    /// See [`Codel`].
    Codel(Codel<P>),
    /// See [`FqCodel`].
    FqCodel(FqCodel<P>),
    /// See [`Tins`].
    Tins(Box<Tins<P>>),
}

macro_rules! each {
    ($self:ident, $queue:ident => $call:expr) => {
        match $self {
            Queue::DropTail($queue) => $call,
            Queue::Priority($queue) => $call,
            Queue::Red($queue) => $call,
            Queue::Codel($queue) => $call,
            Queue::FqCodel($queue) => $call,
            Queue::Tins($queue) => $call,
        }
    };
}

impl<P: QueuedPacket> Queue<P> {
    /// A packet arrives. `now` is never before the `now` of an earlier call.
    pub fn enqueue(&mut self, now: Timestamp, packet: P, effects: &mut Effects<P>) -> Verdict {
        each!(self, queue => queue.enqueue(now, packet, effects))
    }

    /// The link is free: returns the next packet, or none. `now` is never before the `now` of an earlier
    /// call.
    pub fn dequeue(&mut self, now: Timestamp, effects: &mut Effects<P>) -> Option<Dequeued<P>> {
        each!(self, queue => queue.dequeue(now, effects))
    }

    /// Packets waiting.
    pub fn packets(&self) -> u64 {
        each!(self, queue => queue.packets())
    }

    /// Bytes waiting.
    pub fn bytes(&self) -> Bytes {
        each!(self, queue => queue.bytes())
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packets() == 0
    }
}

/// Packets in order of arrival, each with its time: the storage of every discipline.
#[derive(Clone, Debug)]
struct Fifo<P> {
    packets: VecDeque<(Timestamp, P)>,
    bytes: u64,
}

impl<P> Default for Fifo<P> {
    fn default() -> Self {
        Fifo { packets: VecDeque::new(), bytes: 0 }
    }
}

impl<P: QueuedPacket> Fifo<P> {
    fn push(&mut self, now: Timestamp, packet: P) {
        self.bytes += packet.bytes().0;
        self.packets.push_back((now, packet));
    }

    /// Queues the packet, or drops it if it does not fit.
    fn push_or_drop(
        &mut self,
        limit: Limit,
        now: Timestamp,
        packet: P,
        effects: &mut Effects<P>,
    ) -> Verdict {
        if !self.has_room(limit, &packet) {
            effects.drop(packet, Cause::Overflow);
            return Verdict::Dropped;
        }
        self.push(now, packet);
        Verdict::Queued
    }

    fn pop(&mut self, now: Timestamp) -> Option<Dequeued<P>> {
        let (arrived, packet) = self.packets.pop_front()?;
        self.bytes -= packet.bytes().0;
        Some(Dequeued { packet, waited: now.saturating_since(arrived) })
    }

    /// Takes the latest packet.
    fn pop_back(&mut self) -> Option<P> {
        let (_, packet) = self.packets.pop_back()?;
        self.bytes -= packet.bytes().0;
        Some(packet)
    }

    fn len(&self) -> u64 {
        self.packets.len() as u64
    }

    /// Whether `packet` fits behind the waiting ones.
    fn has_room(&self, limit: Limit, packet: &P) -> bool {
        limit.allows(self.len() + 1, self.bytes + packet.bytes().0)
    }
}

#[cfg(test)]
mod tests;
