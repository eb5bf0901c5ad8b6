//! The header `Forwarded` (RFC 7239) as a list of addresses, in the form of `X-Forwarded-For`.
//!
//! ```text
//! for=192.0.2.43, for="[2001:db8:cafe::17]:4711";proto=https;by=203.0.113.43
//! ```

use std::borrow::Cow;

/// The list of addresses in a text. A `Forwarded` header is converted; any other text stays as it is.
pub(super) fn as_list(text: Cow<'_, str>) -> Cow<'_, str> {
    match is_forwarded(&text) {
        true => Cow::Owned(list(&text)),
        false => text,
    }
}

/// Whether a text is a `Forwarded` header with a client (section 4).
pub(super) fn is_forwarded(text: &str) -> bool {
    const NAME: &str = "for=";
    let begins =
        |text: &str| text.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME));
    text.contains('=') && text.split([',', ';']).any(|pair| begins(pair.trim_start()))
}

/// For each element its `for`, or `unknown` (section 6.2), in their order: each proxy appends one (section 4).
fn list(text: &str) -> String {
    let node = |element: &str| {
        let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"));
        found.map_or("unknown".to_owned(), |(_, node)| bare(node))
    };
    text.split(',').map(node).collect::<Vec<_>>().join(", ")
}

/// An address without its quotation marks, which logs may have escaped.
fn bare(node: &str) -> String {
    node.replace("\\x22", "").replace(['\\', '"'], "").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_gives_the_addresses_of_its_elements() {
        for (header, expected) in [
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            ("for=192.0.2.43, for=198.51.100.17", "192.0.2.43, 198.51.100.17"),
            ("For=\"[2001:db8:cafe::17]:4711\"", "[2001:db8:cafe::17]:4711"),
            ("proto=https; For=\\\"[2001:db8::1]\\\"", "[2001:db8::1]"),
            ("for=\\x22[2001:db8::1]\\x22", "[2001:db8::1]"),
            ("for=192.0.2.43,by=203.0.113.1", "192.0.2.43, unknown"),
            ("for=_hidden, for=unknown", "_hidden, unknown"),
            ("192.0.2.1, 192.0.2.2", "192.0.2.1, 192.0.2.2"),
            ("x=for=1", "x=for=1"),
            ("-", "-"),
        ] {
            assert_eq!(as_list(Cow::Borrowed(header)), expected, "{header}");
        }
    }
}
