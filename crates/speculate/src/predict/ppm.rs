//! Prediction by partial matching: PPM-n/w, and what comes of it by changing one rule at a time.
//!
//! The model counts, for each context of up to n pages that clients had one after the other, how
//! often it occurred, and for each URL how often it was asked for in the window behind. The
//! probability of a URL is the one count over the other.
//!
//! ```text
//!     page A   image   page B   image   image   page C   image   page D
//!       └──────────────context A, B─┘                               │
//!                                │    window of w = 2 ──────────────┤   Counted::All
//!                                └─ in B itself ─┘└─ window of w = 2 ─────▶   Counted::Ahead
//! ```

use core::time::Duration;

use lull_cc::Bytes;

use super::contexts::{Contexts, Room, key};
use super::{Candidate, Predictor, Question, TopN, sort};
use crate::observe::{Kind, Step, UrlId, Urls, Visit};

/// What of a window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Everything up to the w-th page behind the context, that page included: the papers' window
    /// (Nice §6.1).
    All,
    /// Only what comes with the next page or later: the next w pages with all that is in them.
    ///
    /// What is in the page that the client just got is asked for at once by the browser, whoever
    /// suggests it.
    Ahead,
}

/// What becomes of contexts of fewer pages than n.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Backoff {
    /// Only the longest context that is known predicts.
    Longest,
    /// Shorter contexts predict what longer ones don't, with the probability that those leave over:
    /// PPM's escape by method C (Moffat, 1990), the share of followers among occurrences and
    /// followers.
    Escape,
    /// All predict together, from general popularity up: a context that occurred N times and was
    /// followed by D URLs has N / (N + c·D) of the say, and leaves the rest to the shorter one. With
    /// c = 1 that is the smoothing of Witten and Bell (1991), whose weights are those of method C.
    Blend {
        /// c, in occurrences for each URL that followed.
        discount: f32,
    },
}

/// The parameters of a [`Ppm`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PpmParameters {
    /// n: the pages of the longest context, 1 to 4.
    pub order: usize,
    /// w: the pages of the window, 1 to 16.
    pub window: u32,
    /// What of it counts.
    pub counted: Counted,
    /// What the second page of the window counts, if the first counts 1; the third counts the square
    /// of it, and so on. With 1 probabilities are those of the papers; below, they say what is wanted
    /// soon rather than late. Above 0, up to 1.
    pub fade: f32,
    /// What shorter contexts do.
    pub backoff: Backoff,
    /// So many classes of clients, of 16, must have gone from a context to a URL before that is
    /// told to others: so nobody learns the path of a single client by asking for it. 1 to 16.
    pub clients: u32,
    /// After this time an occurrence counts half.
    pub half_life: Duration,
    /// Contexts that are remembered, 24 bytes each and up to 22 for the index.
    pub contexts: usize,
    /// Followers of contexts that are remembered in all, 11 bytes each.
    pub followers: usize,
    /// Followers that one context remembers.
    pub followers_per_context: usize,
}

/// Three clients: the one who asks, and two others, so that neither of these is known by being the
/// only one.
const CLIENTS: u32 = 3;
/// Followers in a block of [`Contexts`].
const PER_BLOCK: usize = 6;

impl PpmParameters {
    /// PPM-n/w of Nice §6.1: n = 2 there; w = 5 conservative, 10 aggressive. What a context that is
    /// not known leaves to shorter ones is open there.
    pub fn paper(order: usize, window: u32) -> Self {
        PpmParameters {
            order,
            window,
            counted: Counted::All,
            fade: 1.0,
            backoff: Backoff::Longest,
            clients: CLIENTS,
            half_life: Duration::from_secs(7 * 24 * 3600),
            contexts: 1 << 20,
            followers: 24 << 20,
            followers_per_context: 60,
        }
    }

    /// A Markov model of first order: what is asked for behind a page, up to and with the next one.
    pub fn markov() -> Self {
        PpmParameters::paper(1, 1)
    }

    /// What Lull ships, chosen on the validation slices of two logs: `docs/predictor.md`.
    pub fn shipped() -> Self {
        PpmParameters {
            counted: Counted::Ahead,
            fade: 0.5,
            backoff: Backoff::Blend { discount: 0.3 },
            ..PpmParameters::paper(1, 5)
        }
    }
}

/// Prediction by partial matching.
#[derive(Clone, Debug)]
pub struct Ppm {
    parameters: PpmParameters,
    contexts: Contexts,
    top: TopN,
    /// The latest pages of the client that is learned from, each with its place in the history.
    pages: Vec<(UrlId, usize)>,
}

impl Ppm {
    /// A model that has learned nothing.
    ///
    /// # Panics
    /// If a parameter is out of its range.
    pub fn new(parameters: PpmParameters) -> Self {
        let PpmParameters { order, window, fade, clients, followers_per_context, .. } = parameters;
        assert!((1..=4).contains(&order), "contexts of {order} pages are not of 1 to 4");
        assert!((1..=16).contains(&window), "a window of {window} pages is not of 1 to 16");
        assert!(fade > 0.0 && fade <= 1.0, "a second page counts above 0 and up to 1, not {fade}");
        assert!((1..=16).contains(&clients), "{clients} classes of clients are not 1 to 16");
        let blocks_per_context = followers_per_context.div_ceil(PER_BLOCK);
        let blocks_per_context = u8::try_from(blocks_per_context).ok().filter(|blocks| *blocks > 0);
        let room = Room {
            contexts: parameters.contexts,
            blocks: parameters.followers.div_ceil(PER_BLOCK),
            blocks_per_context: blocks_per_context
                .expect("a context has from one to 1530 followers"),
            clients,
        };
        Ppm {
            parameters,
            contexts: Contexts::new(room, parameters.half_life),
            top: TopN::new(parameters.half_life),
            pages: Vec::new(),
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &PpmParameters {
        &self.parameters
    }

    /// Notes that `url`, the last step, follows the contexts in whose windows it stands.
    fn follow(&mut self, visit: &Visit, history: &[Step], counts: f32) {
        let window = self.parameters.window as usize;
        let last = history.len() - 1;
        // Pages in front of the step. The page that it is in ends the window of the papers.
        let pages = match (visit.kind, self.parameters.counted) {
            (Kind::Page, _) => &self.pages[..self.pages.len() - 1],
            (Kind::Embedded, Counted::All) => &self.pages[..],
            (Kind::Embedded, Counted::Ahead) => &self.pages[..self.pages.len().saturating_sub(1)],
        };
        // Where the client asked for it before: it follows only those contexts that came later.
        let before = history[..last].iter().rposition(|step| step.url == visit.url);
        let mut counts = counts;
        for end in (1..=pages.len()).rev().take(window) {
            if before.is_some_and(|before| before >= pages[end - 1].1) {
                break;
            }
            for order in 1..=self.parameters.order.min(end) {
                let key = context(&pages[end - order..end]);
                self.contexts.follow(key, visit.url, visit.origin, counts);
            }
            counts *= self.parameters.fade;
        }
    }

    /// What followed a context: how often the context occurred, how many URLs followed, and those of
    /// them that may be told, each with its share of the occurrences.
    fn shares(
        &self,
        question: &Question<'_>,
        urls: &Urls,
        order: usize,
        into: &mut Vec<Candidate>,
    ) -> Option<(f32, f32)> {
        let pages = &question.pages[question.pages.len().checked_sub(order)?..];
        let (weight, followers) = self.contexts.followers(key(pages))?;
        let occurrences = weight / self.contexts.now(question.at);
        let mut count = 0.0;
        into.clear();
        for follower in followers {
            count += 1.0;
            if follower.clients >= self.parameters.clients
                && question.held.binary_search(&follower.url).is_err()
                && urls.is_public(follower.url)
            {
                // A context that gave its blocks up has counted fewer occurrences than it had.
                let probability = (follower.weight / weight).min(1.0);
                into.push(Candidate { url: follower.url, probability });
            }
        }
        (occurrences > 0.0).then_some((occurrences, count))
    }

    /// From the longest context down: what it predicts, times what the longer ones left over.
    fn escape(&self, question: &Question<'_>, urls: &Urls, ranked: &mut Vec<Candidate>, all: bool) {
        let mut left = 1.0;
        let mut shares = Vec::new();
        for order in (1..=self.parameters.order).rev() {
            let Some((occurrences, count)) = self.shares(question, urls, order, &mut shares) else {
                continue;
            };
            let known = ranked.len();
            for one in &shares {
                if !ranked[..known].iter().any(|other| other.url == one.url) {
                    let probability = left * one.probability;
                    ranked.push(Candidate { url: one.url, probability });
                }
            }
            if !all {
                break;
            }
            left *= count / (occurrences + count);
        }
    }

    /// From general popularity up: each context moves the probabilities towards its own.
    fn blend(&self, question: &Question<'_>, urls: &Urls, ranked: &mut Vec<Candidate>, c: f32) {
        ranked.extend(
            self.top
                .shares(urls, question.at)
                .filter(|(url, _)| question.held.binary_search(url).is_err())
                .map(|(url, probability)| Candidate { url, probability }),
        );
        ranked.sort_unstable_by_key(|one| one.url);
        let mut shares = Vec::new();
        for order in 1..=self.parameters.order {
            let Some((occurrences, count)) = self.shares(question, urls, order, &mut shares) else {
                break;
            };
            let say = occurrences / (occurrences + c * count);
            ranked.iter_mut().for_each(|one| one.probability *= 1.0 - say);
            let known = ranked.len();
            for one in &shares {
                let probability = say * one.probability;
                match ranked[..known].binary_search_by_key(&one.url, |other| other.url) {
                    Ok(at) => ranked[at].probability += probability,
                    Err(_) => ranked.push(Candidate { url: one.url, probability }),
                }
            }
            ranked.sort_unstable_by_key(|one| one.url);
        }
    }
}

/// The key of a context out of pages with their places.
fn context(pages: &[(UrlId, usize)]) -> u64 {
    let mut urls = [pages[0].0; 4];
    for (url, page) in urls.iter_mut().zip(pages) {
        *url = page.0;
    }
    key(&urls[..pages.len()])
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
            self.follow(visit, history, counts);
        }
        if visit.kind == Kind::Page {
            for order in 1..=self.parameters.order.min(self.pages.len()) {
                self.contexts.occur(context(&self.pages[self.pages.len() - order..]), counts);
            }
        }
        if let Backoff::Blend { .. } = self.parameters.backoff {
            self.top.train(visit, history, urls);
        }
    }

    fn rank(&self, question: &Question<'_>, urls: &Urls, ranked: &mut Vec<Candidate>) {
        ranked.clear();
        match self.parameters.backoff {
            Backoff::Longest => self.escape(question, urls, ranked, false),
            Backoff::Escape => self.escape(question, urls, ranked, true),
            Backoff::Blend { discount } => self.blend(question, urls, ranked, discount),
        }
        sort(ranked);
    }

    fn resident(&self) -> Bytes {
        let pages = self.pages.capacity() * size_of::<(UrlId, usize)>();
        Bytes(self.contexts.resident().0 + self.top.resident().0 + pages as u64)
    }
}
