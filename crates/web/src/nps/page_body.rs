//! The body of a page on its way through the inserter, or past it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Uri};
use http_body::{Body as HttpBody, Frame};

use super::heads::whole;
use super::observed_body::{BodyObserver, observed};
use super::reasons;
use super::redirect_stubs::RedirectStubs;
use super::shared::Shared;
use super::site_rules::SiteRules;
use crate::policy::Offence;
use crate::proxy::{Body, BoxError};
use crate::script_insertion::{Inspector, NoInsertionPoint, Outcome, ScriptInserter};

/// Bars a page that opts out, or may have opted out in an unreadable part. That also ends a prefetch in
/// flight, such as the one that found the opt-out.
fn bar_opt_out(rules: &SiteRules, stubs: &RedirectStubs, url: &str, why: NoInsertionPoint) {
    if why == NoInsertionPoint::Refresh {
        stubs.refreshes(url);
    }
    let offence = match why {
        NoInsertionPoint::OptOut => Offence::OptOut,
        NoInsertionPoint::Refresh => Offence::Redirect,
        _ if why.is_unread() => Offence::NotPublic,
        _ => return,
    };
    rules.policy().bar(url, offence, rules.now());
}

/// A page that gets the script as it passes. Each piece is sent as it arrives.
pub(super) struct PageBody {
    shared: Arc<Shared>,
    url: String,
    body: Body,
    /// Whether the page is public, so that its length may be used.
    is_shareable: bool,
    /// Whether it is demand, and not a prefetch.
    is_demand: bool,
    inserter: ScriptInserter,
    /// Received bytes that the inserter has not taken.
    rest: Bytes,
    /// Whether the inserter has more output.
    more: bool,
    out: Vec<u8>,
    state: State,
    is_told: bool,
}

enum State {
    Coming,
    /// The page is complete; only its trailers are still to come.
    Trailers(HeaderMap),
    Failed(BoxError),
    Ended,
}

impl PageBody {
    /// `body`, the page at `url`, with this around it. A page with a query counts as personal.
    pub(super) fn body(
        shared: &Arc<Shared>,
        url: &Uri,
        inserter: ScriptInserter,
        body: Body,
        is_public: bool,
        is_demand: bool,
    ) -> Body {
        Body::wrap(PageBody {
            shared: Arc::clone(shared),
            url: whole(url).to_owned(),
            body,
            is_shareable: is_public && url.query().is_none(),
            is_demand,
            inserter,
            rest: Bytes::new(),
            more: false,
            out: Vec::new(),
            state: State::Coming,
            is_told: false,
        })
    }

    /// Passes on the next chunk of the input, if there is one.
    fn push(&mut self) -> Result<Option<Bytes>, BoxError> {
        while self.more {
            let mut piece = &self.rest[..];
            self.more = self.inserter.push(&mut piece, &mut self.out)?;
            let taken = self.rest.len() - piece.len();
            self.rest.advance(taken);
            self.count_outcome();
            if let Some(out) = self.take() {
                return Ok(Some(out));
            }
        }
        Ok(None)
    }

    fn take(&mut self) -> Option<Bytes> {
        let out = std::mem::take(&mut self.out);
        (!out.is_empty()).then(|| out.into())
    }

    /// Notes the result for the page, or its opt-out, once.
    fn count_outcome(&mut self) {
        let outcome = self.inserter.outcome();
        if outcome == Outcome::Looking || std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let counts = &self.shared.counts;
        match outcome {
            Outcome::Left(why) => {
                if self.is_demand {
                    counts.pages_unchanged.one(reasons::of_page(&why));
                }
                bar_opt_out(&self.shared.rules, &self.shared.knowledge.stubs, &self.url, why);
            }
            _ if self.is_demand => counts.pages.one(),
            _ => {}
        }
    }

    /// Handles the end of the page, before anything that follows it.
    fn finish(&mut self, then: State) -> Result<Option<Bytes>, BoxError> {
        self.state = then;
        self.inserter.finish(&mut self.out)?;
        self.count_outcome();
        Ok(self.take())
    }
}

impl HttpBody for PageBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            match std::mem::replace(&mut this.state, State::Ended) {
                State::Coming => this.state = State::Coming,
                State::Trailers(trailers) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                State::Failed(error) => return Poll::Ready(Some(Err(error))),
                State::Ended => return Poll::Ready(None),
            }
            let given = if this.more {
                this.push()
            } else {
                match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                    None => {
                        let given = this.finish(State::Ended);
                        if this.is_shareable {
                            this.shared.knowledge.lengths.record(&this.url, this.inserter.taken());
                        }
                        given
                    }
                    // The bytes held by the parser were sent, and are part of the visitor's page.
                    Some(Err(error)) => this.finish(State::Failed(error)),
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => {
                            (this.rest, this.more) = (data, true);
                            this.push()
                        }
                        Err(frame) => {
                            let trailers = frame.into_trailers().unwrap_or_default();
                            this.finish(State::Trailers(trailers))
                        }
                    },
                }
            };
            match given {
                Ok(Some(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(None) => {}
                Err(error) => {
                    this.state = State::Ended;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended)
    }
}

/// Reads a prefetched page that passes unchanged.
struct PageInspector {
    shared: Arc<Shared>,
    url: String,
    /// Until its head has ended.
    inspector: Option<Inspector>,
}

/// `body`, the prefetched page at `url`, which passes unchanged and is read on its way.
pub(super) fn inspected(shared: &Arc<Shared>, url: &Uri, inspector: Inspector, body: Body) -> Body {
    let (shared, url) = (Arc::clone(shared), whole(url).to_owned());
    observed(body, PageInspector { shared, url, inspector: Some(inspector) })
}

impl BodyObserver for PageInspector {
    fn data(&mut self, data: &[u8]) -> Result<(), BoxError> {
        if !data.is_empty()
            && let Some(found) = self.inspector.as_mut().and_then(|one| one.push(data))
        {
            self.inspector = None;
            if let Err(why) = found {
                bar_opt_out(&self.shared.rules, &self.shared.knowledge.stubs, &self.url, why);
            }
        }
        Ok(())
    }
}
