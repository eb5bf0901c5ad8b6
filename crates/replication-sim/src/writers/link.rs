//! Connections that deliver in order until they are cut.

use core::time::Duration;

/// A connection between a replica and a writer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// Which connection it is: messages of earlier ones are lost.
    pub(super) connection: u64,
    /// Whether it can carry messages.
    pub(super) is_up: bool,
    /// When the last message arrives at the writer, and at the replica.
    last_arrivals: [Duration; 2],
}

/// A direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    ToWriter,
    ToReplica,
}

impl Link {
    /// When a message arrives that takes this long: never before the one sent before it.
    pub(super) fn arrival(
        &mut self,
        direction: Direction,
        now: Duration,
        delay: Duration,
    ) -> Duration {
        let last = &mut self.last_arrivals[direction as usize];
        *last = (*last).max(now + delay);
        *last
    }

    /// Ends the connection with all messages on it.
    pub(super) fn cut(&mut self) {
        self.connection += 1;
        self.is_up = false;
    }
}
