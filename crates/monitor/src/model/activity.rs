//! The activity of a background connection or job.

use lull_kernel::Phase;
use serde::Serialize;

/// The present activity of a connection or a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// It uses spare capacity.
    Using,
    /// Other traffic needs the path, and it yields.
    Yielding,
    /// It searches for the capacity of the path.
    Starting,
    /// It transfers nothing.
    Idle,
    /// Its processes are frozen.
    Paused,
}

/// The direction of most bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// This host sends.
    Send,
    /// This host receives.
    Receive,
}

/// The measurements of a connection's last interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// Bytes in both directions.
    pub(super) bytes: u64,
    /// Time spent yielding, as a part of the interval, where the connection keeps it.
    pub(super) yielding: Option<f64>,
    /// The phase of the connection's path.
    pub(super) phase: Option<Phase>,
}

/// More of an interval than this spent yielding counts as yielding.
const MOSTLY: f64 = 0.5;

impl Interval {
    /// The connection's activity in the interval. A connection that yields sends little, so this comes before idleness.
    pub(super) fn activity(self) -> Activity {
        match (self.phase, self.yielding) {
            (Some(Phase::Floor), _) => Activity::Yielding,
            (None, Some(part)) if part > MOSTLY => Activity::Yielding,
            _ if self.bytes == 0 => Activity::Idle,
            (Some(Phase::Start), _) => Activity::Starting,
            _ => Activity::Using,
        }
    }
}

impl Activity {
    /// One word of at most five letters.
    pub fn word(self) -> &'static str {
        match self {
            Activity::Using => "use",
            Activity::Yielding => "yield",
            Activity::Starting => "start",
            Activity::Idle => "idle",
            Activity::Paused => "pause",
        }
    }
}

impl Direction {
    /// The direction of more bytes; sending if both have as many.
    pub(super) fn of(sent: u64, received: u64) -> Self {
        if received > sent { Direction::Receive } else { Direction::Send }
    }

    /// One word of four letters.
    pub fn word(self) -> &'static str {
        match self {
            Direction::Send => "send",
            Direction::Receive => "recv",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_follows_phase_time_and_bytes() {
        let activity = |bytes, yielding, phase| Interval { bytes, yielding, phase }.activity();
        assert_eq!(activity(1, None, Some(Phase::Floor)), Activity::Yielding);
        assert_eq!(activity(1, None, Some(Phase::Use)), Activity::Using);
        assert_eq!(activity(1, None, Some(Phase::Start)), Activity::Starting);
        assert_eq!(activity(0, None, Some(Phase::Use)), Activity::Idle);
        assert_eq!(activity(0, Some(0.9), None), Activity::Yielding);
        assert_eq!(activity(1, Some(0.1), None), Activity::Using);
        assert_eq!(activity(0, None, None), Activity::Idle);
    }
}
