//! Commits that were received and are not in the state yet, and how much memory they take.

use core::mem::size_of;
use core::ops::Deref;
use std::collections::VecDeque;
use std::sync::Arc;

use lull_cc::Bytes;

use crate::time::{LocalTime, WallTime};
use crate::types::{Change, Position, Sequence};

/// A commit that was received, and not applied yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Buffered {
    /// The position when it is applied.
    pub(super) position: Position,
    pub(super) sequence: Sequence,
    /// When it was made, by the origin's clock.
    pub(super) stamp: WallTime,
    pub(super) changes: Arc<[Change]>,
    /// When it was made, at the earliest; unknown before the first heartbeat.
    pub(super) said: Option<LocalTime>,
    /// Whether it waited while there was no connection.
    pub(super) waited: bool,
}

impl Buffered {
    /// Memory that it takes, about.
    pub(super) fn bytes(&self) -> u64 {
        let change = |change: &Change| size_of::<Change>() + change.path.as_str().len();
        (size_of::<Buffered>() + self.changes.iter().map(change).sum::<usize>()) as u64
    }
}

/// Those that wait, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Buffer {
    commits: VecDeque<Buffered>,
    bytes: u64,
}

impl Buffer {
    /// Memory that all of them take, about.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    pub(super) fn push(&mut self, buffered: Buffered) {
        self.bytes += buffered.bytes();
        self.commits.push_back(buffered);
    }

    /// The first so many are in the state.
    pub(super) fn take_first(&mut self, commits: usize) {
        self.bytes -= self.commits.drain(..commits).map(|buffered| buffered.bytes()).sum::<u64>();
    }

    pub(super) fn clear(&mut self) {
        *self = Buffer::default();
    }

    /// There is no connection any more.
    pub(super) fn wait_alone(&mut self) {
        for buffered in &mut self.commits {
            buffered.waited = true;
        }
    }
}

impl Deref for Buffer {
    type Target = VecDeque<Buffered>;

    fn deref(&self) -> &VecDeque<Buffered> {
        &self.commits
    }
}
