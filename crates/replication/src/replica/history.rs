//! Earlier states, for as long as the bodies that they contain are kept.

use core::ops::Bound;
use std::collections::{BTreeMap, VecDeque};

use crate::path::Path;
use crate::time::{LocalTime, WallTime};
use crate::types::{Sequence, Version};

/// The number of remembered changes, or the number of objects if that is larger. So the past takes no more
/// memory than the present.
const CHANGES: usize = 65_536;

/// A past state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Past {
    pub(super) sequence: Sequence,
    pub(super) made: WallTime,
    until: LocalTime,
    /// Paths that the next state has changed.
    changed: Vec<Path>,
}

/// The version of a path up to a state: none if the path did not exist.
type PastVersion = (Sequence, Option<Version>);

/// The past states, from the earliest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct History {
    pub(super) past: VecDeque<Past>,
    /// By path, from the earliest: one entry for each state that changes the path.
    was: BTreeMap<Path, VecDeque<PastVersion>>,
    changes: usize,
    /// When the present state was made.
    pub(super) made: WallTime,
    /// The last one is still being recorded.
    is_open: bool,
    /// Changes after forgotten states, which `was` still contains.
    leaving: VecDeque<Vec<Path>>,
    /// Number of these that are removed per call.
    slice: usize,
}

/// The version in `list` at the state `at`; none if nothing has changed since.
pub(super) fn value(list: &VecDeque<PastVersion>, at: Sequence) -> Option<Option<Version>> {
    list.get(list.partition_point(|(upto, _)| *upto < at)).map(|(_, version)| *version)
}

impl History {
    /// Only a present state, which was found at `made`.
    pub(super) fn new(made: WallTime, slice: usize) -> Self {
        let (past, leaving) = Default::default();
        History { past, was: BTreeMap::new(), changes: 0, made, is_open: false, leaving, slice }
    }

    /// The paths that have changed since some past state, from the first one not before `from`, and their
    /// earlier versions.
    pub(super) fn range<'a>(
        &'a self,
        from: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&'a Path, &'a VecDeque<PastVersion>)> {
        self.was.range::<[u8], _>((from, Bound::Unbounded))
    }

    /// The past version of a path; none if it has not changed since.
    pub(super) fn get(&self, path: &Path, at: Sequence) -> Option<Option<Version>> {
        self.was.get(path).and_then(|list| value(list, at))
    }

    /// The last version of a path before the present one, if that is remembered.
    pub(super) fn last(&self, path: &Path) -> Option<Version> {
        self.was.get(path)?.back()?.1
    }

    /// When a past state was made, if known.
    pub(super) fn made(&self, at: Sequence) -> Option<WallTime> {
        let found = self.past.binary_search_by_key(&at, |past| past.sequence).ok()?;
        self.past.get(found).map(|past| past.made)
    }

    /// The present state is about to change, and these are the previous versions of its changes.
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

    /// The present state is about to be replaced. Its changes are recorded one by one.
    pub(super) fn open_past(&mut self, present: Sequence, until: LocalTime) {
        let past = Past { sequence: present, made: self.made, until, changed: Vec::new() };
        self.past.push_back(past);
        self.is_open = true;
    }

    /// The next state changes a path whose version was this one.
    pub(super) fn add(&mut self, path: &Path, version: Option<Version>) {
        let Some(past) = self.past.back_mut().filter(|_| self.is_open) else { return };
        past.changed.push(path.clone());
        self.was.entry(path.clone()).or_default().push_back((past.sequence, version));
        self.changes += 1;
    }

    /// All changes of the next state are recorded.
    pub(super) fn end_record(&mut self, objects: usize) {
        self.is_open = false;
        self.shrink(objects);
    }

    /// Forgets states that take more than their share.
    pub(super) fn shrink(&mut self, objects: usize) {
        while self.past.len() + self.changes > CHANGES.max(objects) && self.forget_first() {}
    }

    /// Whether there was a state to forget.
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

    /// Forgets some changes after forgotten states.
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

    /// Until when the earliest state is available.
    pub(super) fn until(&self) -> Option<LocalTime> {
        if !self.leaving.is_empty() {
            return Some(LocalTime::from_nanos(i64::MIN));
        }
        self.past.front().filter(|_| !self.is_open || self.past.len() > 1).map(|past| past.until)
    }

    /// Forgets states whose time is over.
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
    fn history_is_bounded() {
        let mut history = History::new(WallTime::default(), 256);
        let path = |number: u64| Path::new(&number.to_string()).expect("a path");
        let until = LocalTime::from_nanos(1);
        for at in 0..20_000 {
            // Nine paths, which return after a while.
            let replaced = (0..9).map(|number| (path((9 * at + number) % 70_000), None));
            history.record(Sequence(at), until, replaced.collect());
            history.shrink(10);
        }
        assert!((CHANGES - 10..=CHANGES).contains(&(history.past.len() + history.changes)));
        assert_eq!(history.was.values().map(VecDeque::len).sum::<usize>(), history.changes);
        history.shrink(0);
        history.expire(until);
        assert_eq!((history.past.len(), history.was.len(), history.changes), (0, 0, 0));
        // A state larger than the limit is not kept.
        let large = (0..70_000).map(|number| (path(number), None));
        history.record(Sequence(20_000), until, large.collect());
        history.shrink(69_999);
        assert_eq!(history.past.len(), 0);
    }
}
