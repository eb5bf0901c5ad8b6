//! Whether the tree of objects stays valid with a transaction.

use core::ops::Bound;
use std::collections::BTreeMap;

use super::case::ByCase;
use super::condition::Condition;
use super::writes::Refused;
use crate::path::Path;
use crate::types::{Change, Content, Version};

/// The changes of one step so far: the content of objects, if they exist.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    objects: BTreeMap<Path, Option<Content>>,
    by_case: ByCase,
}

impl Overlay {
    /// A transaction is part of the step. `cases` says whether paths that differ only in case are refused.
    pub(super) fn extend(&mut self, changes: &[Change], cases: bool) {
        for Change { path, content } in changes {
            self.objects.insert(path.clone(), *content);
            if cases {
                self.by_case.set(path, true);
            }
        }
    }
}

/// The state for a transaction: the objects, below the changes of the same step, below its own, which are in the order
/// of their paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layers<'a> {
    pub(super) objects: &'a BTreeMap<Path, Version>,
    pub(super) overlay: &'a Overlay,
    pub(super) own: &'a [Change],
}

impl<'a> Layers<'a> {
    /// The content of an object before the transaction.
    pub(super) fn before(&self, path: &[u8]) -> Option<Content> {
        let older = || self.objects.get(path).map(|version| version.content);
        self.overlay.objects.get(path).copied().unwrap_or_else(older)
    }

    /// The content of an object after the transaction.
    fn after(&self, path: &[u8]) -> Option<Content> {
        let own = self.own.binary_search_by(|change| change.path.as_bytes().cmp(path));
        own.map_or_else(|_| self.before(path), |at| self.own[at].content)
    }

    /// The paths of the transaction from this one on.
    fn own_from(&self, path: &[u8]) -> impl Iterator<Item = &'a Path> {
        let at = self.own.partition_point(|change| change.path.as_bytes() < path);
        self.own[at..].iter().map(|change| &change.path)
    }

    /// Whether conditions hold before the transaction.
    pub(super) fn check_conditions(&self, all: &[(Path, Condition)]) -> Result<(), Refused> {
        let is_unmet = |(path, condition): &&(Path, Condition)| {
            let before = self.before(path.as_bytes());
            !condition.holds(before.map(|content| content.digest).as_ref())
        };
        all.iter().find(is_unmet).map_or(Ok(()), |(path, _)| Err(Refused::Condition(path.clone())))
    }

    /// Whether the tree stays valid with one of the changes: no file below a file, and no case clash if those are
    /// refused. Then the paths of the objects and of the transaction come without case.
    pub(super) fn check(
        &self,
        change: &Change,
        cases: Option<[&ByCase; 2]>,
    ) -> Result<(), Refused> {
        let Change { path, content: Some(content) } = change else { return Ok(()) };
        let is_leaf = |path: &&[u8]| self.after(path).is_some_and(|content| !content.is_folder());
        if let Some(parent) = path.parents().find(is_leaf) {
            let parent = Path::from_bytes(parent).unwrap_or_else(|_| path.clone());
            return Err(Refused::FileAndFolder(parent));
        }
        if !content.is_folder() && self.has_below(path) {
            return Err(Refused::FileAndFolder(path.clone()));
        }
        let Some([present, own]) = cases else { return Ok(()) };
        let found = |path: &Path| self.after(path.as_bytes()).map(|content| content.is_folder());
        let layers = [present, &self.overlay.by_case, own];
        ByCase::check(&layers, (path, content.is_folder()), found)
    }

    /// Whether there is an object below a path.
    fn has_below(&self, path: &Path) -> bool {
        let below = path.prefix();
        let is_below = |other: &&Path| other.as_bytes().starts_with(&below);
        let is_live = |other: &Path| self.after(other.as_bytes()).is_some();
        let from = (Bound::Included(&below[..]), Bound::Unbounded);
        let newer = self.overlay.objects.range::<[u8], _>(from).map(|(path, _)| path);
        let older = self.objects.range::<[u8], _>(from).map(|(path, _)| path);
        self.own_from(&below).take_while(is_below).any(is_live)
            || newer.take_while(is_below).any(is_live)
            || older.take_while(is_below).any(is_live)
    }
}
