//! The length of the log: as far as its costs stay within limits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lull_cc::Bytes;

use super::image::Entry;
use super::interface::Config;
use crate::types::{Content, Digest, Version};

/// The cost of a commit while the log contains it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    changes: u64,
    bytes: u64,
}

/// The cost of a commit while its changes are looked through, first the changes to it and then the earlier ones.
#[derive(Debug, Default)]
pub(super) struct Weighing {
    stay: BTreeSet<Digest>,
    overwritten: BTreeMap<Digest, u64>,
    changes: u64,
}

impl Weighing {
    /// The commit gives an object this content.
    pub(super) fn add_after(&mut self, content: Option<Content>) {
        self.stay.extend(content.map(|content| content.digest));
    }

    /// An object that it changes had this content.
    pub(super) fn add_before(&mut self, content: Option<Content>) {
        self.changes += 1;
        if let Some(content) = content.filter(|content| !self.stay.contains(&content.digest)) {
            self.overwritten.insert(content.digest, content.size.0);
        }
    }

    pub(super) fn weight(&self) -> Weight {
        Weight { changes: self.changes, bytes: self.overwritten.values().sum() }
    }
}

impl Weight {
    /// The cost of a commit that changes the contents `before` to `after`. A body that it gives another name
    /// or other metadata is not overwritten; one that another object has as well is included.
    pub(super) fn of(
        before: impl Iterator<Item = Option<Content>>,
        after: impl Iterator<Item = Option<Content>>,
    ) -> Self {
        let mut weighing = Weighing::default();
        after.for_each(|content| weighing.add_after(content));
        before.for_each(|content| weighing.add_before(content));
        weighing.weight()
    }

    /// The cost of a commit of which no overwritten bodies are kept.
    pub(super) fn of_changes(changes: usize) -> Self {
        Weight { changes: changes as u64, bytes: 0 }
    }

    fn of_entry(entry: &Entry) -> Self {
        let before =
            entry.before.iter().map(|version| version.map(|Version { content, .. }| content));
        Weight::of(before, entry.commit.changes.iter().map(|change| change.content))
    }

    fn add(&mut self, other: Weight) {
        self.changes += other.changes;
        self.bytes += other.bytes;
    }

    fn remove(&mut self, other: Weight) {
        self.changes -= other.changes;
        self.bytes -= other.bytes;
    }
}

/// The costs of the log's commits.
#[derive(Debug, Default)]
pub(super) struct History {
    each: VecDeque<Weight>,
    total: Weight,
}

impl History {
    /// The costs of a log.
    pub(super) fn of(log: &VecDeque<Entry>) -> Self {
        let mut history = History::default();
        log.iter().for_each(|entry| history.push(Weight::of_entry(entry)));
        history
    }

    /// Bytes of bodies that are kept for the log.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.total.bytes)
    }

    /// How many of the first commits must go when these come. The new ones stay at any cost: otherwise no
    /// replica would receive them.
    pub(super) fn excess(&self, new: &[Weight], config: &Config) -> usize {
        let mut left = self.total;
        new.iter().for_each(|weight| left.add(*weight));
        let count = self.each.len() + new.len();
        let too_many = count.saturating_sub(config.log);
        let (changes, bytes) = (config.log_changes as u64, config.log_bytes.0);
        let mut old = self.each.iter();
        let mut excess = 0;
        while excess < too_many || left.changes > changes || left.bytes > bytes {
            let Some(weight) = old.next() else { break };
            left.remove(*weight);
            excess += 1;
        }
        excess.max(too_many)
    }

    /// Adds a commit at the end.
    pub(super) fn push(&mut self, weight: Weight) {
        self.total.add(weight);
        self.each.push_back(weight);
    }

    /// Removes this many from the front.
    pub(super) fn forget(&mut self, gone: usize) {
        let gone = gone.min(self.each.len());
        for weight in self.each.drain(..gone) {
            self.total.remove(weight);
        }
    }
}
