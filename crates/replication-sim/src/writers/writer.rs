//! A writer of one subtree.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Commit, Object, SeededBug, Vector, WriteId, WriterId};

/// A write of a client.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) id: WriteId,
    /// The changed objects, in the writer's subtree.
    pub(super) objects: BTreeSet<Object>,
    /// The token of the session: what the write depends on.
    pub(super) after: Vector,
}

/// The answer to a write: it is durable, and the session has seen this state.
#[derive(Clone, Debug)]
pub(super) struct Acknowledgement {
    pub(super) write: WriteId,
    pub(super) stamp: Vector,
}

/// A writer. A write is `forming` until it is durable. Then it is acknowledged and sent.
///
/// ```text
///   handle_write ─▶ forming ── handle_synced ─▶ log ── poll_commit ─▶ replicas
///                      └── restart ─▶ lost, and never acknowledged
/// ```
#[derive(Debug)]
pub(super) struct Writer {
    id: WriterId,
    bug: Option<SeededBug>,
    /// The durable log.
    log: Vec<Commit>,
    forming: VecDeque<Commit>,
    /// By connected replica, how many commits it was sent.
    sent: BTreeMap<usize, usize>,
    /// The stamp before the first commit.
    empty: Vector,
}

impl Writer {
    pub(super) fn new(id: WriterId, writers: usize, bug: Option<SeededBug>) -> Self {
        let empty = Vector::zero(writers);
        Writer { id, bug, log: Vec::new(), forming: VecDeque::new(), sent: BTreeMap::new(), empty }
    }

    pub(super) fn log(&self) -> &[Commit] {
        &self.log
    }

    /// Gives the write its place in the log. It needs no commit of another writer for that, so it never waits
    /// for one. The acknowledgement is for a writer that does not wait for its disk.
    pub(super) fn handle_write(&mut self, write: Write) -> Option<Acknowledgement> {
        let Write { id, objects, after } = write;
        assert!(objects.iter().all(|object| object.owner == self.id), "of another subtree");
        let last = self.forming.back().or(self.log.last()).map_or(&self.empty, |last| &last.stamp);
        let position = last.get(self.id) + 1;
        let mut stamp = after;
        match self.bug {
            Some(SeededBug::StampForgetsLog) => {}
            // A later commit of a log depends on all earlier ones, and so on what they depend on.
            _ => stamp.join(last),
        }
        let is_known = stamp.get(self.id) < position;
        assert!(is_known || self.bug.is_some(), "a token of a commit that this log does not have");
        stamp.set(self.id, position);
        self.forming.push_back(Commit { stamp: stamp.clone(), write: id, objects });
        let is_early = self.bug == Some(SeededBug::AcknowledgesBeforeSync);
        is_early.then_some(Acknowledgement { write: id, stamp })
    }

    /// All that was accepted is durable.
    pub(super) fn handle_synced(&mut self) -> Vec<Acknowledgement> {
        let acknowledged =
            |commit: &Commit| Acknowledgement { write: commit.write, stamp: commit.stamp.clone() };
        let durable = self.forming.iter().map(acknowledged).collect();
        self.log.extend(self.forming.drain(..));
        durable
    }

    /// A replica that has this many commits has connected.
    pub(super) fn handle_hello(&mut self, replica: usize, position: u64) {
        let sent = usize::try_from(position).expect("a log in memory");
        assert!(sent <= self.log.len(), "a replica has commits that are not durable");
        self.sent.insert(replica, sent);
    }

    pub(super) fn handle_disconnected(&mut self, replica: usize) {
        self.sent.remove(&replica);
    }

    /// The position for a heartbeat: all acknowledged commits are at or below it.
    pub(super) fn durable_position(&self) -> u64 {
        self.log.len() as u64
    }

    /// The next commit for a replica.
    pub(super) fn poll_commit(&mut self, replica: usize) -> Option<Commit> {
        let sent = self.sent.get_mut(&replica)?;
        let commit = self.log.get(*sent)?;
        *sent += 1;
        Some(commit.clone())
    }

    /// The process starts again. True if writes were lost.
    pub(super) fn restart(&mut self) -> bool {
        let has_lost = !self.forming.is_empty();
        self.forming.clear();
        self.sent.clear();
        has_lost
    }
}
