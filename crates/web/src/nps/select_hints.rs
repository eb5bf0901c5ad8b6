//! What a page's visitors may want next: the model's candidates in the order of their worth, as far as the
//! rules let them through.

use std::time::Duration;

use lull_speculate::model::Model;
use lull_speculate::observe::{Kind as UrlKind, UrlId};
use lull_speculate::predict::{Candidate, Predictor as _, Question, prioritise};

use super::desk::{Ask, timestamp};
use super::{Shared, lock, reasons, wall};
use crate::protocol::{Hint, Kind, MOST_HINTS};

/// Where the pointer rests on a link it takes visitors so long at least, mostly, until they press it: what is pointed
/// at is fetched meanwhile, by who goes there alone. Of what the made-up visitors of `plans/web-browsers.toml` point
/// at, four of five pages are there at the click, over 150 ms.
const POINTED_BEFORE: Duration = Duration::from_millis(200);

/// The part of what it saves to fetch a page ahead that fetching it when it is pointed at does not save.
fn beyond_pointing(latency: Duration) -> f32 {
    let beyond = latency.saturating_sub(POINTED_BEFORE);
    beyond.as_secs_f32() / latency.as_secs_f32().max(f32::MIN_POSITIVE)
}

/// What may be wanted next, best first; and if there is nothing to be fetched at once, why.
#[derive(Debug)]
pub(super) struct Ranked {
    /// To be fetched at once.
    pub(super) hints: Vec<Hint>,
    /// Pages that are not worth that before the visitor points at a link to one.
    pub(super) pointed: Vec<Hint>,
    pub(super) why_none: &'static str,
}

impl Ranked {
    fn none(why_none: &'static str) -> Self {
        Ranked { hints: Vec::new(), pointed: Vec::new(), why_none }
    }

    fn is_full(&self) -> bool {
        self.hints.len() + self.pointed.len() >= MOST_HINTS
    }
}

/// What is ranked in, so that nothing is allocated for each question.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    ranked: Vec<Candidate>,
    prioritised: Vec<(f32, Candidate)>,
}

impl Ranking {
    /// What is likely, most likely first.
    pub(super) fn ranked(&mut self, model: &Model, question: &Question<'_>) -> &[Candidate] {
        model.predictor().rank(question, model.observer().urls(), &mut self.ranked);
        &self.ranked
    }

    /// What is worth it with its worth, best first.
    pub(super) fn prioritised(
        &mut self,
        model: &Model,
        question: &Question<'_>,
    ) -> &[(f32, Candidate)] {
        self.ranked(model, question);
        prioritise(&self.ranked, model.observer().urls(), &mut self.prioritised);
        &self.prioritised
    }

    /// The candidates that the rules let through. Where the visitor points at a link before following it, a page is
    /// to be fetched ahead of that if what this saves beyond is worth it. Of those that they don't the best one is the reason, if
    /// none is left, and the one that the owner is shown.
    pub(super) fn answer(&mut self, model: &Model, shared: &Shared, ask: &Ask) -> Ranked {
        let observer = model.observer();
        let Some(page) = observer.url(&ask.page) else { return Ranked::none("unknown_page") };
        let mut held: Vec<UrlId> = ask.had.iter().filter_map(|url| observer.url(url)).collect();
        held.push(page);
        held.sort_unstable();
        // The visit was learned from when it passed, or when it was told to have come out of a cache.
        let question =
            Question { at: timestamp(wall()), pages: &[page], learned: true, held: &held };
        let urls = observer.urls();
        let (policy, now) = (shared.policy(), shared.now());
        let mut found = Ranked::none("");
        let mut left_out = None;
        let mut is_rest_worthless = false;
        for (worth, one) in self.prioritised(model, &question) {
            is_rest_worthless |= !shared.settings.least_worth.is_met_by(*worth);
            let kind = match urls.kind(one.url) {
                UrlKind::Page => Kind::Document,
                UrlKind::Embedded => Kind::Part,
            };
            let is_left_to_pointing = kind == Kind::Document
                && ask.points
                && !shared
                    .settings
                    .least_worth
                    .is_met_by(worth * beyond_pointing(urls.latency(one.url)));
            let is_worthless = is_rest_worthless || is_left_to_pointing;
            // Nobody points at a part of a page.
            if is_worthless && kind == Kind::Part {
                continue;
            }
            let Some(url) = urls.path(one.url) else { continue };
            let may = policy.may_hint(url, now);
            let hint = || Hint {
                url: url.to_owned(),
                kind,
                bytes: shared.lengths.of(url),
                pointed: is_worthless,
                by: shared.stubs.of(url),
            };
            match may {
                Ok(_) if is_worthless => found.pointed.push(hint()),
                Ok(_) => found.hints.push(hint()),
                Err(_) if is_worthless => {}
                Err(why) => {
                    let reason = reasons::of_url(&why);
                    shared.counts.left_out.one(reason);
                    left_out.get_or_insert((reason, url, why));
                }
            }
            if found.is_full() {
                break;
            }
        }
        drop(policy);
        let is_rest_worthless = is_rest_worthless || !found.pointed.is_empty();
        let known = match (is_rest_worthless, ask.had.is_empty()) {
            (true, _) => "nothing_worth",
            (false, true) => "nothing_known",
            (false, false) => "nothing_more",
        };
        found.why_none = left_out.as_ref().map_or(known, |(reason, ..)| *reason);
        if let Some((_, url, why)) = left_out {
            *lock(&shared.left_out) = Some((url.to_owned(), why.to_string()));
        }
        found
    }
}
