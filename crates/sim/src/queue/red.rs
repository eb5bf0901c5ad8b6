//! Random early detection.
//!
//! S. Floyd and V. Jacobson, "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM
//! Transactions on Networking 1(4), 1993 ("the paper" below). The gentle variant is Floyd's recommendation of
//! 2000.

use core::time::Duration;

use lull_cc::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Cause, Dequeued, Effects, Fifo, Limit, QueuedPacket, Verdict};
use crate::random::Random;

/// RED's parameters. The defaults are those of Nice §4.2, experiment 4: gentle, thresholds at
/// one and two thirds of the buffer, the rest as Floyd recommended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RedParameters {
    /// Average queue below which nothing is dropped, as a fraction of the buffer (min_th).
    pub min_threshold: f64,
    /// Average queue at which the probability has risen to `max_probability`, as a fraction of
    /// the buffer (max_th).
    pub max_threshold: f64,
    /// Probability at `max_threshold` (max_p).
    pub max_probability: f64,
    /// Weight of the newest sample in the average queue (w_q).
    pub weight: f64,
    /// Above `max_threshold` let the probability rise to 1 at twice that threshold instead of dropping
    /// everything at once.
    pub gentle: bool,
    /// Mark ECN-capable packets instead of dropping them, up to `max_threshold`. Beyond, they are dropped
    /// like all others.
    pub ecn: bool,
    /// Time that the link takes for a typical packet (the paper's s), in nanoseconds: how fast the average
    /// decays while the queue is empty. Zero means unknown: the average then does not change while the queue
    /// is empty.
    pub packet_time_nanos: u64,
}

impl Default for RedParameters {
    fn default() -> Self {
        RedParameters {
            min_threshold: 1.0 / 3.0,
            max_threshold: 2.0 / 3.0,
            // The paper's section VI has 1/50; with the gentle variant Floyd recommended 0.1.
            max_probability: 0.1,
            // The paper's section VI, upper and lower bounds for w_q.
            weight: 0.002,
            gentle: true,
            ecn: false,
            packet_time_nanos: 0,
        }
    }
}

/// A buffer under random early detection.
///
/// Queue, thresholds and average are in the unit of the buffer's limit.
#[derive(Clone, Debug)]
pub struct Red<P> {
    parameters: RedParameters,
    limit: Limit,
    fifo: Fifo<P>,
    random: Random,
    /// The paper's avg.
    pub(super) average: f64,
    /// The paper's count: packets since the last one dropped, −1 while the average is below the
    /// lower threshold.
    count: i64,
    /// The paper's q_time: the time since which the queue has been empty.
    empty_since: Option<Timestamp>,
}

impl<P: QueuedPacket> Red<P> {
    /// An empty buffer that holds at most `limit`.
    pub fn new(parameters: RedParameters, limit: Limit, seed: u64) -> Self {
        Red {
            parameters,
            limit,
            fifo: Fifo::default(),
            random: Random::new(seed),
            // The paper's figure 2, initialisation.
            average: 0.0,
            count: -1,
            empty_since: Some(Timestamp::ZERO),
        }
    }

    /// The averaged queue, in the unit of the limit.
    pub fn average(&self) -> f64 {
        self.average
    }

    /// The paper's max_th, in the unit of the limit.
    fn max_threshold(&self) -> f64 {
        self.parameters.max_threshold * self.limit.amount() as f64
    }

    /// The probability p_b for an average queue of `average`, before it is spread evenly.
    ///
    /// The paper's section IV: linear from 0 at min_th to max_p at max_th. Beyond that, the gentle variant
    /// rises linearly to 1 at twice max_th; the paper's own drops everything.
    pub fn probability(&self, average: f64) -> f64 {
        let parameters = &self.parameters;
        let min_threshold = parameters.min_threshold * self.limit.amount() as f64;
        let max_threshold = self.max_threshold();
        let max_probability = parameters.max_probability;
        if average < min_threshold {
            0.0
        } else if average < max_threshold {
            max_probability * (average - min_threshold) / (max_threshold - min_threshold)
        } else if parameters.gentle && average < 2.0 * max_threshold {
            max_probability + (1.0 - max_probability) * (average - max_threshold) / max_threshold
        } else {
            1.0
        }
    }

    /// The paper's figure 2: the average queue at each arrival.
    fn update_average(&mut self, now: Timestamp) {
        let weight = self.parameters.weight;
        if let Some(since) = self.empty_since {
            // While the queue was empty, the link could have sent m small packets. The average changes as if
            // they had met an empty queue (section IV, equation for m).
            let idle = now.saturating_since(since);
            let packet_time = Duration::from_nanos(self.parameters.packet_time_nanos);
            if !packet_time.is_zero() {
                let sent = idle.as_nanos() / packet_time.as_nanos();
                self.average *= power(1.0 - weight, sent);
            }
            // The same empty time counts once, also if this packet is dropped.
            self.empty_since = Some(now);
        } else {
            let length = self.limit.measure(self.fifo.len(), self.fifo.bytes) as f64;
            self.average += weight * (length - self.average);
        }
    }

    /// Whether to notify the sender of the arriving packet of congestion.
    fn notifies(&mut self) -> Notification {
        let probability = self.probability(self.average);
        if probability <= 0.0 {
            self.count = -1;
            return Notification::None;
        }
        if probability >= 1.0 {
            // Section IV: beyond all thresholds no packet is admitted.
            self.count = 0;
            return Notification::Drop;
        }
        self.count += 1;
        // Section VII: p_a = p_b / (1 − count · p_b) makes the gaps between notifications
        // uniform instead of geometric.
        let spread = 1.0 - self.count as f64 * probability;
        let even = if spread > 0.0 { probability / spread } else { 1.0 };
        if self.random.uniform() < even {
            self.count = 0;
            // RFC 3168 §7: if the average queue is above an upper threshold, a router should drop many
            // packets instead of marking. Otherwise flows that ignore marks would fill the buffer.
            let is_beyond = self.average > self.max_threshold();
            return if is_beyond { Notification::Drop } else { Notification::Mark };
        }
        Notification::None
    }

    pub(super) fn enqueue(
        &mut self,
        now: Timestamp,
        mut packet: P,
        effects: &mut Effects<P>,
    ) -> Verdict {
        self.update_average(now);
        let notification = self.notifies();
        if !self.fifo.has_room(self.limit, &packet) {
            self.count = 0;
            effects.drop(packet, Cause::Overflow);
            return Verdict::Dropped;
        }
        let marks = self.parameters.ecn && packet.ecn_capable();
        let verdict = match notification {
            Notification::None => Verdict::Queued,
            Notification::Mark if marks => {
                packet.mark_ce();
                effects.marked += 1;
                Verdict::Marked
            }
            Notification::Mark | Notification::Drop => {
                effects.drop(packet, Cause::Early);
                return Verdict::Dropped;
            }
        };
        self.fifo.push(now, packet);
        self.empty_since = None;
        verdict
    }

    pub(super) fn dequeue(
        &mut self,
        now: Timestamp,
        _effects: &mut Effects<P>,
    ) -> Option<Dequeued<P>> {
        let dequeued = self.fifo.pop(now);
        if dequeued.is_some() && self.fifo.len() == 0 {
            self.empty_since = Some(now);
        }
        dequeued
    }

    pub(super) fn packets(&self) -> u64 {
        self.fifo.len()
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.fifo.bytes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notification {
    None,
    /// Mark, or drop packets that cannot be marked.
    Mark,
    /// Drop in any case.
    Drop,
}

/// `base` to the `exponent`, by squaring: the same bits on every machine, which the mathematical library does
/// not guarantee.
fn power(mut base: f64, mut exponent: u128) -> f64 {
    let mut result = 1.0;
    while exponent > 0 && result > 0.0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}
