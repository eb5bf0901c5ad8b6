//! The sites that the proxy serves, found by the host of a request, and their upstreams, found by its path.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::{HOST, LOCATION, STRICT_TRANSPORT_SECURITY};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request};

use super::body::Body;
use super::site::Site;
use super::site_config::{Route, SiteConfig};
use super::site_counters::SiteCounters;
use super::upstream_group::UpstreamGroup;

/// Below this path a certificate authority looks for the answers to its challenges (RFC 8555 §8.3), over HTTP.
const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// A site as all threads share it.
#[derive(Clone)]
pub(crate) struct HostedSite {
    pub(crate) config: SiteConfig,
    /// Sees its requests.
    pub(crate) hook: Option<Arc<dyn Site>>,
    /// The number of its first upstream among those of all sites. Those of its routes follow.
    pub(crate) first_upstream: usize,
    /// These upstreams.
    pub(crate) upstreams: Vec<Arc<UpstreamGroup>>,
    pub(crate) counters: Arc<SiteCounters>,
}

impl HostedSite {
    /// The number of the upstream for a path: that of the longest route.
    pub(crate) fn upstream_for(&self, path: &str) -> usize {
        let routes = self.config.routes.iter().enumerate();
        let fits = routes.filter(|(_, route)| is_below(path, route));
        let longest = fits.max_by_key(|(_, route)| route.prefix.len());
        self.first_upstream + longest.map_or(0, |(at, _)| at + 1)
    }

    /// The redirect to HTTPS for a request over HTTP, if the site has all its pages there.
    pub(crate) fn redirect(&self, head: &request::Parts, secure: bool) -> Option<Response<Body>> {
        let port = self.config.redirect_to_https.filter(|_| !secure)?;
        if head.uri.path().starts_with(CHALLENGES) {
            return None;
        }
        let host = match head.uri.authority() {
            Some(authority) => authority.clone(),
            None => Authority::try_from(head.headers.get(HOST)?.as_bytes()).ok()?,
        };
        let host = host.host();
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let location = HeaderValue::try_from(format!("https://{host}{port}{target}")).ok()?;
        // 301 is what caches and search engines know; 308 keeps the method (RFC 9110 §15.4.9).
        let is_safe = head.method == Method::GET || head.method == Method::HEAD;
        let mut response = Response::new(Body::empty());
        *response.status_mut() =
            if is_safe { StatusCode::MOVED_PERMANENTLY } else { StatusCode::PERMANENT_REDIRECT };
        response.headers_mut().insert(LOCATION, location);
        Some(response)
    }

    /// Adds what the owner wants in each answer over HTTPS.
    pub(crate) fn add_hsts(&self, headers: &mut HeaderMap, secure: bool) {
        if let Some(hsts) = self.config.hsts.as_ref().filter(|_| secure) {
            headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
    }
}

/// Whether a path is that of a route or below it: `/api` has `/api` and `/api/a`, not `/apis`.
fn is_below(path: &str, route: &Route) -> bool {
    let rest = path.strip_prefix(route.prefix.as_str());
    rest.is_some_and(|rest| rest.is_empty() || route.prefix.ends_with('/') || rest.starts_with('/'))
}

/// All sites.
#[derive(Default)]
pub(crate) struct HostedSites {
    all: Vec<Arc<HostedSite>>,
    by_name: BTreeMap<String, usize>,
    /// By what follows the star and the dot.
    by_suffix: BTreeMap<String, usize>,
    /// The site of all other hosts.
    rest: Option<usize>,
}

impl HostedSites {
    pub(crate) fn new(all: Vec<Arc<HostedSite>>) -> Self {
        let (mut by_name, mut by_suffix, mut rest) = (BTreeMap::new(), BTreeMap::new(), None);
        for (at, site) in all.iter().enumerate() {
            if site.config.names.is_empty() {
                rest = Some(at);
            }
            for name in &site.config.names {
                match name.strip_prefix("*.") {
                    Some(suffix) => by_suffix.insert(suffix.to_owned(), at),
                    None => by_name.insert(name.clone(), at),
                };
            }
        }
        HostedSites { all, by_name, by_suffix, rest }
    }

    /// The site, if there is only one.
    pub(crate) fn only(&self) -> Option<&Arc<HostedSite>> {
        self.all.first().filter(|_| self.all.len() == 1)
    }

    pub(crate) fn all(&self) -> &[Arc<HostedSite>] {
        &self.all
    }

    /// The site that has a host, which may have a port.
    pub(crate) fn find(&self, host: Option<&HeaderValue>) -> Option<&Arc<HostedSite>> {
        let is_one = self.by_name.is_empty() && self.by_suffix.is_empty();
        let named = || {
            let name = bare_name(host?.to_str().ok()?);
            let by_suffix = || self.by_suffix.get(name.split_once('.')?.1);
            self.by_name.get(&name).or_else(by_suffix).copied()
        };
        let at = if is_one { self.rest } else { named().or(self.rest) };
        at.map(|at| &self.all[at])
    }
}

/// A host without its port and the dot of the root, in lower case.
pub(crate) fn bare_name(host: &str) -> String {
    let name = match host.rfind(':') {
        // The colons of an IPv6 address are within brackets.
        Some(colon) if !host[colon..].contains(']') => &host[..colon],
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::site_config::UpstreamConfig;

    fn upstream() -> UpstreamConfig {
        UpstreamConfig::new("http://127.0.0.1:8080".parse().unwrap())
    }

    fn hosted(config: SiteConfig, first_upstream: usize) -> HostedSite {
        let counters = Arc::new(SiteCounters::new(1));
        HostedSite { config, hook: None, first_upstream, upstreams: Vec::new(), counters }
    }

    fn site(names: &[&str], routes: &[&str]) -> Arc<HostedSite> {
        let mut config = SiteConfig::new("http://127.0.0.1:8080".parse().unwrap());
        config.names = names.iter().map(|name| (*name).to_owned()).collect();
        let route = |prefix: &&str| Route { prefix: (*prefix).to_owned(), upstream: upstream() };
        config.routes = routes.iter().map(route).collect();
        Arc::new(hosted(config, 7))
    }

    #[test]
    fn site_is_found_by_name_then_by_wildcard() {
        let all = [&["a.example", "b.example"][..], &["*.a.example"], &["c.a.example"]];
        for has_rest in [false, true] {
            let mut sites: Vec<_> = all.iter().map(|names| site(names, &[])).collect();
            if has_rest {
                sites.push(site(&[], &[]));
            }
            let sites = HostedSites::new(sites);
            let rest = has_rest.then_some(3);
            for (host, expected) in [
                ("a.example", Some(0)),
                ("A.Example:8443", Some(0)),
                ("b.example.", Some(0)),
                ("www.a.example", Some(1)),
                ("c.a.example", Some(2)),
                ("d.c.a.example", rest),
                ("example", rest),
                ("[::1]:80", rest),
                ("", rest),
            ] {
                let host = HeaderValue::from_static(host);
                let found = sites.find(Some(&host));
                let at = found.map(|of| sites.all().iter().position(|one| Arc::ptr_eq(one, of)));
                assert_eq!(at.flatten(), expected, "{host:?}");
            }
            assert_eq!(sites.find(None).is_some(), has_rest);
        }
    }

    #[test]
    fn longest_route_decides_at_the_borders_of_segments() {
        let site = site(&[], &["/api", "/api/v2/", "/static/"]);
        for (path, expected) in [
            ("/", 7),
            ("/api", 8),
            ("/api/", 8),
            ("/api/v1", 8),
            ("/apis", 7),
            ("/api/v2", 8),
            ("/api/v2/users", 9),
            ("/static", 7),
            ("/static/a.css", 10),
            ("*", 7),
        ] {
            assert_eq!(site.upstream_for(path), expected, "{path}");
        }
    }

    #[test]
    fn http_is_redirected_to_the_same_url_over_https() {
        let with_port = |port| {
            let mut config = SiteConfig::new("http://127.0.0.1:8080".parse().unwrap());
            config.redirect_to_https = port;
            hosted(config, 0)
        };
        for (port, method, host, target, secure, expected) in [
            (Some(443), "GET", "a.example", "/x?y", false, Some((301, "https://a.example/x?y"))),
            (Some(443), "HEAD", "a.example:80", "/", false, Some((301, "https://a.example/"))),
            (
                Some(8443),
                "POST",
                "a.example:80",
                "/x",
                false,
                Some((308, "https://a.example:8443/x")),
            ),
            (Some(443), "GET", "[::1]:80", "//x", false, Some((301, "https://[::1]//x"))),
            (Some(443), "GET", "a.example", "/", true, None),
            (Some(443), "GET", "a.example", "/.well-known/acme-challenge/t", false, None),
            (None, "GET", "a.example", "/", false, None),
        ] {
            let request = http::Request::builder().method(method).uri(target);
            let (head, ()) = request.header(HOST, host).body(()).unwrap().into_parts();
            let redirect = with_port(port).redirect(&head, secure);
            let found = redirect.as_ref().map(|redirect| {
                let location = redirect.headers()[LOCATION].to_str().unwrap();
                (redirect.status().as_u16(), location)
            });
            assert_eq!(found, expected, "{method} {host} {target}");
        }
    }
}
