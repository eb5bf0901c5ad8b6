//! HTTP authentication (RFC 9110 §11), as far as it identifies a user without a cookie.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, WWW_AUTHENTICATE};

/// Schemes whose credentials browsers send again by themselves. Credentials of others, such as Bearer, are
/// sent by scripts, with their own requests and never with a navigation.
const OF_BROWSERS: &[&str] = &["basic", "digest", "ntlm", "negotiate"];
/// Schemes that authenticate a whole connection, independently of its later requests: their servers
/// authenticate it once (RFC 4559 §6 warns of proxies that share it).
const OF_CONNECTIONS: &[&str] = &["ntlm", "negotiate"];

/// Whether a request carries credentials that its browser sends by itself.
pub(crate) fn has_credentials(headers: &HeaderMap) -> bool {
    names_one(headers, &AUTHORIZATION, OF_BROWSERS)
}

/// Whether a reply makes a browser ask for a password.
pub(crate) fn asks_for_credentials(headers: &HeaderMap) -> bool {
    names_one(headers, &WWW_AUTHENTICATE, OF_BROWSERS)
}

/// Whether a request or a reply with these headers may authenticate its connection.
pub(crate) fn is_of_the_connection(headers: &HeaderMap) -> bool {
    [AUTHORIZATION, WWW_AUTHENTICATE].iter().any(|name| names_one(headers, name, OF_CONNECTIONS))
}

fn names_one(headers: &HeaderMap, name: &HeaderName, schemes: &[&str]) -> bool {
    // Commas separate challenges, and parameters within them. The text after one within is a parameter, and
    // can be mistaken for a scheme only on purpose, which does no harm.
    headers.get_all(name).iter().any(|value| {
        value.as_bytes().split(|byte| *byte == b',').any(|part| {
            let word = part.trim_ascii().split(u8::is_ascii_whitespace).next().unwrap_or_default();
            schemes.iter().any(|scheme| word.eq_ignore_ascii_case(scheme.as_bytes()))
        })
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn schemes_are_distinguished() {
        for (said, of_browsers, of_connections) in [
            ("Basic eA==", true, false),
            ("basic realm=\"a, b\"", true, false),
            ("Bearer realm=\"x\", error=\"y\", Basic realm=\"z\"", true, false),
            ("Digest username=\"bob\", realm=\"x\"", true, false),
            ("Negotiate", true, true),
            ("NTLM TlRMTVNTUAAB", true, true),
            ("Negotiate,NTLM", true, true),
            ("Bearer abc", false, false),
            ("Basically abc", false, false),
            ("", false, false),
        ] {
            for name in [AUTHORIZATION, WWW_AUTHENTICATE] {
                let mut headers = HeaderMap::new();
                headers.append(&name, HeaderValue::from_static("Bearer x"));
                headers.append(&name, HeaderValue::from_str(said).unwrap());
                let is_request = name == AUTHORIZATION;
                assert_eq!(has_credentials(&headers), of_browsers && is_request, "{said}");
                assert_eq!(asks_for_credentials(&headers), of_browsers && !is_request, "{said}");
                assert_eq!(is_of_the_connection(&headers), of_connections, "{said}");
            }
        }
        assert!(!is_of_the_connection(&HeaderMap::new()));
    }
}
