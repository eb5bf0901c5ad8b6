//! Conditions of requests (RFC 9110 §13), by the tags that replicas hand out: the hash of a body.

use http::header::{self, AsHeaderName, HeaderMap};
use httpdate::HttpDate;
use lull_replication::origin::{Condition, Named};
use lull_replication::types::Digest;

/// The tag of a body.
pub(super) fn tag_of(body: &Digest) -> String {
    format!("\"{body}\"")
}

/// The body of a tag; none if it is not a tag of Lull.
fn body_of(tag: &str) -> Option<Digest> {
    let hex = tag.strip_prefix('"')?.strip_suffix('"')?;
    let body = Digest(*blake3::Hash::from_hex(hex).ok()?.as_bytes());
    (tag_of(&body) == tag).then_some(body)
}

/// How tags are compared (§8.8.3.2): those of Lull are strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// The bodies that the tags of a field name; none if there is no such field.
fn named(headers: &HeaderMap, field: impl AsHeaderName, comparison: Comparison) -> Option<Named> {
    let lines: Vec<_> = headers.get_all(field).iter().collect();
    if lines.is_empty() {
        return None;
    }
    let mut bodies = Vec::new();
    // Values that are not text contain no tag of Lull.
    let lines = lines.iter().filter_map(|line| line.to_str().ok());
    for tag in lines.flat_map(|line| line.split(',')).map(str::trim) {
        let tag = match comparison {
            Comparison::Strong => tag,
            Comparison::Weak => tag.strip_prefix("W/").unwrap_or(tag),
        };
        if tag == "*" {
            return Some(Named::Any);
        }
        bodies.extend(body_of(tag));
    }
    Some(Named::These(bodies))
}

/// `If-Match`, which requires one of these bodies (§13.1.1).
fn wanted(headers: &HeaderMap) -> Option<Condition> {
    named(headers, header::IF_MATCH, Comparison::Strong).map(Condition::Has)
}

/// `If-None-Match`, which requires that none of them is current (§13.1.2).
fn unwanted(headers: &HeaderMap) -> Option<Condition> {
    named(headers, header::IF_NONE_MATCH, Comparison::Weak).map(Condition::HasNot)
}

/// Whether a request has a condition about a version.
pub(super) fn are_any(headers: &HeaderMap) -> bool {
    let fields = [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_UNMODIFIED_SINCE];
    fields.iter().any(|field| headers.contains_key(field))
}

/// The decision about a read of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// It is done.
    Fine,
    /// The condition is for another version.
    Failed,
    /// The client has that version.
    Known,
}

/// Judges a read of an object with this body and date (§13.2.2).
pub(super) fn judge(headers: &HeaderMap, body: &Digest, modified: HttpDate) -> Judged {
    let failed = match wanted(headers) {
        Some(condition) => !condition.holds(Some(body)),
        None => {
            let since = headers.get(header::IF_UNMODIFIED_SINCE);
            // Invalid dates are ignored (§13.1.4).
            let since = since.and_then(|since| since.to_str().ok()?.parse::<HttpDate>().ok());
            since.is_some_and(|since| modified > since)
        }
    };
    match unwanted(headers) {
        _ if failed => Judged::Failed,
        Some(condition) if !condition.holds(Some(body)) => Judged::Known,
        _ => Judged::Fine,
    }
}

/// A write was made under a condition that cannot be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "times of files may go back, so If-Unmodified-Since is not supported: send If-Match with the \
     ETag of a replica"
)]
pub(super) struct ByTime;

/// The conditions of a write.
///
/// # Errors
/// If one of them cannot be judged.
pub(super) fn of_write(headers: &HeaderMap) -> Result<Vec<Condition>, ByTime> {
    let wanted = wanted(headers);
    // Ignored beside If-Match (§13.1.4).
    if wanted.is_none() && headers.contains_key(header::IF_UNMODIFIED_SINCE) {
        return Err(ByTime);
    }
    Ok(wanted.into_iter().chain(unwanted(headers)).collect())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::{HeaderName, HeaderValue};

    use super::*;

    const OWN: Digest = Digest([1; 32]);
    const OTHER: Digest = Digest([0xab; 32]);

    fn fields(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, text) in fields {
            headers.append(name, HeaderValue::from_str(text).expect("a value"));
        }
        headers
    }

    #[test]
    fn entity_tags_match_as_in_the_rfc() {
        let (own, other) = (tag_of(&OWN), tag_of(&OTHER));
        for (text, strong, weak) in [
            ("*".to_owned(), true, true),
            (own.clone(), true, true),
            (format!("W/{own}"), false, true),
            (format!("{other} , {own}"), true, true),
            (format!("W/{other},W/{own}"), false, true),
            (format!("\"a, b\", {own}"), true, true),
            (other.clone(), false, false),
            (own.trim_matches('"').to_owned(), false, false),
            (String::new(), false, false),
            ("\"\"".to_owned(), false, false),
            (format!("{own}{own}"), false, false),
        ] {
            let headers = fields(&[(header::IF_MATCH, &text)]);
            let named = |how| named(&headers, header::IF_MATCH, how).expect("there is one");
            let is = |how| Condition::Has(named(how)).holds(Some(&OWN));
            assert_eq!((is(Comparison::Strong), is(Comparison::Weak)), (strong, weak), "{text}");
        }
        let shouted = fields(&[(header::IF_MATCH, &other.to_uppercase())]);
        assert_eq!(wanted(&shouted), Some(Condition::Has(Named::These(Vec::new()))));
        // Lines of one field are one list.
        let lines = fields(&[(header::IF_MATCH, &other), (header::IF_MATCH, &own)]);
        assert_eq!(wanted(&lines), Some(Condition::Has(Named::These(vec![OTHER, OWN]))));
        let mut bytes = HeaderMap::new();
        bytes.insert(header::IF_MATCH, HeaderValue::from_bytes(b"\xff").expect("a value"));
        assert_eq!(wanted(&bytes), Some(Condition::Has(Named::These(Vec::new()))));
        assert_eq!(wanted(&HeaderMap::new()), None);
    }

    #[test]
    fn read_conditions_are_judged_against_the_version() {
        let (own, other) = (tag_of(&OWN), tag_of(&OTHER));
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let dates = [9, 10, 11].map(|seconds| HttpDate::from(at(seconds)).to_string());
        let [before, then, after] = &dates;
        let (yes, no) = (header::IF_MATCH, header::IF_NONE_MATCH);
        let since = header::IF_UNMODIFIED_SINCE;
        for (given, expected) in [
            (vec![], Judged::Fine),
            (vec![(yes.clone(), &own)], Judged::Fine),
            (vec![(yes.clone(), &other)], Judged::Failed),
            (vec![(no.clone(), &own)], Judged::Known),
            (vec![(no.clone(), &other)], Judged::Fine),
            (vec![(yes.clone(), &own), (no.clone(), &own)], Judged::Known),
            (vec![(yes.clone(), &other), (no.clone(), &own)], Judged::Failed),
            (vec![(since.clone(), before)], Judged::Failed),
            (vec![(since.clone(), then)], Judged::Fine),
            (vec![(since.clone(), after)], Judged::Fine),
            (vec![(since.clone(), &"nonsense".to_owned())], Judged::Fine),
            (vec![(since.clone(), before), (yes, &own)], Judged::Fine),
            (vec![(since, before), (no, &own)], Judged::Failed),
        ] {
            let given: Vec<_> = given.into_iter().map(|(name, text)| (name, &**text)).collect();
            // It was written within a second, and dates have whole seconds.
            let modified = HttpDate::from(at(10) + Duration::from_millis(700));
            assert_eq!(judge(&fields(&given), &OWN, modified), expected, "{given:?}");
        }
    }

    #[test]
    fn write_has_the_conditions_that_can_be_judged_at_once() {
        let own = tag_of(&OWN);
        let (yes, no) = (header::IF_MATCH, header::IF_NONE_MATCH);
        let since = (header::IF_UNMODIFIED_SINCE, "Sat, 29 Oct 1994 19:43:31 GMT");
        let has = || Condition::Has(Named::These(vec![OWN]));
        let has_not = Condition::HasNot(Named::Any);
        for (given, expected) in [
            (vec![], Ok(vec![])),
            (vec![(yes.clone(), &*own)], Ok(vec![has()])),
            (vec![(yes.clone(), &*own), (no.clone(), "*")], Ok(vec![has(), has_not.clone()])),
            (vec![(no.clone(), "*")], Ok(vec![has_not])),
            (vec![since.clone()], Err(ByTime)),
            (vec![since.clone(), (no, "*")], Err(ByTime)),
            (vec![since, (yes, &*own)], Ok(vec![has()])),
        ] {
            assert_eq!(of_write(&fields(&given)), expected, "{given:?}");
        }
    }
}
