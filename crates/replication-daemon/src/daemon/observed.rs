//! A connection that reports received bytes, and attempts to send.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::io::{self, IoSlice};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The direction that a connection reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Bytes have come.
    In,
    /// There are bytes to send.
    Out,
}

/// A stream that reports each time. It is below TLS, which returns bytes a record at a time: on a slow line
/// one record takes longer than the allowed silence.
#[derive(Debug)]
pub(crate) struct ObservedStream<S, F> {
    stream: S,
    on_use: F,
}

impl<S, F: FnMut(&S, Way)> ObservedStream<S, F> {
    pub(crate) fn new(stream: S, on_use: F) -> Self {
        ObservedStream { stream, on_use }
    }

    fn report_use(&mut self, way: Way) {
        (self.on_use)(&self.stream, way);
    }

    #[cfg(test)]
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin, F: FnMut(&S, Way) + Unpin> AsyncRead for ObservedStream<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, to);
        if to.filled().len() > before {
            self.report_use(Way::In);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin, F: FnMut(&S, Way) + Unpin> AsyncWrite for ObservedStream<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.report_use(Way::Out);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.report_use(Way::Out);
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
