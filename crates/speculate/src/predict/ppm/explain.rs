//! Explains a predictor's suggestions.

use super::{Backoff, Ppm};
use crate::observe::{UrlId, Urls};
use crate::predict::contexts::Follower;
use crate::predict::{Predictor as _, Question};

/// A known context of the question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Context {
    /// Number of last pages that it consists of.
    pub pages: usize,
    /// How often clients had it, decayed, in occurrences of the time of the question, and without that of the
    /// requesting one.
    pub occurrences: f32,
    /// How many URLs followed it.
    pub followers: usize,
}

/// Why a following URL is not hinted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The client has it.
    Held,
    /// It had to make room for other URLs.
    Gone,
    /// Too few distinct clients got it publicly: [`Urls::is_public`].
    NotPublic,
    /// Too few distinct clients went there from this context: [`super::PpmParameters::clients`].
    FewClients,
    /// It is too unlikely: [`super::PpmParameters::least`].
    Unlikely,
    /// It costs too many bytes per hit: [`super::PpmParameters::bytes_per_hit`].
    Costly,
}

/// A considered URL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Explained {
    /// The URL.
    pub url: UrlId,
    /// The probability for its rank; for a withheld URL, its share of the occurrences of the longest context
    /// that it followed.
    pub probability: f32,
    /// How many distinct clients went there from a context, the most of all contexts: a lower bound, and 16
    /// at most. None if it followed no context and is only popular.
    pub clients: Option<u32>,
    /// Why it is not hinted; none if it is.
    pub withheld: Option<Withheld>,
}

/// A predictor's explanation of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The requested contexts that are known, the longest first.
    pub contexts: Vec<Context>,
    /// The suggested URLs, in the order of [`crate::predict::Predictor::rank`]; then the withheld ones, the
    /// most probable first.
    pub candidates: Vec<Explained>,
}

impl Ppm {
    /// The reasons for the answer to this question. It takes longer than the answer.
    pub fn explain(&self, question: &Question<'_>, urls: &Urls) -> Explanation {
        let mut ranked = Vec::new();
        self.rank(question, urls, &mut ranked);
        let mut candidates: Vec<Explained> = ranked
            .iter()
            .map(|one| Explained {
                url: one.url,
                probability: one.probability,
                clients: None,
                withheld: None,
            })
            .collect();
        let mut contexts = Vec::new();
        for (pages, weight, followers) in self.asked(question, urls) {
            contexts.push(Context {
                pages,
                occurrences: (weight / f64::from(self.contexts.now(question.at))) as f32,
                followers: followers.len(),
            });
            for follower in followers {
                if let Some(one) = candidates.iter_mut().find(|one| one.url == follower.url) {
                    one.clients = one.clients.max(Some(follower.clients));
                } else {
                    let probability = (f64::from(follower.weight) / weight).min(1.0) as f32;
                    candidates.push(Explained {
                        url: follower.url,
                        probability,
                        clients: Some(follower.clients),
                        withheld: Some(self.withheld(&follower, probability, question, urls)),
                    });
                }
            }
        }
        let (_, others) = candidates.split_at_mut(ranked.len());
        others.sort_unstable_by(|a, b| {
            b.probability.total_cmp(&a.probability).then(a.url.cmp(&b.url))
        });
        Explanation { contexts, candidates }
    }

    fn withheld(
        &self,
        follower: &Follower,
        probability: f32,
        question: &Question<'_>,
        urls: &Urls,
    ) -> Withheld {
        if question.held.binary_search(&follower.url).is_ok() {
            Withheld::Held
        } else if urls.path(follower.url).is_none() {
            Withheld::Gone
        } else if !urls.is_public(follower.url) {
            Withheld::NotPublic
        } else if follower.clients < self.parameters.clients {
            Withheld::FewClients
        } else if probability < self.parameters.least {
            Withheld::Unlikely
        } else {
            // It was not ranked, so this is the only remaining reason.
            Withheld::Costly
        }
    }

    /// The contexts with a weight, the longest first: their lengths, weights and followers. If only one has a
    /// weight, also the longer ones without followers to reveal, to show why not.
    fn asked(&self, question: &Question<'_>, urls: &Urls) -> Vec<(usize, f64, Vec<Follower>)> {
        let mut asked = Vec::new();
        for order in (1..=self.parameters.order).rev() {
            let Some((weight, _, followers)) = self.evidence(question, order) else { continue };
            let followers: Vec<Follower> = followers.collect();
            let is_told = followers.iter().any(|one| self.may_be_revealed(one, urls));
            asked.push((order, weight, followers));
            if is_told && self.parameters.backoff == Backoff::Longest {
                break;
            }
        }
        asked
    }
}
