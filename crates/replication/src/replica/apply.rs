//! Commits on their way into the state: received, waiting, written, shown.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::Step;
use super::buffer::Buffer;
use super::fold::Fold;
use crate::time::{LocalTime, WallTime};
use crate::types::{Digest, NextPosition, Position, Sequence};

/// A commit whose last part is still to come. Its changes are in the buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Partial {
    pub(super) sequence: Sequence,
    pub(super) stamp: WallTime,
    /// The position after the parts that have arrived.
    pub(super) next: NextPosition,
}

/// The progress of making a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Forming {
    /// The commit and its change that come next.
    pub(super) next: (usize, usize),
    /// Which of the commits are applied because their bodies are stored.
    pub(super) with_bodies: Vec<bool>,
    /// All bodies of the commit so far were received for it.
    pub(super) is_named: bool,
}

/// The phase of a step.
///
/// ```text
///   Forming, Merging ──▶ OnDisk ──▶ Shown
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// The step is made of commits, in slices.
    Forming(Forming),
    /// The step is made of the differences to the origin's state, in slices: those up to this leaf.
    Merging(Option<u16>),
    /// The store writes it.
    #[default]
    OnDisk,
    /// Readers see it, and it is taken over into the state, in slices.
    Shown,
}

/// A step that is being made, written or taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Writing {
    pub(super) step: Arc<Step>,
    pub(super) phase: Phase,
    /// When its forming or showing began.
    pub(super) since: LocalTime,
    /// There was no state before.
    pub(super) first: bool,
    /// Commits of the buffer that it contains.
    pub(super) commits: usize,
    pub(super) resync: bool,
    /// Bodies of the states between its commits.
    pub(super) between: Vec<Digest>,
    /// It is visible already, which is a bug.
    pub(super) exposed: bool,
    /// Bodies that were lost meanwhile. The step does not have them, even if they are here again when it is on the
    /// disk.
    pub(super) lost: BTreeSet<Digest>,
}

/// The commits that are not in the state yet, and the step that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Apply {
    /// Commits that were received and are not in the state.
    pub(super) buffer: Buffer,
    /// Events since they were searched for a limit up to which to apply them.
    pub(super) events_since_look: usize,
    pub(super) partial: Option<Partial>,
    /// Commits up to here are applied without waiting for their bodies.
    pub(super) force: Sequence,
    /// And so are those up to the states that waiting reads have seen at other replicas, if all of them are
    /// here: a token may name a state that never comes.
    pub(super) awaited: BTreeSet<Sequence>,
    pub(super) writing: Option<Writing>,
    pub(super) fold: Fold,
    /// Steps for the store.
    pub(super) effects: VecDeque<Arc<Step>>,
    /// No step begins before then, because the disk was full.
    pub(super) retry_at: Option<LocalTime>,
}

impl Apply {
    /// Up to where commits were received, if the state is at `applied`.
    pub(super) fn received(&self, applied: Option<Position>) -> Option<Position> {
        self.buffer.back().map(|last| last.position).or(applied)
    }

    /// The last commit that reads wait for, of those that were received.
    pub(super) fn awaited(&self, applied: Option<Position>) -> Sequence {
        let received = self.received(applied).map_or(Sequence::ZERO, |position| position.sequence);
        self.awaited.range(..=received).next_back().copied().unwrap_or(Sequence::ZERO)
    }

    /// Commits up to `sequence` wait for no bodies any more.
    pub(super) fn force(&mut self, sequence: Sequence) {
        self.force = self.force.max(sequence);
    }

    /// The disk was full. Steps are tried again at `at`, however many bodies find no room meanwhile.
    pub(super) fn retry(&mut self, now: LocalTime, at: LocalTime) {
        if self.retry_at.is_none_or(|before| before <= now) {
            self.retry_at = Some(at);
        }
    }

    /// Whether no step may begin: one is being written, or the disk was full.
    pub(super) fn is_busy(&self, now: LocalTime) -> bool {
        self.writing.is_some() || self.retry_at.is_some_and(|at| now < at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awaited_is_the_last_received_of_those_that_reads_need() {
        let mut apply = Apply { awaited: [2, 5, 9].map(Sequence).into(), ..Apply::default() };
        let at = |sequence| Some(Position { sequence: Sequence(sequence), chain: Digest::EMPTY });
        for (received, awaited) in [(1, 0), (2, 2), (6, 5), (9, 9)] {
            assert_eq!(apply.awaited(at(received)), Sequence(awaited));
        }
        apply.awaited.clear();
        assert_eq!(apply.awaited(at(9)), Sequence::ZERO);
        assert_eq!(apply.awaited(None), Sequence::ZERO);
    }

    #[test]
    fn full_disk_delays_steps_once() {
        let (mut apply, at) = (Apply::default(), LocalTime::from_nanos);
        assert!(!apply.is_busy(at(0)));
        apply.retry(at(0), at(10));
        apply.retry(at(5), at(15));
        assert!(apply.is_busy(at(9)));
        assert!(!apply.is_busy(at(10)));
        apply.writing = Some(Writing::default());
        assert!(apply.is_busy(at(10)));
    }

    #[test]
    fn force_never_goes_back() {
        let mut apply = Apply::default();
        for (sequence, expected) in [(3, 3), (2, 3), (7, 7)] {
            apply.force(Sequence(sequence));
            assert_eq!(apply.force, Sequence(expected));
        }
    }
}
