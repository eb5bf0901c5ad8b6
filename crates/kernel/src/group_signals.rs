//! Distinguishes a signal to many processes from one to this process alone.
//!
//! `kill %1` in a shell, `kill 0` in a script, timeout(1) and systemd's `KillMode=control-group` send a
//! signal to the whole process group or cgroup: to the program as well as to us. `kill $!` and a supervisor
//! send it to us alone, and expect it to arrive at the program. The information with a signal is the same in
//! both cases, including the sender. So another process of our process group and cgroup stands by with every
//! signal blocked: a signal pending there went to all.

use std::fs;
use std::io;
use std::time::Duration;

use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpgid};

use crate::signals::Received;
use crate::sys;

/// A sender that signals one process after the other is done within this time: systemd, and timeout(1), which
/// signals its child and then all.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(20);

/// A process that only collects signals. It ends when this is dropped, or with this process.
#[derive(Debug)]
pub(crate) struct GroupSignalDetector(i32);

impl GroupSignalDetector {
    pub(crate) fn start() -> io::Result<Self> {
        sys::fork_idle(c"lull-signals").map(GroupSignalDetector)
    }

    /// Its received signals, one bit for each.
    fn signals(&self) -> u64 {
        pending(&fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default())
    }
}

impl Drop for GroupSignalDetector {
    fn drop(&mut self) {
        let _ = sys::kill(self.0, libc::SIGKILL);
        let _ = waitpid(Pid::from_raw(self.0), None);
    }
}

fn pending(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The received signals that the program has not received itself. The detector is replaced when it has seen
/// some, for they stay pending.
///
/// Without a detector, all signals of processes are passed on: twice is better than never.
pub(crate) fn sent_to_us_only(
    detector: &mut Option<GroupSignalDetector>,
    received: &[Received],
    program: i32,
) -> Vec<i32> {
    let seen = detector.as_ref().map_or(0, GroupSignalDetector::signals);
    // A program that has left this process group, like a shell, gets none of the signals to the group.
    let is_with_us = getpgid(Some(Pid::from_raw(program))) == getpgid(None);
    let has_got = |number: i32| is_with_us && seen & bit(number) != 0;
    let alone = received
        .iter()
        .filter(|received| received.by_process && !has_got(received.number))
        .map(|received| received.number)
        .collect();
    if seen != 0 {
        *detector = GroupSignalDetector::start().ok();
    }
    alone
}

/// Replaces a detector that has seen a signal which no caller asks about.
pub(crate) fn renew(detector: &mut Option<GroupSignalDetector>) {
    if detector.as_ref().is_some_and(|detector| detector.signals() != 0) {
        *detector = GroupSignalDetector::start().ok();
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_signals_are_read_from_the_status() {
        let status = "SigPnd:\t0000000000000001\nShdPnd:\t0000000000004002\nSigBlk:\tffff\n";
        assert_eq!(pending(status), bit(libc::SIGTERM) | bit(libc::SIGINT));
        assert_eq!(pending(""), 0);
        assert_eq!(bit(64), 1 << 63);
    }
}
