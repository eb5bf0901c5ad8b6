//! The clocks of a machine, and those that a test gives instead.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use crate::time::{LocalTime, Reading, WallTime};

/// Where a daemon has its time from.
pub trait Clock: fmt::Debug + Send + Sync {
    /// What both clocks show now.
    fn read(&self) -> Reading;
}

/// The machine's own: `CLOCK_BOOTTIME`, which goes on while the machine sleeps, and the wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the daemons read the time")]
    fn read(&self) -> Reading {
        let booted = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
        let booted = booted.expect("Linux has this clock since 2.6.39");
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = |of: Duration| i64::try_from(of.as_nanos()).unwrap_or(i64::MAX);
        Reading {
            local: LocalTime::from_nanos(nanos(booted)),
            wall: WallTime::from_nanos(nanos(wall)),
        }
    }
}

/// What certificates are judged by.
#[derive(Debug)]
struct Today(Arc<dyn Clock>);

impl TimeProvider for Today {
    fn current_time(&self) -> Option<UnixTime> {
        let nanos = u64::try_from(self.0.read().wall.as_nanos()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(nanos)))
    }
}

pub(super) fn today(clock: &Arc<dyn Clock>) -> Arc<dyn TimeProvider> {
    Arc::new(Today(Arc::clone(clock)))
}

/// Waits until the clock shows `at`, or for ever if there is nothing to wait for. Timers run by a
/// clock that may stop while the machine sleeps, so whoever waits looks at the time itself.
pub(super) async fn until(clock: &dyn Clock, at: Option<LocalTime>) {
    /// A state machine that asks to be called again at once is called again soon.
    const LEAST: Duration = Duration::from_millis(1);
    match at {
        Some(at) => tokio::time::sleep(at.since(clock.read().local).max(LEAST)).await,
        None => core::future::pending().await,
    }
}
