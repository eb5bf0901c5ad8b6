//! The extended log format of the W3C's draft (WD-logfile-960323), as written by IIS and CloudFront.
//!
//! ```text
//! #Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status sc-bytes cs(User-Agent)
//! 2015-05-17 10:05:03 192.0.2.7 GET /a.html - 200 1713 Mozilla/5.0+(X11)
//! ```

use std::borrow::Cow;

use core::time::Duration;

use lull_cc::Bytes;

use super::client::Stated;
use super::{Entry, Line, LineError, Part, date, is_prefetch, is_private, request_line};

/// A column that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Date,
    Time,
    Client,
    Method,
    Stem,
    Query,
    Target,
    Request,
    Status,
    Bytes,
    Agent,
    Site,
    Referer,
    Took,
    User,
    Purpose,
    CacheControl,
    SetCookie,
    Forwarded,
    /// The column that the user has named for the client.
    Named,
    Other,
}

/// The columns of a line, by the last `#Fields:`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    columns: Vec<Column>,
    /// The column that the user has named for the client, in lower case.
    named: Option<Box<str>>,
}

impl Fields {
    /// Takes the client from the column of this name.
    pub(super) fn name_client(&mut self, name: &str) {
        self.named = Some(name.to_ascii_lowercase().into());
    }
}

/// Servers write no more columns than this.
const MAX_COLUMNS: usize = 128;

/// Takes a line that begins with `#`; all directives except `Fields` are irrelevant for requests.
pub(super) fn directive(line: &str, fields: &mut Fields) {
    let Some((name, rest)) = line[1..].split_once(':') else { return };
    if !name.trim().eq_ignore_ascii_case("fields") {
        return;
    }
    let named = fields.named.as_deref();
    let column = |name: &str| match name.to_ascii_lowercase().as_str() {
        name if named == Some(name) => Column::Named,
        "date" | "date-local" => Column::Date,
        "time" | "time-local" => Column::Time,
        "c-ip" | "c-dns" => Column::Client,
        "cs-method" => Column::Method,
        "cs-uri-stem" => Column::Stem,
        "cs-uri-query" => Column::Query,
        "cs-uri" => Column::Target,
        "sc-status" => Column::Status,
        "sc-bytes" | "bytes" => Column::Bytes,
        "cs(user-agent)" => Column::Agent,
        "cs-host" | "cs(host)" => Column::Site,
        "cs(referer)" => Column::Referer,
        "time-taken" | "timetakenms" => Column::Took,
        "cs-username" => Column::User,
        "cs(sec-purpose)" | "cs(purpose)" | "cs(x-moz)" => Column::Purpose,
        "sc(cache-control)" => Column::CacheControl,
        "cs(x-forwarded-for)" | "x-forwarded-for" | "cs(forwarded)" => Column::Forwarded,
        "sc(set-cookie)" => Column::SetCookie,
        "cs-request" | "x-request" => Column::Request,
        _ => Column::Other,
    };
    fields.columns = rest.split_whitespace().take(MAX_COLUMNS).map(column).collect();
}

pub(super) fn parse<'a>(line: &'a str, fields: &Fields) -> Result<Line<'a>, LineError> {
    if fields.columns.is_empty() {
        return Err(LineError::NoFields);
    }
    let mut values = [None; Column::Other as usize];
    let mut words = words(line);
    for &column in &fields.columns {
        let word = words.next().ok_or(LineError::Columns)?;
        if column != Column::Other && word != "-" {
            values[column as usize] = Some(word);
        }
    }
    if words.next().is_some() {
        return Err(LineError::Columns);
    }
    let value = |column: Column| values[column as usize];
    let need = |column, part| value(column).ok_or(LineError::Missing(part));
    let at = date::extended(need(Column::Date, Part::Date)?, need(Column::Time, Part::Date)?)
        .ok_or(LineError::Invalid(Part::Date))?;
    let (method, target) = match value(Column::Request) {
        Some(line) => {
            let (method, target) = request_line(line);
            (method, Cow::Borrowed(target))
        }
        None => (need(Column::Method, Part::Request)?, target(&value)?),
    };
    let number = |text: Option<&str>, part| match text {
        Some(text) => text.parse::<u64>().map_err(|_| LineError::Invalid(part)),
        None => Ok(0),
    };
    let status = need(Column::Status, Part::Status)?;
    let took = value(Column::Took).and_then(|text| {
        // The draft counts in seconds with a fraction, IIS in whole milliseconds.
        if text.contains('.') {
            text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        } else {
            text.parse().ok().map(Duration::from_millis)
        }
    });
    let has = |column| fields.columns.contains(&column);
    let column = Cow::Borrowed(need(Column::Client, Part::Client)?);
    let entry = Entry {
        at,
        client: Cow::Borrowed(""),
        method: Cow::Borrowed(method),
        target,
        status: status.parse().map_err(|_| LineError::Invalid(Part::Status))?,
        site: value(Column::Site).map(Cow::Borrowed),
        bytes: Bytes(number(value(Column::Bytes), Part::Length)?),
        referer: value(Column::Referer).map(Cow::Borrowed),
        agent: has(Column::Agent).then(|| Cow::Borrowed(value(Column::Agent).unwrap_or(""))),
        took,
        prefetch: value(Column::Purpose).is_some_and(is_prefetch),
        private: value(Column::User).is_some()
            || value(Column::SetCookie).is_some()
            || value(Column::CacheControl).is_some_and(is_private),
        named_by_query: false,
    };
    let forwarded = value(Column::Forwarded).map(Cow::Borrowed);
    Ok(Line {
        entry,
        stated: Stated { column, forwarded, named: value(Column::Named).map(Cow::Borrowed) },
    })
}

fn target<'a>(value: &impl Fn(Column) -> Option<&'a str>) -> Result<Cow<'a, str>, LineError> {
    if let Some(target) = value(Column::Target) {
        return Ok(Cow::Borrowed(target));
    }
    let stem = value(Column::Stem).ok_or(LineError::Missing(Part::Request))?;
    Ok(match value(Column::Query) {
        Some(query) => Cow::Owned(format!("{stem}?{query}")),
        None => Cow::Borrowed(stem),
    })
}

/// Words between spaces or tabs; one in quotation marks may contain spaces.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line.trim_matches([' ', '\t', '\r']);
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let quoted = rest.strip_prefix('"').and_then(|inner| {
            // A quotation mark within it is doubled.
            let end = inner
                .match_indices('"')
                .map(|(at, _)| at)
                .find(|&at| matches!(inner.as_bytes().get(at + 1), None | Some(b' ' | b'\t')))?;
            Some((&inner[..end], &inner[end + 1..]))
        });
        let (word, behind) = quoted.unwrap_or_else(|| match rest.find([' ', '\t']) {
            Some(at) => (&rest[..at], &rest[at..]),
            None => (rest, ""),
        });
        rest = behind.trim_start_matches([' ', '\t']);
        Some(word)
    })
}
