//! Sockets by which clients come in: bound here, or handed over by who started the process.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdTcpListener, UdpSocket};

use listenfd::ListenFd;
use socket2::{Domain, Protocol, Socket, Type};

use super::config::Listen;
use super::error::{Error, Result};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Listening sockets that the process was started with, as by systemd's socket units (`LISTEN_FDS`). They stay
/// when it ends: between one process and the next clients wait, and nobody is refused.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<(SocketAddr, StdTcpListener)>,
}

impl Inherited {
    /// Takes those that the environment tells of, if there are any.
    ///
    /// # Errors
    /// [`Error::System`] if one is no listening socket of TCP.
    pub fn take() -> Result<Self> {
        let error = || Error::system("take over a socket that the process was started with");
        let mut told = ListenFd::from_env();
        let mut sockets = Vec::new();
        for place in 0..told.len() {
            if let Some(socket) = told.take_tcp_listener(place).map_err(error())? {
                socket.set_nonblocking(true).map_err(error())?;
                sockets.push((socket.local_addr().map_err(error())?, socket));
            }
        }
        Ok(Inherited { sockets })
    }

    /// The one that listens there, if there is one.
    pub(super) fn at(&mut self, address: SocketAddr) -> Option<StdTcpListener> {
        let place = self.sockets.iter().position(|(at, _)| *at == address)?;
        Some(self.sockets.swap_remove(place).1)
    }

    /// Clients would come to one that is left, and wait for ever.
    pub(super) fn are_all_taken(&self) -> Result<()> {
        match self.sockets.first() {
            Some((address, _)) => Err(Error::Unnamed { address: *address }),
            None => Ok(()),
        }
    }
}

/// Whether `other` is all addresses of IPv4 where `listen` is all of IPv6.
fn is_v4_of(listen: &Listen, other: &Listen) -> bool {
    let (v6, v4) = (listen.address, other.address);
    v6 == SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), v4.port())
        && v4.ip() == Ipv4Addr::UNSPECIFIED
        && v4.port() != 0
}

/// Whether who connects to `to` comes to who listens at `door`.
pub(super) fn leads_to(to: SocketAddr, door: SocketAddr) -> bool {
    let is_of_this_machine = || UdpSocket::bind((to.ip(), 0)).is_ok();
    let holds = door.ip() == to.ip()
        || door.ip().is_unspecified() && (door.is_ipv6() || to.is_ipv4()) && is_of_this_machine();
    holds && door.port() == to.port()
}

/// Listens there. `[::]` holds IPv4 as well, whatever is usual on this machine, unless that is among `all`, too.
pub(super) fn bind(listen: &Listen, all: &[Listen]) -> Result<StdTcpListener> {
    let address = listen.address;
    let is_v6_only = all.iter().any(|other| is_v4_of(listen, other));
    let error = |source| Error::Bind { address, source };
    let open = || {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(is_v6_only)?;
        }
        // So that a restart need not wait for the last connections' ends.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(StdTcpListener::from(socket))
    };
    open().map_err(error)
}
