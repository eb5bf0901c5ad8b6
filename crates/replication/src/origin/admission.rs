//! Transactions as they arrive: their bodies get references. Large ones are taken in slices.

use super::Origin;
use super::condition::Condition;
use super::interface::Event;
use super::pending::Queued;
use super::writes::{Put, Refused, Transaction, TransactionId};
use crate::path::Path;
use crate::time::Reading;
use crate::types::{Change, Content, Digest, MAX_BODY_BYTES, Sequence};

impl<P: Clone> Origin<P> {
    /// Begins a write. The answer is an [`Event::Acknowledged`] or [`Event::Refused`]. Transactions are
    /// committed in the order of these calls.
    pub fn handle_transaction(&mut self, now: Reading, id: TransactionId, writes: Transaction<P>) {
        self.handle_conditional(now, id, Vec::new(), writes);
    }

    /// Begins a write that takes effect if all these conditions hold for the state after the preceding
    /// transactions.
    pub fn handle_conditional(
        &mut self,
        now: Reading,
        id: TransactionId,
        conditions: Vec<(Path, Condition)>,
        writes: Transaction<P>,
    ) {
        match self.admit(id, writes) {
            Ok(mut queued) => {
                queued.conditions = conditions;
                self.pending.push(queued);
                self.form_append(now);
            }
            Err(why) => self.output.events.push_back(Event::Refused { transaction: id, why }),
        }
    }

    /// Restores the state at `to` with a new transaction: the log continues, and replicas lose nothing that
    /// they have shown. The changes are computed from the state after all earlier transactions. So the result
    /// equals the state at `to`, despite concurrent writes.
    pub fn handle_rollback(&mut self, now: Reading, id: TransactionId, to: Sequence) {
        if self.pending.queue.len() >= self.config.queue {
            let why = Refused::Busy;
            self.output.events.push_back(Event::Refused { transaction: id, why });
            return;
        }
        self.pending.push(Queued { back: Some(to), ..Queued::new(id) });
        self.form_append(now);
    }

    fn admit(&mut self, id: TransactionId, writes: Transaction<P>) -> Result<Queued<P>, Refused> {
        if writes.changes.is_empty() {
            return Err(Refused::Empty);
        }
        if self.pending.queue.len() >= self.config.queue {
            return Err(Refused::Busy);
        }
        let mut queued = Queued::new(id);
        if writes.changes.len() > self.config.slice {
            queued.changes.reserve_exact(writes.changes.len());
            queued.arriving = Some(writes.changes.into_iter());
            return Ok(queued);
        }
        // Before any of its bodies goes to the store.
        for (path, put) in &writes.changes {
            self.validate(path, put)?;
        }
        for (path, put) in writes.changes {
            self.take_change(&mut queued, path, put);
        }
        Ok(queued)
    }

    /// Whether a change is possible.
    fn validate(&self, path: &Path, put: &Put<P>) -> Result<(), Refused> {
        let Some(content) = put.content() else { return Ok(()) };
        if content.size > MAX_BODY_BYTES {
            return Err(Refused::Large(path.clone()));
        }
        if !content.is_possible() {
            return Err(Refused::Impossible(path.clone()));
        }
        let (Put::Stored(_), references) = (put, &self.bodies.references) else { return Ok(()) };
        let Content { digest, size, .. } = content;
        if !references.is_stored(&digest) {
            return Err(Refused::NotStored(digest));
        }
        // Replicas get the size with the hash and trust both.
        if !references.is_stored_as(&digest, size) {
            return Err(Refused::OtherSize(digest, size));
        }
        Ok(())
    }

    /// Takes a valid change into a transaction, with a reference to its body. Returns the body if it is not one for
    /// the log.
    fn take_change(&mut self, queued: &mut Queued<P>, path: Path, put: Put<P>) -> Option<Digest> {
        let content = put.content();
        let held = match put {
            Put::Delete => None,
            Put::Stored(content) => {
                self.bodies.references.refer(&content.digest);
                Some(content.digest)
            }
            Put::Body(payload, _) if payload.size <= self.config.inline => {
                let at = queued.inline.len();
                queued.inline_at.entry(payload.digest).or_insert(at);
                queued.inline.push(payload);
                None
            }
            Put::Body(payload, _) => {
                let digest = payload.digest;
                self.bodies.references.store_referenced(payload);
                Some(digest)
            }
        };
        queued.held.extend(held);
        queued.changes.push(Change { path, content });
        held
    }

    /// Takes in some changes of the first large transaction that has not arrived.
    pub(super) fn admit_some(&mut self, now: Reading) {
        let Some(mut queued) = self.pending.take_arriving() else { return };
        let mut outcome = Ok(());
        if let Some(mut arriving) = queued.arriving.take() {
            for _ in 0..self.config.slice {
                let Some((path, put)) = arriving.next() else { break };
                outcome = self.validate(&path, &put);
                if outcome.is_err() {
                    break;
                }
                if let Some(digest) = self.take_change(&mut queued, path, put) {
                    self.pending.add_holder(digest, queued.number);
                }
            }
            if outcome.is_err() {
                self.releases.add_rest(arriving);
            } else if arriving.len() > 0 {
                queued.arriving = Some(arriving);
            }
        }
        match outcome {
            Ok(()) => self.pending.put_back(queued),
            Err(why) => self.refuse(queued, why),
        }
        self.form_append(now);
    }
}
