//! The clock of a run. It is right everywhere.

use core::time::Duration;

use lull_replication::time::{LocalTime, Reading, WallTime};

/// Time before the first read, in nanoseconds: replicas connect, and get their leases.
const BEGIN: u64 = 10_000_000_000;

/// Clocks are right.
pub(super) fn reading(now: u64) -> Reading {
    let nanos = i64::try_from(now).unwrap_or(i64::MAX);
    Reading { local: LocalTime::from_nanos(nanos), wall: WallTime::from_nanos(nanos) }
}

/// When something in a workload is due, in nanoseconds.
pub(super) fn due(at: Duration) -> u64 {
    BEGIN + u64::try_from(at.as_nanos()).unwrap_or(u64::MAX / 2)
}
