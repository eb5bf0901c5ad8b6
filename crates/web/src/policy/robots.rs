//! The rules of robots.txt (RFC 9309). URLs disallowed for robots are not prefetched either.
//!
//! Only a small part is needed: the group of the name `lull` if there is one, otherwise that of `*`; the
//! longest matching rule; `allow` if two are equally long.

use super::patterns::Pattern;

/// The name for groups in robots.txt.
const NAME: &str = "lull";
/// The maximum number of bytes read of a file: at least 500 KiB by RFC 9309 §2.5.
const MAX_FILE_BYTES: usize = 500 * 1024;
/// Rules kept per group.
const MAX_RULES: usize = 4096;

/// The rules of a site's robots.txt.
#[derive(Clone, Debug, Default)]
pub struct Robots {
    said: GroupRules,
}

#[derive(Clone, Debug, Default)]
enum GroupRules {
    /// It was not fetched so far, or the server could not answer: nothing may be fetched (RFC 9309 §2.3.1.4).
    #[default]
    Unknown,
    /// More than is read or kept: the rest may forbid anything.
    TooMuch,
    Rules(Vec<(bool, Pattern)>),
}

/// Why robots.txt forbids a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// It is not known.
    #[error("robots.txt is not known so far, or could not be read")]
    Unknown,
    /// It is too long.
    #[error(
        "robots.txt is longer than {MAX_FILE_BYTES} bytes, or has more than {MAX_RULES} rules for Lull"
    )]
    TooMuch,
    /// One of its rules.
    #[error("robots.txt disallows `{0}`")]
    Rule(String),
}

impl Robots {
    /// The rules by the answer to `GET /robots.txt`, its status and body.
    pub fn fetched(status: u16, body: &[u8]) -> Self {
        match status {
            200..=299 => {
                Robots { said: parse(body).map_or(GroupRules::TooMuch, GroupRules::Rules) }
            }
            // These do not describe the file: the request is not understood, not for a known host, or over a
            // limit.
            400 | 421 | 429 => Robots::default(),
            // RFC 9309 §2.3.1.3: there is no robots.txt, so nothing is forbidden.
            400..=499 => Robots { said: GroupRules::Rules(Vec::new()) },
            _ => Robots::default(),
        }
    }

    /// Whether the rules are known, even if there are none.
    pub fn is_known(&self) -> bool {
        !matches!(self.said, GroupRules::Unknown)
    }

    /// Whether a decoded path, with its query, may be fetched.
    ///
    /// # Errors
    /// If robots.txt forbids it, or is not known.
    pub fn check(&self, path: &str) -> Result<(), Forbidden> {
        let rules = match &self.said {
            GroupRules::Unknown => return Err(Forbidden::Unknown),
            GroupRules::TooMuch => return Err(Forbidden::TooMuch),
            GroupRules::Rules(rules) => rules,
        };
        let longest = rules
            .iter()
            .filter(|(_, pattern)| pattern.matches(path))
            .max_by_key(|(allow, pattern)| (pattern.len(), *allow));
        match longest {
            Some((false, pattern)) => Err(Forbidden::Rule(pattern.text().to_owned())),
            _ => Ok(()),
        }
    }
}

/// The rules for Lull, unless there are too many.
fn parse(body: &[u8]) -> Option<Vec<(bool, Pattern)>> {
    if body.len() > MAX_FILE_BYTES {
        return None;
    }
    let body = String::from_utf8_lossy(body);
    let body = body.strip_prefix('\u{feff}').unwrap_or(&body);
    let (mut ours, mut everybodys) = (Vec::new(), Vec::new());
    let (mut named, mut for_us, mut for_all, mut in_rules) = (false, false, false, false);
    for line in body.split(['\n', '\r']) {
        let line = line.split('#').next().unwrap_or("");
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if key.eq_ignore_ascii_case("user-agent") {
            if in_rules {
                (for_us, for_all, in_rules) = (false, false, false);
            }
            for_us |= value.eq_ignore_ascii_case(NAME);
            for_all |= value == "*";
            named |= for_us;
        } else if key.eq_ignore_ascii_case("allow") || key.eq_ignore_ascii_case("disallow") {
            in_rules = true;
            // An empty rule has no effect.
            if value.is_empty() {
                continue;
            }
            let rule = (key.eq_ignore_ascii_case("allow"), Pattern::new(value));
            for (is_for, group) in [(for_us, &mut ours), (for_all, &mut everybodys)] {
                // One more shows that there are too many.
                if is_for && group.len() <= MAX_RULES {
                    group.push(rule.clone());
                }
            }
        }
    }
    let group = if named { ours } else { everybodys };
    (group.len() <= MAX_RULES).then_some(group)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn group_for_lull_is_found() {
        let simple = "User-agent: *\nDisallow: /private\nAllow: /private/open\n";
        let ours = "User-agent: *\nDisallow: /\n\nuser-agent: Lull\nDisallow: /slow # why\n";
        let shared = "User-agent: other\nUser-agent: lull\nDisallow: /a\nUser-agent: *\nAllow: /\n";
        let nothing = "User-agent: lull\nDisallow:\n\nUser-agent: *\nDisallow: /\n";
        let later = "User-agent: lull\nDisallow: /a\nUser-agent: x\nDisallow: /b\nUser-agent: LULL\nDisallow: /c\n";
        for (file, path, allowed) in [
            (simple, "/", true),
            (simple, "/private/x", false),
            (simple, "/private/open/x", true),
            (ours, "/anything", true),
            (ours, "/slow/x", false),
            (shared, "/a", false),
            (shared, "/b", true),
            (nothing, "/a", true),
            (later, "/a", false),
            (later, "/b", true),
            (later, "/c", false),
            ("User-agent: *\r\nDisallow: /*.pdf$\r\n", "/a.pdf", false),
            ("User-agent: *\rDisallow: /x\r", "/x", false),
            ("\u{feff}User-agent: *\nDisallow: /x", "/x", false),
            ("User-agent: *\nDisallow: /p\nAllow: /p", "/p", true),
            ("User-agent: lullaby\nDisallow: /", "/", true),
            ("no robots here", "/", true),
            ("", "/", true),
        ] {
            let robots = Robots::fetched(200, file.as_bytes());
            assert_eq!(robots.check(path).is_ok(), allowed, "{file} {path}");
        }
    }

    #[test]
    fn missing_robots_txt_allows_all_and_failed_fetch_forbids_all() {
        for (status, allowed) in [
            (404, true),
            (403, true),
            (410, true),
            (400, false),
            (421, false),
            (429, false),
            (500, false),
            (503, false),
            (302, false),
        ] {
            let robots = Robots::fetched(status, b"User-agent: *\nDisallow: /\n");
            assert_eq!(robots.check("/").is_ok(), allowed, "{status}");
            assert_eq!(robots.is_known(), allowed, "{status}");
        }
        assert_eq!(Robots::default().check("/"), Err(Forbidden::Unknown));
    }

    #[test]
    fn oversized_robots_txt_forbids_all() {
        let group = |name: &str, rules: usize| {
            format!("User-agent: {name}\n{}\n", "Disallow: /a\n".repeat(rules))
        };
        let ours = "User-agent: lull\nDisallow: /b\n";
        let long = format!("#{}\n{ours}", "x".repeat(MAX_FILE_BYTES));
        let by_our_rule = || Err(Forbidden::Rule("/b".to_owned()));
        let too_much = || Err(Forbidden::TooMuch);
        for (file, b, c) in [
            (group("*", MAX_RULES), Ok(()), Ok(())),
            (group("*", MAX_RULES + 1), too_much(), too_much()),
            // Each group is counted separately, and only the one that applies.
            (group("*", MAX_RULES) + ours, by_our_rule(), Ok(())),
            (group("*", MAX_RULES + 1) + ours, by_our_rule(), Ok(())),
            (group("other", MAX_RULES + 1) + ours, by_our_rule(), Ok(())),
            (group("lull", MAX_RULES) + ours, too_much(), too_much()),
            (long, too_much(), too_much()),
        ] {
            let robots = Robots::fetched(200, file.as_bytes());
            assert_eq!((robots.check("/b"), robots.check("/c")), (b, c), "{}", file.len());
            assert!(robots.is_known());
        }
    }

    proptest! {
        #[test]
        fn any_robots_txt_parses_without_panic(body: Vec<u8>, path in "/[a-z*$%]{0,9}") {
            let _ = Robots::fetched(200, &body).check(&path);
        }
    }
}
