//! The configuration of one site: its names, its upstreams, and what the proxy adds to their answers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::config::{CertificateFiles, Upstream};

/// Servers that serve the same requests. A request goes to the one with the fewest requests in service.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// The servers, at least one.
    pub servers: Vec<Upstream>,
    /// The `Host` for the upstream, instead of the client's.
    pub host: Option<HeaderValue>,
    /// Certificates, in PEM, for verifying an `https` upstream, instead of the system's.
    pub roots: Option<PathBuf>,
    /// How the servers are checked, if they are.
    pub health: Option<HealthCheck>,
    /// Servers for prefetches only, at a lower priority of the operating system. Without one, prefetches go to
    /// `servers`.
    pub prefetch_servers: Vec<Upstream>,
}

impl UpstreamConfig {
    /// One server with the defaults of everything else.
    pub fn new(server: Upstream) -> Self {
        UpstreamConfig {
            servers: vec![server],
            host: None,
            roots: None,
            health: None,
            prefetch_servers: Vec::new(),
        }
    }
}

/// A request that a healthy server answers by 2xx or 3xx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The requested path.
    pub path: String,
    /// Time between two checks of a server.
    pub interval: Duration,
    /// Time that the answer may take.
    pub timeout: Duration,
}

/// The upstream of some paths of a site.
#[derive(Clone, Debug)]
pub struct Route {
    /// The beginning of the paths: `/api/` is everything below it, `/api` also the path itself.
    pub prefix: String,
    /// Their servers.
    pub upstream: UpstreamConfig,
}

/// Headers that are set or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules {
    rules: Vec<(HeaderName, Option<HeaderValue>)>,
}

/// Headers that no rule may change: they frame messages and describe the connection.
const FRAMING: [&str; 9] = [
    "connection",
    "content-encoding",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl HeaderRules {
    /// Whether a rule may change the header.
    pub fn may_change(name: &HeaderName) -> bool {
        let name = name.as_str();
        !FRAMING.contains(&name) && !name.starts_with("x-lull") && !name.starts_with("x-forwarded-")
    }

    /// Sets the header to `value`, whatever the message says; `None` removes it.
    pub fn push(&mut self, name: HeaderName, value: Option<HeaderValue>) {
        self.rules.push((name, value));
    }

    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.rules {
            match value {
                Some(value) => headers.insert(name, value.clone()),
                None => headers.remove(name),
            };
        }
    }
}

/// A page for an error of the proxy's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// Its `Content-Type`.
    pub kind: HeaderValue,
    /// Its body.
    pub body: Bytes,
}

/// A site.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// Its host names without a port, in lower case; `*.example.org` stands for all names with one more label. None: the
    /// site has every host that no other site has.
    pub names: Vec<String>,
    /// The upstream of requests without a route.
    pub upstream: UpstreamConfig,
    /// The upstreams of some paths. The longest prefix decides.
    pub routes: Vec<Route>,
    /// Its certificate.
    pub certificate: Option<CertificateFiles>,
    /// Whether its certificate comes by ACME ([`Config::acme`](super::Config::acme)), in place of that.
    pub acme: bool,
    /// Whether requests over HTTP are redirected to HTTPS, at this port.
    pub redirect_to_https: Option<u16>,
    /// `Strict-Transport-Security` of answers over HTTPS (RFC 6797).
    pub hsts: Option<HeaderValue>,
    /// The changes of requests before they go upstream.
    pub request_headers: HeaderRules,
    /// The changes of answers, before anything else sees them.
    pub response_headers: HeaderRules,
    /// Pages for errors of the proxy's own, such as 502 if the upstream cannot be reached.
    pub error_pages: BTreeMap<u16, ErrorPage>,
}

impl SiteConfig {
    /// All hosts with this upstream, and the defaults of everything else.
    pub fn new(upstream: Upstream) -> Self {
        SiteConfig {
            names: Vec::new(),
            upstream: UpstreamConfig::new(upstream),
            routes: Vec::new(),
            certificate: None,
            acme: false,
            redirect_to_https: None,
            hsts: None,
            request_headers: HeaderRules::default(),
            response_headers: HeaderRules::default(),
            error_pages: BTreeMap::new(),
        }
    }

    /// All upstreams: that of the site, then those of its routes.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &UpstreamConfig> {
        std::iter::once(&self.upstream).chain(self.routes.iter().map(|route| &route.upstream))
    }

    pub(crate) fn error_page(&self, status: StatusCode) -> Option<&ErrorPage> {
        self.error_pages.get(&status.as_u16())
    }
}
