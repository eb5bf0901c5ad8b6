//! The target of a redirect: an upstream that names its own address means the site's.
//!
//! A server on another port than the proxy's often writes that port into its redirects, as nginx does with
//! `port_in_redirect`. Visitors cannot reach it, or would bypass the proxy. So `Location` and
//! `Content-Location` get the site's own address instead, as with Apache's `ProxyPassReverse`.

use http::HeaderMap;
use http::header::{CONTENT_LOCATION, HeaderName, HeaderValue, LOCATION};
use http::uri::{Authority, Scheme};

use super::config::{Target, Upstream};

/// The fields with a location.
const FIELDS: [HeaderName; 2] = [LOCATION, CONTENT_LOCATION];

/// The site's address for visitors, from the request.
#[derive(Clone, Debug)]
pub(crate) struct PublicOrigin {
    scheme: Scheme,
    authority: Authority,
}

impl PublicOrigin {
    /// By a scheme, `http` or `https`, and a host with its port; `None` if they are malformed.
    pub(crate) fn new(scheme: Option<&HeaderValue>, host: Option<&HeaderValue>) -> Option<Self> {
        let scheme = if scheme? == "https" { Scheme::HTTPS } else { Scheme::HTTP };
        let authority = Authority::try_from(host?.as_bytes()).ok()?;
        Some(PublicOrigin { scheme, authority })
    }

    /// Replaces the upstream's address by the site's own.
    pub(crate) fn rewrite(&self, headers: &mut HeaderMap, upstream: &Upstream) {
        for name in FIELDS {
            let rewritten = headers.get(&name).and_then(|value| self.rewritten(value, upstream));
            if let Some(value) = rewritten {
                headers.insert(name, value);
            }
        }
    }

    fn rewritten(&self, value: &HeaderValue, upstream: &Upstream) -> Option<HeaderValue> {
        let text = value.to_str().ok()?;
        let (start, rest) = text.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let named: Authority = authority.parse().ok()?;
        let scheme = if upstream.secure { "https" } else { "http" };
        let Target::Tcp { host, port } = &upstream.target else { return None };
        let is_upstream = start.eq_ignore_ascii_case(scheme)
            && port_of(start, &named) == *port
            && !authority.contains('@')
            && (is_host(&named, host) || is_host(&named, self.authority.host()));
        if !is_upstream || is_host_and_port(&named, &self.authority) {
            return None;
        }
        HeaderValue::from_str(&format!("{}://{}{path}", self.scheme, self.authority)).ok()
    }
}

fn is_host(named: &Authority, host: &str) -> bool {
    let bare = |host: &str| host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    bare(named.host()) == bare(host)
}

fn is_host_and_port(one: &Authority, other: &Authority) -> bool {
    is_host(one, other.host()) && one.port_u16() == other.port_u16()
}

fn port_of(scheme: &str, authority: &Authority) -> u16 {
    let usual = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    authority.port_u16().unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_the_upstream_becomes_that_of_the_site() {
        for (upstream, scheme, host, location, expected) in [
            (
                "http://127.0.0.1:8080",
                "https",
                "site.example",
                "http://site.example:8080/a/?b#c",
                "https://site.example/a/?b#c",
            ),
            (
                "http://127.0.0.1:8080",
                "http",
                "site.example:81",
                "http://SITE.example:8080",
                "http://site.example:81",
            ),
            (
                "http://127.0.0.1:8080",
                "http",
                "site.example",
                "http://127.0.0.1:8080/a",
                "http://site.example/a",
            ),
            (
                "http://backend",
                "https",
                "site.example",
                "http://backend/a",
                "https://site.example/a",
            ),
            (
                "https://backend:8443",
                "https",
                "site.example",
                "https://backend:8443/a",
                "https://site.example/a",
            ),
            (
                "http://[::1]:8080",
                "http",
                "site.example",
                "http://[::1]:8080/a",
                "http://site.example/a",
            ),
            // Another server, or the site's own address.
            ("http://127.0.0.1:8080", "http", "site.example", "http://other.example:8080/a", ""),
            ("http://127.0.0.1:8080", "http", "site.example", "http://site.example:9090/a", ""),
            ("http://127.0.0.1:8080", "http", "site.example", "https://site.example:8080/a", ""),
            (
                "http://127.0.0.1:8080",
                "http",
                "site.example:8080",
                "http://site.example:8080/a",
                "",
            ),
            ("http://127.0.0.1:8080", "https", "site.example", "http://site.example/a", ""),
            ("http://127.0.0.1:8080", "http", "site.example", "/a:8080/b", ""),
            ("http://127.0.0.1:8080", "http", "site.example", "//site.example:8080/a", ""),
            ("http://127.0.0.1:8080", "http", "site.example", "http://ann@site.example:8080/a", ""),
            ("unix:/run/site.sock", "http", "site.example", "http://site.example:8080/a", ""),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, HeaderValue::from_static(location));
            let value = |text| HeaderValue::from_static(text);
            let public = PublicOrigin::new(Some(&value(scheme)), Some(&value(host))).unwrap();
            public.rewrite(&mut headers, &upstream.parse().unwrap());
            let expected = if expected.is_empty() { location } else { expected };
            assert_eq!(headers[LOCATION], expected, "{upstream} {scheme} {host}");
        }
    }
}
