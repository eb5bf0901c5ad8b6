//! ETags that the proxy gives to copies, by which a browser asks whether it may use one.
//!
//! A copy varies on cookies. If a navigation has the cookies for which the browser stored the copy, it
//! is shown without a request. Otherwise Chromium asks with `If-None-Match`, and the proxy sees by the
//! cookies of that very request whether its sender is anonymous. The tag has the copy's name
//! ([`super::copies`]), so nothing is stored for it here, and no process knows the tags of another one.
//!
//! The ETag of the origin stays within the tag of a part, such as a style sheet, so that it can still be
//! revalidated there. A page loses it: an origin may give the same ETag to the anonymous page and to that of
//! a signed-in user.

use http::HeaderMap;
use http::header::{HeaderValue, IF_NONE_MATCH};

use super::fields;

const OWN_PREFIX: &str = "lull-";
/// The number of our tags that are parsed: a browser has no more copies of one URL.
const MAX_TAGS: usize = 4;

/// A tag of Lull in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTag {
    /// As sent by the browser.
    pub(super) whole: String,
    /// The name of the copy, if it is one.
    pub(super) name: String,
}

/// The tag of the copy with that name, including the origin's own ETag if there is one.
pub(super) fn of_copy(name: &str, origins: Option<&str>) -> String {
    match origins.and_then(parts) {
        Some((weak, opaque)) => format!("{weak}\"{OWN_PREFIX}{name}-{opaque}\""),
        // Weak: with a strong one a browser would keep a truncated response, and ask for the rest.
        None => format!("W/\"{OWN_PREFIX}{name}\""),
    }
}

/// `W/` or nothing, and the text between the quotation marks. `None` if it is not a tag, or has a backslash,
/// which programs parse differently.
fn parts(tag: &str) -> Option<(&str, &str)> {
    let (weak, quoted) = if tag.starts_with("W/") { tag.split_at(2) } else { ("", tag) };
    let opaque = quoted.strip_prefix('"')?.strip_suffix('"')?;
    (!opaque.contains(['"', '\\'])).then_some((weak, opaque))
}

/// Removes Lull's tags from `If-None-Match`, and restores the origin's own tags.
pub fn take_tags(headers: &mut HeaderMap) -> Vec<CopyTag> {
    let Some(tags) = fields::list(headers, IF_NONE_MATCH) else { return Vec::new() };
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for tag in tags {
        let Some((weak, rest)) =
            parts(tag).and_then(|(weak, opaque)| Some((weak, opaque.strip_prefix(OWN_PREFIX)?)))
        else {
            others.push(tag.to_owned());
            continue;
        };
        // Three numbers are the name, and the rest is the origin's tag.
        let end = rest.match_indices('-').nth(2).map_or(rest.len(), |(end, _)| end);
        if let Some(opaque) = rest[end..].strip_prefix('-') {
            others.push(format!("{weak}\"{opaque}\""));
        }
        ours.push(CopyTag { whole: tag.to_owned(), name: rest[..end].to_owned() });
    }
    if !ours.is_empty() {
        headers.remove(IF_NONE_MATCH);
        if let Ok(others) = HeaderValue::try_from(others.join(", "))
            && !others.is_empty()
        {
            headers.insert(IF_NONE_MATCH, others);
        }
    }
    ours.truncate(MAX_TAGS);
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &'static str) -> (Vec<String>, Option<String>) {
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static(line));
        let names = take_tags(&mut headers).into_iter().map(|tag| tag.name).collect();
        let left = headers.get(IF_NONE_MATCH).map(|left| left.to_str().unwrap().to_owned());
        (names, left)
    }

    #[test]
    fn origin_sees_its_own_tags_only() {
        for (line, names, left) in [
            ("\"lull-1-2-3\"", &["1-2-3"][..], None),
            ("W/\"lull-1-2-3\"", &["1-2-3"], None),
            ("\"lull-1-2-3-abc-d\"", &["1-2-3"], Some("\"abc-d\"")),
            ("W/\"lull-1-2-3-\"", &["1-2-3"], Some("W/\"\"")),
            ("\"x, y\", W/\"lull-1-2-3\", \"z\"", &["1-2-3"], Some("\"x, y\", \"z\"")),
            ("\"lull-\"", &[""], None),
            ("\"lullaby\"", &[], Some("\"lullaby\"")),
            ("*", &[], Some("*")),
        ] {
            let (found, still) = taken(line);
            assert_eq!(
                (found, still.as_deref()),
                (names.iter().map(|s| (*s).to_owned()).collect(), left),
                "{line}"
            );
        }
    }

    #[test]
    fn origin_tag_survives_within_the_copy_tag() {
        for (origins, expected) in [
            (None, "W/\"lull-1-2-3\""),
            (Some("\"a\""), "\"lull-1-2-3-a\""),
            (Some("W/\"a\""), "W/\"lull-1-2-3-a\""),
            (Some("a"), "W/\"lull-1-2-3\""),
            (Some("\"a\\\""), "W/\"lull-1-2-3\""),
        ] {
            assert_eq!(of_copy("1-2-3", origins), expected);
        }
    }
}
