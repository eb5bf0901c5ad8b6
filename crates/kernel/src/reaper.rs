//! Removes backgrounds when their processes have ended, after `lull` itself has.
//!
//! No process waits for a daemon that outlives its `lull`, or for a process that was moved. So a process
//! stays behind that waits until their cgroups are empty. It is in the cgroup of `lull`, so a stop of that
//! one, such as by systemd for a unit, ends it as well; then the next `lull` cleans up.

use std::env;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigmaskHow, sigprocmask};

use crate::background::clean_up;
use crate::cgroup::Hierarchy;
use crate::receive::Attached;
use crate::signals::Signals;
use crate::sys;

/// How long a change of a cgroup can go unnoticed, in milliseconds.
const MAX_WAIT_MILLIS: u16 = 5_000;

/// Leaves a process behind that removes these cgroups, named as in `/proc/PID/cgroup`, when they are empty,
/// and the resources that they alone needed; then it takes off `attached`. Without another process the next `lull` does that.
pub(crate) fn start_reaper(cgroups: Vec<PathBuf>, attached: Vec<Attached>, signals: &Signals) {
    if cgroups.is_empty() || is_main_process_of_unit() {
        return;
    }
    let mask = signals.mask;
    let _ = sys::fork_detached(c"lull-reaper", || {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None);
        wait_and_clean_up(cgroups, &attached);
    });
}

/// Whether systemd has started this process for a unit (systemd.exec(5)). It removes the cgroups of the unit
/// itself, and a process that stays behind would be taken for the unit's main process.
fn is_main_process_of_unit() -> bool {
    env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == std::process::id().to_string())
}

fn wait_and_clean_up(cgroups: Vec<PathBuf>, attached: &[Attached]) {
    let Ok(hierarchy) = Hierarchy::open() else { return };
    for cgroup in cgroups {
        let Some(events) = hierarchy.events_of(&cgroup) else { continue };
        wait_until_empty(events);
        clean_up(&hierarchy);
    }
    hierarchy.detach(attached);
}

/// Returns when a cgroup has no process left, or no longer exists.
pub(crate) fn wait_until_empty(mut events: File) {
    loop {
        let mut text = String::new();
        let is_read = events.rewind().and_then(|()| events.read_to_string(&mut text)).is_ok();
        if !is_read || !text.lines().any(|line| line == "populated 1") {
            return;
        }
        // The kernel reports each change of the file like this, but up to 10 ms later. A cgroup that is removed
        // within that time is not reported at all.
        let mut descriptors = [PollFd::new(events.as_fd(), PollFlags::POLLPRI)];
        let _ = poll(&mut descriptors, PollTimeout::from(MAX_WAIT_MILLIS));
    }
}
