//! `logfmt`: pairs of a name and a value, as written by Heroku's router and many Go programs.
//!
//! ```text
//! 2024-07-03T09:46:40.1+00:00 heroku[router]: at=info method=GET path="/a" host=a.example fwd="192.0.2.7" service=18ms status=200 bytes=13
//! time=2024-07-03T09:46:40Z level=info msg="handled request" method=GET path=/a status=200 remote_ip=192.0.2.7 size=13
//! ```
//!
//! All words of a line must be pairs. Otherwise a client could forge another client's request in its user
//! agent.

use std::borrow::Cow;

use super::fields::{Found, Scalar};
use super::{Line, LineError, Part, date, prefix};

/// Prefixes that may precede the pairs.
const MAX_PREFIXES: usize = 3;

pub(super) fn parse(text: &str) -> Result<Line<'_>, LineError> {
    let pairs = pairs(text).ok_or(LineError::Missing(Part::Request))?;
    let mut found = Found::default();
    let mut rest = pairs;
    while !rest.is_empty() {
        let (name, value, behind) = pair(rest).ok_or(LineError::Missing(Part::Request))?;
        rest = behind;
        if !matches!(&*value, "" | "-") {
            take(&mut found, name, value);
        }
    }
    if found.at.is_none() {
        let head = &text[..text.len() - pairs.len()];
        // After `<133>1 ` of syslog another word precedes it.
        let time = head.split_ascii_whitespace().find(|word| date::rfc3339(word).is_some());
        found.at = time.map(|time| Scalar::Text(Cow::Borrowed(time)));
    }
    found.line()
}

/// The value of a name.
pub(super) fn value_of<'a>(text: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let mut rest = pairs(text)?;
    while let Some((other, value, behind)) = pair(rest) {
        if other == name {
            return Some(value);
        }
        rest = behind;
    }
    None
}

/// The pairs of a line after its prefixes.
fn pairs(text: &str) -> Option<&str> {
    let mut pairs = text;
    for _ in 0..MAX_PREFIXES {
        if pair(pairs).is_some() {
            break;
        }
        (_, pairs) = prefix::strip(pairs)?;
    }
    Some(pairs)
}

fn take<'a>(found: &mut Found<'a>, name: &str, value: Cow<'a, str>) {
    match name {
        // Heroku's router appends its peer to `X-Forwarded-For`, the only field with the client.
        "fwd" => found.client = Some(value),
        "service" | "duration" | "elapsed" | "latency" | "took" => found.took = seconds(&value),
        // Such as `at=info`, where others have a time.
        "at" => {}
        _ => found.take_top(name, Scalar::Text(value)),
    }
}

/// `18ms`, `1.5s`, `250µs`, or seconds.
fn seconds(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let scale = match &text[end..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" | "μs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    text[..end].parse::<f64>().ok().map(|number| number * scale)
}

/// The first pair of a text, and the text after it.
fn pair(text: &str) -> Option<(&str, Cow<'_, str>, &str)> {
    let (name, rest) = text.split_once('=')?;
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'@');
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find(' ').unwrap_or(rest.len());
        let is_bare = !rest[..end].contains('"');
        return is_bare.then(|| (name, Cow::Borrowed(&rest[..end]), rest[end..].trim_start()));
    };
    let mut is_escaped = false;
    let end = quoted.find(|character| {
        let is_end = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_end
    })?;
    let (value, behind) = (&quoted[..end], &quoted[end + 1..]);
    let value = match value.contains('\\') {
        true => Cow::Owned(value.replace("\\\"", "\"").replace("\\\\", "\\")),
        false => Cow::Borrowed(value),
    };
    let is_separated = behind.is_empty() || behind.starts_with(' ');
    is_separated.then(|| (name, value, behind.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTER: &str = "2024-07-03T09:46:40.000+00:00 heroku[router]: at=info method=GET path=\"/a?b\" \
                          host=a.example request_id=8601b555 fwd=\"192.0.2.7\" dyno=web.1 connect=1ms \
                          service=18ms status=200 bytes=1713 protocol=https";

    #[test]
    fn lines_of_routers_and_programs_are_parsed() {
        let program = "time=2024-07-03T09:46:40Z level=info msg=\"handled \\\"it\\\"\" method=GET path=/a?b \
                       status=200 remote_ip=192.0.2.7 size=1713 duration=18ms host=a.example user=-";
        for line in [ROUTER.to_owned(), format!("<158>1 {ROUTER}"), program.to_owned()] {
            // A syslog drain has host, process and other columns before the pairs.
            let line = line.replace(
                "heroku[router]:",
                if line.starts_with('<') { "h heroku router - -" } else { "heroku[router]:" },
            );
            let found = parse(&line).unwrap();
            let entry = found.entry;
            assert_eq!((&*found.stated.column, &*entry.target), ("192.0.2.7", "/a?b"), "{line}");
            assert_eq!((&*entry.method, entry.status, entry.bytes.0), ("GET", 200, 1713), "{line}");
            assert_eq!(entry.at.as_nanos(), 1_720_000_000_000_000_000, "{line}");
            assert_eq!(entry.took.map(|took| took.as_millis()), Some(18), "{line}");
            assert_eq!(
                (entry.site.as_deref(), entry.private),
                (Some("a.example"), false),
                "{line}"
            );
        }
    }

    #[test]
    fn line_with_anything_but_pairs_is_rejected() {
        let pairs = "method=GET path=/a status=200 ip=192.0.2.7 ts=1720000000";
        assert!(parse(pairs).is_ok());
        for line in [
            format!("x {pairs}"),
            format!("{pairs} x"),
            format!("\"{pairs}\""),
            format!("192.0.2.9 - - [x] \"GET / HTTP/1.1\" 200 1 \"-\" \"{pairs} a=b\""),
            pairs.replace("status=200", "status=200\"x\""),
            pairs.replace("path=/a", "path=\"/a"),
            pairs.replace("path=/a", "path=\"/a\"b"),
            pairs.replace("ip=192.0.2.7 ", ""),
        ] {
            assert!(parse(&line).is_err(), "{line}");
        }
    }
}
