//! The pages that are prefetched most, and how often that was useful, for the dashboard.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::lock::lock;

/// Pages that are counted. A new one replaces the one with the fewest prefetches.
const MAX_PAGES: usize = 256;
/// Pages that are shown.
const MAX_SHOWN: usize = 20;
/// Longer URLs are not counted.
const LONGEST: usize = 256;

/// The use of a page since it was first prefetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PageCounts {
    /// Complete copies, and their bytes.
    prefetched: u64,
    bytes: u64,
    /// Page views of visitors with prefetching, and those of them that were shown a prefetched copy.
    views: u64,
    hits: u64,
    used_bytes: u64,
}

/// The pages by URL. Only pages that were hinted are counted, so all of them are public.
#[derive(Debug, Default)]
pub(super) struct PageTable(Mutex<BTreeMap<String, PageCounts>>);

impl PageTable {
    /// A browser has a copy.
    pub(super) fn prefetched(&self, url: &str, bytes: u64) {
        if url.len() > LONGEST {
            return;
        }
        let mut pages = lock(&self.0);
        if pages.len() >= MAX_PAGES && !pages.contains_key(url) {
            let least = pages.iter().min_by_key(|(_, counts)| counts.prefetched);
            let Some(least) = least.map(|(url, _)| url.clone()) else { return };
            pages.remove(&least);
        }
        let counts = pages.entry(url.to_owned()).or_default();
        counts.prefetched += 1;
        counts.bytes += bytes;
    }

    /// A visitor has seen the page; `used` are the bytes of a prefetched copy, 0 without one.
    pub(super) fn viewed(&self, url: &str, used: u64) {
        if let Some(counts) = lock(&self.0).get_mut(url) {
            counts.views += 1;
            counts.hits += u64::from(used > 0);
            counts.used_bytes += used;
        }
    }

    /// The pages with the most prefetches.
    pub(super) fn json(&self) -> Value {
        let mut all: Vec<_> =
            lock(&self.0).iter().map(|(url, counts)| (url.clone(), *counts)).collect();
        all.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.prefetched));
        let row = |(url, counts): &(String, PageCounts)| {
            json!({
                "url": url,
                "prefetched": counts.prefetched,
                "views": counts.views,
                "hits": counts.hits,
                "unused_bytes": counts.bytes.saturating_sub(counts.used_bytes),
            })
        };
        all.iter().take(MAX_SHOWN).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prefetched_pages_are_counted() {
        let pages = PageTable::default();
        pages.viewed("/private", 0);
        pages.prefetched("/a", 100);
        pages.prefetched("/a", 100);
        pages.prefetched("/b", 7);
        pages.viewed("/a", 100);
        pages.viewed("/a", 0);
        let expected = json!([
            {"url": "/a", "prefetched": 2, "views": 2, "hits": 1, "unused_bytes": 100},
            {"url": "/b", "prefetched": 1, "views": 0, "hits": 0, "unused_bytes": 7},
        ]);
        assert_eq!(pages.json(), expected);
    }

    #[test]
    fn page_with_the_fewest_prefetches_is_replaced() {
        let pages = PageTable::default();
        for page in 0..2 * MAX_PAGES {
            pages.prefetched("/often", 1);
            pages.prefetched(&format!("/{page}"), 1);
        }
        pages.prefetched(&"/long".repeat(LONGEST), 1);
        assert_eq!(lock(&pages.0).len(), MAX_PAGES);
        let shown = pages.json();
        assert_eq!(
            (&shown[0]["url"], shown.as_array().unwrap().len()),
            (&json!("/often"), MAX_SHOWN)
        );
    }
}
