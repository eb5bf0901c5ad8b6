//! Reads that wait, and their answers.

use std::collections::{BTreeMap, VecDeque};

use super::{Answer, Order, ReadId, Request, WaitReason};
use crate::message::MAX_PATHS;
use crate::path::Path;
use crate::time::LocalTime;

/// A read that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::replica) struct Waiting {
    pub(in crate::replica) id: ReadId,
    pub(in crate::replica) request: Request,
    pub(in crate::replica) why: WaitReason,
    /// When it came.
    pub(in crate::replica) since: LocalTime,
}

/// Reads that wait, answers, and how often objects were read since the last report to the origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::replica) struct Reads {
    waiting: VecDeque<Waiting>,
    answers: VecDeque<Answer>,
    counts: BTreeMap<Path, u32>,
}

impl Reads {
    /// The number of reads that wait.
    pub(in crate::replica) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// All that wait, in the order of their arrival.
    pub(in crate::replica) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter()
    }

    /// The read at this place among those that wait.
    pub(in crate::replica) fn get(&self, at: usize) -> Option<&Waiting> {
        self.waiting.get(at)
    }

    /// The place of a read.
    pub(in crate::replica) fn place(&self, id: ReadId) -> Option<usize> {
        self.waiting.iter().position(|one| one.id == id)
    }

    /// A read has to wait.
    pub(in crate::replica) fn wait(&mut self, read: Waiting) {
        self.waiting.push_back(read);
    }

    /// A read waits for another reason now.
    pub(in crate::replica) fn set_reason(&mut self, at: usize, why: WaitReason) {
        if let Some(one) = self.waiting.get_mut(at) {
            one.why = why;
        }
    }

    /// Ends the wait of a read.
    pub(in crate::replica) fn remove(&mut self, at: usize) -> Option<Waiting> {
        self.waiting.remove(at)
    }

    /// Whether a read with a place in the order would overtake another one now.
    pub(in crate::replica) fn has_ordered(&self) -> bool {
        self.waiting.iter().any(|one| one.request.is_ordered())
    }

    /// Whether a read that waits blocks later ones with a place in the order.
    pub(in crate::replica) fn is_blocked(&self, order: Order) -> bool {
        self.waiting.iter().any(|one| blocks_later_reads(order, &one.request, one.why))
    }

    /// A read is answered.
    pub(in crate::replica) fn answer(&mut self, answer: Answer) {
        self.answers.push_back(answer);
    }

    /// The next answer.
    pub(in crate::replica) fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// An object was read so many times.
    pub(in crate::replica) fn count(&mut self, path: &Path, times: u32) {
        let sum = self.counts.entry(path.clone()).or_default();
        *sum = sum.saturating_add(times);
    }

    /// The counts since the last call, in messages.
    pub(in crate::replica) fn take_counts(&mut self) -> Vec<Vec<(Path, u32)>> {
        let mut counts = core::mem::take(&mut self.counts).into_iter().peekable();
        let mut messages = Vec::new();
        while counts.peek().is_some() {
            messages.push(counts.by_ref().take(MAX_PATHS).collect());
        }
        messages
    }
}

/// Whether a read that waits for this reason blocks later ones. A read that waits for an unknown state does not: the
/// token of its session keeps its reads in order, and the token may name a state that never comes.
pub(in crate::replica) fn blocks_later_reads(
    order: Order,
    request: &Request,
    why: WaitReason,
) -> bool {
    order == Order::Conservative && request.is_ordered() && why != WaitReason::Behind
}

#[cfg(test)]
mod tests {
    use super::super::ReadTarget;
    use super::*;
    use crate::types::{Content, Mode, Sequence, Version};

    fn waiting(id: u64, target: ReadTarget, why: WaitReason) -> Waiting {
        let request = Request { target, after: Sequence::ZERO };
        Waiting { id: ReadId(id), request, why, since: LocalTime::default() }
    }

    fn path(name: &str) -> Path {
        Path::new(name).expect("a path")
    }

    #[test]
    fn ordered_read_blocks_others_except_for_an_unknown_state() {
        let version = Version {
            sequence: Sequence(1),
            content: Content::folder(Default::default(), Mode::PLAIN),
        };
        for (target, why, order, expected) in [
            (ReadTarget::Root, WaitReason::Stale, Order::Conservative, true),
            (ReadTarget::Root, WaitReason::Behind, Order::Conservative, false),
            (ReadTarget::Root, WaitReason::Stale, Order::Aggressive, false),
            // A read of an open file has no place in the order.
            (
                ReadTarget::Opened(path("a"), version),
                WaitReason::Invalid,
                Order::Conservative,
                false,
            ),
        ] {
            let mut reads = Reads::default();
            assert!(!reads.is_blocked(order));
            reads.wait(waiting(1, target.clone(), why));
            assert_eq!(reads.is_blocked(order), expected, "{target:?} {why:?} {order:?}");
            assert_eq!(reads.has_ordered(), target == ReadTarget::Root);
        }
    }

    #[test]
    fn removed_read_leaves_the_others_in_order() {
        let mut reads = Reads::default();
        for id in 1..=3 {
            reads.wait(waiting(id, ReadTarget::Root, WaitReason::Stale));
        }
        let at = reads.place(ReadId(2)).expect("it waits");
        reads.set_reason(at, WaitReason::Order);
        assert_eq!(reads.remove(at).map(|one| one.why), Some(WaitReason::Order));
        assert_eq!(reads.iter().map(|one| one.id.0).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((reads.place(ReadId(2)), reads.len()), (None, 2));
    }

    #[test]
    fn counts_are_split_into_messages_and_reported_once() {
        let mut reads = Reads::default();
        for number in 0..=MAX_PATHS {
            reads.count(&path(&format!("{number:05}")), 1);
        }
        reads.count(&path("00000"), u32::MAX);
        let messages = reads.take_counts();
        assert_eq!(messages.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_PATHS, 1]);
        assert_eq!(messages[0][0], (path("00000"), u32::MAX));
        assert!(reads.take_counts().is_empty());
    }
}
