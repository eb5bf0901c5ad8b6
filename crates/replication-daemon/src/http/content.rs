//! Bodies of requests and responses.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;

use bytes::Bytes as Buffer;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

/// Bytes to be sent: all at once, or as they arrive.
#[derive(Debug)]
pub(crate) enum Content {
    /// All of them; none once they are taken.
    Whole(Option<Buffer>),
    /// Pieces as a sender produces them, with the total length if known. Fewer bytes are an error.
    Pieces {
        /// Their source.
        pieces: Receiver<io::Result<Buffer>>,
        /// How many are left.
        left: Option<u64>,
    },
}

impl Content {
    pub(crate) fn of(bytes: impl Into<Buffer>) -> Self {
        Content::Whole(Some(bytes.into()))
    }

    pub(crate) fn none() -> Self {
        Content::Whole(None)
    }
}

impl Body for Content {
    type Data = Buffer;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Buffer>>>> {
        match &mut *self {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Pieces { pieces, left } => match pieces.poll_recv(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Some(Ok(bytes))) => {
                    if let Some(left) = left {
                        *left = left.saturating_sub(bytes.len() as u64);
                    }
                    Poll::Ready(Some(Ok(Frame::data(bytes))))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
                Poll::Ready(None) if left.is_some_and(|left| left > 0) => {
                    *left = None;
                    Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())))
                }
                Poll::Ready(None) => Poll::Ready(None),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Content::Whole(bytes) => bytes.is_none(),
            Content::Pieces { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Pieces { left: Some(left), .. } => SizeHint::with_exact(*left),
            Content::Pieces { left: None, .. } => SizeHint::default(),
        }
    }
}
