//! A process that is stopped while it is moved.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::error::{Error, Result};

/// A stopped process. If it is killed, its id is not reused before this is dropped: the tracer has to wait
/// for it first (ptrace(2)).
pub(super) struct PausedClient(Pid);

impl PausedClient {
    /// Stops a process of a user, and verifies that the id still belongs to `process`.
    ///
    /// A process with the rights of another user, for example after it has run a set-user-ID program, is
    /// rejected.
    pub(super) fn pause(pid: i32, uid: u32, process: BorrowedFd<'_>) -> Result<Self> {
        let refused = |source: io::Error| Error::CannotMove { pid, source };
        let number = Pid::from_raw(pid);
        ptrace::seize(number, Options::empty()).map_err(|errno| refused(errno.into()))?;
        let paused = PausedClient(number);
        ptrace::interrupt(number).map_err(|errno| refused(errno.into()))?;
        let status = waitpid(number, Some(WaitPidFlag::__WALL));
        if !matches!(status, Ok(WaitStatus::Stopped(..) | WaitStatus::PtraceEvent(..))) {
            return Err(Error::NoProcess { pid });
        }
        if has_ended(process) {
            return Err(Error::NoProcess { pid });
        }
        if !has_rights_of(pid, uid) {
            let text = "it has the rights of another user";
            return Err(refused(io::Error::new(io::ErrorKind::PermissionDenied, text)));
        }
        Ok(paused)
    }
}

impl Drop for PausedClient {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

fn has_ended(process: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::new(process, PollFlags::POLLIN)];
    !matches!(poll(&mut descriptors, PollTimeout::ZERO), Ok(0))
}

/// Whether a process has the rights of this user only.
pub(super) fn has_rights_of(pid: i32, uid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    is_of_user(&status, uid)
}

/// Whether all user IDs of a process are that one, by its `status`.
fn is_of_user(status: &str, uid: u32) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let mut ids = ids.split_whitespace().peekable();
    ids.peek().is_some() && ids.all(|id| id.parse() == Ok(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_with_rights_of_another_user_is_rejected() {
        assert!(is_of_user("Name:\ta\nUid:\t7\t7\t7\t7\n", 7));
        for status in ["Uid:\t7\t0\t0\t0\n", "Uid:\t8\t8\t8\t8\n", "Uid:\n", ""] {
            assert!(!is_of_user(status, 7), "{status}");
        }
    }
}
