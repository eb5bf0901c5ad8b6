//! The probable next URLs of a client (SSR §3.1.1): a ranked list with probabilities, learned online.
//!
//! | predictor | method |
//! |---|---|
//! | [`Ppm`] with [`PpmParameters::paper`] | PPM-n/w of Nice §6.1 and SSR §3.1.1 |
//! | [`Ppm`] with [`PpmParameters::markov`] | a Markov model of first order, with images |
//! | [`TopN`] | the most popular URLs, for any client |
//! | [`Ppm`] with [`PpmParameters::shipped`] | the default, chosen by measuring:
//! `docs/predictor.md` |

mod contexts;
mod pending;
mod ppm;
mod top_n;

use lull_cc::{Bytes, Timestamp};

use crate::observe::{Kind, Step, UrlId, Urls, Visit};

pub(crate) use contexts::Pages;
pub(crate) use pending::{ContextChange, FollowerChange};
pub use ppm::{Backoff, Context, Counted, Explained, Explanation, Ppm, PpmParameters, Withheld};
pub use top_n::TopN;

/// A URL that the client may want.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The URL.
    pub url: UrlId,
    /// The probability that the client asks for it within the predictor's window, from 0 to 1.
    pub probability: f32,
}

/// A question for a predictor.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// When.
    pub at: Timestamp,
    /// The client's pages, the latest last; at least one for more than general advice.
    pub pages: &'a [UrlId],
    /// Whether the predictor has learned the visit of the latest of them, by this very client, and no later
    /// one. Such a visit has no successor so far.
    pub learned: bool,
    /// The URLs that the client has already, in ascending order: they are not suggested.
    pub held: &'a [UrlId],
}

/// Learns from visits, and ranks the next ones.
///
/// Both calls take bounded time and memory, for any clients. Equal calls give equal answers.
pub trait Predictor {
    /// Learns from the last step of `history`, which `visit` describes.
    fn train(&mut self, visit: &Visit, history: &[Step], urls: &Urls);

    /// Replaces `ranked` by the probable next URLs, the most probable first, and by number if probabilities
    /// are equal. All of them may be suggested: [`Urls::is_public`].
    fn rank(&self, question: &Question<'_>, urls: &Urls, ranked: &mut Vec<Candidate>);

    /// Its memory, without the allocator's overhead.
    fn resident(&self) -> Bytes;
}

/// Builds questions from a client's history.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    pages: Vec<UrlId>,
    held: Vec<UrlId>,
}

impl Asker {
    /// The question of a client with this history, which was learned completely. The memory of the previous
    /// question is reused.
    pub fn ask(&mut self, at: Timestamp, history: &[Step]) -> Question<'_> {
        self.pages.clear();
        self.pages.extend(history.iter().filter(|s| s.kind == Kind::Page).map(|step| step.url));
        self.held.clear();
        self.held.extend(history.iter().map(|step| step.url));
        self.held.sort_unstable();
        Question { at, pages: &self.pages, learned: true, held: &self.held }
    }
}

/// Sorts candidates by probability, as [`Predictor::rank`] promises.
fn sort(ranked: &mut [Candidate]) {
    // Probabilities are never below 0, so their bits have the same order. One comparison of integers takes a
    // third of the time of two.
    let key =
        |one: &Candidate| u64::from(!one.probability.to_bits()) << 32 | u64::from(one.url.raw());
    ranked.sort_unstable_by_key(key);
}

/// Sorts candidates by their priority ([`Urls::priority`]) and returns the priorities with them: the order in
/// which they are worth fetching if bytes are scarce.
pub fn prioritise(ranked: &[Candidate], urls: &Urls, into: &mut Vec<(f32, Candidate)>) {
    into.clear();
    into.extend(ranked.iter().map(|one| (urls.priority(one.url, one.probability), *one)));
    into.sort_unstable_by(|(a, one), (b, other)| b.total_cmp(a).then(one.url.cmp(&other.url)));
}

#[cfg(test)]
mod tests;
