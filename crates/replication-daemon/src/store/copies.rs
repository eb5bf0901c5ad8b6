//! The local copies of bodies that are in a bucket: which of them to delete when they take too much space.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lull_cc::Bytes;
use lull_replication::types::Digest;

/// The copies, in the order of their last use.
#[derive(Debug)]
pub(super) struct Copies {
    limit: Bytes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    uses: u64,
    bytes: u64,
    copies: BTreeMap<Digest, (u64, Bytes)>,
    order: BTreeMap<u64, Digest>,
    /// Copies that are being read, and by how many readers.
    pins: BTreeMap<Digest, u32>,
}

/// A copy that is being read: it is not evicted.
#[derive(Debug)]
pub(super) struct Pinned<'a> {
    copies: &'a Copies,
    digest: Digest,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut state = self.copies.state();
        if let Some(count) = state.pins.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                state.pins.remove(&self.digest);
            }
        }
    }
}

impl State {
    fn remove(&mut self, digest: &Digest) -> bool {
        let Some((used, size)) = self.copies.remove(digest) else { return false };
        self.order.remove(&used);
        self.bytes -= size.0;
        true
    }

    fn insert(&mut self, digest: Digest, size: Bytes) {
        self.remove(&digest);
        self.uses += 1;
        self.copies.insert(digest, (self.uses, size));
        self.order.insert(self.uses, digest);
        self.bytes += size.0;
    }
}

impl Copies {
    pub(super) fn new(limit: Bytes, found: impl IntoIterator<Item = (Digest, Bytes)>) -> Self {
        let copies = Copies { limit, state: Mutex::default() };
        for (digest, size) in found {
            copies.state().insert(digest, size);
        }
        copies
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy was stored or used.
    pub(super) fn touch(&self, digest: &Digest, size: Bytes) {
        self.state().insert(*digest, size);
    }

    /// A copy was used, if there is one.
    pub(super) fn used(&self, digest: &Digest) {
        let mut state = self.state();
        if let Some((_, size)) = state.copies.get(digest).copied() {
            state.insert(*digest, size);
        }
    }

    /// Keeps a copy from eviction until the result is dropped, also one that comes only later.
    pub(super) fn pin(&self, digest: &Digest) -> Pinned<'_> {
        *self.state().pins.entry(*digest).or_default() += 1;
        Pinned { copies: self, digest: *digest }
    }

    /// A copy is gone.
    pub(super) fn forget(&self, digest: &Digest) {
        self.state().remove(digest);
    }

    /// Whether there is a copy.
    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.state().copies.contains_key(digest)
    }

    /// All copies with their lengths.
    pub(super) fn list(&self) -> Vec<(Digest, Bytes)> {
        let state = self.state();
        state.copies.iter().map(|(digest, (_, size))| (*digest, *size)).collect()
    }

    /// The least recently used copies, until `room` more bytes fit within the limit. They are forgotten. Only
    /// copies that `may_go` are taken.
    pub(super) fn evict(&self, room: Bytes, may_go: impl Fn(&Digest) -> bool) -> Vec<Digest> {
        let mut state = self.state();
        let mut evicted = Vec::new();
        let mut left = (state.bytes + room.0).saturating_sub(self.limit.0);
        if left == 0 {
            return evicted;
        }
        for digest in state.order.values() {
            if left == 0 {
                break;
            }
            if !state.pins.contains_key(digest) && may_go(digest) {
                let size = state.copies.get(digest).map_or(0, |(_, size)| size.0);
                left = left.saturating_sub(size);
                evicted.push(*digest);
            }
        }
        for digest in &evicted {
            state.remove(digest);
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u8) -> Digest {
        Digest::of(&[number])
    }

    #[test]
    fn least_recently_used_copies_are_evicted_at_the_limit() {
        let found = (0..10).map(|number| (digest(number), Bytes(10)));
        let copies = Copies::new(Bytes(100), found);
        assert!(copies.evict(Bytes(0), |_| true).is_empty());
        copies.used(&digest(0));
        copies.used(&digest(77));
        assert_eq!(copies.evict(Bytes(15), |_| true), [digest(1), digest(2)]);
        copies.touch(&digest(20), Bytes(15));
        // One that may not go stays, and so do those that are needed no more.
        let evicted = copies.evict(Bytes(10), |one| *one != digest(3));
        assert_eq!(evicted, [digest(4)]);
        assert!(copies.has(&digest(0)) && copies.has(&digest(3)) && !copies.has(&digest(4)));
        copies.forget(&digest(0));
        copies.forget(&digest(0));
        let bytes: u64 = copies.list().iter().map(|(_, size)| size.0).sum();
        assert_eq!((bytes, copies.state().bytes), (75, 75));
    }

    #[test]
    fn copies_that_may_not_go_are_kept_beyond_the_limit() {
        let copies = Copies::new(Bytes(5), [(digest(1), Bytes(10)), (digest(2), Bytes(10))]);
        assert!(copies.evict(Bytes(1), |_| false).is_empty());
        let pinned = [copies.pin(&digest(1)), copies.pin(&digest(1))];
        assert_eq!(copies.evict(Bytes(0), |_| true), [digest(2)]);
        drop(pinned);
        assert!(copies.state().pins.is_empty());
        assert_eq!(copies.evict(Bytes(0), |_| true), [digest(1)]);
    }
}
