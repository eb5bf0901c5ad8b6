//! Bodies of requests.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use super::connection::{Connection, CountGuard};
use super::streams::Stream;
use super::thread_counters::Counters;
pub(super) use super::upload::Upload;

/// The body of a request, as it arrives from the client.
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
    /// While it waits for the client.
    waiting: Option<CountGuard>,
    /// Whether its end has arrived.
    has_ended: bool,
    /// A request has not ended before its body has, even if it is answered already.
    _ongoing: CountGuard,
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
            _ongoing: CountGuard::ongoing(connection),
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
                coming.waiting = Some(CountGuard::waiting_for_body(&coming.connection));
                upload.is_waiting.store(true, Ordering::Relaxed);
            }
            Poll::Pending => {}
            Poll::Ready(frame) => {
                if coming.waiting.take().is_some() {
                    upload.is_waiting.store(false, Ordering::Relaxed);
                }
                let frame = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref));
                // Trailers are the last frame as well.
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
