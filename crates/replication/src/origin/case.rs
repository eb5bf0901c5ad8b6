//! Paths that differ only in case: case-insensitive file systems treat them as equal.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use super::writes::Refused;
use crate::path::Path;
use crate::types::Content;

/// A path that is refused because it would differ from another one only in case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseClash {
    /// The refused path.
    pub path: Path,
    /// The existing path.
    pub other: Path,
}

impl CaseClash {
    /// The files or folders that differ only in case: first that of [`path`](CaseClash::path), then the other
    /// one.
    pub fn names(&self) -> (Path, Path) {
        let depth = common_depth(&self.path, &self.other);
        (outer(&self.path, depth), outer(&self.other, depth))
    }
}

/// Live objects by their path in folded case, so that a write compares only objects with the same.
#[derive(Clone, Debug, Default)]
pub(super) struct ByCase(BTreeMap<String, BTreeSet<Path>>);

impl<'a> FromIterator<&'a Path> for ByCase {
    fn from_iter<I: IntoIterator<Item = &'a Path>>(paths: I) -> Self {
        let mut made = ByCase::default();
        for path in paths {
            made.set(path, true);
        }
        made
    }
}

impl ByCase {
    /// The object exists from now on, or does not.
    pub(super) fn set(&mut self, path: &Path, exists: bool) {
        let folded = path.folded();
        if exists {
            self.0.entry(folded).or_default().insert(path.clone());
        } else if let Some(same) = self.0.get_mut(&folded) {
            same.remove(path);
            if same.is_empty() {
                self.0.remove(&folded);
            }
        }
    }

    /// Whether `path`, a folder or not, could exist beside those of `layers`, see [`clash`](ByCase::clash).
    pub(super) fn check(
        layers: &[&ByCase],
        (path, is_folder): (&Path, bool),
        found: impl Fn(&Path) -> Option<bool>,
    ) -> Result<(), Refused> {
        let clash = ByCase::clash(layers, (path, is_folder), found);
        let Some(other) = clash else { return Ok(()) };
        let depth = common_depth(path, other);
        Err(Refused::Case(outer(other, depth), outer(path, depth)))
    }

    /// The existing path of `layers` that excludes `path`. It is, except for case, the same file, a file
    /// where `path` has a folder, or a folder where `path` is a file. Two folders do not exclude each other.
    /// `found` says whether an object is a folder, if it exists.
    fn clash<'a>(
        layers: &[&'a ByCase],
        (path, is_folder): (&Path, bool),
        found: impl Fn(&Path) -> Option<bool>,
    ) -> Option<&'a Path> {
        let folded = path.folded();
        let below = format!("{folded}/");
        let is_file = |other: &Path| found(other) == Some(false);
        layers.iter().find_map(|ByCase(layer)| {
            let of = |name: &str| layer.get(name).into_iter().flatten();
            let mut same = of(&folded).filter(|other| *other != path);
            let same = same.find(|other| found(other).is_some_and(|other| !(other && is_folder)));
            // From the folder in which it is up to the root, as often as there is a folder above.
            let up = core::iter::successors(Some(&*folded), |inner| {
                inner.rfind('/').map(|at| &inner[..at])
            });
            let mut above = up.skip(1).flat_map(of);
            let from = (Bound::Included(below.as_str()), Bound::Unbounded);
            let within = layer.range::<str, _>(from);
            let within = within.take_while(|(name, _)| !is_folder && name.starts_with(&below));
            let mut within = within.flat_map(|(_, same)| same);
            same.or_else(|| above.find(|other| is_file(other)))
                .or_else(|| within.find(|other| found(other).is_some()))
        })
    }

    /// The paths of `changes` that would be refused beside the existing objects; `found` says whether these
    /// are folders. Of two that clash with each other the first one is accepted.
    pub(super) fn clashes(
        &self,
        changes: &BTreeMap<Path, Option<Content>>,
        found: impl Fn(&Path) -> Option<bool>,
    ) -> Vec<CaseClash> {
        let mut put = ByCase::default();
        let mut clashes = Vec::new();
        let stays = |other: &Path| match changes.get(other) {
            Some(content) => content.map(|content| content.is_folder()),
            None => found(other),
        };
        for (path, content) in changes {
            let Some(content) = content else { continue };
            match ByCase::clash(&[self, &put], (path, content.is_folder()), stays) {
                Some(other) => {
                    clashes.push(CaseClash { path: path.clone(), other: other.clone() });
                }
                None => put.set(path, true),
            }
        }
        clashes
    }
}

/// Number of folders above the first difference of two paths, at most: the depth of the shorter one.
fn common_depth(one: &Path, other: &Path) -> usize {
    one.depth().min(other.depth())
}

/// The folder of `path` at `depth`, or the file itself.
fn outer(path: &Path, depth: usize) -> Path {
    let folder = path.parents().nth(path.depth().saturating_sub(depth + 1));
    let folder = folder.filter(|_| depth < path.depth());
    folder.map_or_else(
        || path.clone(),
        |one| Path::from_bytes(one).expect("a folder of a path is one"),
    )
}
