//! The link of a machine to those below it: the bodies that it sends take turns.

use std::collections::VecDeque;

use lull_replication::message::{BodyHeader, Frame};

use super::TURN;

/// A body on its way from a machine to one below it.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) parent: u32,
    pub(super) child: u32,
    pub(super) frame: Frame<BodyHeader>,
    size: u64,
    /// Turns that it has had, of those that it needs.
    sent: u64,
    /// Turns that have arrived.
    pub(super) arrived: u64,
}

impl Transfer {
    pub(super) fn new(parent: u32, child: u32, frame: Frame<BodyHeader>) -> Self {
        let size = frame.message.version.map_or(0, |version| version.content.size.0);
        Transfer { parent, child, frame, size, sent: 0, arrived: 0 }
    }

    /// Turns that it needs.
    pub(super) fn turns(&self) -> u64 {
        self.size.div_ceil(TURN.0).max(1)
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.turns()
    }

    /// Whether a machine that has this many turns of the body can send the next one.
    pub(super) fn can_send(&self, here: u64) -> bool {
        self.sent < here
    }

    /// Sends the next turn; returns its bytes.
    fn send(&mut self) -> u64 {
        let bytes = (self.size - self.sent * TURN.0).min(TURN.0);
        self.sent += 1;
        bytes
    }
}

/// The link of a machine.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Transfers with a turn to send, by their numbers.
    ready: VecDeque<usize>,
    /// The one that is sent now.
    sending: Option<usize>,
    /// Bytes so far.
    pub(super) bytes: u64,
}

impl Link {
    /// A transfer has a turn to send.
    pub(super) fn add(&mut self, number: usize) {
        self.ready.push_back(number);
    }

    /// Begins the next turn, if the link is free; returns its bytes.
    pub(super) fn begin(&mut self, transfers: &mut [Option<Transfer>]) -> Option<u64> {
        if self.sending.is_some() {
            return None;
        }
        let number = self.ready.pop_front()?;
        self.sending = Some(number);
        let bytes = transfers[number].as_mut().map_or(0, Transfer::send);
        self.bytes += bytes;
        Some(bytes)
    }

    /// The turn has left; returns its transfer.
    pub(super) fn end(&mut self) -> Option<usize> {
        self.sending.take()
    }
}
