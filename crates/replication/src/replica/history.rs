//! States that were, for as long as the bodies are kept that were overwritten in them.

use core::ops::Bound;
use std::collections::{BTreeMap, VecDeque};

use super::Replica;
use super::view::View;
use crate::path::Path;
use crate::replica::{Outcome, Step};
use crate::time::{LocalTime, Reading, WallTime};
use crate::types::{Sequence, Version};

/// So many changes are remembered, or as many as there are objects: then what was takes no more
/// memory than what is.
const CHANGES: usize = 65_536;
/// Of a step of several commits with more changes the states between its commits are not remembered.
const BETWEEN: usize = 4_096;

/// What is here of the body of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holding {
    /// All of it.
    Here,
    /// Nothing yet; it is the current version, so that a read fetches it.
    Comes,
    /// Nothing any more. The origin tells of current versions only.
    Gone,
}

/// A state that was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Past {
    sequence: Sequence,
    made: WallTime,
    until: LocalTime,
    /// What the next state has changed.
    changed: Vec<Path>,
}

/// What a path was up to a state: none if it was nothing.
type Was = (Sequence, Option<Version>);

/// The states that were, from the earliest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct History {
    past: VecDeque<Past>,
    /// By path, from the earliest: one for each state that has the path among its changes.
    was: BTreeMap<Path, VecDeque<Was>>,
    changes: usize,
    /// When the present state was made.
    made: WallTime,
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
    fn made(&self, at: Sequence) -> Option<WallTime> {
        let found = self.past.binary_search_by_key(&at, |past| past.sequence).ok()?;
        self.past.get(found).map(|past| past.made)
    }

    /// The present state is about to become another, and this is what its changes were before.
    fn record(
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
    fn begin(&mut self, present: Sequence, until: LocalTime) {
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
    fn shrink(&mut self, objects: usize) {
        while self.past.len() + self.changes > CHANGES.max(objects) && self.forget_first() {}
    }

    /// Whether there was one to be forgotten.
    fn forget_first(&mut self) -> bool {
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
    fn sweep(&mut self) {
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

impl<P: Clone> Replica<P> {
    /// The states that can be told, from the earliest to the present one, and when each was made: at
    /// the origin, or what this replica began with, when that came here. A state that was can be told
    /// for as long as its bodies are kept, [`Config::grace`](super::Config::grace) after it was
    /// replaced, unless very much was written since; a restart begins with the present one.
    ///
    /// They never change, so nobody has to wait for what they say.
    pub fn states(&self) -> impl Iterator<Item = (Sequence, WallTime)> {
        let past = self.history.past.iter().map(|past| (past.sequence, past.made));
        let present = self.image.position.map(|at| (at.sequence, self.history.made));
        past.chain(present)
    }

    /// When a state was made; none if it can't be told.
    pub fn made(&self, at: Sequence) -> Option<WallTime> {
        if self.image.position.is_some_and(|position| position.sequence == at) {
            return Some(self.history.made);
        }
        self.history.made(at)
    }

    /// What was under a name; none if the state can't be told.
    pub fn entry_at(&self, at: Sequence, path: &Path) -> Option<Outcome> {
        self.view(at).map(|view| view.entry(path))
    }

    /// What was in a folder, without what was in folders of it; none if the state can't be told.
    pub fn names_at(&self, at: Sequence, folder: Option<&Path>) -> Option<Outcome> {
        self.view(at).map(|view| view.names(folder))
    }

    fn view(&self, at: Sequence) -> Option<View<'_>> {
        // Of the state before the step that is being taken over the image still has what was not.
        let is_shown = self.apply.fold.before().is_some_and(|before| at > before);
        let fold = is_shown.then_some(&self.apply.fold);
        self.made(at).map(|_| View::past(&self.image.objects, fold, &self.history, at))
    }

    /// The present state.
    pub(super) fn present(&self) -> View<'_> {
        let fold = Some(&self.apply.fold).filter(|fold| fold.is_open());
        View::present(&self.image.objects, fold)
    }

    /// What is here of the body of a version, which one of these states has.
    pub fn holding(&self, path: &Path, version: &Version) -> Holding {
        let current = self.object(path).map(|object| object.version);
        if self.bodies.shelf.is_stored(&version.content.digest) {
            Holding::Here
        } else if current == Some(*version) {
            Holding::Comes
        } else {
            Holding::Gone
        }
    }

    /// A step of one commit is shown: the state before it becomes one that was. Whether what it was is recorded, as
    /// the step is taken over.
    pub(super) fn begin_record(&mut self, now: Reading, before: Sequence, stamp: WallTime) -> bool {
        let kept = !self.config.grace.is_zero();
        if kept {
            self.history.begin(before, now.local.plus(self.config.grace));
        }
        self.history.made = stamp;
        kept
    }

    /// A step is on the disk and about to be shown: the states up to there become ones that were. Whether what
    /// the first of them was is recorded as the step is taken over.
    pub(super) fn remember(&mut self, now: Reading, step: &Step, commits: usize) -> bool {
        let until = now.local.plus(self.config.grace);
        let kept = !self.config.grace.is_zero();
        let objects = &self.image.objects;
        let present = |path: &Path| objects.get(path).map(|object| object.version);
        let Some(before) = self.image.position else {
            self.history.made = now.wall;
            return false;
        };
        if step.changes.len() > BETWEEN {
            let last = self.apply.buffer.iter().take(commits).next_back();
            let made = last.map_or(now.wall, |buffered| buffered.stamp);
            return self.begin_record(now, before.sequence, made);
        }
        if commits == 0 && step.position != Some(before) {
            // What was between is not known.
            if kept {
                let replaced = step.changes.keys().map(|path| (path.clone(), present(path)));
                self.history.record(before.sequence, until, replaced.collect());
            }
            self.history.made = now.wall;
        }
        let mut at = before.sequence;
        let mut newest = BTreeMap::new();
        for buffered in self.apply.buffer.iter().take(commits) {
            let mut replaced = Vec::new();
            for change in buffered.changes.iter().filter(|_| kept) {
                let sequence = buffered.sequence;
                let version = change.content.map(|content| Version { sequence, content });
                let old = newest.insert(&change.path, version);
                replaced.push((change.path.clone(), old.unwrap_or_else(|| present(&change.path))));
            }
            if kept {
                self.history.record(at, until, replaced);
            }
            at = buffered.sequence;
            self.history.made = buffered.stamp;
        }
        self.history.shrink(self.image.objects.len());
        false
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
