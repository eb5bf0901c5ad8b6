//! Runs a job within its allowed hours: outside them, its processes are frozen.

use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

use crate::error::{Error, Result};
use crate::job_control::{pause, resume};
use crate::jobs::{Job, jobs};
use crate::machine;
use crate::time_window::TimeWindow;

/// How often the clock is read. Clocks are set, and machines sleep, so nothing is slept for hours.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// Waits until a time window is open. Returns at once if it is.
pub fn wait_for_allowed_hours(window: TimeWindow) {
    while !window.is_open() {
        thread::sleep(PERIOD);
    }
}

/// Freezes a job whenever its time window is closed, and resumes it when the window opens. A job that a user has
/// paused within the window stays paused.
#[derive(Debug)]
pub(crate) struct AllowedHours {
    window: TimeWindow,
    was_open: bool,
}

impl AllowedHours {
    /// For a job that starts within the window.
    pub(crate) fn new(window: TimeWindow) -> Self {
        AllowedHours { window, was_open: true }
    }

    /// Reads the clock; once per [`PERIOD`]. `is_ours` finds the job.
    pub(crate) fn check(&mut self, is_ours: impl Fn(&Job) -> bool) {
        let is_open = self.window.is_open();
        if is_open == self.was_open {
            return;
        }
        let jobs = jobs().unwrap_or_default();
        // There is none before the program starts.
        let Some(job) = jobs.iter().find(|job| is_ours(job)) else { return };
        let changed = if is_open { resume(&job.id) } else { pause(&job.id) };
        if changed.is_ok() {
            self.was_open = is_open;
        }
    }
}

/// Keeps the job that this process makes to a time window until the process ends.
///
/// # Errors
/// If this process may not pause it.
pub(crate) fn keep_to_allowed_hours(window: TimeWindow) -> Result<()> {
    machine::check_privilege("pausing a job outside its time window")?;
    let own = format!("{}.", std::process::id());
    // Signals are those of the program: no thread may take them.
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))
        .map_err(Error::errno("block signals"))?;
    let spawned = thread::Builder::new().name("time window".to_owned()).spawn(move || {
        let mut hours = AllowedHours::new(window);
        loop {
            thread::sleep(PERIOD);
            hours.check(|job| job.id.starts_with(&own));
        }
    });
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)
        .map_err(Error::errno("unblock signals"))?;
    spawned.map(|_| ()).map_err(Error::io("start a thread"))
}
