//! The names that a replica subscribes to: their bodies are pushed to it.
//!
//! A pattern is a path in which `*` stands for any bytes of a name, and the name `**` for any number of names. All
//! other bytes stand for themselves. Nothing else is supported: an origin matches the patterns of a replica against all
//! of its names, so their cost must be bounded.

use std::sync::Arc;

use thiserror::Error;

use crate::path::{Escaped, Path};

/// Patterns of a replica, at most.
pub const MAX_PATTERNS: usize = 64;
/// Bytes of a pattern, at most: as many as a path has.
pub const MAX_PATTERN_BYTES: usize = 4_095;

/// A name that no path has.
const NOTHING: &[u8] = b".";

/// A pattern of names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Arc<[u8]>);

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// It is empty.
    #[error("the pattern is empty: write `**` for all files")]
    Empty,
    /// A name in it is empty.
    #[error(
        "`{0}` is not a pattern of names: write one slash between names, none at the beginning or the end, such as \
         `docs/**`"
    )]
    Slash(String),
    /// It is longer than any path.
    #[error("the pattern has over {MAX_PATTERN_BYTES} bytes: shorten it")]
    Long,
    /// There are too many.
    #[error("there are over {MAX_PATTERNS} patterns: combine some, such as `docs/**`")]
    Many,
}

impl Pattern {
    /// The pattern of this text.
    ///
    /// # Errors
    /// If it can't match any path.
    pub fn new(text: &[u8]) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > MAX_PATTERN_BYTES {
            return Err(PatternError::Long);
        }
        if text.split(|byte| *byte == b'/').any(<[u8]>::is_empty) {
            return Err(PatternError::Slash(Escaped(text).to_string()));
        }
        Ok(Pattern(text.into()))
    }

    /// Its text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it matches a path.
    pub fn matches(&self, path: &Path) -> bool {
        let is_any = |name: &&[u8]| *name == b"**";
        let matches = |pattern: &&[u8], name: &&[u8]| {
            is_match(pattern, name, |byte| *byte == b'*', |byte, other| byte == other)
        };
        is_match(&names(&self.0), &names(path.as_bytes()), is_any, matches)
    }
}

fn names(text: &[u8]) -> Vec<&[u8]> {
    text.split(|byte| *byte == b'/').collect()
}

impl core::fmt::Display for Pattern {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        Escaped(&self.0).fmt(f)
    }
}

/// Whether a pattern matches items, where `is_any` says which of its parts match any number of these. Takes at most as
/// many steps as the product of both lengths.
fn is_match<P, T>(
    pattern: &[P],
    items: &[T],
    is_any: impl Fn(&P) -> bool,
    matches: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut part, mut item) = (0, 0);
    // The rest behind the last part that matches any number, and how many items that takes at least.
    let mut last = None;
    while item < items.len() {
        match pattern.get(part) {
            Some(any) if is_any(any) => {
                part += 1;
                last = Some((part, item));
            }
            Some(one) if matches(one, &items[item]) => (part, item) = (part + 1, item + 1),
            _ => {
                let Some((after, taken)) = last else { return false };
                (part, item) = (after, taken + 1);
                last = Some((after, item));
            }
        }
    }
    pattern[part..].iter().all(is_any)
}

/// The names that a replica takes: all, or those that match one of its patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Subscription(Arc<[Pattern]>);

impl Subscription {
    /// The names that match one of these; all if there are none.
    ///
    /// # Errors
    /// If there are too many.
    pub fn new(patterns: Vec<Pattern>) -> Result<Self, PatternError> {
        if patterns.len() > MAX_PATTERNS {
            return Err(PatternError::Many);
        }
        Ok(Subscription(patterns.into()))
    }

    /// No names at all: a pattern that no path can match.
    pub fn nothing() -> Self {
        Subscription(Arc::new([Pattern(Arc::from(NOTHING))]))
    }

    /// Whether it is no names at all.
    pub fn is_nothing(&self) -> bool {
        matches!(&*self.0, [only] if *only.0 == *NOTHING)
    }

    /// Whether it is all names.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns; none if it is all names.
    pub fn patterns(&self) -> &[Pattern] {
        &self.0
    }

    /// Whether a name belongs to it.
    pub fn has(&self, path: &Path) -> bool {
        self.is_all() || self.0.iter().any(|pattern| pattern.matches(path))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text.as_bytes()).expect("a pattern")
    }

    #[test]
    fn pattern_matches_names_between_slashes() {
        for (text, matching, others) in [
            ("docs/**", "docs docs/a docs/a/b", "a/docs docsx/a"),
            ("docs/*", "docs/a docs/.b", "docs docs/a/b"),
            ("*.html", "a.html .html", "a/b.html a.htm"),
            ("**/*.html", "a.html a/b.html a/b/c.html", "a.html/b"),
            ("a/**/z", "a/z a/b/z a/b/c/z", "a/b z/a"),
            ("**", "a a/b", ""),
            ("a*b*c", "abc axbxc abbcc", "abcd a/b/c"),
            ("a?[x]", "a?[x]", "abx"),
        ] {
            for (names, expected) in [(matching, true), (others, false)] {
                for name in names.split_whitespace() {
                    let path = Path::new(name).expect("a path");
                    assert_eq!(pattern(text).matches(&path), expected, "{text}: {name}");
                }
            }
        }
    }

    #[test]
    fn text_that_matches_no_path_is_no_pattern() {
        for text in ["", "/docs", "docs/", "a//b"] {
            assert!(Pattern::new(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(Pattern::new(&[b'a'; 4_096]), Err(PatternError::Long));
        let many = vec![pattern("a"); MAX_PATTERNS + 1];
        assert_eq!(Subscription::new(many), Err(PatternError::Many));
    }

    #[test]
    fn subscription_without_patterns_has_all_names() {
        let path = |name| Path::new(name).expect("a path");
        assert!(Subscription::default().has(&path("a")));
        let some = Subscription::new(vec![pattern("a"), pattern("b/**")]).expect("two patterns");
        assert!(some.has(&path("a")) && some.has(&path("b/c")) && !some.has(&path("c")));
    }

    #[test]
    fn subscription_to_nothing_has_no_names() {
        let nothing = Subscription::nothing();
        assert!(nothing.is_nothing() && !nothing.is_all());
        for name in ["a", ".a", "a/b", "..."] {
            assert!(!nothing.has(&Path::new(name).expect("a path")), "{name}");
        }
        assert_eq!(Subscription::new(nothing.patterns().to_vec()), Ok(nothing));
        assert!(!Subscription::default().is_nothing());
    }

    /// The definition, which may take exponential time.
    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|at| by_definition(rest, &text[at..])),
            Some((byte, rest)) => text.first() == Some(byte) && by_definition(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn name_matches_as_by_definition(pattern in "[ab*]{1,8}", text in "[ab]{1,10}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let found = is_match(pattern, text, |byte| *byte == b'*', |byte, other| byte == other);
            prop_assert_eq!(found, by_definition(pattern, text));
        }
    }
}
