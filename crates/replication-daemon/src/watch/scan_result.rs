//! The result of a scan, and the changes that follow from it.

use core::fmt;
use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use lull_replication::origin::CaseClash;
use lull_replication::path::{Path, PathError, prefix_of};
use lull_replication::types::{Content, Digest, MAX_BODY_BYTES, Version};

/// A name below the watched folder, as its file system has it; the folder itself is the empty name. Ordered
/// by its parts, so that a folder's contents follow it.
pub(super) type Name = PathBuf;

/// How much of a name is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depth {
    /// Its file's attributes without its bytes. The bytes may be incomplete: another event reports their
    /// completion. Of a folder, nothing below it.
    Mode,
    /// The entry and everything below it.
    Whole,
}

/// Names to be scanned. None is below one that is scanned wholly.
pub(super) type Names = BTreeMap<Name, Depth>;

/// The new contents of objects; none if they are deleted.
pub(super) type Changes = BTreeMap<Path, Option<Content>>;

/// Why an entry is not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SkippedEntry {
    Kind,
    Name(PathError),
    Large,
    Unreadable(String),
    /// Another name differs only in case, and that is refused.
    Case(Path),
    /// It is published, but late.
    Unwatched,
}

impl fmt::Display for SkippedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SkippedEntry::Kind => {
                f.write_str("it is a socket, a pipe or a device: move it out of the folder")
            }
            SkippedEntry::Name(why) => why.fmt(f),
            SkippedEntry::Large => write!(
                f,
                "it is larger than {MAX_BODY_BYTES}: split it into several \
                                     files"
            ),
            SkippedEntry::Unreadable(why) => write!(
                f,
                "it cannot be read, and the published version \
                                               stays: {why}"
            ),
            SkippedEntry::Case(other) => {
                write!(f, "it differs from `{other}` only in case, and is skipped: rename one")
            }
            SkippedEntry::Unwatched => f.write_str(
                "this folder, and perhaps others, is only compared once a minute: raise \
                 fs.inotify.max_user_watches, and restart the origin",
            ),
        }
    }
}

/// The result of a scan, at and below its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScanResult {
    /// Publishable entries: files, links and folders.
    pub(super) files: BTreeMap<Path, Content>,
    /// Names that were left out, with those that they clash with.
    pub(super) clashes: BTreeMap<Name, BTreeSet<Name>>,
    /// Unpublishable entries: they count as absent.
    pub(super) odd: BTreeMap<Name, SkippedEntry>,
    /// Files with more than one name that were read, with their inodes.
    pub(super) linked: BTreeMap<Name, u64>,
    /// Files that were written during the scan: they keep their committed content for now.
    pub(super) restless: BTreeSet<Name>,
    /// Entries that could not be read keep their committed content, with everything below.
    pub(super) hidden: BTreeSet<Name>,
    /// Folders that give no events.
    pub(super) blind: BTreeSet<Name>,
}

/// A path as a name.
pub(super) fn name_of(path: &Path) -> Name {
    Name::from(OsStr::from_bytes(path.as_bytes()))
}

/// A name as the path of an object, if it is valid.
pub(super) fn bytes_of(name: &Name) -> &[u8] {
    name.as_os_str().as_bytes()
}

/// Whether a scanned name is this name, above it, or below it.
pub(super) fn meets(names: &Names, name: &Name) -> bool {
    let below = names.range::<Name, _>(name..).next();
    is_in(names, name) || below.is_some_and(|(below, _)| below.starts_with(name))
}

/// Whether a name is scanned by itself, or with one above it.
pub(super) fn is_in(names: &Names, name: &Name) -> bool {
    let mut above = name.ancestors().skip(1);
    names.contains_key(name) || above.any(|above| names.get(above) == Some(&Depth::Whole))
}

/// Adds names to others.
pub(super) fn add(names: &mut Names, more: &Names) {
    for (name, depth) in more {
        let known = names.entry(name.clone()).or_insert(*depth);
        *known = (*known).max(*depth);
    }
}

/// Removes those that are scanned with one above them.
pub(super) fn simplify(names: &mut Names) {
    let mut within: Option<Name> = None;
    names.retain(|name, depth| {
        if within.as_ref().is_some_and(|above| name.starts_with(above)) {
            return false;
        }
        if *depth == Depth::Whole {
            within = Some(name.clone());
        }
        true
    });
}

/// Whether a name or one above it is among these.
pub(super) fn covers(names: &BTreeSet<Name>, name: &Name) -> bool {
    name.ancestors().any(|above| names.contains(above))
}

impl ScanResult {
    /// Whether there is no file, and no entry that may be a file.
    pub(super) fn is_empty(&self) -> bool {
        self.files.values().all(Content::is_folder)
            && self.restless.is_empty()
            && self.hidden.is_empty()
    }

    /// Whether a committed object at this name or below it was scanned and will be deleted.
    pub(super) fn lacks(
        &self,
        name: &[u8],
        names: &Names,
        committed: &BTreeMap<Path, Version>,
    ) -> bool {
        let below = prefix_of(name);
        let all = committed.range::<[u8], _>((Bound::Included(&below[..]), Bound::Unbounded));
        let all = all.take_while(|(path, _)| path.as_bytes().starts_with(&below));
        committed.get_key_value(name).into_iter().chain(all).any(|(path, _)| {
            let name = name_of(path);
            is_in(names, &name) && !self.files.contains_key(path) && !self.restless.contains(&name)
        })
    }

    /// Replaces the result for these names with that of a later scan.
    pub(super) fn replace(&mut self, names: &Names, later: ScanResult) {
        let stays = |name: &Name| !is_in(names, name);
        self.files.retain(|path, _| stays(&name_of(path)));
        self.clashes.retain(|name, _| stays(name));
        self.odd.retain(|name, _| stays(name));
        self.linked.retain(|name, _| stays(name));
        for set in [&mut self.restless, &mut self.hidden, &mut self.blind] {
            set.retain(stays);
        }
        self.files.extend(later.files);
        self.clashes.extend(later.clashes);
        self.odd.extend(later.odd);
        self.linked.extend(later.linked);
        self.restless.extend(later.restless);
        self.hidden.extend(later.hidden);
        self.blind.extend(later.blind);
    }

    /// Files of which only the mode and the times should be published, but whose bytes differ from the
    /// committed ones.
    pub(super) fn behind<'a>(
        &'a self,
        names: &'a Names,
        committed: &'a BTreeMap<Path, Version>,
    ) -> impl Iterator<Item = Name> + 'a {
        let partial = names.iter().filter(|(_, depth)| **depth == Depth::Mode);
        partial.map(|(name, _)| name).filter_map(|name| {
            let (path, content) = self.files.get_key_value(bytes_of(name))?;
            let old = committed.get(path).map(|version| version.content.digest);
            (old != Some(content.digest)).then(|| name.clone())
        })
    }

    /// The changes that turn the committed objects at and below these names into the scan result. An
    /// unchanged file keeps its version, unless its body is lost.
    pub(super) fn changes(
        &self,
        names: &Names,
        committed: &BTreeMap<Path, Version>,
        lost: &BTreeSet<Digest>,
    ) -> Changes {
        let mut changes = BTreeMap::new();
        for (path, content) in &self.files {
            let old = committed.get(path).map(|version| version.content);
            let here = !lost.contains(&content.digest);
            let bytes = here && old.is_some_and(|old| old.digest == content.digest);
            let same = bytes && old == Some(*content);
            let partial = names.get(&name_of(path)) == Some(&Depth::Mode);
            if !same && (bytes || !partial) {
                changes.insert(path.clone(), Some(*content));
            }
        }
        for path in committed.keys().filter(|path| !self.files.contains_key(*path)) {
            let name = name_of(path);
            if !self.restless.contains(&name) && !covers(&self.hidden, &name) {
                changes.insert(path.clone(), None);
            }
        }
        changes
    }

    /// Leaves out names that differ from another one only in case. They keep their committed content, and are
    /// scanned again with the other name.
    pub(super) fn leave_out(&mut self, changes: &mut Changes, clashes: Vec<CaseClash>) {
        for clash in clashes {
            let (own, other) = clash.names();
            changes.remove(&clash.path);
            self.odd.insert(name_of(&own), SkippedEntry::Case(other));
            self.clashes.entry(name_of(&clash.path)).or_default().insert(name_of(&clash.other));
        }
    }
}
