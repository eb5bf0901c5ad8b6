//! The Common Log Format, and the combined one, which has referer and agent behind it.
//!
//! ```text
//! c00001 - - [01/Aug/1995:06:00:00 +0000] "GET /images/logo.gif HTTP/1.0" 200 1713
//! c00001 - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.1" 200 1713 "http://a/" "Mozilla/5.0"
//! example.com:80 c00001 - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.1" 200 1713 "-" "-"
//! ```
//!
//! The last is Apache's `vhost_combined`, of several sites.

use std::borrow::Cow;

use core::net::IpAddr;

use lull_cc::Bytes;

use super::{Entry, LineError, Part, date, request_line};

pub(super) fn parse(line: &str) -> Result<Entry<'_>, LineError> {
    let missing = |part| move || LineError::Missing(part);
    let invalid = |part| move || LineError::Invalid(part);
    let (client, rest) = line.split_once(' ').ok_or_else(missing(Part::Client))?;
    let (users, rest) = rest.split_once('[').ok_or_else(missing(Part::Date))?;
    let (site, client, users) = match behind_site(client, users) {
        Some((behind, users)) => (Some(client), behind, users),
        None => (None, client, users),
    };
    let (date, rest) = rest.split_once(']').ok_or_else(missing(Part::Date))?;
    let at = date::common(date).ok_or_else(invalid(Part::Date))?;
    let (_, rest) = rest.split_once('"').ok_or_else(missing(Part::Request))?;
    let end = end_of_request(rest).ok_or_else(missing(Part::Status))?;
    let (method, target) = request_line(&rest[..end]);
    let rest = &rest[end + 2..];
    let (status, rest) = rest.split_once(' ').ok_or_else(missing(Part::Length))?;
    let status = status.parse().map_err(|_| LineError::Invalid(Part::Status))?;
    let (bytes, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let bytes = match bytes.trim_end() {
        "-" => 0,
        bytes => bytes.parse().map_err(|_| LineError::Invalid(Part::Length))?,
    };
    let (referer, agent) = behind(rest);
    Ok(Entry {
        at,
        client: Cow::Borrowed(client),
        method: Cow::Borrowed(method),
        target: Cow::Borrowed(target),
        status,
        site: site.map(Cow::Borrowed),
        bytes: Bytes(bytes),
        referer: referer.filter(|text| *text != "-").map(Cow::Borrowed),
        agent: agent.map(|text| Cow::Borrowed(if text == "-" { "" } else { text })),
        took: None,
        prefetch: false,
        private: is_user(users),
        named_by_query: false,
    })
}

/// Requests may hold quotation marks, and a combined log has more of them behind. What ends a
/// request is one in front of the three digits of a status. Apache marks those of the request itself, which
/// may have such digits behind it as well; a server that marks none may have logged a backslash.
fn end_of_request(rest: &str) -> Option<usize> {
    let ends = |at: &usize| match &rest.as_bytes()[at + 1..] {
        [b' ', status @ ..] => {
            status.len() >= 3
                && status[..3].iter().all(u8::is_ascii_digit)
                && matches!(status.get(3), None | Some(b' '))
        }
        _ => false,
    };
    let marks = || rest.match_indices('"').map(|(at, _)| at).filter(ends);
    marks().find(|at| !is_escaped(&rest[..*at])).or_else(|| marks().next())
}

/// Whether what stands behind this text is to be taken for itself.
fn is_escaped(before: &str) -> bool {
    before.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// The client and the words behind it where the first word is the name of a site: then there is one word
/// more, and that name has a port or the second word is an address. A user's name may have blanks as well.
fn behind_site<'a>(site: &str, words: &'a str) -> Option<(&'a str, &'a str)> {
    let (client, users) = words.split_once(' ')?;
    let has_more = users.split_ascii_whitespace().count() > 1;
    let is_behind = client.parse::<IpAddr>().is_ok() || client != "-" && is_site(site);
    (has_more && is_behind).then_some((client, users))
}

/// Whether a word is the name of a site with its port, and not an address with many colons.
pub(super) fn is_site(word: &str) -> bool {
    let port = word.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    matches!(port, Some(Ok(_))) && word.parse::<IpAddr>().is_err()
}

/// The last of the two words in front of the date is the user who signed in.
fn is_user(users: &str) -> bool {
    let user = users.trim_end().rsplit(' ').next().unwrap_or("-");
    !matches!(user, "" | "-" | "\"\"")
}

/// ` "referer" "agent"`.
fn behind(rest: &str) -> (Option<&str>, Option<&str>) {
    let Some((referer, rest)) = rest.trim_start().strip_prefix('"').and_then(|rest| {
        // Neither may hold a bare `" "`: servers escape quotation marks.
        let mut marks = rest.match_indices('"').map(|(at, _)| at);
        let end = marks.find(|&at| rest.as_bytes()[at + 1..].starts_with(b" \""))?;
        Some((&rest[..end], &rest[end + 3..]))
    }) else {
        return (None, None);
    };
    let end = rest.match_indices('"').map(|(at, _)| at).find(|&at| {
        matches!(rest.as_bytes().get(at + 1), None | Some(b' ' | b'\r')) && !is_escaped(&rest[..at])
    });
    (Some(referer), end.map(|end| &rest[..end]))
}
