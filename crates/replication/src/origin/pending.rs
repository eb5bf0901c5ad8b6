//! Transactions that are not in the log yet.

use std::collections::VecDeque;

use super::condition::Condition;
use super::history::Weight;
use super::image::Append;
use super::writes::TransactionId;
use crate::path::Path;
use crate::types::{Change, Content, Digest, Payload, Sequence};

/// A transaction that waits.
#[derive(Debug)]
pub(super) struct Queued<P> {
    pub(super) id: TransactionId,
    /// The conditions that must hold at its turn.
    pub(super) conditions: Vec<(Path, Condition)>,
    /// The state to restore. The changes are computed at its turn.
    pub(super) back: Option<Sequence>,
    pub(super) changes: Vec<(Path, Option<Content>)>,
    /// Bodies that go into the log.
    pub(super) inline: Vec<Payload<P>>,
    /// Bodies that this transaction refers to, so that they are kept.
    pub(super) held: Vec<Digest>,
    /// Number of leading ones that were found in the store. They stay there, or the transaction is rejected.
    pub(super) found: usize,
    /// Number of leading bodies in `inline` that were not being deleted at the last check.
    pub(super) looked: usize,
}

impl<P> Queued<P> {
    /// A transaction without changes.
    pub(super) fn new(id: TransactionId) -> Self {
        let (conditions, changes, inline, held) = Default::default();
        let (found, looked) = (0, 0);
        Queued { id, conditions, back: None, changes, inline, held, found, looked }
    }
}

/// The append that was handed to the log.
#[derive(Debug)]
pub(super) struct Appending {
    pub(super) ids: Vec<(TransactionId, Sequence)>,
    pub(super) held: Vec<Digest>,
    pub(super) inline: Vec<Digest>,
    pub(super) weights: Vec<Weight>,
    pub(super) append: Append<()>,
}

impl Appending {
    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.append.commits.iter().flat_map(|commit| &*commit.changes)
    }
}

/// The transactions that wait, and the step that the log is written with.
#[derive(Debug)]
pub(super) struct Pending<P> {
    pub(super) queue: VecDeque<Queued<P>>,
    pub(super) appending: Option<Appending>,
    /// The append that was not handed out so far.
    pub(super) append: Option<Append<P>>,
}

impl<P> Default for Pending<P> {
    fn default() -> Self {
        Pending { queue: VecDeque::new(), appending: None, append: None }
    }
}

impl<P> Pending<P> {
    /// The log is to be written with this step. What is needed of it until it is durable stays here.
    pub(super) fn hand_over(
        &mut self,
        ids: Vec<(TransactionId, Sequence)>,
        held: Vec<Digest>,
        weights: Vec<Weight>,
        append: Append<P>,
    ) {
        let Append { commits, log_after, chain_from, .. } = &append;
        let (commits, log_after, chain_from) = (commits.clone(), *log_after, *chain_from);
        let bare = Append { commits, inline: Vec::new(), log_after, chain_from };
        let inline = append.inline.iter().map(|payload| payload.digest).collect();
        self.appending = Some(Appending { ids, held, inline, weights, append: bare });
        self.append = Some(append);
    }

    /// Takes the waiting transactions out that refer to a body. The others keep their order.
    pub(super) fn take_with(&mut self, digest: &Digest) -> Vec<Queued<P>> {
        let mut taken = Vec::new();
        for queued in core::mem::take(&mut self.queue) {
            if queued.held.contains(digest) {
                taken.push(queued);
            } else {
                self.queue.push_back(queued);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_of_a_lost_body_leave_the_others_in_order() {
        let body = |byte| Digest([byte; 32]);
        let mut pending = Pending::<()>::default();
        for (id, held) in [(1, 7), (2, 8), (3, 7), (4, 9)] {
            let held = vec![body(held)];
            pending.queue.push_back(Queued { held, ..Queued::new(TransactionId(id)) });
        }
        let taken: Vec<_> = pending.take_with(&body(7)).iter().map(|one| one.id.0).collect();
        let left: Vec<_> = pending.queue.iter().map(|one| one.id.0).collect();
        assert_eq!((taken, left), (vec![1, 3], vec![2, 4]));
    }
}
