//! Scans the folder, and starts to watch it before that: so changes during the scan are reported.

use std::fs;
use std::io;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, Ordering};

use blake3::Hasher;
use lull_cc::Bytes;
use lull_replication::path::{Path, PathError};
use lull_replication::types::{Content, Digest, MAX_BODY_BYTES};
use nix::errno::Errno;

use super::events::Events;
use super::index::Index;
use super::scan_result::{Depth, Name, Names, ScanResult, SkippedEntry, bytes_of};
use crate::daemon::{Clock, MachineClock};
use crate::source::{self, Fingerprint, Snapshot};

/// The kernel's queue is emptied after this many bytes of a file.
const EVENTS: u64 = 1 << 20;

/// The scan was interrupted because the watcher ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanStopped;

pub(super) struct Scan<'a> {
    pub(super) root: &'a FilePath,
    pub(super) events: &'a mut Events,
    pub(super) index: &'a mut Index,
    pub(super) stop: &'a AtomicBool,
}

impl Scan<'_> {
    /// Scans these names and everything below. Files with a known fingerprint are not read.
    pub(super) fn run(mut self, names: &Names) -> Result<ScanResult, ScanStopped> {
        let mut seen = ScanResult::default();
        for (name, depth) in names {
            let mut rest = vec![name.clone()];
            while let Some(name) = rest.pop() {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(ScanStopped);
                }
                self.one(name, *depth, &mut rest, &mut seen)?;
            }
        }
        self.index.retain_found(names, &seen.files);
        Ok(seen)
    }

    fn one(
        &mut self,
        name: Name,
        depth: Depth,
        rest: &mut Vec<Name>,
        seen: &mut ScanResult,
    ) -> Result<(), ScanStopped> {
        let metadata = match self.root.join(&name).symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if is_absent(&error) => {
                self.events.forget(&name);
                return Ok(());
            }
            Err(error) => {
                unreadable(name, &error, seen);
                return Ok(());
            }
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            if self.is_folder(&name, &metadata, seen) && depth == Depth::Whole {
                self.below(name, rest, seen);
            }
            return Ok(());
        }
        self.events.forget(&name);
        let path = match Path::from_bytes(bytes_of(&name)) {
            Ok(path) => path,
            Err(why) => {
                seen.odd.insert(name, SkippedEntry::Name(why));
                return Ok(());
            }
        };
        if kind.is_file() {
            self.file(name, path, seen)?;
        } else if kind.is_symlink() {
            self.link(name, path, &metadata, seen);
        } else {
            seen.odd.insert(name, SkippedEntry::Kind);
        }
        Ok(())
    }

    /// A folder is an object, if its name is valid. The root has none.
    fn is_folder(&mut self, name: &Name, metadata: &fs::Metadata, seen: &mut ScanResult) -> bool {
        match Path::from_bytes(bytes_of(name)) {
            Ok(path) => {
                let content = source::folder(metadata);
                self.index.know(&path, Fingerprint::of(metadata), content);
                seen.files.insert(path, content);
                true
            }
            Err(PathError::Empty) => true,
            Err(why) => {
                seen.odd.insert(name.clone(), SkippedEntry::Name(why));
                false
            }
        }
    }

    /// Lists the entries of a folder.
    fn below(&mut self, name: Name, rest: &mut Vec<Name>, seen: &mut ScanResult) {
        match self.folder(&name) {
            Ok(names) => rest.extend(names),
            Err(error) if is_absent(&error) => self.events.forget(&name),
            // The kernel watches no more of them, but their contents can be scanned.
            Err(error) if error.raw_os_error() == Some(Errno::ENOSPC as i32) => {
                seen.odd.insert(name.clone(), SkippedEntry::Unwatched);
                seen.blind.insert(name.clone());
                match self.names(&name) {
                    Ok(names) => rest.extend(names),
                    Err(error) => unreadable(name, &error, seen),
                }
            }
            Err(error) => unreadable(name, &error, seen),
        }
    }

    /// A link is an object, with any target.
    fn link(&mut self, name: Name, path: Path, metadata: &fs::Metadata, seen: &mut ScanResult) {
        match source::link(&self.root.join(&name)) {
            Ok(Some((_, content))) => {
                self.index.know(&path, Fingerprint::of(metadata), content);
                seen.files.insert(path, content);
            }
            Ok(None) => drop(seen.restless.insert(name)),
            // Deleted meanwhile, which is another event.
            Err(error) if is_absent(&error) => {}
            Err(error) => unreadable(name, &error, seen),
        }
    }

    fn folder(&mut self, name: &Name) -> io::Result<Vec<Name>> {
        // In this order: an entry that comes in between is both reported and found, not neither.
        self.events.watch(name)?;
        #[cfg(test)]
        if let Some(act) = self.events.between {
            act(&self.root.join(name));
        }
        let names = self.names(name)?;
        self.events.retain_children(name, &names);
        Ok(names)
    }

    fn names(&self, name: &Name) -> io::Result<Vec<Name>> {
        fs::read_dir(self.root.join(name))?.map(|entry| Ok(name.join(entry?.file_name()))).collect()
    }

    fn file(&mut self, name: Name, path: Path, seen: &mut ScanResult) -> Result<(), ScanStopped> {
        let opened = source::open(self.root, &self.root.join(&name));
        let metadata = opened.as_ref().ok().and_then(|file| file.metadata().ok());
        let fingerprint = metadata.map(|metadata| Fingerprint::of(&metadata));
        if let Some(content) = fingerprint.and_then(|one| self.index.content(&path, &one)) {
            seen.files.insert(path, content);
            return Ok(());
        }
        let begun = MachineClock.read().wall;
        let mut hasher = Hasher::new();
        let mut unheard = 0;
        let take = |bytes: &[u8]| {
            hasher.update(bytes);
            unheard += bytes.len() as u64;
            if unheard >= EVENTS {
                unheard = 0;
                self.events.take()?;
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(())
        };
        match opened.and_then(|file| source::read(file, take)) {
            Ok(Some(Snapshot { size, .. })) if size > MAX_BODY_BYTES.0 => {
                seen.odd.insert(name, SkippedEntry::Large);
            }
            Ok(Some(Snapshot { size, metadata, fingerprint, names })) => {
                let digest = Digest(*hasher.finalize().as_bytes());
                let content = Content { digest, size: Bytes(size), metadata };
                self.index.read((&name, &path), fingerprint, content, names, begun);
                if names > 1 {
                    seen.linked.insert(name, fingerprint.inode);
                }
                seen.files.insert(path, content);
            }
            Ok(None) => {
                seen.restless.insert(name);
            }
            Err(_) if self.stop.load(Ordering::Relaxed) => return Err(ScanStopped),
            // Deleted meanwhile, which is another event.
            Err(error) if is_absent(&error) => {}
            Err(error) => unreadable(name, &error, seen),
        }
        Ok(())
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// An unreadable entry keeps its committed content.
fn unreadable(name: Name, error: &io::Error, seen: &mut ScanResult) {
    seen.odd.insert(name.clone(), SkippedEntry::Unreadable(error.to_string()));
    seen.hidden.insert(name);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::watch::plan::FileEvent;

    /// The files of a full scan, and those that events report.
    fn all(root: &FilePath, events: &mut Events) -> BTreeSet<String> {
        let stop = AtomicBool::new(false);
        let names = [(Name::new(), Depth::Whole)].into();
        let index = &mut Index::default();
        let seen = Scan { root, events, index, stop: &stop }.run(&names).unwrap();
        let mut found: BTreeSet<_> = seen.files.keys().map(Path::to_string).collect();
        for happened in events.read().unwrap().unwrap() {
            if let FileEvent::Changed(name) = happened {
                found.insert(name.display().to_string());
            }
        }
        found
    }

    #[test]
    fn entries_created_while_a_folder_is_added_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("d/e")).unwrap();
        let mut events = Events::new(folder.path().to_owned()).unwrap();
        // A file, and a folder with one: as a concurrent writer would make them.
        events.between = Some(|folder| {
            fs::write(folder.join("file"), "1").unwrap();
            if !folder.ends_with("new") {
                fs::create_dir(folder.join("new")).unwrap();
                fs::write(folder.join("new/within"), "1").unwrap();
            }
        });
        let found = all(folder.path(), &mut events);
        for place in ["", "d/", "d/e/"] {
            for name in ["file", "new/within", "new/file"] {
                assert!(found.contains(&format!("{place}{name}")), "{place}{name}: {found:?}");
            }
        }
    }
}
