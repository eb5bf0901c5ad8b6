//! A timer of the kernel, for the event loop.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;

/// The descriptor for `AsyncFd`.
#[derive(Debug)]
struct Descriptor(TimerFd);

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// A timer of the kernel.
#[derive(Debug)]
pub(super) struct Clock(AsyncFd<Descriptor>);

/// A timer that is set to zero never expires.
const MIN_TIMER: Duration = Duration::from_nanos(1);
/// Longer than any wait, and short enough for the kernel.
const MAX_TIMER: Duration = Duration::from_secs(3600);

impl Clock {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        // SAFETY: the descriptor is the timer's, has no other owner, and is closed when the `AsyncFd` is
        // dropped with it; `Descriptor` returns no other one.
        let timer = unsafe { AsyncFd::register(Descriptor(timer)) };
        timer.map(Clock).map_err(io::Error::from)
    }

    /// Sets it to expire after this time, in place of an earlier setting.
    pub(super) fn set(&self, after: Duration) -> io::Result<()> {
        let after = TimeSpec::from_duration(after.clamp(MIN_TIMER, MAX_TIMER));
        Ok(self.0.get_ref().0.set(Expiration::OneShot(after), TimerSetTimeFlags::empty())?)
    }

    /// Waits until it expires.
    pub(super) async fn wait(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let expired = ready.try_io(|timer| match timer.get_ref().0.wait() {
                Ok(()) => Ok(()),
                Err(errno) => Err(io::Error::from(errno)),
            });
            if let Ok(result) = expired {
                return result;
            }
        }
    }
}
