//! How long a reply may be kept.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{AGE, CACHE_CONTROL, CONTENT_TYPE, DATE, EXPIRES, PRAGMA};

use super::fields;

/// The longest lifetime of a copy (SSR §5.1: it expires earlier than it would otherwise).
pub const MAX_TTL: Duration = Duration::from_secs(300);
/// The time to live where the site sets none.
pub const UNSTATED_TTL: Duration = Duration::from_secs(60);

/// Why a reply may not be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// The site states it.
    #[error("the site says `{0}`")]
    Says(&'static str),
    /// It has no lifetime.
    #[error("it is stale already")]
    Expired,
    /// It has been in a cache of the site's own for its whole time to live or longer: the next one may be
    /// fresh.
    #[error("it has become stale in a cache of the site")]
    Aged,
    /// Scripts may request it repeatedly, to get news.
    #[error("it is data without a stated lifetime")]
    Data,
    /// Its headers are malformed.
    #[error("its {0} cannot be read")]
    Unreadable(&'static str),
}

/// How long a reply may be kept from `now` on: the shortest time that it states, at most five minutes. If it
/// states none, it is a minute for a page or a part of pages.
///
/// `s-maxage` is meant for shared caches. It counts here too: a limit for those limits this proxy as well.
///
/// # Errors
/// If it must not be kept.
pub fn ttl(headers: &HeaderMap, now: SystemTime) -> Result<Duration, Stale> {
    let mut stated: Option<Duration> = None;
    let mut state = |time: Duration| stated = Some(stated.map_or(time, |least| least.min(time)));

    let directives =
        fields::list(headers, CACHE_CONTROL).ok_or(Stale::Unreadable("Cache-Control"))?;
    for directive in &directives {
        let (name, value) = match directive.split_once('=') {
            Some((name, value)) => (name.trim(), unquoted(value.trim())),
            None => (*directive, ""),
        };
        let words = fields::words(directive).map(|(name, value)| (name, value.map(unquoted)));
        for (name, value) in words.chain([(name, Some(value))]) {
            for bar in ["no-store", "no-cache", "private"] {
                if name.eq_ignore_ascii_case(bar) {
                    return Err(Stale::Says(bar));
                }
            }
            let is_age = ["max-age", "s-maxage"].iter().any(|age| name.eq_ignore_ascii_case(age));
            if let Some(value) = value.filter(|_| is_age) {
                // A value that is not a number counts as zero (RFC 9111 §4.2.1).
                state(seconds(value).unwrap_or(Duration::ZERO));
            }
        }
    }
    if directives.is_empty()
        && fields::list(headers, PRAGMA)
            .is_none_or(|words| words.iter().any(|word| word.eq_ignore_ascii_case("no-cache")))
    {
        return Err(Stale::Says("Pragma: no-cache"));
    }
    let date =
        |name| fields::single(headers, name).and_then(|text| httpdate::parse_http_date(text).ok());
    if headers.contains_key(EXPIRES) {
        // An invalid date counts as past (RFC 9111 §5.3).
        let sent = date(DATE).unwrap_or(now);
        let left = date(EXPIRES).and_then(|expires| expires.duration_since(sent).ok());
        state(left.unwrap_or(Duration::ZERO));
    }
    let Some(stated) = stated else {
        return if is_of_pages(headers) { Ok(UNSTATED_TTL) } else { Err(Stale::Data) };
    };
    let age = match headers.contains_key(AGE) {
        true => fields::single(headers, AGE).and_then(seconds).ok_or(Stale::Unreadable("Age"))?,
        false => Duration::ZERO,
    };
    // A cache without `Age` has the reply's `Date` (RFC 9111 §4.2.3). A site with a slow clock gives all
    // browsers old replies.
    let apparent = date(DATE).and_then(|made| now.duration_since(made).ok()).unwrap_or_default();
    // In whole seconds, like all of these.
    let apparent = Duration::from_secs(apparent.as_secs());
    match stated.saturating_sub(age.max(apparent)) {
        Duration::ZERO if stated.is_zero() => Err(Stale::Expired),
        Duration::ZERO => Err(Stale::Aged),
        left => Ok(left.min(MAX_TTL)),
    }
}

/// Whether a reply is a page or one of its subresources, which may be shown a moment later. For other types a
/// page's own script may ask for news with the same URL, and would get the copy.
fn is_of_pages(headers: &HeaderMap) -> bool {
    // A browser detects a missing type itself, and shows the body.
    if !headers.contains_key(CONTENT_TYPE) {
        return true;
    }
    let said = fields::single(headers, CONTENT_TYPE).unwrap_or_default();
    let kind = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let of = ["image/", "font/", "application/font-", "audio/", "video/"];
    let is = [
        "text/html",
        "application/xhtml+xml",
        "text/css",
        "text/javascript",
        "application/javascript",
        "application/x-javascript",
        "application/wasm",
        "application/pdf",
        "text/plain",
    ];
    of.iter().any(|start| kind.starts_with(start)) || is.contains(&kind.as_str())
}

fn unquoted(value: &str) -> &str {
    value.trim_matches('"')
}

/// Seconds as written by caches; a number that overflows is very large (RFC 9111 §1.2.2).
fn seconds(text: &str) -> Option<Duration> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(Duration::from_secs(text.parse().unwrap_or(u64::from(u32::MAX))))
}

#[cfg(test)]
mod tests {
    use http::header::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    fn ttl_of(fields: &[(&'static str, &str)]) -> Result<u64, Stale> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        ttl(&headers, now()).map(|ttl| ttl.as_secs())
    }

    #[test]
    fn data_is_kept_only_with_an_explicit_lifetime() {
        for (kind, is_kept) in [
            ("text/html; charset=utf-8", true),
            ("Text/HTML", true),
            ("text/css", true),
            ("application/javascript", true),
            ("image/svg+xml", true),
            ("font/woff2", true),
            ("application/json", false),
            ("application/xml", false),
            ("text/event-stream", false),
            ("application/octet-stream", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            let expected = if is_kept { Ok(UNSTATED_TTL) } else { Err(Stale::Data) };
            assert_eq!(ttl(&headers, now()), expected, "{kind}");
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=5"));
            assert_eq!(ttl(&headers, now()), Ok(Duration::from_secs(5)), "{kind}");
        }
        assert_eq!(ttl(&HeaderMap::new(), now()), Ok(UNSTATED_TTL));
    }

    #[test]
    fn copy_lives_as_long_as_the_site_allows_up_to_five_minutes() {
        const CC: &str = "cache-control";
        const SENT: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        for (fields, expected) in [
            (&[][..], Ok(60)),
            (&[(CC, "public")], Ok(60)),
            (&[(CC, "max-age=120")], Ok(120)),
            (&[(CC, "Max-Age=\"120\"")], Ok(120)),
            (&[(CC, "max-age=31536000, immutable")], Ok(300)),
            (&[(CC, "max-age=99999999999999999999999")], Ok(300)),
            (&[(CC, "max-age=100"), (CC, "max-age=50")], Ok(50)),
            (&[(CC, "s-maxage=30, max-age=200")], Ok(30)),
            (&[(CC, "s-maxage=30")], Ok(30)),
            (&[(CC, "max-age = 30")], Ok(30)),
            // Separated by a character that is not a separator there.
            (&[(CC, "no-cache; no-store")], Err(Stale::Says("no-cache"))),
            (&[(CC, "private; max-age=0")], Err(Stale::Says("private"))),
            (&[(CC, "max-age=100; private")], Err(Stale::Says("private"))),
            (&[(CC, "public no-store")], Err(Stale::Says("no-store"))),
            (&[(CC, "public;no-store;max-age=9")], Err(Stale::Says("no-store"))),
            (&[(CC, "public; max-age=0")], Err(Stale::Expired)),
            (&[(CC, "public; max-age=\"30\"")], Ok(30)),
            (&[(CC, "max-age=100, x=\"no; yes\"")], Ok(100)),
            (&[(CC, "max-age=100, stale-while-revalidate=1000")], Ok(100)),
            (&[(CC, "max-age=100"), ("age", "40")], Ok(60)),
            (&[(CC, "max-age=100"), ("age", "100")], Err(Stale::Aged)),
            (&[(CC, "max-age=100"), ("age", "5000")], Err(Stale::Aged)),
            (&[(CC, "max-age=0"), ("age", "5")], Err(Stale::Expired)),
            (&[(CC, "max-age=100"), ("age", "-1")], Err(Stale::Unreadable("Age"))),
            (&[("age", "5000")], Ok(60)),
            (&[(CC, "max-age=100"), ("date", "Sun, 06 Nov 1994 08:48:57 GMT")], Ok(60)),
            (
                &[(CC, "max-age=100"), ("age", "50"), ("date", "Sun, 06 Nov 1994 08:48:57 GMT")],
                Ok(50),
            ),
            (&[(CC, "max-age=100"), ("date", "Sun, 06 Nov 1994 08:40:00 GMT")], Err(Stale::Aged)),
            (&[(CC, "max-age=100"), ("date", "Sun, 06 Nov 1994 09:00:00 GMT")], Ok(100)),
            (&[("date", "Sun, 06 Nov 1994 08:40:00 GMT")], Ok(60)),
            // Never.
            (&[(CC, "no-store")], Err(Stale::Says("no-store"))),
            (&[(CC, "no-cache")], Err(Stale::Says("no-cache"))),
            (&[(CC, "max-age=100, private")], Err(Stale::Says("private"))),
            (&[(CC, "PRIVATE=\"set-cookie, x\"")], Err(Stale::Says("private"))),
            (&[(CC, "max-age=100"), (CC, "no-cache=\"x\"")], Err(Stale::Says("no-cache"))),
            (&[(CC, "max-age=0")], Err(Stale::Expired)),
            (&[(CC, "max-age=-1")], Err(Stale::Expired)),
            (&[(CC, "max-age=soon")], Err(Stale::Expired)),
            (&[(CC, "max-age")], Err(Stale::Expired)),
            (&[("pragma", "no-cache")], Err(Stale::Says("Pragma: no-cache"))),
            (&[("pragma", "no-cache"), (CC, "max-age=70")], Ok(70)),
            (&[(CC, "max-age=70\u{fc}")], Err(Stale::Unreadable("Cache-Control"))),
            // By date.
            (&[SENT, ("expires", "Sun, 06 Nov 1994 08:50:37 GMT")], Ok(60)),
            (&[("expires", "Sun, 06 Nov 1994 08:50:07 GMT")], Ok(30)),
            (&[SENT, ("expires", "Sun, 06 Nov 1994 08:49:37 GMT")], Err(Stale::Expired)),
            (&[SENT, ("expires", "Thu, 19 Nov 1981 08:52:00 GMT")], Err(Stale::Expired)),
            (&[("expires", "0")], Err(Stale::Expired)),
            (&[("expires", "-1"), (CC, "max-age=100")], Err(Stale::Expired)),
            (&[("expires", "Sun, 06 Nov 1994 08:50:37 GMT"), (CC, "max-age=200")], Ok(60)),
        ] {
            assert_eq!(ttl_of(fields), expected, "{fields:?}");
        }
    }

    proptest! {
        #[test]
        fn no_reply_is_kept_longer_than_five_minutes(
            control in "[a-z0-9=, \"-]{0,40}", age in "[0-9-]{0,6}", expires in "[ -~]{0,30}",
        ) {
            if let Ok(ttl) = ttl_of(&[("cache-control", &control), ("age", &age), ("expires", &expires)]) {
                prop_assert!((1..=300).contains(&ttl));
            }
        }
    }
}
