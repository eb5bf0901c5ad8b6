//! A body that passes unchanged, piece by piece, past an observer that may end it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::proxy::{Body, BoxError};

/// Sees a body pass.
pub(super) trait BodyObserver {
    /// Called before each piece passes, also before trailers and the end. An error ends the body.
    ///
    /// # Errors
    /// If the body has to end.
    fn check(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// The next bytes.
    ///
    /// # Errors
    /// If the body has to end.
    fn data(&mut self, data: &[u8]) -> Result<(), BoxError>;

    /// All of it has passed. May be called twice.
    fn end(&mut self) {}

    /// It broke off.
    fn failed(&mut self) {}
}

/// `body`, seen by `observer`.
pub(super) fn observed(body: Body, observer: impl BodyObserver + Send + Unpin + 'static) -> Body {
    Body::wrap(ObservedBody { body, observer })
}

struct ObservedBody<O> {
    body: Body,
    observer: O,
}

impl<O: BodyObserver + Unpin> HttpBody for ObservedBody<O> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let polled = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Err(why) = this.observer.check() {
            return Poll::Ready(Some(Err(why)));
        }
        match &polled {
            None => this.observer.end(),
            Some(Err(_)) => this.observer.failed(),
            Some(Ok(frame)) => {
                if let Err(why) = this.observer.data(frame.data_ref().map_or(&[], |data| data)) {
                    return Poll::Ready(Some(Err(why)));
                }
                // A client that knows the length does not poll for more.
                if this.body.is_end_stream() {
                    this.observer.end();
                }
            }
        }
        Poll::Ready(polled)
    }

    /// After the last piece, which the observer saw.
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
