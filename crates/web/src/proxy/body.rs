//! Bodies on their way: from the client, and to it.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::task::AbortHandle;

use super::connection::{Connection, Counted};
use super::metrics::Counters;
use super::streams::Stream;
use super::upstream::UpstreamBody;

/// What goes wrong within a body, whoever made it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The body of a response: the upstream's as it comes, or another.
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

    /// A body of any kind, such as one that transforms another as it comes.
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

/// How far the body of a request has come, for who waits for the answer to it.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    /// Whether the client was told to go on, if it waits for that.
    is_open: AtomicBool,
    opened: AtomicWaker,
    bytes: AtomicU64,
    is_waiting: AtomicBool,
    is_done: AtomicBool,
    /// What goes on with it when it is answered already.
    rest: OnceLock<AbortHandle>,
}

impl Upload {
    /// `is_open`: whether the client sends without being told to.
    pub(crate) fn new(is_open: bool) -> Arc<Self> {
        Arc::new(Upload { is_open: AtomicBool::new(is_open), ..Upload::default() })
    }

    /// Lets the client send.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
        self.opened.wake();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether it is the client that is waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Whether there is nothing more to come.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// It is answered, and goes on in this task.
    pub(crate) fn goes_on_in(&self, task: AbortHandle) {
        // It is answered once.
        let _ = self.rest.set(task);
    }

    /// Ends it, if it is answered.
    pub(crate) fn end_rest(&self) {
        if let Some(task) = self.rest.get() {
            task.abort();
        }
    }
}

/// The body of a request, as it comes from the client.
#[derive(Debug, Default)]
pub struct RequestBody(Option<Coming>);

#[derive(Debug)]
struct Coming {
    incoming: Incoming,
    upload: Arc<Upload>,
    connection: Arc<Connection>,
    counters: Arc<Counters>,
    /// In HTTP/2.
    stream: Option<Arc<Stream>>,
    /// While the client is waited for.
    waiting: Option<Counted>,
    /// Whether its end has come.
    has_ended: bool,
    /// A request has not ended before its body has, even if it is answered already.
    _ongoing: Counted,
}

impl RequestBody {
    /// No bytes.
    pub fn empty() -> Self {
        RequestBody(None)
    }

    pub(crate) fn new(
        incoming: Incoming,
        upload: Arc<Upload>,
        connection: &Arc<Connection>,
        counters: &Arc<Counters>,
        stream: Option<Arc<Stream>>,
    ) -> Self {
        if let Some(stream) = &stream {
            stream.brings(&upload);
        }
        RequestBody(Some(Coming {
            incoming,
            upload,
            connection: Arc::clone(connection),
            counters: Arc::clone(counters),
            stream,
            waiting: None,
            has_ended: false,
            _ongoing: Counted::ongoing(connection),
        }))
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(coming) = &mut self.0 else { return Poll::Ready(None) };
        let upload = &*coming.upload;
        if !upload.is_open() {
            upload.opened.register(cx.waker());
            // It may have been opened since.
            if !upload.is_open() {
                return Poll::Pending;
            }
        }
        let polled = Pin::new(&mut coming.incoming).poll_frame(cx);
        match &polled {
            Poll::Pending if coming.waiting.is_none() => {
                coming.waiting = Some(Counted::waiting_for_body(&coming.connection));
                upload.is_waiting.store(true, Ordering::Relaxed);
            }
            Poll::Pending => {}
            Poll::Ready(frame) => {
                if coming.waiting.take().is_some() {
                    upload.is_waiting.store(false, Ordering::Relaxed);
                }
                let frame = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref));
                // Trailers are the last as well.
                coming.has_ended = matches!(frame, None | Some(Ok(None)));
                if let Some(Ok(Some(data))) = frame {
                    upload.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                    coming.counters.bytes_received.add(data.len() as u64);
                    if let Some(stream) = &coming.stream {
                        stream.has_come(data.len());
                    }
                }
            }
        }
        let has_ended = matches!(polled, Poll::Ready(None | Some(Err(_))));
        if has_ended {
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|coming| coming.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Some(coming) => coming.incoming.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if self.stream.is_none() && !self.has_ended && !self.incoming.is_end_stream() {
            self.connection.left_unread.store(true, Ordering::Relaxed);
        }
        self.upload.is_waiting.store(false, Ordering::Relaxed);
        self.upload.is_done.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn bodies_of_ones_own_are_what_they_were_made_of() {
        assert!(Body::empty().is_end_stream() && Body::full("").is_end_stream());
        let full = Body::full("hello");
        assert_eq!(full.size_hint().exact(), Some(5));
        assert_eq!(full.collect().await.unwrap().to_bytes(), "hello");
        let wrapped = Body::wrap(http_body_util::Full::new(Bytes::from_static(b"wrapped")));
        assert_eq!(wrapped.collect().await.unwrap().to_bytes(), "wrapped");
    }
}
