//! What is counted, for `/metrics` and the dashboard.

use std::sync::atomic::{AtomicU64, Ordering};

use super::navigations::Navigations;
use super::reasons::{CookieNames, Reasons};
use super::times::Times;

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn one(&self) {
        self.add(1);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Pages that were given to the munger.
    pub(super) pages: Count,
    /// Why others were left as they are, lists are empty, and URLs not on them.
    pub(super) pages_left: Reasons,
    pub(super) blocking_cookies: CookieNames,
    pub(super) empty: Reasons,
    pub(super) left_out: Reasons,
    pub(super) asked: Count,
    pub(super) lists: Count,
    pub(super) hints: Count,
    /// Prefetches that went upstream, were refused before, and whose reply was not kept.
    pub(super) prefetches: Count,
    pub(super) refused: Count,
    pub(super) unkept: Count,
    /// Prefetches for which the server had no room in time.
    pub(super) not_now: Count,
    /// Bytes of prefetches that were sent, and of those that a navigation, or a part of its page, took from
    /// the cache.
    pub(super) prefetched_bytes: Count,
    pub(super) used_bytes: Count,
    /// Requests that were answered by 304: the browser may use the copy that it has.
    pub(super) renewed: Count,
    /// Navigations that were told to show a copy of the service worker's.
    pub(super) shown: Count,
    /// Visits that were not learned from because the desk was behind.
    pub(super) unlearned: Count,
    pub(super) beacons: Count,
    /// Messages of scripts that were refused.
    pub(super) rejected: Count,
    /// With prefetching, and of the share that is held back.
    pub(super) with: Navigations,
    pub(super) without: Navigations,
    /// Times to the first byte: of answers to visitors, by the upstream, and of probes.
    pub(super) demand: Times,
    pub(super) probes: Times,
    /// Samples that visitors' requests gave for nothing.
    pub(super) passive: Count,
    /// Of the shadow mode: pages, hints on their lists, and pages that were on the list before.
    pub(super) shadow_pages: Count,
    pub(super) shadow_hints: Count,
    pub(super) shadow_hits: Count,
}
