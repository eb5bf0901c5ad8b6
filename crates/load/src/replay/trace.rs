//! The requests, with their clients and times: a section of an access log, or one document at a constant
//! rate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lull_cc::Timestamp;
use lull_speculate::log::Entry;
use lull_speculate::observe::Kind;

use lull_emulator::random::Random;

/// A document, by its place in [`Trace::documents`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId(pub u32);

/// An object of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The target: path and query.
    pub target: String,
    /// Its length, the longest in the log; none if there was no answer.
    pub bytes: Option<u64>,
    /// A page, or a part of one.
    pub kind: Kind,
}

/// All documents, each once.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    list: Vec<Document>,
    by_target: BTreeMap<String, DocumentId>,
}

impl Documents {
    /// The number of a target, which is a new one if it is unknown.
    pub fn number(&mut self, target: &str) -> DocumentId {
        if let Some(known) = self.by_target.get(target) {
            return *known;
        }
        let id = DocumentId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        let path = target.split('?').next().unwrap_or(target);
        let kind = Kind::of(path);
        self.list.push(Document { target: target.to_owned(), bytes: None, kind });
        self.by_target.insert(target.to_owned(), id);
        id
    }

    /// A document.
    pub fn get(&self, id: DocumentId) -> &Document {
        &self.list[id.0 as usize]
    }

    /// All of them, by number.
    pub fn all(&self) -> &[Document] {
        &self.list
    }
}

/// A request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time since the replay began.
    pub due: Duration,
    /// The client, from 0.
    pub client: u32,
    /// The requested document.
    pub document: DocumentId,
    /// Whether it is the last one of the client's present page: the page itself, if it has no subresources.
    pub completes: bool,
}

/// The requests of a replay.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The documents.
    pub documents: Documents,
    /// The requests, in the order in which they are due.
    pub arrivals: Vec<Arrival>,
    /// How many clients there are.
    pub clients: u32,
    /// From the beginning of the section to its end.
    pub length: Duration,
    /// Whether clients cache responses. At a constant rate they request one document repeatedly, which must
    /// always reach the server.
    pub caching: bool,
}

/// Which part of a log is replayed, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    /// Its beginning, since the log's first request.
    pub begin: Duration,
    /// How long it is by the log's clock; to the end if none is given.
    pub length: Option<Duration>,
    /// How many times as fast it is replayed.
    pub speed: f64,
    /// Only this many clients, those with the most requests in the section.
    pub busiest: Option<u32>,
    /// This number of clients, among which those of the log are divided at random (Nice §6.1).
    pub spread_over: Option<u32>,
    /// The seed of that draw.
    pub seed: u64,
}

impl Default for Section {
    fn default() -> Self {
        Section {
            begin: Duration::ZERO,
            length: None,
            speed: 1.0,
            busiest: None,
            spread_over: None,
            seed: 1,
        }
    }
}

/// Requests later than this after a page are not part of its load.
const PAGE: Duration = Duration::from_secs(5);
/// Longer targets are not requested: servers reject them.
const MAX_TARGET_BYTES: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Logged {
    at: Timestamp,
    client: u32,
    document: DocumentId,
}

/// Takes a log, entry by entry.
#[derive(Clone, Debug)]
pub struct Reading {
    section: Section,
    /// Earlier or later dates are wrong.
    ends: Option<(Timestamp, Timestamp)>,
    first: Option<Timestamp>,
    last: Timestamp,
    documents: Documents,
    clients: BTreeMap<String, u32>,
    logged: Vec<Logged>,
    left_out: u64,
}

impl Reading {
    /// A reading of this section.
    pub fn new(section: Section) -> Self {
        Reading {
            section,
            ends: None,
            first: None,
            last: Timestamp::ZERO,
            documents: Documents::default(),
            clients: BTreeMap::new(),
            logged: Vec::new(),
            left_out: 0,
        }
    }

    /// The same for a log with a known beginning and end: otherwise a single line with a wrong date would
    /// move the section, or make it end in years.
    #[must_use]
    pub fn between(mut self, first: Timestamp, last: Timestamp) -> Self {
        (self.ends, self.first) = (Some((first, last)), Some(first));
        self
    }

    /// Takes the next entry. Returns whether it came before the section, so that a predictor trained on a
    /// split log knows the past part.
    pub fn take(&mut self, entry: &Entry<'_>) -> bool {
        if let Some((first, last)) = self.ends
            && !(first..=last).contains(&entry.at)
        {
            self.left_out += 1;
            return false;
        }
        let first = *self.first.get_or_insert(entry.at);
        self.last = self.last.max(entry.at);
        let since = entry.at.saturating_since(first);
        let is_past = since < self.section.begin;
        let Some(target) = target_of(entry) else {
            self.left_out += 1;
            return is_past;
        };
        let document = self.documents.number(target);
        if entry.status == 200 {
            let bytes = &mut self.documents.list[document.0 as usize].bytes;
            *bytes = Some(bytes.unwrap_or(0).max(entry.bytes.0));
        }
        let is_within =
            self.section.length.is_none_or(|length| since < self.section.begin + length);
        if !is_past && is_within {
            let count = u32::try_from(self.clients.len()).unwrap_or(u32::MAX);
            let client = *self.clients.entry(entry.client.to_string()).or_insert(count);
            self.logged.push(Logged { at: entry.at, client, document });
        }
        is_past
    }

    /// Entries that are not replayed: no `GET`, no answer with the object, prefetches, invalid targets, wrong
    /// dates.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The documents of the whole log.
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// The trace.
    pub fn finish(self) -> Trace {
        let section = self.section;
        let begin = self.first.unwrap_or(Timestamp::ZERO) + section.begin;
        let mut logged = self.logged;
        logged.sort_by_key(|one| one.at);
        let mut requests = u64_counts(&logged);
        if let Some(most) = section.busiest {
            let mut order: Vec<(u32, u64)> = requests.clone().into_iter().collect();
            order.sort_by_key(|(client, count)| (core::cmp::Reverse(*count), *client));
            order.truncate(most as usize);
            requests = order.into_iter().collect();
            logged.retain(|one| requests.contains_key(&one.client));
        }
        // Clients are numbered in the order of their numbers in the log, or drawn.
        let mut draw = Random::new(section.seed);
        let numbers: BTreeMap<u32, u32> = requests
            .keys()
            .zip(0..)
            .map(|(client, at)| match section.spread_over {
                Some(clients) => (*client, draw.below(clients.max(1) as usize) as u32),
                None => (*client, at),
            })
            .collect();
        let mut arrivals: Vec<Arrival> = spread(&logged, begin)
            .into_iter()
            .zip(&logged)
            .map(|(since, one)| Arrival {
                due: since.div_f64(section.speed),
                client: numbers[&one.client],
                document: one.document,
                completes: false,
            })
            .collect();
        arrivals.sort_by_key(|arrival| arrival.due);
        complete(&mut arrivals, &self.documents, PAGE.div_f64(section.speed));
        let rest = (self.last + SECOND).saturating_since(begin);
        // After the log's end there is nothing to replay.
        let length = section.length.map_or(rest, |length| length.min(rest)).div_f64(section.speed);
        Trace {
            documents: self.documents,
            clients: section.spread_over.unwrap_or(requests.len() as u32),
            arrivals,
            length,
            caching: true,
        }
    }
}

fn u64_counts(logged: &[Logged]) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    for one in logged {
        *counts.entry(one.client).or_insert(0) += 1;
    }
    counts
}

/// When each is due since the section's beginning. Most logs count in whole seconds; the requests of one
/// second are spread over it evenly, in order.
fn spread(logged: &[Logged], begin: Timestamp) -> Vec<Duration> {
    let mut times = Vec::with_capacity(logged.len());
    for same in logged.chunk_by(|a, b| a.at == b.at) {
        let since = same[0].at.saturating_since(begin);
        let is_whole = same[0].at.as_nanos().is_multiple_of(1_000_000_000);
        for at in 0..same.len() {
            let share = if is_whole { at as f64 / same.len() as f64 } else { 0.0 };
            times.push(since + SECOND.mul_f64(share));
        }
    }
    times
}

/// Marks the last request of each page.
fn complete(arrivals: &mut [Arrival], documents: &Documents, pause: Duration) {
    // The next request of the client, in a backward pass.
    let mut next: BTreeMap<u32, (Duration, Kind)> = BTreeMap::new();
    for arrival in arrivals.iter_mut().rev() {
        let kind = documents.get(arrival.document).kind;
        let follows = next.insert(arrival.client, (arrival.due, kind));
        arrival.completes = !follows.is_some_and(|(due, kind)| {
            kind == Kind::Embedded && due.saturating_sub(arrival.due) <= pause
        });
    }
}

/// The target of an entry, if it can be requested again.
fn target_of<'a>(entry: &'a Entry<'_>) -> Option<&'a str> {
    let target: &str = &entry.target;
    let target = target.split('#').next().unwrap_or(target);
    let is_plain = target.starts_with('/') && target.parse::<http::uri::PathAndQuery>().is_ok();
    let is_good = entry.method == "GET" && matches!(entry.status, 200 | 304) && !entry.prefetch;
    (is_plain && is_good && target.len() <= MAX_TARGET_BYTES).then_some(target)
}

impl Trace {
    /// One document at a constant rate, by clients in turn (SSR §5.2.3.1).
    pub fn constant(per_second: f64, length: Duration, clients: u32, target: &str) -> Self {
        let mut documents = Documents::default();
        let document = documents.number(target);
        // The requested target is a page, with any name.
        documents.list[0].kind = Kind::Page;
        let clients = clients.max(1);
        let count = (length.as_secs_f64() * per_second).floor() as u64;
        let arrivals = (0..count)
            .map(|at| Arrival {
                due: Duration::from_secs_f64(at as f64 / per_second),
                client: (at % u64::from(clients)) as u32,
                document,
                completes: true,
            })
            .collect();
        Trace { documents, arrivals, clients, length, caching: false }
    }

    /// How many requests could be hits with perfect prediction: those after a complete page of their client,
    /// for documents that it has not requested before.
    pub fn reachable(&self) -> u64 {
        #[derive(Default)]
        struct Past {
            has_page: bool,
            has_loaded: bool,
            asked: BTreeSet<DocumentId>,
        }
        if !self.caching {
            return 0;
        }
        let mut clients: BTreeMap<u32, Past> = BTreeMap::new();
        let mut count = 0;
        for arrival in &self.arrivals {
            let past = clients.entry(arrival.client).or_default();
            let is_new = past.asked.insert(arrival.document);
            count += u64::from(is_new && past.has_loaded);
            past.has_page |= self.documents.get(arrival.document).kind == Kind::Page;
            past.has_loaded |= past.has_page && arrival.completes;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000_000 + second * 1_000_000_000)
    }

    fn read(section: Section, entries: &[(u64, &str, &str)]) -> Trace {
        let mut reading = Reading::new(section);
        for (second, client, target) in entries {
            reading.take(&Entry::page(at(*second), *client, *target));
        }
        reading.finish()
    }

    #[test]
    fn section_is_no_longer_than_the_rest_of_the_log() {
        for (length, expected) in [(None, 11), (Some(5), 5), (Some(11), 11), (Some(1_000), 11)] {
            let section = Section {
                begin: Duration::from_secs(20),
                length: length.map(Duration::from_secs),
                speed: 2.0,
                ..Section::default()
            };
            let trace = read(section, &[(0, "a", "/"), (22, "a", "/b"), (30, "a", "/c")]);
            assert_eq!(trace.length, Duration::from_secs(expected) / 2);
        }
    }

    #[test]
    fn wrong_date_moves_no_section() {
        let section = Section { begin: Duration::from_secs(10), ..Section::default() };
        let mut reading = Reading::new(section).between(at(0), at(30));
        let mut is_past = Vec::new();
        for (second, client) in [(0, "a"), (900_000_000, "b"), (20, "c"), (30, "d")] {
            is_past.push(reading.take(&Entry::page(at(second), client, "/")));
        }
        let before = Entry::page(Timestamp::ZERO, "e", "/");
        is_past.push(reading.take(&before));
        assert_eq!(is_past, [true, false, false, false, false]);
        assert_eq!(reading.left_out(), 2);
        let trace = reading.finish();
        assert_eq!(shown(&trace), [(10_000, 0, "/", true), (20_000, 1, "/", true)]);
        assert_eq!(trace.length, Duration::from_secs(21));
    }

    fn shown(trace: &Trace) -> Vec<(u64, u32, &str, bool)> {
        let one = |arrival: &Arrival| {
            let document = trace.documents.get(arrival.document);
            let millis = arrival.due.as_millis() as u64;
            (millis, arrival.client, document.target.as_str(), arrival.completes)
        };
        trace.arrivals.iter().map(one).collect()
    }

    #[test]
    fn requests_of_one_second_are_spread_and_pages_kept_whole() {
        let trace = read(
            Section::default(),
            &[
                (0, "a", "/"),
                (1, "a", "/x.gif"),
                (1, "b", "/"),
                (3, "a", "/y.gif"),
                (9, "a", "/z.gif"),
                (10, "a", "/next"),
            ],
        );
        assert_eq!(
            shown(&trace),
            [
                (0, 0, "/", false),
                (1000, 0, "/x.gif", false),
                (1500, 1, "/", true),
                // Six seconds later it is no longer part of the page.
                (3000, 0, "/y.gif", true),
                (9000, 0, "/z.gif", true),
                (10_000, 0, "/next", true),
            ]
        );
        assert_eq!((trace.clients, trace.length), (2, Duration::from_secs(11)));
    }

    #[test]
    fn first_request_after_a_loaded_page_is_prefetchable() {
        let trace = read(
            Section::default(),
            &[
                // In no page: no client could ask for hints so far.
                (0, "a", "/x.gif"),
                (10, "a", "/"),
                (11, "a", "/y.gif"),
                (20, "a", "/next"),
                (21, "a", "/y.gif"),
                (21, "a", "/z.gif"),
                (22, "b", "/next"),
                (30, "a", "/"),
            ],
        );
        // The next page of a, and its new subresources.
        assert_eq!(trace.reachable(), 2);
        assert_eq!(Trace::constant(4.0, Duration::from_secs(1), 1, "/").reachable(), 0);
    }

    #[test]
    fn section_has_its_own_clients_and_clock() {
        let entries = [(0, "a", "/1"), (10, "b", "/2"), (12, "c", "/3"), (14, "b", "/4")];
        let entries = [&entries[..], &[(20, "d", "/5")]].concat();
        let section = Section {
            begin: Duration::from_secs(10),
            length: Some(Duration::from_secs(10)),
            speed: 2.0,
            ..Section::default()
        };
        let trace = read(section, &entries);
        assert_eq!(
            shown(&trace),
            [(0, 0, "/2", true), (1000, 1, "/3", true), (2000, 0, "/4", true)]
        );
        assert_eq!(trace.length, Duration::from_secs(5));
        let trace = read(Section { busiest: Some(1), ..section }, &entries);
        assert_eq!(shown(&trace), [(0, 0, "/2", true), (2000, 0, "/4", true)]);
        assert_eq!(trace.clients, 1);
    }

    #[test]
    fn unrepeatable_requests_are_left_out_and_counted() {
        let mut reading = Reading::new(Section::default());
        let good = Entry::page(at(0), "a", "/a?b#c");
        for (entry, left_out) in [
            (good.clone(), 0),
            (Entry { method: "POST".into(), ..good.clone() }, 1),
            (Entry { status: 404, ..good.clone() }, 2),
            (Entry { prefetch: true, ..good.clone() }, 3),
            (Entry { target: "/a b".into(), ..good.clone() }, 4),
            (Entry { target: "http://elsewhere/".into(), ..good.clone() }, 5),
            (Entry { target: format!("/{}", "x".repeat(2000)).into(), ..good.clone() }, 6),
            (Entry { status: 304, bytes: Bytes(0), ..good.clone() }, 6),
        ] {
            assert!(!reading.take(&entry));
            assert_eq!(reading.left_out(), left_out, "{entry:?}");
        }
        let trace = reading.finish();
        assert_eq!(trace.arrivals.len(), 2);
        let bytes = Some(1000);
        let expected = Document { target: "/a?b".into(), bytes, kind: Kind::Page };
        assert_eq!(trace.documents.all(), [expected]);
    }

    #[test]
    fn constant_rate_is_constant() {
        let trace = Trace::constant(4.0, Duration::from_secs(1), 3, "/logo.gif");
        assert_eq!(
            shown(&trace),
            [
                (0, 0, "/logo.gif", true),
                (250, 1, "/logo.gif", true),
                (500, 2, "/logo.gif", true),
                (750, 0, "/logo.gif", true)
            ]
        );
        assert!(!trace.caching);
    }

    proptest! {
        #[test]
        fn each_request_is_due_once_and_in_order(
            entries in proptest::collection::vec((0u64..60, 0u8..6, 0u8..8), 0..80),
            spread_over in proptest::option::of(1u32..4),
            speed in 0.5f64..8.0,
        ) {
            let mut entries = entries;
            entries.sort_by_key(|(second, ..)| *second);
            let mut reading = Reading::new(Section { spread_over, speed, ..Section::default() });
            for (second, client, target) in &entries {
                let ending = if target % 2 == 0 { "html" } else { "gif" };
                let target = format!("/{target}.{ending}");
                reading.take(&Entry::page(at(*second), format!("c{client}"), target));
            }
            let trace = reading.finish();
            prop_assert_eq!(trace.arrivals.len(), entries.len());
            prop_assert!(trace.arrivals.is_sorted_by_key(|arrival| arrival.due));
            prop_assert!(trace.arrivals.iter().all(|one| one.client < trace.clients.max(1)));
            prop_assert!(trace.arrivals.iter().all(|one| one.due <= trace.length));
            // A page with its subresources is completed once: each page has its own completion before the
            // same client's next page.
            for client in 0..trace.clients {
                let own = trace.arrivals.iter().filter(|one| one.client == client);
                let mut open = false;
                for arrival in own {
                    if trace.documents.get(arrival.document).kind == Kind::Page {
                        prop_assert!(!open);
                        open = true;
                    }
                    open &= !arrival.completes;
                }
                prop_assert!(!open);
            }
        }
    }
}
