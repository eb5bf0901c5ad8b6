//! Reads of earlier states.

use super::Replica;
use std::collections::BTreeMap;

use super::image::Step;
use super::reads::Outcome;
use super::view::View;
use crate::path::Path;
use crate::time::{Reading, WallTime};
use crate::types::{Sequence, Version};

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
