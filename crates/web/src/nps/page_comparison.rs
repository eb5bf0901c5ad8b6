//! Comparison of pages that visitors get: which cookies change them, and which URLs do.
//!
//! [`CookieEvidence`] and [`SideEffects`] draw the conclusions from a comparison. Here comparable replies are
//! chosen, and their bodies are hashed as they pass, as the upstream sent them.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex};

use http::header::{
    ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderValue, SET_COOKIE, USER_AGENT,
};
use http::{Method, request, response};

use super::heads::{is_page, is_private, whole};
use super::lock::lock;
use super::observed_body::{BodyObserver, observed};
use super::requester::Requester;
use super::site_rules::SiteRules;
use crate::policy::{
    self, Client, CookieEvidence, CookieFigures, CookieSample, Harmless, Offence, SideEffects,
    fields,
};
use crate::proxy::{Body, BoxError};

/// Longer pages are not compared.
const MAX_PAGE_BYTES: u64 = 2 << 20;

/// The knowledge from the pages so far.
#[derive(Debug)]
pub(super) struct PageComparison {
    key: RandomState,
    learned: Mutex<Learned>,
}

#[derive(Debug)]
struct Learned {
    /// `None` if only the owner decides which cookies are harmless.
    cookies: Option<CookieEvidence>,
    effects: SideEffects,
}

impl PageComparison {
    pub(super) fn new(harmless: &Harmless) -> Self {
        let cookies = harmless.learned().map(CookieEvidence::new);
        let effects = SideEffects::default();
        PageComparison {
            key: RandomState::new(),
            learned: Mutex::new(Learned { cookies, effects }),
        }
    }

    /// Adds a page whose body has passed. Returns the URLs that are now known to have side effects.
    fn add(&self, sampling: Sampling) -> Vec<Arc<str>> {
        let body = sampling.hasher.finish();
        let mut learned = lock(&self.learned);
        let Learned { cookies, effects } = &mut *learned;
        let Sampling { page, client, cookies: sent, .. } = &sampling;
        if let Some(evidence) = cookies {
            evidence.saw(CookieSample { page: *page, body, client: *client, cookies: sent });
        }
        let is_anonymous = sent.is_empty();
        let at = sampling.at;
        if is_anonymous { effects.saw(*page, &sampling.url, body, at) } else { Vec::new() }
    }

    /// The knowledge about cookies.
    pub(super) fn cookies(&self) -> Vec<CookieFigures> {
        lock(&self.learned).cookies.as_ref().map(CookieEvidence::figures).unwrap_or_default()
    }
}

/// A page to be compared when its body has passed.
#[derive(Debug)]
pub(super) struct Sampling {
    page: u64,
    url: String,
    client: Client,
    /// Cookies of the request that are not on the list of harmless ones.
    cookies: Vec<(String, String)>,
    /// Number of requests at the beginning of its reply.
    at: u64,
    hasher: DefaultHasher,
    bytes: u64,
}

/// Notes the beginning of a reply; returns the treatment of its body, if it is a comparable page.
/// `may_compare` says that only its cookies can identify the sender of the request.
pub(super) fn compare_head(
    rules: &SiteRules,
    comparison: &PageComparison,
    request: &request::Parts,
    head: &response::Parts,
    requester: Requester,
    may_compare: bool,
) -> Option<Sampling> {
    let is_done = head.status.is_success() || head.status.is_redirection();
    if !request.method.is_safe() {
        if is_done {
            lock(&comparison.learned).effects.sent();
        }
        return None;
    }
    note_http_only(comparison, head);
    let url = whole(&request.uri);
    let is_named = rules.name_of(url) == url;
    if request.method != Method::GET || !head.status.is_success() || !is_named {
        return None;
    }
    let is_page = is_page(request, head);
    if !is_page && policy::is_static_file(request.uri.path()) {
        return None;
    }
    let (acts, at) = {
        let mut learned = lock(&comparison.learned);
        (learned.effects.got(url), learned.effects.count())
    };
    if acts {
        rules.policy().bar(url, Offence::Acts, rules.now());
    }
    if !may_compare || !is_page || fields::asks_for_a_part(&request.headers) {
        return None;
    }
    let cookies: Vec<_> = policy::unlisted_cookies(&request.headers, rules.harmless())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let is_private = is_private(&head.headers);
    if is_private && cookies.is_empty() {
        return None;
    }
    let mut hasher = comparison.key.build_hasher();
    // A visitor with other caching fields from the site gets another page.
    (is_private, head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes)).hash(&mut hasher);
    let page = comparison.key.hash_one(variant(request, head, requester));
    Some(Sampling {
        page,
        url: url.to_owned(),
        client: requester.client,
        cookies,
        at,
        hasher,
        bytes: 0,
    })
}

/// Everything by which replies for a URL usually differ, except for cookies.
fn variant<'a>(
    request: &'a request::Parts,
    head: &'a response::Parts,
    requester: Requester,
) -> impl Hash + 'a {
    let field = |name| request.headers.get(name).map(HeaderValue::as_bytes);
    let agent = fields::single(&request.headers, USER_AGENT).unwrap_or_default();
    (
        whole(&request.uri),
        request.uri.authority().map(|authority| authority.as_str()),
        field(HOST),
        field(ACCEPT_LANGUAGE),
        head.headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes),
        agent.contains("Mobile"),
        requester.secure,
    )
}

/// Sites identify their users by cookies that no script can read.
fn note_http_only(comparison: &PageComparison, head: &response::Parts) {
    for line in head.headers.get_all(SET_COOKIE) {
        let Some((name, rest)) = line.to_str().ok().and_then(|line| line.split_once('=')) else {
            continue;
        };
        let is = rest.split(';').any(|part| part.trim().eq_ignore_ascii_case("httponly"));
        if is && let Some(cookies) = &mut lock(&comparison.learned).cookies {
            cookies.is_http_only(name.trim());
        }
    }
}

/// A page whose body is passing, and the destination of its hash.
struct Sampled {
    rules: Arc<SiteRules>,
    comparison: Arc<PageComparison>,
    sampling: Option<Sampling>,
}

impl BodyObserver for Sampled {
    fn data(&mut self, data: &[u8]) -> Result<(), BoxError> {
        if let Some(sampling) = &mut self.sampling {
            sampling.hasher.write(data);
            sampling.bytes += data.len() as u64;
            if sampling.bytes > MAX_PAGE_BYTES {
                self.sampling = None;
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some(sampling) = self.sampling.take() {
            let found = self.comparison.add(sampling);
            for url in found {
                self.rules.policy().bar(&url, Offence::Acts, self.rules.now());
            }
        }
    }

    fn failed(&mut self) {
        self.sampling = None;
    }
}

/// `body` unchanged, and hashed as it passes if it is compared.
pub(super) fn sampled(
    rules: &Arc<SiteRules>,
    comparison: &Arc<PageComparison>,
    sampling: Option<Sampling>,
    body: Body,
) -> Body {
    if sampling.is_none() {
        return body;
    }
    let (rules, comparison) = (Arc::clone(rules), Arc::clone(comparison));
    observed(body, Sampled { rules, comparison, sampling })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_hash_does_not_depend_on_chunks() {
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
