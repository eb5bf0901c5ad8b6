//! Options of a TCP socket: congestion control and pacing rate.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};

use crate::error::{Error, Result};
use crate::sys;

pub(crate) fn congestion_control(socket: BorrowedFd<'_>) -> nix::Result<OsString> {
    getsockopt(&socket, sockopt::TcpCongestion)
}

pub(crate) fn set_congestion_control(socket: BorrowedFd<'_>, name: &str) -> nix::Result<()> {
    setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(name))
}

pub(crate) fn set_rate(socket: BorrowedFd<'_>, bytes_per_second: u64) -> Result<()> {
    sys::set_max_pacing_rate(socket, bytes_per_second).map_err(Error::pacing)
}
