//! Socket options, most of which no safe crate wraps.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};

/// `TCP_NOTSENT_LOWAT` of linux/tcp.h.
const TCP_NOTSENT_LOWAT: libc::c_int = 25;

fn set_option<T>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    Errno::result(result)?;
    Ok(())
}

/// Lets a socket become writable only while fewer than `bytes` wait unsent in it.
pub(super) fn set_unsent_limit(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes)
}

/// Limits a socket's rate to `bytes` per second.
pub(super) fn set_pace(socket: &impl AsFd, bytes: u64) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes)
}

/// Makes closing a socket end its connection at once: unsent data is discarded.
pub(super) fn set_abort_on_close(socket: &impl AsFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    Ok(setsockopt(socket, sockopt::Linger, &linger)?)
}
