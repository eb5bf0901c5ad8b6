//! Answers that the proxy compresses in place of the server.
//!
//! A server that compresses a page cannot be interrupted meanwhile. The proxy takes that work over where it would
//! decompress the page anyway, and for prefetches, which can wait until a processor is idle.

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap,
    HeaderValue, RANGE,
};
use http::{StatusCode, response};
use http_body::Body as _;

use super::body::Body;
use super::idle_compression::{CompressedBody, IdleCompressor};
use super::inline_compression::InlineBody;
use crate::content_coding::{self, Coding, Encoder, forbids_changes};

/// A shorter body does not become much shorter.
const MIN_BYTES: u64 = 512;

/// A request that asks the server for an uncompressed answer, which its client gets compressed in this coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recoding(Coding);

impl Recoding {
    /// Changes the headers of a request, if its client takes a compressed answer.
    pub(crate) fn request(headers: &mut HeaderMap) -> Option<Self> {
        if headers.contains_key(RANGE) || forbids_changes(headers) {
            return None;
        }
        let coding = Coding::for_client(headers)?;
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Some(Recoding(coding))
    }

    /// Whether a server's answer is uncompressed text that may be changed.
    pub(crate) fn is_allowed(self, head: &response::Parts) -> bool {
        let headers = &head.headers;
        head.status == StatusCode::OK
            && !headers.contains_key(CONTENT_ENCODING)
            && !headers.contains_key(CONTENT_RANGE)
            && !forbids_changes(headers)
            && headers.get(CONTENT_TYPE).is_some_and(is_text)
    }

    /// The answer for the client, which the thread compresses when there is time.
    pub(crate) fn when_idle(
        self,
        compressor: &IdleCompressor,
        head: &mut response::Parts,
        body: Body,
    ) -> Body {
        match self.begin(head, &body) {
            Some(encoder) => Body::wrap(CompressedBody::new(body, encoder, compressor)),
            None => body,
        }
    }

    /// The answer for the client, which is compressed as it passes.
    pub(crate) fn at_once(self, head: &mut response::Parts, body: Body) -> Body {
        match self.begin(head, &body) {
            Some(encoder) => Body::wrap(InlineBody::new(body, encoder)),
            None => body,
        }
    }

    /// Changes the head of an answer that is worth compressing.
    fn begin(self, head: &mut response::Parts, body: &Body) -> Option<Encoder> {
        let Recoding(coding) = self;
        let encoder = Encoder::new(coding).filter(|_| is_worth_it(head, body))?;
        content_coding::forget_bytes(&mut head.headers);
        coding.state(&mut head.headers);
        Some(encoder)
    }
}

/// Whether the body for the client is text of some length.
fn is_worth_it(head: &response::Parts, body: &Body) -> bool {
    let headers = &head.headers;
    let says = |value: &HeaderValue| value.to_str().ok()?.parse::<u64>().ok();
    let bytes = body.size_hint().exact().or_else(|| headers.get(CONTENT_LENGTH).and_then(says));
    head.status == StatusCode::OK
        && !body.is_end_stream()
        && bytes.is_none_or(|bytes| bytes >= MIN_BYTES)
        && headers.get(CONTENT_TYPE).is_some_and(is_text)
}

/// Whether bodies of a media type become much shorter by compression: text, and WebAssembly.
fn is_text(kind: &HeaderValue) -> bool {
    let kind = kind.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
    let kind = kind.to_ascii_lowercase();
    let of_application = ["javascript", "json", "xml", "wasm"];
    // Events are to arrive one by one.
    (kind.starts_with("text/") && kind != "text/event-stream")
        || kind.starts_with("application/") && of_application.iter().any(|end| kind.ends_with(end))
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_head(kind: &'static str) -> response::Parts {
        let response = http::Response::builder().header(CONTENT_TYPE, kind).body(());
        response.expect("it is valid").into_parts().0
    }

    #[test]
    fn only_text_counts_as_compressible() {
        for (kind, expected) in [
            ("text/html; charset=utf-8", true),
            ("Text/CSS", true),
            ("application/javascript", true),
            ("application/ld+json", true),
            ("image/svg+xml", true),
            ("text/event-stream", false),
            ("image/png", false),
            ("application/zip", false),
        ] {
            assert_eq!(Recoding(Coding::Gzip).is_allowed(&answer_head(kind)), expected, "{kind}");
        }
    }

    #[test]
    fn request_is_unchanged_unless_its_client_takes_codings() {
        for (fields, expected) in [
            (&[("accept-encoding", "gzip, zstd")][..], Some(Coding::Zstd)),
            (&[("accept-encoding", "gzip, br")], Some(Coding::Gzip)),
            (&[("accept-encoding", "br")], None),
            (&[], None),
            (&[("accept-encoding", "gzip"), ("range", "bytes=0-1")], None),
            (&[("accept-encoding", "gzip"), ("cache-control", "no-transform")], None),
        ] {
            let fields = fields.iter().map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            });
            let before = HeaderMap::from_iter(fields);
            let mut after = before.clone();
            let recoding = Recoding::request(&mut after);
            assert_eq!(recoding, expected.map(Recoding));
            assert_eq!(after == before, expected.is_none(), "{after:?}");
        }
    }
}
