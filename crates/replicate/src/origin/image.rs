//! What an origin keeps on stable storage.

use std::collections::{BTreeMap, VecDeque};

use crate::path::Path;
use crate::time::WallTime;
use crate::types::{Commit, Content, Digest, Incarnation, Payload, Position, Sequence, Version};

/// A commit in the log, with what it overwrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it did.
    pub commit: Commit,
    /// What its objects were before, in the order of its changes.
    pub before: Vec<Option<Version>>,
}

/// The hashes of the log, further back than its entries: so that a replica that was away for long
/// can still be told from one of another log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    first: Sequence,
    digests: VecDeque<Digest>,
}

impl Chain {
    /// The hashes from `first` on; there is one at least.
    #[cfg(feature = "store")]
    pub(crate) fn of(first: Sequence, digests: VecDeque<Digest>) -> Option<Self> {
        (!digests.is_empty()).then_some(Chain { first, digests })
    }

    /// The first position that is remembered.
    pub fn first(&self) -> Sequence {
        self.first
    }

    /// The last position.
    pub fn last(&self) -> Position {
        let digest = *self.digests.back().expect("a chain begins with its beginning");
        Position { sequence: Sequence(self.first.0 + self.digests.len() as u64 - 1), chain: digest }
    }

    /// The hash up to `sequence`, if it is remembered.
    pub fn at(&self, sequence: Sequence) -> Option<Digest> {
        let at = usize::try_from(sequence.0.checked_sub(self.first.0)?).ok()?;
        self.digests.get(at).copied()
    }
}

/// One durable step: all of it or nothing survives a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append<P> {
    /// What is appended to the log, in order.
    pub commits: Vec<Commit>,
    /// Bodies that are stored with the log, because they are small.
    pub inline: Vec<Payload<P>>,
    /// The log begins after this commit from now on.
    pub log_after: Sequence,
    /// The hashes begin with this one from now on.
    pub chain_from: Sequence,
}

/// The state of an origin on stable storage: what a start begins with, and what [`Append`]s change.
/// The reference for stores: theirs must come to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The origin's life. Whoever starts an origin counts it up first.
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
            chain: Chain { first: begin.sequence, digests: VecDeque::from([begin.chain]) },
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

    /// Does a step; gives the entries that left the log.
    pub fn apply<P>(&mut self, append: &Append<P>) -> Vec<Entry> {
        for commit in &append.commits {
            let before = commit.changes.iter().map(|change| self.change(commit.sequence, change));
            let before = before.collect();
            self.stamp = self.stamp.max(commit.stamp);
            self.chain.digests.push_back(self.last().after(commit).chain);
            self.log.push_back(Entry { commit: commit.clone(), before });
        }
        while self.chain.first < append.chain_from && self.chain.digests.len() > 1 {
            self.chain.digests.pop_front();
            self.chain.first = self.chain.first.next();
        }
        let leave = append.log_after.0.saturating_sub(self.log_after().0);
        let leave = usize::try_from(leave).unwrap_or(usize::MAX).min(self.log.len());
        self.log.drain(..leave).collect()
    }

    fn change(&mut self, sequence: Sequence, change: &crate::types::Change) -> Option<Version> {
        match change.content {
            Some(content) => {
                self.objects.insert(change.path.clone(), Version { sequence, content })
            }
            None => self.objects.remove(&change.path),
        }
    }

    /// The contents of all that was changed since `sequence`, as they were then; none if the log
    /// does not reach back.
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
