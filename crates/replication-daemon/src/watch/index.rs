//! The state of the folder's files when each was read last. So a comparison reads only files whose
//! fingerprint differs, and the other names of a file with hard links are known.
//!
//! About 250 bytes per file.

use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lull_replication::path::{Path, prefix_of};
use lull_replication::time::WallTime;
use lull_replication::types::Content;

use super::scan_result::{Depth, Name, Names, bytes_of, is_in, name_of};
use crate::source::Fingerprint;

/// A file whose last change is older than this when it is read is known by its fingerprint, if it was closed:
/// a later change has a later time. Times of files have the resolution of the kernel's tick, which is 10 ms
/// at most.
const TICK: Duration = Duration::from_millis(20);
/// The same for a file that a program may have mapped into its memory. Writes there change the time only at
/// the first write to a page that is not dirty. The kernel writes dirty pages to the disk after 30 s
/// (`vm.dirty_expire_centisecs`), checking every 5 s.
const MAPPED: Duration = Duration::from_secs(60);

/// The last read of one file.
#[derive(Clone, Copy, Debug)]
struct LastRead {
    fingerprint: Fingerprint,
    content: Content,
    /// It may have changed since, with the same fingerprint.
    is_doubtful: bool,
    /// The last comparison that has seen it.
    round: u32,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    files: BTreeMap<Path, LastRead>,
    /// The names of files that have more than one, by inode.
    linked: BTreeMap<u64, BTreeSet<Name>>,
    /// The inodes among them whose other names were all searched for.
    searched: BTreeSet<u64>,
    /// Files that were closed after the last write.
    closed: BTreeSet<Name>,
    /// Counts comparisons.
    round: u32,
}

impl Index {
    /// A file was closed, or has come: it must be read, with any fingerprint.
    pub(super) fn closed(&mut self, name: &Name) {
        self.require_read(name);
        self.closed.insert(name.clone());
    }

    /// A program is writing this file.
    pub(super) fn written(&mut self, name: &Name) {
        self.require_read(name);
        self.closed.remove(name);
    }

    /// The file at this name must be read, with any fingerprint.
    pub(super) fn require_read(&mut self, name: &Name) {
        let known = self.files.get_mut(bytes_of(name));
        if let Some(known) = known {
            known.is_doubtful = true;
        }
    }

    /// The content of the file with this fingerprint, if it need not be read.
    pub(super) fn content(&mut self, path: &Path, fingerprint: &Fingerprint) -> Option<Content> {
        let known = self.files.get_mut(path)?;
        let is_same = known.fingerprint == *fingerprint && !known.is_doubtful;
        is_same.then(|| {
            known.round = self.round;
            known.content
        })
    }

    /// A folder or a link was scanned. Its fingerprint covers all of it, except the target of a link, which
    /// never changes.
    pub(super) fn know(&mut self, path: &Path, fingerprint: Fingerprint, content: Content) {
        self.forget(path);
        let known = LastRead { fingerprint, content, is_doubtful: false, round: self.round };
        self.files.insert(path.clone(), known);
    }

    /// A file was read, from `begun` on. `names` is the number of its names.
    pub(super) fn read(
        &mut self,
        (name, path): (&Name, &Path),
        fingerprint: Fingerprint,
        content: Content,
        names: u64,
        begun: WallTime,
    ) {
        let is_other = |known: &LastRead| known.fingerprint.inode != fingerprint.inode || names < 2;
        if self.files.get(path).is_some_and(is_other) {
            self.forget(path);
        }
        let margin = if self.closed.remove(name) { TICK } else { MAPPED };
        let is_doubtful = fingerprint.changed.plus(margin) > begun;
        let known = LastRead { fingerprint, content, is_doubtful, round: self.round };
        self.files.insert(path.clone(), known);
        if names > 1 {
            self.linked.entry(fingerprint.inode).or_default().insert(name.clone());
        }
    }

    fn forget(&mut self, path: &Path) {
        let Some(known) = self.files.remove(path) else { return };
        if let Some(names) = self.linked.get_mut(&known.fingerprint.inode) {
            names.remove(&name_of(path));
            if names.is_empty() {
                self.linked.remove(&known.fingerprint.inode);
                self.searched.remove(&known.fingerprint.inode);
            }
        }
    }

    /// A scan of these names has found files at `found` only.
    pub(super) fn retain_found(&mut self, names: &Names, found: &BTreeMap<Path, Content>) {
        self.closed.retain(|name| !is_in(names, name));
        for (name, depth) in names {
            let is_looked = |path: &&Path| *depth == Depth::Whole || name_of(path) == *name;
            let within = self.within(bytes_of(name)).filter(is_looked);
            let gone = within.filter(|path| !found.contains_key(*path));
            for path in gone.cloned().collect::<Vec<_>>() {
                self.forget(&path);
            }
        }
    }

    /// The files at and below a name.
    fn within(&self, name: &[u8]) -> impl Iterator<Item = &Path> {
        let below = prefix_of(name);
        let range = (Bound::Included(&below[..]), Bound::Unbounded);
        let range = self.files.range::<[u8], _>(range).map(|(path, _)| path);
        let range = range.take_while(move |path| path.as_bytes().starts_with(&below));
        self.files.get_key_value(name).map(|(path, _)| path).into_iter().chain(range)
    }

    /// The other names of files with several names, of which `read` were read, outside of the scan: their
    /// content may have changed as well. They are read, with any fingerprint.
    pub(super) fn others(&mut self, read: &BTreeMap<Name, u64>, names: &Names) -> Names {
        self.search(read.values());
        let mut found = BTreeMap::new();
        for (name, inode) in read {
            let others = self.linked.get(inode).into_iter().flatten();
            let depth = names.get(name).copied().unwrap_or(Depth::Whole);
            found.extend(others.map(|other| (other.clone(), depth)));
        }
        found.retain(|name, _| !is_in(names, name));
        for name in found.keys() {
            self.require_read(name);
        }
        found
    }

    /// Searches for other names of these inodes, which were read when they had only one. Once is enough,
    /// because each name that is read later is known.
    fn search<'a>(&mut self, inodes: impl Iterator<Item = &'a u64>) {
        let new: BTreeSet<u64> =
            inodes.copied().filter(|inode| self.searched.insert(*inode)).collect();
        if new.is_empty() {
            return;
        }
        for (path, known) in &self.files {
            let inode = known.fingerprint.inode;
            if new.contains(&inode) {
                self.linked.entry(inode).or_default().insert(name_of(path));
            }
        }
    }

    /// A comparison begins.
    pub(super) fn begin_round(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// The entry at this name now has this fingerprint: returns whether it need not be read.
    pub(super) fn compare(&mut self, path: &Path, fingerprint: &Fingerprint) -> bool {
        self.content(path, fingerprint).is_some()
    }

    /// The files after `after`, up to `last` or to the end, with their last read, and whether this comparison
    /// has seen them.
    pub(super) fn between(
        &self,
        after: Option<&Path>,
        last: Option<&Path>,
    ) -> impl Iterator<Item = (&Path, &Content, bool)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let to = last.map_or(Bound::Unbounded, Bound::Included);
        let range = self.files.range::<Path, _>((from, to));
        range.map(|(path, known)| (path, &known.content, known.round == self.round))
    }
}
