//! The clocks of the proxy. Rules and state machines get the time as an argument.

use std::time::{Instant, SystemTime};

use lull_cc::Timestamp;

/// A monotonic clock that starts at zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Clock(Instant::now())
    }

    pub(super) fn now(self) -> Timestamp {
        Timestamp::ZERO + self.0.elapsed()
    }
}

/// The wall clock, for headers and logs.
#[allow(clippy::disallowed_methods, reason = "the daemon reads the clock here, for all of NPS")]
pub(super) fn wall() -> SystemTime {
    SystemTime::now()
}

/// The wall clock's time as models have it: they count from 1970, as logs do.
pub(super) fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::ZERO + since
}
