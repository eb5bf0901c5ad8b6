//! Bodies that are kept for future transactions.

use std::collections::BTreeMap;

use crate::body_references::BodyReferences;
use crate::types::Digest;

/// A caller's name for a body that is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

/// Bodies that are kept for future transactions.
#[derive(Debug, Default)]
pub(super) struct Holds {
    pub(super) all: BTreeMap<HoldId, Digest>,
    /// Held bodies that the store has not confirmed so far.
    pub(super) coming: BTreeMap<Digest, Vec<HoldId>>,
}

/// The bodies of an origin.
#[derive(Debug)]
pub(super) struct Bodies<P> {
    /// All that are here, by their hashes.
    pub(super) references: BodyReferences<P>,
    pub(super) holds: Holds,
}

impl<P: Clone> Bodies<P> {
    pub(super) fn new(references: BodyReferences<P>) -> Self {
        Bodies { references, holds: Holds::default() }
    }

    /// A body is kept no longer than others need it.
    pub(super) fn release_hold(&mut self, id: HoldId) {
        if let Some(digest) = self.holds.all.remove(&id) {
            self.references.release(&digest);
        }
    }

    /// The callers that wait for a body, if the store has answered in all ways in which it comes.
    pub(super) fn poll_held(&mut self, digest: &Digest) -> Vec<HoldId> {
        if self.references.is_coming(digest) {
            return Vec::new();
        }
        self.holds.coming.remove(digest).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;

    use super::*;
    use crate::types::Payload;

    #[test]
    fn held_body_is_dropped_when_the_last_hold_ends() {
        let digest = Digest::of(b"body");
        let mut bodies = Bodies::new(BodyReferences::<()>::new([]));
        for id in [1, 2] {
            bodies.references.store_referenced(Payload { digest, size: Bytes(4), bytes: () });
            bodies.holds.all.insert(HoldId(id), digest);
            bodies.holds.coming.entry(digest).or_default().push(HoldId(id));
        }
        assert_eq!(bodies.poll_held(&digest), []);
        bodies.references.handle_stored(&digest, Ok(()));
        assert_eq!(bodies.poll_held(&digest), [HoldId(1), HoldId(2)]);
        assert_eq!(bodies.poll_held(&digest), []);
        bodies.release_hold(HoldId(1));
        assert!(bodies.references.is_stored(&digest));
        bodies.release_hold(HoldId(2));
        bodies.release_hold(HoldId(2));
        assert!(!bodies.references.is_stored(&digest));
    }
}
