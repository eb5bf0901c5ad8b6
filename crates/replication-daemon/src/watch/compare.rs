//! The comparison of the folder with the published tree. It finds changes without events: lost events, writes
//! through a memory mapping or a name outside of the folder, writes by other machines.
//!
//! ```text
//!   walk: the folder against the index, by fingerprints   ─▶  merge: the index against the origin's objects
//! ```
//!
//! It reads no file. Differences are scanned afterwards, all at once, so that both names of a renamed file
//! are in one transaction. It works in short slices, with pauses between them.

use std::collections::BTreeSet;
use std::fs::{self, ReadDir};
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use lull_replication::path::Path;

use super::events::Events;
use super::index::Index;
use super::scan_result::{Depth, Name, Names, bytes_of, name_of};
use crate::daemon::OriginHandle;
use crate::source::Fingerprint;

/// Longest time of a slice, unless one entry of a folder takes longer.
const SLICE: Duration = Duration::from_millis(5);
/// The pause after a slice is this many times as long as the slice: a comparison takes 5 % of one core.
const PAUSES: u32 = 19;
/// Objects compared at a time, under the origin's lock.
const OBJECTS: usize = 500;

/// A comparison under way.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Folders to be walked.
    rest: Vec<Name>,
    /// The current folder.
    open: Option<(Name, ReadDir)>,
    /// The differing names.
    found: Names,
    /// The last compared object.
    merged: Option<Path>,
}

/// The result of a slice.
#[derive(Debug)]
pub(super) enum Slice {
    /// It continues after this pause.
    Pause(Duration),
    /// These names differ.
    Done(Names),
}

impl Comparison {
    pub(super) fn new(index: &mut Index) -> Self {
        index.begin_round();
        Comparison { rest: vec![Name::new()], open: None, found: Names::new(), merged: None }
    }

    pub(super) fn slice(
        &mut self,
        root: &FilePath,
        events: &mut Events,
        index: &mut Index,
        origin: &OriginHandle,
    ) -> Slice {
        let begun = Instant::now();
        loop {
            if !self.walk(root, events, index) && !self.merge(index, origin) {
                return Slice::Done(core::mem::take(&mut self.found));
            }
            let took = begun.elapsed();
            if took >= SLICE {
                return Slice::Pause(took.saturating_mul(PAUSES));
            }
        }
    }

    /// Takes one entry of a folder; false if there is none left.
    fn walk(&mut self, root: &FilePath, events: &mut Events, index: &mut Index) -> bool {
        if let Some((folder, entries)) = &mut self.open {
            match entries.next() {
                Some(Ok(entry)) => {
                    let name = folder.join(entry.file_name());
                    self.entry(root, name, index);
                }
                // An unlistable folder is scanned, which reports it.
                Some(Err(_)) => drop(self.found.insert(folder.clone(), Depth::Whole)),
                None => self.open = None,
            }
            return true;
        }
        let Some(folder) = self.rest.pop() else { return false };
        // The kernel may watch another folder, which had this name before.
        let is_watched = events.watch(&folder) == Ok(true);
        match fs::read_dir(root.join(&folder)) {
            Ok(entries) if is_watched => self.open = Some((folder, entries)),
            _ => drop(self.found.insert(folder, Depth::Whole)),
        }
        true
    }

    fn entry(&mut self, root: &FilePath, name: Name, index: &mut Index) {
        let Ok(metadata) = root.join(&name).symlink_metadata() else {
            self.found.insert(name, Depth::Whole);
            return;
        };
        let kind = metadata.file_type();
        let is_object = kind.is_dir() || kind.is_file() || kind.is_symlink();
        let Ok(path) = Path::from_bytes(bytes_of(&name)) else { return };
        let differs = is_object && !index.compare(&path, &Fingerprint::of(&metadata));
        if kind.is_dir() {
            if differs {
                self.found.entry(name.clone()).or_insert(Depth::Mode);
            }
            self.rest.push(name);
        } else if differs {
            self.found.insert(name, Depth::Whole);
        }
    }

    /// Takes some objects; false if there are none left.
    fn merge(&mut self, index: &Index, origin: &OriginHandle) -> bool {
        let objects = origin.objects_after(self.merged.as_ref(), OBJECTS);
        let last = objects.last_key_value().map(|(path, _)| path.clone());
        let last = last.filter(|_| objects.len() == OBJECTS);
        let mut known = BTreeSet::new();
        for (path, content, was_seen) in index.between(self.merged.as_ref(), last.as_ref()) {
            known.insert(path);
            let published = objects.get(path).map(|version| version.content);
            if !was_seen || published.is_some_and(|old| old.is_folder() != content.is_folder()) {
                self.found.insert(name_of(path), Depth::Whole);
            } else if published != Some(*content) {
                let depth = if content.is_folder() { Depth::Mode } else { Depth::Whole };
                self.found.entry(name_of(path)).or_insert(depth);
            }
        }
        let unknown = objects.keys().filter(|path| !known.contains(path));
        self.found.extend(unknown.map(|path| (name_of(path), Depth::Whole)));
        self.merged = last;
        self.merged.is_some()
    }
}
