//! Making sockets inside hosts.

use std::ffi::CStr;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, connect, listen, socket,
};

use super::{Placed, TrafficError, Work, sys};
use crate::{Host, set_congestion_control, set_dscp};

/// Unsent bytes that may wait in a socket: enough to be never idle between two turns of the thread, and so
/// few that 64 senders use little memory.
const UNSENT_LIMIT: u32 = 256 * 1024;

/// The purpose of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It sends the group's data.
    Data,
    /// It receives them.
    Sink,
}

fn prepare(placed: &Placed, host: &Host, role: Role) -> Result<std::os::fd::OwnedFd, TrafficError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = host
        .enter(|| socket(AddressFamily::Inet, SockType::Stream, flags, None))?
        .map_err(|errno| TrafficError::system("making a socket")(errno.into()))?;
    if role == Role::Data {
        match placed.user_space() {
            Some(options) => drop(options.prepare(&made)?),
            None => set_congestion_control(&made, &placed.control).map_err(|source| {
                let group = placed.name.clone();
                TrafficError::Control { group, control: text(&placed.control), source }
            })?,
        }
        let options = || -> io::Result<()> {
            sys::set_unsent_limit(&made, UNSENT_LIMIT)?;
            if placed.dscp > 0 {
                set_dscp(&made, placed.dscp)?;
            }
            if let Work::Bulk { pace: Some(bytes) } = placed.work {
                sys::set_pace(&made, bytes)?;
            }
            Ok(())
        };
        options().map_err(TrafficError::system("setting an option of a socket"))?;
    }
    Ok(made)
}

fn text(control: &CStr) -> String {
    control.to_string_lossy().into_owned()
}

/// A listener on `host`. Accepted connections inherit its congestion control and its DSCP.
pub(super) fn listener(
    placed: &Placed,
    host: &Host,
    role: Role,
) -> Result<TcpListener, TrafficError> {
    let socket = prepare(placed, host, role)?;
    let address = SockaddrIn::from(SocketAddrV4::new(host.v4(), 0));
    let error = |errno: Errno| TrafficError::system("listening")(errno.into());
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &address).map_err(error)?;
    listen(&socket, Backlog::new(4096).map_err(error)?).map_err(error)?;
    Ok(TcpListener::from(socket))
}

/// A socket on `host` that is connecting to `address`.
pub(super) fn connecting(
    placed: &Placed,
    host: &Host,
    role: Role,
    address: SocketAddr,
) -> Result<TcpStream, TrafficError> {
    let socket = prepare(placed, host, role)?;
    let SocketAddr::V4(address) = address else { unreachable!("hosts' listeners are IPv4") };
    match connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrIn::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(TcpStream::from(socket)),
        Err(errno) => Err(TrafficError::system("connecting")(errno.into())),
    }
}
