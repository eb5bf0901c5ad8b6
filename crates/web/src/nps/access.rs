//! Who may look at the figures: `/.lull/`, `/.lull/status` and `/.lull/metrics`.

use http::header::{AUTHORIZATION, FORWARDED, HOST, VIA};
use http::request;

use super::Shared;
use crate::policy::fields;
use crate::proxy::Connection;

/// Who may look.
#[derive(Clone, Default)]
pub enum Access {
    /// Who is on the same machine, and was not forwarded by another proxy.
    #[default]
    SameMachine,
    /// Who says this, as the password of any user or as a bearer token.
    Token(String),
}

impl std::fmt::Debug for Access {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Access::SameMachine => "SameMachine",
            Access::Token(_) => "Token",
        })
    }
}

/// What becomes of somebody who wants to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Look,
    /// Says who it is first.
    Ask,
    /// Is not told that there is something to see.
    Nothing,
}

/// Whether the sender of a request may look.
pub(super) fn verdict(shared: &Shared, head: &request::Parts, connection: &Connection) -> Verdict {
    match &shared.settings.access {
        Access::Token(token) => {
            let said = fields::single(&head.headers, AUTHORIZATION);
            if said.is_some_and(|said| says(said, token)) { Verdict::Look } else { Verdict::Ask }
        }
        Access::SameMachine => {
            let ends = [connection.peer(), connection.local()];
            let is_local = ends.iter().all(|end| end.ip().to_canonical().is_loopback());
            // Behind another proxy everybody seems to be on this machine.
            let forwarded = ["x-forwarded-for", FORWARDED.as_str(), VIA.as_str()];
            let is_forwarded = shared.settings.trust_forwarded
                || forwarded.iter().any(|name| head.headers.contains_key(*name));
            if is_local && !is_forwarded && is_named_local(head) {
                Verdict::Look
            } else {
                Verdict::Nothing
            }
        }
    }
}

/// Whether the request is for this machine by name: a name of somebody else's that leads here is
/// how pages from elsewhere would look (DNS rebinding).
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
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether an `Authorization` says this token.
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

/// In a time that does not say how much of it is right.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differ == 0
}

/// RFC 4648 §4.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for byte in text.trim_end_matches('=').bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 255) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_password_or_a_bearers() {
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
    fn a_name_of_somebody_elses_is_not_this_machines() {
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
    fn a_token_is_not_shown() {
        assert_eq!(format!("{:?}", Access::Token("secret".into())), "Token");
    }
}
