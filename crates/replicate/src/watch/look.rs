//! Looks at what is in the folder, and asks for events of it before that: so what happens while it is
//! looked at is told of.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use blake3::Hasher;
use lull_cc::Bytes;
use nix::errno::Errno;

use super::events::Events;
use super::index::Index;
use super::seen::{Name, Names, Odd, Seen, bytes_of};
use crate::daemon::{Clock, MachineClock};
use crate::path::Path;
use crate::source::{self, Fingerprint, Snapshot};
use crate::types::{Content, Digest, LARGEST_BODY};

/// After so many bytes of a file the kernel's queue is emptied.
const EVENTS: u64 = 1 << 20;

/// It was to end while it looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

pub(super) struct Look<'a> {
    pub(super) root: &'a FilePath,
    pub(super) events: &'a mut Events,
    pub(super) index: &'a mut Index,
    pub(super) stop: &'a AtomicBool,
}

impl Look<'_> {
    /// What is at these names, and below. Files that are known by their fingerprint are not read.
    pub(super) fn at(mut self, names: &Names) -> Result<Seen, Stopped> {
        let mut seen = Seen::default();
        for name in names.keys() {
            let mut rest = vec![name.clone()];
            while let Some(name) = rest.pop() {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Stopped);
                }
                self.one(name, &mut rest, &mut seen)?;
            }
        }
        self.index.keep(names, &seen.files);
        Ok(seen)
    }

    fn one(&mut self, name: Name, rest: &mut Vec<Name>, seen: &mut Seen) -> Result<(), Stopped> {
        let kind = match self.root.join(&name).symlink_metadata() {
            Ok(metadata) => metadata.file_type(),
            Err(error) if is_absent(&error) => {
                self.events.forget(&name);
                return Ok(());
            }
            Err(error) => {
                unreadable(name, &error, seen);
                return Ok(());
            }
        };
        if kind.is_dir() {
            match self.folder(&name) {
                Ok(names) => rest.extend(names),
                Err(error) if is_absent(&error) => self.events.forget(&name),
                // The kernel watches no more of them: what is there can be looked at all the same.
                Err(error) if error.raw_os_error() == Some(Errno::ENOSPC as i32) => {
                    seen.odd.insert(name.clone(), Odd::Unwatched);
                    seen.blind.insert(name.clone());
                    match self.names(&name) {
                        Ok(names) => rest.extend(names),
                        Err(error) => unreadable(name, &error, seen),
                    }
                }
                Err(error) => unreadable(name, &error, seen),
            }
            return Ok(());
        }
        self.events.forget(&name);
        let path = match Path::from_bytes(bytes_of(&name)) {
            Ok(path) => path,
            Err(why) => {
                seen.odd.insert(name, Odd::Name(why));
                return Ok(());
            }
        };
        let mut file = self.root.join(&name);
        if kind.is_symlink() {
            match self.target(&name) {
                Ok((target, by)) => {
                    file = target;
                    seen.links.insert(name.clone(), by);
                }
                Err(by) => {
                    // It may lead somewhere yet.
                    seen.links.insert(name.clone(), by);
                    seen.odd.insert(name, Odd::Link);
                    return Ok(());
                }
            }
        } else if !kind.is_file() {
            seen.odd.insert(name, Odd::Kind);
            return Ok(());
        }
        self.file(name, path, &file, seen)
    }

    fn folder(&mut self, name: &Name) -> io::Result<Vec<Name>> {
        // In this order: what comes in between is both told of and found, not neither.
        self.events.watch(name)?;
        #[cfg(test)]
        if let Some(act) = self.events.between {
            act(&self.root.join(name));
        }
        let names = self.names(name)?;
        self.events.keep(name, &names);
        Ok(names)
    }

    fn names(&self, name: &Name) -> io::Result<Vec<Name>> {
        fs::read_dir(self.root.join(name))?.map(|entry| Ok(name.join(entry?.file_name()))).collect()
    }

    /// The file that a link leads to, if it is one of the folder, and the names that it goes by: those
    /// of its end and of its first step.
    fn target(&self, name: &Name) -> Result<(PathBuf, BTreeSet<Name>), BTreeSet<Name>> {
        let whole = self.root.join(name);
        let mut by = BTreeSet::new();
        let step = fs::read_link(&whole).ok();
        let folder = name.parent().unwrap_or(FilePath::new(""));
        let step = step.and_then(|step| within(self.root, folder, &step));
        by.extend(step);
        let end = whole.canonicalize().ok().filter(|end| end.is_file());
        match end.as_ref().and_then(|end| Some((end, end.strip_prefix(self.root).ok()?))) {
            Some((end, name)) => {
                by.insert(name.to_owned());
                Ok((end.clone(), by))
            }
            None => Err(by),
        }
    }

    fn file(
        &mut self,
        name: Name,
        path: Path,
        file: &FilePath,
        seen: &mut Seen,
    ) -> Result<(), Stopped> {
        let opened = source::open(self.root, file);
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
            Ok(Some(Snapshot { size, .. })) if size > LARGEST_BODY.0 => {
                seen.odd.insert(name, Odd::Large);
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
            Err(_) if self.stop.load(Ordering::Relaxed) => return Err(Stopped),
            // Deleted meanwhile, which is told of.
            Err(error) if is_absent(&error) => {}
            Err(error) => unreadable(name, &error, seen),
        }
        Ok(())
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// What can't be looked at stays what it was.
fn unreadable(name: Name, error: &io::Error, seen: &mut Seen) {
    seen.odd.insert(name.clone(), Odd::Unreadable(error.to_string()));
    seen.hidden.insert(name);
}

/// Where a link in a folder leads by its first step, if that is below the root.
fn within(root: &FilePath, folder: &FilePath, step: &FilePath) -> Option<Name> {
    let (mut at, step) = match step.strip_prefix(root) {
        Ok(step) => (Name::new(), step),
        Err(_) => (folder.to_owned(), step),
    };
    for part in step.components() {
        match part {
            Component::Normal(name) => at.push(name),
            Component::CurDir => {}
            Component::ParentDir if at.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::plan::Happened;
    use crate::watch::seen::Depth;

    /// The files that a look at everything finds, and those that events tell of.
    fn all(root: &FilePath, events: &mut Events) -> BTreeSet<String> {
        let stop = AtomicBool::new(false);
        let names = [(Name::new(), Depth::Whole)].into();
        let index = &mut Index::default();
        let seen = Look { root, events, index, stop: &stop }.at(&names).unwrap();
        let mut found: BTreeSet<_> = seen.files.keys().map(Path::to_string).collect();
        for happened in events.read().unwrap().unwrap() {
            if let Happened::Changed(name) = happened {
                found.insert(name.display().to_string());
            }
        }
        found
    }

    #[test]
    fn what_comes_into_a_folder_while_it_is_taken_in_is_not_missed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("d/e")).unwrap();
        let mut events = Events::new(folder.path().to_owned()).unwrap();
        // A file, and a folder with one: as somebody would who writes there just then.
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

    #[test]
    fn the_first_step_of_a_link_is_a_name_below_the_root() {
        for (folder, step, expected) in [
            ("", "a", Some("a")),
            ("d/e", "../a", Some("d/a")),
            ("d", "./b/c", Some("d/b/c")),
            ("d", "../../a", None),
            ("d", "/a", None),
            ("d", "/srv/public/a/b", Some("a/b")),
        ] {
            let root = FilePath::new("/srv/public");
            let found = within(root, FilePath::new(folder), FilePath::new(step));
            assert_eq!(found.as_deref(), expected.map(FilePath::new), "{step} in {folder}");
        }
    }
}
