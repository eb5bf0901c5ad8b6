//! The body of a page on its way through the munger, or past it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Uri};
use http_body::{Body as HttpBody, Frame};

use super::heads::whole;
use super::observed_body::{BodyObserver, observed};
use super::reasons;
use super::shared::Shared;
use crate::munge::{Inspector, Munger, NoPlace, Outcome};
use crate::policy::Offence;
use crate::proxy::{Body, BoxError};

/// Bars a page that says so of itself, or may have said it where nobody could read it. That also ends a
/// prefetch that is under way, such as the one by which it was found out.
fn note(shared: &Shared, url: &str, why: NoPlace) {
    if why == NoPlace::Refresh {
        shared.knowledge.stubs.refreshes(url);
    }
    let offence = match why {
        NoPlace::OptOut => Offence::OptOut,
        NoPlace::Refresh => Offence::Redirect,
        _ if why.is_unread() => Offence::NotPublic,
        _ => return,
    };
    shared.rules.policy().bar(url, offence, shared.rules.now());
}

/// A page that gets the script as it passes. Each piece goes out as it comes.
pub(super) struct Munged {
    shared: Arc<Shared>,
    url: String,
    body: Body,
    /// Whether the page is the same for everybody, so that its length may be told.
    is_everybodys: bool,
    /// Whether somebody waits for it, and it is not fetched ahead.
    is_demand: bool,
    munger: Munger,
    /// What came and was not taken by the munger.
    rest: Bytes,
    /// Whether the munger has more to give.
    more: bool,
    out: Vec<u8>,
    state: State,
    is_told: bool,
}

enum State {
    Coming,
    /// The page is through; what is behind it is still to come.
    Trailers(HeaderMap),
    Failed(BoxError),
    Ended,
}

impl Munged {
    /// `body`, the page at `url`, with this around it. What has a query is nobody's but who asked it.
    pub(super) fn body(
        shared: &Arc<Shared>,
        url: &Uri,
        munger: Munger,
        body: Body,
        is_public: bool,
        is_demand: bool,
    ) -> Body {
        Body::wrap(Munged {
            shared: Arc::clone(shared),
            url: whole(url).to_owned(),
            body,
            is_everybodys: is_public && url.query().is_none(),
            is_demand,
            munger,
            rest: Bytes::new(),
            more: false,
            out: Vec::new(),
            state: State::Coming,
            is_told: false,
        })
    }

    /// Gives the next piece of what was taken, if there is one.
    fn push(&mut self) -> Result<Option<Bytes>, BoxError> {
        while self.more {
            let mut piece = &self.rest[..];
            self.more = self.munger.push(&mut piece, &mut self.out)?;
            let taken = self.rest.len() - piece.len();
            self.rest.advance(taken);
            self.look();
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

    /// Takes note of what became of the page, or of what it says of itself, once.
    fn look(&mut self) {
        let outcome = self.munger.outcome();
        if outcome == Outcome::Looking || std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let counts = &self.shared.counts;
        match outcome {
            Outcome::Left(why) => {
                if self.is_demand {
                    counts.pages_left.one(reasons::of_page(&why));
                }
                note(&self.shared, &self.url, why);
            }
            _ if self.is_demand => counts.pages.one(),
            _ => {}
        }
    }

    /// Takes the end of the page, whatever comes behind it.
    fn finish(&mut self, then: State) -> Result<Option<Bytes>, BoxError> {
        self.state = then;
        self.munger.finish(&mut self.out)?;
        self.look();
        Ok(self.take())
    }
}

impl HttpBody for Munged {
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
                        if this.is_everybodys {
                            this.shared.knowledge.lengths.note(&this.url, this.munger.taken());
                        }
                        given
                    }
                    // What the parser holds was sent, and is part of what the visitor gets.
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
                note(&self.shared, &self.url, why);
            }
        }
        Ok(())
    }
}
