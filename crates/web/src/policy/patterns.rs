//! Patterns of paths, as in robots.txt (RFC 9309 §2.2.3): from the beginning of the path, `*` for anything,
//! `$` for its end.

use std::str::FromStr;

use percent_encoding::percent_decode_str;

/// A pattern that is matched against paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// The texts between the stars, decoded as paths are.
    parts: Vec<Vec<u8>>,
    to_the_end: bool,
}

/// Why a text is an invalid pattern of an owner. Paths begin with a slash, so it would never match, without
/// any sign of that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a pattern begins with / or *: write '/{0}' for paths that begin with it, '*{0}' for paths \
     that contain it"
)]
pub struct NoPattern(String);

impl FromStr for Pattern {
    type Err = NoPattern;

    /// The pattern of an owner's text.
    fn from_str(text: &str) -> Result<Self, NoPattern> {
        if text.starts_with(['/', '*']) {
            Ok(Pattern::new(text))
        } else {
            Err(NoPattern(text.to_owned()))
        }
    }
}

impl Pattern {
    /// The pattern of `text`, such as `/shop/*/buy` or `*.pdf$`. In robots.txt any text is valid.
    pub fn new(text: &str) -> Self {
        let (body, to_the_end) = match text.strip_suffix('$') {
            Some(body) => (body, true),
            None => (text, false),
        };
        let parts = body.split('*').map(|part| percent_decode_str(part).collect()).collect();
        Pattern { text: text.to_owned(), parts, to_the_end }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its length: of several that match the longest counts (RFC 9309 §2.2.2).
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether a decoded path, with its query, matches. Takes time in the product of both lengths at most.
    pub fn matches(&self, path: &str) -> bool {
        let path = path.as_bytes();
        let (first, rest) = self.parts.split_first().expect("a split has a first part");
        if !path.starts_with(first) {
            return false;
        }
        let mut at = first.len();
        let Some((last, between)) = rest.split_last() else {
            return !self.to_the_end || at == path.len();
        };
        for part in between {
            match find(&path[at..], part) {
                Some(found) => at += found + part.len(),
                None => return false,
            }
        }
        if self.to_the_end {
            path.len() - at >= last.len() && path.ends_with(last)
        } else {
            find(&path[at..], last).is_some()
        }
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_in_rfc_9309() {
        for (pattern, path, expected) in [
            ("/", "/anything", true),
            ("/fish", "/fish.html", true),
            ("/fish", "/Fish", false),
            ("/fish", "/catfish", false),
            ("/fish*", "/fishheads", true),
            ("/fish/", "/fish", false),
            ("/*.php", "/folder/any.php.file", true),
            ("/*.php$", "/folder/any.php", true),
            ("/*.php$", "/folder/any.php?x", false),
            ("/*.php$", "/any.php.php", true),
            ("/fish*.php", "/fish/a.phpx", true),
            ("*.pdf$", "/a/b.pdf", true),
            ("/a*b*c$", "/abc", true),
            ("/a*b*c$", "/acb", false),
            ("/ab*b$", "/ab", false),
            ("/$", "/", true),
            ("/$", "/a", false),
            ("/*?print=", "/a?print=1", true),
            ("/caf%C3%A9", "/café", true),
            ("/café", "/café", true),
            ("", "/", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn pattern_of_the_owner_without_a_match_is_rejected() {
        for text in ["/", "/admin", "*?print=", "*.zip$", "*"] {
            assert_eq!(text.parse::<Pattern>(), Ok(Pattern::new(text)));
        }
        for text in ["admin", "private/", "?print=", "$", "", " /a"] {
            let said = text.parse::<Pattern>().unwrap_err().to_string();
            for way_out in [format!("'/{text}'"), format!("'*{text}'")] {
                assert!(said.contains(&way_out), "{said}");
            }
            assert!(!said.contains('\n'));
        }
    }

    /// The meaning of the pattern, by exhaustive search.
    fn meaning(pattern: &[u8], path: &[u8]) -> bool {
        match pattern {
            [] => true,
            b"$" => path.is_empty(),
            [b'*', rest @ ..] => (0..=path.len()).any(|n| meaning(rest, &path[n..])),
            [one, rest @ ..] => path.first() == Some(one) && meaning(rest, &path[1..]),
        }
    }

    proptest! {
        #[test]
        fn pattern_matches_as_exhaustive_search_does(
            pattern in "[ab*]{0,8}\\$?", path in "[ab]{0,10}",
        ) {
            let expected = meaning(pattern.as_bytes(), path.as_bytes());
            prop_assert_eq!(Pattern::new(&pattern).matches(&path), expected);
        }
    }
}
