//! Prefetch requests, and their permitted replies.

use std::time::{Duration, SystemTime};

use http::header::{
    ACCEPT, AGE, AUTHORIZATION, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, COOKIE, DATE, ETAG, EXPIRES, HOST, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, LOCATION,
    ORIGIN, PRAGMA, RANGE, REFRESH, SET_COOKIE, TRANSFER_ENCODING, VARY, WWW_AUTHENTICATE,
};
use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, request, response};

use super::bars::Offence;
use super::browsers::{self, DeliveryMethod};
use super::cookies::Harmless;
use super::excluded::Excluded;
use super::freshness::{self, Stale};
use super::prefetch_header;
use super::visitor;
use super::{Admitted, fields, target};

/// The field by which the script marks a prefetch. Only the site's own pages can send it: from other origins
/// a browser first asks for permission (CORS), and gets none.
///
/// In the reply it marks the copy as the proxy's. Replies to visitors never have it. So a copy of one of
/// these by a cache in front of the proxy can be distinguished from ours.
pub const PREFETCH_HEADER: HeaderName = HeaderName::from_static("x-lull");

/// The field in which a browser names the speculation rules that caused a request. It names only rules of the
/// site's own pages.
const RULES_TAGS: HeaderName = HeaderName::from_static("sec-speculation-tags");
/// The tag of the rules that the script puts into pages.
const OUR_TAG: &str = "\"lull\"";
/// The field by which a browser marks a prefetch.
const SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");

/// How a copy is kept from a user who signs in after it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safeguard {
    /// `Vary: Cookie`. For a navigation with other cookies than the stored copy's, the browser asks the
    /// proxy: [`super::Policy::renew`].
    Vary,
    /// It is kept by a service worker, which shows it only if the proxy permits it in its answer to that
    /// navigation: [`super::Policy::show`].
    Word,
}

/// Why a request is not admitted as a prefetch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAPrefetch {
    /// `X-Lull` has a value that Lull does not send, or the marks of speculation rules are missing.
    #[error("its X-Lull header has an unknown value")]
    Header,
    /// Not `GET`.
    #[error("it is not a GET")]
    Method,
    /// Identifies a user, or asks for a part, or has a body.
    #[error("it carries {0}")]
    Carries(HeaderName),
    /// Not from a script of the site.
    #[error("it is not from a script of this site ({0})")]
    Elsewhere(&'static str),
    /// Nothing to spare.
    #[error(transparent)]
    Spares(#[from] Excluded),
}

/// Whether the script probes for a cache in front. Only the proxy answers it, with [`super::refused`].
pub fn is_server_check(headers: &HeaderMap) -> bool {
    fields::single(headers, PREFETCH_HEADER) == Some(prefetch_header::SERVER_CHECK)
}

/// Whether the script has a copy stored for the cookies of this request. It never goes upstream: the proxy
/// answers 304 ([`super::Policy::renew`]) or [`super::refused`].
pub fn is_confirmation(headers: &HeaderMap) -> bool {
    fields::single(headers, PREFETCH_HEADER) == Some(prefetch_header::CONFIRM)
}

/// Checks the head of a request that carries `X-Lull`. Whether its URL may be prefetched is checked by
/// [`super::Policy::admit`].
pub(super) fn ahead(head: &request::Parts) -> Result<(), NotAPrefetch> {
    let headers = &head.headers;
    if fields::single(headers, PREFETCH_HEADER) != Some(prefetch_header::PREFETCH) {
        return Err(NotAPrefetch::Header);
    }
    gets(head)?;
    if headers.contains_key(COOKIE) {
        return Err(NotAPrefetch::Carries(COOKIE));
    }
    says(headers, &[("sec-fetch-site", &["same-origin"]), ("sec-fetch-dest", &["empty"])])?;
    visitor::spares(headers)?;
    Ok(())
}

/// Whether a browser sends a request by speculation rules of the script. Rules of the site itself have
/// another tag, or none.
pub fn is_by_rules(headers: &HeaderMap) -> bool {
    fields::single(headers, SEC_PURPOSE) == Some("prefetch")
        && fields::list(headers, RULES_TAGS).is_some_and(|tags| tags.contains(&OUR_TAG))
}

/// Checks the head of a request that [`is_by_rules`]. It carries the cookies of its visitor, so it identifies
/// the visitor itself.
pub(super) fn by_rules(head: &request::Parts, harmless: &Harmless) -> Result<(), NotAPrefetch> {
    if !is_by_rules(&head.headers) {
        return Err(NotAPrefetch::Header);
    }
    gets(head)?;
    // Chromium says that no page requests it, also where the rules are a page's.
    let site = &["none", "same-origin"];
    says(&head.headers, &[("sec-fetch-site", site), ("sec-fetch-dest", &["document"])])?;
    visitor::visitor(&head.headers, harmless, DeliveryMethod::Cache)?;
    Ok(())
}

/// The site whose service worker sends a request to another port of the same host: its `Origin` without the
/// scheme.
pub fn site_of_a_worker(head: &request::Parts) -> Option<Authority> {
    let asked: Authority = match head.uri.authority() {
        Some(authority) => authority.clone(),
        None => fields::single(&head.headers, HOST)?.parse().ok()?,
    };
    let (_, origin) = fields::single(&head.headers, ORIGIN)?.split_once("://")?;
    let origin: Authority = origin.parse().ok()?;
    let is_plain = !origin.as_str().contains('@');
    (is_plain && origin.host().eq_ignore_ascii_case(asked.host())).then_some(origin)
}

/// Checks the head of a service worker's request. The worker has its own port, so it needs no mark. Requests
/// from other origins, or with cookies, are rejected there.
pub(super) fn for_worker(head: &request::Parts) -> Result<(), NotAPrefetch> {
    gets(head)?;
    if head.headers.contains_key(COOKIE) {
        return Err(NotAPrefetch::Carries(COOKIE));
    }
    if site_of_a_worker(head).is_none() {
        return Err(NotAPrefetch::Elsewhere("origin"));
    }
    let wanted: [(_, &[_]); 3] = [
        ("sec-fetch-site", &["same-site"]),
        ("sec-fetch-mode", &["cors"]),
        ("sec-fetch-dest", &["empty"]),
    ];
    says(&head.headers, &wanted)?;
    browsers::gains(&head.headers, DeliveryMethod::Worker)?;
    visitor::spares(&head.headers)?;
    Ok(())
}

/// Whether a request only reads, the whole resource, and without credentials.
fn gets(head: &request::Parts) -> Result<(), NotAPrefetch> {
    let headers = &head.headers;
    if head.method != Method::GET {
        return Err(NotAPrefetch::Method);
    }
    for name in [AUTHORIZATION, RANGE, TRANSFER_ENCODING] {
        if headers.contains_key(&name) {
            return Err(NotAPrefetch::Carries(name));
        }
    }
    if let Some(name) = visitor::identified_by(headers) {
        return Err(NotAPrefetch::Carries(HeaderName::from_static(name)));
    }
    if headers.contains_key(CONTENT_LENGTH) && fields::single(headers, CONTENT_LENGTH) != Some("0")
    {
        return Err(NotAPrefetch::Carries(CONTENT_LENGTH));
    }
    Ok(())
}

/// Whether the browser sends one of these values, if it sends the field: it does so only to secure origins.
fn says(headers: &HeaderMap, wanted: &[(&'static str, &[&str])]) -> Result<(), NotAPrefetch> {
    for &(name, wanted) in wanted {
        if headers.contains_key(name)
            && !fields::single(headers, name).is_some_and(|said| wanted.contains(&said))
        {
            return Err(NotAPrefetch::Elsewhere(name));
        }
    }
    Ok(())
}

/// The `Accept` field of a browser's navigation.
const PAGE: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// Gives a prefetch the head that the upstream server sees: like that of a browser's own prefetch of a page.
pub fn upstream_request(headers: &mut HeaderMap) {
    // With its cookies the page would be personal, if only for a measuring script.
    for name in [PREFETCH_HEADER, RULES_TAGS, COOKIE] {
        headers.remove(name);
    }
    // A 304 would turn an older response in the browser's cache into a copy, perhaps one for a signed-in
    // user.
    for name in [IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE] {
        headers.remove(name);
    }
    headers.insert(SEC_PURPOSE, HeaderValue::from_static("prefetch"));
    // A prefetch that a browser sends by itself has all the other fields of a navigation, too.
    let is_navigation = fields::single(headers, "sec-fetch-dest") == Some("document");
    if asks_for_a_page(headers) && !is_navigation {
        headers.insert(ACCEPT, HeaderValue::from_static(PAGE));
        headers.insert("upgrade-insecure-requests", HeaderValue::from_static("1"));
        if headers.contains_key("sec-fetch-dest") {
            headers.insert("sec-fetch-dest", HeaderValue::from_static("document"));
            headers.insert("sec-fetch-mode", HeaderValue::from_static("navigate"));
        }
    }
}

pub(crate) fn asks_for_a_page(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| {
        value.to_str().is_ok_and(|value| {
            value.split(',').any(|range| {
                range
                    .split(';')
                    .next()
                    .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/html"))
            })
        })
    })
}

/// Fields that are equal in a script's request and the following navigation, including those that a proxy in
/// between gives to both. One that ends in `-` stands for all with this prefix.
const ALIKE: &[&str] = &[
    "accept-encoding",
    "accept-language",
    "authorization",
    "connection",
    "cookie",
    "dnt",
    "forwarded",
    "host",
    "origin",
    "save-data",
    "sec-ch-",
    "sec-gpc",
    "user-agent",
    "via",
    "x-forwarded-",
    "x-real-ip",
];

/// Fields in which they differ, or may. A navigation would not find a copy that varies on one of these.
const UNLIKE: &[&str] = &[
    "*",
    "accept",
    "cache-control",
    "if-",
    "pragma",
    "priority",
    "purpose",
    "range",
    "referer",
    "sec-fetch-",
    "sec-purpose",
    "sec-speculation-tags",
    "service-worker-navigation-preload",
    "upgrade-insecure-requests",
    "x-lull",
];

fn is_listed(name: &str, list: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    list.iter().any(|one| if one.ends_with('-') { name.starts_with(one) } else { name == *one })
}

/// The fields of a request that are on neither list. The navigation may have another value there; a field
/// that this request lacks, it lacks, too.
pub(super) fn unusual(headers: &HeaderMap) -> Vec<HeaderName> {
    let is_known =
        |name: &HeaderName| [ALIKE, UNLIKE].iter().any(|of| is_listed(name.as_str(), of));
    headers.keys().filter(|name| !is_known(name)).cloned().collect()
}

/// Why the reply to a prefetch is discarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCacheable {
    /// Not 200.
    #[error("its status is {0}, not 200")]
    Status(StatusCode),
    /// Leads elsewhere.
    #[error("it redirects")]
    Redirect,
    /// Leads to the same page, by `https` or as `www`.
    #[error("it redirects to another scheme or host")]
    Elsewhere,
    /// Sets a cookie.
    #[error("it sets a cookie")]
    SetCookie,
    /// Must not be kept.
    #[error("it may not be cached: {0}")]
    Stale(#[from] Stale),
    /// Varies on an unknown field.
    #[error("it varies on `{0}`, so that the navigation would not find it")]
    Varies(String),
    /// The same for this visitor, but not for others.
    #[error("it varies on `{0}`, which differs in this visitor's navigation")]
    VariesHere(String),
    /// About credentials, a part, or a file.
    #[error("it carries {0}")]
    Carries(HeaderName),
    /// A file.
    #[error("it is a download")]
    Download,
}

impl NotCacheable {
    /// The offence of its URL, if it bars that. A server in trouble bars nothing, nor does a difference that
    /// depends on a cache or a visitor.
    pub fn offence(&self) -> Option<Offence> {
        match self {
            // For a removed page no visitor reports it, because none goes there any more.
            NotCacheable::Status(StatusCode::NOT_FOUND | StatusCode::GONE) => Some(Offence::Gone),
            NotCacheable::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Some(Offence::Refused)
            }
            NotCacheable::Status(_)
            | NotCacheable::Elsewhere
            | NotCacheable::VariesHere(_)
            | NotCacheable::Stale(Stale::Aged) => None,
            NotCacheable::Redirect => Some(Offence::Redirect),
            NotCacheable::SetCookie => Some(Offence::SetCookie),
            NotCacheable::Stale(_)
            | NotCacheable::Varies(_)
            | NotCacheable::Carries(_)
            | NotCacheable::Download => Some(Offence::NotPublic),
        }
    }
}

/// Whether [`offence`] or [`gives_a_part`] must be asked.
pub(super) fn may_offend(request: &request::Parts, head: &response::Parts) -> bool {
    is_redirect(head)
        || head.headers.contains_key(SET_COOKIE)
        || fields::asks_for_a_part(&request.headers)
        || is_not_stored(head)
}

/// Whether a reply has `no-store`.
pub(super) fn is_not_stored(head: &response::Parts) -> bool {
    head.status == StatusCode::OK && fields::may_direct(&head.headers, &["no-store"])
}

/// Whether a script got a part of a page, or may have, from a URL that leads to the whole page, too. If the
/// reply varies on that, the browser's cache keeps the two apart.
pub(super) fn gives_a_part(request: &request::Parts, head: &response::Parts) -> bool {
    fields::asks_for_a_part(&request.headers)
        && head.status == StatusCode::OK
        // Other requests of scripts are not prefetched.
        && is_page(&head.headers)
        && !fields::varies_by_part(&request.headers, &head.headers)
}

/// The offence in the reply to `GET`, or to its `HEAD`, that bars its URL, for any visitor.
pub(super) fn offence(target: &target::Target, head: &response::Parts) -> Option<Offence> {
    if is_redirect(head) && !leads_elsewhere(target, head) {
        Some(Offence::Redirect)
    } else if head.headers.contains_key(SET_COOKIE) {
        Some(Offence::SetCookie)
    } else {
        None
    }
}

fn is_redirect(head: &response::Parts) -> bool {
    matches!(head.status.as_u16(), 300..=303 | 305..=308) || head.headers.contains_key(REFRESH)
}

/// Whether a redirect leads to the same path and query with another scheme or host, such as from `http` to
/// `https`: that names the site, and says nothing about the URL.
fn leads_elsewhere(target: &target::Target, head: &response::Parts) -> bool {
    let location = match fields::single(&head.headers, LOCATION) {
        Some(location) if !head.headers.contains_key(REFRESH) => location,
        _ => return false,
    };
    let Some((scheme, rest)) = location.split_once("//") else { return false };
    if !["", "http:", "https:"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return false;
    }
    let rest = rest.split('#').next().unwrap_or_default();
    let url = rest.find(['/', '?']).map_or("/", |at| &rest[at..]);
    // `https://host?x` has the path `/`.
    let root = if url.starts_with('?') { "/" } else { "" };
    target::Target::parse(&format!("{root}{url}")).is_ok_and(|there| there == *target)
}

/// Whether the reply to a prefetch may be kept. If so, returns how long, and sets the headers that make the
/// browser do that.
pub(super) fn reply(
    head: &mut response::Parts,
    admitted: &Admitted,
    now: SystemTime,
) -> Result<Duration, NotCacheable> {
    match offence(&admitted.target, head) {
        Some(Offence::Redirect) => return Err(NotCacheable::Redirect),
        Some(_) => return Err(NotCacheable::SetCookie),
        None if is_redirect(head) => return Err(NotCacheable::Elsewhere),
        None => {}
    }
    if head.status != StatusCode::OK {
        return Err(NotCacheable::Status(head.status));
    }
    let headers = &mut head.headers;
    for name in [CONTENT_RANGE, WWW_AUTHENTICATE, CLEAR_SITE_DATA] {
        if headers.contains_key(&name) {
            return Err(NotCacheable::Carries(name));
        }
    }
    if is_download(headers) {
        return Err(NotCacheable::Download);
    }
    let ttl = freshness::ttl(headers, now)?;
    vary(headers, admitted)?;
    if admitted.safeguard == Safeguard::Vary {
        headers.insert(PREFETCH_HEADER, HeaderValue::from_static(prefetch_header::PREFETCH));
    }

    // The copy is for this browser, for this time, and must not be renewed. Otherwise a 304 to a user after a
    // sign-in would renew the anonymous page, on servers with the same ETag for both.
    // Subresources may be renewed, which is cheaper.
    fields::set(headers, CACHE_CONTROL, &kept_for(ttl));
    for name in [EXPIRES, AGE, PRAGMA] {
        headers.remove(name);
    }
    // The age of the copy is subtracted already: with an older date a browser would subtract it again (RFC
    // 9111 §4.2.3).
    fields::set(headers, DATE, &httpdate::fmt_http_date(now));
    if is_page(headers) {
        headers.remove(ETAG);
        headers.remove(LAST_MODIFIED);
    }
    Ok(ttl)
}

/// Makes only this browser keep a copy for this time.
pub(super) fn kept_for(ttl: Duration) -> String {
    format!("private, max-age={}", ttl.as_secs())
}

/// Marks the reply so that a visitor with other cookies does not get it without a request.
fn vary(headers: &mut HeaderMap, admitted: &Admitted) -> Result<(), NotCacheable> {
    let names = fields::list(headers, VARY).ok_or_else(|| NotCacheable::Varies("?".into()))?;
    // An invalid name might hide the one that is appended.
    let is_none = |name: &str| name.parse::<HeaderName>().is_err();
    if let Some(name) = names.iter().find(|name| is_listed(name, UNLIKE) || is_none(name)) {
        return Err(NotCacheable::Varies((*name).to_owned()));
    }
    let is_carried = |name: &str| {
        admitted.unusual.iter().any(|carried| carried.as_str().eq_ignore_ascii_case(name))
    };
    if let Some(name) = names.iter().find(|name| is_carried(name)) {
        return Err(NotCacheable::VariesHere((*name).to_owned()));
    }
    let by_cookie = names.iter().any(|name| name.eq_ignore_ascii_case("cookie"));
    match admitted.safeguard {
        Safeguard::Vary if !by_cookie => {
            let mut names = names;
            names.push("Cookie");
            let merged = names.join(", ");
            fields::set(headers, VARY, &merged);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn is_download(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_DISPOSITION).iter().any(|value| {
        let kind = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or(b"");
        !kind.trim_ascii().eq_ignore_ascii_case(b"inline")
    })
}

fn is_page(headers: &HeaderMap) -> bool {
    fields::single(headers, CONTENT_TYPE).is_none_or(|kind| {
        let kind = kind.split(';').next().unwrap_or("").trim();
        kind.eq_ignore_ascii_case("text/html") || kind.eq_ignore_ascii_case("application/xhtml+xml")
    })
}

pub(super) const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// The path and query of a request.
pub(super) fn target_of(head: &request::Parts) -> Result<target::Target, target::NotPrefetchable> {
    head.uri.path_and_query().map_or(Err(target::NotPrefetchable::OtherOrigin), |path| {
        target::Target::parse(path.as_str())
    })
}
