//! A link whose capacity changes over time.

use lull_cc::Timestamp;

use crate::trace::Trace;

/// When packets leave a link that follows a [`Trace`].
///
/// Each opportunity carries 1500 bytes, of one packet or of several. An opportunity without waiting packets
/// is lost. A packet that is too large for it continues at the next one.
#[derive(Debug)]
pub(super) struct TraceService {
    trace: Trace,
    /// The number of the first opportunity that was not used.
    next: u64,
    /// The time of the last used opportunity, and its remaining bytes.
    last: (u64, u64),
}

impl TraceService {
    pub(super) fn new(trace: Trace) -> Self {
        TraceService { trace, next: 0, last: (0, 0) }
    }

    /// Serves a packet that is next at `start`, in nanoseconds. Returns when its last byte leaves.
    pub(super) fn serve(&mut self, start: u64, bytes: u16) -> u64 {
        if start > self.last.0 {
            self.last = (start, 0);
            let passed = self.trace.opportunities_until(Timestamp::from_nanos(start));
            self.next = self.next.max(passed);
        }
        let mut left = u64::from(bytes);
        loop {
            let (at, credit) = &mut self.last;
            let sent = left.min(*credit);
            left -= sent;
            *credit -= sent;
            if left == 0 {
                return *at;
            }
            *at = self.trace.opportunity(self.next).as_nanos();
            *credit = Trace::OPPORTUNITY_BYTES;
            self.next += 1;
        }
    }
}
