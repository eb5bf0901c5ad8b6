//! Work on large transactions and trees, which is done in slices.

use super::Origin;
use crate::time::Reading;

impl<P: Clone> Origin<P> {
    /// Whether [`go_on`](Origin::go_on) has anything to do.
    pub fn has_more(&self) -> bool {
        self.is_folding()
            || self.pending.is_arriving()
            || self.is_first_to_form()
            || self.preparation.is_pending()
            || !self.releases.is_empty()
            || self.has_to_follow()
            || self.is_distributing()
            || self.has_to_route()
    }

    /// Whether replicas wait for a tree that is being made, or for their queue.
    pub fn is_preparing(&self) -> bool {
        self.preparation.is_pending()
    }

    /// Does some of the work that is left of earlier calls: no more than a few milliseconds of it. Other calls may come
    /// in between, in any number.
    pub fn go_on(&mut self, now: Reading) {
        if self.is_folding() {
            self.fold_some(now);
        } else {
            self.form_append(now);
        }
        self.admit_some(now);
        self.build_some(now);
        self.release_some();
        self.fill_some();
        self.follow_some(now);
        self.distribute_some(now);
        self.route_urgent();
    }
}
