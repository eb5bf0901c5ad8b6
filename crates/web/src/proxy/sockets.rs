//! The listening sockets: bound here, or inherited from the parent process.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdTcpListener, UdpSocket};

use listenfd::ListenFd;
use socket2::{Domain, Protocol, Socket, Type};

use super::config::Listen;
use super::error::{Error, Result};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Listening sockets that the process inherited, as from systemd's socket units (`LISTEN_FDS`). They stay
/// open when it ends: between one process and the next, clients wait and none is refused.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<(SocketAddr, StdTcpListener)>,
}

impl Inherited {
    /// Takes those named in the environment, if any.
    ///
    /// # Errors
    /// [`Error::System`] if one is not a listening TCP socket.
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

    /// The one that listens there, if any.
    pub(super) fn at(&mut self, address: SocketAddr) -> Option<StdTcpListener> {
        let place = self.sockets.iter().position(|(at, _)| *at == address)?;
        Some(self.sockets.swap_remove(place).1)
    }

    /// If one is left, clients would connect to it, and wait forever.
    pub(super) fn are_all_taken(&self) -> Result<()> {
        match self.sockets.first() {
            Some((address, _)) => Err(Error::Unnamed { address: *address }),
            None => Ok(()),
        }
    }
}

/// Whether `other` is all addresses of IPv4 and `listen` all of IPv6.
fn is_v4_of(listen: &Listen, other: &Listen) -> bool {
    let (v6, v4) = (listen.address, other.address);
    v6 == SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), v4.port())
        && v4.ip() == Ipv4Addr::UNSPECIFIED
        && v4.port() != 0
}

/// Whether a connection to `to` reaches the listener at `door`.
pub(super) fn leads_to(to: SocketAddr, door: SocketAddr) -> bool {
    let is_of_this_machine = || UdpSocket::bind((to.ip(), 0)).is_ok();
    let holds = door.ip() == to.ip()
        || door.ip().is_unspecified() && (door.is_ipv6() || to.is_ipv4()) && is_of_this_machine();
    holds && door.port() == to.port()
}

/// Listens there. `[::]` includes IPv4, independently of this machine's default, unless that is among `all`,
/// too.
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
        // So that a restart need not wait for the ends of the last connections.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(StdTcpListener::from(socket))
    };
    open().map_err(error)
}
