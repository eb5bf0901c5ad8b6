//! What is answered here: everything below `/.lull/`.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use flate2::Compression;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST,
    HeaderName, HeaderValue, LOCATION, ORIGIN, REFERRER_POLICY, VARY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, request};
use http_body::Body as _;

use super::access::{self, Verdict};
use super::service_worker::{self, worker_script};
use super::who::Who;
use super::{Shared, ahead, hints, status};
use crate::policy::fields;
use crate::protocol::{BEACON_PATH, HINTS_PATH, HintsReply, LEAD_PATH, WORKER_PATH};
use crate::proxy::{Body, Decision, RequestBody};
use crate::script::{self, Script, script, script_by_worker};

/// From so many bytes on packing an answer is worth it: with its head it has room in one packet before.
const WORTH_PACKING: usize = 500;

/// Whether a path is one of ours.
pub(super) fn is_own(path: &str) -> bool {
    path.strip_prefix("/.lull").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers.
pub(super) fn answer(shared: &Arc<Shared>, head: &request::Parts, who: Who) -> Decision {
    let path = head.uri.path();
    for script in [script(), script_by_worker()] {
        if path == script.path {
            return Decision::Answer(of_script(head, script, script::CACHE_CONTROL));
        }
    }
    if path == WORKER_PATH {
        let script = worker_script(shared, head, who);
        let mut response = of_script(head, script, script::WORKER_CACHE_CONTROL);
        response.headers_mut().insert(service_worker::ALLOWED, HeaderValue::from_static("/"));
        return Decision::Answer(response);
    }
    let whole = head.uri.path_and_query().map_or(path, PathAndQuery::as_str);
    if let Some(url) = whole.strip_prefix(LEAD_PATH).filter(|url| url.starts_with('/')) {
        return ahead::lead(shared, head, who, url);
    }
    if FIGURES.contains(&path) {
        return Decision::Answer(figures(shared, head));
    }
    // As somebody types it who looks for the figures.
    if path == "/.lull" {
        let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
        let query = head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
        if let Ok(to) = HeaderValue::try_from(format!("/.lull/{query}")) {
            response.headers_mut().insert(LOCATION, to);
        }
        return Decision::Answer(response);
    }
    let shared = Arc::clone(shared);
    if ![HINTS_PATH, BEACON_PATH].contains(&path) {
        return Decision::Answer(empty(StatusCode::NOT_FOUND));
    }
    if head.method != Method::POST {
        let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Decision::Answer(response);
    }
    Decision::AnswerLater(if path == HINTS_PATH {
        Box::new(move |request| Box::pin(hints::hints(shared, request, who)))
    } else {
        Box::new(move |request| Box::pin(hints::beacon(shared, request, who)))
    })
}

/// The dashboard, what it is drawn from, and the same for Prometheus.
pub(super) const FIGURES: [&str; 4] =
    ["/.lull/", "/.lull/status", "/.lull/history", "/.lull/metrics"];

/// The figures, under another name than the site's, such as one of this machine. Whoever may not look
/// has asked for something of another host.
pub(super) fn by_another_name(shared: &Shared, head: &request::Parts) -> Option<Response<Body>> {
    let is_asked = FIGURES.contains(&head.uri.path());
    let may = is_asked && access::verdict(shared, head) == Verdict::Look;
    may.then(|| figures(shared, head))
}

/// The figures, for who may look.
fn figures(shared: &Shared, head: &request::Parts) -> Response<Body> {
    match access::verdict(shared, head) {
        Verdict::Look => {}
        Verdict::Nothing => return empty(StatusCode::NOT_FOUND),
        Verdict::Ask => {
            let mut response = empty(StatusCode::UNAUTHORIZED);
            let ask = HeaderValue::from_static(r#"Basic realm="Lull", charset="UTF-8""#);
            response.headers_mut().insert(WWW_AUTHENTICATE, ask);
            return response;
        }
    }
    if head.method != Method::GET && head.method != Method::HEAD {
        return empty(StatusCode::METHOD_NOT_ALLOWED);
    }
    let (body, kind) = match head.uri.path() {
        "/.lull/" => (status::DASHBOARD.into(), "text/html; charset=utf-8"),
        "/.lull/status" => (status::json(shared).to_string().into(), "application/json"),
        "/.lull/history" => {
            (shared.history.json(shared.now()).to_string().into(), "application/json")
        }
        _ => (status::prometheus(shared).into(), "text/plain; version=0.0.4; charset=utf-8"),
    };
    let mut response = with(StatusCode::OK, body, "no-store");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(DASHBOARD_POLICY));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // The token may stand in the page's own URL.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The dashboard is one file, and asks only the proxy.
const DASHBOARD_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; \
    style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Whether a message is from a page of the site itself: browsers say so in at least one of two
/// ways, and what is no browser has nothing to gain.
pub(super) fn is_from_the_site(head: &request::Parts) -> bool {
    let headers = &head.headers;
    let site = fields::single(headers, "sec-fetch-site");
    if headers.contains_key("sec-fetch-site") && site != Some("same-origin") {
        return false;
    }
    if !headers.contains_key(ORIGIN) {
        return true;
    }
    let host = match head.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => fields::single(headers, HOST),
    };
    // By Fetch a page that tells no referrer tells no origin with its beacons either.
    if site.is_some() && fields::single(headers, ORIGIN) == Some("null") {
        return true;
    }
    let origin = fields::single(headers, ORIGIN).and_then(|origin| origin.split_once("://"));
    matches!((origin, host), (Some((_, origin)), Some(host)) if origin.eq_ignore_ascii_case(host))
}

/// The body of a message; `None` if it is longer than `most`, or breaks off.
pub(super) async fn read(mut body: RequestBody, most: usize) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let data = frame.ok()?.into_data().unwrap_or_default();
        if message.len() + data.len() > most {
            return None;
        }
        message.extend_from_slice(&data);
    }
    Some(message)
}

/// A script.
fn of_script(
    head: &request::Parts,
    script: &Script,
    cache_control: &'static str,
) -> Response<Body> {
    if head.method != Method::GET && head.method != Method::HEAD {
        let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let is_packed = fields::takes(&head.headers, "gzip");
    let body = if is_packed { script.packed.clone() } else { script.body.clone().into() };
    let mut response = with(StatusCode::OK, body, cache_control);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(script::CONTENT_TYPE));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// A list.
pub(super) fn json(head: &request::Parts, reply: &HintsReply) -> Response<Body> {
    let text = reply.encode();
    let is_packed = text.len() >= WORTH_PACKING && fields::takes(&head.headers, "gzip");
    let body =
        if is_packed { script::packed(text.as_ref(), Compression::fast()) } else { text.into() };
    let mut response = with(StatusCode::OK, body, "no-store");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if is_packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Nothing but a status.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    with(status, bytes::Bytes::new(), "no-store")
}

fn with(status: StatusCode, body: bytes::Bytes, cache_control: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        HeaderName::from_static("x-robots-tag"),
        HeaderValue::from_static("noindex, nofollow"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folder_itself_is_ours() {
        for (path, expected) in [
            ("/.lull", true),
            ("/.lull/", true),
            ("/.lull/hints", true),
            ("/.lullaby", false),
            ("/", false),
            ("/a/.lull/hints", false),
            ("/a/.lull/mark", false),
        ] {
            assert_eq!(is_own(path), expected, "{path}");
        }
    }
}
