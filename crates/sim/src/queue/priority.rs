//! Strict priority: the lower class is served only while the higher is empty.
//!
//! This is the "router prioritization" that TCP Nice is compared with (Nice §4.1), and the network with a
//! lower class for packets of TCP-Background.

use lull_cc::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    Cause, DSCP_CLASS_SELECTOR_1, DSCP_LOWER_EFFORT, Dequeued, Effects, Fifo, Limit, QueuedPacket,
    Verdict,
};

/// The codepoints of the lower class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityParameters {
    /// Whether class selector 1 is low as well as LE. Networks before LE used it so (RFC 8622 §7).
    pub class_selector_1_is_low: bool,
    /// One buffer for both classes instead of one for each. A packet of the higher class that does not fit
    /// replaces the youngest ones of the lower class (filler §4.4: packets that were received already are
    /// dropped). If no packet of the lower class waits, it is dropped itself.
    pub single_queue: bool,
}

/// Two classes, the higher one served first.
///
/// Each class has its own buffer, unless a single one is configured, in which the higher class pushes the
/// lower one out. Without that, background packets would fill the room of foreground packets. These would
/// then be dropped although their class never has to wait.
#[derive(Clone, Debug)]
pub struct Priority<P> {
    parameters: PriorityParameters,
    limit: Limit,
    high: Fifo<P>,
    low: Fifo<P>,
}

impl<P: QueuedPacket> Priority<P> {
    /// Empty buffers, `limit` for each class, or for both together in a single queue.
    pub fn new(parameters: PriorityParameters, limit: Limit) -> Self {
        Priority { parameters, limit, high: Fifo::default(), low: Fifo::default() }
    }

    fn is_low(&self, packet: &P) -> bool {
        match packet.dscp() {
            DSCP_LOWER_EFFORT => true,
            DSCP_CLASS_SELECTOR_1 => self.parameters.class_selector_1_is_low,
            _ => false,
        }
    }

    pub(super) fn enqueue(
        &mut self,
        now: Timestamp,
        packet: P,
        effects: &mut Effects<P>,
    ) -> Verdict {
        let is_low = self.is_low(&packet);
        let Priority { parameters, limit, high, low } = self;
        if parameters.single_queue {
            let allows = |high: &Fifo<P>, low: &Fifo<P>| {
                let packets = high.len() + low.len() + 1;
                limit.allows(packets, high.bytes + low.bytes + packet.bytes().0)
            };
            // No packet is pushed out for one that would not fit into an empty buffer either.
            let can_fit = !is_low && limit.allows(high.len() + 1, high.bytes + packet.bytes().0);
            while can_fit && !allows(high, low) {
                let Some(pushed_out) = low.pop_back() else { break };
                effects.drop(pushed_out, Cause::Overflow);
            }
            if !allows(high, low) {
                effects.drop(packet, Cause::Overflow);
                return Verdict::Dropped;
            }
        }
        let class = if is_low { low } else { high };
        if !class.has_room(*limit, &packet) {
            effects.drop(packet, Cause::Overflow);
            return Verdict::Dropped;
        }
        class.push(now, packet);
        Verdict::Queued
    }

    pub(super) fn dequeue(
        &mut self,
        now: Timestamp,
        _effects: &mut Effects<P>,
    ) -> Option<Dequeued<P>> {
        self.high.pop(now).or_else(|| self.low.pop(now))
    }

    pub(super) fn packets(&self) -> u64 {
        self.high.len() + self.low.len()
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.high.bytes + self.low.bytes)
    }
}
