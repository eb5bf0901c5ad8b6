//! Socket options that no safe crate wraps.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;

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

/// Limits what a socket sends to `bytes` per second.
pub(super) fn set_pace(socket: &impl AsFd, bytes: u64) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes)
}

/// Makes closing a socket end its connection at once: what is unsent is thrown away.
pub(super) fn set_abort_on_close(socket: &impl AsFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    set_option(socket, libc::SOL_SOCKET, libc::SO_LINGER, linger)
}

/// What the kernel tells of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpInfo {
    /// Smoothed round-trip time.
    pub(super) srtt: Duration,
    /// Segments sent again so far.
    pub(super) retransmitted: u32,
    /// The congestion window in packets, as the kernel counts it.
    pub(super) window: u32,
}

/// `TCP_INFO` of tcp(7).
pub(super) fn tcp_info(socket: &impl AsFd) -> io::Result<TcpInfo> {
    // SAFETY: `tcp_info` consists of integers: all zeros is a value of it.
    let mut information: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&information) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `information`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut information).cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    Ok(TcpInfo {
        srtt: Duration::from_micros(u64::from(information.tcpi_rtt)),
        retransmitted: information.tcpi_total_retrans,
        window: information.tcpi_snd_cwnd,
    })
}
