//! Signals, taken from a queue while a program runs in the place of this process.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::error::{Error, Result};
use crate::sys;

/// A signal from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) number: i32,
    /// A process sent it. Signals of the terminal go to the program as well.
    pub(crate) by_process: bool,
}

/// All signals of this process, blocked and queued until it is dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    queue: SignalFd,
    /// The signals that were blocked before; the program starts with this mask.
    pub(crate) mask: SigSet,
    /// The earlier action of SIGCHLD; without its default action no child can be waited for.
    pub(crate) child: sys::Disposition,
}

impl Signals {
    pub(crate) fn block() -> Result<Self> {
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut mask))
            .map_err(Error::errno("block signals"))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let queue = SignalFd::with_flags(&SigSet::all(), flags)
            .map_err(Error::errno("open a queue of signals"))?;
        let child = sys::default_action(libc::SIGCHLD);
        Ok(Signals { queue, mask, child })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// The next signal, if there is one.
    pub(crate) fn next(&self) -> Option<Received> {
        let info = self.queue.read_signal().ok()??;
        Some(Received { number: info.ssi_signo as i32, by_process: info.ssi_code <= 0 })
    }

    /// All pending signals, without those of children.
    pub(crate) fn queued(&self) -> impl Iterator<Item = Received> {
        std::iter::from_fn(|| self.next()).filter(|received| received.number != libc::SIGCHLD)
    }

    /// The signals that came before the program could get them.
    ///
    /// # Errors
    /// [`Error::Interrupted`] by a signal that would have ended us by then. Blocked signals are queued even
    /// if they are ignored, as by nohup(1) and shells.
    pub(crate) fn early(&self) -> Result<Vec<i32>> {
        let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
        let is_end = |number: i32| ends.iter().any(|&signal| signal as i32 == number);
        let received: Vec<i32> = self.queued().map(|received| received.number).collect();
        match received.iter().find(|&&number| is_end(number) && !sys::is_ignored(number)) {
            Some(&signal) => Err(Error::Interrupted { signal }),
            None => Ok(received),
        }
    }

    /// Forgets queued signals: they were for a program that has ended.
    pub(crate) fn discard(&self) {
        while self.next().is_some() {}
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None);
    }
}

/// Ends this process by `signal`, like the program, without a core file.
///
/// Returns if that signal does not end it, as for the first process of a container.
pub fn die_by(signal: i32) {
    sys::die_by(signal);
}
