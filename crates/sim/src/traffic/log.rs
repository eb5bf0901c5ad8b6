//! Requests out of a web server's log in the Common Log Format, or the combined one.
//!
//! ```text
//! c00001 - - [01/Aug/1995:06:00:00 +0000] "GET /images/logo.gif HTTP/1.0" 200 1713
//! ```

use std::collections::BTreeMap;

use core::fmt;

use super::documents::Request;

/// A line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry<'a> {
    /// Who asked.
    pub client: &'a str,
    /// Seconds since 1970, in UTC.
    pub seconds: i64,
    /// What was asked for, as it stands between the quotation marks.
    pub request: &'a str,
    /// The status of the answer.
    pub status: u16,
    /// Bytes that were sent; 0 where the log has a dash.
    pub bytes: u64,
}

/// A line that is none of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogError {
    what: &'static str,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl core::error::Error for LogError {}

impl<'a> LogEntry<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// If it lacks a part of the format, or one of them is no number or date.
    pub fn parse(line: &'a str) -> Result<Self, LogError> {
        let error = |what| LogError { what };
        let (client, rest) = line.split_once(' ').ok_or(error("no client"))?;
        let (_, rest) = rest.split_once('[').ok_or(error("no date"))?;
        let (date, rest) = rest.split_once(']').ok_or(error("no end of the date"))?;
        let seconds = seconds_of(date).ok_or(error("the date is none"))?;
        let (_, rest) = rest.split_once('"').ok_or(error("no request"))?;
        // Requests may hold quotation marks, and a combined log has more of them behind. What ends
        // a request is one in front of the status.
        let end = rest
            .match_indices("\" ")
            .map(|(at, _)| at)
            .find(|&at| rest[at + 2..].starts_with(|c: char| c.is_ascii_digit()))
            .ok_or(error("no end of the request, or no status"))?;
        let mut words = rest[end + 2..].split(' ');
        let status = words.next().and_then(|word| word.parse().ok());
        let bytes = match words.next() {
            Some("-") => Some(0),
            word => word.and_then(|word| word.trim_end().parse().ok()),
        };
        Ok(LogEntry {
            client,
            seconds,
            request: &rest[..end],
            status: status.ok_or(error("the status is no number"))?,
            bytes: bytes.ok_or(error("the length is no number"))?,
        })
    }
}

/// Requests of a log, from its first line on; clients are numbered in order of appearance.
/// Answers without bytes are left out: no data is sent for them.
///
/// A log counts in whole seconds. Requests of one second are spread over it evenly, in order.
///
/// # Errors
/// The number of the first line that can't be read, from 1, and why.
pub fn requests<'a>(
    lines: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Request>, (usize, LogError)> {
    const SECOND: u64 = 1_000_000_000;
    let mut clients = BTreeMap::new();
    let mut requests: Vec<Request> = Vec::new();
    let mut first = None;
    for (at, line) in lines.into_iter().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let entry = LogEntry::parse(line).map_err(|error| (at + 1, error))?;
        let start = *first.get_or_insert(entry.seconds);
        if entry.bytes == 0 {
            continue;
        }
        let count = clients.len() as u32;
        let client = *clients.entry(entry.client).or_insert(count);
        let seconds = u64::try_from(entry.seconds - start).unwrap_or(0);
        requests.push(Request { at_nanos: seconds * SECOND, client, bytes: entry.bytes });
    }
    requests.sort_by_key(|request| request.at_nanos);
    for second in requests.chunk_by_mut(|a, b| a.at_nanos == b.at_nanos) {
        let count = second.len() as u64;
        for (at, request) in second.iter_mut().enumerate() {
            request.at_nanos += SECOND * at as u64 / count;
        }
    }
    Ok(requests)
}

/// Seconds since 1970 of `01/Aug/1995:06:00:00 +0000`.
fn seconds_of(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (date, zone) = date.split_once(' ')?;
    let mut parts = date.split(['/', ':']);
    let number = |part: Option<&str>, range: core::ops::RangeInclusive<i64>| {
        part?.parse::<i64>().ok().filter(|number| range.contains(number))
    };
    let day = number(parts.next(), 1..=31)?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64;
    let year = number(parts.next(), 1970..=9999)?;
    let hour = number(parts.next(), 0..=23)?;
    let minute = number(parts.next(), 0..=59)?;
    // 60 is a leap second.
    let second = number(parts.next(), 0..=60)?;
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let offset: i64 = zone.get(1..5)?.parse().ok()?;
    let offset = sign * (offset / 100 * 3600 + offset % 100 * 60);
    Some(days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

/// Days from 1970 to a day of the Gregorian calendar; the month from 0.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Counted from the first of March, so that the leap day is the last of a year.
    let year = if month < 2 { year - 1 } else { year };
    let month = (month + 10) % 12;
    // From March on, months of 31 and 30 days alternate as 153 days in five months.
    let of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    const NASA: &str =
        r#"c00001 - - [01/Aug/1995:06:00:00 +0000] "GET /images/logo.gif HTTP/1.0" 200 1713"#;

    #[test]
    fn a_line_of_the_common_format_is_read() {
        let entry = LogEntry::parse(NASA).unwrap();
        assert_eq!(
            entry,
            LogEntry {
                client: "c00001",
                seconds: 807_256_800,
                request: "GET /images/logo.gif HTTP/1.0",
                status: 200,
                bytes: 1713
            }
        );
    }

    #[test]
    fn so_is_one_of_the_combined_format_with_quotation_marks() {
        let line =
            r#"c2 - bob [17/May/2015:10:05:00 +0200] "GET /a"b HTTP/1.1" 304 - "http://x/" "M""#;
        let entry = LogEntry::parse(line).unwrap();
        assert_eq!((entry.request, entry.status, entry.bytes), ("GET /a\"b HTTP/1.1", 304, 0));
        assert_eq!(entry.seconds, 1_431_849_900);
    }

    #[test]
    fn dates_around_leap_days_are_right() {
        for (date, days) in [
            ("01/Jan/1970:00:00:00 +0000", 0),
            ("29/Feb/2000:00:00:00 +0000", 11_016),
            ("01/Mar/2000:00:00:00 +0000", 11_017),
            ("31/Dec/1999:00:00:00 +0000", 10_956),
        ] {
            assert_eq!(seconds_of(date), Some(days * 86_400), "{date}");
        }
        for date in ["32/Jan/1999:00:00:00 +0000", "01/Foo/1999:00:00:00 +0000", "", "01/Jan"] {
            assert_eq!(seconds_of(date), None, "{date}");
        }
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it() {
        let lines = [
            r#"b - - [01/Aug/1995:06:00:07 +0000] "GET /1 HTTP/1.0" 200 10"#,
            r#"a - - [01/Aug/1995:06:00:09 +0000] "GET /2 HTTP/1.0" 200 20"#,
            r#"a - - [01/Aug/1995:06:00:09 +0000] "GET /3 HTTP/1.0" 304 -"#,
            "",
            r#"b - - [01/Aug/1995:06:00:09 +0000] "GET /4 HTTP/1.0" 200 30"#,
        ];
        let request = |at_nanos, client, bytes| Request { at_nanos, client, bytes };
        assert_eq!(
            requests(lines).unwrap(),
            [request(0, 0, 10), request(2_000_000_000, 1, 20), request(2_500_000_000, 0, 30)]
        );
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let (line, error) = requests([NASA, "nonsense"]).unwrap_err();
        assert_eq!((line, error.to_string().as_str()), (2, "no client"));
        for (text, expected) in [
            (NASA.replace("200 1713", "200 many"), "the length is no number"),
            (NASA.replace("Aug", "Foo"), "the date is none"),
            (NASA.replace(" 200 1713", ""), "no end of the request, or no status"),
        ] {
            assert_eq!(LogEntry::parse(&text).unwrap_err().to_string(), expected);
        }
    }
}
