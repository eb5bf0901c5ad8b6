//! A state as a tree of names: the present one, or a past one.

use core::ops::Bound;
use std::collections::BTreeMap;

use super::fold::Fold;
use super::history::{History, value};
use super::{Entry, Object, Outcome};
use crate::path::Path;
use crate::types::{Sequence, Version};

type Objects = BTreeMap<Path, Object>;

/// A state. The present one costs nothing extra because of the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    objects: &'a Objects,
    /// The visible step, which overrides the state.
    fold: Option<&'a Fold>,
    past: Option<(&'a History, Sequence)>,
}

impl<'a> View<'a> {
    pub(super) fn present(objects: &'a Objects, fold: Option<&'a Fold>) -> Self {
        View { objects, fold, past: None }
    }

    /// The state at `at`, if the present one is made of `objects` and `fold`.
    pub(super) fn past(
        objects: &'a Objects,
        fold: Option<&'a Fold>,
        history: &'a History,
        at: Sequence,
    ) -> Self {
        View { objects, fold, past: Some((history, at)) }
    }

    fn get(&self, path: &Path) -> Option<Version> {
        if let Some(was) = self.past.and_then(|(history, at)| history.get(path, at)) {
            return was;
        }
        let shown = self.fold.and_then(|fold| fold.get(path));
        let object = shown.unwrap_or_else(|| self.objects.get(path).copied());
        object.map(|object| object.version)
    }

    /// The first object from this key on.
    pub(super) fn next(&self, from: Bound<&[u8]>) -> Option<(&'a Path, Version)> {
        let version = |object: &Object| object.version;
        let present = self.objects.range::<[u8], _>((from, Bound::Unbounded));
        let mut present = present.map(|(path, object)| (path, version(object))).peekable();
        if self.past.is_none() && self.fold.is_none() {
            return present.next();
        }
        let shown = self.fold.into_iter().flat_map(|fold| fold.range(from));
        let mut shown = shown.peekable();
        let was = self.past.into_iter().flat_map(|(history, at)| {
            history.range(from).map(move |(path, list)| (path, value(list, at)))
        });
        let mut was = was.peekable();
        loop {
            let heads = [
                present.peek().map(|(path, _)| *path),
                shown.peek().map(|(path, _)| *path),
                was.peek().map(|(path, _)| *path),
            ];
            let path = heads.into_iter().flatten().min()?;
            let now = present.next_if(|(one, _)| *one == path).map(|(_, version)| version);
            let now = match shown.next_if(|(one, _)| *one == path) {
                Some((_, object)) => object.as_ref().map(version),
                None => now,
            };
            let then = was.next_if(|(one, _)| *one == path).and_then(|(_, then)| then);
            if let Some(version) = then.unwrap_or(now) {
                return Some((path, version));
            }
        }
    }

    /// The objects in a folder, at any depth.
    pub(super) fn objects(
        self,
        folder: Option<&Path>,
    ) -> impl Iterator<Item = (&'a Path, Version)> {
        let below = folder.map_or_else(Vec::new, Path::prefix);
        let mut last: Option<&Path> = None;
        let next = move || {
            let from =
                last.map_or(Bound::Included(&below[..]), |path| Bound::Excluded(path.as_bytes()));
            let next = self.next(from).filter(|(path, _)| path.as_bytes().starts_with(&below));
            last = next.map(|(path, _)| path);
            next
        };
        core::iter::from_fn(next).fuse()
    }

    /// The entry under a name.
    pub(super) fn entry(&self, path: &Path) -> Outcome {
        if let Some(version) = self.get(path) {
            return Outcome::Entry(Entry::of(version));
        }
        let within = path.prefix();
        match self.next(Bound::Included(&within)) {
            Some((first, _)) if first.as_bytes().starts_with(&within) => {
                Outcome::Entry(Entry::Folder(None))
            }
            _ => Outcome::Absent,
        }
    }

    /// The names in a folder, without those of its subfolders.
    pub(super) fn names(&self, folder: Option<&Path>) -> Outcome {
        let within = folder.map_or_else(Vec::new, Path::prefix);
        let mut found = Vec::new();
        let mut from = Bound::Included(within.clone());
        while let Some((path, version)) = self.next(from.as_ref().map(Vec::as_slice)) {
            let Some(name) = path.as_bytes().strip_prefix(&within[..]) else { break };
            from = match name.iter().position(|byte| *byte == b'/') {
                None => {
                    found.push((name.to_owned(), Entry::of(version)));
                    Bound::Excluded(path.as_bytes().to_owned())
                }
                Some(end) => {
                    let name = &name[..end];
                    found.push((name.to_owned(), Entry::Folder(None)));
                    // All of it is between `name/` and the byte that follows the slash.
                    Bound::Included([&within, name, b"0"].concat())
                }
            };
        }
        // As paths, `a.b` precedes `a/b`, but the name `a` precedes both.
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        // A folder that is an object precedes its contents.
        found.dedup_by(|(later, _), (first, _)| later == first);
        let is_there = |folder: &Path| self.get(folder).is_some_and(|one| one.content.is_folder());
        match folder {
            Some(folder) if found.is_empty() && !is_there(folder) => Outcome::Absent,
            _ => Outcome::Names(found),
        }
    }
}
