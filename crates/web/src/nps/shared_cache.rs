//! Whether a shared cache is in front: a content delivery network, or another caching proxy.
//!
//! It may have the page that a visitor's browser prefetches, and answer it itself: without `Vary: Cookie`,
//! for as long as the site says, with the site's `ETag`. The rules of `docs/prefetch-safety.md` do not hold
//! for such a copy. So visitors through one get neither script nor hints.

use http::header::{HeaderName, VIA};
use http::request;

/// Fields with their names (RFC 9110 §7.6.3, RFC 8586).
static NAMES: [HeaderName; 2] = [HeaderName::from_static("cdn-loop"), VIA];
/// Fields of networks that send none of the others. Their values are not shown.
static OTHERS: [HeaderName; 3] = [
    HeaderName::from_static("x-amz-cf-id"),
    HeaderName::from_static("akamai-origin-hop"),
    HeaderName::from_static("true-client-ip"),
];

/// Whether a request came through one, as far as its fields show that.
pub(super) fn is_cache(head: &request::Parts) -> bool {
    NAMES.iter().chain(&OTHERS).any(|name| head.headers.contains_key(name))
}

/// The evidence of that.
pub(super) fn sign(head: &request::Parts) -> Option<String> {
    let named = NAMES.iter().find_map(|name| {
        let said = head.headers.get(name)?.to_str().unwrap_or("?");
        Some(format!("{name}: {}", said.chars().take(80).collect::<String>()))
    });
    let other = || OTHERS.iter().find(|name| head.headers.contains_key(*name));
    named.or_else(|| other().map(|name| name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_in_front_is_known_by_the_fields_that_it_adds() {
        for (name, value, expected) in [
            ("cdn-loop", "cloudflare", Some("cdn-loop: cloudflare")),
            ("via", "1.1 varnish (Varnish/7.1)", Some("via: 1.1 varnish (Varnish/7.1)")),
            (
                "via",
                "2.0 0a1b.cloudfront.net (CloudFront)",
                Some("via: 2.0 0a1b.cloudfront.net (CloudFront)"),
            ),
            ("x-amz-cf-id", "abc==", Some("x-amz-cf-id")),
            ("akamai-origin-hop", "2", Some("akamai-origin-hop")),
            // The client's address is not part of the report.
            ("true-client-ip", "203.0.113.7", Some("true-client-ip")),
            ("x-forwarded-for", "203.0.113.7", None),
        ] {
            let (head, ()) =
                http::Request::get("/").header(name, value).body(()).unwrap().into_parts();
            assert_eq!(sign(&head).as_deref(), expected);
            assert_eq!(is_cache(&head), expected.is_some(), "{name}");
        }
    }
}
