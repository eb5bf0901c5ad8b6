//! Requests for an upstream over HTTP/2 (RFC 9113 §8).

use http::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Uri, Version, request};

/// Turns a request for HTTP/1.1 into one for HTTP/2. `authority` takes the place of a `Host` that is missing. A request
/// that was turned before stays as it is.
pub(crate) fn to_http2(head: &mut request::Parts, is_secure: bool, authority: &HeaderValue) {
    if head.uri.authority().is_some() {
        return;
    }
    let headers = &mut head.headers;
    let host = headers.remove(HOST);
    for name in [CONNECTION, EXPECT, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    // gRPC servers reject requests without it, because a proxy may have lost the trailers.
    let is_grpc = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/grpc");
    if headers.get(CONTENT_TYPE).is_some_and(is_grpc) {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    let path = head.uri.path_and_query().cloned();
    let scheme = if is_secure { Scheme::HTTPS } else { Scheme::HTTP };
    let target = Uri::builder()
        .scheme(scheme)
        .authority(host.as_ref().unwrap_or(authority).as_bytes())
        .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    // The host was checked.
    if let Ok(uri) = target.build() {
        head.uri = uri;
    }
    head.version = Version::HTTP_2;
}

/// Turns it back, for a server of the same group that speaks HTTP/1.1.
pub(crate) fn to_http1(head: &mut request::Parts) {
    let Some(authority) = head.uri.authority() else { return };
    if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
        head.headers.insert(HOST, host);
    }
    head.headers.remove(TE);
    let path = head.uri.path_and_query().cloned();
    head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    head.version = Version::HTTP_11;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_for_http2_has_no_fields_of_a_connection() {
        let request = http::Request::post("/echo?a=b")
            .header("host", "site.example:8443")
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("transfer-encoding", "chunked")
            .header("content-type", "application/grpc+proto")
            .header("x-other", "1");
        let mut head = request.body(()).unwrap().into_parts().0;
        to_http2(&mut head, false, &HeaderValue::from_static("localhost"));
        assert_eq!(head.uri, "http://site.example:8443/echo?a=b");
        let mut names: Vec<_> = head.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-type", "te", "x-other"]);

        // Another attempt with the same server, and one with another.
        to_http2(&mut head, false, &HeaderValue::from_static("localhost"));
        assert_eq!(head.uri, "http://site.example:8443/echo?a=b");
        to_http1(&mut head);
        assert_eq!((head.uri.to_string().as_str(), head.version), ("/echo?a=b", Version::HTTP_11));
        assert_eq!(head.headers[HOST], "site.example:8443");

        let mut head = http::Request::get("/").body(()).unwrap().into_parts().0;
        to_http2(&mut head, true, &HeaderValue::from_static("server:1"));
        assert_eq!((head.uri.to_string().as_str(), head.headers.len()), ("https://server:1/", 0));
    }
}
