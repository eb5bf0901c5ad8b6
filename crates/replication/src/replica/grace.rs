//! Overwritten bodies that can still be fetched for a while.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::LocalTime;
use crate::types::Digest;

/// Overwritten bodies in the order in which they are given up, and by body. A body may be there several times, with a
/// reference for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Grace {
    by_time: BTreeMap<u64, (LocalTime, Digest)>,
    by_body: BTreeSet<(Digest, u64)>,
    count: u64,
}

impl Grace {
    /// Keeps a body until then, which is not before the times of earlier calls.
    pub(super) fn add(&mut self, until: LocalTime, digest: Digest) {
        self.count += 1;
        self.by_time.insert(self.count, (until, digest));
        self.by_body.insert((digest, self.count));
    }

    /// The next body, whose reference the caller releases.
    pub(super) fn pop(&mut self) -> Option<Digest> {
        let (number, (_, digest)) = self.by_time.pop_first()?;
        self.by_body.remove(&(digest, number));
        Some(digest)
    }

    /// A body is gone, with all references to it.
    pub(super) fn forget(&mut self, digest: &Digest) {
        let all = (*digest, 0)..=(*digest, u64::MAX);
        while let Some((_, number)) = self.by_body.range(all.clone()).next().copied() {
            self.by_body.remove(&(*digest, number));
            self.by_time.remove(&number);
        }
    }

    /// When the next one is given up.
    pub(super) fn first(&self) -> Option<LocalTime> {
        self.by_time.first_key_value().map(|(_, (until, _))| *until)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bodies_leave_in_order_without_forgotten_ones(
            steps in prop::collection::vec((0..3_u8, 0..4_u8), 0..60),
        ) {
            let (mut grace, mut expected) = (Grace::default(), Vec::new());
            for ((step, body), at) in steps.into_iter().zip(0..) {
                let (digest, at) = (Digest([body; 32]), LocalTime::from_nanos(at));
                match step {
                    0 => {
                        grace.add(at, digest);
                        expected.push((at, digest));
                    }
                    1 => {
                        grace.forget(&digest);
                        expected.retain(|(_, other)| *other != digest);
                    }
                    _ => {
                        let first = (!expected.is_empty()).then(|| expected.remove(0).1);
                        prop_assert_eq!(grace.pop(), first);
                    }
                }
                prop_assert_eq!(grace.first(), expected.first().map(|(until, _)| *until));
                prop_assert_eq!(grace.by_body.len(), expected.len());
            }
        }
    }
}
