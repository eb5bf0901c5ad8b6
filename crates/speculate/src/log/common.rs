//! The Common Log Format, and the combined one, which adds referer and agent.
//!
//! ```text
//! c00001 - - [01/Aug/1995:06:00:00 +0000] "GET /images/logo.gif HTTP/1.0" 200 1713
//! c00001 - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.1" 200 1713 "http://a/" "Mozilla/5.0"
//! example.com:80 c00001 - - [01/Aug/1995:06:00:00 +0000] "GET / HTTP/1.1" 200 1713 "-" "-"
//! ```
//!
//! The last is Apache's `vhost_combined`, of several sites. Additions of other servers are parsed as well: a
//! list of proxies in the client's column, the state of a cache, the upstream in front of the status. So is
//! `X-Forwarded-For` in parentheses or at the end.

use std::borrow::Cow;

use core::net::IpAddr;

use lull_cc::{Bytes, Timestamp};

use super::client::{Stated, is_address_list, is_cache_status};
use super::{Entry, Line, LineError, Part, date, request_line};
use crate::address;

pub(super) fn parse(line: &str) -> Result<Line<'_>, LineError> {
    let missing = |part| move || LineError::Missing(part);
    let (head, at, rest) = around_date(line)?;
    let (between, rest) = rest.split_once('"').ok_or_else(missing(Part::Request))?;
    let Head { site, client, proxied, user } = head.unwrap_or_else(|| in_brackets(between));
    if client.is_empty() {
        return Err(LineError::Missing(Part::Client));
    }
    let (request, rest) = request(rest).ok_or_else(missing(Part::Status))?;
    let (method, target) = request_line(request);
    let (status, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let status = status.trim_end().parse().map_err(|_| LineError::Invalid(Part::Status))?;
    let (bytes, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let bytes = match bytes.trim_end() {
        // Some formats end with the status.
        "" | "-" => 0,
        bytes => bytes.parse().map_err(|_| LineError::Invalid(Part::Length))?,
    };
    let Tail { referer, agent, forwarded } = tail(rest);
    let entry = Entry {
        at,
        client: Cow::Borrowed(""),
        method: Cow::Borrowed(method),
        target: Cow::Borrowed(target),
        status,
        site: site.or_else(|| site_between(between)).map(Cow::Borrowed),
        bytes: Bytes(bytes),
        referer: referer.filter(|text| *text != "-").map(Cow::Borrowed),
        agent: agent.map(|text| Cow::Borrowed(if text == "-" { "" } else { text })),
        took: None,
        prefetch: false,
        private: is_user(user),
        named_by_query: false,
    };
    let forwarded = proxied.or(forwarded).map(Cow::Borrowed);
    let stated = Stated { column: Cow::Borrowed(client), forwarded, named: None };
    Ok(Line { entry, stated })
}

/// The words before the date.
#[derive(Debug)]
struct Head<'a> {
    site: Option<&'a str>,
    /// An address, a name or a list of addresses.
    client: &'a str,
    /// `X-Forwarded-For` behind the client.
    proxied: Option<&'a str>,
    /// The signed-in user.
    user: &'a str,
}

/// Brackets before the date: those of IPv6 addresses.
const MAX_BRACKETS: usize = 4;

/// The words before the date, the date, and the text after it.
///
/// In formats that begin with the date, no words precede it.
fn around_date(line: &str) -> Result<(Option<Head<'_>>, Timestamp, &str), LineError> {
    let mut error = LineError::Missing(Part::Date);
    for (at, _) in line.match_indices('[').take(MAX_BRACKETS) {
        let Some((date, rest)) = line[at + 1..].split_once(']') else { break };
        let Some(at_time) = date::of_server(date) else {
            error = LineError::Invalid(Part::Date);
            continue;
        };
        let head = if at == 0 { None } else { Some(head(&line[..at])?) };
        return Ok((head, at_time, rest));
    }
    // A line of another kind, which may have a prefix.
    Err(if line.contains(' ') { error } else { LineError::Missing(Part::Client) })
}

/// Parses the words before the date: `[site] client [(forwarded)] ident user`.
fn head(text: &str) -> Result<Head<'_>, LineError> {
    let no_client = LineError::Invalid(Part::Client);
    let (first, rest) = word(text);
    let (second, behind) = word(rest);
    let (site, client, rest) = if is_behind_site(first, second, behind) {
        (Some(first), second, behind)
    } else {
        (None, first, rest)
    };
    let (client, rest) = list(client, rest, text);
    let (proxied, rest) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((list, rest)) if is_address_list(list) => (Some(list), rest.trim_start()),
        _ => (None, rest),
    };
    let users = rest.split_ascii_whitespace().count();
    // A user name may contain blanks. After a first word that may not be a client it may not; nor may it
    // contain another address, which may be the client's.
    let is_address = |word: &str| address::parse(word).is_some();
    let is_certain = || is_address(client) || client.contains(',');
    if users == 2 || is_certain() && !rest.split_ascii_whitespace().any(is_address) {
        let user = rest.trim_end().rsplit(' ').next().unwrap_or("-");
        return Ok(Head { site, client, proxied, user });
    }
    Err(if client.is_empty() { LineError::Missing(Part::Client) } else { no_client })
}

/// The same for a format that begins with the date, and has site and client between date and request:
/// `[www.example.org:443] [client 192.0.2.7]`.
fn in_brackets(text: &str) -> Head<'_> {
    let mut head = Head { site: None, client: "", proxied: None, user: "-" };
    for group in text.split('[').skip(1) {
        let group = group.split(']').next().unwrap_or_default();
        match group.strip_prefix("client ") {
            Some(client) => head.client = client.trim(),
            None => head.site = Some(group).filter(|group| group.contains('.')),
        }
    }
    head
}

/// The first word of a text, and the text after it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// A list of addresses from the client on, if its first word ends with a comma; otherwise the client alone.
fn list<'a>(client: &'a str, rest: &'a str, text: &'a str) -> (&'a str, &'a str) {
    if !client.ends_with(',') {
        return (client, rest);
    }
    let begin = text.len() - rest.len();
    let mut end = begin;
    for piece in rest.split_inclusive(' ') {
        end += piece.len();
        if !piece.trim_end().ends_with(',') {
            break;
        }
    }
    let from = text[..begin].rfind(client).unwrap_or(0);
    (text[from..end].trim_end(), text[end..].trim_start())
}

/// Whether the first word is the name of a site, followed by the client: then there is one word more, and
/// that name has a port or the second word is an address. A user name may contain blanks as well.
fn is_behind_site(site: &str, client: &str, rest: &str) -> bool {
    let has_more = rest.split_ascii_whitespace().count() > 1;
    let bare = client.trim_end_matches(',');
    has_more
        && !site.ends_with(',')
        && (address::parse(bare).is_some() || client != "-" && is_site(site))
}

/// Whether a word is the name of a site with its port, and not an address with many colons.
pub(super) fn is_site(word: &str) -> bool {
    let port = word.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    matches!(port, Some(Ok(_))) && word.parse::<IpAddr>().is_err()
}

/// The site that some formats have between date and request.
fn site_between(text: &str) -> Option<&str> {
    let word = text.trim();
    let is_host = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b':');
    (word.contains('.') && word.bytes().all(is_host)).then_some(word)
}

/// Whether the last word before the date is a signed-in user, and not the state of a cache.
fn is_user(user: &str) -> bool {
    !matches!(user, "" | "-" | "\"\"") && !is_cache_status(user)
}

/// The request line, and the text after it, from the status on.
///
/// Requests may contain quotation marks, and a combined log has more of them afterwards. The end of a request
/// is one before the three digits of a status. Apache escapes those of the request itself, which may precede
/// such digits as well; a server that escapes none may have logged a backslash.
fn request(rest: &str) -> Option<(&str, &str)> {
    let behind = |at: usize| status_in(&rest[at + 1..]).map(|status| (&rest[..at], status));
    let marks = || rest.match_indices('"').map(|(at, _)| at);
    let unescaped = marks().filter(|at| !is_escaped(&rest[..*at])).find_map(behind);
    unescaped.or_else(|| marks().find_map(behind))
}

/// From the status on, after the quotation mark of a request. Some formats of nginx have the upstream there.
fn status_in(text: &str) -> Option<&str> {
    let text = text.strip_prefix(' ')?;
    let text = match text.strip_prefix("to: ") {
        Some(rest) => rest.split_once(' ')?.1,
        None => text,
    };
    let bytes = text.as_bytes();
    let is_status = bytes.len() >= 3
        && bytes[..3].iter().all(u8::is_ascii_digit)
        && matches!(bytes.get(3), None | Some(b' '));
    is_status.then_some(text)
}

/// Whether the character after this text is escaped.
fn is_escaped(before: &str) -> bool {
    before.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// The words after the length.
#[derive(Debug, Default)]
struct Tail<'a> {
    referer: Option<&'a str>,
    agent: Option<&'a str>,
    forwarded: Option<&'a str>,
}

/// Texts in quotation marks; an escaped one does not end a text.
fn quoted(mut rest: &str) -> impl Iterator<Item = &str> {
    core::iter::from_fn(move || {
        let (_, text) = rest.split_once('"')?;
        let mut marks = text.match_indices('"').map(|(at, _)| at);
        let end = marks.find(|at| !is_escaped(&text[..*at]))?;
        rest = &text[end + 1..];
        Some(&text[..end])
    })
}

/// ` "agent"`, alone and at the end.
fn alone(rest: &str) -> Option<&str> {
    let text = rest.trim().strip_prefix('"')?.strip_suffix('"')?;
    ["Mozilla/", "Opera/"].iter().any(|name| text.starts_with(name)).then_some(text)
}

/// ` "referer" "agent"`, and `X-Forwarded-For` in quotation marks after them, as in nginx' example.
fn tail(rest: &str) -> Tail<'_> {
    let Some((referer, rest)) = rest.trim_start().strip_prefix('"').and_then(|rest| {
        // Neither may contain a bare `" "`: servers escape quotation marks.
        let mut marks = rest.match_indices('"').map(|(at, _)| at);
        let end = marks.find(|&at| rest.as_bytes()[at + 1..].starts_with(b" \""))?;
        Some((&rest[..end], &rest[end + 3..]))
    }) else {
        return Tail { agent: alone(rest), ..Tail::default() };
    };
    let end = rest.match_indices('"').map(|(at, _)| at).find(|&at| {
        matches!(rest.as_bytes().get(at + 1), None | Some(b' ' | b'\r')) && !is_escaped(&rest[..at])
    });
    let agent = end.map(|end| &rest[..end]);
    let behind = end.map_or("", |end| &rest[end + 1..]);
    // HAProxy logs captured headers there: two empty texts mean that there are none.
    let is_nothing = referer.is_empty() && agent == Some("") && !behind.trim().is_empty();
    Tail {
        referer: Some(referer).filter(|_| !is_nothing),
        agent: agent.filter(|_| !is_nothing),
        forwarded: quoted(behind).filter(|text| is_address_list(text)).last(),
    }
}
