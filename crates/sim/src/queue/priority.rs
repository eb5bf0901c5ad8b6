//! Strict priority: the lower class is served only while the higher is empty.
//!
//! This is the "router prioritization" that TCP Nice is measured against (Nice §4.1), and the
//! network that gives packets a lower class of TCP-Background.

use lull_cc::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    DSCP_CLASS_SELECTOR_1, DSCP_LOWER_EFFORT, Dequeued, DropTail, Effects, Limit, QueuedPacket,
    Verdict,
};

/// Which codepoints are the lower class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PriorityParameters {
    /// Whether class selector 1 is low as well as LE. Networks that predate LE used it so
    /// (RFC 8622 §7).
    pub class_selector_1_is_low: bool,
}

/// Two drop-tail buffers, the higher class served first.
///
/// Each class has a buffer of its own: in a shared one background packets would take the room
/// of foreground packets, which would then be dropped although their class is never made to
/// wait.
#[derive(Clone, Debug)]
pub struct Priority<P> {
    parameters: PriorityParameters,
    high: DropTail<P>,
    low: DropTail<P>,
}

impl<P: QueuedPacket> Priority<P> {
    /// Empty buffers, `limit` for each class.
    pub fn new(parameters: PriorityParameters, limit: Limit) -> Self {
        Priority { parameters, high: DropTail::new(limit), low: DropTail::new(limit) }
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
        let class = if self.is_low(&packet) { &mut self.low } else { &mut self.high };
        class.enqueue(now, packet, effects)
    }

    pub(super) fn dequeue(
        &mut self,
        now: Timestamp,
        effects: &mut Effects<P>,
    ) -> Option<Dequeued<P>> {
        self.high.dequeue(now, effects).or_else(|| self.low.dequeue(now, effects))
    }

    pub(super) fn packets(&self) -> u64 {
        self.high.packets() + self.low.packets()
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.high.bytes().0 + self.low.bytes().0)
    }
}
