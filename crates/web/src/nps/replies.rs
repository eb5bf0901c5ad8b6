//! Replies made by the proxy itself, and the messages that it reads.

use std::future::poll_fn;
use std::pin::Pin;

use flate2::Compression;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Response, StatusCode, request};
use http_body::Body as _;

use crate::policy::fields;
use crate::protocol::HintsReply;
use crate::proxy::{Body, RequestBody};
use crate::script::{self, Script};

/// Least bytes of an answer that is compressed: with its head, a shorter one fits into one packet.
const WORTH_PACKING: usize = 500;

/// Whether a message is from a page of the site itself: browsers show it in at least one of two ways, and
/// other programs gain nothing.
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
    // By the Fetch standard, a page that sends no referrer sends no origin with its beacons either.
    if site.is_some() && fields::single(headers, ORIGIN) == Some("null") {
        return true;
    }
    let origin = fields::single(headers, ORIGIN).and_then(|origin| origin.split_once("://"));
    matches!((origin, host), (Some((_, origin)), Some(host)) if origin.eq_ignore_ascii_case(host))
}

/// The body of a message; `None` if it is longer than `most`, or cut off.
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
pub(super) fn of_script(
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

/// A reply with only a status.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    with(status, bytes::Bytes::new(), "no-store")
}

pub(super) fn with(
    status: StatusCode,
    body: bytes::Bytes,
    cache_control: &'static str,
) -> Response<Body> {
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
