//! The prefixes that log shippers, container runtimes and syslog add to a line of a server's log.
//!
//! | prefix | example |
//! |---|---|
//! | CRI | `2024-07-03T09:46:40.123456789Z stdout F ` |
//! | Docker JSON | `{"log":"…\n","stream":"stdout","time":"2024-07-03T09:46:40Z"}` |
//! | syslog (RFC 3164), journalctl | `<133>Jul  3 09:46:40 web01 nginx[12]: ` |
//! | syslog (RFC 5424) | `<133>1 2024-07-03T09:46:40Z web01 nginx 12 - - ` |
//! | Heroku | `2024-07-03T09:46:40.457957+00:00 app[web.1]: ` |
//! | time stamp | `1720000000.123 ` (nginx's `$msec`), `2024-07-03T09:46:40Z ` (`kubectl logs --timestamps`) |
//! | Compose | `nginx-1  | ` |
//! | console | `2024/07/03 09:46:40.541<tab>info<tab>http.log.access<tab>handled request<tab>` and JSON |

use super::date;

/// A known prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prefix {
    /// Of the Kubernetes container runtime interface.
    Cri,
    /// Docker's `json-file` driver, and journald's JSON: the line is a member of a JSON object.
    Wrapped,
    /// Of syslog by RFC 3164 or RFC 5424, and of `journalctl`.
    Syslog,
    /// Of Heroku's log drains.
    Heroku,
    /// A time stamp alone.
    Time,
    /// Of Docker Compose.
    Compose,
    /// Tab-separated columns before a JSON object, such as of Caddy's console and Fluentd.
    Console,
}

impl Prefix {
    /// Whether the server ran in a container, where all requests come through load balancers.
    pub(super) fn is_container(self) -> bool {
        matches!(self, Prefix::Cri | Prefix::Wrapped | Prefix::Heroku | Prefix::Compose)
    }
}

impl core::fmt::Display for Prefix {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Prefix::Cri => "CRI",
            Prefix::Wrapped => "JSON",
            Prefix::Syslog => "syslog",
            Prefix::Heroku => "Heroku",
            Prefix::Time => "time stamp",
            Prefix::Compose => "Compose",
            Prefix::Console => "console",
        })
    }
}

/// The rest of a line after its prefix, and which prefix that is. None without a known one.
pub(super) fn strip(line: &str) -> Option<(Prefix, &str)> {
    let first = *line.as_bytes().first()?;
    if first == b'<' {
        return priority(line).and_then(syslog).map(|rest| (Prefix::Syslog, rest));
    }
    if first.is_ascii_digit() {
        return behind_time(line);
    }
    if let Some(rest) = syslog(line) {
        return Some((Prefix::Syslog, rest));
    }
    let (service, rest) = line.split_once('|')?;
    let service = service.trim_end();
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let is_compose = !service.is_empty() && service.bytes().all(is_name) && rest.starts_with(' ');
    is_compose.then(|| (Prefix::Compose, rest.trim_start()))
}

/// The rest after `<133>`.
fn priority(line: &str) -> Option<&str> {
    let (number, rest) = line.strip_prefix('<')?.split_once('>')?;
    ((1..=3).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit())).then_some(rest)
}

/// Prefixes that begin with a time stamp.
fn behind_time(line: &str) -> Option<(Prefix, &str)> {
    let (time, rest) = line.split_once([' ', '\t'])?;
    if !is_time(time) {
        return None;
    }
    let rest = rest.trim_start();
    for stream in ["stdout", "stderr"] {
        let Some(rest) = rest.strip_prefix(stream).and_then(|rest| rest.strip_prefix(' ')) else {
            continue;
        };
        // `P` marks a part of a line that was too long. It is read like a line, and fails where it is cut.
        let rest = rest.strip_prefix("F ").or_else(|| rest.strip_prefix("P "));
        return Some((Prefix::Cri, rest.unwrap_or_default()));
    }
    if let Some((source, behind)) = rest.split_once("]: ")
        && let Some((source, process)) = source.split_once('[')
        && !source.is_empty()
        && [source, process].iter().all(|word| !word.contains([' ', '"']))
    {
        return Some((Prefix::Heroku, behind));
    }
    let behind = tag(rest).map(|rest| (Prefix::Syslog, rest));
    behind.or(Some((Prefix::Time, rest)))
}

/// Whether a word is a time: RFC 3339, or seconds since 1970 with a fraction.
fn is_time(word: &str) -> bool {
    let is_epoch = || {
        let (seconds, fraction) = word.split_once('.').unwrap_or((word, ""));
        let are_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        (9..=10).contains(&seconds.len()) && are_digits(seconds) && are_digits(fraction)
    };
    is_epoch() || date::rfc3339(word).is_some()
}

/// The rest after the head of a syslog message, whose priority is stripped.
fn syslog(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("1 ") {
        return rfc5424(rest);
    }
    if line.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        // rsyslog's and `journalctl -o short-iso`: an RFC 3339 time stamp in the old head.
        let (time, rest) = line.split_once(' ')?;
        return if is_time(time) { tag(rest) } else { None };
    }
    let (month, rest) = line.split_once(' ')?;
    date::month(month)?;
    let (day, rest) = rest.trim_start().split_once(' ')?;
    let (time, rest) = rest.split_once(' ')?;
    let is_day = (1..=2).contains(&day.len()) && day.bytes().all(|b| b.is_ascii_digit());
    (is_day && date::clock(time).is_some()).then(|| tag(rest)).flatten()
}

/// The rest after `web01 nginx[12]: `, host and tag.
fn tag(rest: &str) -> Option<&str> {
    let (_, rest) = rest.split_once(' ')?;
    let (tag, rest) = rest.split_once(": ")?;
    let is_tag = !tag.is_empty() && !tag.contains([' ', '"', '{']);
    is_tag.then(|| rest.trim_start())
}

/// The rest after `2024-07-03T09:46:40Z web01 nginx 12 - - ` (RFC 5424, section 6).
fn rfc5424(rest: &str) -> Option<&str> {
    let mut rest = rest;
    for at in 0..5 {
        let (word, behind) = rest.split_once(' ')?;
        if at == 0 && word != "-" && date::rfc3339(word).is_none() {
            return None;
        }
        rest = behind;
    }
    let message = match rest.strip_prefix('-') {
        Some(message) => message,
        None => structured_data(rest)?,
    };
    Some(message.strip_prefix(' ')?.trim_start_matches('\u{feff}'))
}

/// The rest after elements such as `[id name="value"]`.
fn structured_data(mut rest: &str) -> Option<&str> {
    while rest.starts_with('[') {
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = rest.char_indices().find(|(_, character)| {
            let is_end = *character == ']' && !is_quoted;
            is_quoted ^= *character == '"' && !is_escaped;
            is_escaped = *character == '\\' && !is_escaped;
            is_end
        });
        rest = &rest[end?.0 + 1..];
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_prefixes_are_stripped_and_others_are_not() {
        for (prefix, expected) in [
            ("2024-07-03T09:46:40.123456789Z stdout F ", Some(Prefix::Cri)),
            ("2024-07-03T09:46:40.123456789+02:00 stderr P ", Some(Prefix::Cri)),
            ("<133>Jul  3 09:46:40 web01 nginx: ", Some(Prefix::Syslog)),
            ("Jul 13 09:46:40 web01 nginx[12]: ", Some(Prefix::Syslog)),
            ("Jul 13 09:46:40.123456 web01 nginx[12]: ", Some(Prefix::Syslog)),
            ("<133>2024-07-03T09:46:40+00:00 web01 nginx: ", Some(Prefix::Syslog)),
            ("2024-07-03T09:46:40+0000 web01 nginx: ", Some(Prefix::Syslog)),
            ("1720000000.123456 web01 nginx: ", Some(Prefix::Syslog)),
            ("<133>1 2024-07-03T09:46:40Z web01 nginx 12 - - ", Some(Prefix::Syslog)),
            ("<5>1 2024-07-03T09:46:40Z web01 nginx - - \u{feff}", None),
            ("<5>1 - web01 nginx - - [a b=\"]\\\"\"][c] \u{feff}", Some(Prefix::Syslog)),
            ("2024-07-03T09:46:40.457957+00:00 app[web.1]: ", Some(Prefix::Heroku)),
            ("1720000000.123 ", Some(Prefix::Time)),
            ("1720000000 ", Some(Prefix::Time)),
            ("2024-07-03T09:46:40Z ", Some(Prefix::Time)),
            ("nginx-1  | ", Some(Prefix::Compose)),
            ("", None),
            ("192.0.2.7 - - ", None),
            ("Jul 13 web01 nginx: ", None),
            ("<x>Jul 13 09:46:40 web01 nginx: ", None),
            ("2024-07-03 ", None),
            ("12 ", None),
        ] {
            let line = format!("{prefix}192.0.2.7 - - [x] \"GET / a: b\"");
            let found = strip(&line);
            let expected = expected.map(|which| (which, &line[prefix.len()..]));
            assert_eq!(found, expected, "{prefix}");
        }
    }
}
