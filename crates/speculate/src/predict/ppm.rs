//! Prediction by partial matching: PPM-n/w, and variants with one changed rule at a time.
//!
//! The model counts, for each context of up to n consecutive pages of clients, how often it occurred. It also
//! counts, for each URL, how often it was requested in the window after that. The probability of a URL is the
//! ratio of these counts.
//!
//! ```text
//!     page A   image   page B   image   image   page C   image   page D
//!       └──────────────context A, B─┘                               │
//!                                │    window of w = 2 ──────────────┤   Counted::All
//!                                └─ in B itself ─┘└─ window of w = 2 ─────▶   Counted::Ahead
//! ```

use std::io::{self, Read, Write};

use lull_cc::{Bytes, Timestamp};

use super::contexts::{Contexts, Follower, Pages};
use super::pending::{ContextChange, Pending};
use super::{Candidate, Predictor, Question, TopN, sort};
use crate::encoding::{ReadError, Sink, Source};
use crate::observe::{Kind, OFTEN, Step, UrlId, Urls, Visit};

mod explain;
mod parameters;

pub use explain::{Context, Explained, Explanation, Withheld};
pub use parameters::{Backoff, Counted, PpmParameters};

/// Prediction by partial matching.
#[derive(Clone, Debug)]
pub struct Ppm {
    parameters: PpmParameters,
    contexts: Contexts,
    top: TopN,
    /// The latest pages of the client being learned, each with its place in the history.
    pages: Vec<(UrlId, usize)>,
    /// The contexts that a learned URL follows, each with its weight. Kept only to reuse its memory.
    followed: Vec<(Pages, f32)>,
    /// Changes that other models have not got yet; none if the model is not shared.
    pending: Option<Pending>,
}

/// The followers of a context.
#[derive(Clone, Copy, Debug)]
struct Shares {
    /// How often other clients had it, not decayed, like the followers: frequent contexts are well known,
    /// however old.
    occurrences: f32,
    /// Number of following URLs, at least one.
    followers: f32,
    /// Whether one of them may be revealed, to a client without it.
    is_told: bool,
}

impl Ppm {
    /// A model that has learned nothing.
    ///
    /// # Panics
    /// If a parameter is out of its range.
    pub fn new(parameters: PpmParameters) -> Self {
        assert_eq!(parameters.fault(), None, "out of its range");
        Ppm {
            parameters,
            contexts: Contexts::new(parameters.room(), parameters.half_life),
            top: TopN::new(parameters.half_life),
            pages: Vec::new(),
            followed: Vec::new(),
            pending: None,
        }
    }

    /// From now on counts are remembered for other models.
    pub(crate) fn share(&mut self) {
        let followers = self.parameters.followers_per_context;
        self.pending.get_or_insert_with(|| Pending::new(followers));
    }

    /// Changes that other models have not got yet.
    pub(crate) fn pending(&mut self) -> Option<&mut Pending> {
        self.pending.as_mut()
    }

    /// Adds what another model counted of a context, at a time by which counts are decayed.
    pub(crate) fn merge(&mut self, at: Timestamp, pages: Pages, change: &ContextChange<UrlId>) {
        let counts = self.contexts.event(at);
        let key = pages.key();
        let times = u16::try_from(change.times).unwrap_or(u16::MAX);
        self.contexts.occur_times(key, f64::from(counts) * f64::from(change.times), times);
        for one in &change.followers {
            let weight = (counts * one.weight).min(f32::MAX);
            self.contexts.follow_classes(key, one.url, weight, one.classes);
        }
    }

    /// Adds visits that another model counted, and their URLs to the popular ones.
    pub(crate) fn merge_visits(
        &mut self,
        at: Timestamp,
        visits: (u32, u32),
        visited: impl Iterator<Item = UrlId>,
        urls: &Urls,
    ) {
        self.top.add_pages(at, visits);
        visited.for_each(|url| self.top.add_popular(at, url, urls));
    }

    pub(crate) fn write<W: Write>(&self, to: &mut Sink<W>) -> io::Result<()> {
        self.contexts.write(to)?;
        self.top.write(to)
    }

    pub(crate) fn read<R: Read>(
        parameters: PpmParameters,
        from: &mut Source<R>,
    ) -> Result<Self, ReadError> {
        Ok(Ppm {
            parameters,
            contexts: Contexts::read(parameters.room(), parameters.half_life, from)?,
            top: TopN::read(parameters.half_life, from)?,
            pages: Vec::new(),
            followed: Vec::new(),
            pending: None,
        })
    }

    /// Restarts the counts of clients that have not reached [`PpmParameters::clients`].
    pub(crate) fn restart_counts(&mut self) {
        self.contexts.restart_counts();
    }

    /// How many contexts are known.
    pub fn contexts(&self) -> usize {
        self.contexts.len().0
    }

    /// Number of followers that contexts have room for by now.
    pub fn followers(&self) -> usize {
        self.contexts.len().1
    }

    /// Its parameters.
    pub fn parameters(&self) -> &PpmParameters {
        &self.parameters
    }

    /// Notes that `url`, the last step, follows the contexts whose windows contain it.
    fn follow(&mut self, visit: &Visit, history: &[Step], urls: &Urls, counts: f32) {
        let window = self.parameters.window as usize;
        let last = history.len() - 1;
        // Pages before the step. The page that contains it ends the papers' window.
        let pages = match (visit.kind, self.parameters.counted) {
            (Kind::Page, _) => &self.pages[..self.pages.len() - 1],
            (Kind::Embedded, Counted::All) => &self.pages[..],
            (Kind::Embedded, Counted::Ahead) => &self.pages[..self.pages.len().saturating_sub(1)],
        };
        // The client's earlier request for it: it follows only the contexts after that.
        let before = history[..last].iter().rposition(|step| step.url == visit.url);
        // Its client goes back and forth between two pages that are often in the session, which does not
        // count.
        let is_often =
            |url: UrlId| history[..last].iter().filter(|step| step.url == url).count() >= OFTEN;
        let mut counts = counts;
        self.followed.clear();
        for end in (1..=pages.len()).rev().take(window) {
            if before.is_some_and(|before| before >= pages[end - 1].1) {
                break;
            }
            if visit.is_often && is_often(pages[end - 1].0) {
                counts *= self.parameters.fade;
                continue;
            }
            for order in 1..=self.parameters.order.min(end) {
                self.followed.push((context(&pages[end - order..end]), counts));
            }
            counts *= self.parameters.fade;
        }
        let class = urls.follower_class(visit.url, visit.origin);
        self.contexts.follow(&self.followed, visit.url, class);
        if let Some(pending) = &mut self.pending {
            // In events of now.
            let event = self.contexts.now(visit.at);
            for (pages, weight) in &self.followed {
                pending.follow(*pages, visit.url, weight / event, class);
            }
        }
    }

    /// The weight of the context of the last `order` pages, as far as it is evidence, and its followers. None
    /// if no weight is left.
    ///
    /// The requesting client has just been there, and its next page is unknown. With its own occurrence every
    /// context would be known, even at the very first visit, and would have no followers.
    fn evidence(
        &self,
        question: &Question<'_>,
        order: usize,
    ) -> Option<(f64, u16, impl Iterator<Item = Follower>)> {
        let pages = &question.pages[question.pages.len().checked_sub(order)?..];
        let key = Pages::new(pages.iter().copied()).key();
        let (weight, times, followers) = self.contexts.followers(key)?;
        let own = if question.learned { f64::from(self.contexts.now(question.at)) } else { 0.0 };
        let times = times.saturating_sub(u16::from(question.learned));
        (weight > own && times > 0).then_some((weight - own, times, followers))
    }

    /// Whether it may be revealed to a client without it.
    fn may_be_revealed(&self, follower: &Follower, urls: &Urls) -> bool {
        follower.clients >= self.parameters.clients && urls.is_public(follower.url)
    }

    /// The followers of a context; those that may be revealed and are not held are put into `into`, each with
    /// its share of the occurrences. None if no other client had it: then it has no weight.
    fn shares(
        &self,
        question: &Question<'_>,
        urls: &Urls,
        order: usize,
        into: &mut Vec<Candidate>,
    ) -> Option<Shares> {
        into.clear();
        let (weight, times, followers) = self.evidence(question, order)?;
        let mut shares = Shares { occurrences: f32::from(times), followers: 0.0, is_told: false };
        for follower in followers {
            shares.followers += 1.0;
            if self.may_be_revealed(&follower, urls) {
                shares.is_told = true;
                if question.held.binary_search(&follower.url).is_err() {
                    // A context that gave its blocks away has counted fewer occurrences than it had.
                    let probability = (f64::from(follower.weight) / weight).min(1.0) as f32;
                    into.push(Candidate { url: follower.url, probability });
                }
            }
        }
        // If others were there and none continued, all of them left: more of them make that more certain.
        // With zero followers it would be as certain after one of them as after a hundred.
        shares.followers = shares.followers.max(1.0);
        Some(shares)
    }

    /// The longest context with a follower that may be revealed. One without counts as unknown, which the
    /// papers imply, because they reveal everything. If the client has all followers, the context is known,
    /// and the list stays empty: in Nice §6.1 the client leaves out URLs that it has.
    fn longest(&self, question: &Question<'_>, urls: &Urls, ranked: &mut Vec<Candidate>) {
        for order in (1..=self.parameters.order).rev() {
            if self.shares(question, urls, order, ranked).is_some_and(|shares| shares.is_told) {
                return;
            }
        }
        ranked.clear();
    }

    /// From the longest context down: its prediction, times the rest of the longer ones.
    fn escape(&self, question: &Question<'_>, urls: &Urls, ranked: &mut Vec<Candidate>) {
        let mut left = 1.0;
        let mut shares = Vec::new();
        for order in (1..=self.parameters.order).rev() {
            let Some(of) = self.shares(question, urls, order, &mut shares) else { continue };
            let known = ranked.len();
            for one in &shares {
                if !ranked[..known].iter().any(|other| other.url == one.url) {
                    let probability = left * one.probability;
                    ranked.push(Candidate { url: one.url, probability });
                }
            }
            left *= of.followers / (of.occurrences + of.followers);
        }
    }

    /// From general popularity up: each context moves the probabilities towards its own.
    fn blend(&self, question: &Question<'_>, urls: &Urls, ranked: &mut Vec<Candidate>, c: f32) {
        // This page's share of all pages, and of pages with a successor: the last page of a visit has no next
        // page.
        let goes_on = self.top.goes_on(question.at);
        ranked.extend(
            self.top
                .shares(urls, question.at)
                .filter(|(url, _)| question.held.binary_search(url).is_err())
                .map(|(url, share)| Candidate { url, probability: share * goes_on }),
        );
        let mut shares = Vec::new();
        for order in 1..=self.parameters.order {
            let Some(of) = self.shares(question, urls, order, &mut shares) else { continue };
            let say = of.occurrences / (of.occurrences + c * of.followers);
            // A context has fewer followers than there are popular URLs, so the followers are sorted.
            shares.sort_unstable_by_key(|one| one.url);
            for one in ranked.iter_mut() {
                one.probability *= 1.0 - say;
                if let Ok(at) = shares.binary_search_by_key(&one.url, |other| other.url) {
                    one.probability += say * shares[at].probability;
                    // It is in the list.
                    shares[at].probability = -1.0;
                }
            }
            ranked.extend(
                shares
                    .iter()
                    .filter(|one| one.probability >= 0.0)
                    .map(|one| Candidate { url: one.url, probability: say * one.probability }),
            );
        }
    }
}

/// A context from pages with their places.
fn context(pages: &[(UrlId, usize)]) -> Pages {
    Pages::new(pages.iter().map(|page| page.0))
}

impl Predictor for Ppm {
    fn train(&mut self, visit: &Visit, history: &[Step], urls: &Urls) {
        let counts = self.contexts.event(visit.at);
        let needed = self.parameters.window as usize + self.parameters.order;
        self.pages.clear();
        let pages = history.iter().enumerate().rev().filter(|(_, step)| step.kind == Kind::Page);
        self.pages.extend(pages.take(needed).map(|(at, step)| (step.url, at)));
        self.pages.reverse();
        if visit.cacheable {
            self.follow(visit, history, urls, counts);
        }
        if visit.kind == Kind::Page {
            for order in 1..=self.parameters.order.min(self.pages.len()) {
                let pages = context(&self.pages[self.pages.len() - order..]);
                self.contexts.occur(pages.key(), counts);
                if let Some(pending) = &mut self.pending {
                    pending.occur(pages);
                }
            }
        }
        if let Some(pending) = &mut self.pending {
            pending.note_visit(visit, history);
        }
        if let Backoff::Blend { .. } = self.parameters.backoff {
            self.top.train(visit, history, urls);
        }
    }

    fn rank(&self, question: &Question<'_>, urls: &Urls, ranked: &mut Vec<Candidate>) {
        ranked.clear();
        match self.parameters.backoff {
            Backoff::Longest => self.longest(question, urls, ranked),
            Backoff::Escape => self.escape(question, urls, ranked),
            Backoff::Blend { discount } => self.blend(question, urls, ranked, discount),
        }
        sort(ranked);
        ranked.truncate(ranked.partition_point(|one| one.probability >= self.parameters.least));
        if let Some(most) = self.parameters.bytes_per_hit {
            ranked.retain(|one| urls.bytes_per_hit(one.url, one.probability) <= most.0 as f32);
        }
    }

    fn resident(&self) -> Bytes {
        let pages = self.pages.capacity() * size_of::<(UrlId, usize)>();
        let followed = self.followed.capacity() * size_of::<(Pages, f32)>();
        let pending = self.pending.as_ref().map_or(0, Pending::resident);
        let own = (pages + followed + pending) as u64;
        Bytes(self.contexts.resident().0 + self.top.resident().0 + own)
    }
}
