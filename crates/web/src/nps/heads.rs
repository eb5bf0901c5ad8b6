//! Facts stated by heads of requests and responses, for several modules.

use http::header::{CONTENT_TYPE, SET_COOKIE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, request, response};

use crate::policy::fields;
use crate::script_insertion;

/// The host of a request.
pub(super) fn asked_host(head: &request::Parts) -> Option<&[u8]> {
    match head.uri.authority() {
        Some(authority) => Some(authority.as_str().as_bytes()),
        None => head.headers.get(header::HOST).map(HeaderValue::as_bytes),
    }
}

/// The path and query of a page.
pub(super) fn whole(url: &Uri) -> &str {
    url.path_and_query().map_or("/", PathAndQuery::as_str)
}

/// Whether a reply is a page, by its head.
pub(super) fn is_page(request: &request::Parts, head: &response::Parts) -> bool {
    let kind = fields::single(&head.headers, CONTENT_TYPE).unwrap_or_default();
    request.method == Method::GET
        && head.status == StatusCode::OK
        && script_insertion::is_document(&request.headers)
        && kind.get(..9).is_some_and(|kind| kind.eq_ignore_ascii_case("text/html"))
}

/// Whether a reply is private.
pub(super) fn is_private(headers: &HeaderMap) -> bool {
    headers.contains_key(SET_COOKIE) || fields::may_direct(headers, &["private", "no-store"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_with_any_private_directive_is_private() {
        for (name, value, expected) in [
            ("cache-control", "max-age=3", false),
            ("cache-control", "no-cache", false),
            ("cache-control", "max-age=3, private", true),
            ("cache-control", "No-Store", true),
            ("cache-control", "no-cache; no-store", true),
            ("cache-control", "private; max-age=0", true),
            ("cache-control", "no-cache private", true),
            ("set-cookie", "a=1", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(is_private(&headers), expected, "{value}");
        }
    }
}
