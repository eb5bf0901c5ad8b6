//! States that were, for as long as the bodies are kept that were overwritten in them.

use core::ops::Bound;
use std::collections::{BTreeMap, VecDeque};

use crate::path::Path;
use crate::time::{LocalTime, WallTime};
use crate::types::{Sequence, Version};

/// So many changes are remembered, or as many as there are objects: then what was takes no more
/// memory than what is.
const CHANGES: usize = 65_536;

/// A state that was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Past {
    pub(super) sequence: Sequence,
    pub(super) made: WallTime,
    until: LocalTime,
    /// What the next state has changed.
    changed: Vec<Path>,
}

/// What a path was up to a state: none if it was nothing.
type Was = (Sequence, Option<Version>);

/// The states that were, from the earliest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct History {
    pub(super) past: VecDeque<Past>,
    /// By path, from the earliest: one for each state that has the path among its changes.
    was: BTreeMap<Path, VecDeque<Was>>,
    changes: usize,
    /// When the present state was made.
    pub(super) made: WallTime,
    /// The last one is still being recorded.
    is_open: bool,
    /// What was changed after states that are forgotten: `was` still has that.
    leaving: VecDeque<Vec<Path>>,
    /// So many of these are swept at a time.
    slice: usize,
}

/// What `list` says of the state `at`; none if nothing has changed since.
pub(super) fn value(list: &VecDeque<Was>, at: Sequence) -> Option<Option<Version>> {
    list.get(list.partition_point(|(upto, _)| *upto < at)).map(|(_, version)| *version)
}

impl History {
    /// There is a present state only, which was found at `made`.
    pub(super) fn new(made: WallTime, slice: usize) -> Self {
        let (past, leaving) = Default::default();
        History { past, was: BTreeMap::new(), changes: 0, made, is_open: false, leaving, slice }
    }

    /// The paths that have changed since some state that was, from the first that is not before
    /// `from`, and what each was.
    pub(super) fn range<'a>(
        &'a self,
        from: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&'a Path, &'a VecDeque<Was>)> {
        self.was.range::<[u8], _>((from, Bound::Unbounded))
    }

    /// What a path was; none if it is what it was then.
    pub(super) fn get(&self, path: &Path, at: Sequence) -> Option<Option<Version>> {
        self.was.get(path).and_then(|list| value(list, at))
    }

    /// When a state that was has been made, if it can be told.
    pub(super) fn made(&self, at: Sequence) -> Option<WallTime> {
        let found = self.past.binary_search_by_key(&at, |past| past.sequence).ok()?;
        self.past.get(found).map(|past| past.made)
    }

    /// The present state is about to become another, and this is what its changes were before.
    pub(super) fn record(
        &mut self,
        present: Sequence,
        until: LocalTime,
        replaced: Vec<(Path, Option<Version>)>,
    ) {
        let mut changed = Vec::with_capacity(replaced.len());
        for (path, version) in replaced {
            changed.push(path.clone());
            self.was.entry(path).or_default().push_back((present, version));
        }
        self.changes += changed.len();
        self.past.push_back(Past { sequence: present, made: self.made, until, changed });
    }

    /// The present state is about to become another. What that changes is told one by one.
    pub(super) fn begin(&mut self, present: Sequence, until: LocalTime) {
        let past = Past { sequence: present, made: self.made, until, changed: Vec::new() };
        self.past.push_back(past);
        self.is_open = true;
    }

    /// The next state changes a path, and this is what it was before.
    pub(super) fn add(&mut self, path: &Path, version: Option<Version>) {
        let Some(past) = self.past.back_mut().filter(|_| self.is_open) else { return };
        past.changed.push(path.clone());
        self.was.entry(path.clone()).or_default().push_back((past.sequence, version));
        self.changes += 1;
    }

    /// All that the next state changes was told.
    pub(super) fn end_record(&mut self, objects: usize) {
        self.is_open = false;
        self.shrink(objects);
    }

    /// Forgets what takes more than its share.
    pub(super) fn shrink(&mut self, objects: usize) {
        while self.past.len() + self.changes > CHANGES.max(objects) && self.forget_first() {}
    }

    /// Whether there was one to be forgotten.
    pub(super) fn forget_first(&mut self) -> bool {
        if self.is_open && self.past.len() == 1 {
            return false;
        }
        let Some(past) = self.past.pop_front() else { return false };
        self.changes -= past.changed.len();
        let is_small = past.changed.len() <= self.slice && self.leaving.is_empty();
        self.leaving.push_back(past.changed);
        if is_small {
            self.sweep();
        }
        true
    }

    /// Forgets some of what was changed after states that are forgotten.
    pub(super) fn sweep(&mut self) {
        for _ in 0..self.slice {
            let Some(changed) = self.leaving.front_mut() else { return };
            // From the last one: one state changes a path once.
            if let Some(path) = changed.pop()
                && let Some(list) = self.was.get_mut(&path)
            {
                list.pop_front();
                if list.is_empty() {
                    self.was.remove(&path);
                }
            }
            if changed.is_empty() {
                self.leaving.pop_front();
            }
        }
    }

    /// Until when the earliest can be told.
    pub(super) fn until(&self) -> Option<LocalTime> {
        if !self.leaving.is_empty() {
            return Some(LocalTime::from_nanos(i64::MIN));
        }
        self.past.front().filter(|_| !self.is_open || self.past.len() > 1).map(|past| past.until)
    }

    /// Forgets what was overwritten for too long.
    pub(super) fn expire(&mut self, now: LocalTime) {
        self.sweep();
        let is_over = |past: &Past| past.until <= now;
        while self.past.front().is_some_and(is_over) && self.forget_first() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_takes_no_more_than_its_share() {
        let mut history = History::new(WallTime::default(), 256);
        let path = |number: u64| Path::new(&number.to_string()).expect("a path");
        let until = LocalTime::from_nanos(1);
        for at in 0..20_000 {
            // Nine paths, which come again after a while.
            let replaced = (0..9).map(|number| (path((9 * at + number) % 70_000), None));
            history.record(Sequence(at), until, replaced.collect());
            history.shrink(10);
        }
        assert!((CHANGES - 10..=CHANGES).contains(&(history.past.len() + history.changes)));
        assert_eq!(history.was.values().map(VecDeque::len).sum::<usize>(), history.changes);
        history.shrink(0);
        history.expire(until);
        assert_eq!((history.past.len(), history.was.len(), history.changes), (0, 0, 0));
        // One that is larger than all may be is not kept.
        let large = (0..70_000).map(|number| (path(number), None));
        history.record(Sequence(20_000), until, large.collect());
        history.shrink(69_999);
        assert_eq!(history.past.len(), 0);
    }
}
