//! The contents of an origin's stable storage.

use std::collections::{BTreeMap, VecDeque};

use crate::path::Path;
use crate::time::WallTime;
use crate::types::{
    Change, Commit, Content, Digest, Incarnation, Payload, Position, Sequence, Version,
};

/// A commit in the log, with the versions that it overwrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The commit.
    pub commit: Commit,
    /// The earlier versions of its objects, in the order of its changes.
    pub before: Vec<Option<Version>>,
}

/// The hashes of the log, further back than its entries. So a replica that was away for long can still be
/// distinguished from one of another log.
#[derive(Clone, Debug)]
pub struct Chain {
    first: Sequence,
    last: Position,
    /// In blocks, so that a further hash never moves all existing ones.
    blocks: VecDeque<Vec<Digest>>,
    /// Number of forgotten hashes in the first block.
    forgotten: usize,
}

/// Hashes in a block: 256 KiB.
const BLOCK: usize = 8_192;

impl Chain {
    /// The chain whose first remembered position is this one.
    pub fn new(first: Position) -> Self {
        let blocks = VecDeque::from([vec![first.chain]]);
        Chain { first: first.sequence, last: first, blocks, forgotten: 0 }
    }

    /// The first position that is remembered.
    pub fn first(&self) -> Sequence {
        self.first
    }

    /// The last position.
    pub fn last(&self) -> Position {
        self.last
    }

    /// The hash up to `sequence`, if it is remembered.
    pub fn at(&self, sequence: Sequence) -> Option<Digest> {
        let at = usize::try_from(sequence.0.checked_sub(self.first.0)?).ok()? + self.forgotten;
        self.blocks.get(at / BLOCK)?.get(at % BLOCK).copied()
    }

    /// The hash of the next position.
    pub fn push(&mut self, digest: Digest) {
        match self.blocks.back_mut().filter(|block| block.len() < BLOCK) {
            Some(block) => block.push(digest),
            None => self.blocks.push_back(vec![digest]),
        }
        self.last = Position { sequence: self.last.sequence.next(), chain: digest };
    }

    /// Forgets everything before `first`, except for the last position.
    fn forget(&mut self, first: Sequence) {
        while self.first < first.min(self.last.sequence) {
            self.first = self.first.next();
            self.forgotten += 1;
            if self.forgotten == BLOCK {
                self.blocks.pop_front();
                self.forgotten = 0;
            }
        }
    }

    fn digests(&self) -> impl Iterator<Item = &Digest> {
        self.blocks.iter().flatten().skip(self.forgotten)
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first && self.digests().eq(other.digests())
    }
}

impl Eq for Chain {}

/// One durable step: after a crash all of it is present, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append<P> {
    /// The commits appended to the log, in order.
    pub commits: Vec<Commit>,
    /// Bodies that are stored with the log, because they are small.
    pub inline: Vec<Payload<P>>,
    /// The log begins after this commit from now on.
    pub log_after: Sequence,
    /// The hashes begin with this one from now on.
    pub chain_from: Sequence,
}

/// The state of an origin on stable storage: the initial state at a start, which [`Append`]s change. The
/// reference for stores: theirs must equal it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The origin's life. It is incremented before an origin starts.
    pub incarnation: Incarnation,
    /// All objects.
    pub objects: BTreeMap<Path, Version>,
    /// The newest commits, without a gap.
    pub log: VecDeque<Entry>,
    /// The hashes of the log.
    pub chain: Chain,
    /// The highest time that was given to a commit.
    pub stamp: WallTime,
}

impl Image {
    /// An origin without objects. The log's identity has to be random.
    pub fn empty(identity: [u8; 32]) -> Self {
        let begin = Position::beginning(identity);
        Image {
            incarnation: Incarnation(0),
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            chain: Chain::new(begin),
            stamp: WallTime::default(),
        }
    }

    /// The last commit.
    pub fn last(&self) -> Position {
        self.chain.last()
    }

    /// The log begins after this commit.
    pub fn log_after(&self) -> Sequence {
        Sequence(self.last().sequence.0 - self.log.len() as u64)
    }

    /// The commit at `sequence`, if the log reaches back to it.
    pub fn entry(&self, sequence: Sequence) -> Option<&Entry> {
        let at = sequence.0.checked_sub(self.log_after().0 + 1)?;
        self.log.get(usize::try_from(at).ok()?)
    }

    /// The objects that were written since `sequence`, some of which may be gone. Where the log does not
    /// reach back so far, their versions decide.
    pub(super) fn newer_than(&self, sequence: Sequence) -> Vec<&Path> {
        if sequence < self.log_after() {
            let newer = self.objects.iter().filter(|(_, version)| version.sequence > sequence);
            return newer.map(|(path, _)| path).collect();
        }
        let newer = self.log.iter().rev().take_while(|entry| entry.commit.sequence > sequence);
        let changes = newer.flat_map(|entry| entry.commit.changes.iter());
        changes.map(|change| &change.path).collect()
    }

    /// The version that the first commit after `sequence` has overwritten that changed an object, if there is one.
    pub(super) fn overwritten_after(
        &self,
        path: &Path,
        sequence: Sequence,
    ) -> Option<Option<Version>> {
        let passed = sequence.0.saturating_sub(self.log_after().0);
        let mut later = self.log.iter().skip(usize::try_from(passed).unwrap_or(usize::MAX));
        later.find_map(|entry| entry.before.get(entry.commit.position(path)?).copied())
    }

    /// Applies a step; returns the entries that left the log.
    pub fn apply<P>(&mut self, append: &Append<P>) -> Vec<Entry> {
        for commit in &append.commits {
            let before = commit.changes.iter().map(|change| self.change(commit.sequence, change));
            let before = before.collect();
            let position = self.last().after(commit);
            self.push(Entry { commit: commit.clone(), before }, position);
        }
        self.trim(append.log_after, append.chain_from)
    }

    /// A commit is complete, whose changes are in the objects.
    pub(super) fn push(&mut self, entry: Entry, position: Position) {
        self.stamp = self.stamp.max(entry.commit.stamp);
        self.chain.push(position.chain);
        self.log.push_back(entry);
    }

    /// From now on the log begins after `log_after`, and the hashes with `chain_from`. Returns the entries that left
    /// the log.
    pub(super) fn trim(&mut self, log_after: Sequence, chain_from: Sequence) -> Vec<Entry> {
        self.chain.forget(chain_from);
        let leave = log_after.0.saturating_sub(self.log_after().0);
        let leave = usize::try_from(leave).unwrap_or(usize::MAX).min(self.log.len());
        self.log.drain(..leave).collect()
    }

    /// Changes an object; returns its earlier version.
    pub(super) fn change(&mut self, sequence: Sequence, change: &Change) -> Option<Version> {
        match change.content {
            Some(content) => {
                self.objects.insert(change.path.clone(), Version { sequence, content })
            }
            None => self.objects.remove(&change.path),
        }
    }

    /// The contents at `sequence` of all objects that changed since; none if the log does not reach back.
    pub fn changed_since(&self, sequence: Sequence) -> Option<BTreeMap<Path, Option<Content>>> {
        if sequence < self.log_after() || sequence > self.last().sequence {
            return None;
        }
        let newer = self.log.iter().rev().take_while(|entry| entry.commit.sequence > sequence);
        let mut then = BTreeMap::new();
        for entry in newer {
            for (change, before) in entry.commit.changes.iter().zip(&entry.before) {
                then.insert(change.path.clone(), before.map(|version| version.content));
            }
        }
        Some(then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_keeps_only_requested_hashes() {
        let digest = |at: u64| Digest::of(&at.to_le_bytes());
        let mut chain = Chain::new(Position { sequence: Sequence(5), chain: digest(5) });
        let kept = 3 * BLOCK as u64;
        for at in 6..100_000 {
            chain.push(digest(at));
            chain.forget(Sequence(at.saturating_sub(kept)));
            assert!(chain.blocks.len() <= 5 && chain.blocks.iter().all(|one| one.len() <= BLOCK));
        }
        let first = 99_999 - kept;
        assert_eq!((chain.first(), chain.last().sequence), (Sequence(first), Sequence(99_999)));
        for at in [first, first + 1, first + 9_999, 99_999] {
            assert_eq!(chain.at(Sequence(at)), Some(digest(at)), "{at}");
        }
        assert_eq!(chain.at(Sequence(first - 1)), None);
        assert_eq!(chain.at(Sequence(100_000)), None);
        // With other block boundaries it is the same.
        let mut other = Chain::new(Position { sequence: Sequence(first), chain: digest(first) });
        (first + 1..100_000).for_each(|at| other.push(digest(at)));
        assert_eq!(chain, other);
        other.forget(Sequence(first + 1));
        assert_ne!(chain, other);
        other.forget(Sequence(u64::MAX));
        assert_eq!((other.first(), other.last()), (Sequence(99_999), chain.last()));
    }
}
