//! Decides which visitors get the script and hints.

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};

use super::browsers::{self, DeliveryMethod};
use super::cookies::{self, Harmless, Sent};
use super::excluded::Excluded;
use super::fields;

/// A visitor that may get hints, because it is anonymous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visitor {
    /// Sends no cookies, like prefetches: its navigations find the copy, which varies on cookies.
    Cookieless,
    /// Sends only harmless cookies, by the list or by learning. The script has each copy confirmed for them.
    Measured,
}

/// Fields that servers, sign-on proxies and clouds add to requests of identified users: by a certificate, a
/// ticket, or a session of their own. Prefetches carry them like all other requests, so no copy is anonymous
/// there.
const IDENTITIES: &[&str] = &[
    "remote-user",
    "x-remote-user",
    "x-forwarded-user",
    "x-forwarded-email",
    "x-forwarded-preferred-username",
    "x-forwarded-access-token",
    "x-auth-request-user",
    "x-auth-request-email",
    "x-authenticated-user",
    "x-webauth-user",
    "x-user",
    "x-user-id",
    "x-authentik-username",
    "x-vouch-user",
    "x-pomerium-jwt-assertion",
    "x-forwarded-client-cert",
    "client-cert",
    "ssl-client-cert",
    "x-ssl-cert",
    "x-ssl-client-cert",
    "x-ssl-client-dn",
    "x-ssl-client-s-dn",
    "x-ssl-client-subject",
    "x-client-cert",
    "x-client-dn",
    "x-arr-clientcert",
    "x-amzn-mtls-clientcert",
    "x-amzn-oidc-identity",
    "x-amzn-oidc-data",
    "x-goog-authenticated-user-email",
    "x-goog-iap-jwt-assertion",
    "x-ms-client-principal",
    "x-ms-client-principal-name",
    "cf-access-authenticated-user-email",
    "cf-access-jwt-assertion",
    "tailscale-user-login",
];

/// The header that identifies the sender of a request; an empty one means that the user is anonymous.
pub(super) fn identified_by(headers: &HeaderMap) -> Option<&'static str> {
    let says = |name: &&&str| {
        let mut values = headers.get_all(**name).iter().map(|value| value.as_bytes().trim_ascii());
        values.any(|value| !matches!(value, b"" | b"-" | b"(null)"))
    };
    IDENTITIES.iter().find(says).copied()
}

/// Devices with this many GiB or fewer have better uses for the memory.
const SMALL_DEVICE: f32 = 0.5;

/// The kind of visitor that sends a request with these headers, from a browser for that way.
///
/// # Errors
/// If the sender may not get hints.
pub fn visitor(
    headers: &HeaderMap,
    harmless: &Harmless,
    way: DeliveryMethod,
) -> Result<Visitor, Excluded> {
    let visitor = anonymous(headers, harmless)?;
    browsers::gains(headers, way)?;
    spares(headers)?;
    Ok(visitor)
}

/// The same for any browser: whether nothing in a request identifies its user.
pub(super) fn anonymous(headers: &HeaderMap, harmless: &Harmless) -> Result<Visitor, Excluded> {
    if headers.contains_key(AUTHORIZATION) {
        return Err(Excluded::Authorization);
    }
    if let Some(name) = identified_by(headers) {
        return Err(Excluded::Identified(name));
    }
    match cookies::sent(headers, harmless) {
        Sent::None => Ok(Visitor::Cookieless),
        Sent::Harmless | Sent::Learned => Ok(Visitor::Measured),
        Sent::Others => Err(Excluded::Cookie),
    }
}

/// The same for the request of a page: `GET`, or `HEAD`, whose reply has the headers of `GET`.
///
/// # Errors
/// If its reply must not get the script.
pub fn page_visitor(
    method: &Method,
    headers: &HeaderMap,
    harmless: &Harmless,
    way: DeliveryMethod,
) -> Result<Visitor, Excluded> {
    if method != Method::GET && method != Method::HEAD {
        return Err(Excluded::Method(method.clone()));
    }
    visitor(headers, harmless, way)
}

/// Whether user, network and device have spare capacity, according to the headers.
pub(super) fn spares(headers: &HeaderMap) -> Result<(), Excluded> {
    let says = |name: &str, words: &[&str]| {
        headers.get_all(name).iter().any(|value| {
            value.to_str().is_ok_and(|value| {
                value.split([',', ';']).any(|one| {
                    words.iter().any(|word| one.trim().trim_matches('"').eq_ignore_ascii_case(word))
                })
            })
        })
    };
    if says("save-data", &["on"]) {
        return Err(Excluded::SaveData);
    }
    if says("ect", &["2g", "slow-2g"]) {
        return Err(Excluded::SlowNetwork);
    }
    for name in ["sec-ch-device-memory", "device-memory"] {
        let memory = fields::single(headers, name).and_then(|text| text.parse::<f32>().ok());
        if memory.is_some_and(|gib| gib <= SMALL_DEVICE) {
            return Err(Excluded::SmallDevice);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::header::{HeaderName, HeaderValue};

    use super::*;

    const CHROME: &str = "Mozilla/5.0 (X11) Chrome/156.0.0.0 Safari/537.36";

    fn with(more: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", HeaderValue::from_static(CHROME));
        for (name, value) in more {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_anonymous_visitors_with_spare_capacity_get_hints() {
        use Excluded::{Authorization, Browser, Cookie, SaveData, SlowNetwork, SmallDevice};
        for (more, expected) in [
            (&[][..], Ok(Visitor::Cookieless)),
            (&[("cookie", "_ga=1")], Ok(Visitor::Measured)),
            (&[("cookie", "session=1")], Err(Cookie)),
            (&[("cookie", "_ga=1; session=1")], Err(Cookie)),
            (&[("authorization", "Basic eA==")], Err(Authorization)),
            (&[("user-agent", "Mozilla/5.0 Gecko/20100101 Firefox/140.0")], Err(Browser)),
            (&[("save-data", "on")], Err(SaveData)),
            (&[("save-data", "On;v=1")], Err(SaveData)),
            (&[("save-data", "off")], Ok(Visitor::Cookieless)),
            (&[("ect", "slow-2g")], Err(SlowNetwork)),
            (&[("ect", "\"2g\"")], Err(SlowNetwork)),
            (&[("ect", "3g")], Ok(Visitor::Cookieless)),
            (&[("device-memory", "0.5")], Err(SmallDevice)),
            (&[("sec-ch-device-memory", "0.25")], Err(SmallDevice)),
            (&[("device-memory", "8")], Ok(Visitor::Cookieless)),
        ] {
            let found = visitor(&with(more), &Harmless::default(), DeliveryMethod::Cache);
            assert_eq!(found, expected, "{more:?}");
        }
    }

    #[test]
    fn user_identified_by_a_proxy_in_front_gets_no_prefetch() {
        for name in IDENTITIES {
            let found = |value| {
                visitor(&with(&[(name, value)]), &Harmless::default(), DeliveryMethod::Cache)
            };
            assert_eq!(found("ann"), Err(Excluded::Identified(name)));
            for absent in ["", " ", "-", "(null)"] {
                assert_eq!(found(absent), Ok(Visitor::Cookieless), "{name}: {absent:?}");
            }
        }
    }

    #[test]
    fn only_get_and_head_pages_get_the_script() {
        for (method, expected) in [
            (Method::GET, true),
            (Method::HEAD, true),
            (Method::POST, false),
            (Method::PUT, false),
            (Method::OPTIONS, false),
        ] {
            let harmless = Harmless::default();
            let found = page_visitor(&method, &with(&[]), &harmless, DeliveryMethod::Cache);
            assert_eq!(found.is_ok(), expected, "{method}");
        }
    }
}
