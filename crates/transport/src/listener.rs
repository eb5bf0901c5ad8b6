//! Listeners whose connections are background connections.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::AsFd;

use crate::background::Background;
use crate::carrier::Carrier;
use crate::error::Result;
use crate::options::{Options, Prepared};

impl Options {
    /// Makes a listener a background one: accepted connections are in the background from their first packet.
    ///
    /// # Errors
    /// The errors of [`prepare`](Self::prepare).
    pub fn listener<L: AsFd>(&self, listener: L) -> Result<BackgroundListener<L>> {
        let prepared = self.prepare(&listener)?;
        Ok(BackgroundListener::new(listener, prepared))
    }
}

/// A listener whose connections are background connections.
///
/// With the kernel's carrier they are, in any way of accepting. With the user-space carrier they start at a
/// rate of two packets in 100 ms, and [`accept`](Self::accept) puts them under control. Connections accepted
/// from the listener itself stay at that rate.
#[derive(Debug)]
pub struct BackgroundListener<L> {
    listener: L,
    prepared: Prepared,
}

impl<L> BackgroundListener<L> {
    pub(crate) fn new(listener: L, prepared: Prepared) -> Self {
        BackgroundListener { listener, prepared }
    }

    /// The carrier of the connections.
    pub fn carrier(&self) -> Carrier {
        self.prepared.carrier()
    }

    /// Puts a stream that was accepted from this listener by other means under control.
    ///
    /// # Errors
    /// The errors of [`Options::guard`](crate::Options::guard).
    pub fn accepted<S: AsFd>(&self, stream: S) -> Result<Background<S>> {
        self.prepared.stream(stream)
    }
}

impl BackgroundListener<TcpListener> {
    /// Waits for a connection, and returns it with the address of its other end.
    ///
    /// # Errors
    /// The errors of [`TcpListener::accept`], and as an [`io::Error`] those of
    /// [`Options::guard`](crate::Options::guard).
    pub fn accept(&self) -> io::Result<(Background<TcpStream>, SocketAddr)> {
        let (stream, address) = self.listener.accept()?;
        Ok((self.accepted(stream)?, address))
    }
}

impl<L> Deref for BackgroundListener<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.listener
    }
}
