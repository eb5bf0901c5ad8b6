//! The names of the site, and whether visitors use them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderValue;
use http::uri::Authority;
use lull_cc::Timestamp;

/// How long no request may use a name of the site, before that is reported.
const UNUSED_NAME_DELAY: Duration = Duration::from_secs(60);

/// Why a text is not a name of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoName {
    /// A URL.
    #[error("it is a URL: write only the name, as HOST or HOST:PORT")]
    Url,
    /// Several names in one.
    #[error("wildcards are not allowed: write each name, and repeat the option")]
    Star,
    /// Letters of other alphabets.
    #[error("browsers send such a name in ASCII: write that form, with xn--")]
    NotAscii,
    /// Anything else.
    #[error("it is not the name of a host: write HOST or HOST:PORT, as in the address bar")]
    NoHost,
}

/// Reads the name of a site, as in an address bar: `HOST` or `HOST:PORT`.
///
/// # Errors
/// If the name is invalid.
pub fn site_name(text: &str) -> Result<HeaderValue, NoName> {
    if text.contains(['/', '?', '#']) {
        return Err(NoName::Url);
    }
    if text.contains('*') {
        return Err(NoName::Star);
    }
    if !text.is_ascii() {
        return Err(NoName::NotAscii);
    }
    let name: Authority = text.parse().map_err(|_| NoName::NoHost)?;
    let host = name.host();
    let is_literal = host.starts_with('[') && host.ends_with(']');
    let is_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let has_port = name.as_str().len() > host.len();
    if host.is_empty()
        || !(is_literal || host.bytes().all(is_label))
        || (has_port && name.port_u16().is_none())
    {
        return Err(NoName::NoHost);
    }
    HeaderValue::from_str(&text.to_ascii_lowercase()).map_err(|_| NoName::NoHost)
}

/// Whether a request to `host` is for the site of that name. Browsers leave out the default port of a scheme.
pub(super) fn is_same(name: &[u8], host: &[u8]) -> bool {
    bare(name).eq_ignore_ascii_case(bare(host))
}

fn bare(host: &[u8]) -> &[u8] {
    let usual: [&[u8]; 2] = [b":443", b":80"];
    usual.iter().find_map(|port| host.strip_suffix(*port)).unwrap_or(host)
}

/// Whether any request uses these names. A wrong name looks like a site without visitors.
#[derive(Debug, Default)]
pub(super) struct SiteNames {
    is_met: AtomicBool,
    is_told: AtomicBool,
    /// When the first request for another host came.
    other_since: OnceLock<Timestamp>,
}

impl SiteNames {
    /// A request for the site came.
    pub(super) fn met(&self) {
        if !self.is_met.load(Ordering::Relaxed) {
            self.is_met.store(true, Ordering::Relaxed);
        }
    }

    /// A request came for another host; returns whether to report now that none comes for the site. One
    /// request for the site proves the name, whatever robots request at night.
    pub(super) fn other(&self, now: Timestamp) -> bool {
        let since = *self.other_since.get_or_init(|| now);
        !self.is_met.load(Ordering::Relaxed)
            && now.saturating_since(since) >= UNUSED_NAME_DELAY
            && !self.is_told.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_name_is_a_host_with_an_optional_port() {
        for (text, expected) in [
            ("www.example.org", Ok("www.example.org")),
            ("WWW.Example.org:8443", Ok("www.example.org:8443")),
            ("localhost", Ok("localhost")),
            ("127.0.0.1:8080", Ok("127.0.0.1:8080")),
            ("[2001:db8::1]:8080", Ok("[2001:db8::1]:8080")),
            ("https://example.org", Err(NoName::Url)),
            ("example.org/", Err(NoName::Url)),
            ("example.org?a", Err(NoName::Url)),
            ("*.example.org", Err(NoName::Star)),
            ("b\u{fc}cher.example", Err(NoName::NotAscii)),
            ("ann@example.org", Err(NoName::NoHost)),
            ("example.org:", Err(NoName::NoHost)),
            ("example.org:99999", Err(NoName::NoHost)),
            ("example.org:https", Err(NoName::NoHost)),
            ("a.example, b.example", Err(NoName::NoHost)),
            (":80", Err(NoName::NoHost)),
            ("", Err(NoName::NoHost)),
        ] {
            let found = site_name(text);
            assert_eq!(found, expected.map(HeaderValue::from_static), "{text}");
        }
    }

    #[test]
    fn default_port_does_not_change_a_site_name() {
        for (name, host, expected) in [
            ("example.org", "EXAMPLE.org", true),
            ("example.org:443", "example.org", true),
            ("example.org", "example.org:80", true),
            ("example.org:8443", "example.org", false),
            ("example.org", "example.org:8443", false),
            ("example.org", "www.example.org", false),
        ] {
            assert_eq!(is_same(name.as_bytes(), host.as_bytes()), expected, "{name} {host}");
        }
    }

    #[test]
    fn unused_site_name_is_reported_once_after_a_minute() {
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        let names = SiteNames::default();
        let told = [100, 130, 159, 160, 161, 999].map(|second| names.other(at(second)));
        assert_eq!(told, [false, false, false, true, false, false]);
        let names = SiteNames::default();
        assert!(!names.other(at(100)));
        names.met();
        assert!(!names.other(at(200)));
    }
}
