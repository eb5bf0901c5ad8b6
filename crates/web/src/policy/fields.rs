//! Header fields that are lists.

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, AsHeaderName, CACHE_CONTROL, HeaderName, HeaderValue, VARY};

/// The members of a comma-separated field, over all its lines, without surrounding white space. A comma
/// within a quoted string is not a separator.
///
/// `None` if a line is not text: then its meaning is unknown.
pub(crate) fn list(headers: &HeaderMap, name: impl AsHeaderName) -> Option<Vec<&str>> {
    let mut members = Vec::new();
    for value in headers.get_all(name) {
        let value = value.to_str().ok()?;
        let (mut start, mut quoted, mut escaped) = (0, false, false);
        for (at, byte) in value.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b',' if !quoted => {
                    members.push(value[start..at].trim());
                    start = at + 1;
                }
                _ => {}
            }
        }
        members.push(value[start..].trim());
    }
    members.retain(|member| !member.is_empty());
    Some(members)
}

/// The words of such a member, each with the text after its `=`. Some sites separate directives by semicolons
/// or only by white space; their prohibitions are intended all the same.
pub(crate) fn words(member: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let words = member.split(|between: char| between == ';' || between.is_whitespace());
    words.filter(|word| !word.is_empty()).map(|word| match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    })
}

/// Whether `Cache-Control` has one of these, or cannot be parsed.
pub(crate) fn may_direct(headers: &HeaderMap, directives: &[&str]) -> bool {
    let says = |member: &&str| {
        let mut words = words(member);
        words.any(|(name, _)| directives.iter().any(|one| name.eq_ignore_ascii_case(one)))
    };
    list(headers, CACHE_CONTROL).is_none_or(|members| members.iter().any(says))
}

/// Fields of scripts that insert a part of a page into the present one: htmx, jQuery and similar ones, pjax,
/// Turbo and Unpoly. Many sites answer such a request with that part alone.
const OF_A_PART: [&str; 5] =
    ["hx-request", "x-requested-with", "x-pjax", "turbo-frame", "x-up-target"];

/// The fields of [`OF_A_PART`] that a request has. Apps for Android put their package name, which contains a dot,
/// into all requests of their web view.
fn of_a_part(request: &HeaderMap) -> impl Iterator<Item = &'static str> {
    let is_an_apps = |name: &str| {
        let values = request.get_all(name).iter();
        name == "x-requested-with"
            && values.into_iter().all(|value| value.as_bytes().contains(&b'.'))
    };
    OF_A_PART.into_iter().filter(move |name| request.contains_key(*name) && !is_an_apps(name))
}

/// Whether a script asks for a part of a page, or may do so. Requests that a browser displays itself are
/// excluded: no script can fake them.
pub(crate) fn asks_for_a_part(request: &HeaderMap) -> bool {
    single(request, "sec-fetch-dest") != Some("document") && of_a_part(request).next().is_some()
}

/// Whether a reply varies on the field by which this request asks for a part.
pub(crate) fn varies_by_part(request: &HeaderMap, reply: &HeaderMap) -> bool {
    let Some(varies) = list(reply, VARY) else { return false };
    let names = |name: &str| varies.iter().any(|one| *one == "*" || one.eq_ignore_ascii_case(name));
    of_a_part(request).all(names)
}

/// Whether a request accepts a content coding; a weight of zero means that it does not (RFC 9110 §12.5.3).
pub(crate) fn takes(request: &HeaderMap, coding: &str) -> bool {
    let says = |member: &&str| {
        let mut words = words(member);
        let is_it = words.next().is_some_and(|(name, _)| name.eq_ignore_ascii_case(coding));
        let is_none = |(name, value): (&str, Option<&str>)| {
            let weight = value.filter(|_| name.eq_ignore_ascii_case("q"));
            weight.is_some_and(|weight| weight.parse() == Ok(0.0))
        };
        is_it && !words.any(is_none)
    };
    list(request, ACCEPT_ENCODING).is_some_and(|members| members.iter().any(says))
}

/// The value of a field that occurs once, as text.
pub(crate) fn single(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?.trim();
    values.next().is_none().then_some(value)
}

/// Replaces a field by one line. Values from header fields are valid in one.
pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x", HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn members_are_split_at_commas_outside_quotes() {
        for (values, expected) in [
            (&[&b"a, b"[..], b"c"][..], &["a", "b", "c"][..]),
            (&[br#"private="a, b", max-age=1"#], &[r#"private="a, b""#, "max-age=1"]),
            (&[br#"x="\", y", z"#], &[r#"x="\", y""#, "z"]),
            (&[b" , ,"], &[]),
            (&[], &[]),
        ] {
            assert_eq!(list(&headers(values), "x").unwrap(), expected);
        }
        assert_eq!(list(&headers(&[b"a\xff"]), "x"), None);
    }

    #[test]
    fn directive_counts_after_any_separator() {
        for (values, expected) in [
            (&[&b"private"[..]][..], true),
            (&[b"max-age=3, Private"], true),
            (&[b"private=\"set-cookie\", max-age=3"], true),
            (&[b"private; max-age=0"], true),
            (&[b"max-age=0;private"], true),
            (&[b"max-age=0 private"], true),
            (&[b"max-age=3", b"public;\tprivate ; x"], true),
            (&[b"\xff"], true),
            (&[b"max-age=3, privately, x-private"], false),
            (&[b"max-age=3; x=private"], false),
            (&[], false),
        ] {
            let mut fields = HeaderMap::new();
            for value in values {
                fields.append(CACHE_CONTROL, HeaderValue::from_bytes(value).unwrap());
            }
            assert_eq!(may_direct(&fields, &["no-store", "private"]), expected, "{values:?}");
        }
    }

    #[test]
    fn repeated_field_is_no_single_value() {
        assert_eq!(single(&headers(&[b" a "]), "x"), Some("a"));
        assert_eq!(single(&headers(&[b"a", b"b"]), "x"), None);
        assert_eq!(single(&headers(&[]), "x"), None);
    }
}
