//! Addresses that the proxy listens on.

use std::net::SocketAddr;

/// The listening addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address, with the port chosen by the kernel if it was asked for one.
    pub address: SocketAddr,
    /// Whether clients use TLS there.
    pub secure: bool,
    /// Whether all its connections are in the background.
    pub background: bool,
}
