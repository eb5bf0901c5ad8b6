//! Formats of load balancers and proxies with a fixed order of columns.
//!
//! ```text
//! h2 2024-07-03T09:46:40.3Z app/web/cb 192.0.2.7:62611 10.0.0.1:443 0.006 0.008 0.000 200 200 498 1713 "GET https://a:443/ HTTP/2.0" "Mozilla/5.0" …
//! 2024-07-03T09:46:40.5Z my-elb 192.0.2.7:34140 10.0.0.2:80 0.0007 0.0008 0.0000 200 200 0 1713 "GET http://a:80/ HTTP/1.1" "Mozilla/5.0" - -
//! 1720000000.965    187 192.0.2.7 TCP_MISS/200 1713 GET http://a/ - HIER_DIRECT/10.0.0.4 text/html
//! 192.0.2.7, -, 7/3/2024, 9:46:40, W3SVC1, WEB1, 10.0.0.3, 12, 300, 1713, 200, 0, GET, /, -,
//! 192.0.2.7:54241 [03/Jul/2024:09:46:40.698] https~ web/s1 0/0/1/7/227 200 1713 - - ---- 3/1/1/0/0 0/0 "GET / HTTP/1.1"
//! ```
//!
//! These are AWS's Application and Classic Load Balancer, Squid's native format, IIS' own format and HAProxy's
//! `httplog`.

use std::borrow::Cow;

use core::time::Duration;

use lull_cc::{Bytes, Timestamp};

use super::client::{Stated, is_address_list};
use super::{Entry, Line, LineError, Part, date, extended, request_line};

/// Number of columns that are read, at most.
const MAX_COLUMNS: usize = 16;

/// The columns of a line by their numbers.
struct Columns<'a> {
    words: [&'a str; MAX_COLUMNS],
    count: usize,
}

impl<'a> Columns<'a> {
    fn of(words: impl Iterator<Item = &'a str>) -> Self {
        let mut columns = Columns { words: [""; MAX_COLUMNS], count: 0 };
        for (place, word) in columns.words.iter_mut().zip(words) {
            *place = word;
            columns.count += 1;
        }
        columns
    }

    fn get(&self, at: usize, part: Part) -> Result<&'a str, LineError> {
        if at < self.count { Ok(self.words[at]) } else { Err(LineError::Missing(part)) }
    }
}

/// A line with separate method and target columns.
fn line<'a>(
    at: Option<Timestamp>,
    client: &'a str,
    (method, target): (&'a str, &'a str),
    status: &str,
    bytes: &str,
) -> Result<Line<'a>, LineError> {
    let status = match status {
        // A load balancer that could not answer has none.
        "-" => 0,
        status => status.parse().map_err(|_| LineError::Invalid(Part::Status))?,
    };
    let bytes = if bytes == "-" { Ok(0) } else { bytes.parse() };
    let entry = Entry {
        status,
        bytes: Bytes(bytes.map_err(|_| LineError::Invalid(Part::Length))?),
        method: Cow::Borrowed(method),
        ..Entry::page(at.ok_or(LineError::Invalid(Part::Date))?, "", target)
    };
    let stated = Stated { column: Cow::Borrowed(client), forwarded: None, named: None };
    Ok(Line { entry, stated })
}

/// A line of AWS's Application or Classic Load Balancer: the former begins with the kind of the connection.
pub(super) fn aws(text: &str) -> Result<Line<'_>, LineError> {
    let columns = Columns::of(extended::words(text));
    let first = columns.get(0, Part::Date)?;
    let kinds = ["http", "https", "h2", "grpcs", "ws", "wss"];
    let from = usize::from(kinds.contains(&first));
    let at = date::rfc3339(columns.get(from, Part::Date)?);
    let get = |number: usize, part| columns.get(from + number, part);
    let request = request_line(get(11, Part::Request)?);
    let client = get(2, Part::Client)?;
    let mut line = line(at, client, request, get(7, Part::Status)?, get(10, Part::Length)?)?;
    let agent = get(12, Part::Request)?;
    line.entry.agent = Some(Cow::Borrowed(if agent == "-" { "" } else { agent }));
    // Each is -1 if the request did not reach that stage.
    let took: f64 = (4..7).map(|at| get(at, Part::Date).map_or(-1.0, seconds)).sum();
    line.entry.took = Duration::try_from_secs_f64(took).ok();
    Ok(line)
}

fn seconds(text: &str) -> f64 {
    text.parse().unwrap_or(-1.0)
}

/// A line of Squid's native format.
pub(super) fn squid(text: &str) -> Result<Line<'_>, LineError> {
    let columns = Columns::of(text.split_ascii_whitespace());
    let time = columns.get(0, Part::Date)?;
    let at = time.contains('.').then(|| time.parse().ok().and_then(date::epoch)).flatten();
    let (state, status) = columns
        .get(3, Part::Status)?
        .split_once('/')
        .filter(|(state, _)| state.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
        .ok_or(LineError::Missing(Part::Status))?;
    let request = (columns.get(5, Part::Request)?, columns.get(6, Part::Request)?);
    let client = columns.get(2, Part::Client)?;
    let mut line = line(at, client, request, status, columns.get(4, Part::Length)?)?;
    line.entry.private = !matches!(columns.get(7, Part::Client)?, "-");
    let millis = columns.get(1, Part::Date)?.parse().ok().map(Duration::from_millis);
    // The time of a cache's answer is not the server's.
    line.entry.took = millis.filter(|_| state.contains("MISS"));
    Ok(line)
}

/// A line of IIS' own format, whose date has the month first, unless that is not a month.
pub(super) fn iis(text: &str) -> Result<Line<'_>, LineError> {
    let columns = Columns::of(text.split(',').map(str::trim));
    let mut day = columns.get(2, Part::Date)?.split('/').map(|part| part.parse::<i64>().ok());
    let mut next = || day.next().flatten().ok_or(LineError::Missing(Part::Date));
    let (first, second, year) = (next()?, next()?, next()?);
    let (month, day) = if first > 12 { (second, first) } else { (first, second) };
    let year = if year < 100 { year + 2000 } else { year };
    let at = date::of_parts(year, month, day, columns.get(3, Part::Date)?);
    let target = columns.get(13, Part::Request)?;
    let request = (columns.get(12, Part::Request)?, target);
    let client = columns.get(0, Part::Client)?;
    let mut line =
        line(at, client, request, columns.get(10, Part::Status)?, columns.get(9, Part::Length)?)?;
    if let Ok(query) = columns.get(14, Part::Request)
        && !matches!(query, "" | "-")
    {
        line.entry.target = Cow::Owned(format!("{target}?{query}"));
    }
    line.entry.private = !matches!(columns.get(1, Part::Client)?, "" | "-");
    line.entry.took = columns.get(7, Part::Date)?.parse().ok().map(Duration::from_millis);
    Ok(line)
}

/// A line of HAProxy's `httplog`.
pub(super) fn haproxy(text: &str) -> Result<Line<'_>, LineError> {
    let missing = |part| move || LineError::Missing(part);
    let (client, rest) = text.split_once(" [").ok_or_else(missing(Part::Date))?;
    let (date, rest) = rest.split_once("] ").ok_or_else(missing(Part::Date))?;
    // The request is the last column, and escaped.
    let (rest, request) = rest.split_once(" \"").ok_or_else(missing(Part::Request))?;
    let request = request.strip_suffix('"').ok_or_else(missing(Part::Request))?;
    let columns = Columns::of(rest.split_ascii_whitespace());
    let timers = columns.get(2, Part::Status)?;
    if timers.split('/').count() != 5 || client.contains(' ') {
        return Err(LineError::Missing(Part::Status));
    }
    let (status, bytes) = (columns.get(3, Part::Status)?, columns.get(4, Part::Length)?);
    let at = date::of_server(date);
    let mut line = line(at, client, request_line(request), status, bytes.trim_start_matches('+'))?;
    let total =
        timers.rsplit('/').next().and_then(|text| text.trim_start_matches('+').parse().ok());
    line.entry.took = total.map(Duration::from_millis);
    // Captured headers are in braces. One with addresses shows that there is a proxy in front.
    let captured = rest.split('{').skip(1).filter_map(|part| part.split('}').next());
    let mut values = captured.flat_map(|values| values.split('|'));
    line.stated.forwarded = values.find(|text| is_address_list(text)).map(Cow::Borrowed);
    Ok(line)
}
