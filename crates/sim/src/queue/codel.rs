//! Controlled delay: drops by how long packets waited, not by how many wait (RFC 8289).

use core::time::Duration;

use lull_cc::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Cause, Dequeued, Effects, Fifo, Limit, QueuedPacket, Verdict};

/// CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodelParameters {
    /// Waiting time that is acceptable as a standing queue, in nanoseconds (TARGET).
    pub target_nanos: u64,
    /// How long the waiting time must stay above the target before the first drop, in
    /// nanoseconds: about the longest round-trip time expected (INTERVAL).
    pub interval_nanos: u64,
    /// Packets are not dropped from a queue of this many bytes or fewer: one packet of the link's MTU.
    pub max_packet: u64,
    /// Mark ECN-capable packets instead of dropping them (RFC 8289 §3, "drop or mark").
    pub ecn: bool,
}

impl Default for CodelParameters {
    fn default() -> Self {
        CodelParameters {
            // RFC 8289 §4.3: 5 ms.
            target_nanos: 5_000_000,
            // RFC 8289 §4.2: 100 ms.
            interval_nanos: 100_000_000,
            max_packet: 1500,
            ecn: false,
        }
    }
}

/// The state of the control law, without the packets: FQ-CoDel has one for each flow queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Control {
    /// When the waiting time will have been above the target for an interval; none while it is
    /// below (RFC 8289 §5.3, first_above_time_).
    first_above: Option<Timestamp>,
    /// When the next drop is due (drop_next_).
    drop_next: Timestamp,
    /// Drops since the dropping state was entered (count_).
    count: u64,
    /// `count` when the dropping state was entered last (lastcount_).
    last_count: u64,
    /// Whether the control law is dropping (dropping_).
    dropping: bool,
}

/// The head of the queue, and whether the law allows to drop it.
struct Head<P> {
    dequeued: Dequeued<P>,
    may_drop: bool,
}

impl Control {
    /// RFC 8289 §5.5, dodequeue(): takes the head and tracks whether the waiting time has been
    /// above the target for a whole interval.
    fn take<P: QueuedPacket>(
        &mut self,
        parameters: &CodelParameters,
        fifo: &mut Fifo<P>,
        now: Timestamp,
    ) -> Option<Head<P>> {
        let Some(dequeued) = fifo.pop(now) else {
            // An empty queue cannot be a standing one.
            self.first_above = None;
            return None;
        };
        let target = Duration::from_nanos(parameters.target_nanos);
        let mut may_drop = false;
        if dequeued.waited < target || fifo.bytes <= parameters.max_packet {
            // Below the target, or the queue is so short that dropping would idle the link.
            self.first_above = None;
        } else {
            match self.first_above {
                // Just exceeded the target: it has an interval's time to drain without drops.
                None => {
                    self.first_above = Some(now + Duration::from_nanos(parameters.interval_nanos));
                }
                Some(above) => may_drop = now >= above,
            }
        }
        Some(Head { dequeued, may_drop })
    }

    /// RFC 8289 §5.4 and §3.3, control_law(): the time from one drop to the next shrinks with
    /// the square root of their number, so that TCP's throughput falls linearly.
    fn next_drop(&self, parameters: &CodelParameters, from: Timestamp) -> Timestamp {
        // The square root is rounded correctly on every machine (IEEE 754).
        let gap = parameters.interval_nanos as f64 / (self.count as f64).sqrt();
        from + Duration::from_nanos(gap as u64)
    }

    /// RFC 8289 §5.5, deque().
    pub(super) fn dequeue<P: QueuedPacket>(
        &mut self,
        parameters: &CodelParameters,
        fifo: &mut Fifo<P>,
        now: Timestamp,
        effects: &mut Effects<P>,
    ) -> Option<Dequeued<P>> {
        let Some(mut head) = self.take(parameters, fifo, now) else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            if !head.may_drop {
                // The waiting time has fallen below the target: leave the dropping state.
                self.dropping = false;
            }
            // More than one drop may be due: with large counts the gaps get shorter than a
            // packet's sending time.
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                let marked = notify(parameters, &mut head.dequeued.packet, effects);
                if marked {
                    self.drop_next = self.next_drop(parameters, self.drop_next);
                    return Some(head.dequeued);
                }
                effects.drop(head.dequeued.packet, Cause::ControlLaw);
                match self.take(parameters, fifo, now) {
                    None => {
                        self.dropping = false;
                        return None;
                    }
                    Some(next) => head = next,
                }
                if head.may_drop {
                    self.drop_next = self.next_drop(parameters, self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
            return Some(head.dequeued);
        }
        if head.may_drop {
            // Enter the dropping state with one drop.
            self.dropping = true;
            // If it was left only recently, the drop rate that controlled the queue then is the best estimate
            // now (§5.5, the 16 intervals).
            let delta = self.count - self.last_count;
            let lately = now.saturating_since(self.drop_next).as_nanos()
                < 16 * u128::from(parameters.interval_nanos);
            self.count = if delta > 1 && lately { delta } else { 1 };
            self.drop_next = self.next_drop(parameters, now);
            self.last_count = self.count;
            if notify(parameters, &mut head.dequeued.packet, effects) {
                return Some(head.dequeued);
            }
            effects.drop(head.dequeued.packet, Cause::ControlLaw);
            let next = self.take(parameters, fifo, now);
            if next.is_none() {
                self.dropping = false;
            }
            return next.map(|head| head.dequeued);
        }
        Some(head.dequeued)
    }
}

/// Marks the packet if that is enabled and possible; returns whether it did.
fn notify<P: QueuedPacket>(
    parameters: &CodelParameters,
    packet: &mut P,
    effects: &mut Effects<P>,
) -> bool {
    let marks = parameters.ecn && packet.ecn_capable();
    if marks {
        packet.mark_ce();
        effects.marked += 1;
    }
    marks
}

/// One queue under CoDel.
#[derive(Clone, Debug)]
pub struct Codel<P> {
    parameters: CodelParameters,
    limit: Limit,
    fifo: Fifo<P>,
    control: Control,
}

impl<P: QueuedPacket> Codel<P> {
    /// An empty buffer that holds at most `limit`.
    pub fn new(parameters: CodelParameters, limit: Limit) -> Self {
        Codel { parameters, limit, fifo: Fifo::default(), control: Control::default() }
    }

    pub(super) fn enqueue(
        &mut self,
        now: Timestamp,
        packet: P,
        effects: &mut Effects<P>,
    ) -> Verdict {
        self.fifo.push_or_drop(self.limit, now, packet, effects)
    }

    pub(super) fn dequeue(
        &mut self,
        now: Timestamp,
        effects: &mut Effects<P>,
    ) -> Option<Dequeued<P>> {
        self.control.dequeue(&self.parameters, &mut self.fifo, now, effects)
    }

    pub(super) fn packets(&self) -> u64 {
        self.fifo.len()
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.fifo.bytes)
    }
}
