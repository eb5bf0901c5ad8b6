//! What is counted, for `/metrics` and the dashboard.

use super::counter::Counter;
use super::navigations::Navigations;
use super::reasons::{CookieNames, Reasons};
use super::times::Times;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Pages that were given to the munger.
    pub(super) pages: Counter,
    /// Why others were left as they are, lists are empty, and URLs not on them.
    pub(super) pages_left: Reasons,
    pub(super) blocking_cookies: CookieNames,
    pub(super) empty: Reasons,
    pub(super) left_out: Reasons,
    pub(super) asked: Counter,
    pub(super) lists: Counter,
    pub(super) hints: Counter,
    /// Prefetches that went upstream, were refused before, and whose reply was not kept.
    pub(super) prefetches: Counter,
    pub(super) refused: Counter,
    pub(super) unkept: Counter,
    /// Prefetches for which the server had no room in time.
    pub(super) not_now: Counter,
    /// Bytes of prefetches that were sent, and of those that a navigation, or a part of its page, took from
    /// the cache.
    pub(super) prefetched_bytes: Counter,
    pub(super) used_bytes: Counter,
    /// Requests that were answered by 304: the browser may use the copy that it has.
    pub(super) renewed: Counter,
    /// Navigations that were told to show a copy of the service worker's.
    pub(super) shown: Counter,
    /// Visits that were not learned from because the desk was behind.
    pub(super) unlearned: Counter,
    pub(super) beacons: Counter,
    /// Messages of scripts that were refused.
    pub(super) rejected: Counter,
    /// With prefetching, and of the share that is held back.
    pub(super) with: Navigations,
    pub(super) without: Navigations,
    /// Times to the first byte: of answers to visitors, by the upstream, and of probes.
    pub(super) demand: Times,
    pub(super) probes: Times,
    /// PageComparison that visitors' requests gave for nothing.
    pub(super) passive: Counter,
    /// Of the shadow mode: pages, hints on their lists, and pages that were on the list before.
    pub(super) shadow_pages: Counter,
    pub(super) shadow_hints: Counter,
    pub(super) shadow_hits: Counter,
}
