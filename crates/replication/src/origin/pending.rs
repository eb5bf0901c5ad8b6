//! Transactions that are not in the log yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::case::ByCase;
use super::condition::Condition;
use super::history::{Weighing, Weight};
use super::image::Append;
use super::writes::{Arriving, TransactionId};
use crate::path::Path;
use crate::types::{Change, Digest, DiskFull, NextPosition, Payload, Sequence, Version};

/// A transaction that waits.
#[derive(Debug)]
pub(super) struct Queued<P> {
    pub(super) id: TransactionId,
    /// Its number in the queue.
    pub(super) number: u64,
    /// The conditions that must hold at its turn.
    pub(super) conditions: Vec<(Path, Condition)>,
    /// The state to restore. The changes are computed at its turn.
    pub(super) back: Option<Sequence>,
    /// The rest of its changes, if it is large and has not arrived as a whole.
    pub(super) arriving: Option<Arriving<P>>,
    /// In the order of their paths.
    pub(super) changes: Vec<Change>,
    /// Bodies that go into the log, and where each first is among them.
    pub(super) inline: Vec<Payload<P>>,
    pub(super) inline_at: BTreeMap<Digest, usize>,
    /// Bodies that this transaction refers to, so that they are kept.
    pub(super) held: Vec<Digest>,
    /// Number of leading ones that were found in the store. They stay there, or the transaction is rejected.
    pub(super) found: usize,
    /// Number of leading bodies in `inline` of which none is being deleted.
    pub(super) looked: usize,
    /// At the last check, a body was on its way into the store or out of it.
    pub(super) waits: bool,
    /// How far it was prepared for the log, if it is large.
    pub(super) forming: Forming,
}

/// The progress of a large transaction on its way into the log.
#[derive(Debug, Default)]
pub(super) struct Forming {
    /// Number of changes whose contents after it were looked at, and of those that were checked.
    pub(super) listed: usize,
    pub(super) checked: usize,
    pub(super) weighing: Weighing,
    /// Its paths without case, if that matters.
    pub(super) by_case: ByCase,
}

impl<P> Queued<P> {
    /// A transaction without changes.
    pub(super) fn new(id: TransactionId) -> Self {
        let (conditions, changes, inline, inline_at, held) = Default::default();
        let (found, looked, waits, forming) = Default::default();
        Queued {
            id,
            number: 0,
            conditions,
            back: None,
            arriving: None,
            changes,
            inline,
            inline_at,
            held,
            found,
            looked,
            waits,
            forming,
        }
    }
}

/// A large transaction that was checked. Its bodies for the log get references, and its other bodies count for it in
/// the queue no longer.
#[derive(Debug)]
pub(super) struct Leaving<P> {
    pub(super) queued: Queued<P>,
    pub(super) weight: Weight,
    /// Number of bodies for the log that have references.
    pub(super) expected: usize,
    /// Number of the other bodies that are done.
    pub(super) forgotten: usize,
}

/// How far a step was taken over.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// Number of its bodies that were taken in.
    pub(super) inline: usize,
    /// Number of commits in the log.
    pub(super) commits: usize,
    /// The versions that the next one has overwritten so far, and its position up to there.
    pub(super) before: Vec<Option<Version>>,
    pub(super) next: Option<NextPosition>,
    /// Objects whose bodies were lost meanwhile.
    pub(super) lost: BTreeMap<Digest, Vec<Path>>,
}

/// The append that was handed to the log.
#[derive(Debug)]
pub(super) struct Appending {
    pub(super) ids: Vec<(TransactionId, Sequence)>,
    pub(super) held: Vec<Digest>,
    pub(super) inline: Vec<Digest>,
    pub(super) weights: Vec<Weight>,
    pub(super) append: Append<()>,
    /// The answer of the log, and how far it was taken over.
    pub(super) fold: Option<(Result<(), DiskFull>, Fold)>,
}

/// The transactions that wait, and the step that the log is written with.
#[derive(Debug)]
pub(super) struct Pending<P> {
    pub(super) queue: VecDeque<Queued<P>>,
    /// The number of the last transaction.
    last: u64,
    /// Which transactions refer to a body.
    holders: BTreeSet<(Digest, u64)>,
    /// Large transactions that have not arrived as a whole.
    arriving: BTreeSet<u64>,
    /// A large one that goes to the log next.
    pub(super) leaving: Option<Leaving<P>>,
    pub(super) appending: Option<Appending>,
    /// The append that was not handed out so far.
    pub(super) append: Option<Append<P>>,
}

impl<P> Default for Pending<P> {
    fn default() -> Self {
        let (queue, last, holders, arriving) = Default::default();
        let (leaving, appending, append) = Default::default();
        Pending { queue, last, holders, arriving, leaving, appending, append }
    }
}

impl<P> Pending<P> {
    /// A transaction waits behind the others.
    pub(super) fn push(&mut self, mut queued: Queued<P>) {
        self.last += 1;
        queued.number = self.last;
        if queued.arriving.is_some() {
            self.arriving.insert(queued.number);
        }
        self.add_holders(&queued);
        self.queue.push_back(queued);
    }

    /// A transaction refers to its bodies.
    fn add_holders(&mut self, queued: &Queued<P>) {
        self.holders.extend(queued.held.iter().map(|digest| (*digest, queued.number)));
    }

    /// A transaction refers to one more body.
    pub(super) fn add_holder(&mut self, digest: Digest, number: u64) {
        self.holders.insert((digest, number));
    }

    /// A transaction refers to these bodies in the queue no longer.
    pub(super) fn remove_holders(&mut self, bodies: &[Digest], number: u64) {
        for digest in bodies {
            self.holders.remove(&(*digest, number));
        }
    }

    fn at(&self, number: u64) -> Option<usize> {
        self.queue.binary_search_by_key(&number, |queued| queued.number).ok()
    }

    /// The first transaction.
    pub(super) fn pop(&mut self) -> Option<Queued<P>> {
        let queued = self.queue.pop_front()?;
        self.remove_holders(&queued.held, queued.number);
        Some(queued)
    }

    /// The first transaction goes back to its place.
    pub(super) fn push_front(&mut self, queued: Queued<P>) {
        self.add_holders(&queued);
        self.queue.push_front(queued);
    }

    /// The first transaction, which is large, goes to the log next.
    pub(super) fn leave(&mut self, weight: Weight) {
        let leave = |queued| Leaving { queued, weight, expected: 0, forgotten: 0 };
        self.leaving = self.queue.pop_front().map(leave);
    }

    /// Whether a transaction has not arrived as a whole.
    pub(super) fn is_arriving(&self) -> bool {
        !self.arriving.is_empty()
    }

    /// The first transaction that has not arrived. Its place stays, until [`put_back`](Pending::put_back).
    pub(super) fn take_arriving(&mut self) -> Option<Queued<P>> {
        let number = self.arriving.pop_first()?;
        let at = self.at(number)?;
        let place = Queued { number, ..Queued::new(self.queue[at].id) };
        Some(core::mem::replace(&mut self.queue[at], place))
    }

    /// More of a transaction has arrived.
    pub(super) fn put_back(&mut self, queued: Queued<P>) {
        if queued.arriving.is_some() {
            self.arriving.insert(queued.number);
        }
        if let Some(at) = self.at(queued.number) {
            self.queue[at] = queued;
        }
    }

    /// A transaction does not wait any more.
    pub(super) fn forget(&mut self, queued: &Queued<P>) {
        self.arriving.remove(&queued.number);
        self.remove_holders(&queued.held, queued.number);
        if let Some(at) = self.at(queued.number) {
            self.queue.remove(at);
        }
    }

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
        self.appending = Some(Appending { ids, held, inline, weights, append: bare, fold: None });
        self.append = Some(append);
    }

    /// Takes the waiting transactions out that refer to a body. The others keep their order.
    pub(super) fn take_with(&mut self, digest: &Digest) -> Vec<Queued<P>> {
        let numbers = self.holders.range((*digest, 0)..=(*digest, u64::MAX));
        let numbers: Vec<u64> = numbers.map(|(_, number)| *number).collect();
        let mut taken = Vec::new();
        for number in numbers {
            let Some(queued) = self.at(number).and_then(|at| self.queue.remove(at)) else {
                continue;
            };
            self.forget(&queued);
            taken.push(queued);
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
            pending.push(Queued { held, ..Queued::new(TransactionId(id)) });
        }
        let taken: Vec<_> = pending.take_with(&body(7)).iter().map(|one| one.id.0).collect();
        let left: Vec<_> = pending.queue.iter().map(|one| one.id.0).collect();
        assert_eq!((taken, left), (vec![1, 3], vec![2, 4]));
        assert!(pending.take_with(&body(7)).is_empty());
        assert_eq!(pending.pop().map(|one| one.id.0), Some(2));
        assert_eq!(pending.holders, [(body(9), 4)].into());
    }
}
