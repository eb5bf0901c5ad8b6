//! Detects the format of a log, reads its lines, and counts those that it cannot read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::client::{Client, Pseudonyms, is_internal};
use super::{
    ClientField, Entry, Format, Line, LineError, Part, Prefix, Template, Trust, columns, common,
    envoy, extended, json, line_text, logfmt, name_of_site, prefix, sample,
};

/// Lines of one log that could not be read for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLines {
    /// How many.
    pub count: u64,
    /// The number of the first, from 1.
    pub first: u64,
    /// The beginning of the first, with addresses removed.
    pub sample: String,
}

/// The form of a log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// The format of the server.
    pub format: Format,
    /// The prefix of a log shipper.
    pub prefix: Option<Prefix>,
}

impl core::fmt::Display for Shape {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.prefix {
            Some(Prefix::Wrapped) => write!(f, "{} within JSON", self.format),
            Some(prefix) => write!(f, "{} behind a {prefix} prefix", self.format),
            None => self.format.fmt(f),
        }
    }
}

/// The user's settings for a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The form of its lines; otherwise it is detected.
    pub template: Option<Template>,
    /// Clients and proxies.
    pub trust: Trust,
}

/// Which formats a line is tried with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// One known to the caller.
    Known,
    /// The latest one, then all.
    LatestFirst,
    /// All.
    All,
}

/// Reads the lines of one log, in order.
///
/// ```
/// use lull_speculate::log::{Format, Reader};
///
/// let log = "192.0.2.7 - - [01/Aug/1995:06:00:00 +0000] \"GET /a HTTP/1.0\" 200 17\nnonsense\n";
/// let lines = || log.as_bytes().split(|byte| *byte == b'\n');
/// let mut reader = Reader::detect(lines()).unwrap();
/// assert_eq!(reader.format(), Format::Common);
/// let targets: Vec<_> = lines().filter_map(|line| reader.read(line)).map(|e| e.target).collect();
/// assert_eq!(targets, ["/a"]);
/// assert_eq!(reader.bad().values().map(|bad| bad.count).sum::<u64>(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    shape: Shape,
    search: Search,
    options: Options,
    /// Names of clients by format; none if all are accepted.
    names: Option<BTreeMap<Shape, Pseudonyms>>,
    fields: extended::Fields,
    lines: u64,
    entries: u64,
    sites: BTreeMap<Box<str>, u64>,
    /// The first client, while there is no other.
    only_client: Option<Box<str>>,
    bad: BTreeMap<LineError, BadLines>,
}

/// Sites that are counted: clients may invent names.
const MAX_SITES: usize = 64;
/// Lines that are read to detect the format: enough that damaged lines or directives at the head do not
/// decide.
const DETECTION_LINES: usize = 64;
/// And if none of these can be parsed, this many: a log may begin with a program's startup messages.
const MAX_DETECTION_LINES: usize = 10_000;
/// Prefixes that may precede each other.
const MAX_PREFIXES: usize = 3;

impl Reader {
    /// A reader for a log of a known format, with its clients in the format's own field.
    pub fn new(format: Format) -> Self {
        Reader {
            shape: Shape { format, prefix: None },
            search: Search::Known,
            options: Options::default(),
            names: None,
            fields: extended::Fields::default(),
            lines: 0,
            entries: 0,
            sites: BTreeMap::new(),
            only_client: None,
            bad: BTreeMap::new(),
        }
    }

    /// A reader that detects the format of each line.
    fn unknown(options: &Options) -> Self {
        // The user knows the contents of the named field.
        let are_believed = options.trust.field != ClientField::Automatic;
        let names = (!are_believed).then(BTreeMap::new);
        let mut fields = extended::Fields::default();
        if let ClientField::Named(name) = &options.trust.field {
            fields.name_client(name);
        }
        let options = options.clone();
        Reader { search: Search::All, options, names, fields, ..Reader::new(Format::Common) }
    }

    /// A reader for a log that begins with `lines`.
    ///
    /// # Errors
    /// As for [`detect_with`](Reader::detect_with), without the reason.
    pub fn detect<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        Reader::detect_with(lines, &Options::default()).ok()
    }

    /// The same, with the user's settings for the log.
    ///
    /// It reads the first 64 lines that are not empty, and begins with the format that fits most of them. If
    /// no format fits any of these, it takes the format of the first of 10,000 lines that can be read. A log
    /// may change its format: each line that the latest format does not fit is tried with the others.
    ///
    /// # Errors
    /// If no line can be read: a reader that has counted the reasons.
    pub fn detect_with<'a>(
        lines: impl IntoIterator<Item = &'a [u8]>,
        options: &Options,
    ) -> Result<Self, Box<Self>> {
        let mut probe = Reader::unknown(options);
        let mut votes: BTreeMap<Shape, usize> = BTreeMap::new();
        let lines = lines.into_iter().filter(|line| !line.trim_ascii().is_empty());
        for (at, line) in lines.take(MAX_DETECTION_LINES).enumerate() {
            if at >= DETECTION_LINES && !votes.is_empty() {
                break;
            }
            // Pseudonyms are accepted only once some have recurred, so the first ones count as well.
            if let Ok(Some(_)) | Err(LineError::OneOff) = probe.try_read(line) {
                *votes.entry(probe.shape).or_default() += 1;
            }
        }
        if votes.is_empty() {
            return Err(Box::new(probe));
        }
        // Of equal ones the first in the order of `Format`, so that the answer is always the same.
        let most = votes.values().copied().max().unwrap_or(0);
        let shape = votes.into_iter().find(|(_, count)| *count == most);
        let shape = shape.map_or(probe.shape, |(shape, _)| shape);
        let names = probe.names.map(|names| {
            let again = |(shape, names): (Shape, Pseudonyms)| (shape, names.for_reread());
            names.into_iter().map(again).collect()
        });
        Ok(Reader { shape, search: Search::LatestFirst, names, ..Reader::unknown(options) })
    }

    /// Accepts every name of a client, also one that does not recur. For uses in which nothing becomes
    /// public, such as simulations.
    #[must_use]
    pub fn believing_names(self) -> Self {
        Reader { names: None, ..self }
    }

    /// The format of the latest line.
    pub fn format(&self) -> Format {
        self.shape.format
    }

    /// The form of the latest line.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Lines so far, including empty ones and directives.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Requests so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Whether all requests so far had one client, as behind a proxy that is mistaken for it.
    pub fn has_one_client(&self) -> bool {
        self.only_client.is_some()
    }

    /// How many requests so far were for each site, if the log names them. Only for the first 64.
    pub fn sites(&self) -> impl Iterator<Item = (&str, u64)> {
        self.sites.iter().map(|(site, count)| (&**site, *count))
    }

    /// The lines that could not be read so far, by reason.
    pub fn bad(&self) -> &BTreeMap<LineError, BadLines> {
        &self.bad
    }

    /// Reads the next line, without its end. None if it contains no request, because it is empty or a
    /// directive, or because it is bad; that is counted.
    pub fn read<'a>(&mut self, line: &'a [u8]) -> Option<Entry<'a>> {
        self.try_read(line).ok().flatten()
    }

    /// The same, for a caller that wants to stop at a bad line.
    ///
    /// # Errors
    /// Why the line is not a request of the log. It is counted nevertheless.
    pub fn try_read<'a>(&mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, LineError> {
        self.lines += 1;
        match self.parse(line) {
            Ok(entry) => {
                if let Some(entry) = &entry {
                    self.note_client(&entry.client);
                    self.entries += 1;
                }
                if let Some(site) = entry.as_ref().and_then(|entry| entry.site.as_deref()) {
                    self.note_site(site);
                }
                Ok(entry)
            }
            Err(error) => {
                let first = self.lines;
                let is_known = self.search != Search::All || self.entries > 0;
                let format = is_known.then_some(self.shape.format);
                let bad = self.bad.entry(error).or_insert_with(|| BadLines {
                    count: 0,
                    first,
                    sample: sample::redact(line, format),
                });
                bad.count += 1;
                Err(error)
            }
        }
    }

    fn note_client(&mut self, client: &str) {
        if self.entries == 0 {
            self.only_client = Some(client.into());
        } else if self.only_client.as_deref().is_some_and(|only| only != client) {
            self.only_client = None;
        }
    }

    fn note_site(&mut self, site: &str) {
        let name = name_of_site(site);
        if let Some(count) = self.sites.get_mut(name) {
            *count += 1;
        } else if self.sites.len() < MAX_SITES {
            self.sites.insert(name.into(), 1);
        }
    }

    fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, LineError> {
        match line_text::decode(line)? {
            Cow::Borrowed(text) => self.parse_text(text),
            Cow::Owned(text) => Ok(self.parse_text(&text)?.map(Entry::into_owned)),
        }
    }

    fn parse_text<'a>(&mut self, text: &'a str) -> Result<Option<Entry<'a>>, LineError> {
        if text.is_empty() {
            return Ok(None);
        }
        let is_known = self.search == Search::Known;
        if text.starts_with('#') && (!is_known || self.shape.format == Format::Extended) {
            extended::directive(text, &mut self.fields);
            return Ok(None);
        }
        let error = match self.search {
            Search::All => None,
            Search::Known | Search::LatestFirst => match self.parse_as(text, self.shape) {
                Ok(found) => return self.accept(found).map(Some),
                // A line with an unknown client is one of this format, so no other is tried.
                Err(error) if is_known || error == LineError::Proxied => return Err(error),
                Err(error) => Some(error),
            },
        };
        match self.find(text, 0) {
            Ok((found, shape)) => {
                self.shape = shape;
                self.accept(found).map(Some)
            }
            Err(other) => {
                let is_common = self.shape.as_common().format == Format::Common;
                // Only its own format knows the error of a line.
                let is_certain = !is_common && self.shape.prefix.is_none();
                Err(error.filter(|_| is_certain).unwrap_or(other))
            }
        }
    }

    /// Reads a line of this form.
    fn parse_as<'a>(&self, text: &'a str, shape: Shape) -> Result<Found<'a>, LineError> {
        match shape.prefix {
            None => self.parse_bare(text, shape.format),
            Some(Prefix::Console) => {
                let (line, _) = json::behind_columns(text)?;
                Found::of(line, &self.options.trust)
            }
            Some(Prefix::Wrapped) => match json::parse(text)? {
                json::Object::Wrapped(Cow::Borrowed(inner)) => {
                    self.parse_bare(inner.trim(), shape.format)
                }
                json::Object::Wrapped(Cow::Owned(inner)) => {
                    self.parse_bare(inner.trim(), shape.format).map(Found::into_owned)
                }
                json::Object::Request(..) => Err(LineError::Missing(Part::Request)),
            },
            Some(expected) => match prefix::strip(text) {
                Some((prefix, rest)) if prefix == expected => self.parse_bare(rest, shape.format),
                _ => Err(LineError::Missing(Part::Client)),
            },
        }
    }

    /// Reads a line of this format without a prefix.
    fn parse_bare<'a>(&self, text: &'a str, format: Format) -> Result<Found<'a>, LineError> {
        let line = match format {
            Format::Common | Format::Combined => common::parse(text)?,
            Format::Extended => extended::parse(text, &self.fields)?,
            Format::JsonLines | Format::Caddy => match json::parse(text)? {
                json::Object::Request(line, _) => self.with_named(line, text),
                json::Object::Wrapped(_) => return Err(LineError::Missing(Part::Request)),
            },
            Format::Aws => columns::aws(text)?,
            Format::Haproxy => columns::haproxy(text)?,
            Format::Squid => columns::squid(text)?,
            Format::Iis => columns::iis(text)?,
            Format::Envoy => envoy::parse(text)?,
            Format::Logfmt => self.with_named_pair(logfmt::parse(text)?, text),
            Format::Custom => match &self.options.template {
                Some(template) => template.line(text, self.named())?,
                None => return Err(LineError::Shape),
            },
        };
        Found::of(line, &self.options.trust)
    }

    /// The field that the user has named for the client.
    fn named(&self) -> Option<&str> {
        match &self.options.trust.field {
            ClientField::Named(name) => Some(name),
            _ => None,
        }
    }

    /// A line of JSON with the value of the field that the user names.
    fn with_named<'a>(&self, mut line: Line<'a>, text: &str) -> Line<'a> {
        if let Some(name) = self.named() {
            line.stated.named = json::value_of(text, name).map(Cow::Owned);
        }
        line
    }

    /// The same for pairs.
    fn with_named_pair<'a>(&self, mut line: Line<'a>, text: &'a str) -> Line<'a> {
        if let Some(name) = self.named() {
            line.stated.named = logfmt::value_of(text, name);
        }
        line
    }

    /// Detects the format of a line, and its prefixes.
    fn find<'a>(&self, text: &'a str, depth: usize) -> Result<(Found<'a>, Shape), LineError> {
        let bare = |format| Shape { format, prefix: None };
        let error = if self.options.template.is_some() {
            match self.parse_bare(text, Format::Custom) {
                Ok(found) => return Ok((found, bare(Format::Custom))),
                Err(error) => error,
            }
        } else if text.starts_with('{') {
            return self.find_json(text, depth);
        } else {
            match self.find_text(text) {
                Ok(found) => return Ok(found),
                Err(error) => error,
            }
        };
        if error == LineError::Proxied || depth >= MAX_PREFIXES {
            return Err(error);
        }
        match prefix::strip(text) {
            Some((prefix, rest)) => {
                self.find(rest, depth + 1).map(|(found, shape)| (found, shape.behind(prefix)))
            }
            None => Err(error),
        }
    }

    /// The same for a line that begins like JSON.
    fn find_json<'a>(&self, text: &'a str, depth: usize) -> Result<(Found<'a>, Shape), LineError> {
        let inner = match json::parse(text)? {
            json::Object::Request(line, format) => {
                let line = self.with_named(line, text);
                let shape = Shape { format, prefix: None };
                return Ok((Found::of(line, &self.options.trust)?, shape));
            }
            json::Object::Wrapped(_) if depth >= MAX_PREFIXES => return Err(LineError::NotJson),
            json::Object::Wrapped(inner) => inner,
        };
        let (found, shape) = match inner {
            Cow::Borrowed(inner) => self.find(inner.trim(), depth + 1)?,
            Cow::Owned(inner) => {
                let inner = line_text::repaired(&inner);
                let (found, shape) = self.find(inner.trim(), depth + 1)?;
                (found.into_owned(), shape)
            }
        };
        Ok((found, shape.behind(Prefix::Wrapped)))
    }

    /// The same for a line that is not JSON and has no prefix.
    fn find_text<'a>(&self, text: &'a str) -> Result<(Found<'a>, Shape), LineError> {
        let bare = |format| Shape { format, prefix: None };
        if let Ok((line, format)) = json::behind_columns(text) {
            let found = Found::of(line, &self.options.trust)?;
            return Ok((found, bare(format).behind(Prefix::Console)));
        }
        let error = match common::parse(text).and_then(|line| Found::of(line, &self.options.trust))
        {
            Ok(found) => {
                let has_agent = found.entry.agent.is_some();
                let format = if has_agent { Format::Combined } else { Format::Common };
                return Ok((found, bare(format)));
            }
            Err(error) => error,
        };
        use Format::{Aws, Envoy, Extended, Haproxy, Iis, Logfmt, Squid};
        let others = [Extended, Aws, Haproxy, Squid, Iis, Envoy, Logfmt];
        for format in others {
            match self.parse_bare(text, format) {
                Ok(found) => return Ok((found, bare(format))),
                Err(LineError::Proxied) => return Err(LineError::Proxied),
                Err(_) => {}
            }
        }
        // For Rails, whose lines begin with the request and have no status.
        Err(if text.starts_with("Started ") { LineError::Missing(Part::Status) } else { error })
    }

    /// The entry of a line, if its client is accepted.
    fn accept<'a>(&mut self, found: Found<'a>) -> Result<Entry<'a>, LineError> {
        let client = match found.client {
            Client::Address(address) => {
                let is_container = self.shape.prefix.is_some_and(Prefix::is_container);
                if is_container && self.options.trust.is_unset() && is_internal(&address) {
                    return Err(LineError::Internal);
                }
                address
            }
            Client::Name(name) => {
                let key = self.shape.as_common();
                let names = self.names.as_mut().map(|names| names.entry(key).or_default());
                if names.is_some_and(|names| !names.record(&name)) {
                    return Err(LineError::OneOff);
                }
                name
            }
        };
        Ok(Entry { client, ..found.entry })
    }
}

impl Shape {
    /// The same after a prefix. Of several the outermost is remembered.
    fn behind(self, prefix: Prefix) -> Self {
        Shape { prefix: Some(prefix), ..self }
    }

    /// The same for all formats with clients in the same place.
    fn as_common(self) -> Self {
        match self.format {
            Format::Combined => Shape { format: Format::Common, ..self },
            _ => self,
        }
    }
}

/// A line with its client.
#[derive(Debug)]
struct Found<'a> {
    entry: Entry<'a>,
    client: Client<'a>,
}

impl<'a> Found<'a> {
    fn of(line: Line<'a>, trust: &Trust) -> Result<Self, LineError> {
        let mut entry = line.entry;
        entry.take_site();
        Ok(Found { entry, client: trust.client(line.stated)? })
    }

    fn into_owned(self) -> Found<'static> {
        let client = match self.client {
            Client::Address(address) => Client::Address(Cow::Owned(address.into_owned())),
            Client::Name(name) => Client::Name(Cow::Owned(name.into_owned())),
        };
        Found { entry: self.entry.into_owned(), client }
    }
}
