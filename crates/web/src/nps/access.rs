//! Access to the dashboard: `/.lull/`, `/.lull/status` and `/.lull/metrics`.
//!
//! Access always needs a token. The peer address proves nothing: behind another local proxy, which need not
//! forward the client's address, all requests come from this machine. On a public address the owner must
//! configure the token; otherwise there is no access.

use std::net::IpAddr;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use http::header::{AUTHORIZATION, HOST};
use http::request;
use percent_encoding::percent_decode_str;

use crate::policy::fields;
use crate::proxy::{Address, Event};

/// The access rule of the dashboard.
#[derive(Clone, Default)]
pub enum Access {
    /// No client.
    #[default]
    Nobody,
    /// Clients with this token: as the password of any user, as a bearer token, or as `token` in the query.
    Token(String),
    /// The same for a generated token: the dashboard's URL is reported at the start, by [`Event::Figures`].
    /// No access if the proxy listens on a public address, which [`Event::FiguresOff`] reports.
    Generated(String),
}

impl std::fmt::Debug for Access {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Access::Nobody => "Nobody",
            Access::Token(_) => "Token",
            Access::Generated(_) => "Generated",
        })
    }
}

/// The decision about a request for the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Look,
    /// Ask for authentication.
    Ask,
    /// Hide that there is a dashboard.
    Nothing,
}

/// Whether the sender of a request has access.
pub(super) fn verdict(access: &Access, is_public: bool, head: &request::Parts) -> Verdict {
    let token = match access {
        Access::Nobody => return Verdict::Nothing,
        Access::Generated(_) if is_public => return Verdict::Nothing,
        Access::Token(token) | Access::Generated(token) => token,
    };
    let said = fields::single(&head.headers, AUTHORIZATION);
    let asked = head.uri.query().unwrap_or_default();
    if said.is_some_and(|said| says(said, token)) || is_asked_with(asked, token) {
        Verdict::Look
    } else {
        Verdict::Ask
    }
}

/// Whether machines outside of this one's network may reach an address. For all addresses of the machine, any
/// machine may: some of them may be public.
pub(super) fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => !(ip.is_loopback() || ip.is_private() || ip.is_link_local()),
        IpAddr::V6(ip) => !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()),
    }
}

/// The event for a generated token: the dashboard's URL, or that there is no access.
pub(super) fn access_event(
    access: &Access,
    name: Option<&str>,
    doors: &[Address],
) -> Option<Event> {
    let Access::Generated(token) = access else { return None };
    match doors.iter().find(|door| is_public(door.address.ip())) {
        Some(door) => Some(Event::FiguresOff { address: door.address }),
        None => url(token, name, doors).map(|url| Event::Figures { url }),
    }
}

/// The dashboard's URL: with the site's name, if that is known and the connection hides the token, otherwise
/// with an address.
fn url(token: &str, name: Option<&str>, doors: &[Address]) -> Option<String> {
    let door = |secure| doors.iter().find(|door| door.secure == secure);
    if let Some(name) = name.filter(|_| door(true).is_some()) {
        return Some(format!("https://{name}/.lull/?token={token}"));
    }
    // A certificate rarely contains an address.
    let door = door(false).or_else(|| door(true))?;
    let scheme = if door.secure { "https" } else { "http" };
    Some(format!("{scheme}://{}/.lull/?token={token}", door.address))
}

/// Whether a query has this token.
fn is_asked_with(query: &str, token: &str) -> bool {
    query.split('&').filter_map(|pair| pair.strip_prefix("token=")).any(|said| {
        let said: Vec<u8> = percent_decode_str(said).collect();
        is_equal(&said, token.as_bytes())
    })
}

/// Whether the request names this machine as its host.
pub(super) fn is_named_local(head: &request::Parts) -> bool {
    let host = match head.uri.authority() {
        Some(authority) => authority.as_str(),
        None => fields::single(&head.headers, HOST).unwrap_or_default(),
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether an `Authorization` has this token.
fn says(said: &str, token: &str) -> bool {
    let Some((scheme, rest)) = said.split_once(' ') else { return false };
    if scheme.eq_ignore_ascii_case("bearer") {
        return is_equal(rest.trim().as_bytes(), token.as_bytes());
    }
    let is_basic = scheme.eq_ignore_ascii_case("basic");
    let Some(plain) = decoded(rest.trim()).filter(|_| is_basic) else { return false };
    let colon = plain.iter().position(|byte| *byte == b':');
    colon.is_some_and(|colon| is_equal(&plain[colon + 1..], token.as_bytes()))
}

/// In a time that does not depend on the number of equal bytes.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differ == 0
}

/// Base64 with padding or without (RFC 4648 §4).
fn decoded(text: &str) -> Option<Vec<u8>> {
    const ANY_PADDING: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&alphabet::STANDARD, ANY_PADDING).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_accepted_as_password_or_bearer() {
        for (said, expected) in [
            ("Bearer secret", true),
            ("bearer  secret", true),
            // prometheus:secret, :secret and a:b:secret.
            ("Basic cHJvbWV0aGV1czpzZWNyZXQ=", true),
            ("Basic OnNlY3JldA==", true),
            ("Basic YTpiOnNlY3JldA==", false),
            ("Basic c2VjcmV0", false),
            ("Basic !", false),
            ("Bearer secre", false),
            ("Bearer secrets", false),
            ("Bearer", false),
            ("Digest secret", false),
        ] {
            assert_eq!(says(said, "secret"), expected, "{said}");
        }
    }

    #[test]
    fn only_local_host_names_count_as_local() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:8080", true),
            ("127.0.0.1:80", true),
            ("[::1]:80", true),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("", false),
        ] {
            let (head, ()) =
                http::Request::get("/").header("host", host).body(()).unwrap().into_parts();
            assert_eq!(is_named_local(&head), expected, "{host}");
        }
    }

    #[test]
    fn token_may_be_in_the_query() {
        for (query, expected) in [
            ("token=se+c/ret=", true),
            ("token=se%2Bc%2fret%3D", true),
            ("a=b&token=se+c/ret=", true),
            ("token=se+c/ret", false),
            ("token=", false),
            ("other=se+c/ret=", false),
            ("", false),
        ] {
            assert_eq!(is_asked_with(query, "se+c/ret="), expected, "{query}");
        }
    }

    fn door(text: &str, secure: bool) -> Address {
        Address { address: text.parse().unwrap(), secure, background: false }
    }

    #[test]
    fn dashboard_url_is_logged_with_a_generated_token() {
        let made = Access::Generated("t0".into());
        let site = Some("www.site.example");
        for (name, doors, expected) in [
            (None, &[("127.0.0.1:8080", false)][..], "http://127.0.0.1:8080/.lull/?token=t0"),
            (None, &[("[::1]:443", true), ("[::1]:80", false)], "http://[::1]:80/.lull/?token=t0"),
            (None, &[("192.168.1.7:443", true)], "https://192.168.1.7:443/.lull/?token=t0"),
            (site, &[("10.1.0.2:443", true)], "https://www.site.example/.lull/?token=t0"),
            (site, &[("127.0.0.1:81", false)], "http://127.0.0.1:81/.lull/?token=t0"),
        ] {
            let doors: Vec<_> = doors.iter().map(|(at, secure)| door(at, *secure)).collect();
            let url = expected.to_owned();
            assert_eq!(access_event(&made, name, &doors), Some(Event::Figures { url }));
        }
        let doors = [door("127.0.0.1:8080", false)];
        assert_eq!(access_event(&Access::Token("t0".into()), None, &doors), None);
        assert_eq!(access_event(&Access::Nobody, None, &doors), None);
        assert_eq!(access_event(&made, None, &[]), None);
    }

    #[test]
    fn dashboard_on_a_public_address_needs_a_configured_token() {
        let made = Access::Generated("t0".into());
        for public in [
            "0.0.0.0:80",
            "[::]:443",
            "192.0.2.7:80",
            "[2001:db8::7]:80",
            "100.64.0.1:80",
            "172.32.0.1:80",
            "[::ffff:192.0.2.7]:80",
        ] {
            let doors = [door("127.0.0.1:8080", false), door(public, true)];
            let address = public.parse().unwrap();
            let site = Some("www.site.example");
            assert_eq!(access_event(&made, site, &doors), Some(Event::FiguresOff { address }));
            assert_eq!(access_event(&Access::Token("t0".into()), site, &doors), None);
        }
        for own in [
            "127.8.0.1:80",
            "10.0.0.1:80",
            "172.16.0.1:80",
            "192.168.1.1:80",
            "169.254.0.1:80",
            "[fd00::1]:80",
            "[fe80::1]:80",
            "[::ffff:127.0.0.1]:80",
        ] {
            assert!(matches!(
                access_event(&made, None, &[door(own, false)]),
                Some(Event::Figures { .. })
            ));
        }
    }

    #[test]
    fn token_is_not_shown_in_debug_output() {
        for access in [Access::Token("secret".into()), Access::Generated("secret".into())] {
            assert!(!format!("{access:?}").contains("secret"));
        }
    }
}
