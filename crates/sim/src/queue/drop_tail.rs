//! First in, first out; packets that do not fit are dropped.

use lull_cc::{Bytes, Timestamp};

use super::{Dequeued, Effects, Fifo, Limit, QueuedPacket, Verdict};

/// A buffer of fixed size served in order of arrival.
#[derive(Clone, Debug)]
pub struct DropTail<P> {
    limit: Limit,
    fifo: Fifo<P>,
}

impl<P: QueuedPacket> DropTail<P> {
    /// An empty buffer that holds at most `limit`.
    pub fn new(limit: Limit) -> Self {
        DropTail { limit, fifo: Fifo::default() }
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
        _effects: &mut Effects<P>,
    ) -> Option<Dequeued<P>> {
        self.fifo.pop(now)
    }

    pub(super) fn packets(&self) -> u64 {
        self.fifo.len()
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.fifo.bytes)
    }
}
