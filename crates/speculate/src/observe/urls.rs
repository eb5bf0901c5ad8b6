//! URLs as numbers, and the knowledge about each.

use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use lull_cc::{Bytes, Timestamp};

use super::client::Origin;
use super::decay::{Decay, SCALE};
use super::evidence::Evidence;
use super::limits::{Limits, MAX_PATH_BYTES, PLACE_BITS};
use crate::encoding::{ReadError, Sink, Source};
use crate::table::{Entry, Table, mix};

/// A URL's number. The number of an evicted URL names nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrlId(NonZeroU32);

impl UrlId {
    fn new(generation: u8, place: u32) -> Self {
        // One more than the bits, so that an optional number takes no more room than a number. The last place
        // of the table stays empty, so it never overflows.
        UrlId(NonZeroU32::MIN.saturating_add(u32::from(generation) << PLACE_BITS | place))
    }

    fn place(self) -> u32 {
        (self.0.get() - 1) & PLACE
    }

    fn generation(self) -> u32 {
        (self.0.get() - 1) >> PLACE_BITS
    }

    /// As a number without meaning.
    pub(crate) fn raw(self) -> u32 {
        self.0.get()
    }

    /// The same number again; none if there is no such number.
    pub(crate) fn from_raw(raw: u32) -> Option<Self> {
        NonZeroU32::new(raw).map(UrlId)
    }
}

const PLACE: u32 = (1 << PLACE_BITS) - 1;

/// The role of a URL in a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A URL that visitors go to. The contexts of predictors are made of pages.
    Page,
    /// A part of a page. Nice §6.1 sets images apart; pages of today have style sheets, scripts and fonts by
    /// the dozen, which are just as little evidence of a visitor's place.
    Embedded,
}

/// Endings of parts of pages. Sound, films and archives are followed like pages.
const EMBEDDED: &[&str] = &[
    "gif", "jpg", "jpeg", "png", "webp", "avif", "svg", "ico", "bmp", "xbm", "css", "js", "mjs",
    "woff", "woff2", "ttf", "otf", "eot", "map", "wasm",
];

impl Kind {
    /// The kind of the URL with this path, by its ending. A query does not affect it.
    pub fn of(path: &str) -> Self {
        let path = path.split('?').next().unwrap_or(path);
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_embedded = name.rsplit_once('.').is_some_and(|(_, ending)| {
            EMBEDDED.iter().any(|embedded| ending.eq_ignore_ascii_case(embedded))
        });
        if is_embedded { Kind::Embedded } else { Kind::Page }
    }
}

#[derive(Clone, Debug)]
struct Url {
    path: Box<str>,
    hash: u64,
    /// Visits, decayed: the demand for it. Above 2^24 an `f32` could not count a further one.
    visits: f64,
    /// Requests, decayed, including those that are not visits: the value of keeping it. A page visited only
    /// with a query counts by the requests that follow it.
    weight: f32,
    bytes: u32,
    micros: u32,
    evidence: Evidence,
    generation: u8,
    kind: Kind,
}

impl Url {
    /// Notes a server time in microseconds.
    fn note_time(&mut self, micros: u32) {
        let before = if self.micros == 0 { micros } else { self.micros };
        self.micros = (before - before / 8).saturating_add(micros / 8).max(1);
    }
}

impl Entry for Url {
    type Worth = f32;

    fn hash(&self) -> u64 {
        self.hash
    }

    fn worth(&self) -> f32 {
        self.weight
    }
}

/// A URL is suggested only if this many distinct clients got it publicly: with fewer it may be personal, such
/// as a link in a mail. An extension: the papers suggest everything in the log.
pub const DISTINCT_CLIENTS: u32 = 5;

/// The bytes of a request beside its body: its own head and that of the answer. So every object has a cost.
const OVERHEAD: u64 = 500;

/// The network's share of the latency: one round trip of a usual path, and the rate of such a path, 10
/// Mbit/s. An extension: SSR §3.1.1 leaves open how benefit and cost are weighed.
const USUAL_LATENCY: Duration = Duration::from_millis(100);
const USUAL_NANOS_PER_BYTE: u64 = 800;

/// Browsers load a page's subresources over six connections at a time (as Chromium and Firefox do with
/// HTTP/1.1). So waiting for one of them delays the page by a sixth of that. An extension, too.
const AT_A_TIME: f32 = 6.0;

/// All known URLs, up to a limit.
#[derive(Clone, Debug)]
pub struct Urls {
    table: Table<Url>,
    decay: Decay,
    path_bytes: u64,
    most_path_bytes: u64,
    /// Changes that other models have not got yet; none if the model is not shared.
    changed: Option<BTreeMap<UrlId, Requests>>,
}

/// Requests for a URL, not decayed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Requests {
    pub(crate) requests: u32,
    pub(crate) visits: u32,
}

/// Another model's report of a URL.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UrlChange {
    pub(crate) path: Box<str>,
    pub(crate) requests: Requests,
    pub(crate) bytes: u32,
    pub(crate) micros: u32,
    pub(crate) evidence: Evidence,
}

/// The part of an answer that is evidence about the URL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) at: Timestamp,
    /// Its length, if it was sent whole.
    pub(super) bytes: Option<u64>,
    pub(super) took: Option<Duration>,
    /// The client that got it, if it was public.
    pub(super) public: Option<Origin>,
}

impl Urls {
    /// # Panics
    /// If the half-life is under a second, or there is room for no URL.
    pub(super) fn new(limits: &Limits) -> Self {
        Urls {
            table: Table::new(limits.urls),
            decay: Decay::new(limits.half_life),
            path_bytes: 0,
            most_path_bytes: limits.path_bytes.0,
            changed: None,
        }
    }

    /// Notes an answer, and returns the number and the kind of its URL; none if there is no room.
    pub(super) fn record(
        &mut self,
        path: &str,
        hash: u64,
        answer: Answer,
    ) -> Option<(UrlId, Kind)> {
        let counts = self.event(answer.at);
        let place = match self.table.find(hash, |url| &*url.path == path) {
            Some(place) => place,
            None => self.enter(path, hash)?,
        };
        let url = self.table.get_mut(place);
        url.weight += counts;
        if let Some(bytes) = answer.bytes {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            // A truncated answer looks shorter than it is; a length that really became shorter is believed
            // after some more requests.
            url.bytes =
                if bytes >= url.bytes { bytes } else { url.bytes - (url.bytes - bytes) / 8 };
        }
        if let Some(took) = answer.took {
            url.note_time(u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1));
        }
        if let Some(origin) = answer.public {
            url.evidence.got(mix(origin.0 ^ url.hash));
        }
        let (id, kind) = (UrlId::new(url.generation, place), url.kind);
        self.change(id, Requests { requests: 1, visits: 0 });
        Some((id, kind))
    }

    /// The weight of an event at a time, once the counts are prepared for it.
    fn event(&mut self, at: Timestamp) -> f32 {
        let (counts, scale) = self.decay.event(at);
        if scale {
            self.table.entries_mut().for_each(|url| {
                url.weight *= SCALE;
                url.visits *= f64::from(SCALE);
            });
        }
        counts
    }

    /// Remembers that other models must get this.
    fn change(&mut self, id: UrlId, more: Requests) {
        if let Some(changed) = &mut self.changed {
            let one = changed.entry(id).or_default();
            one.requests = one.requests.saturating_add(more.requests);
            one.visits = one.visits.saturating_add(more.visits);
        }
    }

    /// From now on changes are remembered for other models.
    pub(crate) fn share(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// Takes the change of a URL, whether or not there is one; none if the URL has made room.
    pub(crate) fn take_change(&mut self, id: UrlId) -> Option<UrlChange> {
        let requests = self.changed.as_mut()?.remove(&id).unwrap_or_default();
        let Url { path, bytes, micros, evidence, .. } = self.get(id)?;
        let path = path.clone();
        Some(UrlChange { path, requests, bytes: *bytes, micros: *micros, evidence: *evidence })
    }

    /// A URL with changes that were not taken.
    pub(crate) fn changed(&self) -> Option<UrlId> {
        Some(*self.changed.as_ref()?.first_key_value()?.0)
    }

    /// Adds the change of another model, and returns the number of its URL; none if there is no room.
    pub(super) fn merge(&mut self, change: &UrlChange, hash: u64, at: Timestamp) -> Option<UrlId> {
        let counts = self.event(at);
        let place = match self.table.find(hash, |url| url.path == change.path) {
            Some(place) => place,
            None => self.enter(&change.path, hash)?,
        };
        let url = self.table.get_mut(place);
        url.weight = (url.weight + counts * change.requests.requests as f32).min(f32::MAX);
        url.visits += f64::from(counts) * f64::from(change.requests.visits);
        if change.requests.requests > 0 && change.bytes > 0 {
            url.bytes = change.bytes;
        }
        if change.requests.requests > 0 && change.micros > 0 {
            url.note_time(change.micros);
        }
        url.evidence.join(change.evidence);
        Some(UrlId::new(url.generation, place))
    }

    /// The classes of a client that follows this URL to another one: by the text of the URL, so that models
    /// with the same key use the same classes.
    pub(crate) fn follower_class(&self, id: UrlId, origin: Origin) -> u16 {
        let hash = self.get(id).map_or(0, |url| url.hash);
        1 << (mix(origin.0.rotate_left(32) ^ hash) % 16)
    }

    /// Counts a visit, of the time of the latest answer.
    pub(super) fn visit(&mut self, id: UrlId, at: Timestamp) {
        let counts = self.decay.at(at);
        if self.get(id).is_some() {
            self.table.get_mut(id.place()).visits += f64::from(counts);
            self.change(id, Requests { requests: 0, visits: 1 });
        }
    }

    /// The URL was private, or is gone: earlier clients do not count any more.
    pub(super) fn bar(&mut self, path: &str, hash: u64, now: Timestamp) {
        if let Some(id) = self.find(path, hash) {
            self.table.get_mut(id.place()).evidence.bar(now);
            self.change(id, Requests::default());
        }
    }

    /// A client was rejected, which got it `before` or not. One visitor may be banned and request everything;
    /// two, or one that was accepted before, were not.
    pub(super) fn refuse(
        &mut self,
        path: &str,
        hash: u64,
        origin: Origin,
        now: Timestamp,
        before: impl Fn(UrlId) -> bool,
    ) {
        let Some(id) = self.find(path, hash) else { return };
        let url = self.table.get_mut(id.place());
        if url.evidence.refuse(mix(origin.0 ^ url.hash)) || before(id) {
            url.evidence.bar(now);
        }
        self.change(id, Requests::default());
    }

    /// Makes an entry for a path. None if paths take all their room, and the path to be removed is not long
    /// enough to make room for this one; the next time it is another one's turn.
    fn enter(&mut self, path: &str, hash: u64) -> Option<u32> {
        let url = Url {
            path: path.into(),
            hash,
            visits: 0.0,
            weight: 0.0,
            bytes: 0,
            micros: 0,
            evidence: Evidence::default(),
            generation: 0,
            kind: Kind::of(path),
        };
        let with_it = self.path_bytes + path.len() as u64;
        let (place, evicted) = if with_it <= self.most_path_bytes {
            self.table.insert(url)
        } else {
            if self.table.len() == 0 {
                return None;
            }
            let place = self.table.least();
            let freed = self.table.get(place).map_or(0, |url| url.path.len() as u64);
            if with_it - freed > self.most_path_bytes {
                return None;
            }
            (place, Some(self.table.replace(place, url)))
        };
        self.path_bytes = with_it;
        if let Some(evicted) = evicted {
            self.path_bytes -= evicted.path.len() as u64;
            self.table.get_mut(place).generation = evicted.generation.wrapping_add(1);
        }
        Some(place)
    }

    fn get(&self, id: UrlId) -> Option<&Url> {
        let url = self.table.get(id.place())?;
        (u32::from(url.generation) == id.generation()).then_some(url)
    }

    /// The number of a path; none if it is not known.
    pub(super) fn find(&self, path: &str, hash: u64) -> Option<UrlId> {
        let place = self.table.find(hash, |url| &*url.path == path)?;
        let generation = self.table.get(place)?.generation;
        Some(UrlId::new(generation, place))
    }

    /// The path of a URL; none if it has made room.
    pub fn path(&self, id: UrlId) -> Option<&str> {
        self.get(id).map(|url| &*url.path)
    }

    /// Its kind; a page if it has made room.
    pub fn kind(&self, id: UrlId) -> Kind {
        self.get(id).map_or(Kind::Page, |url| url.kind)
    }

    /// Whether it may be suggested: [`DISTINCT_CLIENTS`] got it publicly.
    ///
    /// The clients are counted by a bit for each of 32 classes. That is too little to identify one of them,
    /// and never more than their number.
    pub fn is_public(&self, id: UrlId) -> bool {
        self.clients(id) >= DISTINCT_CLIENTS
    }

    /// How many distinct clients got it publicly: a lower bound, and 32 at most.
    pub fn clients(&self, id: UrlId) -> u32 {
        self.get(id).map_or(0, |url| url.evidence.clients())
    }

    /// The length of its answers.
    pub fn bytes(&self, id: UrlId) -> Bytes {
        Bytes(self.get(id).map_or(0, |url| u64::from(url.bytes)))
    }

    /// The latency of its answers: a usual path, the server's time, and a usual time for that length. Some
    /// logs include the last one in the server's time; it is short compared with the path, and counts twice
    /// then.
    pub fn latency(&self, id: UrlId) -> Duration {
        let Some(url) = self.get(id) else { return Duration::ZERO };
        // No one waits for the rest of an answer without a body.
        let server = if url.bytes == 0 { Duration::ZERO } else { self.server_time(id) };
        let transfer = Duration::from_nanos(u64::from(url.bytes) * USUAL_NANOS_PER_BYTE);
        USUAL_LATENCY + server + transfer
    }

    /// The server's time for an answer, if known; otherwise zero.
    pub fn server_time(&self, id: UrlId) -> Duration {
        self.get(id).map_or(Duration::ZERO, |url| Duration::from_micros(u64::from(url.micros)))
    }

    /// The priority of prefetching it, if it is wanted with this probability: the average seconds saved per
    /// byte of its cost.
    ///
    /// SSR §3.1.1 leaves the metric open and names the probability as the usual one. This one is the benefit
    /// for the scarce resource, so that schedulers spend it best (§3.1.2).
    pub fn priority(&self, id: UrlId, probability: f32) -> f32 {
        let parallel = match self.kind(id) {
            Kind::Page => 1.0,
            Kind::Embedded => AT_A_TIME,
        };
        let cost = (self.bytes(id).0 + OVERHEAD) as f32;
        probability * self.latency(id).as_secs_f32() / parallel / cost
    }

    /// Bytes fetched each time that it is wanted, if it is wanted with this probability.
    pub(crate) fn bytes_per_hit(&self, id: UrlId, probability: f32) -> f32 {
        (self.bytes(id).0 + OVERHEAD) as f32 / probability
    }

    /// Visits of it, decayed, in events of the time `at`: those that a list could have predicted, and only a
    /// few per client ([`super::Visit::is_often`]).
    pub fn popularity(&self, id: UrlId, at: Timestamp) -> f32 {
        self.get(id).map_or(0.0, |url| (url.visits / f64::from(self.decay.at(at))) as f32)
    }

    /// The time of the latest answer.
    pub(super) fn latest(&self) -> Timestamp {
        self.decay.latest()
    }

    /// How many may be hinted.
    pub fn public(&self) -> usize {
        let urls = self.table.entries().iter();
        urls.filter(|url| url.evidence.clients() >= DISTINCT_CLIENTS).count()
    }

    /// Restarts the counts that have not reached [`DISTINCT_CLIENTS`].
    pub(super) fn restart_counts(&mut self) {
        for url in self.table.entries_mut() {
            url.evidence.restart(DISTINCT_CLIENTS);
        }
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no URL is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their memory, without the allocator's overhead.
    pub fn resident(&self) -> Bytes {
        Bytes(self.table.resident() + self.path_bytes)
    }

    /// The same once all limits are reached.
    pub(super) fn most_resident(limits: &Limits) -> u64 {
        Table::<Url>::most_resident(limits.urls).saturating_add(limits.path_bytes.0)
    }

    /// Writes everything except the hashes, which depend on the key.
    pub(crate) fn write<W: Write>(&self, to: &mut Sink<W>) -> io::Result<()> {
        self.decay.write(to)?;
        to.count(self.table.eviction_hand())?;
        to.count(self.table.len())?;
        for url in self.table.entries() {
            to.u16(u16::try_from(url.path.len()).map_err(io::Error::other)?)?;
            to.bytes(url.path.as_bytes())?;
            to.f64(url.visits)?;
            to.f32(url.weight)?;
            to.u32(url.bytes)?;
            to.u32(url.micros)?;
            url.evidence.write(to)?;
            to.u8(url.generation)?;
        }
        Ok(())
    }

    /// Reads the same; `hash` gives the hash of a path.
    pub(super) fn read<R: Read>(
        limits: &Limits,
        hash: impl Fn(&str) -> u64,
        from: &mut Source<R>,
    ) -> Result<Self, ReadError> {
        let invalid = || ReadError::Invalid("table of URLs");
        let mut urls = Urls::new(limits);
        urls.decay = Decay::read(limits.half_life, from)?;
        let hand = from.count()?;
        let mut path = [0; MAX_PATH_BYTES];
        for _ in 0..from.count()? {
            let path = path.get_mut(..usize::from(from.u16()?)).ok_or_else(invalid)?;
            from.bytes(path)?;
            let path = core::str::from_utf8(path).map_err(|_| invalid())?;
            urls.path_bytes += path.len() as u64;
            let is_path = path.starts_with('/') && !path.contains('#');
            if !is_path || urls.path_bytes > urls.most_path_bytes {
                return Err(invalid());
            }
            let url = Url {
                path: path.into(),
                hash: hash(path),
                visits: from.large_weight()?,
                weight: from.weight()?,
                bytes: from.u32()?,
                micros: from.u32()?,
                evidence: Evidence::read(from)?,
                generation: from.u8()?,
                kind: Kind::of(path),
            };
            urls.table.restore(url, |one, other| one.path == other.path).ok_or_else(invalid)?;
        }
        urls.table.set_eviction_hand(hand).ok_or_else(invalid)?;
        Ok(urls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(second: u64, bytes: u64, origin: u64) -> Answer {
        Answer {
            at: Timestamp::from_nanos(second * 1_000_000_000),
            bytes: Some(bytes),
            took: None,
            public: Some(Origin(mix(origin))),
        }
    }

    fn urls(limit: usize) -> Urls {
        let half_life = Duration::from_secs(3600);
        Urls::new(&Limits { urls: limit, half_life, ..Limits::default() })
    }

    /// Notes an answer for which there is room.
    fn record(urls: &mut Urls, path: &str, hash: u64, answer: Answer) -> UrlId {
        urls.record(path, hash, answer).expect("there is room").0
    }

    #[test]
    fn kind_follows_from_the_extension() {
        for (path, kind) in [
            ("/", Kind::Page),
            ("/a/index.html", Kind::Page),
            ("/a.b/c", Kind::Page),
            ("/film.mpg", Kind::Page),
            ("/list?like=a.css", Kind::Page),
            ("/style.css?v=2", Kind::Embedded),
            ("/logo.GIF", Kind::Embedded),
            ("/a/style.css", Kind::Embedded),
            ("/gif", Kind::Page),
        ] {
            assert_eq!(Kind::of(path), kind, "{path}");
        }
    }

    #[test]
    fn five_distinct_clients_make_a_url_public_and_one_does_not() {
        let mut urls = urls(10);
        for _ in 0..1_000 {
            let id = record(&mut urls, "/own", 1, answer(1, 10, 7));
            assert!(!urls.is_public(id));
        }
        let mut first = None;
        for origin in 0..100 {
            let id = record(&mut urls, "/known", 2, answer(1, 10, origin));
            assert!(origin >= 4 || !urls.is_public(id), "after {origin} others");
            first = first.or(urls.is_public(id).then_some(origin + 1));
        }
        // Two clients may share a class, so it takes a few more than five.
        assert!((5..=12).contains(&first.unwrap()), "{first:?}");
        urls.bar("/known", 2, Timestamp::ZERO);
        let id = record(&mut urls, "/known", 2, Answer { public: None, ..answer(1, 10, 0) });
        assert!(!urls.is_public(id));
    }

    #[test]
    fn number_of_an_evicted_url_names_nothing() {
        let mut urls = urls(1);
        let one = record(&mut urls, "/1", 1, answer(1, 10, 0));
        let two = record(&mut urls, "/2", 2, answer(2, 20, 0));
        assert_ne!(one, two);
        assert_eq!((urls.path(one), urls.path(two)), (None, Some("/2")));
        assert_eq!((urls.bytes(one), urls.bytes(two)), (Bytes(0), Bytes(20)));
        assert_eq!(urls.find("/1", 1), None);
        assert_eq!(urls.len(), 1);
        assert_eq!(urls.path_bytes, 2);
    }

    #[test]
    fn path_memory_is_bounded() {
        let path_bytes = Bytes(3_000);
        let mut urls = Urls::new(&Limits { urls: 100, path_bytes, ..Limits::default() });
        let long = |number: u64| format!("/{number}{}", "x".repeat(900));
        for number in 0..3 {
            assert!(urls.record(&long(number), number, answer(1, 10, 0)).is_some());
        }
        // The least of the three makes room; two bytes alone would not be enough.
        let before = urls.record(&long(0), 0, answer(1, 10, 0)).unwrap().0;
        assert!(urls.record(&long(4), 4, answer(1, 10, 0)).is_some());
        assert_eq!((urls.len(), urls.path_bytes), (3, 3 * 902));
        assert_eq!(urls.path(before), Some(long(0).as_str()), "it came twice");
        let mut small =
            Urls::new(&Limits { urls: 100, path_bytes: Bytes(1_100), ..Limits::default() });
        for number in 0..200 {
            small.record(&format!("/{number}"), number, answer(1, 10, 0)).unwrap();
        }
        assert!(small.record(&long(7), 1_000, answer(1, 10, 0)).is_none());
        assert!(small.record("/0a", 1_001, answer(1, 10, 0)).is_some());
        assert!(small.path_bytes <= 1_100);
    }

    #[test]
    fn truncated_answer_hardly_changes_the_length() {
        let mut urls = urls(1);
        let id = record(&mut urls, "/", 1, answer(1, 1_000, 0));
        record(&mut urls, "/", 1, answer(1, 200, 0));
        assert_eq!(urls.bytes(id), Bytes(900));
        record(&mut urls, "/", 1, answer(1, 1_200, 0));
        assert_eq!(urls.bytes(id), Bytes(1_200));
    }

    #[test]
    fn busy_site_counts_every_visit() {
        let limits = Limits { half_life: Duration::from_secs(1), ..Limits::default() };
        let mut urls = Urls::new(&limits);
        let mut visit = |second| {
            let answer = answer(second, 10, 0);
            let id = record(&mut urls, "/", 1, answer);
            urls.visit(id, answer.at);
            urls.popularity(id, answer.at)
        };
        // By then a visit counts 2^25 times as much as one in the first second.
        let many = (0..=25).map(&mut visit).last().unwrap();
        let before = f64::from(visit(0)) - 1.0;
        assert!((f64::from(many) * f64::from(1 << 25) - before).abs() < 8.0, "{many} {before}");
        let after = (0..1_000).map(|_| visit(0)).last().unwrap();
        assert!((f64::from(after) - before - 1_001.0).abs() < 8.0, "{before} {after}");
    }

    #[test]
    fn priority_is_benefit_per_cost() {
        let mut urls = urls(10);
        let small = record(&mut urls, "/small", 1, answer(1, 1_500, 0));
        let large = record(&mut urls, "/large", 2, answer(1, 999_500, 0));
        let image = record(&mut urls, "/small.gif", 3, answer(1, 1_500, 0));
        // 0.1 s and 1.2 µs for 2000 bytes.
        assert!((urls.priority(small, 0.5) - 0.5 * 0.1012 / 2_000.0).abs() < 1e-9);
        assert!(urls.priority(small, 0.1) > urls.priority(large, 0.9));
        assert_eq!(urls.priority(image, 0.6), urls.priority(small, 0.1));
        let slow = Answer { took: Some(Duration::from_secs(2)), ..answer(1, 1_500, 0) };
        let slow = record(&mut urls, "/slow", 4, slow);
        assert!(urls.priority(slow, 0.1) > urls.priority(small, 0.9));
    }
}
