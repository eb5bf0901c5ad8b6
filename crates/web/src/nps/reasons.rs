//! Why lists are empty, hints left out, and pages unchanged: the explanation for an owner of missing
//! prefetches.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::lock::lock;
use crate::policy::{Excluded, NotPrefetchable, Refusal};
use crate::script_insertion::{LeftAlone, NoInsertionPoint};

/// How often each reason applied.
#[derive(Debug, Default)]
pub(super) struct Reasons(Mutex<BTreeMap<&'static str, u64>>);

impl Reasons {
    pub(super) fn one(&self, why: &'static str) {
        *lock(&self.0).entry(why).or_default() += 1;
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<(&'static str, u64)> {
        lock(&self.0).iter().map(|(why, count)| (*why, *count)).collect()
    }

    /// All of them, the most frequent first.
    pub(super) fn by_count(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.all();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }
}

/// Names of cookies by which visitors may be signed in, and how many pages had no script because of each. A
/// client may send any name, so few are kept: a new one replaces the one with the fewest pages.
#[derive(Debug, Default)]
pub(super) struct CookieNames(Mutex<BTreeMap<String, u64>>);

/// Names that are kept, and their longest length.
const MAX_NAMES: usize = 64;
const MAX_NAME_BYTES: usize = 64;

impl CookieNames {
    pub(super) fn record<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let mut all = lock(&self.0);
        for name in names.filter(|name| name.len() <= MAX_NAME_BYTES).take(MAX_NAMES) {
            if let Some(count) = all.get_mut(name) {
                *count += 1;
                continue;
            }
            if all.len() >= MAX_NAMES {
                let least = all.iter().min_by_key(|(_, count)| **count);
                let Some(least) = least.map(|(name, _)| name.clone()) else { return };
                all.remove(&least);
            }
            all.insert(name.to_owned(), 1);
        }
    }

    /// The most frequent first.
    pub(super) fn by_count(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> =
            lock(&self.0).iter().map(|(name, count)| (name.clone(), *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }
}

/// Prefetching is off now.
pub(super) const OFF: &str = "off";
/// Through a shared cache.
pub(super) const CACHE: &str = "cache_in_front";

/// Of a visitor.
pub(super) fn of_visitor(why: &Excluded) -> &'static str {
    match why {
        Excluded::Authorization => "credentials",
        Excluded::Identified(_) => "identified",
        Excluded::Cookie => "cookie",
        Excluded::SaveData => "save_data",
        Excluded::SlowNetwork => "slow_network",
        Excluded::SmallDevice => "small_device",
        Excluded::Browser => "browser",
        Excluded::Robot => "robot",
        _ => "method",
    }
}

/// For a URL that might be hinted.
pub(super) fn of_url(why: &Refusal) -> &'static str {
    match why {
        Refusal::NotPrefetchable(NotPrefetchable::Query) => "query",
        Refusal::NotPrefetchable(NotPrefetchable::Action(_)) => "action",
        Refusal::NotPrefetchable(NotPrefetchable::Denied(_)) => "denied",
        Refusal::NotPrefetchable(_) => "unfit",
        Refusal::Robots(_) => "robots",
        Refusal::Protected => "password",
        Refusal::Barred(_) => "barred",
        _ => "other",
    }
}

/// For a page, by the head of its reply; none for other types.
pub(super) fn of_reply(why: &LeftAlone) -> Option<&'static str> {
    match why {
        LeftAlone::Encoding => Some("encoding"),
        LeftAlone::Coding => Some("content_coding"),
        LeftAlone::NoTransform => Some("no_transform"),
        LeftAlone::NoFollow => Some("nofollow"),
        LeftAlone::Policy(_) => Some("content_security_policy"),
        LeftAlone::Host => Some("host"),
        _ => None,
    }
}

/// For a page, by its contents.
pub(super) fn of_page(why: &NoInsertionPoint) -> &'static str {
    match why {
        NoInsertionPoint::OptOut => "opt_out",
        NoInsertionPoint::NoFollow => "nofollow",
        NoInsertionPoint::Amp => "amp",
        NoInsertionPoint::Refresh => "refresh",
        NoInsertionPoint::Policy(_) => "content_security_policy",
        NoInsertionPoint::Encoding => "encoding",
        NoInsertionPoint::Coding => "content_coding",
        _ => "no_place",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_frequent_reason_comes_first() {
        let reasons = Reasons::default();
        for why in ["b", "c", "a", "c", "c", "a"] {
            reasons.one(why);
        }
        assert_eq!(reasons.all(), [("a", 2), ("b", 1), ("c", 3)]);
        assert_eq!(reasons.by_count(), [("c", 3), ("a", 2), ("b", 1)]);
    }
}
