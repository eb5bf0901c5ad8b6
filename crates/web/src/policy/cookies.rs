//! Which cookies say nothing about who somebody is.

use http::HeaderMap;
use http::header::{COOKIE, HeaderValue, SET_COOKIE};

/// What several browsers may have alike, such as `consent=all`, is shorter. Identifiers of sessions have
/// 64 bits at least, so as many hexadecimal digits (OWASP, Session Management).
const TELLING: usize = 16;

/// Cookies that measuring scripts set, and that no server makes a page of. Each is a name, or the
/// beginning of one and `*`.
const HARMLESS: &[&str] = &[
    "_ga",
    "_ga_*",
    "_gid",
    "_gat*",
    "_gac_*",
    "_gcl_*",
    "__utm*", // Google
    "_pk_id*",
    "_pk_ses*",
    "_pk_ref*",
    "mtm_consent*", // Matomo
    "_fbp",
    "_fbc", // Meta
    "_clck",
    "_clsk", // Clarity
    "_hj*",  // Hotjar
    "_uetsid",
    "_uetvid",          // Bing
    "_ym_*",            // Metrica
    "ajs_anonymous_id", // Segment
];

/// The cookies that don't make somebody known: the list of analytics cookies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Harmless {
    names: Vec<String>,
}

impl Default for Harmless {
    /// Those of the common measuring scripts.
    fn default() -> Self {
        Harmless::new(HARMLESS.iter().copied())
    }
}

impl Harmless {
    /// Cookies by their names; one that ends in `*` stands for all that begin with it. Case
    /// matters, as it does to browsers. `*` alone is passed over: it would make everybody unknown.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().filter(|name| !name.is_empty() && *name != "*");
        Harmless { names: names.map(String::from).collect() }
    }

    /// No cookie at all.
    pub fn none() -> Self {
        Harmless { names: Vec::new() }
    }

    /// Whether the cookie `name` is on the list.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|listed| match listed.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == listed,
        })
    }
}

/// What the cookies of a request say about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// There are none.
    None,
    /// All are on the list.
    Harmless,
    /// There are others, or what is no text.
    Others,
}

pub(super) fn sent(headers: &HeaderMap, harmless: &Harmless) -> Sent {
    let mut sent = Sent::None;
    for line in headers.get_all(COOKIE) {
        let Ok(line) = line.to_str() else {
            return Sent::Others;
        };
        for cookie in line.split(';').map(str::trim).filter(|cookie| !cookie.is_empty()) {
            // A cookie without a name is sent as its bare value.
            let name = cookie.split_once('=').map_or("", |(name, _)| name.trim_end());
            if !harmless.has(name) {
                return Sent::Others;
            }
            sent = Sent::Harmless;
        }
    }
    sent
}

/// Whether a reply sets a cookie that is not on the list.
pub(super) fn sets_others(headers: &HeaderMap, harmless: &Harmless) -> bool {
    let mut lines = headers.get_all(SET_COOKIE).iter();
    lines.any(|line| !set(line).is_some_and(|(name, _)| harmless.has(name)))
}

/// The cookie that a line sets, if it has a name.
fn set(line: &HeaderValue) -> Option<(&str, &str)> {
    let (name, value) = line.to_str().ok()?.split(';').next()?.split_once('=')?;
    Some((name.trim(), value.trim()))
}

/// The cookies of a request that tell its browser from others.
pub(super) fn telling(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|one| one.split_once('='));
    pairs.map(|(name, value)| (name.trim(), value.trim())).filter(|(_, value)| tells(value))
}

/// Those that a reply sets, but for what is on the list.
pub(super) fn telling_set<'a>(
    headers: &'a HeaderMap,
    harmless: &Harmless,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let cookies = headers.get_all(SET_COOKIE).iter().filter_map(set);
    cookies.filter(|(name, value)| tells(value) && !harmless.has(name))
}

fn tells(value: &str) -> bool {
    value.len() >= TELLING
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn sent_with(lines: &[&[u8]]) -> Sent {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(COOKIE, HeaderValue::from_bytes(line).unwrap());
        }
        sent(&headers, &Harmless::default())
    }

    #[test]
    fn only_cookies_of_the_list_leave_somebody_unknown() {
        for (lines, expected) in [
            (&[][..], Sent::None),
            (&[&b""[..]], Sent::None),
            (&[b" ; "], Sent::None),
            (&[b"_ga=GA1.1.2"], Sent::Harmless),
            (&[b"_ga=1; _ga_X1=2; _gid=3"], Sent::Harmless),
            (&[b"_ga=1", b"_pk_id.1.a2=3"], Sent::Harmless),
            (&[b"session=1"], Sent::Others),
            (&[b"_ga=1; session=1"], Sent::Others),
            (&[b"_ga=1", b"session=1"], Sent::Others),
            // Names that only resemble those of the list.
            (&[b"_GA=1"], Sent::Others),
            (&[b"x_ga=1"], Sent::Others),
            (&[b"_gax=1"], Sent::Others),
            (&[b"__Host-_ga=1"], Sent::Others),
            // Without a name, without a value, or no text.
            (&[b"_ga"], Sent::Others),
            (&[b"=_ga"], Sent::Others),
            (&[b"_ga=\xff"], Sent::Others),
        ] {
            assert_eq!(sent_with(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_list_of_ones_own_replaces_the_usual_one() {
        let own = Harmless::new(["theme", "ab_*", "*", ""]);
        for (name, expected) in
            [("theme", true), ("ab_1", true), ("ab_", true), ("_ga", false), ("", false)]
        {
            assert_eq!(own.has(name), expected, "{name}");
        }
        assert!(!Harmless::none().has("_ga"));
    }

    #[test]
    fn cookies_that_are_set_are_told_apart() {
        for (line, expected) in [
            (&b"_ga=1; Path=/"[..], false),
            (b"session=1; HttpOnly", true),
            (b"session; _ga=1", true),
            (b"\xff=1", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(SET_COOKIE, HeaderValue::from_bytes(line).unwrap());
            assert_eq!(sets_others(&headers, &Harmless::default()), expected, "{line:?}");
        }
        assert!(!sets_others(&HeaderMap::new(), &Harmless::default()));
    }
}
