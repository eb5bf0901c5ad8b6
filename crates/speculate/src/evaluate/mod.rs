//! The quality of predictors on a log: trained continuously, measured on its later part.
//!
//! Each client has a cache that keeps its responses for as long as its session lasts (SSR §5.3.1 has one that
//! never evicts). After a page request, each predictor gives a list. URLs on the list that are not in the
//! cache are fetched before the client's next page, after the page's own subresources (SSR §5.1). So a
//! subresource of the present page is never a hit, and costs nothing.
//!
//! Each predictor is measured with lists of several lengths, the most probable first, and with
//! several thresholds of priority. The thresholds give a curve of hit rate over bytes, on which
//! predictors are compared at equal bytes.

mod bootstrap;
mod cache;
mod choice;
mod clients;
mod plan;
mod tally;

use std::collections::BTreeMap;

use crate::log::Entry;
use crate::observe::{Ignored, Kind, Observer};
use crate::predict::{Asker, Candidate, Predictor};

pub use bootstrap::{Bootstrap, Interval};
pub use choice::{BaselineComparison, ranking};
use clients::Clients;
pub use plan::Plan;
pub use tally::{Measured, Point};

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// For each slice and each predictor, in their order.
    pub slices: Vec<Vec<Measured>>,
    /// For each slice, how far the rates may differ by chance; the predictors are in the same order.
    pub bootstraps: Vec<Bootstrap>,
    /// Requests that were learned.
    pub visits: u64,
    /// Requests that were not, by reason.
    pub ignored: BTreeMap<Ignored, u64>,
}

/// A predictor with its name.
pub struct NamedPredictor<'a> {
    /// Its name in the result.
    pub name: String,
    /// The predictor, which continues to learn.
    pub predictor: &'a mut dyn Predictor,
}

/// Takes a log in order, and measures the predictors on it.
pub fn evaluate<'e>(
    entries: impl IntoIterator<Item = Entry<'e>>,
    observer: &mut Observer,
    predictors: &mut [NamedPredictor<'_>],
    plan: &Plan,
) -> Evaluation {
    let mut evaluator = Evaluator::new(observer, predictors, plan);
    for entry in entries {
        evaluator.take(&entry);
    }
    evaluator.finish()
}

/// The same for a caller that has one entry at a time.
///
/// It remembers clients for as long as their sessions last, and at most [`Limits::sessions`].
///
/// [`Limits::sessions`]: crate::observe::Limits::sessions
pub struct Evaluator<'a, 'c> {
    observer: &'a mut Observer,
    predictors: &'a mut [NamedPredictor<'c>],
    clients: Clients<'a>,
    plan: &'a Plan,
    asker: Asker,
    ranked: Vec<Candidate>,
    visits: u64,
    ignored: BTreeMap<Ignored, u64>,
}

impl<'a, 'c> Evaluator<'a, 'c> {
    /// An evaluation that begins.
    pub fn new(
        observer: &'a mut Observer,
        predictors: &'a mut [NamedPredictor<'c>],
        plan: &'a Plan,
    ) -> Self {
        Evaluator {
            clients: Clients::new(plan, predictors.len(), observer.limits()),
            observer,
            predictors,
            plan,
            asker: Asker::default(),
            ranked: Vec::new(),
            visits: 0,
            ignored: BTreeMap::new(),
        }
    }

    /// Takes the next entry of the log.
    pub fn take(&mut self, entry: &Entry<'_>) {
        let visit = match self.observer.observe(entry) {
            Ok(visit) => visit,
            Err(why) => {
                *self.ignored.entry(why).or_default() += 1;
                return;
            }
        };
        self.visits += 1;
        let history = self.observer.history(&visit);
        let urls = self.observer.urls();
        let slice = self.plan.slice(entry.at);
        let lasts = |client| !self.observer.history_of(client).is_empty();
        self.clients.leave(self.observer.now(), urls, lasts);
        // A new session has only this visit.
        self.clients.demand(&visit, self.observer.now(), slice, history.len() == 1, urls);
        for named in self.predictors.iter_mut() {
            named.predictor.train(&visit, history, urls);
        }
        if let (Kind::Page, Some(slice)) = (visit.kind, slice) {
            let question = self.asker.ask(visit.at, history);
            for (which, named) in self.predictors.iter().enumerate() {
                named.predictor.rank(&question, urls, &mut self.ranked);
                self.clients.advise(visit.client, which, slice, &self.ranked, urls);
            }
        }
    }

    /// The result.
    pub fn finish(self) -> Evaluation {
        let (plan, predictors) = (self.plan, self.predictors);
        let tallies = self.clients.finish(self.observer.urls());
        let measured = |slice| {
            let all = predictors.iter().enumerate();
            all.map(|(which, one)| tallies.measured(plan, slice, which, &one.name)).collect()
        };
        let slices = (0..plan.slices.len()).map(measured).collect();
        let draw = |slice| Bootstrap::new(&tallies, plan, slice, predictors.len());
        let bootstraps = (0..plan.slices.len()).map(draw).collect();
        Evaluation { slices, bootstraps, visits: self.visits, ignored: self.ignored }
    }
}

#[cfg(test)]
mod tests;
