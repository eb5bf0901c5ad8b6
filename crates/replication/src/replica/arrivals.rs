//! Bodies of a connection until the store has them, for reports to the origin.

use std::collections::VecDeque;

use crate::body_references::BodyReferences;
use crate::types::Digest;

/// Bodies that have arrived on one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Arrivals {
    /// How many are in the store, or were discarded.
    done: u64,
    /// The bodies after them, in the order of their arrival, until the store has the first.
    coming: VecDeque<Option<Digest>>,
}

impl Arrivals {
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// One has come; an answer without a body is not counted.
    pub(super) fn add(&mut self, digest: Option<Digest>) {
        self.coming.push_back(digest);
    }

    /// How many are done, if the number has grown.
    pub(super) fn poll_done<P>(&mut self, references: &BodyReferences<P>) -> Option<u64> {
        let before = self.done;
        let is_done =
            |digest: &mut Option<Digest>| digest.is_none_or(|one| !references.is_coming(&one));
        while self.coming.pop_front_if(is_done).is_some() {
            self.done += 1;
        }
        (self.done > before).then_some(self.done)
    }
}
