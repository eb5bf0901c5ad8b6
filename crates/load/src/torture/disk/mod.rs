//! A disk that keeps synced writes over a power cut, and forgets the rest.
//!
//! | change | is kept by | otherwise |
//! |---|---|---|
//! | bytes and length of a file | `fsync` or `fdatasync` of it | as they were at the last one; empty if there was none |
//! | a name: made, removed, linked or renamed | `fsync` of its folder | nothing of it has happened |
//!
//! So a name needs its own sync, and a sync of the bytes does not help it: the guarantees of POSIX, and no
//! more. A rename is atomic. Earlier operations in its folders are kept with it, as with a journal. Modes are
//! kept at once.
//!
//! A cut may also *tear*: each unsynced sector of 512 bytes is there or not, and of the operations on names a
//! prefix, in order.
//!
//! This is the disk as calls and values; `mount` lets the kernel use one.

mod file;
mod mount;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use lull_sim::random::Random;
use nix::errno::Errno;

use file::File;
pub use mount::{LabDisk, MountError};

/// The number of the root folder.
const ROOT: u64 = 1;

/// The kind of an entry on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    /// A place where a socket listens.
    Socket,
}

#[derive(Clone, Debug)]
enum Content {
    File(File),
    Folder(Folder),
    Socket,
}

type Names = BTreeMap<OsString, u64>;

#[derive(Clone, Debug, Default)]
struct Folder {
    now: Names,
    synced: Names,
}

#[derive(Clone, Debug)]
struct Node {
    content: Content,
    mode: u32,
}

/// The attributes for `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attributes {
    number: u64,
    kind: Kind,
    length: u64,
    /// Permissions.
    mode: u32,
}

/// An unsynced change of names.
#[derive(Clone, Debug)]
enum NameChange {
    Put { folder: u64, name: OsString, node: u64 },
    Remove { folder: u64, name: OsString },
    Move { from: (u64, OsString), to: (u64, OsString), node: u64 },
}

impl NameChange {
    fn folders(&self) -> [u64; 2] {
        match self {
            NameChange::Put { folder, .. } | NameChange::Remove { folder, .. } => [*folder; 2],
            NameChange::Move { from, to, .. } => [from.0, to.0],
        }
    }
}

/// Faults of a disk that a lab can switch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskFault {
    /// It keeps confirmed writes.
    Honest,
    /// It confirms each sync at once, and writes all its data at one sync in this many.
    Lies { one_in: u64 },
}

/// A disk with its file system.
#[derive(Clone, Debug)]
struct Disk {
    nodes: BTreeMap<u64, Node>,
    /// The last number; none is reused.
    last: u64,
    journal: Vec<NameChange>,
    fault: DiskFault,
    syncs: u64,
}

impl Default for Disk {
    fn default() -> Self {
        let root = Node { content: Content::Folder(Folder::default()), mode: 0o755 };
        Disk {
            nodes: BTreeMap::from([(ROOT, root)]),
            last: ROOT,
            journal: Vec::new(),
            fault: DiskFault::Honest,
            syncs: 0,
        }
    }
}

impl Disk {
    fn node(&self, number: u64) -> Result<&Node, Errno> {
        self.nodes.get(&number).ok_or(Errno::ESTALE)
    }

    fn names(&self, folder: u64) -> Result<&Names, Errno> {
        match &self.node(folder)?.content {
            Content::Folder(folder) => Ok(&folder.now),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn names_mut(&mut self, folder: u64) -> Result<&mut Names, Errno> {
        match self.nodes.get_mut(&folder).map(|node| &mut node.content) {
            Some(Content::Folder(folder)) => Ok(&mut folder.now),
            Some(_) => Err(Errno::ENOTDIR),
            None => Err(Errno::ESTALE),
        }
    }

    fn file(&self, number: u64) -> Result<&File, Errno> {
        match &self.node(number)?.content {
            Content::File(file) => Ok(file),
            Content::Folder(_) => Err(Errno::EISDIR),
            Content::Socket => Err(Errno::ENXIO),
        }
    }

    fn file_mut(&mut self, number: u64) -> Result<&mut File, Errno> {
        match self.nodes.get_mut(&number).map(|node| &mut node.content) {
            Some(Content::File(file)) => Ok(file),
            Some(Content::Folder(_)) => Err(Errno::EISDIR),
            Some(Content::Socket) => Err(Errno::ENXIO),
            None => Err(Errno::ESTALE),
        }
    }

    fn attributes(&self, number: u64) -> Result<Attributes, Errno> {
        let node = self.node(number)?;
        let (kind, length) = match &node.content {
            Content::File(file) => (Kind::File, file.length()),
            Content::Folder(_) => (Kind::Folder, 0),
            Content::Socket => (Kind::Socket, 0),
        };
        Ok(Attributes { number, kind, length, mode: node.mode })
    }

    fn look_up(&self, folder: u64, name: &OsStr) -> Result<u64, Errno> {
        self.names(folder)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn make(&mut self, folder: u64, name: &OsStr, kind: Kind, mode: u32) -> Result<u64, Errno> {
        if self.names(folder)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let content = match kind {
            Kind::File => Content::File(File::default()),
            Kind::Folder => Content::Folder(Folder::default()),
            Kind::Socket => Content::Socket,
        };
        self.last += 1;
        let node = self.last;
        self.nodes.insert(node, Node { content, mode });
        self.put(folder, name, node)?;
        Ok(node)
    }

    fn put(&mut self, folder: u64, name: &OsStr, node: u64) -> Result<(), Errno> {
        self.names_mut(folder)?.insert(name.to_owned(), node);
        self.journal.push(NameChange::Put { folder, name: name.to_owned(), node });
        Ok(())
    }

    fn link(&mut self, node: u64, folder: u64, name: &OsStr) -> Result<(), Errno> {
        if self.attributes(node)?.kind == Kind::Folder {
            return Err(Errno::EPERM);
        }
        if self.names(folder)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.put(folder, name, node)
    }

    /// Removes a name; of a folder if `is_folder`, otherwise of anything else.
    fn remove(&mut self, folder: u64, name: &OsStr, is_folder: bool) -> Result<(), Errno> {
        let node = self.look_up(folder, name)?;
        match (self.attributes(node)?.kind == Kind::Folder, is_folder) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) if !self.names(node)?.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.names_mut(folder)?.remove(name);
        self.journal.push(NameChange::Remove { folder, name: name.to_owned() });
        Ok(())
    }

    fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<(), Errno> {
        let node = self.look_up(from.0, from.1)?;
        let is_folder = self.attributes(node)?.kind == Kind::Folder;
        match self.look_up(to.0, to.1) {
            // Two names of one file stay two (rename(2)).
            Ok(other) if other == node => return Ok(()),
            Ok(other) => match (is_folder, self.names(other)) {
                (true, Ok(names)) if !names.is_empty() => return Err(Errno::ENOTEMPTY),
                (true, Err(error)) => return Err(error),
                (false, Ok(_)) => return Err(Errno::EISDIR),
                _ => {}
            },
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        self.names_mut(from.0)?.remove(from.1);
        self.names_mut(to.0)?.insert(to.1.to_owned(), node);
        let (from, to) = ((from.0, from.1.to_owned()), (to.0, to.1.to_owned()));
        self.journal.push(NameChange::Move { from, to, node });
        Ok(())
    }

    fn set_mode(&mut self, number: u64, mode: u32) -> Result<(), Errno> {
        self.nodes.get_mut(&number).ok_or(Errno::ESTALE)?.mode = mode & 0o7777;
        Ok(())
    }

    /// The `fsync` of a file or a folder.
    fn sync(&mut self, number: u64) -> Result<(), Errno> {
        self.node(number)?;
        self.syncs += 1;
        if let DiskFault::Lies { one_in } = self.fault {
            if self.syncs.is_multiple_of(one_in) {
                self.sync_all();
            }
            return Ok(());
        }
        match self.nodes.get_mut(&number).map(|node| &mut node.content) {
            Some(Content::File(file)) => file.sync(),
            Some(Content::Folder(_)) => self.sync_names(number),
            _ => {}
        }
        Ok(())
    }

    /// The operations on a folder's names are on the disk now, with all earlier ones that they depend on.
    fn sync_names(&mut self, folder: u64) {
        let mut folders = BTreeSet::from([folder]);
        let mut needed = Vec::new();
        let mut rest = Vec::new();
        for change in core::mem::take(&mut self.journal).into_iter().rev() {
            if change.folders().iter().any(|one| folders.contains(one)) {
                folders.extend(change.folders());
                needed.push(change);
            } else {
                rest.push(change);
            }
        }
        self.journal = rest.into_iter().rev().collect();
        needed.into_iter().rev().for_each(|change| self.make_durable(change));
    }

    fn sync_all(&mut self) {
        for change in core::mem::take(&mut self.journal) {
            self.make_durable(change);
        }
        for node in self.nodes.values_mut() {
            if let Content::File(file) = &mut node.content {
                file.sync();
            }
        }
    }

    fn make_durable(&mut self, change: NameChange) {
        let mut synced = |folder: u64, name: OsString, node: Option<u64>| {
            let content = self.nodes.get_mut(&folder).map(|node| &mut node.content);
            if let Some(Content::Folder(folder)) = content {
                match node {
                    Some(node) => drop(folder.synced.insert(name, node)),
                    None => drop(folder.synced.remove(&name)),
                }
            }
        };
        match change {
            NameChange::Put { folder, name, node } => synced(folder, name, Some(node)),
            NameChange::Remove { folder, name } => synced(folder, name, None),
            NameChange::Move { from, to, node } => {
                synced(from.0, from.1, None);
                synced(to.0, to.1, Some(node));
            }
        }
    }

    /// The power was cut, and is back. `tearing` draws the unsynced parts that survive. Returns whether any
    /// does.
    fn cut(&mut self, mut tearing: Option<&mut Random>) -> bool {
        let mut torn = false;
        let journal = core::mem::take(&mut self.journal);
        if let Some(random) = &mut tearing {
            let kept = random.below(journal.len() as u64 + 1) as usize;
            torn = kept > 0;
            journal.into_iter().take(kept).for_each(|change| self.make_durable(change));
        }
        for node in self.nodes.values_mut() {
            match &mut node.content {
                Content::File(file) => torn |= file.cut(tearing.as_deref_mut()),
                Content::Folder(folder) => folder.now = folder.synced.clone(),
                Content::Socket => {}
            }
        }
        let mut reached = BTreeSet::from([ROOT]);
        let mut folders = vec![ROOT];
        while let Some(folder) = folders.pop() {
            for node in self.names(folder).into_iter().flat_map(Names::values) {
                if reached.insert(*node) {
                    folders.push(*node);
                }
            }
        }
        self.nodes.retain(|number, _| reached.contains(number));
        torn
    }
}
