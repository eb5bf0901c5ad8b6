//! Which replies are rewritten, and how their headers change.

use core::time::Duration;

use content_security_policy::Url;
use encoding_rs::Encoding;
use http::header::{
    CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName,
    IF_NONE_MATCH,
};
use http::{HeaderMap, Method, StatusCode, request, response};

use super::csp::{Forbids, Grant};
use super::{Inspector, ScriptInserter, place};
use crate::content_coding::{self, Coding};
use crate::policy::{asks_for_a_page, fields};
use crate::script::{self, Script};

/// Why a reply is left unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftAlone {
    /// Neither `GET` nor `HEAD`.
    #[error("the request is not a GET")]
    Method,
    /// Not 200.
    #[error("the status is {0}, not 200")]
    Status(StatusCode),
    /// A frame, a fetch, a picture.
    #[error("it is not requested as a page")]
    NotADocument,
    /// Not `text/html`. XHTML is read by other rules.
    #[error("it is not text/html")]
    NotHtml,
    /// In an encoding that does not contain ASCII, or an unknown one.
    #[error("its encoding is not a superset of ASCII, or is unknown")]
    Encoding,
    /// In an unsupported content coding.
    #[error("its content coding is unknown, or there are several")]
    Coding,
    /// `Cache-Control: no-transform` of the site or the client, or an unreadable value.
    #[error("changes are forbidden (no-transform), or the Cache-Control cannot be read")]
    NoTransform,
    /// A part of a page.
    #[error("it is a part (Content-Range)")]
    Part,
    /// A file.
    #[error("it is a download")]
    Download,
    /// Nothing.
    #[error("it is empty")]
    Empty,
    /// `X-Robots-Tag: nofollow`.
    #[error("it forbids robots to follow its links (X-Robots-Tag)")]
    NoFollow,
    /// By its content security policy.
    #[error(transparent)]
    Policy(#[from] Forbids),
    /// The request names no host.
    #[error("the request's host cannot be read")]
    Host,
}

/// A reply to be rewritten.
#[derive(Clone, Debug)]
pub struct ScriptInsertion {
    pub(super) coding: Coding,
    /// The coding of the page with the script.
    pub(super) rewritten: Coding,
    grant: Grant,
    origin: Url,
    encoding: &'static Encoding,
    encoding_is_stated: bool,
    script: &'static Script,
}

/// Whether the reply to `request` gets the script. The request is the one that the upstream server sees, so
/// that a prefetched page is included. `scheme` is that of the visitor's connection.
/// [`crate::policy::Policy::page_visitor`] classifies the visitor.
///
/// # Errors
/// If it must stay unchanged.
pub fn decide(
    request: &request::Parts,
    scheme: &str,
    response: &response::Parts,
) -> Result<ScriptInsertion, LeftAlone> {
    decide_for(script::script(), request, scheme, response)
}

/// The same with another than the usual script.
///
/// # Errors
/// If it does not get the script.
pub fn decide_for(
    script: &'static Script,
    request: &request::Parts,
    scheme: &str,
    response: &response::Parts,
) -> Result<ScriptInsertion, LeftAlone> {
    if request.method != Method::GET && request.method != Method::HEAD {
        return Err(LeftAlone::Method);
    }
    if response.status != StatusCode::OK {
        return Err(LeftAlone::Status(response.status));
    }
    if !is_document(&request.headers) {
        return Err(LeftAlone::NotADocument);
    }
    let headers = &response.headers;
    let (encoding, encoding_is_stated) = html_encoding(headers)?;
    if headers.contains_key(CONTENT_RANGE) {
        return Err(LeftAlone::Part);
    }
    if is_download(headers) {
        return Err(LeftAlone::Download);
    }
    if [headers, &request.headers].into_iter().any(content_coding::forbids_changes) {
        return Err(LeftAlone::NoTransform);
    }
    if fields::single(headers, CONTENT_LENGTH) == Some("0") {
        return Err(LeftAlone::Empty);
    }
    if forbids_following(headers) {
        return Err(LeftAlone::NoFollow);
    }
    let coding = Coding::of(headers).ok_or(LeftAlone::Coding)?;
    let origin = origin(request, scheme).ok_or(LeftAlone::Host)?;
    let grant = Grant::of(headers, &origin, script)?;
    let rewritten = coding.rewritten(&request.headers);
    Ok(ScriptInsertion { coding, rewritten, grant, origin, encoding, encoding_is_stated, script })
}

/// The inspector of an unmodified page, by the headers of its reply; `None` for other types than HTML.
///
/// # Errors
/// If it is unreadable, so that an opt-out is unknown.
pub fn inspect(headers: &HeaderMap) -> Result<Option<Inspector>, LeftAlone> {
    let (encoding, encoding_is_stated) = match html_encoding(headers) {
        Err(LeftAlone::NotHtml) => match fields::single(headers, CONTENT_TYPE) {
            // Without a declared encoding, browsers inspect the bytes.
            None if !headers.contains_key(CONTENT_TYPE) => (encoding_rs::UTF_8, false),
            Some(kind) if !is_xhtml(kind) => return Ok(None),
            _ => return Err(LeftAlone::NotHtml),
        },
        found => found?,
    };
    let coding = Coding::of(headers).ok_or(LeftAlone::Coding)?;
    Inspector::new(coding, encoding, encoding_is_stated).map(Some).ok_or(LeftAlone::Encoding)
}

impl ScriptInsertion {
    /// Changes the headers to those of the page with the script. For `HEAD` too: its headers are those of
    /// `GET`.
    pub fn rewrite_head(&self, headers: &mut HeaderMap) {
        self.grant.apply(headers);
        content_coding::forget_bytes(headers);
        if self.rewritten != self.coding {
            self.rewritten.state(headers);
        }
    }

    /// The same; if `offers`, the tag has `data-rules` where the page's policies permit speculation rules
    /// from the script.
    #[must_use]
    pub fn offering_rules(mut self, offers: bool) -> Self {
        self.grant.offers_rules = offers;
        self
    }

    /// The same, and the tag makes the script wait this long, in whole seconds, before it asks for hints.
    #[must_use]
    pub fn waiting(mut self, wait: Option<Duration>) -> Self {
        self.grant.wait = wait.map(|wait| u32::try_from(wait.as_secs()).unwrap_or(u32::MAX));
        self
    }

    /// The same, and the tag states whether the visitor is in the control group, if there is one.
    #[must_use]
    pub fn holding_back(mut self, held: Option<bool>) -> Self {
        self.grant.held = held;
        self
    }

    /// The same in the content coding of the site, whatever is faster: some caches ignore `Vary`.
    #[must_use]
    pub fn keeping_coding(mut self) -> Self {
        self.rewritten = self.coding;
        self
    }

    /// The rewriter of the body.
    pub fn inserter(self) -> ScriptInserter {
        let ScriptInsertion {
            coding,
            rewritten,
            grant,
            origin,
            encoding,
            encoding_is_stated,
            script,
        } = self;
        ScriptInserter::new(
            coding,
            rewritten,
            place::Injector::new(grant, script, origin, encoding, encoding_is_stated),
        )
    }
}

/// Adds the strong form of each weak tag to a page's `If-None-Match`. The comparison is weak anyway (RFC 9110
/// §13.1.2); servers that compare byte by byte find their own tag.
pub fn widen_if_none_match(headers: &mut HeaderMap) {
    let Some(tags) = fields::list(headers, IF_NONE_MATCH) else {
        return;
    };
    let mut all: Vec<&str> = Vec::new();
    for tag in tags {
        all.push(tag);
        if let Some(strong) = tag.strip_prefix("W/") {
            all.push(strong);
        }
    }
    if !all.is_empty() {
        let all = all.join(", ");
        fields::set(headers, IF_NONE_MATCH, &all);
    }
}

/// Makes the headers of a 304 fit the browser's page: the tag in the form in which it was sent, and policies
/// with the hash of `script`. Browsers update both.
pub fn revalidated(
    script: &Script,
    request: &request::Parts,
    scheme: &str,
    response: &mut response::Parts,
) {
    if response.status != StatusCode::NOT_MODIFIED || !is_document(&request.headers) {
        return;
    }
    let sent = fields::list(&request.headers, IF_NONE_MATCH).unwrap_or_default();
    if let Some(tag) = fields::single(&response.headers, ETAG)
        && sent.iter().any(|sent| sent.strip_prefix("W/") == Some(tag))
    {
        content_coding::weaken_etag(&mut response.headers);
    }
    if let Some(origin) = origin(request, scheme)
        && let Ok(grant) = Grant::of(&response.headers, &origin, script)
    {
        grant.apply(&mut response.headers);
    }
}

/// Whether a request is a navigation, and not for a frame, a script or an image.
pub fn is_document(headers: &HeaderMap) -> bool {
    if headers.contains_key("sec-fetch-dest") {
        return fields::single(headers, "sec-fetch-dest") == Some("document");
    }
    // Browsers send no Sec-Fetch fields to origins without TLS.
    asks_for_a_page(headers) && !fields::asks_for_a_part(headers)
}

/// The encoding of an HTML page, and whether the header states it.
fn html_encoding(headers: &HeaderMap) -> Result<(&'static Encoding, bool), LeftAlone> {
    let kind = fields::single(headers, CONTENT_TYPE).ok_or(LeftAlone::NotHtml)?;
    let mut parts = kind.split(';');
    if !parts.next().unwrap_or("").trim().eq_ignore_ascii_case("text/html") {
        return Err(LeftAlone::NotHtml);
    }
    let charset = parts.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    let Some(charset) = charset else {
        // The exact encoding only matters where it does not contain ASCII.
        return Ok((encoding_rs::UTF_8, false));
    };
    let encoding = Encoding::for_label_no_replacement(charset.as_bytes());
    match encoding {
        Some(encoding) if encoding.is_ascii_compatible() => Ok((encoding, true)),
        _ => Err(LeftAlone::Encoding),
    }
}

/// With HTML's rules a tag could seem open that is not, and hide the following text.
fn is_xhtml(kind: &str) -> bool {
    kind.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case("application/xhtml+xml")
}

fn is_download(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_DISPOSITION).iter().any(|value| {
        let kind = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or(b"");
        !kind.trim_ascii().eq_ignore_ascii_case(b"inline")
    })
}

/// `X-Robots-Tag: nofollow` or `none`, for all robots or for Lull. A robot's name precedes the first of its
/// rules, and holds for the rest of the line.
fn forbids_following(headers: &HeaderMap) -> bool {
    const NAME: HeaderName = HeaderName::from_static("x-robots-tag");
    headers.get_all(NAME).iter().any(|value| {
        let rules = String::from_utf8_lossy(value.as_bytes());
        let mut for_us = true;
        rules.split(',').any(|mut rule| {
            if let Some((name, rest)) = rule.split_once(':')
                && is_robot(name.trim())
            {
                for_us = name.trim().eq_ignore_ascii_case("lull");
                rule = rest;
            }
            let words = ["nofollow", "none"];
            for_us && words.iter().any(|word| rule.trim().eq_ignore_ascii_case(word))
        })
    })
}

/// Whether the text before a colon in `X-Robots-Tag` is a robot's name: neither a rule with a value, nor a
/// part of a date.
fn is_robot(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !name.starts_with("max-") && name != "unavailable_after" && !name.contains(char::is_whitespace)
}

/// The origin of the visitor's request.
fn origin(request: &request::Parts, scheme: &str) -> Option<Url> {
    let host = match request.uri.authority() {
        Some(authority) => authority.as_str(),
        None => fields::single(&request.headers, http::header::HOST)?,
    };
    let url = Url::parse(&format!("{scheme}://{host}/")).ok()?;
    let plain = url.path() == "/" && url.username().is_empty() && url.query().is_none();
    (plain && url.host().is_some()).then_some(url)
}
