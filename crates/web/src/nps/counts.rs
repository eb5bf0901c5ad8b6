//! The counters for `/metrics` and the dashboard.

use super::counter::Counter;
use super::distinct::Distinct;
use super::navigations::Navigations;
use super::page_table::PageTable;
use super::reasons::{CookieNames, Reasons};
use super::times::Times;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Pages given to the script inserter.
    pub(super) pages: Counter,
    /// Why other pages stay unchanged, why lists are empty, and why URLs are not on them.
    pub(super) pages_unchanged: Reasons,
    pub(super) blocking_cookies: CookieNames,
    pub(super) empty: Reasons,
    pub(super) hints_rejected: Reasons,
    pub(super) asked: Counter,
    pub(super) lists: Counter,
    pub(super) hints: Counter,
    /// Prefetches that went upstream, that were rejected before, and whose reply was not kept.
    pub(super) prefetches: Counter,
    pub(super) refused: Counter,
    pub(super) unkept: Counter,
    /// Prefetches for which the server had no room in time.
    pub(super) not_now: Counter,
    /// Bytes of prefetches that were sent, and of those that a navigation, or a part of its page, took from
    /// the cache.
    pub(super) prefetched_bytes: Counter,
    pub(super) used_bytes: Counter,
    /// Requests answered by 304: the browser may use its copy.
    pub(super) renewed: Counter,
    /// Navigations whose answer showed a copy of the service worker.
    pub(super) shown: Counter,
    /// Visits that were not learned because the learner was behind.
    pub(super) unlearned: Counter,
    pub(super) beacons: Counter,
    /// Rejected messages of scripts.
    pub(super) rejected: Counter,
    /// Navigations with prefetching, and of visitors in the control group.
    pub(super) with: Navigations,
    pub(super) without: Navigations,
    /// The pages that are prefetched most.
    pub(super) page_table: PageTable,
    /// Visitors of the current minute.
    pub(super) distinct_visitors: Distinct,
    /// Times to the first byte: of answers to visitors, by the upstream, and of probes.
    pub(super) demand: Times,
    pub(super) probes: Times,
    /// Page comparisons made with visitors' own requests.
    pub(super) passive: Counter,
    /// Of shadow mode: pages, hints on their lists, and pages that were on the list before.
    pub(super) shadow_pages: Counter,
    pub(super) shadow_hints: Counter,
    pub(super) shadow_hits: Counter,
}
