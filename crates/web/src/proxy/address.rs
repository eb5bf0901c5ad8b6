//! Where the proxy listens.

use std::net::SocketAddr;

/// Where clients come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address, with the port that the kernel chose if it was asked to.
    pub address: SocketAddr,
    /// Whether clients speak TLS there.
    pub secure: bool,
    /// Whether all that comes in there is in the background.
    pub background: bool,
}
