//! What the store of bodies tells.

use super::{Event, Origin};
use crate::time::Reading;
use crate::types::{Digest, DiskFull};

impl<P: Clone> Origin<P> {
    /// The store has a body, or no room for it.
    pub fn handle_stored(&mut self, now: Reading, digest: &Digest, outcome: Result<(), DiskFull>) {
        self.take_in(digest, outcome);
        if outcome.is_err() {
            self.refuse_those_with(digest);
        }
        self.form_append(now);
    }

    /// The shelf hears of a body. One that was lost is pushed to those who could not get it.
    pub(super) fn take_in(&mut self, digest: &Digest, outcome: Result<(), DiskFull>) {
        if !self.shelf.handle_stored(digest, outcome) {
            return;
        }
        // Seldom enough for a look at all objects.
        let of_it = self.image.objects.iter().filter(|(_, one)| one.content.digest == *digest);
        for (path, _) in of_it {
            if let Some(ranked) = self.objects.get(path) {
                for peer in self.peers.values_mut() {
                    peer.waiting.insert(ranked.place);
                }
            }
        }
    }

    /// Whether a body is in the store, so that a transaction may name it without bringing it.
    pub fn has_body(&self, digest: &Digest) -> bool {
        self.shelf.is_stored(digest)
    }

    /// The store has deleted a body.
    pub fn handle_dropped(&mut self, now: Reading, digest: &Digest) {
        self.shelf.handle_dropped(digest);
        self.form_append(now);
    }

    /// A body that should be in the store is not there, or is not what it was. It is not pushed any
    /// more, and [`Event::Lost`] tells of it; a write with the same body brings it back. The log and
    /// the state stay as they are: it is the only place where this version was ever told of.
    pub fn handle_missing(&mut self, digest: &Digest) {
        if !self.shelf.is_stored(digest) {
            return;
        }
        self.shelf.miss(digest);
        let of_it = self.image.objects.iter().filter(|(_, one)| one.content.digest == *digest);
        let paths = of_it.map(|(path, _)| path.clone()).collect();
        self.events.push_back(Event::Lost { digest: *digest, paths });
    }
}
