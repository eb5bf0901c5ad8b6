//! URLs as numbers, and what is known of each.

use core::num::NonZeroU32;
use core::time::Duration;

use lull_cc::{Bytes, Timestamp};

use super::Origin;
use super::decay::{Decay, SCALE};
use crate::table::{Entry, Table, mix};

/// A URL's number. One whose URL had to make room names nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrlId(NonZeroU32);

impl UrlId {
    fn new(generation: u8, place: u32) -> Self {
        // One more than the bits, so that a place for a number or none takes no more room. The
        // last place of the table stays empty, so it never overflows.
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
}

/// The lower bits of a [`UrlId`] are a place in the table, the upper ones count who was there.
const PLACE_BITS: u32 = 24;
const PLACE: u32 = (1 << PLACE_BITS) - 1;

/// What a URL is to a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something that people go to. The contexts of predictors are made of pages.
    Page,
    /// Something that a page has in it. Nice §6.1 sets images apart; pages of today have style
    /// sheets, scripts and fonts by the dozen, which say as little of where someone is.
    Embedded,
}

/// Endings of what pages have in them. Sound, films and archives are followed like pages.
const EMBEDDED: &[&str] = &[
    "gif", "jpg", "jpeg", "png", "webp", "avif", "svg", "ico", "bmp", "xbm", "css", "js", "mjs",
    "woff", "woff2", "ttf", "otf", "eot", "map", "wasm",
];

impl Kind {
    /// The kind of the URL with this path, by its ending.
    pub fn of(path: &str) -> Self {
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
    /// Requests, decayed.
    weight: f32,
    bytes: u32,
    micros: u32,
    /// A bit for each of 32 classes of origins that got it publicly.
    origins: u32,
    generation: u8,
    kind: Kind,
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

/// A URL is suggested only if so many distinct clients got it publicly: what fewer know may be
/// someone's own, such as a link out of a mail.
pub const DISTINCT_CLIENTS: u32 = 5;

/// What a request brings with it besides the bytes of its answer: its own head and that of the
/// answer. So no object costs nothing.
const OVERHEAD: u64 = 500;

/// The latency of an object whose server says nothing of it: one round trip of a usual path, and a
/// rate that such a path has.
const USUAL_LATENCY: Duration = Duration::from_millis(100);
const USUAL_NANOS_PER_BYTE: u64 = 800;

/// Browsers load what a page has in it over six connections at a time, so that waiting for one of
/// these objects makes the page later by a sixth of that.
const AT_A_TIME: f32 = 6.0;

/// All URLs that are known, up to a limit.
#[derive(Clone, Debug)]
pub struct Urls {
    table: Table<Url>,
    decay: Decay,
    path_bytes: u64,
}

/// An answer, as far as it says something about the URL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) at: Timestamp,
    /// Its length, if it was sent whole.
    pub(super) bytes: Option<u64>,
    pub(super) took: Option<Duration>,
    /// Who got it, if it was for everybody.
    pub(super) public: Option<Origin>,
}

impl Urls {
    /// # Panics
    /// If the limit is 0, or not below 2^24.
    pub(super) fn new(limit: usize, half_life: Duration) -> Self {
        assert!(limit < 1 << PLACE_BITS, "{limit} URLs are more than the numbers for them");
        Urls { table: Table::new(limit), decay: Decay::new(half_life), path_bytes: 0 }
    }

    /// Notes an answer, and gives the number of its URL.
    pub(super) fn note(&mut self, path: &str, hash: u64, answer: Answer) -> UrlId {
        let (counts, scale) = self.decay.event(answer.at);
        if scale {
            self.table.entries_mut().for_each(|url| url.weight *= SCALE);
        }
        let place = self
            .table
            .find(hash, |url| &*url.path == path)
            .unwrap_or_else(|| self.enter(path, hash));
        let url = self.table.get_mut(place);
        url.weight += counts;
        if let Some(bytes) = answer.bytes {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            // What was broken off looks shorter than it is; what did become shorter is believed
            // after some more requests.
            url.bytes =
                if bytes >= url.bytes { bytes } else { url.bytes - (url.bytes - bytes) / 8 };
        }
        if let Some(took) = answer.took {
            let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1);
            let before = if url.micros == 0 { micros } else { url.micros };
            url.micros = (before - before / 8).saturating_add(micros / 8).max(1);
        }
        if let Some(origin) = answer.public {
            url.origins |= 1 << (mix(origin.0 ^ url.hash) % 32);
        }
        UrlId::new(url.generation, place)
    }

    /// The URL was for one person, or is gone: whoever got it before does not count any more.
    pub(super) fn bar(&mut self, path: &str, hash: u64) {
        if let Some(place) = self.table.find(hash, |url| &*url.path == path) {
            self.table.get_mut(place).origins = 0;
        }
    }

    fn enter(&mut self, path: &str, hash: u64) -> u32 {
        let url = Url {
            path: path.into(),
            hash,
            weight: 0.0,
            bytes: 0,
            micros: 0,
            origins: 0,
            generation: 0,
            kind: Kind::of(path),
        };
        let (place, evicted) = self.table.insert(url);
        self.path_bytes += path.len() as u64;
        if let Some(evicted) = evicted {
            self.path_bytes -= evicted.path.len() as u64;
            self.table.get_mut(place).generation = evicted.generation.wrapping_add(1);
        }
        place
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

    /// The path of a URL; none if it had to make room.
    pub fn path(&self, id: UrlId) -> Option<&str> {
        self.get(id).map(|url| &*url.path)
    }

    /// Its kind; a page if it had to make room.
    pub fn kind(&self, id: UrlId) -> Kind {
        self.get(id).map_or(Kind::Page, |url| url.kind)
    }

    /// Whether it may be suggested: [`DISTINCT_CLIENTS`] got it publicly.
    ///
    /// The clients are counted by a bit for each of 32 classes, which is too little to find one of
    /// them again, and never more than there were.
    pub fn is_public(&self, id: UrlId) -> bool {
        self.get(id).is_some_and(|url| url.origins.count_ones() >= DISTINCT_CLIENTS)
    }

    /// The length of its answers.
    pub fn bytes(&self, id: UrlId) -> Bytes {
        Bytes(self.get(id).map_or(0, |url| u64::from(url.bytes)))
    }

    /// How long its answers take: as the server says, or a usual time for that length.
    pub fn latency(&self, id: UrlId) -> Duration {
        match self.get(id) {
            Some(Url { micros: 1.., bytes, .. }) if *bytes == 0 => USUAL_LATENCY,
            Some(Url { micros: micros @ 1.., .. }) => {
                USUAL_LATENCY + Duration::from_micros(u64::from(*micros))
            }
            Some(url) => {
                USUAL_LATENCY + Duration::from_nanos(u64::from(url.bytes) * USUAL_NANOS_PER_BYTE)
            }
            None => Duration::ZERO,
        }
    }

    /// The priority of fetching it ahead, if it is wanted with this probability: seconds that are
    /// saved on average for each byte that it costs.
    ///
    /// SSR §3.1.1 leaves the metric open and names the probability as the usual one. Ours is the
    /// benefit for the resource that is short, so that schedulers spend it best (§3.1.2).
    pub fn priority(&self, id: UrlId, probability: f32) -> f32 {
        let parallel = match self.kind(id) {
            Kind::Page => 1.0,
            Kind::Embedded => AT_A_TIME,
        };
        let cost = (self.bytes(id).0 + OVERHEAD) as f32;
        probability * self.latency(id).as_secs_f32() / parallel / cost
    }

    /// Requests for it, decayed, in events of the time `at`.
    pub fn popularity(&self, id: UrlId, at: Timestamp) -> f32 {
        self.get(id).map_or(0.0, |url| url.weight / self.decay.at(at))
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that they take, without what the allocator adds.
    pub fn resident(&self) -> Bytes {
        Bytes(self.table.resident() + self.path_bytes)
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
        Urls::new(limit, Duration::from_secs(3600))
    }

    #[test]
    fn kinds_are_told_by_the_ending() {
        for (path, kind) in [
            ("/", Kind::Page),
            ("/a/index.html", Kind::Page),
            ("/a.b/c", Kind::Page),
            ("/film.mpg", Kind::Page),
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
            let id = urls.note("/own", 1, answer(1, 10, 7));
            assert!(!urls.is_public(id));
        }
        let mut first = None;
        for origin in 0..100 {
            let id = urls.note("/known", 2, answer(1, 10, origin));
            assert!(origin >= 4 || !urls.is_public(id), "after {origin} others");
            first = first.or(urls.is_public(id).then_some(origin + 1));
        }
        // Two clients may share a class, so that it takes a few more than five.
        assert!((5..=12).contains(&first.unwrap()), "{first:?}");
        urls.bar("/known", 2);
        let id = urls.note("/known", 2, Answer { public: None, ..answer(1, 10, 0) });
        assert!(!urls.is_public(id));
    }

    #[test]
    fn a_number_names_nothing_once_its_url_made_room() {
        let mut urls = urls(1);
        let one = urls.note("/1", 1, answer(1, 10, 0));
        let two = urls.note("/2", 2, answer(2, 20, 0));
        assert_ne!(one, two);
        assert_eq!((urls.path(one), urls.path(two)), (None, Some("/2")));
        assert_eq!((urls.bytes(one), urls.bytes(two)), (Bytes(0), Bytes(20)));
        assert_eq!(urls.find("/1", 1), None);
        assert_eq!(urls.len(), 1);
        assert_eq!(urls.path_bytes, 2);
    }

    #[test]
    fn a_broken_off_answer_hardly_changes_the_length() {
        let mut urls = urls(1);
        let id = urls.note("/", 1, answer(1, 1_000, 0));
        urls.note("/", 1, answer(1, 200, 0));
        assert_eq!(urls.bytes(id), Bytes(900));
        urls.note("/", 1, answer(1, 1_200, 0));
        assert_eq!(urls.bytes(id), Bytes(1_200));
    }

    #[test]
    fn priority_is_benefit_for_cost() {
        let mut urls = urls(10);
        let small = urls.note("/small", 1, answer(1, 1_500, 0));
        let large = urls.note("/large", 2, answer(1, 999_500, 0));
        let image = urls.note("/small.gif", 3, answer(1, 1_500, 0));
        // 0.1 s and 1.2 µs for 2000 bytes.
        assert!((urls.priority(small, 0.5) - 0.5 * 0.1012 / 2_000.0).abs() < 1e-9);
        assert!(urls.priority(small, 0.1) > urls.priority(large, 0.9));
        assert_eq!(urls.priority(image, 0.6), urls.priority(small, 0.1));
        let slow = Answer { took: Some(Duration::from_secs(2)), ..answer(1, 1_500, 0) };
        let slow = urls.note("/slow", 4, slow);
        assert!(urls.priority(slow, 0.1) > urls.priority(small, 0.9));
    }
}
