//! A state as a tree of names: the present one, or one that was.

use core::ops::Bound;
use std::collections::BTreeMap;

use super::history::{History, value};
use super::{Entry, Object, Outcome};
use crate::path::Path;
use crate::types::{Sequence, Version};

type Objects = BTreeMap<Path, Object>;

/// A state. Of the present one it costs nothing that there are others.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    objects: &'a Objects,
    past: Option<(&'a History, Sequence)>,
}

impl<'a> View<'a> {
    pub(super) fn present(objects: &'a Objects) -> Self {
        View { objects, past: None }
    }

    /// The state that was at `at`, if the present one is made of `objects`.
    pub(super) fn past(objects: &'a Objects, history: &'a History, at: Sequence) -> Self {
        View { objects, past: Some((history, at)) }
    }

    fn get(&self, path: &Path) -> Option<Version> {
        let was = self.past.and_then(|(history, at)| history.get(path, at));
        was.unwrap_or_else(|| self.objects.get(path).map(|object| object.version))
    }

    /// The first object from there.
    fn next(&self, from: Bound<&[u8]>) -> Option<(&'a Path, Version)> {
        let present = self.objects.range::<[u8], _>((from, Bound::Unbounded));
        let mut present = present.map(|(path, object)| (path, object.version)).peekable();
        let Some((history, at)) = self.past else { return present.next() };
        let mut was = history.range(from).peekable();
        loop {
            let path = match (present.peek(), was.peek()) {
                (None, None) => return None,
                (Some((path, _)), None) | (None, Some((path, _))) => *path,
                (Some((one, _)), Some((other, _))) => (*one).min(*other),
            };
            let now = present.next_if(|(one, _)| *one == path).map(|(_, version)| version);
            let then = was.next_if(|(one, _)| *one == path);
            let then = then.and_then(|(_, list)| value(list, at));
            if let Some(version) = then.unwrap_or(now) {
                return Some((path, version));
            }
        }
    }

    /// What is under a name.
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

    /// What is in a folder, without what is in folders of it.
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
                    // All of it lies between `name/` and what follows the slash among the bytes.
                    Bound::Included([&within, name, b"0"].concat())
                }
            };
        }
        // Among paths `a.b` comes before `a/b`, but the name `a` comes before both.
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        // A folder that is an object came before what is below it.
        found.dedup_by(|(later, _), (first, _)| later == first);
        let is_there = |folder: &Path| self.get(folder).is_some_and(|one| one.content.is_folder());
        match folder {
            Some(folder) if found.is_empty() && !is_there(folder) => Outcome::Absent,
            _ => Outcome::Names(found),
        }
    }
}
