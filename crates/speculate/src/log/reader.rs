//! Finds out how a log is written, reads its lines, and counts those that it cannot read.

use std::collections::BTreeMap;

use core::net::IpAddr;

use super::{Entry, Format, LONGEST_LINE, LineError, common, extended, json, name_of_site};

/// Lines of one log that could not be read for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLines {
    /// How many.
    pub count: u64,
    /// The number of the first, from 1.
    pub first: u64,
    /// The beginning of the first, with addresses blotted out.
    pub sample: String,
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
    format: Format,
    fields: extended::Fields,
    lines: u64,
    entries: u64,
    sites: BTreeMap<Box<str>, u64>,
    bad: BTreeMap<LineError, BadLines>,
}

/// Sites that are counted: clients may make up names.
const MOST_SITES: usize = 64;
/// Lines that are looked at to find out the format: so many that a head of damaged ones, or of
/// directives, does not decide.
const LOOKED_AT: usize = 64;
/// And where none of these can be read, so many: a log may begin with what a program said at its start.
const LOOKED_AT_MOST: usize = 10_000;
/// Characters of a bad line that are kept.
const SAMPLE: usize = 160;
/// Stands for an address.
const BLOT: &str = "(address)";

impl Reader {
    /// A reader for a log whose format is known.
    pub fn new(format: Format) -> Self {
        Reader {
            format,
            fields: extended::Fields::default(),
            lines: 0,
            entries: 0,
            sites: BTreeMap::new(),
            bad: BTreeMap::new(),
        }
    }

    /// A reader for a log that begins with `lines`, of which it looks at the first 64 that are not
    /// empty: the format that reads most of them. If no format reads any of these, that of the first of
    /// 10,000 lines that can be read; else none.
    pub fn detect<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut fields = extended::Fields::default();
        let mut votes: BTreeMap<Format, usize> = BTreeMap::new();
        let lines = lines.into_iter().filter(|line| !line.trim_ascii().is_empty());
        for (at, line) in lines.take(LOOKED_AT_MOST).enumerate() {
            if at >= LOOKED_AT && !votes.is_empty() {
                break;
            }
            let Ok(text) = text(line) else { continue };
            let format = if text.starts_with('#') {
                extended::directive(text, &mut fields);
                continue;
            } else if text.starts_with('{') {
                json::parse(text).ok().map(|(_, format)| format)
            } else if let Ok(entry) = common::parse(text) {
                Some(if entry.agent.is_some() { Format::Combined } else { Format::Common })
            } else {
                extended::parse(text, &fields).ok().map(|_| Format::Extended)
            };
            if let Some(format) = format {
                *votes.entry(format).or_default() += 1;
            }
        }
        // Of equally many the first in the order of `Format`, so that the answer is always the same.
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(format, _)| Reader::new(format))
    }

    /// How the log is written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Lines so far, with empty ones and directives.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Requests so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// How many requests so far were of each site, where the log names them. Of the first 64.
    pub fn sites(&self) -> impl Iterator<Item = (&str, u64)> {
        self.sites.iter().map(|(site, count)| (&**site, *count))
    }

    /// The lines that could not be read so far, by reason.
    pub fn bad(&self) -> &BTreeMap<LineError, BadLines> {
        &self.bad
    }

    /// Reads the next line, without its end. None if it holds no request, because it is empty or a
    /// directive, or because it is bad; that is counted.
    pub fn read<'a>(&mut self, line: &'a [u8]) -> Option<Entry<'a>> {
        self.try_read(line).ok().flatten()
    }

    /// The same, for whoever wants to stop at a bad line.
    ///
    /// # Errors
    /// Why it is none of the log. It is counted all the same.
    pub fn try_read<'a>(&mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, LineError> {
        self.lines += 1;
        match self.parse(line) {
            Ok(entry) => {
                self.entries += u64::from(entry.is_some());
                if let Some(site) = entry.as_ref().and_then(|entry| entry.site.as_deref()) {
                    self.note_site(site);
                }
                Ok(entry)
            }
            Err(error) => {
                let first = self.lines;
                let bad = self.bad.entry(error).or_insert_with(|| BadLines {
                    count: 0,
                    first,
                    sample: sample(line, self.format),
                });
                bad.count += 1;
                Err(error)
            }
        }
    }

    fn note_site(&mut self, site: &str) {
        let name = name_of_site(site);
        if let Some(count) = self.sites.get_mut(name) {
            *count += 1;
        } else if self.sites.len() < MOST_SITES {
            self.sites.insert(name.into(), 1);
        }
    }

    fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, LineError> {
        let text = text(line)?;
        if text.is_empty() {
            return Ok(None);
        }
        match self.format {
            Format::Common | Format::Combined => common::parse(text).map(Some),
            Format::Extended if text.starts_with('#') => {
                extended::directive(text, &mut self.fields);
                Ok(None)
            }
            Format::Extended => extended::parse(text, &self.fields).map(Some),
            Format::JsonLines | Format::Caddy => json::parse(text).map(|(entry, _)| Some(entry)),
        }
    }
}

fn text(line: &[u8]) -> Result<&str, LineError> {
    if line.len() > LONGEST_LINE {
        return Err(LineError::TooLong);
    }
    core::str::from_utf8(line).map(str::trim).map_err(|_| LineError::NotUtf8)
}

/// The beginning of a bad line for whoever looks for what is wrong with it, without the addresses:
/// words that are one, and the first word where the format has the client there, who may have a
/// name; the second too, where the first is a site.
fn sample(line: &[u8], format: Format) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * SAMPLE)]);
    let text = text.trim();
    let client_first = matches!(format, Format::Common | Format::Combined);
    let is_border = |c: char| c.is_whitespace() || "\"'[](){},;=".contains(c);
    let mut sample = String::new();
    let mut is_behind_site = false;
    for (at, piece) in text.split_inclusive(is_border).enumerate() {
        let word = piece.trim_end_matches(is_border);
        let is_client = client_first && (at == 0 || at == 1 && is_behind_site);
        let is_client = is_client && word.len() < text.len();
        is_behind_site = at == 0 && common::is_site(word);
        if is_client || is_address(word) {
            sample.push_str(BLOT);
            sample.push_str(&piece[word.len()..]);
        } else {
            sample.push_str(piece);
        }
        if sample.len() > SAMPLE {
            break;
        }
    }
    sample.chars().take(SAMPLE).collect()
}

/// An address, with or without a port.
fn is_address(word: &str) -> bool {
    let host = word.rsplit_once(':').map_or(word, |(host, _)| host);
    word.parse::<IpAddr>().is_ok() || host.parse::<IpAddr>().is_ok()
}
