//! WebSocket over HTTP/2 (RFC 8441): an extended CONNECT of a client becomes the upgrade of HTTP/1.1 (RFC 6455 §4.1)
//! for the upstream.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderValue, Method, StatusCode, Version, request, response};
use hyper::ext::Protocol;
use rustls::crypto::ring;

/// If a request opens a WebSocket over HTTP/2, makes it the request by which HTTP/1.1 does, except for the fields of the
/// connection. Returns whether it does.
pub(crate) fn to_upgrade(head: &mut request::Parts) -> bool {
    let asks = head.method == Method::CONNECT
        && head.version == Version::HTTP_2
        && head.extensions.get::<Protocol>().is_some_and(|one| one.as_str() == "websocket");
    let Some(key) = asks.then(key).flatten() else { return false };
    head.method = Method::GET;
    head.extensions.remove::<Protocol>();
    head.headers.insert(SEC_WEBSOCKET_KEY, key);
    let version = head.headers.entry(SEC_WEBSOCKET_VERSION);
    version.or_insert(HeaderValue::from_static("13"));
    true
}

/// Sixteen random bytes: they show the client of HTTP/1.1 that no cache answers. In HTTP/2 nothing depends on them.
fn key() -> Option<HeaderValue> {
    let mut bytes = [0; 16];
    ring::default_provider().secure_random.fill(&mut bytes).ok()?;
    HeaderValue::try_from(STANDARD.encode(bytes)).ok()
}

/// The response to the client, once the upstream has switched protocols (RFC 8441 §5).
pub(crate) fn to_accepted(head: &mut response::Parts) {
    head.status = StatusCode::OK;
    for name in [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT] {
        head.headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: Method, version: Version, protocol: Option<&'static str>) -> request::Parts {
        let request = http::Request::builder().method(method).version(version);
        let mut head = request.uri("https://a.example/chat").body(()).unwrap().into_parts().0;
        if let Some(protocol) = protocol {
            head.extensions.insert(Protocol::from_static(protocol));
        }
        head
    }

    #[test]
    fn only_a_websocket_over_http2_becomes_an_upgrade() {
        for (method, version, protocol, expected) in [
            (Method::CONNECT, Version::HTTP_2, Some("websocket"), true),
            (Method::CONNECT, Version::HTTP_2, Some("connect-udp"), false),
            (Method::CONNECT, Version::HTTP_2, None, false),
            (Method::CONNECT, Version::HTTP_11, Some("websocket"), false),
            (Method::GET, Version::HTTP_2, Some("websocket"), false),
        ] {
            let mut head = head(method.clone(), version, protocol);
            assert_eq!(to_upgrade(&mut head), expected, "{method} {version:?} {protocol:?}");
            let key = head.headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
            assert_eq!(key.map(<[u8]>::len), expected.then_some(24));
        }
    }
}
