//! URLs whose `GET` changes what other pages return, learned from the pages that visitors get.
//!
//! A vote, a counter or a switch may have any name. Its effect is that another page changes after a request for it, and
//! stays the same otherwise. So each page is compared with its last body, and a change counts against the URLs that were
//! requested in between:
//!
//! - a page counts while it changes rarely: at most one time in eight without the URL in between;
//! - a change with a `POST` or another unsafe method in between says nothing, nor does one with more than sixteen URLs in
//!   between;
//! - a URL is an action after three changes of one page, if nearly every request for it was followed by one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Number of compared pages, of candidate URLs per page, and of remembered requests. All are bounded, so
/// memory is bounded.
const MAX_PAGES: usize = 512;
const MAX_PAIRS: usize = 8192;
const MAX_FOUND: usize = 1024;
const MAX_RECENT: usize = 1024;
/// When there is no room for a page, one request in this many makes some.
const FORCED_SAMPLE_PERIOD: u64 = 16;
/// With more URLs in between, the cause is unknown.
const MAX_BETWEEN: usize = 16;
/// Changes of a page after requests for a URL that are enough evidence of an effect.
const ENOUGH: u32 = 3;
/// One request in this many may have changed nothing, for example a second vote.
const RARELY: u32 = 4;
/// One look in this many at a page, without the URL in between, may have found a change.
const STEADY: u32 = 8;

/// A page in its last version.
#[derive(Clone, Copy, Debug)]
struct Page {
    body: u64,
    /// The number of the request with which that was found.
    at: u64,
    looks: u32,
    changes: u32,
}

/// How often a page had changed after requests for a URL, and how often not.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    changed: u32,
    same: u32,
}

/// The requests, and the changes of pages.
#[derive(Debug, Default)]
pub struct SideEffects {
    pages: HashMap<u64, Page>,
    /// By the URL and the page.
    pairs: HashMap<(Arc<str>, u64), Pair>,
    found: VecDeque<Arc<str>>,
    /// The last requests by their numbers; without a URL if the method was unsafe.
    recent: VecDeque<(u64, Option<Arc<str>>)>,
    count: u64,
}

impl SideEffects {
    /// A client got `url`. Returns whether it is already known to have side effects.
    pub fn got(&mut self, url: &str) -> bool {
        // Pages have many parts, and consecutive requests for the same URL are one.
        let last = self.recent.back().and_then(|(_, url)| url.as_deref());
        if last != Some(url) {
            self.record(Some(url.into()));
        }
        self.found.iter().any(|found| **found == *url)
    }

    /// A client used an unsafe method, which may change any page.
    pub fn sent(&mut self) {
        self.record(None);
    }

    fn record(&mut self, url: Option<Arc<str>>) {
        self.count += 1;
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((self.count, url));
    }

    /// The number of requests so far, by which [`SideEffects::saw`] knows the requests that a page cannot
    /// reflect.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// An anonymous visitor got a page, by its key and at `url`, with this body, whose reply began after `at`
    /// requests. Returns the URLs that are now found to have side effects.
    pub fn saw(&mut self, page: u64, url: &str, body: u64, at: u64) -> Vec<Arc<str>> {
        if self.pages.get(&page).is_some_and(|before| before.at > at) {
            return Vec::new();
        }
        if !self.has_room(page) {
            return Vec::new();
        }
        let Some(before) = self.pages.insert(page, Page { body, at, looks: 0, changes: 0 }) else {
            return Vec::new();
        };
        let has_changed = before.body != body;
        let between = self.between(before.at, at, url);
        let now = Page {
            body,
            at,
            looks: before.looks.saturating_add(1),
            changes: before.changes + u32::from(has_changed && between.is_some()),
        };
        self.pages.insert(page, now);
        let Some(between) = between else { return Vec::new() };
        self.weigh(page, &now, between, has_changed)
    }

    /// The requests since then, if they are known and few.
    fn between(&self, since: u64, until: u64, page: &str) -> Option<Vec<Arc<str>>> {
        if self.recent.front().is_some_and(|(first, _)| *first > since + 1) {
            return None;
        }
        let mut urls: Vec<Arc<str>> = Vec::new();
        let is_between = |at: u64| since < at && at <= until;
        for (_, url) in self.recent.iter().rev().filter(|(at, _)| is_between(*at)) {
            let url = url.as_ref()?;
            if **url != *page && !urls.contains(url) {
                urls.push(Arc::clone(url));
            }
            if urls.len() > MAX_BETWEEN {
                return None;
            }
        }
        Some(urls)
    }

    fn weigh(
        &mut self,
        page: u64,
        now: &Page,
        between: Vec<Arc<str>>,
        has_changed: bool,
    ) -> Vec<Arc<str>> {
        let mut found = Vec::new();
        for url in between {
            let key = (url, page);
            let is_new = !self.pairs.contains_key(&key);
            // Only requests that may have changed the page are examined further.
            if is_new && (!has_changed || self.pairs.len() >= MAX_PAIRS) {
                continue;
            }
            let pair = self.pairs.entry(key.clone()).or_default();
            if !has_changed {
                pair.same += 1;
                continue;
            }
            pair.changed += 1;
            let others = now.changes.saturating_sub(pair.changed);
            let other_looks = now.looks.saturating_sub(pair.changed + pair.same);
            let acts = pair.changed >= ENOUGH
                && pair.same <= pair.changed / RARELY
                && others <= other_looks / STEADY;
            if acts && !self.found.contains(&key.0) {
                if self.found.len() >= MAX_FOUND {
                    self.found.pop_front();
                }
                self.found.push_back(Arc::clone(&key.0));
                found.push(key.0);
            }
        }
        found
    }

    /// Whether there is space for a page, perhaps in place of the least recently requested one. That search
    /// takes time, so only a share of new pages gets space: a frequently read page gets it soon.
    fn has_room(&mut self, page: u64) -> bool {
        if self.pages.len() < MAX_PAGES || self.pages.contains_key(&page) {
            return true;
        }
        if !self.count.is_multiple_of(FORCED_SAMPLE_PERIOD) {
            return false;
        }
        let oldest = self.pages.iter().min_by_key(|(_, page)| page.at).map(|(key, _)| *key);
        if let Some(oldest) = oldest {
            self.pages.remove(&oldest);
            self.pairs.retain(|(_, page), _| *page != oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A site of one page that shows votes.
    #[derive(Default)]
    struct Site {
        effects: SideEffects,
        votes: u64,
        found: Vec<String>,
    }

    impl Site {
        fn vote(&mut self) {
            self.effects.got("/abstimmen/5");
            self.votes += 1;
        }

        fn reload(&mut self) {
            self.effects.got("/umfrage");
            let found = self.effects.saw(1, "/umfrage", self.votes, self.effects.count());
            self.found.extend(found.iter().map(|url| url.to_string()));
        }
    }

    #[test]
    fn url_that_changes_another_page_is_found() {
        let mut site = Site::default();
        for round in 0..3 {
            site.reload();
            site.reload();
            site.effects.got("/about");
            site.reload();
            assert_eq!(site.found, Vec::<String>::new(), "{round}");
            site.vote();
        }
        site.reload();
        assert_eq!(site.found, ["/abstimmen/5"]);
        assert!(site.effects.got("/abstimmen/5") && !site.effects.got("/about"));
    }

    #[test]
    fn page_that_changes_by_itself_blames_no_url() {
        let mut site = Site::default();
        for _ in 0..50 {
            site.reload();
            site.votes += 1;
            site.reload();
            site.effects.got("/about");
            site.votes += 1;
        }
        assert_eq!(site.found, Vec::<String>::new());
    }

    #[test]
    fn change_after_a_form_blames_no_url() {
        let mut site = Site::default();
        for _ in 0..50 {
            site.reload();
            site.reload();
            site.effects.got("/form");
            site.effects.sent();
            site.votes += 1;
        }
        assert_eq!(site.found, Vec::<String>::new());
    }

    #[test]
    fn url_is_cleared_by_visits_without_change() {
        let mut site = Site::default();
        for _ in 0..50 {
            for _ in 0..9 {
                site.reload();
            }
            site.effects.got("/about");
            site.reload();
            site.effects.got("/about");
            // An editor publishes something.
            site.votes += 1;
            site.reload();
        }
        assert_eq!(site.found, Vec::<String>::new());
    }

    /// Editors change the page sometimes, and visitors go anywhere.
    #[test]
    fn pages_read_beside_rare_edits_are_rarely_blamed() {
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            // Knuth's MMIX.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut found = 0;
        for _ in 0..500 {
            let mut site = Site::default();
            for _ in 0..600 {
                site.votes += u64::from(draw(100) == 0);
                match draw(12) {
                    0..4 => site.reload(),
                    page => {
                        site.effects.got(&format!("/page/{page}"));
                    }
                }
            }
            found += site.found.len();
        }
        // Of four thousand URLs.
        assert!(found <= 8, "{found}");
    }

    proptest! {
        #[test]
        fn memory_is_bounded_for_any_requests(urls in proptest::collection::vec("[a-z]{1,2}", 3000)) {
            let mut effects = SideEffects::default();
            for (n, url) in urls.iter().enumerate() {
                effects.got(url);
                effects.saw(n as u64 % 1000, url, n as u64, effects.count());
            }
            prop_assert!(effects.pages.len() <= MAX_PAGES && effects.pairs.len() <= MAX_PAIRS);
            prop_assert!(effects.recent.len() <= MAX_RECENT && effects.found.len() <= MAX_FOUND);
        }
    }
}
