//! What was in an access log, for who wants to know why so little is learned from it.

use lull_speculate::log::{BadLines, LineError, Reader};
use serde_json::{Value, json};

/// What is said of what is no log.
pub(super) const FOREIGN: &str = "no line of an access log that is known";

/// What was in a log.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(super) name: String,
    pub(super) what: What,
    /// Requests of other sites, which were left out.
    pub(super) others: u64,
    /// Whether only those of some sites were wanted.
    pub(super) is_of_some: bool,
}

/// What came of reading it.
#[derive(Debug)]
pub(super) enum What {
    Nothing,
    /// Of so many lines at its beginning none is a log's.
    Foreign {
        lines: usize,
    },
    Log(Reader),
}

/// What was in logs, for programs that can leave sites out.
pub(super) fn text(all: &[Contents]) -> String {
    let mut text: String = all.iter().map(Contents::text).collect();
    if all.iter().any(|one| one.several_sites().is_some()) {
        text += "--site NAME leaves the other sites out\n";
    }
    text
}

impl Contents {
    /// The requests that were read.
    pub(crate) fn entries(&self) -> u64 {
        self.reader().map_or(0, Reader::entries)
    }

    /// The sites that it is of, if these are several and nobody said which are meant: what is learned from one
    /// would be suggested on the others. Clients make names up, so one of a twentieth of the requests counts.
    pub(crate) fn several_sites(&self) -> Option<String> {
        let reader = self.reader().filter(|_| !self.is_of_some)?;
        let often = |count: u64| count >= reader.entries().div_ceil(20);
        let sites = reader.sites().filter(|(_, count)| often(*count));
        let sites: Vec<String> =
            sites.map(|(site, count)| format!("{} ({count})", super::plain(site))).collect();
        (sites.len() > 1).then(|| format!("of several sites: {}", sites.join(", ")))
    }

    fn reader(&self) -> Option<&Reader> {
        match &self.what {
            What::Log(reader) => Some(reader),
            What::Nothing | What::Foreign { .. } => None,
        }
    }

    /// What could not be read of it, with the reason of most of that and a line for an example.
    pub(crate) fn unread(&self) -> Option<String> {
        if let What::Foreign { .. } = self.what {
            return Some(format!("{} has {FOREIGN}", self.name));
        }
        let bad = self.reader()?.bad();
        let count = bad.values().map(|bad| bad.count).sum();
        // The first of those with equally many.
        let (why, most) = bad.iter().rev().max_by_key(|(_, bad)| bad.count)?;
        Some(format!(
            "{} has {}, most of them as line {}: {why}: {}",
            self.name,
            super::count(count, "line that cannot be read", "lines that cannot be read"),
            most.first,
            super::plain(&most.sample)
        ))
    }

    pub(crate) fn json(&self) -> Value {
        let Some(reader) = self.reader() else {
            let bad = match self.what {
                What::Foreign { lines } => json!([{ "reason": FOREIGN, "lines": lines }]),
                _ => json!([]),
            };
            return json!({
                "log": self.name,
                "format": null,
                "lines": 0,
                "requests": 0,
                "of_other_sites": 0,
                "bad": bad,
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
            "of_other_sites": self.others,
            "bad": reader.bad().iter().map(bad).collect::<Vec<Value>>(),
        })
    }

    pub(crate) fn text(&self) -> String {
        let reader = match &self.what {
            What::Log(reader) => reader,
            What::Nothing => return format!("{}: empty\n", self.name),
            What::Foreign { .. } => return format!("{}: {FOREIGN}\n", self.name),
        };
        let mut text = format!(
            "{}: {}, {}, {}\n",
            self.name,
            reader.shape(),
            super::count(reader.lines(), "line", "lines"),
            super::count(reader.entries(), "request", "requests"),
        );
        if let Some(sites) = self.several_sites() {
            text += &format!("  {sites}\n");
        }
        if self.others > 0 {
            let requests = super::count(self.others, "request", "requests");
            text += &format!("  {requests} of other sites: left out\n");
        }
        for (why, bad) in reader.bad() {
            text += &format!(
                "  {}: {why}; line {}: {}\n",
                super::count(bad.count, "bad line", "bad lines"),
                bad.first,
                super::plain(&bad.sample)
            );
        }
        text
    }
}
