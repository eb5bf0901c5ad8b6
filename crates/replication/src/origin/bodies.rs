//! The answers of the store of bodies.

use super::Origin;
use super::holds::HoldId;
use super::interface::Event;
use super::writes::Refused;
use crate::body_references::Pin;
use crate::time::Reading;
use crate::types::{Digest, DiskFull, Payload};

impl<P: Clone> Origin<P> {
    /// Stores a body for a future transaction, which names it as [`Put::Stored`](super::Put::Stored), so that
    /// large transactions need not be in memory. The answer is an [`Event::Held`]; from then on the body is
    /// kept until [`release_hold`](Origin::release_hold), or a crash.
    pub fn handle_hold(&mut self, id: HoldId, payload: Payload<P>) {
        let digest = payload.digest;
        self.bodies.references.store_referenced(payload);
        self.bodies.holds.all.insert(id, digest);
        if self.bodies.references.is_stored(&digest) {
            self.output.events.push_back(Event::Held { id, outcome: Ok(()) });
        } else {
            self.bodies.holds.coming.entry(digest).or_default().push(id);
        }
    }

    /// The body is kept only as long as other owners need it.
    pub fn release_hold(&mut self, id: HoldId) {
        self.bodies.release_hold(id);
    }

    /// The store has answered for a body.
    fn report_held(&mut self, digest: &Digest, outcome: Result<(), DiskFull>) {
        for id in self.bodies.poll_held(digest) {
            if outcome.is_err() {
                self.bodies.release_hold(id);
            }
            self.output.events.push_back(Event::Held { id, outcome });
        }
    }

    /// The store has a body, or no room for it.
    pub fn handle_stored(&mut self, now: Reading, digest: &Digest, outcome: Result<(), DiskFull>) {
        self.handle_stored_body(digest, outcome);
        // It may be stored, or be on its way, by the log.
        let gone =
            !self.bodies.references.is_stored(digest) && !self.bodies.references.is_coming(digest);
        if outcome.is_err() && gone {
            self.reject_transactions_with(digest, &Refused::Disk(DiskFull));
        }
        self.form_append(now);
    }

    /// Passes the store's answer to the references. A body that was lost is pushed to the replicas that missed it.
    pub(super) fn handle_stored_body(&mut self, digest: &Digest, outcome: Result<(), DiskFull>) {
        let is_back = self.bodies.references.handle_stored(digest, outcome);
        self.report_held(digest, outcome);
        if !is_back {
            return;
        }
        for path in self.state.holders(digest) {
            if let Some(ranked) = self.ranking.get(path) {
                for peer in self.peers.values_mut() {
                    peer.queue(path, ranked.position);
                }
            }
        }
    }

    /// Whether a body is in the store, so that a transaction may name it without its bytes.
    pub fn has_body(&self, digest: &Digest) -> bool {
        self.bodies.references.is_stored(digest)
    }

    /// Keeps a body for a reader; none if it is missing.
    pub fn pin(&mut self, digest: &Digest) -> Option<Pin> {
        self.bodies.references.pin(digest)
    }

    /// No reader needs it by that pin any more.
    pub fn unpin(&mut self, pin: Pin) {
        self.bodies.references.unpin(pin);
    }

    /// The store has deleted a body.
    pub fn handle_dropped(&mut self, now: Reading, digest: &Digest) {
        self.bodies.references.handle_dropped(digest);
        self.form_append(now);
    }

    /// A body is missing from the store or corrupt. It is not pushed any more, and [`Event::Lost`] reports
    /// it; a write with the same body restores it. The log and the state are unchanged, because only they
    /// describe this version. Waiting transactions that need the body are refused, so that they block no
    /// others.
    pub fn handle_missing(&mut self, now: Reading, digest: &Digest) {
        if !self.bodies.references.is_stored(digest) {
            return;
        }
        self.bodies.references.miss(digest);
        let paths = self.state.holders(digest).cloned().collect();
        self.output.events.push_back(Event::Lost { digest: *digest, paths });
        self.reject_transactions_with(digest, &Refused::NotStored(*digest));
        self.form_append(now);
    }

    /// Reports the bodies that were missing at the start.
    pub(super) fn report_lost(&mut self) {
        for digest in self.bodies.references.lost() {
            let paths = self.state.holders(digest).cloned().collect();
            self.output.events.push_back(Event::Lost { digest: *digest, paths });
        }
    }

    /// The bodies that the state or the log refer to and that are not in the store.
    pub fn lost(&self) -> impl Iterator<Item = &Digest> {
        self.bodies.references.lost()
    }

    /// Whether a body of the state or the log is missing in the store.
    pub fn is_lost(&self, digest: &Digest) -> bool {
        self.bodies.references.is_lost(digest)
    }
}
