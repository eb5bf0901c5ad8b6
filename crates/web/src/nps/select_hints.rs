//! The choice of hints: the model's candidates in the order of their worth, as far as the rules permit them,
//! cut to what the visitor may have now.

use std::time::Duration;

use lull_speculate::budget::Wanted;
use lull_speculate::model::Model;
use lull_speculate::observe::{Kind as UrlKind, UrlId, Visit};
use lull_speculate::predict::{Candidate, Predictor as _, Question, prioritise};

use super::clock::{timestamp, wall};
use super::counts::Counts;
use super::lengths::Lengths;
use super::notices::Notices;
use super::reasons;
use super::redirect_stubs::RedirectStubs;
use super::site_rules::SiteRules;
use crate::protocol::{Hint, Kind, MAX_HINTS};

/// The usual minimum time from hovering over a link to the press. A page prefetched on hover arrives
/// meanwhile, only for visitors who go there. Of the pages that the visitors in `plans/web-browsers.toml`
/// hover over, four of five are there at the click, over 150 ms.
const POINTED_BEFORE: Duration = Duration::from_millis(200);

/// The length of a list in shadow mode (SSR §5.3.1).
const DOCUMENT: usize = 10;

/// The share of a prefetch's benefit that a prefetch on hover does not have.
fn beyond_hover(latency: Duration) -> f32 {
    let beyond = latency.saturating_sub(POINTED_BEFORE);
    beyond.as_secs_f32() / latency.as_secs_f32().max(f32::MIN_POSITIVE)
}

/// A question for hints: the present page, and the URLs prefetched from it already.
///
/// The client's history is not used. One address may have many clients, and a client with an invented page
/// would learn from the list what the others visited. The shipped predictor needs no more than the page
/// (`docs/predictor.md`).
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) page: String,
    /// Whether the visitor points at links before following them, so that hints for hover are useful.
    pub(super) points: bool,
    pub(super) had: Vec<String>,
}

/// Facts about the site, beside the model, that the choice depends on.
pub(super) struct HintedSite<'a> {
    pub(super) rules: &'a SiteRules,
    pub(super) lengths: &'a Lengths,
    pub(super) stubs: &'a RedirectStubs,
    pub(super) counts: &'a Counts,
    pub(super) notices: &'a Notices,
}

/// The probable next URLs, best first; and if there is nothing to fetch at once, why.
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
        self.hints.len() + self.pointed.len() >= MAX_HINTS
    }

    fn add(&mut self, hint: Hint) {
        if hint.pointed { self.pointed.push(hint) } else { self.hints.push(hint) }
    }

    /// Removes what the service worker cannot show: no navigation says whether it may show parts.
    pub(super) fn retain_pages(&mut self) {
        self.hints.retain(|hint| hint.kind == Kind::Document);
        self.pointed.clear();
    }

    /// The budget that a list of at most `most` files needs; `None` if there is nothing to hint. Pages for
    /// links that visitors point at only go with the `first` list of a page. `document` is the length of a
    /// list that the budget gives at once.
    pub(super) fn wanted(&mut self, most: usize, first: bool, document: u32) -> Option<Wanted> {
        self.hints.truncate(most);
        if self.hints.is_empty() && (self.pointed.is_empty() || !first) {
            return None;
        }
        let files = self.hints.len() as u32;
        // Pages without room on the list are also hinted, for visitors who point at them.
        Some(Wanted { files, pointed: !self.pointed.is_empty() || files > document, first })
    }

    /// The list with `length` files to be fetched at once. The rest comes with the next list, or when the
    /// visitor points at it.
    pub(super) fn list(self, length: usize) -> HintList {
        let Ranked { mut hints, pointed, .. } = self;
        let rest = hints.split_off(hints.len().min(length));
        let at_once = hints.len();
        let rest = rest.into_iter().filter(|hint| hint.kind == Kind::Document);
        hints.extend(rest.map(|hint| Hint { pointed: true, ..hint }).chain(pointed));
        HintList { hints, at_once }
    }
}

/// A list as the visitor gets it.
pub(super) struct HintList {
    pub(super) hints: Vec<Hint>,
    /// Number of them to be fetched at once.
    pub(super) at_once: usize,
}

impl HintedSite<'_> {
    fn hint(&self, url: &str, kind: Kind, pointed: bool) -> Hint {
        let (bytes, by) = (self.lengths.get(url), self.stubs.leading_to(url));
        Hint { url: url.to_owned(), kind, bytes, pointed, by }
    }
}

/// Reused memory, so that a request allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    ranked: Vec<Candidate>,
    prioritised: Vec<(f32, Candidate)>,
}

impl Ranking {
    /// The probable URLs, most probable first.
    pub(super) fn ranked(&mut self, model: &Model, question: &Question<'_>) -> &[Candidate] {
        model.predictor().rank(question, model.observer().urls(), &mut self.ranked);
        &self.ranked
    }

    /// The worthwhile URLs with their worth, best first.
    pub(super) fn prioritised(
        &mut self,
        model: &Model,
        question: &Question<'_>,
    ) -> &[(f32, Candidate)] {
        self.ranked(model, question);
        prioritise(&self.ranked, model.observer().urls(), &mut self.prioritised);
        &self.prioritised
    }

    /// The candidates that the rules permit. Where the visitor points at links, a page is prefetched earlier only if
    /// the time that this saves beyond pointing is worth it. The best candidate that is left out is the
    /// reason, if none is left, and the one on the dashboard.
    pub(super) fn answer(&mut self, model: &Model, site: &HintedSite<'_>, ask: &Ask) -> Ranked {
        let observer = model.observer();
        let Some(page) = observer.url(&ask.page) else { return Ranked::none("unknown_page") };
        let mut held: Vec<UrlId> = ask.had.iter().filter_map(|url| observer.url(url)).collect();
        held.push(page);
        held.sort_unstable();
        // The visit was learned when it passed, or when a report said that it came out of a cache.
        let question =
            Question { at: timestamp(wall()), pages: &[page], learned: true, held: &held };
        let urls = observer.urls();
        let (policy, now) = (site.rules.policy(), site.rules.now());
        let least = site.rules.settings.min_benefit;
        let mut found = Ranked::none("");
        let mut left_out = None;
        let mut is_rest_worthless = false;
        for (worth, one) in self.prioritised(model, &question) {
            is_rest_worthless |= !least.accepts(*worth);
            let kind = match urls.kind(one.url) {
                UrlKind::Page => Kind::Document,
                UrlKind::Embedded => Kind::Part,
            };
            let is_left_to_pointing = kind == Kind::Document
                && ask.points
                && !least.accepts(worth * beyond_hover(urls.latency(one.url)));
            let is_worthless = is_rest_worthless || is_left_to_pointing;
            // Visitors do not point at parts of pages.
            if is_worthless && kind == Kind::Part {
                continue;
            }
            let Some(url) = urls.path(one.url) else { continue };
            match policy.may_hint(url, now) {
                Ok(_) => found.add(site.hint(url, kind, is_worthless)),
                Err(_) if is_worthless => {}
                Err(why) => {
                    let reason = reasons::of_url(&why);
                    site.counts.hints_rejected.one(reason);
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
            site.notices.left_out(url, why.to_string());
        }
        found
    }

    /// The list that a visitor would get after this visit, for shadow mode.
    pub(super) fn shadow_hints_for(
        &mut self,
        model: &Model,
        rules: &SiteRules,
        visit: &Visit,
    ) -> Vec<UrlId> {
        let page = [visit.url];
        let urls = model.observer().urls();
        let question = Question { at: visit.at, pages: &page, learned: true, held: &page };
        let prioritised = self.prioritised(model, &question);
        let (policy, now) = (rules.policy(), rules.now());
        let may =
            |one: &UrlId| urls.path(*one).is_some_and(|url| policy.may_hint(url, now).is_ok());
        let least = rules.settings.min_benefit;
        let worth = prioritised.iter().take_while(|(worth, _)| least.accepts(*worth));
        worth.map(|(_, one)| one.url).filter(may).take(DOCUMENT).collect()
    }
}
