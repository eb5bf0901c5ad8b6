//! Options of sockets between the emulator's hosts.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use nix::sys::socket::{setsockopt, sockopt};

/// Sets the congestion control of a TCP socket.
///
/// # Errors
/// If the kernel does not have it, or does not allow it to this user.
pub fn set_congestion_control(socket: &impl AsFd, name: &CStr) -> io::Result<()> {
    let name = OsStr::from_bytes(name.to_bytes()).to_owned();
    Ok(setsockopt(socket, sockopt::TcpCongestion, &name)?)
}

/// Sets the differentiated-services codepoint of a socket's IPv4 packets.
///
/// # Errors
/// If the descriptor is not an IPv4 socket.
pub fn set_dscp(socket: &impl AsFd, dscp: u8) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::Ipv4Tos, &i32::from(dscp << 2))?)
}
