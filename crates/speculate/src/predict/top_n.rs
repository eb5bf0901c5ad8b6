//! The most popular URLs, for any client: the baseline that every predictor has to beat.

use core::time::Duration;
use std::io::{self, Read, Write};

use lull_cc::{Bytes, Timestamp};

use super::{Candidate, Predictor, Question, sort};
use crate::encoding::{ReadError, Sink, Source};
use crate::observe::{Decay, Kind, SCALE, Step, UrlId, Urls, Visit};

/// Number of pages that are remembered: the longest hint list, and some that the client has.
const PAGES: usize = 128;
/// The same for subresources. They are separate, because a site may have more subresources common to all its
/// pages than there are places, and no page would be left.
const PARTS: usize = 64;

/// The most popular URLs, by their share of the visited pages.
#[derive(Clone, Debug)]
pub struct TopN {
    /// The most popular in approximate order; exact when ranked.
    top_pages: Vec<(UrlId, f32)>,
    top_parts: Vec<(UrlId, f32)>,
    /// Visits of pages, decayed, as far as they count for popularity.
    pages: f64,
    /// Visits among them that were not the first of a session.
    behind: f64,
    decay: Decay,
}

impl TopN {
    /// An untrained predictor; a visit counts half after `half_life`.
    ///
    /// # Panics
    /// If the half-life is under a second.
    pub fn new(half_life: Duration) -> Self {
        TopN {
            top_pages: Vec::with_capacity(PAGES),
            top_parts: Vec::with_capacity(PARTS),
            pages: 0.0,
            behind: 0.0,
            decay: Decay::new(half_life),
        }
    }

    /// The popular URLs, each with its share: the part of visited pages that contain it, or are it.
    pub(super) fn shares(&self, urls: &Urls, at: Timestamp) -> impl Iterator<Item = (UrlId, f32)> {
        let pages = (self.pages / f64::from(self.decay.at(at))).max(1.0) as f32;
        self.top_pages
            .iter()
            .chain(&self.top_parts)
            .filter(|(url, _)| urls.is_public(*url))
            .map(move |(url, _)| (*url, (urls.popularity(*url, at) / pages).min(1.0)))
    }

    /// The share of pages after which another one was visited. One page more counts, so that it is never
    /// zero.
    pub(super) fn goes_on(&self, at: Timestamp) -> f32 {
        let one = f64::from(self.decay.at(at));
        ((self.behind + one) / (self.pages + one)).min(1.0) as f32
    }

    /// Its memory, for any visits.
    pub(super) const RESIDENT: u64 = ((PAGES + PARTS) * size_of::<(UrlId, f32)>()) as u64;

    pub(super) fn write<W: Write>(&self, to: &mut Sink<W>) -> io::Result<()> {
        self.decay.write(to)?;
        to.f64(self.pages)?;
        to.f64(self.behind)?;
        for top in [&self.top_pages, &self.top_parts] {
            to.count(top.len())?;
            for (url, weight) in top {
                to.u32(url.raw())?;
                to.f32(*weight)?;
            }
        }
        Ok(())
    }

    pub(super) fn read<R: Read>(
        half_life: Duration,
        from: &mut Source<R>,
    ) -> Result<Self, ReadError> {
        let invalid = || ReadError::Invalid("list of popular URLs");
        let mut all = TopN::new(half_life);
        all.decay = Decay::read(half_life, from)?;
        all.pages = from.large_weight()?;
        all.behind = from.large_weight()?;
        for which in [PAGES, PARTS] {
            let count = from.count()?;
            if count > which {
                return Err(invalid());
            }
            for _ in 0..count {
                let url = UrlId::from_raw(from.u32()?).ok_or_else(invalid)?;
                let (pages, parts) = (&mut all.top_pages, &mut all.top_parts);
                if pages.iter().chain(&*parts).any(|(other, _)| *other == url) {
                    return Err(invalid());
                }
                let top = if which == PAGES { pages } else { parts };
                top.push((url, from.weight()?));
            }
        }
        Ok(all)
    }
}

impl Predictor for TopN {
    fn train(&mut self, visit: &Visit, history: &[Step], urls: &Urls) {
        self.add_pages(visit.at, counted_pages(visit, history));
        if visit.cacheable && !visit.is_often {
            self.add_popular(visit.at, visit.url, urls);
        }
    }

    fn rank(&self, question: &Question<'_>, urls: &Urls, ranked: &mut Vec<Candidate>) {
        ranked.clear();
        ranked.extend(
            self.shares(urls, question.at)
                .filter(|(url, _)| question.held.binary_search(url).is_err())
                .map(|(url, probability)| Candidate { url, probability }),
        );
        sort(ranked);
    }

    fn resident(&self) -> Bytes {
        let places = self.top_pages.capacity() + self.top_parts.capacity();
        Bytes((places * size_of::<(UrlId, f32)>()) as u64)
    }
}

/// The visits of pages that a visit counts for, and those of them that were not the first of a session.
pub(super) fn counted_pages(visit: &Visit, history: &[Step]) -> (u32, u32) {
    let is_counted = visit.kind == Kind::Page && !visit.is_often;
    let is_behind = is_counted && history.last().is_some_and(|step| step.page > 1);
    (u32::from(is_counted), u32::from(is_behind))
}

impl TopN {
    /// Counts visits of pages, and those of them that were not the first of a session.
    pub(super) fn add_pages(&mut self, at: Timestamp, (pages, behind): (u32, u32)) {
        let (counts, scale) = self.decay.event(at);
        if scale {
            self.pages *= f64::from(SCALE);
            self.behind *= f64::from(SCALE);
            let top = self.top_pages.iter_mut().chain(&mut self.top_parts);
            top.for_each(|(_, weight)| *weight *= SCALE);
        }
        self.pages += f64::from(counts) * f64::from(pages);
        self.behind += f64::from(counts) * f64::from(behind);
    }

    /// Moves a visited URL to its place among the popular ones.
    pub(super) fn add_popular(&mut self, at: Timestamp, url: UrlId, urls: &Urls) {
        // A URL that may not be suggested takes no place.
        if !urls.is_public(url) {
            return;
        }
        let counts = self.decay.at(at);
        // In the same scale as the pages, so that it stays right without further visits. A date long ago
        // increases the present popularity, which must not become infinite and so stay for ever.
        let weight = (urls.popularity(url, at) * counts).min(f32::MAX);
        let (top, most) = match urls.kind(url) {
            Kind::Page => (&mut self.top_pages, PAGES),
            Kind::Embedded => (&mut self.top_parts, PARTS),
        };
        let at = match top.iter().position(|(other, _)| *other == url) {
            Some(at) => at,
            None if top.len() < most => {
                top.push((url, weight));
                top.len() - 1
            }
            None => {
                let last = top.len() - 1;
                if weight <= top[last].1 {
                    return;
                }
                last
            }
        };
        top[at] = (url, weight);
        // A visited URL moves up to its place, so that the last is always the lowest.
        let place = top[..at].partition_point(|(_, other)| *other >= weight);
        top[place..=at].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Entry;
    use crate::observe::{ClientHasher, Limits, Observer};

    #[test]
    fn parts_and_private_urls_do_not_displace_pages() {
        let mut observer = Observer::new(ClientHasher::new([7; 16]), Limits::default());
        let mut top = TopN::new(Duration::from_secs(3_600));
        let mut visit = |client: u64, target: &str| {
            let at = Timestamp::from_nanos(1_000_000_000);
            let client = format!("198.51.{}.{}", client / 250, client % 250);
            if let Ok(visit) = observer.observe(&Entry::page(at, client, target)) {
                top.train(&visit, observer.history(&visit), observer.urls());
            }
        };
        for client in 0..40 {
            (0..300).for_each(|number| visit(client, &format!("/{number}.png")));
            visit(client, "/page");
        }
        // Each a separate page, by as many links in mails.
        for client in 100..500 {
            (0..2).for_each(|_| visit(client, &format!("/own/{client}")));
            visit(client, "/other");
        }
        let question = Question { at: Timestamp::ZERO, pages: &[], learned: false, held: &[] };
        let mut ranked = Vec::new();
        top.rank(&question, observer.urls(), &mut ranked);
        let pages: Vec<_> = ranked
            .iter()
            .filter(|one| observer.urls().kind(one.url) == Kind::Page)
            .filter_map(|one| observer.urls().path(one.url))
            .collect();
        assert_eq!(pages, ["/other", "/page"]);
        assert_eq!((top.top_pages.len(), ranked.len()), (2, 2 + PARTS));
    }

    #[test]
    fn busy_site_counts_every_page() {
        let mut observer = Observer::new(ClientHasher::new([7; 16]), Limits::default());
        let mut visit = observer.observe(&Entry::page(Timestamp::ZERO, "192.0.2.7", "/")).unwrap();
        let mut top = TopN::new(Duration::from_secs(1));
        let mut at = |second: u64| {
            visit.at = Timestamp::from_nanos(second * 1_000_000_000);
            top.train(&visit, &[], observer.urls());
            top.pages
        };
        let before = (0..=25).map(&mut at).last().unwrap();
        let after = (0..1_000).map(|_| at(0)).last().unwrap();
        assert_eq!((before, after - before), (f64::from((1 << 26) - 1), 1_000.0));
    }
}
