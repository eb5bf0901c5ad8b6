//! How much of the bodies may be here, and what makes room for others.

use std::collections::BTreeMap;

use super::{Object, Replica, Step};
use crate::path::Path;
use crate::shelf::Pin;
use crate::shelf::Shelf;
use crate::types::{Content, Digest};

impl<P: Clone> Replica<P> {
    /// Bytes of bodies for which there is room by the quota.
    pub(super) fn room(&self) -> u64 {
        let kept = self.bodies.shelf.kept().0;
        self.config.quota.map_or(u64::MAX, |quota| quota.0.saturating_sub(kept))
    }

    /// Whether more is kept than may be.
    pub(super) fn is_beyond_quota(&self) -> bool {
        self.config.quota.is_some_and(|quota| self.bodies.shelf.kept() > quota)
    }

    /// Whether there is no room for a body that nobody waits for: speculation does not evict. It may take
    /// the place of the version before it.
    pub(super) fn is_full_for(&mut self, path: &Path, content: &Content) -> bool {
        let Some(quota) = self.config.quota else { return false };
        if self.bodies.shelf.is_stored(&content.digest) {
            return false;
        }
        let kept = self.bodies.shelf.kept().0.saturating_add(content.size.0);
        kept > quota.0 && kept > quota.0.saturating_add(self.replaced(Some(path)))
    }

    /// Gives up what was overwritten first, and then what was not read for longest, as far as the quota asks
    /// for it. `unused` is what goes anyway, and then all that does.
    pub(super) fn make_room(&mut self, step: &mut Step, unused: &mut Vec<Digest>) {
        let Some(quota) = self.config.quota else { return };
        let mut excess = self.bodies.shelf.kept().0.saturating_sub(quota.0);
        if excess == 0 {
            return;
        }
        // Of one body there may be several references that go.
        let mut going = BTreeMap::new();
        let mut goes = |shelf: &Shelf<P>, digest: &Digest| {
            let references = going.entry(*digest).or_insert(0);
            *references += 1;
            shelf.held_by(digest, *references).0
        };
        for digest in &*unused {
            excess = excess.saturating_sub(goes(&self.bodies.shelf, digest));
        }
        // What newer bodies replace goes when these are in the state.
        excess = excess.saturating_sub(self.replaced(None));
        while excess > 0
            && let Some(digest) = self.bodies.pop_overwritten()
        {
            excess = excess.saturating_sub(goes(&self.bodies.shelf, &digest));
            unused.push(digest);
        }
        for path in self.recency.oldest_first() {
            if excess == 0 {
                return;
            }
            let Some(object) = self.image.objects.get(path).filter(|object| object.valid) else {
                continue;
            };
            // Of what somebody reads just now nothing would go.
            let is_read = self.bodies.shelf.is_pinned(&object.version.content.digest);
            if !step.changes.contains_key(path) && !is_read {
                excess = excess.saturating_sub(object.version.content.size.0);
                self.output.counters.evicted += 1;
                step.changes.insert(path.clone(), Some(Object { valid: false, ..*object }));
            }
        }
    }

    /// Keeps a body for somebody who reads it; none if it is not here. It counts for the quota.
    pub fn pin(&mut self, digest: &Digest) -> Option<Pin> {
        self.bodies.shelf.pin(digest)
    }

    /// Nobody reads it by that any more.
    pub fn unpin(&mut self, pin: Pin) {
        self.bodies.shelf.unpin(pin);
    }

    /// An object was read, or has become valid.
    pub(super) fn touch(&mut self, path: &Path) {
        if self.config.quota.is_some() {
            self.recency.touch(path);
        }
    }
}
