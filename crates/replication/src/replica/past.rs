//! Reads of earlier states.

use super::Replica;
use std::collections::BTreeMap;

use super::image::Step;
use super::reads::Outcome;
use super::view::View;
use crate::path::Path;
use crate::time::{Reading, WallTime};
use crate::types::{Sequence, Version};

/// For larger steps of several commits, the states between its commits are not remembered.
const BETWEEN: usize = 4_096;

/// Where the body of a version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holding {
    /// All of it.
    Here,
    /// Not here so far; it is the current version, so a read fetches it.
    Comes,
    /// No longer available. The origin sends current versions only.
    Gone,
}

impl<P: Clone> Replica<P> {
    /// The available states, from the earliest to the present one, and when each was made: at the origin or,
    /// for the first state of this replica, when it arrived here. A past state is available while its bodies
    /// are kept, [`Config::grace`](super::Config::grace) after it was replaced, unless very much was written
    /// since. A restart begins with the present state.
    ///
    /// They never change, so reading them never waits.
    pub fn states(&self) -> impl Iterator<Item = (Sequence, WallTime)> {
        let past = self.history.past.iter().map(|past| (past.sequence, past.made));
        let present = self.image.position.map(|at| (at.sequence, self.history.made));
        past.chain(present)
    }

    /// When a state was made; none if it is not available.
    pub fn made(&self, at: Sequence) -> Option<WallTime> {
        if self.image.position.is_some_and(|position| position.sequence == at) {
            return Some(self.history.made);
        }
        self.history.made(at)
    }

    /// The entry under a name; none if the state is not available.
    pub fn entry_at(&self, at: Sequence, path: &Path) -> Option<Outcome> {
        self.view(at).map(|view| view.entry(path))
    }

    /// The names in a folder, without those of its subfolders; none if the state is not available.
    pub fn names_at(&self, at: Sequence, folder: Option<&Path>) -> Option<Outcome> {
        self.view(at).map(|view| view.names(folder))
    }

    fn view(&self, at: Sequence) -> Option<View<'_>> {
        // For the state before the current step, the image still has the versions that were not recorded.
        let is_shown = self.apply.fold.before().is_some_and(|before| at > before);
        let fold = is_shown.then_some(&self.apply.fold);
        self.made(at).map(|_| View::past(&self.image.objects, fold, &self.history, at))
    }

    /// The present state.
    pub(super) fn present(&self) -> View<'_> {
        let fold = Some(&self.apply.fold).filter(|fold| fold.is_open());
        View::present(&self.image.objects, fold)
    }

    /// Where the body of a version of one of these states is.
    pub fn holding(&self, path: &Path, version: &Version) -> Holding {
        let current = self.object(path).map(|object| object.version);
        if self.bodies.references.is_stored(&version.content.digest) {
            Holding::Here
        } else if current == Some(*version) {
            Holding::Comes
        } else {
            Holding::Gone
        }
    }

    /// A step of one commit becomes visible: the state before it becomes a past one. Its versions are
    /// recorded while the step is applied.
    pub(super) fn begin_record(&mut self, now: Reading, before: Sequence, stamp: WallTime) -> bool {
        let kept = !self.config.grace.is_zero();
        if kept {
            self.history.open_past(before, now.local.plus(self.config.grace));
        }
        self.history.made = stamp;
        kept
    }

    /// A step is on the disk and about to become visible: the states up to it become past ones. The versions
    /// of the first of them are recorded while the step is applied.
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
            // The states between are unknown.
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
