//! Background streams and listeners of Tokio. The user-space carrier runs in the same thread as for blocking
//! sockets: it needs no task of the runtime, and a busy runtime does not delay it.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::{Background, BackgroundListener, Options};

impl Options {
    /// Connects to `address` in the background, from the handshake on, inside a Tokio runtime.
    ///
    /// # Errors
    /// The errors of [`TcpSocket::connect`], and as an [`io::Error`] those of [`Options::guard`].
    pub async fn connect_tokio(&self, address: SocketAddr) -> io::Result<Background<TcpStream>> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        let prepared = self.prepare(&socket)?;
        Ok(prepared.stream(socket.connect(address).await?)?)
    }
}

impl BackgroundListener<TcpListener> {
    /// Waits for a connection, and returns it with the address of its other end. Cancel-safe, like
    /// [`TcpListener::accept`].
    ///
    /// # Errors
    /// The errors of [`TcpListener::accept`], and as an [`io::Error`] those of [`Options::guard`].
    pub async fn accept(&self) -> io::Result<(Background<TcpStream>, SocketAddr)> {
        let listener: &TcpListener = self;
        let (stream, address) = listener.accept().await?;
        Ok((self.accepted(stream)?, address))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Background<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut **self).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Background<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut **self).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut **self).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        (**self).is_write_vectored()
    }
}
