//! A body that is compressed as it passes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};

use super::body::{Body, BoxError};
use crate::content_coding::Encoder;

/// Bytes of output that are sent at a time.
const CHUNK: usize = 32 << 10;

/// A body that is compressed as it passes. What the server has sent so far is never held back.
pub(crate) struct InlineBody {
    body: Body,
    /// Until the end.
    encoder: Option<Encoder>,
    out: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl InlineBody {
    pub(crate) fn new(body: Body, encoder: Encoder) -> Self {
        InlineBody { body, encoder: Some(encoder), out: Vec::new(), trailers: None }
    }

    fn take(&mut self) -> Option<Frame<Bytes>> {
        let out = std::mem::take(&mut self.out);
        (!out.is_empty()).then(|| Frame::data(out.into()))
    }
}

impl HttpBody for InlineBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        while let Some(encoder) = &mut this.encoder {
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                encoder.flush(&mut this.out)?;
                return this.take().map_or(Poll::Pending, |frame| Poll::Ready(Some(Ok(frame))));
            };
            match frame.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => {
                    encoder.write(&data, &mut this.out)?;
                    if this.out.len() < CHUNK {
                        continue;
                    }
                }
                end => {
                    encoder.finish(&mut this.out)?;
                    this.encoder = None;
                    this.trailers = end.and_then(|frame| frame.err()?.into_trailers().ok());
                }
            }
            if let Some(frame) = this.take() {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
        Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none() && self.trailers.is_none()
    }
}
