//! What is answered here: everything below `/.lull/`.

use std::sync::Arc;

use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Method, Response, StatusCode, request};

use super::Shared;
use super::who::Who;
use crate::policy::fields;
use crate::protocol::{BEACON_PATH, HINTS_PATH, HintsReply};
use crate::proxy::{Body, Decision};
use crate::script::{self, script};

/// Whether a path is one of ours.
pub(super) fn is_own(path: &str) -> bool {
    path.strip_prefix("/.lull").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers.
pub(super) fn answer(_: &Arc<Shared>, head: &request::Parts, _: Who) -> Decision {
    let path = head.uri.path();
    Decision::Answer(if path == script().path {
        of_script(head)
    } else if path == HINTS_PATH && head.method == Method::POST {
        json(HintsReply::never().encode())
    } else if path == BEACON_PATH && head.method == Method::POST {
        empty(StatusCode::NO_CONTENT)
    } else if path == HINTS_PATH || path == BEACON_PATH {
        let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        response
    } else {
        empty(StatusCode::NOT_FOUND)
    })
}

/// The script of this version: as its name says its contents, it may be kept for ever.
fn of_script(head: &request::Parts) -> Response<Body> {
    if head.method != Method::GET && head.method != Method::HEAD {
        let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let is_packed = takes_gzip(&head.headers);
    let body = if is_packed { script().packed.clone() } else { script().body.clone().into() };
    let mut response = with(StatusCode::OK, body, script::CACHE_CONTROL);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(script::CONTENT_TYPE));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Whether a request says that it takes gzip. Whoever does in an unusual way gets it plain.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let codings = fields::list(headers, ACCEPT_ENCODING).unwrap_or_default();
    codings.iter().any(|coding| coding.eq_ignore_ascii_case("gzip"))
}

fn json(text: String) -> Response<Body> {
    let mut response = with(StatusCode::OK, text.into(), "no-store");
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn empty(status: StatusCode) -> Response<Body> {
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
        ] {
            assert_eq!(is_own(path), expected, "{path}");
        }
    }
}
