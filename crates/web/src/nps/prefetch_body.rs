//! The reply to a prefetch, as long as it may still be given.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Uri;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::who::Who;
use super::{Shared, whole};
use crate::policy::Admitted;
use crate::proxy::{Body, BoxError};

/// A body that ends in an error once its visitor has had enough, its URL is barred, be
/// it by what the body itself says, or the kill switch is thrown: a copy that is not whole is not kept. It ends
/// with its next piece.
pub(super) struct Guarded {
    shared: Arc<Shared>,
    admitted: Admitted,
    who: Who,
    path: String,
    body: Body,
    sent: u64,
}

/// The owner wants no more of it.
#[derive(Debug, thiserror::Error)]
enum Enough {
    #[error("the day's bytes are fetched ahead")]
    Bytes,
    #[error("nothing is fetched ahead any more")]
    Off,
}

impl Guarded {
    /// `body`, the reply at `url`, with this around it.
    pub(super) fn body(
        shared: &Arc<Shared>,
        admitted: &Admitted,
        who: Who,
        url: &Uri,
        body: Body,
    ) -> Body {
        Body::wrap(Guarded {
            shared: Arc::clone(shared),
            admitted: admitted.clone(),
            who,
            path: shared.settings.rules.urls.name_of(whole(url)).to_owned(),
            body,
            sent: 0,
        })
    }

    fn check(&self) -> Result<(), BoxError> {
        if !self.shared.is_active() {
            return Err(Enough::Off.into());
        }
        Ok(self.shared.policy().still(&self.admitted, self.shared.now())?)
    }

    /// All of it was sent.
    fn note_copy(&self) {
        self.shared.caps.copied(self.who.client, &self.path, self.sent, self.shared.now());
    }

    fn count(&mut self, bytes: u64) -> Result<(), Enough> {
        self.sent += bytes;
        self.shared.counts.prefetched_bytes.add(bytes);
        let may_go_on = self.shared.caps.spend(self.who.client, self.shared.now(), bytes);
        if may_go_on { Ok(()) } else { Err(Enough::Bytes) }
    }
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Err(why) = self.check() {
            return Poll::Ready(Some(Err(why)));
        }
        match &polled {
            None => self.note_copy(),
            Some(Err(_)) => {}
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                if let Err(enough) = self.count(bytes as u64) {
                    return Poll::Ready(Some(Err(enough.into())));
                }
                // A client that knows the length does not ask for more.
                if self.body.is_end_stream() {
                    self.note_copy();
                }
            }
        }
        Poll::Ready(polled)
    }

    /// With the last piece, which was looked at as it passed.
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
