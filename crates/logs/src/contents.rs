//! The contents of an access log, and why it has few usable lines, if so.

use lull_speculate::log::{BadLines, LineError, Part, Reader};
use serde_json::{Value, json};

/// The message about a file that is not a log.
const FOREIGN: &str = "no usable line";

/// From this number of requests on, a single address for all of them is strange.
const MANY: u64 = 20;

/// The contents of a log.
#[derive(Debug)]
pub struct Contents {
    /// The name of the log, as messages show it.
    pub name: String,
    pub(super) what: ReadResult,
    /// Why the rest could not be unpacked.
    pub(super) damage: Option<String>,
    /// Requests of other sites, which were left out.
    pub(super) others: u64,
    /// Whether only some sites were wanted.
    pub(super) is_of_some: bool,
}

/// The result of reading it.
#[derive(Debug)]
pub(super) enum ReadResult {
    Nothing,
    /// No line at its beginning belongs to a log. The reader has counted the reasons.
    Foreign(Box<Reader>),
    /// An archive, or an unsupported compression.
    Other {
        is: &'static str,
        command: &'static str,
    },
    Log(Box<Reader>),
}

/// The contents of logs, for programs that can leave sites out.
pub fn text(all: &[Contents]) -> String {
    let mut text: String = all.iter().map(Contents::text).collect();
    if all.iter().any(|one| one.several_sites().is_some()) {
        text += "--site NAME skips the other sites\n";
    }
    text
}

impl Contents {
    /// The requests that were read.
    pub fn entries(&self) -> u64 {
        self.reader().map_or(0, Reader::entries)
    }

    /// The sites of the log, if there are several and none was selected: knowledge from one would be
    /// suggested on the others. Clients invent names, so only a site with a twentieth of the requests counts.
    pub fn several_sites(&self) -> Option<String> {
        let reader = self.reader().filter(|_| !self.is_of_some)?;
        let often = |count: u64| count >= reader.entries().div_ceil(20);
        let sites = reader.sites().filter(|(_, count)| often(*count));
        let sites: Vec<String> =
            sites.map(|(site, count)| format!("{} ({count})", crate::text::plain(site))).collect();
        (sites.len() > 1).then(|| format!("of several sites: {}", sites.join(", ")))
    }

    fn reader(&self) -> Option<&Reader> {
        match &self.what {
            ReadResult::Log(reader) => Some(reader),
            ReadResult::Nothing | ReadResult::Foreign(_) | ReadResult::Other { .. } => None,
        }
    }

    /// Why it could not be read at all, on one line: the reason of most lines, one of them, and the remedy.
    /// None if it is empty, or some of it was read.
    pub fn refusal(&self) -> Option<String> {
        let name = &self.name;
        let reader = match &self.what {
            ReadResult::Log(reader) if reader.entries() == 0 => reader,
            ReadResult::Foreign(reader) => reader,
            ReadResult::Other { is, command } => {
                return Some(format!(
                    "{name} is {is}: run '{command} {name} | lull predict ... -'"
                ));
            }
            ReadResult::Nothing => {
                let damage = self.damage.as_ref()?;
                return Some(format!("{name} cannot be unpacked ({damage}): copy it again"));
            }
            ReadResult::Log(_) => return None,
        };
        let Some((why, bad)) = most_of(reader) else {
            return Some(format!("{name} has {FOREIGN}: {}", remedy(LineError::NoFields)));
        };
        let (first, sample) = (bad.first, crate::text::plain(&bad.sample));
        Some(format!("{name} has {FOREIGN}: {why}, as in line {first}: {sample}: {}", remedy(*why)))
    }

    /// The unreadable lines, with the reason of most of them and an example.
    pub fn unread(&self) -> Option<String> {
        if let Some(refusal) = self.refusal() {
            return Some(refusal);
        }
        let reader = self.reader()?;
        if let Some(note) = self.notes().into_iter().next() {
            return Some(format!("{}: {note}", self.name));
        }
        let count = reader.bad().values().map(|bad| bad.count).sum();
        let (why, most) = most_of(reader)?;
        Some(format!(
            "{} has {}, most of them as line {}: {why}: {}",
            self.name,
            crate::text::count(count, "line that cannot be read", "lines that cannot be read"),
            most.first,
            crate::text::plain(&most.sample)
        ))
    }

    /// Further notes about a log that was read.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let Some(reader) = self.reader() else { return notes };
        if let Some(damage) = &self.damage {
            notes.push(format!(
                "damaged after line {} ({damage}): the lines before it were read; copy the file \
                 again for the rest",
                reader.lines()
            ));
        }
        if reader.entries() >= MANY && reader.has_one_client() {
            notes.push(format!(
                "all {} requests come from one address, so nothing becomes public: is it a proxy? Log \
                 X-Forwarded-For, and use --trusted-proxy or --client-field",
                reader.entries()
            ));
        }
        notes
    }

    /// The contents as JSON.
    pub fn json(&self) -> Value {
        let Some(reader) = self.reader() else {
            let bad = match &self.what {
                ReadResult::Foreign(reader) => json!([{
                    "reason": most_of(reader).map_or(FOREIGN.to_owned(), |(why, _)| why.to_string()),
                    "lines": reader.lines(),
                }]),
                ReadResult::Other { is, .. } => json!([{ "reason": is }]),
                _ => json!([]),
            };
            return json!({
                "log": self.name,
                "format": null,
                "lines": 0,
                "requests": 0,
                "of_other_sites": 0,
                "bad": bad,
                "damage": self.damage,
            });
        };
        let bad = |(why, bad): (&LineError, &BadLines)| {
            json!({
                "reason": why.to_string(),
                "lines": bad.count,
                "first": bad.first,
                "sample": bad.sample,
            })
        };
        json!({
            "log": self.name,
            "format": reader.shape().to_string(),
            "lines": reader.lines(),
            "requests": reader.entries(),
            "one_client": reader.has_one_client(),
            "of_other_sites": self.others,
            "bad": reader.bad().iter().map(bad).collect::<Vec<Value>>(),
            "damage": self.damage,
        })
    }

    /// The contents as lines of text.
    pub fn text(&self) -> String {
        let reader = match &self.what {
            ReadResult::Log(reader) => reader,
            ReadResult::Nothing if self.damage.is_none() => {
                return format!("{}: empty\n", self.name);
            }
            _ => return format!("{}\n", self.refusal().unwrap_or_default()),
        };
        let mut text = format!(
            "{}: {}, {}, {}\n",
            self.name,
            reader.shape(),
            crate::text::count(reader.lines(), "line", "lines"),
            crate::text::count(reader.entries(), "request", "requests"),
        );
        if let Some(sites) = self.several_sites() {
            text += &format!("  {sites}\n");
        }
        if self.others > 0 {
            let requests = crate::text::count(self.others, "request", "requests");
            text += &format!("  {requests} of other sites: skipped\n");
        }
        for note in self.notes() {
            text += &format!("  {note}\n");
        }
        for (why, bad) in reader.bad() {
            text += &format!(
                "  {}: {why}; line {}: {}\n",
                crate::text::count(bad.count, "bad line", "bad lines"),
                bad.first,
                crate::text::plain(&bad.sample)
            );
        }
        text
    }
}

/// The reason of most lines that could not be read, and those lines. Of equal ones the first.
fn most_of(reader: &Reader) -> Option<(&LineError, &BadLines)> {
    reader.bad().iter().rev().max_by_key(|(_, bad)| bad.count)
}

/// The remedy for unreadable lines.
fn remedy(why: LineError) -> &'static str {
    match why {
        LineError::Proxied => {
            "name your proxies with --trusted-proxy ADDRESS; if X-Forwarded-For has one address that your proxy \
             wrote, --client-field x-forwarded-for takes it"
        }
        LineError::Internal => {
            "log X-Forwarded-For, and use --trusted-proxy ADDRESS or --client-field FIELD; if your visitors have \
             such addresses, use --client-field client"
        }
        LineError::OneOff => "name the field of the client's address with --client-field FIELD",
        LineError::Missing(Part::Date | Part::Status) => {
            "log date, client, request and status of each request in one line, and describe how with --format if \
             Lull does not know the format (lull predict train --help)"
        }
        LineError::Shape => "change --format so that it matches the line",
        LineError::NotText => "unpack or convert it first",
        LineError::NoFields | LineError::Columns => {
            "the #Fields line above the requests must name their columns"
        }
        _ => "describe its format with --format (lull predict train --help has examples)",
    }
}
