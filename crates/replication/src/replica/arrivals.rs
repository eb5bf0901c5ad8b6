//! Bodies of a connection until the store has them, for the origin to know.

use std::collections::VecDeque;

use crate::shelf::Shelf;
use crate::types::Digest;

/// Those that have come by one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Arrivals {
    /// How many are in the store, or were discarded.
    done: u64,
    /// Those behind them, in the order in which they came, until the store has the first.
    coming: VecDeque<Option<Digest>>,
}

impl Arrivals {
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// One has come; what comes without a body is none.
    pub(super) fn add(&mut self, digest: Option<Digest>) {
        self.coming.push_back(digest);
    }

    /// How many are done, if they have become more.
    pub(super) fn look<P>(&mut self, shelf: &Shelf<P>) -> Option<u64> {
        let before = self.done;
        let is_done = |digest: &mut Option<Digest>| digest.is_none_or(|one| !shelf.is_coming(&one));
        while self.coming.pop_front_if(is_done).is_some() {
            self.done += 1;
        }
        (self.done > before).then_some(self.done)
    }
}
