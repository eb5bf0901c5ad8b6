//! Envoy's default text format, and Istio's, which has more columns.
//!
//! ```text
//! [2024-07-03T09:46:40.310Z] "GET /a HTTP/2" 200 - 0 1713 26 24 "192.0.2.7" "Mozilla/5.0" "cc21d9b0-cf5c" "a.example" "10.0.2.1:80"
//! [2024-07-03T09:46:40.409Z] "GET /a HTTP/1.1" 200 - via_upstream - "-" 0 1713 3 1 "-" "Mozilla/5.0" "84961386" "a:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 192.0.2.7:37652 - default
//! ```
//!
//! The first has only `X-Forwarded-For` for the client; Istio's has the address of the peer as well.

use std::borrow::Cow;

use core::time::Duration;

use lull_cc::Bytes;

use super::client::Stated;
use super::{Entry, Line, LineError, Part, date, request_line};

/// Number of words that are read, at most.
const MAX_WORDS: usize = 40;
/// The place of the peer's address after that of the upstream, in Istio's format.
const PEER: usize = 4;

/// A word, and whether it was in quotation marks.
type Word<'a> = (&'a str, bool);

pub(super) fn parse(text: &str) -> Result<Line<'_>, LineError> {
    let missing = |part| move || LineError::Missing(part);
    let rest = text.strip_prefix('[').ok_or_else(missing(Part::Date))?;
    let (time, rest) = rest.split_once("] ").ok_or_else(missing(Part::Date))?;
    let at = date::rfc3339(time).ok_or(LineError::Invalid(Part::Date))?;
    let words = words(rest).ok_or_else(missing(Part::Request))?;
    let (request, status) = match words[..] {
        [(request, true), (status, false), ..] => (request, status),
        _ => return Err(LineError::Missing(Part::Request)),
    };
    let status = status.parse().map_err(|_| LineError::Invalid(Part::Status))?;
    // Bytes received, bytes sent, duration, the upstream's time; then five texts.
    let is_number = |word: &Word<'_>| !word.1 && word.0.bytes().all(|b| b.is_ascii_digit());
    // The first four of their kind are the server's. Later ones may be the client's, in its user agent.
    let begin = words.windows(4).position(|part| {
        part[..3].iter().all(is_number) && (is_number(&part[3]) || part[3] == ("-", false))
    });
    let columns = &words[begin.ok_or_else(missing(Part::Client))?..];
    if columns.len() < 9 || columns[4..9].iter().any(|(_, is_quoted)| !is_quoted) {
        return Err(LineError::Missing(Part::Client));
    }
    let (forwarded, agent, authority) = (columns[4].0, columns[5].0, columns[7].0);
    let (method, target) = request_line(request);
    let bytes = columns[1].0.parse().map_err(|_| LineError::Invalid(Part::Length))?;
    let entry = Entry {
        status,
        bytes: Bytes(bytes),
        method: Cow::Borrowed(method),
        site: Some(authority).filter(|text| *text != "-").map(Cow::Borrowed),
        agent: Some(Cow::Borrowed(if agent == "-" { "" } else { agent })),
        took: columns[2].0.parse().ok().map(Duration::from_millis),
        ..Entry::page(at, "", target)
    };
    let peer = columns.get(8 + PEER).filter(|word| !word.1).map(|word| word.0);
    let stated = match (peer, forwarded) {
        (Some(peer), _) => Stated {
            column: Cow::Borrowed(peer),
            forwarded: Some(Cow::Borrowed(forwarded)),
            named: None,
        },
        (None, "-") => return Err(LineError::Missing(Part::Client)),
        // The only address of the line.
        (None, list) => Stated {
            column: Cow::Borrowed(list),
            forwarded: Some(Cow::Borrowed(list)),
            named: None,
        },
    };
    Ok(Line { entry, stated })
}

/// The words of a line; none if one does not end.
fn words(text: &str) -> Option<Vec<Word<'_>>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() && words.len() < MAX_WORDS {
        let (word, is_quoted, behind) = match rest.strip_prefix('"') {
            Some(quoted) => {
                // Envoy escapes nothing: a text ends before a blank, or at the end.
                let end = quoted
                    .match_indices('"')
                    .map(|(at, _)| at)
                    .find(|at| matches!(quoted.as_bytes().get(at + 1), None | Some(b' ')))?;
                (&quoted[..end], true, &quoted[end + 1..])
            }
            None => {
                let end = rest.find(' ').unwrap_or(rest.len());
                (&rest[..end], false, &rest[end..])
            }
        };
        words.push((word, is_quoted));
        rest = behind.trim_start();
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: &str = "[2024-07-03T09:46:40.000Z] \"GET /a HTTP/2\" 200 - 0 1713 26 24 \"192.0.2.7\" \
                           \"Mozilla/5.0 (X11)\" \"cc21d9b0\" \"a.example\" \"10.0.2.1:80\"";
    const ISTIO: &str = "[2024-07-03T09:46:40.000Z] \"GET /a HTTP/1.1\" 200 - via_upstream - \"-\" 0 1713 26 1 \
                         \"-\" \"Mozilla/5.0 (X11)\" \"84961386\" \"a.example\" \"127.0.0.1:80\" inbound|8000|| \
                         127.0.0.1:41854 10.44.1.27:80 192.0.2.7:37652 outbound_.8000_ default";

    #[test]
    fn both_formats_are_parsed() {
        for line in [DEFAULT, ISTIO] {
            let found = parse(line).unwrap();
            let entry = found.entry;
            assert!(found.stated.column.starts_with("192.0.2.7"), "{line}");
            assert_eq!((&*entry.method, &*entry.target, entry.status), ("GET", "/a", 200));
            assert_eq!((entry.bytes.0, entry.at.as_nanos()), (1713, 1_720_000_000_000_000_000));
            assert_eq!(entry.agent.as_deref(), Some("Mozilla/5.0 (X11)"));
            assert_eq!(entry.site.as_deref(), Some("a.example"));
            assert_eq!(entry.took, Some(Duration::from_millis(26)));
        }
    }

    #[test]
    fn line_without_the_client_is_rejected() {
        let without = DEFAULT.replace("192.0.2.7", "-");
        assert_eq!(parse(&without).unwrap_err(), LineError::Missing(Part::Client));
        for line in [&DEFAULT[..60], "[x] \"GET / HTTP/1.1\" 200", "[2024-07-03T09:46:40Z] x"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn user_agent_cannot_name_another_client() {
        // A client that writes columns into the agent does so after those of the server.
        let forged = "x\" \"y\" 0 1 2 3 \"198.51.100.1\" \"a\" \"b\" \"c\" \"d";
        let line = DEFAULT.replace("Mozilla/5.0 (X11)", forged);
        assert_eq!(parse(&line).unwrap_err(), LineError::Missing(Part::Client));
    }
}
