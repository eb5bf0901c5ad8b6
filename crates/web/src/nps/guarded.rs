//! The reply to a prefetch, as long as the visitor is the one that it was asked for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::Shared;
use crate::policy::{Admitted, Refusal, Visitor};
use crate::proxy::{Body, BoxError};

/// A body that ends in an error once its visitor has signed in: a copy that is not whole is not
/// kept.
pub(super) struct Guarded {
    shared: Arc<Shared>,
    admitted: Admitted,
    body: Body,
}

impl Guarded {
    /// `body`, with this around it where it has something to look for.
    pub(super) fn body(shared: &Arc<Shared>, admitted: &Admitted, body: Body) -> Body {
        // A visitor without cookies is told from one who has signed in by `Vary: Cookie`.
        if admitted.mark.visitor() == Visitor::Cookieless {
            return body;
        }
        let (shared, admitted) = (Arc::clone(shared), admitted.clone());
        Body::wrap(Guarded { shared, admitted, body })
    }

    fn check(&self) -> Result<(), Refusal> {
        self.shared.policy().still(&self.admitted, self.shared.now())
    }
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready()
            && let Err(refusal) = self.check()
        {
            return Poll::Ready(Some(Err(refusal.into())));
        }
        polled
    }

    /// Never before the end was looked at, else the last piece would be the last look.
    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
