//! Paths that differ only in case: which file systems that do not tell cases apart take for one.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use super::transaction::Refused;
use crate::path::Path;

/// Live objects by what their paths have in common with those that differ only in case, so that a write
/// looks at those alone.
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

    /// Whether `path` could exist beside those of `layers` that are live: no other one is, but for case,
    /// the same file, a file where it has a folder, or a folder where it is a file.
    pub(super) fn check(
        layers: &[&ByCase],
        path: &Path,
        is_live: impl Fn(&Path) -> bool,
    ) -> Result<(), Refused> {
        let folded = path.folded();
        let below = format!("{folded}/");
        let whole = path.as_str();
        for ByCase(layer) in layers {
            // From the path itself up to the root, as often as there is a folder above.
            let up = core::iter::successors(Some(folded.as_str()), |inner| {
                inner.rfind('/').map(|at| &inner[..at])
            });
            let above = up.filter_map(|name| layer.get(name)).flatten();
            let from = (Bound::Included(below.as_str()), Bound::Unbounded);
            let within = layer.range::<str, _>(from);
            let within = within.take_while(|(name, _)| name.starts_with(&below));
            let within = within.flat_map(|(_, same)| same);
            let clash = above.chain(within).find(|other| *other != path && is_live(other));
            if let Some(other) = clash {
                // What clashes is as deep as the shorter of both.
                let depth = whole.matches('/').count().min(other.as_str().matches('/').count());
                return Err(Refused::Case(outer(other, depth), outer(path, depth)));
            }
        }
        Ok(())
    }
}

/// The folder of `path` that lies in `depth` others, or the file itself.
fn outer(path: &Path, depth: usize) -> Path {
    let text = path.as_str();
    match text.match_indices('/').nth(depth) {
        Some((end, _)) => Path::new(&text[..end]).expect("a folder of a path is one"),
        None => path.clone(),
    }
}
