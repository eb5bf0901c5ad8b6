//! From a transaction to a commit: first the bodies are durable, then the log, and only then it is
//! acknowledged and announced. A large transaction is prepared in slices, and goes to the log alone.

use super::Origin;
use super::case::ByCase;
use super::history::Weight;
use super::image::Append;
use super::interface::Event;
use super::overlay::{Layers, Overlay};
use super::pending::{Forming, Leaving, Queued};
use super::writes::{Refused, RollbackError, TransactionId};
use crate::faults::Fault;
use crate::time::Reading;
use crate::types::{Change, Commit, Digest, Payload, Sequence};

/// The next durable step.
struct Batch<P> {
    overlay: Overlay,
    commits: Vec<Commit>,
    inline: Vec<Payload<P>>,
    ids: Vec<(TransactionId, Sequence)>,
    held: Vec<Digest>,
    weights: Vec<Weight>,
    /// Changes of all commits.
    changes: usize,
    last: Sequence,
}

impl<P> Batch<P> {
    fn new(last: Sequence) -> Self {
        let (overlay, commits, inline, ids, held, weights) = Default::default();
        Batch { overlay, commits, inline, ids, held, weights, changes: 0, last }
    }
}

impl<P: Clone> Origin<P> {
    /// Finds the changes that restore the state at `to`, and refers to their bodies.
    fn form_rollback(&mut self, queued: &mut Queued<P>, to: Sequence) -> Result<(), RollbackError> {
        let last = self.last().sequence;
        if to > last {
            return Err(RollbackError::NotYet(last));
        }
        let then = self
            .state
            .image
            .changed_since(to)
            .ok_or(RollbackError::TooOld(self.state.image.log_after()))?;
        if then.is_empty() {
            return Err(RollbackError::Nothing(to));
        }
        let bodies: Vec<_> = then.values().flatten().map(|content| content.digest).collect();
        if !bodies.iter().all(|digest| self.bodies.references.is_stored(digest)) {
            return Err(RollbackError::Lost(to));
        }
        bodies.iter().for_each(|digest| self.bodies.references.refer(digest));
        (queued.found, queued.held) = (bodies.len(), bodies);
        queued.changes = then.into_iter().map(|(path, content)| Change { path, content }).collect();
        Ok(())
    }

    /// There was no room for a body, or it is lost: a transaction that needs it is refused as a whole.
    pub(super) fn reject_transactions_with(&mut self, digest: &Digest, why: &Refused) {
        for queued in self.pending.take_with(digest) {
            self.refuse(queued, why.clone());
        }
    }

    pub(super) fn refuse(&mut self, queued: Queued<P>, why: Refused) {
        self.pending.forget(&queued);
        let Queued { id, mut held, found, changes, .. } = queued;
        if held.len() > self.config.slice {
            // The others may be lost with all references, if there is no room for them.
            held.drain(found..).for_each(|digest| self.bodies.references.release(&digest));
            self.releases.add_digests(held);
        } else {
            held.iter().for_each(|digest| self.bodies.references.release(digest));
        }
        self.releases.add_changes(changes);
        self.output.events.push_back(Event::Refused { transaction: id, why });
    }

    /// Whether the first waiting transaction has all of its bodies. The store is asked for one body at a
    /// time, so that a transaction with many bodies is not searched after each of them.
    fn is_first_ready(&mut self) -> bool {
        let (references, Some(queued)) =
            (&mut self.bodies.references, self.pending.queue.front_mut())
        else {
            self.bodies.references.forget_doomed();
            return false;
        };
        // Nothing refers to the bodies for the log so far, so one that was checked may be in deletion by now.
        while let Some(digest) = references.poll_doomed() {
            let at = queued.inline_at.get(&digest);
            queued.looked = at.map_or(queued.looked, |at| queued.looked.min(*at));
        }
        queued.waits = false;
        if queued.arriving.is_some() {
            return false;
        }
        let mut rest = self.config.slice;
        while let Some(digest) = queued.held.get(queued.found) {
            queued.waits = !references.is_stored(digest);
            if queued.waits || rest == 0 {
                return false;
            }
            (queued.found, rest) = (queued.found + 1, rest - 1);
        }
        while let Some(payload) = queued.inline.get(queued.looked) {
            queued.waits = references.is_dropping(&payload.digest);
            if queued.waits || rest == 0 {
                return false;
            }
            (queued.looked, rest) = (queued.looked + 1, rest - 1);
        }
        true
    }

    /// Whether the first waiting transaction may go to the log, if its bodies may come.
    pub(super) fn is_first_to_form(&self) -> bool {
        let leaving = self.pending.leaving.as_ref().map(|leaving| &leaving.queued);
        let front = leaving.or_else(|| self.pending.queue.front());
        let is_next = |queued: &Queued<P>| !queued.waits && queued.arriving.is_none();
        self.pending.appending.is_none() && front.is_some_and(is_next)
    }

    /// Hands ready transactions to the log, as one durable step. In order: a transaction whose bodies are
    /// still being stored blocks those behind it.
    pub(super) fn form_append(&mut self, now: Reading) {
        if self.pending.appending.is_some() {
            return;
        }
        let mut batch = Batch::new(self.last().sequence);
        if self.pending.leaving.is_some() {
            if let Some((queued, weight)) = self.leave_some() {
                self.add_to(&mut batch, now, queued, weight);
            }
            return self.write_log(batch);
        }
        while batch.commits.len() < self.config.batch.max(1) && self.is_first_ready() {
            let Some(front) = self.pending.queue.front() else { break };
            let (back, size) = (front.back, front.changes.len());
            // The changes of a rollback are known once the transactions before it are in the state.
            let fits = back.is_none() && batch.changes + size <= 2 * self.config.slice;
            if !batch.commits.is_empty() && !fits {
                break;
            }
            if let Some(to) = back {
                self.begin_rollback(to);
                continue;
            }
            let is_large = size > self.config.slice;
            let outcome = if is_large {
                let Some(outcome) = self.prepare_some() else { return };
                outcome
            } else {
                self.examine(&batch.overlay)
            };
            if is_large && let Ok(weight) = outcome {
                return self.pending.leave(weight);
            }
            let Some(queued) = self.pending.pop() else { break };
            match outcome {
                Ok(weight) => self.add_to(&mut batch, now, queued, weight),
                Err(why) => self.refuse(queued, why),
            }
        }
        self.write_log(batch);
    }

    /// Hands a step to the log.
    fn write_log(&mut self, batch: Batch<P>) {
        if batch.commits.is_empty() {
            return;
        }
        let Batch { commits, inline, ids, held, weights, last, .. } = batch;
        let log_after = self.state.log_after(&weights, &self.config);
        let chain = (self.config.chain as u64).max(self.config.log as u64);
        let chain_from = Sequence(last.0.saturating_sub(chain));
        if self.faults.has(Fault::AcknowledgementBeforeDurable) {
            ids.iter().for_each(|id| self.acknowledge(*id));
        }
        let append = Append { commits, inline, log_after, chain_from };
        self.pending.hand_over(ids, held, weights, append);
    }

    /// The first transaction is a rollback: it gets its changes, or is refused.
    fn begin_rollback(&mut self, to: Sequence) {
        let Some(mut queued) = self.pending.pop() else { return };
        match self.form_rollback(&mut queued, to) {
            Ok(()) => {
                queued.back = None;
                self.pending.push_front(queued);
            }
            Err(why) => self.refuse(queued, why.into()),
        }
    }

    /// Checks the first transaction on top of a step.
    fn examine(&self, overlay: &Overlay) -> Result<Weight, Refused> {
        let Some(queued) = self.pending.queue.front() else { return Err(Refused::Empty) };
        let own = &queued.changes[..];
        let layers = Layers { objects: &self.state.image.objects, overlay, own };
        layers.check_conditions(&queued.conditions)?;
        let by_case = self.state.by_case.as_ref();
        let own_case: ByCase =
            own.iter().filter(|_| by_case.is_some()).map(|one| &one.path).collect();
        let cases = by_case.map(|present| [present, &own_case]);
        own.iter().try_for_each(|change| layers.check(change, cases))?;
        let before = own.iter().map(|change| layers.before(change.path.as_bytes()));
        Ok(Weight::of(before, own.iter().map(|change| change.content)))
    }

    /// Checks some changes of the first transaction, which is large: none if there are more. Nothing else goes to the
    /// log meanwhile.
    fn prepare_some(&mut self) -> Option<Result<Weight, Refused>> {
        let (slice, overlay) = (self.config.slice, Overlay::default());
        let Queued { changes, conditions, forming, .. } = self.pending.queue.front_mut()?;
        let Forming { listed, checked, weighing, by_case } = forming;
        let layers = Layers { objects: &self.state.image.objects, overlay: &overlay, own: changes };
        if *listed == 0
            && let Err(why) = layers.check_conditions(conditions)
        {
            return Some(Err(why));
        }
        let present = self.state.by_case.as_ref();
        if *listed < changes.len() {
            let upto = changes.len().min(*listed + slice);
            for change in &changes[*listed..upto] {
                weighing.add_after(change.content);
                if present.is_some() {
                    by_case.set(&change.path, true);
                }
            }
            *listed = upto;
            return None;
        }
        let cases = present.map(|present| [present, &*by_case]);
        let upto = changes.len().min(*checked + slice);
        for change in &changes[*checked..upto] {
            if let Err(why) = layers.check(change, cases) {
                return Some(Err(why));
            }
            weighing.add_before(layers.before(change.path.as_bytes()));
        }
        *checked = upto;
        (upto == changes.len()).then(|| Ok(weighing.weight()))
    }

    /// Refers to some bodies of the large transaction that is leaving; returns it if there are no more.
    fn leave_some(&mut self) -> Option<(Queued<P>, Weight)> {
        let mut leaving = self.pending.leaving.take()?;
        let Leaving { queued, expected, forgotten, .. } = &mut leaving;
        let mut rest = self.config.slice;
        queued.waits = false;
        while rest > 0
            && let Some(payload) = queued.inline.get(*expected)
        {
            // One that was checked before may be in deletion by now.
            queued.waits = !self.bodies.references.expect(payload.digest, payload.size);
            if queued.waits {
                break;
            }
            (*expected, rest) = (*expected + 1, rest - 1);
        }
        let upto = queued.held.len().min(*forgotten + rest);
        self.pending.remove_holders(&queued.held[*forgotten..upto], queued.number);
        *forgotten = upto;
        if *expected < queued.inline.len() || upto < queued.held.len() {
            self.pending.leaving = Some(leaving);
            return None;
        }
        Some((leaving.queued, leaving.weight))
    }

    fn add_to(&mut self, batch: &mut Batch<P>, now: Reading, queued: Queued<P>, weight: Weight) {
        let Queued { id, changes, mut held, inline, .. } = queued;
        let is_large = changes.len() > self.config.slice;
        // A large one is the only one of its step.
        if !is_large {
            batch.overlay.extend(&changes, self.state.by_case.is_some());
        }
        batch.changes += changes.len();
        batch.weights.push(weight);
        batch.last = batch.last.next();
        let (sequence, stamp) = (batch.last, self.clock.read(now));
        batch.commits.push(Commit { sequence, stamp, changes: changes.into() });
        batch.ids.push((id, sequence));
        if is_large {
            // Its bodies have references.
            (batch.held, batch.inline) = (held, inline);
            return;
        }
        batch.held.append(&mut held);
        for payload in inline {
            // A body may come twice within the batch; each time it gets a reference.
            let expected = self.bodies.references.expect(payload.digest, payload.size);
            assert!(expected, "it is being deleted, so the transaction was not ready");
            batch.inline.push(payload);
        }
    }

    /// Drops log entries beyond the limits, which may have been different before this start.
    pub(super) fn shorten_log(&mut self) {
        let log_after = self.state.log_after(&[], &self.config);
        if log_after == self.state.image.log_after() {
            return;
        }
        let chain_from = self.state.image.chain.first();
        let (commits, inline) = Default::default();
        let append = Append { commits, inline, log_after, chain_from };
        self.pending.hand_over(Vec::new(), Vec::new(), Vec::new(), append);
    }

    pub(super) fn acknowledge(&mut self, (transaction, sequence): (TransactionId, Sequence)) {
        self.output.events.push_back(Event::Acknowledged { transaction, sequence });
    }
}
