//! The hints of a server to clients that decide the times: the papers' lists.

use std::collections::BTreeMap;

use lull_cc::Timestamp;
use lull_speculate::log::Entry;
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Limits, UrlId};
use lull_speculate::predict::{Candidate, PpmParameters, Predictor as _, Question};

use super::client::Ahead;
use super::trace::{DocumentId, Documents};

/// The contents of lists.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Listed {
    /// This many times a document that no client wants.
    Dummies,
    /// Documents with at least this probability of being wanted next, the most probable first.
    Predicted {
        /// The least probability: the papers' threshold.
        threshold: f32,
    },
}

/// The part of the log that the predictor learns from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Learned {
    /// The log before the section: the possible knowledge of a server.
    #[default]
    Before,
    /// All of it, as in SSR §5.3: the paper's predictor has seen the requests that it predicts.
    Whole,
}

/// A predictor, and its hints.
#[derive(Debug)]
pub struct Advisor {
    model: Model,
    learned: Learned,
    /// The predictor's numbers of documents, as far as they were looked up, and back.
    urls: BTreeMap<DocumentId, Option<UrlId>>,
    documents: BTreeMap<UrlId, DocumentId>,
    ranked: Vec<Candidate>,
}

impl Advisor {
    /// A predictor that has learned nothing.
    pub fn new(parameters: PpmParameters, learned: Learned) -> Self {
        // Nothing is kept beyond the run, so the key need not be secret.
        let hasher = ClientHasher::new([0; 16]);
        Advisor {
            model: Model::new(hasher, Limits::default(), parameters),
            learned,
            urls: BTreeMap::new(),
            documents: BTreeMap::new(),
            ranked: Vec::new(),
        }
    }

    /// Learns an entry of the log, if it may be known.
    pub fn learn(&mut self, entry: &Entry<'_>, is_past: bool) {
        if is_past || self.learned == Learned::Whole {
            // Entries that teach predictors nothing are skipped.
            let _ = self.model.learn(entry);
        }
    }

    /// Looks up which documents exist, for all later lists.
    pub fn look_up(&mut self, documents: &Documents) {
        let observer = self.model.observer();
        for (number, document) in (0..).map(DocumentId).zip(documents.all()) {
            // A document with a query is a context by its path, but not a candidate.
            let url = observer.url(&document.target);
            self.urls.insert(number, url);
            if let Some(url) = url
                && !document.target.contains('?')
            {
                self.documents.insert(url, number);
            }
        }
    }

    /// A list of at most this many, without those that the client had.
    pub fn list(
        &mut self,
        pages: &[DocumentId],
        had: &[DocumentId],
        length: usize,
        threshold: f32,
    ) -> Vec<Ahead> {
        let url = |one: &DocumentId| self.urls.get(one).copied().flatten();
        // No context reaches back beyond an unknown page, and none begins with one.
        let begin = pages.iter().rposition(|page| url(page).is_none()).map_or(0, |at| at + 1);
        let pages: Vec<UrlId> = pages[begin..].iter().filter_map(url).collect();
        if pages.is_empty() {
            return Vec::new();
        }
        let mut held: Vec<UrlId> = had.iter().filter_map(url).collect();
        held.extend(pages.last());
        held.sort_unstable();
        let at: Timestamp = self.model.latest();
        // The model has not seen this client's visits, or has seen them to their end.
        let question = Question { at, pages: &pages, learned: false, held: &held };
        let urls = self.model.observer().urls();
        self.model.predictor().rank(&question, urls, &mut self.ranked);
        let likely = self.ranked.iter().take_while(|one| one.probability >= threshold);
        let documents = likely.filter_map(|one| self.documents.get(&one.url));
        documents.take(length).map(|one| Ahead::Document(*one)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::trace::{Reading, Section};

    fn advisor(learned: Learned, begin: u64) -> (Advisor, Documents) {
        let mut advisor = Advisor::new(PpmParameters::paper(1, 1), learned);
        let section =
            Section { begin: core::time::Duration::from_secs(begin), ..Section::default() };
        let mut reading = Reading::new(section);
        for client in 0..8u64 {
            for (step, target) in [(0, "/a"), (1, "/b")] {
                // Every other client continues to /c.
                let target = if target == "/b" && client % 2 == 0 { "/c" } else { target };
                let at = Timestamp::from_nanos((100 * client + step + 1) * 1_000_000_000);
                let entry = Entry::page(at, format!("192.0.2.{client}"), target);
                let is_past = reading.take(&entry);
                advisor.learn(&entry, is_past);
            }
        }
        // A page needs five clients to be public: /b from others.
        for client in 10..18u64 {
            let at = Timestamp::from_nanos((2000 + client) * 1_000_000_000);
            for target in ["/b", "/c"] {
                let entry = Entry::page(at, format!("192.0.2.{client}"), target);
                let is_past = reading.take(&entry);
                advisor.learn(&entry, is_past);
            }
        }
        let documents = reading.documents().clone();
        advisor.look_up(&documents);
        (advisor, documents)
    }

    #[test]
    fn list_has_likely_unfetched_followers() {
        let (mut advisor, mut documents) = advisor(Learned::Whole, 0);
        let number = |documents: &mut Documents, target| documents.number(target);
        let (a, b, c) = (
            number(&mut documents, "/a"),
            number(&mut documents, "/b"),
            number(&mut documents, "/c"),
        );
        let mut list = advisor.list(&[a], &[], 10, 0.1);
        list.sort_by_key(|one| *one == Ahead::Document(c));
        assert_eq!(list, [Ahead::Document(b), Ahead::Document(c)]);
        assert_eq!(advisor.list(&[a], &[b], 10, 0.1), [Ahead::Document(c)]);
        assert_eq!(advisor.list(&[a], &[], 1, 0.1).len(), 1);
        assert_eq!(advisor.list(&[a], &[], 10, 0.9), [], "half of them went there");
        assert_eq!(advisor.list(&[], &[], 10, 0.1), []);
        // There was no visit before, so no prediction.
        let new = documents.number("/new");
        assert_eq!(advisor.list(&[a, new], &[], 10, 0.1), []);
        assert_eq!(advisor.list(&[new, a], &[], 1, 0.1).len(), 1);
    }

    #[test]
    fn future_requests_are_learned_only_on_request() {
        let (mut advisor, mut documents) = advisor(Learned::Before, 0);
        let a = documents.number("/a");
        assert_eq!(advisor.list(&[a], &[], 10, 0.0), []);
    }
}
