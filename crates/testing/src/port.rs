//! Ports for programs that need a number before they listen.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::os::fd::IntoRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Below the ports that the kernel gives to outgoing connections and to listeners on port 0. A port among those may
/// be in use by another test before the program listens, or while a program that was killed starts again.
const PORTS: Range<u16> = 20_000..30_000;

/// A port of this machine that is free for TCP and UDP. No other test gets it while this process runs.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    let count = u64::from(PORTS.end - PORTS.start);
    let first = RandomState::new().hash_one(()) % count;
    let mut ports = (first..first + count).map(|at| PORTS.start + (at % count) as u16);
    ports.find(|port| is_free(*port) && reserve(*port)).expect("there are free ports")
}

fn is_free(port: u16) -> bool {
    let address = (Ipv4Addr::LOCALHOST, port);
    TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
}

/// Whether no other process has reserved it. The kernel frees the name with the process, in any way.
fn reserve(port: u16) -> bool {
    let name = format!("lull-testing-port-{port}");
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    UnixListener::bind_addr(&address).map(IntoRawFd::into_raw_fd).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_differ() {
        let ports: Vec<_> = (0..100).map(|_| free_port()).collect();
        for (at, port) in ports.iter().enumerate() {
            assert!(!ports[..at].contains(port), "{port} is given twice");
            assert!(!reserve(*port), "{port} is not reserved");
            TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).expect("it is free");
        }
    }
}
