//! Values of cookies that were found not to change pages.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Accepted values of cookies, shared by the learner and the policy. Clones share the same list.
#[derive(Clone, Debug, Default)]
pub struct LearnedCookies(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Lists of two processes have different random keys.
    key: RandomState,
    /// Whether there is one at all, so that most requests need no lock.
    has_some: AtomicBool,
    accepted: RwLock<HashMap<String, HashSet<u64>>>,
}

impl LearnedCookies {
    /// The stored form of a cookie's value.
    pub(super) fn key(&self, name: &str, value: &str) -> u64 {
        self.0.key.hash_one((name, value))
    }

    /// Whether this value of the cookie is accepted.
    pub fn has(&self, name: &str, value: &str) -> bool {
        if !self.0.has_some.load(Ordering::Acquire) {
            return false;
        }
        let key = self.key(name, value);
        let accepted = self.0.accepted.read().unwrap_or_else(PoisonError::into_inner);
        accepted.get(name).is_some_and(|values| values.contains(&key))
    }

    /// From now on these values of the cookie are accepted, by [`LearnedCookies::key`], and no others.
    pub(super) fn accept(&self, name: &str, values: impl Iterator<Item = u64>) {
        let values: HashSet<u64> = values.collect();
        if values.is_empty() && !self.0.has_some.load(Ordering::Acquire) {
            return;
        }
        let mut accepted = self.0.accepted.write().unwrap_or_else(PoisonError::into_inner);
        if values.is_empty() {
            accepted.remove(name);
        } else {
            accepted.insert(name.to_owned(), values);
        }
        self.0.has_some.store(!accepted.is_empty(), Ordering::Release);
    }

    /// From now on no value of the cookie is accepted.
    pub(super) fn forget(&self, name: &str) {
        self.accept(name, std::iter::empty());
    }
}

/// Learned values are not a setting of the owner: two lists with equal settings are equal.
impl PartialEq for LearnedCookies {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LearnedCookies {}
