//! Which URLs may be prefetched, by the URL alone.

use percent_encoding::percent_decode_str;

use super::actions;
use super::patterns::Pattern;

/// Longer ones are never prefetched; `lull-speculate` does not keep them either.
const MAX_URL_BYTES: usize = 1024;

/// An unambiguous path of the site, with its query if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    path: String,
    query: Option<String>,
}

/// Why a URL is never prefetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPrefetchable {
    /// Not a path of the site.
    #[error("it is not a path of this site")]
    OtherOrigin,
    /// Too long.
    #[error("it is longer than {MAX_URL_BYTES} bytes")]
    TooLong,
    /// Programs read it differently.
    #[error("it is ambiguous: {0}")]
    Ambiguous(Ambiguous),
    /// Reserved for Lull, or for machines.
    #[error("`{0}` has no pages")]
    Reserved(&'static str),
    /// With a query.
    #[error("it has a query, and the owner has not allowed that")]
    Query,
    /// Something may happen.
    #[error("it looks like an action: `{0}`")]
    Action(String),
    /// The owner denied it.
    #[error("the owner denies `{0}`")]
    Denied(String),
}

/// Why two programs may parse a URL differently. Each reason has opened a hole in some proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ambiguous {
    /// A character that URLs may not contain.
    #[error("a control character, a space, or one outside of ASCII")]
    Character,
    /// A percent sign without two digits.
    #[error("a percent sign without two hexadecimal digits")]
    Escape,
    /// A second decoding would change it.
    #[error("it is encoded twice")]
    Twice,
    /// Not text once decoded.
    #[error("no UTF-8 when decoded")]
    Utf8,
    /// An encoded `/` or `\`.
    #[error("an encoded slash, or a backslash")]
    Slash,
    /// `.` or `..`.
    #[error("`.` or `..`")]
    Dots,
    /// `//`.
    #[error("an empty segment")]
    Empty,
    /// `;`, which may precede a session.
    #[error("a path parameter (`;`)")]
    Parameter,
    /// `#`.
    #[error("a fragment (`#`)")]
    Fragment,
}

/// Folders without pages: Lull's own, and RFC 8615's.
const RESERVED: &[&str] = &["/.lull", "/.well-known"];

impl Target {
    /// Reads a path with its query, as in a request line.
    ///
    /// # Errors
    /// If the text is malformed, or ambiguous.
    pub fn parse(text: &str) -> Result<Self, NotPrefetchable> {
        // For a browser `//host/` would be another origin.
        if !text.starts_with('/') || text.starts_with("//") {
            return Err(NotPrefetchable::OtherOrigin);
        }
        if text.len() > MAX_URL_BYTES {
            return Err(NotPrefetchable::TooLong);
        }
        if text.contains('#') {
            return Err(NotPrefetchable::Ambiguous(Ambiguous::Fragment));
        }
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        let path = decode(path).map_err(NotPrefetchable::Ambiguous)?;
        let query = query.map(decode).transpose().map_err(NotPrefetchable::Ambiguous)?;
        segments(&path).map_err(NotPrefetchable::Ambiguous)?;
        for reserved in RESERVED {
            if path
                .strip_prefix(reserved)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            {
                return Err(NotPrefetchable::Reserved(reserved));
            }
        }
        Ok(Target { path, query })
    }

    /// The path, decoded.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The query, decoded.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Both, for matches with patterns.
    pub(super) fn whole(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

/// Decodes once, and rejects text that another program would decode differently.
fn decode(text: &str) -> Result<String, Ambiguous> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Ambiguous::Character);
    }
    if text.contains('\\') {
        return Err(Ambiguous::Slash);
    }
    if has_lone_percent(text) {
        return Err(Ambiguous::Escape);
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| Ambiguous::Utf8)?;
    if decoded.chars().any(char::is_control) {
        return Err(Ambiguous::Character);
    }
    // A literal percent sign, as in `100%25`, is fine.
    if percent_decode_str(&decoded).any_escape() {
        return Err(Ambiguous::Twice);
    }
    // Decoding must not produce a slash.
    let slashes = |text: &str| text.matches(['/', '\\', '?', '#']).count();
    if slashes(&decoded) != slashes(text) {
        return Err(Ambiguous::Slash);
    }
    Ok(decoded.into_owned())
}

trait AnyEscape {
    /// Whether decoding changes anything.
    fn any_escape(self) -> bool;
}

impl AnyEscape for percent_encoding::PercentDecode<'_> {
    fn any_escape(self) -> bool {
        matches!(std::borrow::Cow::from(self), std::borrow::Cow::Owned(_))
    }
}

fn has_lone_percent(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().any(|(at, &byte)| {
        let digit = |ahead: usize| bytes.get(at + ahead).is_some_and(u8::is_ascii_hexdigit);
        byte == b'%' && !(digit(1) && digit(2))
    })
}

fn segments(path: &str) -> Result<(), Ambiguous> {
    if path.contains(';') {
        return Err(Ambiguous::Parameter);
    }
    let mut segments = path[1..].split('/').peekable();
    while let Some(segment) = segments.next() {
        // Some file systems remove spaces and dots at the end.
        match segment.trim_end_matches([' ', '.']) {
            "" if segment.is_empty() && segments.peek().is_none() => {}
            "" if segment.is_empty() => return Err(Ambiguous::Empty),
            "" => return Err(Ambiguous::Dots),
            _ => {}
        }
    }
    Ok(())
}

/// The rules of a site's owner for its URLs.
#[derive(Clone, Debug, Default)]
pub struct OwnersRules {
    /// Never prefetched.
    pub deny: Vec<Pattern>,
    /// Prefetched although it looks like an action.
    pub allow: Vec<Pattern>,
    /// Prefetched with a query.
    pub allow_query: Vec<Pattern>,
}

impl OwnersRules {
    /// Whether the query of a URL is part of its name: the owner allows prefetching with it.
    pub fn is_named_by_query(&self, url: &str) -> bool {
        url.contains('?')
            && Target::parse(url).is_ok_and(|target| {
                let whole = target.whole();
                self.allow_query.iter().any(|pattern| pattern.matches(&whole))
            })
    }

    /// The name of a URL: with its query if that is part of its name, otherwise without.
    pub fn name_of<'a>(&self, url: &'a str) -> &'a str {
        match url.split_once('?') {
            Some((path, _)) if !self.is_named_by_query(url) => path,
            _ => url,
        }
    }

    /// Whether a URL may be prefetched, by these rules and by its appearance.
    ///
    /// # Errors
    /// If the URL must not be prefetched.
    pub fn check(&self, target: &Target) -> Result<(), NotPrefetchable> {
        let whole = target.whole();
        let any = |patterns: &[Pattern]| {
            patterns.iter().find(|pattern| pattern.matches(&whole)).map(|one| one.text().to_owned())
        };
        if let Some(denied) = any(&self.deny) {
            return Err(NotPrefetchable::Denied(denied));
        }
        if target.query.is_some() && any(&self.allow_query).is_none() {
            return Err(NotPrefetchable::Query);
        }
        if any(&self.allow).is_some() {
            return Ok(());
        }
        match actions::action(&target.path, target.query()) {
            Some(action) => Err(NotPrefetchable::Action(action)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ambiguous_spellings_are_rejected() {
        use Ambiguous::{Character, Dots, Empty, Escape, Fragment, Parameter, Slash, Twice, Utf8};
        for (text, expected) in [
            ("/a/../logout", Dots),
            ("/a/./b", Dots),
            ("/..", Dots),
            ("/%2e%2e/etc", Dots),
            ("/a/%2E", Dots),
            ("/a/.../b", Dots),
            ("/a/..%20/b", Dots),
            ("/a%2flogout", Slash),
            ("/a%2Flogout", Slash),
            ("/a%5clogout", Slash),
            ("/a\\logout", Slash),
            ("/a%3fb", Slash),
            ("/a%23b", Slash),
            ("/a%00", Character),
            ("/a%0d%0aSet-Cookie:x", Character),
            ("/a\0", Character),
            ("/a b", Character),
            ("/caf\u{e9}", Character),
            ("/a%7f", Character),
            ("/%", Escape),
            ("/%2", Escape),
            ("/%zz", Escape),
            ("/%252e%252e/x", Twice),
            ("/%256cogout", Twice),
            ("/%c0%ae%c0%ae/", Utf8),
            ("/%ff", Utf8),
            ("/a//b", Empty),
            ("/a//", Empty),
            ("/a;jsessionid=1", Parameter),
            ("/a%3bb", Parameter),
            ("/a#b", Fragment),
        ] {
            assert_eq!(Target::parse(text), Err(NotPrefetchable::Ambiguous(expected)), "{text}");
        }
    }

    #[test]
    fn other_origins_are_never_fetched() {
        for text in [
            "//other.example/",
            "https://other.example/",
            "http://this.example/",
            "javascript:x",
            "data:,x",
            "index.html",
            "",
            "?x",
            "\\\\other.example/",
            "*",
        ] {
            assert_eq!(Target::parse(text), Err(NotPrefetchable::OtherOrigin), "{text}");
        }
        assert!(matches!(Target::parse("/\\other.example/"), Err(NotPrefetchable::Ambiguous(_))));
        assert_eq!(Target::parse(&format!("/{}", "a".repeat(1024))), Err(NotPrefetchable::TooLong));
    }

    #[test]
    fn plain_paths_are_read() {
        for (text, path, query) in [
            ("/", "/", None),
            ("/a/b.html", "/a/b.html", None),
            ("/a/", "/a/", None),
            ("/caf%C3%A9", "/café", None),
            ("/100%25", "/100%", None),
            ("/a%20b", "/a b", None),
            ("/..a/b..c", "/..a/b..c", None),
            ("/.hidden", "/.hidden", None),
            ("/.lulls", "/.lulls", None),
            ("/a?x=1&y=%20", "/a", Some("x=1&y= ")),
            ("/a?", "/a", Some("")),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((target.path(), target.query()), (path, query), "{text}");
        }
    }

    #[test]
    fn reserved_paths_are_not_prefetched() {
        for text in ["/.lull/hints", "/.lull", "/%2elull/beacon", "/.well-known/security.txt"] {
            assert!(matches!(Target::parse(text), Err(NotPrefetchable::Reserved(_))), "{text}");
        }
    }

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::new(text)).collect()
    }

    #[test]
    fn owner_denies_and_allows_paths() {
        let rules = OwnersRules {
            deny: patterns(&["/private/", "*.zip$"]),
            allow: patterns(&["/blog/"]),
            allow_query: patterns(&["/list?page="]),
        };
        let denied = |pattern: &str| Err(NotPrefetchable::Denied(pattern.into()));
        for (text, expected) in [
            ("/a", Ok(())),
            ("/private/a", denied("/private/")),
            ("/%70rivate/a", denied("/private/")),
            ("/a.zip", denied("*.zip$")),
            ("/a?x", Err(NotPrefetchable::Query)),
            ("/a?", Err(NotPrefetchable::Query)),
            ("/list?page=2", Ok(())),
            ("/list?sort=x&page=2", Err(NotPrefetchable::Query)),
            ("/list?page=2&do=delete", Err(NotPrefetchable::Action("delete".into()))),
            ("/logout", Err(NotPrefetchable::Action("logout".into()))),
            ("/l%6fgout", Err(NotPrefetchable::Action("logout".into()))),
            ("/blog/how-to-delete-a-file", Ok(())),
        ] {
            assert_eq!(rules.check(&Target::parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn query_allowed_by_the_owner_is_part_of_the_name() {
        let rules =
            OwnersRules { allow_query: patterns(&["/list?page="]), ..OwnersRules::default() };
        for (text, expected) in [
            ("/list?page=2", true),
            ("/l%69st?page=2", true),
            ("/list", false),
            ("/list?sort=x&page=2", false),
            ("/other?page=2", false),
            ("/list?page=%zz", false),
        ] {
            assert_eq!(rules.is_named_by_query(text), expected, "{text}");
            let name = if expected { text } else { text.split('?').next().unwrap() };
            assert_eq!(rules.name_of(text), name);
        }
    }

    proptest! {
        /// A server that decodes again, resolves dots or merges slashes reads the same.
        #[test]
        fn accepted_target_has_one_reading(text in "/[a./%25eEfF;\\\\#?~-]{0,20}") {
            if let Ok(target) = Target::parse(&text) {
                let again = percent_decode_str(target.path()).decode_utf8().unwrap();
                prop_assert_eq!(&again, target.path());
                prop_assert!(!target.path().contains("//"));
                prop_assert!(target.path().split('/').all(|part| part != "." && part != ".."));
                prop_assert_eq!(
                    target.path().matches('/').count(),
                    text.split('?').next().unwrap().matches('/').count()
                );
            }
        }

        #[test]
        fn any_text_parses_or_is_rejected(text in "\\PC*") {
            let _ = Target::parse(&text);
        }
    }
}
