//! Acknowledgements that were sent, and when the answer to them arrived.
//!
//! RFC 9840 ("Measuring Delays") takes the lowest delay of several packets, since a sender may pause. A mark goes further: it
//! counts only if the sender had waited for the window.

use crate::controller::reached;

/// Marks that are kept: enough for quarters of a round with four samples each.
pub(super) const MARKS: usize = 32;
/// Marks in a round-trip time.
const PER_RTT: u32 = 24;

/// An acknowledgement that has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// When, in microseconds.
    pub(super) sent: u64,
    /// When the first packet that echoes its time stamp arrived; 0: not yet.
    pub(super) echoed: u64,
    /// Its time stamp.
    pub(super) clock: u32,
    /// Packets that had arrived.
    pub(super) packets: u32,
    /// The number of the last packet that earlier acknowledgements allowed.
    pub(super) edge: u32,
    /// Packets that its window has room for; 0: less than one.
    pub(super) window: u32,
    /// Packets that the connection's part of the path's window allows.
    pub(super) part: u32,
    /// Packets of the path's window.
    pub(super) path_window: u32,
}

/// Marks under way, in the order in which they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    ring: [Mark; MARKS],
    /// The number of the first one, and of the next one.
    first: u32,
    next: u32,
    /// The last acknowledgement was marked.
    is_last: bool,
}

impl Marks {
    fn at(&self, number: u32) -> &Mark {
        &self.ring[number as usize % MARKS]
    }

    /// Forgets all: what arrives now answers none of them.
    pub(super) fn clear(&mut self) {
        self.first = self.next;
    }

    /// The window of the last acknowledgement had room for so many packets.
    pub(super) fn advertise(&mut self, packets: u32) {
        if self.is_last {
            self.ring[self.next.wrapping_sub(1) as usize % MARKS].window = packets;
        }
    }

    /// Adds a mark, unless the last one is near. Its time stamp must not have been sent before, or what
    /// answers it may answer an earlier acknowledgement.
    pub(super) fn push(&mut self, mark: Mark, is_new_clock: bool, rtt: u32) {
        let pending = self.next.wrapping_sub(self.first);
        let last = self.at(self.next.wrapping_sub(1)).sent;
        let is_near = pending > 0 && mark.sent < last + u64::from(rtt / PER_RTT);
        self.is_last = pending < MARKS as u32 && !is_near && is_new_clock;
        if !self.is_last {
            return;
        }
        self.ring[self.next as usize % MARKS] = mark;
        self.next = self.next.wrapping_add(1);
    }

    /// A packet arrives that echoes this time stamp.
    pub(super) fn handle_echo(&mut self, now: u64, echo: u32) {
        let is_pending = self.first != self.next;
        let mark = &mut self.ring[self.first as usize % MARKS];
        if is_pending && mark.clock == echo && mark.echoed == 0 {
            mark.echoed = now;
        }
    }

    /// The oldest mark if it is answered. `echo` is the time stamp that the newest packet echoes, and `packets` the
    /// number of packets that have arrived.
    pub(super) fn pass(&mut self, echo: Option<u32>, packets: u32) -> Option<Mark> {
        if !self.is_answered(echo, packets) {
            return None;
        }
        let mark = *self.at(self.first);
        self.first = self.first.wrapping_add(1);
        Some(mark)
    }

    /// Whether the oldest mark is answered.
    fn is_answered(&self, echo: Option<u32>, packets: u32) -> bool {
        let mark = self.at(self.first);
        let is_answered = match echo {
            Some(echo) => reached(echo, mark.clock),
            None => packets != mark.edge && reached(packets, mark.edge),
        };
        self.first != self.next && is_answered
    }
}
