//! Access logs of web servers, line by line: bytes in, an [`Entry`] or a typed error out.
//!
//! | format | used by | recognized by |
//! |---|---|---|
//! | [`Common`](Format::Common) | NCSA's, Apache's `common` | the date in brackets, then the request in quotation marks |
//! | [`Combined`](Format::Combined) | Apache's `combined` and `vhost_combined`, nginx's default | the same, with referer and agent behind |
//! | [`Extended`](Format::Extended) | W3C's draft, IIS, CloudFront | lines that begin with `#`, of which `#Fields:` names the columns |
//! | [`JsonLines`](Format::JsonLines) | nginx and others with a JSON format of their own, log shippers, CDNs | an object a line |
//! | [`Caddy`](Format::Caddy) | Caddy's default | an object a line that holds an object `request` |
//! | [`Aws`](Format::Aws) | AWS's load balancers | columns |
//! | [`Haproxy`](Format::Haproxy) | HAProxy's `httplog` | timers behind the date |
//! | [`Squid`](Format::Squid) | Squid's native format | `TCP_MISS/200` |
//! | [`Iis`](Format::Iis) | IIS' own format | commas |
//! | [`Envoy`](Format::Envoy) | Envoy's and Istio's text | columns behind date and request |
//! | [`Logfmt`](Format::Logfmt) | Heroku's router, programs in Go | pairs such as `method=GET` |
//! | [`Custom`](Format::Custom) | any | [`Template`] |
//!
//! The prefix that log shippers add to a line is stripped ([`Prefix`]).

mod client;
mod clock;
mod columns;
mod common;
mod date;
mod envoy;
mod extended;
mod fields;
mod forwarded;
mod json;
mod line_text;
mod logfmt;
mod prefix;
mod reader;
mod sample;
mod span;
mod template;

use std::borrow::Cow;

use core::time::Duration;

use lull_cc::{Bytes, Timestamp};

pub use client::{ClientField, Network, Trust};
pub use clock::Clock;
pub use prefix::Prefix;
pub use reader::{BadLines, Options, Reader, Shape};
pub use span::Span;
pub use template::Template;

/// Longer lines are skipped: no server writes them, and their cost would be unbounded.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// The Common Log Format.
    Common,
    /// The same with referer and agent.
    Combined,
    /// The extended format of the W3C's draft, with a directive that names the columns.
    Extended,
    /// A flat JSON object per line, with the names of nginx's variables or other usual ones.
    JsonLines,
    /// Caddy's JSON.
    Caddy,
    /// The format of AWS's Application and Classic Load Balancers.
    Aws,
    /// HAProxy's `httplog`.
    Haproxy,
    /// Squid's native format.
    Squid,
    /// IIS' own format.
    Iis,
    /// Envoy's text, and Istio's.
    Envoy,
    /// Pairs of names and values.
    Logfmt,
    /// A format that the user describes.
    Custom,
}

impl core::fmt::Display for Format {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Format::Common => "common",
            Format::Combined => "combined",
            Format::Extended => "W3C extended",
            Format::JsonLines => "JSON lines",
            Format::Caddy => "Caddy",
            Format::Aws => "AWS load balancer",
            Format::Haproxy => "HAProxy",
            Format::Squid => "Squid",
            Format::Iis => "IIS",
            Format::Envoy => "Envoy",
            Format::Logfmt => "logfmt",
            Format::Custom => "--format",
        })
    }
}

/// A request, and its line's information about the client.
#[derive(Debug)]
struct Line<'a> {
    /// The client is still empty.
    entry: Entry<'a>,
    stated: client::Stated<'a>,
}

/// A request in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The time, since 1970 in UTC; most formats count in whole seconds.
    pub at: Timestamp,
    /// The client: an address without a port, or a host name. Hash it before you keep it:
    /// [`crate::observe::ClientHasher`].
    pub client: Cow<'a, str>,
    /// The method; empty if the client's bytes were no request, such as a port scan.
    pub method: Cow<'a, str>,
    /// The target with its query; in such a case, the client's bytes.
    pub target: Cow<'a, str>,
    /// The status of the answer.
    pub status: u16,
    /// The requested site, if the log names it: by the server's name or the client's.
    pub site: Option<Cow<'a, str>>,
    /// Sent bytes; none if the log has a dash.
    pub bytes: Bytes,
    /// The page that led here, if the log has it.
    pub referer: Option<Cow<'a, str>>,
    /// The user agent, if the log has a field for it; empty if the client sent none.
    pub agent: Option<Cow<'a, str>>,
    /// How long the answer took, if the log has it.
    pub took: Option<Duration>,
    /// Whether the client marked it as a prefetch (`Sec-Purpose`, `Purpose` or `X-Moz`).
    pub prefetch: bool,
    /// Whether the answer is private: a user was signed in, or the answer set a cookie or forbade shared
    /// caches.
    pub private: bool,
    /// Whether the query is part of the URL's name, as in `/list?page=2`. The owner of a site declares that,
    /// not a log.
    pub named_by_query: bool,
}

impl<'a> Entry<'a> {
    /// A page of a thousand bytes that a client got, without further details: the basis of artificial logs.
    pub fn page(
        at: Timestamp,
        client: impl Into<Cow<'a, str>>,
        target: impl Into<Cow<'a, str>>,
    ) -> Self {
        Entry {
            at,
            client: client.into(),
            method: Cow::Borrowed("GET"),
            target: target.into(),
            status: 200,
            site: None,
            bytes: Bytes(1_000),
            referer: None,
            agent: None,
            took: None,
            prefetch: false,
            private: false,
            named_by_query: false,
        }
    }
}

impl Entry<'_> {
    /// Whether it belongs to one of these sites, with any port; also if the log names none, or there are
    /// none.
    pub fn is_of(&self, sites: &[String]) -> bool {
        let Some(site) = self.site.as_deref().filter(|_| !sites.is_empty()) else { return true };
        sites.iter().any(|one| name_of_site(one).eq_ignore_ascii_case(name_of_site(site)))
    }

    /// Moves the site out of the target, if that is a complete URL, or a host and a path.
    fn take_site(&mut self) {
        if self.target.starts_with('/') {
            return;
        }
        let rest = self.target.split_once("://").map_or(&*self.target, |(_, rest)| rest);
        let is_whole = rest.len() < self.target.len();
        let end = rest.find('/').unwrap_or(rest.len());
        let (site, path) = rest.split_at(end);
        let is_host = name_of_site(site).contains('.') && client::is_host_name(name_of_site(site));
        if !is_host && !is_whole || site.is_empty() {
            return;
        }
        let site = site.to_owned();
        if !is_whole && !path.is_empty() {
            self.target = Cow::Owned(path.to_owned());
        }
        if is_host && self.site.is_none() {
            self.site = Some(Cow::Owned(site));
        }
    }

    /// The same without the line.
    pub fn into_owned(self) -> Entry<'static> {
        fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }
        Entry {
            at: self.at,
            client: owned(self.client),
            method: owned(self.method),
            target: owned(self.target),
            status: self.status,
            site: self.site.map(owned),
            bytes: self.bytes,
            referer: self.referer.map(owned),
            agent: self.agent.map(owned),
            took: self.took,
            prefetch: self.prefetch,
            private: self.private,
            named_by_query: self.named_by_query,
        }
    }
}

/// The name of a site without its port.
fn name_of_site(site: &str) -> &str {
    let name = match site.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => site,
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The client.
    Client,
    /// When.
    Date,
    /// Method and target.
    Request,
    /// The status of the answer.
    Status,
    /// Bytes sent.
    Length,
}

impl core::fmt::Display for Part {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Part::Client => "client",
            Part::Date => "date",
            Part::Request => "request",
            Part::Status => "status",
            Part::Length => "length",
        })
    }
}

/// Why a line is not a request of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum LineError {
    /// It is longer than [`MAX_LINE_BYTES`].
    #[error("the line is longer than 64 KiB")]
    TooLong,
    /// The line has a byte that text cannot contain.
    #[error("the line is not text")]
    NotText,
    /// The line ends too early, or its format has no such column.
    #[error("no {0}")]
    Missing(Part),
    /// The part exists, and is malformed.
    #[error("the {0} cannot be read")]
    Invalid(Part),
    /// A line of the extended format before any `#Fields:`.
    #[error("no #Fields directive above the line")]
    NoFields,
    /// A line of the extended format with more or fewer columns than `#Fields:` names.
    #[error("the line has fewer columns than #Fields names")]
    Columns,
    /// Not one JSON object.
    #[error("the line is not a JSON object")]
    NotJson,
    /// Not in the form that the user described.
    #[error("the line does not match --format")]
    Shape,
    /// The request came through a proxy, and it is unknown which of the addresses in the line is true.
    #[error("the request came through a proxy, so its client is not known")]
    Proxied,
    /// The line is a container's, and its client has an address of a private network. It may be one of
    /// several load balancers or nodes, through which one visitor comes.
    #[error("the client's address is an internal one, which several load balancers may have")]
    Internal,
    /// The client's column has a word that never comes back, such as a request ID.
    #[error("the client's name does not appear in other lines, so it may be a request ID")]
    OneOff,
}

/// A request line, `GET /a HTTP/1.1`, as method and target; no method if it is malformed.
fn request_line(line: &str) -> (&str, &str) {
    match line.split_once(' ') {
        Some((method, rest))
            if !method.is_empty() && method.bytes().all(|b| b.is_ascii_uppercase()) =>
        {
            // HTTP/0.9 had no version, and old logs have such lines.
            let target = match rest.rsplit_once(' ') {
                Some((target, version)) if version.starts_with("HTTP/") => target,
                _ => rest,
            };
            (method, target.trim_end())
        }
        _ => ("", line),
    }
}

/// Whether a header marks a prefetch: `Sec-Purpose: prefetch;prerender`, `Purpose: prefetch`,
/// `X-Moz: prefetch`, and Safari's `preview`.
fn is_prefetch(value: &str) -> bool {
    ["prefetch", "preview", "prerender"].iter().any(|word| value.contains(word))
}

/// Whether a `Cache-Control` forbids shared caches.
fn is_private(cache_control: &str) -> bool {
    let mut directives = cache_control.split(',').map(str::trim);
    directives.any(|one| {
        ["private", "no-store"].iter().any(|word| {
            let (name, _) = one.split_once('=').unwrap_or((one, ""));
            name.eq_ignore_ascii_case(word)
        })
    })
}

#[cfg(test)]
mod tests;
