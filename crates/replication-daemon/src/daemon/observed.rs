//! A connection that tells when something comes by it, and when something is to go.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::io::{self, IoSlice};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a connection tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Bytes have come.
    In,
    /// Bytes are to go.
    Out,
}

/// A stream that tells each time. It lies below TLS, which gives bytes out a record at a time: on a slow line one
/// takes longer than anybody may be silent.
#[derive(Debug)]
pub(crate) struct Observed<S, F> {
    stream: S,
    tell: F,
}

impl<S, F: FnMut(&S, Way)> Observed<S, F> {
    pub(crate) fn new(stream: S, tell: F) -> Self {
        Observed { stream, tell }
    }

    fn tell(&mut self, way: Way) {
        (self.tell)(&self.stream, way);
    }

    #[cfg(test)]
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin, F: FnMut(&S, Way) + Unpin> AsyncRead for Observed<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, to);
        if to.filled().len() > before {
            self.tell(Way::In);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin, F: FnMut(&S, Way) + Unpin> AsyncWrite for Observed<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.tell(Way::Out);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.tell(Way::Out);
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
