//! How far back the log goes: as far as what it takes stays within bounds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lull_cc::Bytes;

use super::image::Entry;
use super::interface::Config;
use crate::types::{Content, Version};

/// What a commit takes for as long as the log tells of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    changes: u64,
    bytes: u64,
}

impl Weight {
    /// That of a commit which makes of the contents `before` those `after`. A body that it gives another
    /// name, or other metadata, is kept by that; one that something else has as well is counted all the
    /// same.
    pub(super) fn of(
        before: impl Iterator<Item = Option<Content>>,
        after: impl Iterator<Item = Option<Content>>,
    ) -> Self {
        let stay: BTreeSet<_> = after.flatten().map(|content| content.digest).collect();
        let (mut changes, mut overwritten) = (0, BTreeMap::new());
        for content in before {
            changes += 1;
            if let Some(content) = content.filter(|content| !stay.contains(&content.digest)) {
                overwritten.insert(content.digest, content.size.0);
            }
        }
        Weight { changes, bytes: overwritten.into_values().sum() }
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

/// What the commits of the log take.
#[derive(Debug, Default)]
pub(super) struct History {
    each: VecDeque<Weight>,
    total: Weight,
}

impl History {
    /// That of a log.
    pub(super) fn of(log: &VecDeque<Entry>) -> Self {
        let mut history = History::default();
        history.change(log.iter().map(Weight::of_entry).collect(), 0);
        history
    }

    /// Bytes of bodies that are kept because the log tells of them.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.total.bytes)
    }

    /// How many of the first commits have to go when these come. They themselves stay however much they
    /// take: else nobody would be told of them.
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

    /// These have come, and so many of the first have gone.
    pub(super) fn change(&mut self, new: Vec<Weight>, gone: usize) {
        for weight in new {
            self.total.add(weight);
            self.each.push_back(weight);
        }
        let gone = gone.min(self.each.len());
        for weight in self.each.drain(..gone) {
            self.total.remove(weight);
        }
    }
}
