//! How many bytes of bodies may be stored here, and which are evicted for others.

use std::collections::BTreeMap;

use super::{Object, Replica, Step};
use crate::body_references::BodyReferences;
use crate::body_references::Pin;
use crate::path::Path;
use crate::types::{Content, Digest};

impl<P: Clone> Replica<P> {
    /// Bytes of bodies that the quota still permits.
    pub(super) fn room(&self) -> u64 {
        let kept = self.bodies.references.kept().0;
        self.config.quota.map_or(u64::MAX, |quota| quota.0.saturating_sub(kept))
    }

    /// Whether the bodies exceed the quota.
    pub(super) fn is_beyond_quota(&self) -> bool {
        self.config.quota.is_some_and(|quota| self.bodies.references.kept() > quota)
    }

    /// Whether a body without a waiting read exceeds the quota: speculation does not evict. It may take the
    /// place of its earlier version.
    pub(super) fn is_full_for(&mut self, path: &Path, content: &Content) -> bool {
        let Some(quota) = self.config.quota else { return false };
        if self.bodies.references.is_stored(&content.digest) {
            return false;
        }
        let kept = self.bodies.references.kept().0.saturating_add(content.size.0);
        kept > quota.0 && kept > quota.0.saturating_add(self.replaced(Some(path)))
    }

    /// Evicts overwritten bodies first, and then the least recently read ones, as far as the quota requires
    /// it. `unused` holds the bodies that are dropped anyway, and afterwards all dropped ones.
    pub(super) fn make_room(&mut self, step: &mut Step, unused: &mut Vec<Digest>) {
        let Some(quota) = self.config.quota else { return };
        let mut excess = self.bodies.references.kept().0.saturating_sub(quota.0);
        if excess == 0 {
            return;
        }
        // Several references to one body may go.
        let mut going = BTreeMap::new();
        let mut goes = |references: &BodyReferences<P>, digest: &Digest| {
            let count = going.entry(*digest).or_insert(0);
            *count += 1;
            references.held_by(digest, *count).0
        };
        for digest in &*unused {
            excess = excess.saturating_sub(goes(&self.bodies.references, digest));
        }
        // Bodies replaced by newer ones are dropped when these are in the state.
        excess = excess.saturating_sub(self.replaced(None));
        while excess > 0
            && let Some(digest) = self.bodies.pop_overwritten()
        {
            excess = excess.saturating_sub(goes(&self.bodies.references, &digest));
            unused.push(digest);
        }
        for path in self.recency.oldest_first() {
            if excess == 0 {
                return;
            }
            let Some(object) = self.image.objects.get(path).filter(|object| object.valid) else {
                continue;
            };
            // Evicting a body that is being read would free nothing.
            let is_read = self.bodies.references.is_pinned(&object.version.content.digest);
            if !step.changes.contains_key(path) && !is_read {
                excess = excess.saturating_sub(object.version.content.size.0);
                self.output.counters.evicted += 1;
                step.changes.insert(path.clone(), Some(Object { valid: false, ..*object }));
            }
        }
    }

    /// Keeps a body for a reader; none if it is missing. It counts for the quota.
    pub fn pin(&mut self, digest: &Digest) -> Option<Pin> {
        self.bodies.references.pin(digest)
    }

    /// No reader needs it by that pin any more.
    pub fn unpin(&mut self, pin: Pin) {
        self.bodies.references.unpin(pin);
    }

    /// An object was read, or has become valid.
    pub(super) fn touch(&mut self, path: &Path) {
        if self.config.quota.is_some() {
            self.recency.touch(path);
        }
    }
}
