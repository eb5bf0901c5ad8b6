//! Pages that visitors get, compared with each other: which cookies change them, and which URLs do.
//!
//! What follows from a comparison is for [`CookieEvidence`] and [`SideEffects`] to say. Here replies are chosen that can be
//! compared, and their bodies are hashed as they pass, as the upstream sent them.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{
    ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderValue, SET_COOKIE, USER_AGENT,
};
use http::{Method, StatusCode, request, response};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::who::Who;
use super::{Shared, lock, whole};
use crate::munge;
use crate::policy::{
    self, Client, CookieEvidence, CookieFigures, CookieSample, Harmless, Offence, SideEffects,
    fields,
};
use crate::proxy::{Body, BoxError};

/// A longer page is not compared.
const LONGEST: u64 = 2 << 20;

/// What was learned from the pages so far.
#[derive(Debug)]
pub(super) struct Samples {
    key: RandomState,
    learned: Mutex<Learned>,
}

#[derive(Debug)]
struct Learned {
    /// `None` if the owner decides alone which cookies are harmless.
    cookies: Option<CookieEvidence>,
    effects: SideEffects,
}

impl Samples {
    pub(super) fn new(harmless: &Harmless) -> Self {
        let cookies = harmless.learned().map(CookieEvidence::new);
        let effects = SideEffects::default();
        Samples { key: RandomState::new(), learned: Mutex::new(Learned { cookies, effects }) }
    }

    /// What is known about cookies.
    pub(super) fn cookies(&self) -> Vec<CookieFigures> {
        lock(&self.learned).cookies.as_ref().map(CookieEvidence::figures).unwrap_or_default()
    }
}

/// A page that is to be compared when its body has passed.
#[derive(Debug)]
pub(super) struct Sampling {
    page: u64,
    url: String,
    client: Client,
    /// Those of the request that are not on the list of harmless ones.
    cookies: Vec<(String, String)>,
    /// How many requests there were when its reply began.
    at: u64,
    hasher: DefaultHasher,
    bytes: u64,
}

/// Takes note of a reply that begins; gives what is to be done with its body, if it is a page that can be compared.
/// `may_compare` says that nothing but its cookies can say who sent the request.
pub(super) fn begin(
    shared: &Shared,
    request: &request::Parts,
    head: &response::Parts,
    who: Who,
    may_compare: bool,
) -> Option<Sampling> {
    let is_done = head.status.is_success() || head.status.is_redirection();
    if !request.method.is_safe() {
        if is_done {
            lock(&shared.samples.learned).effects.sent();
        }
        return None;
    }
    note_http_only(shared, head);
    let url = whole(&request.uri);
    let is_named = shared.settings.rules.urls.name_of(url) == url;
    if request.method != Method::GET || !head.status.is_success() || !is_named {
        return None;
    }
    let is_page = is_page(request, head);
    if !is_page && policy::is_static_file(request.uri.path()) {
        return None;
    }
    let (acts, at) = {
        let mut learned = lock(&shared.samples.learned);
        (learned.effects.got(url), learned.effects.count())
    };
    if acts {
        shared.policy().bar(url, Offence::Acts, shared.now());
    }
    if !may_compare || !is_page || fields::asks_for_a_part(&request.headers) {
        return None;
    }
    let cookies: Vec<_> = policy::unlisted_cookies(&request.headers, &shared.harmless)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let is_private = super::demand::is_private(&head.headers);
    if is_private && cookies.is_empty() {
        return None;
    }
    let mut hasher = shared.samples.key.build_hasher();
    // A visitor for whom the site says something else about caches gets another page.
    (is_private, head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes)).hash(&mut hasher);
    let page = shared.samples.key.hash_one(variant(request, head, who));
    Some(Sampling { page, url: url.to_owned(), client: who.client, cookies, at, hasher, bytes: 0 })
}

/// All by which replies for a URL usually differ, other than cookies.
fn variant<'a>(request: &'a request::Parts, head: &'a response::Parts, who: Who) -> impl Hash + 'a {
    let field = |name| request.headers.get(name).map(HeaderValue::as_bytes);
    let agent = fields::single(&request.headers, USER_AGENT).unwrap_or_default();
    (
        whole(&request.uri),
        request.uri.authority().map(|authority| authority.as_str()),
        field(HOST),
        field(ACCEPT_LANGUAGE),
        head.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes),
        agent.contains("Mobile"),
        who.secure,
    )
}

/// Cookies that no script may read are how sites know their users.
fn note_http_only(shared: &Shared, head: &response::Parts) {
    for line in head.headers.get_all(SET_COOKIE) {
        let Some((name, rest)) = line.to_str().ok().and_then(|line| line.split_once('=')) else {
            continue;
        };
        let is = rest.split(';').any(|part| part.trim().eq_ignore_ascii_case("httponly"));
        if is && let Some(cookies) = &mut lock(&shared.samples.learned).cookies {
            cookies.is_http_only(name.trim());
        }
    }
}

fn is_page(request: &request::Parts, head: &response::Parts) -> bool {
    let kind = fields::single(&head.headers, CONTENT_TYPE).unwrap_or_default();
    head.status == StatusCode::OK
        && munge::is_document(&request.headers)
        && kind.get(..9).is_some_and(|kind| kind.eq_ignore_ascii_case("text/html"))
}

impl Sampling {
    fn end(self, shared: &Shared) {
        let body = self.hasher.finish();
        let found = {
            let mut learned = lock(&shared.samples.learned);
            let Learned { cookies, effects } = &mut *learned;
            let (page, client) = (self.page, self.client);
            if let Some(evidence) = cookies {
                evidence.saw(CookieSample { page, body, client, cookies: &self.cookies });
            }
            let is_anonymous = self.cookies.is_empty();
            if is_anonymous { effects.saw(page, &self.url, body, self.at) } else { Vec::new() }
        };
        for url in found {
            shared.policy().bar(&url, Offence::Acts, shared.now());
        }
    }
}

/// A body that is hashed as it passes.
struct Sampled {
    shared: Arc<Shared>,
    sampling: Option<Sampling>,
    body: Body,
}

impl Sampled {
    fn end(&mut self) {
        if let Some(sampling) = self.sampling.take() {
            sampling.end(&self.shared);
        }
    }
}

/// `body` as it is, with this around it if it is to be compared.
pub(super) fn sampled(shared: &Arc<Shared>, sampling: Option<Sampling>, body: Body) -> Body {
    match sampling {
        None => body,
        sampling => Body::wrap(Sampled { shared: Arc::clone(shared), sampling, body }),
    }
}

impl HttpBody for Sampled {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &polled {
            None => self.end(),
            Some(Err(_)) => self.sampling = None,
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref()
                    && let Some(sampling) = &mut self.sampling
                {
                    sampling.hasher.write(data);
                    sampling.bytes += data.len() as u64;
                    if sampling.bytes > LONGEST {
                        self.sampling = None;
                    }
                }
                // A client that knows the length does not ask for more.
                if self.body.is_end_stream() {
                    self.end();
                }
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_a_body_is_the_same_in_any_pieces() {
        let key = RandomState::new();
        let of = |pieces: &[&[u8]]| {
            let mut hasher = key.build_hasher();
            pieces.iter().for_each(|piece| hasher.write(piece));
            hasher.finish()
        };
        let body = (0..200_u8).collect::<Vec<_>>();
        let whole = of(&[&body]);
        for at in 0..=body.len() {
            let (before, after) = body.split_at(at);
            assert_eq!(of(&[before, after]), whole);
            let (middle, end) = after.split_at(after.len() / 3);
            assert_eq!(of(&[before, middle, b"", end]), whole);
        }
        assert_ne!(of(&[&body, b"x"]), whole);
    }
}
