//! Bodies of responses.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::upstream::UpstreamBody;

/// An error within a body, from any source.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The body of a response: the upstream's as it arrives, or another.
#[derive(Debug)]
pub struct Body(Kind);

enum Kind {
    Empty,
    Full(Option<Bytes>),
    Upstream(UpstreamBody),
    Other(Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send>>),
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Empty => "Empty",
            Kind::Full(_) => "Full",
            Kind::Upstream(_) => "Upstream",
            Kind::Other(_) => "Other",
        })
    }
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Body(Kind::Empty)
    }

    /// These bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() { Self::empty() } else { Body(Kind::Full(Some(bytes))) }
    }

    /// A body of any kind, for example one that transforms another.
    pub fn wrap<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body(Kind::Other(Box::pin(IntoBoxError(Box::pin(body)))))
    }

    pub(crate) fn upstream(body: UpstreamBody) -> Self {
        Body(Kind::Upstream(body))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Empty => Poll::Ready(None),
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Upstream(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(Into::into))),
            Kind::Other(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Full(bytes) => bytes.is_none(),
            Kind::Upstream(body) => body.is_end_stream(),
            Kind::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Upstream(body) => body.size_hint(),
            Kind::Other(body) => body.size_hint(),
        }
    }
}

/// A body whose error is boxed.
struct IntoBoxError<B>(Pin<Box<B>>);

impl<B> HttpBody for IntoBoxError<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn own_bodies_yield_their_contents() {
        assert!(Body::empty().is_end_stream() && Body::full("").is_end_stream());
        let full = Body::full("hello");
        assert_eq!(full.size_hint().exact(), Some(5));
        assert_eq!(full.collect().await.unwrap().to_bytes(), "hello");
        let wrapped = Body::wrap(http_body_util::Full::new(Bytes::from_static(b"wrapped")));
        assert_eq!(wrapped.collect().await.unwrap().to_bytes(), "wrapped");
    }
}
