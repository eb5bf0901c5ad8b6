//! The kernel's events of a folder: inotify.
//!
//! The kernel watches folders one by one, and identifies them by numbers that survive a rename. Their names
//! at the last scan are kept here.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(test)]
use std::path::Path as FilePath;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::inotify::{
    AddWatchFlags as Flags, InitFlags, Inotify, InotifyEvent, WatchDescriptor,
};

use super::plan::FileEvent;
use super::scan_result::Name;

/// Batches read at once; then other work gets its turn.
const BATCHES: usize = 256;
/// Events kept here until they are handled, at most. If there are more, everything is compared instead.
const MAX_PENDING: usize = 1_000_000;

/// Names kept after they were removed, at most; up to twice as many for a short time.
const MAX_REMOVED: usize = 10_000;

/// Names that were removed, or that another file has taken over. A program that opened the file by such a
/// name still writes it, and the kernel reports the removed name. The file's other names are not reported.
#[derive(Debug, Default)]
struct Removed {
    recent: BTreeSet<(WatchDescriptor, OsString)>,
    older: BTreeSet<(WatchDescriptor, OsString)>,
    /// Removed folders. The kernel still watches a folder while a file is open by a name in it.
    folders: BTreeSet<WatchDescriptor>,
}

impl Removed {
    fn insert(&mut self, folder: WatchDescriptor, name: &OsString) {
        if self.recent.len() >= MAX_REMOVED {
            self.older = core::mem::take(&mut self.recent);
        }
        self.recent.insert((folder, name.clone()));
    }

    fn contains(&self, folder: WatchDescriptor, name: &OsString) -> bool {
        let is_empty = self.recent.is_empty() && self.older.is_empty();
        let name = || (folder, name.clone());
        !is_empty && (self.recent.contains(&name()) || self.older.contains(&name()))
    }
}

/// The folder itself is gone, or the file system mounted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

#[derive(Debug)]
pub(super) struct Events {
    inotify: Inotify,
    root: PathBuf,
    names: BTreeMap<WatchDescriptor, Name>,
    numbers: BTreeMap<Name, WatchDescriptor>,
    /// Events taken from the kernel's queue that were not handled so far.
    pending: Vec<InotifyEvent>,
    /// Files that are written according to their last pending event: further such events add nothing.
    written: BTreeSet<(WatchDescriptor, Option<OsString>)>,
    removed: Removed,
    /// An action of a test in each folder between the two steps of adding it.
    #[cfg(test)]
    pub(super) between: Option<fn(&FilePath)>,
}

impl Events {
    pub(super) fn new(root: PathBuf) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Events {
            inotify,
            root,
            names: BTreeMap::new(),
            numbers: BTreeMap::new(),
            pending: Vec::new(),
            written: BTreeSet::new(),
            removed: Removed::default(),
            #[cfg(test)]
            between: None,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Starts to watch the folder of this name. Returns whether it was watched before.
    pub(super) fn watch(&mut self, name: &Name) -> Result<bool, Errno> {
        let mut flags = Flags::IN_CLOSE_WRITE
            | Flags::IN_MODIFY
            | Flags::IN_MOVED_FROM
            | Flags::IN_MOVED_TO
            | Flags::IN_CREATE
            | Flags::IN_DELETE
            | Flags::IN_ATTRIB
            | Flags::IN_ONLYDIR
            | Flags::IN_DONT_FOLLOW;
        if name.as_os_str().is_empty() {
            flags |= Flags::IN_DELETE_SELF | Flags::IN_MOVE_SELF;
        }
        let number = self.inotify.add_watch(&self.root.join(name), flags)?;
        // It may have been watched under another name, and another folder under this one.
        if let Some(before) = self.names.insert(number, name.clone())
            && self.numbers.get(&before) == Some(&number)
        {
            self.numbers.remove(&before);
        }
        let before = self.numbers.get(name).copied();
        if let Some(before) = self.numbers.insert(name.clone(), number)
            && before != number
        {
            self.end(before);
        }
        Ok(before == Some(number))
    }

    /// Nothing at or below this name is watched any more: it does not exist, or is not a folder.
    pub(super) fn forget(&mut self, name: &Name) {
        let below = self.numbers.range::<Name, _>(name..);
        let below: Vec<_> = below.take_while(|(one, _)| one.starts_with(name)).collect();
        let below: Vec<_> = below.into_iter().map(|(one, number)| (one.clone(), *number)).collect();
        for (one, number) in below {
            self.numbers.remove(&one);
            self.end(number);
        }
    }

    /// Below this folder only these exist: the names of others belong to folders that were moved away.
    pub(super) fn retain_children(&mut self, folder: &Name, names: &[Name]) {
        let names: BTreeSet<&Name> = names.iter().collect();
        let below = self.numbers.range::<Name, _>((Bound::Excluded(folder), Bound::Unbounded));
        let below = below.map(|(name, _)| name).take_while(|name| name.starts_with(folder));
        let gone = below.filter(|name| {
            let within = name.strip_prefix(folder).ok().and_then(|rest| rest.components().next());
            within.is_some_and(|first| !names.contains(&folder.join(first)))
        });
        for name in gone.cloned().collect::<Vec<_>>() {
            self.forget(&name);
        }
    }

    fn end(&mut self, number: WatchDescriptor) {
        self.names.remove(&number);
        // The kernel has done so itself if the folder no longer exists.
        let _ = self.inotify.rm_watch(number);
    }

    /// The events since the last call.
    pub(super) fn read(&mut self) -> io::Result<Result<Vec<FileEvent>, Gone>> {
        self.take()?;
        self.written.clear();
        let mut all = Vec::new();
        for event in core::mem::take(&mut self.pending) {
            if self.is_stray_write(&event) && all.last() != Some(&FileEvent::Stray) {
                all.push(FileEvent::Stray);
            }
            match self.happened(event) {
                // Each write sends one.
                Ok(Some(happened)) if all.last() == Some(&happened) => {}
                Ok(happened) => all.extend(happened),
                Err(Gone) => return Ok(Err(Gone)),
            }
        }
        Ok(Ok(all))
    }

    /// Makes space in the kernel's queue, for example while a large file is read.
    pub(super) fn take(&mut self) -> io::Result<()> {
        for _ in 0..BATCHES {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for event in events {
                self.pend(event);
            }
        }
        Ok(())
    }

    fn pend(&mut self, event: InotifyEvent) {
        let file = (event.wd, event.name.clone());
        if event.mask == Flags::IN_MODIFY {
            if !self.written.insert(file) {
                return;
            }
        } else {
            self.written.remove(&file);
        }
        if self.pending.len() >= MAX_PENDING {
            self.pending.clear();
            self.written.clear();
            let mask = Flags::IN_Q_OVERFLOW;
            self.pending.push(InotifyEvent { mask, cookie: 0, name: None, ..event });
            return;
        }
        self.pending.push(event);
    }

    /// Whether a file was written by a name that may no longer be its own. Notes removed names.
    fn is_stray_write(&mut self, event: &InotifyEvent) -> bool {
        let InotifyEvent { wd, mask, name, .. } = event;
        if mask.contains(Flags::IN_IGNORED) {
            self.removed.folders.remove(wd);
        }
        let Some(name) = name else { return false };
        if mask.intersects(Flags::IN_DELETE | Flags::IN_MOVED_TO) {
            self.removed.insert(*wd, name);
            if mask.contains(Flags::IN_DELETE | Flags::IN_ISDIR) {
                self.remove_folder(*wd, name);
            }
        }
        mask.intersects(Flags::IN_MODIFY | Flags::IN_CLOSE_WRITE)
            && (self.removed.folders.contains(wd) || self.removed.contains(*wd, name))
    }

    /// A folder was removed. The kernel ends its watch when no file is open by a name in it.
    fn remove_folder(&mut self, parent: WatchDescriptor, name: &OsString) {
        let Some(folder) = self.names.get(&parent).map(|parent| parent.join(name)) else { return };
        // Another folder may have this name by now, and be watched.
        let is_gone = self.root.join(&folder).symlink_metadata().is_err();
        if let Some(number) = self.numbers.get(&folder).copied().filter(|_| is_gone) {
            self.numbers.remove(&folder);
            self.names.remove(&number);
            self.removed.folders.insert(number);
        }
    }

    fn happened(&self, event: InotifyEvent) -> Result<Option<FileEvent>, Gone> {
        let InotifyEvent { wd, mask, cookie, name } = event;
        if mask.contains(Flags::IN_Q_OVERFLOW) {
            return Ok(Some(FileEvent::Lost));
        }
        // A watch that was ended meanwhile.
        let Some(folder) = self.names.get(&wd) else { return Ok(None) };
        let ends = Flags::IN_DELETE_SELF | Flags::IN_MOVE_SELF | Flags::IN_UNMOUNT;
        if mask.intersects(ends) && folder.as_os_str().is_empty() {
            return Err(Gone);
        }
        // Events of the folder itself come from its parent.
        let Some(name) = name else { return Ok(None) };
        let name = folder.join(name);
        let whole = Flags::IN_CLOSE_WRITE | Flags::IN_DELETE | Flags::IN_ISDIR;
        let is_created = mask.contains(Flags::IN_CREATE);
        let is_whole = || is_created && self.is_complete(&name);
        Ok(if mask.contains(Flags::IN_MOVED_FROM) {
            Some(FileEvent::Left(name, cookie))
        } else if mask.contains(Flags::IN_MOVED_TO) {
            Some(FileEvent::Came(name, cookie))
        } else if mask.intersects(whole) || is_whole() {
            Some(FileEvent::Changed(name))
        } else if mask.contains(Flags::IN_ATTRIB) {
            Some(FileEvent::Touched(name))
        } else if is_created || mask.contains(Flags::IN_MODIFY) {
            // By `truncate(2)`, or by a program that has it open. A file without a name gets one
            // (`O_TMPFILE`) with the event of a new file, too.
            Some(FileEvent::Written(name))
        } else {
            None
        })
    }

    /// Whether a new entry is complete: the end of the write of a new file is reported separately, but not
    /// for another name of a file.
    fn is_complete(&self, name: &Name) -> bool {
        use std::os::unix::fs::MetadataExt;
        let metadata = self.root.join(name).symlink_metadata();
        metadata.is_ok_and(|metadata| !metadata.is_file() || metadata.nlink() > 1)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn watched() -> (tempfile::TempDir, Events) {
        let folder = tempfile::tempdir().unwrap();
        let mut events = Events::new(folder.path().to_owned()).unwrap();
        events.watch(&Name::new()).unwrap();
        (folder, events)
    }

    fn changed(name: &str) -> FileEvent {
        FileEvent::Changed(name.into())
    }

    fn written(name: &str) -> FileEvent {
        FileEvent::Written(name.into())
    }

    #[test]
    fn kernel_reports_completed_changes() {
        let (folder, mut events) = watched();
        let path = |name: &str| folder.path().join(name);
        let mut told = || events.read().unwrap().unwrap();
        fs::write(path("a"), "1").unwrap();
        assert_eq!(told(), [written("a"), changed("a")]);
        fs::hard_link(path("a"), path("b")).unwrap();
        assert_eq!(told(), [changed("b")]);
        std::os::unix::fs::symlink("a", path("c")).unwrap();
        assert_eq!(told(), [changed("c")]);
        fs::create_dir(path("d")).unwrap();
        assert_eq!(told(), [changed("d")]);
        let open = fs::File::create(path("e")).unwrap();
        assert_eq!(told(), [written("e")], "it is not closed");
        for byte in *b"many" {
            std::io::Write::write_all(&mut &open, &[byte]).unwrap();
        }
        assert_eq!(told(), [written("e")], "as often as it is written");
        let truncated = nix::unistd::truncate(&path("a"), 0);
        assert_eq!((truncated, told()), (Ok(()), vec![written("a")]), "nothing is closed");
        fs::set_permissions(path("a"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(told(), [FileEvent::Touched("a".into())]);
        fs::remove_file(path("c")).unwrap();
        assert_eq!(told(), [changed("c")]);
        // Two files in turn: the kernel merges equal events in sequence, unless another one came between.
        fs::write(path("a"), "1").unwrap();
        told();
        let both =
            ["a", "e"].map(|name| fs::File::options().append(true).open(path(name)).unwrap());
        for byte in *b"many" {
            for mut file in &both {
                std::io::Write::write_all(&mut file, &[byte]).unwrap();
            }
        }
        drop(both);
        assert_eq!(told(), [written("a"), written("e"), changed("a"), changed("e")]);
        drop(open);
        assert_eq!(told(), [changed("e")]);
    }

    #[test]
    fn folder_is_known_by_its_last_watched_name() {
        let (folder, mut events) = watched();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("old/within")).unwrap();
        for name in ["old", "old/within"] {
            events.watch(&name.into()).unwrap();
        }
        events.read().unwrap().unwrap();
        fs::rename(path("old"), path("new")).unwrap();
        let told = events.read().unwrap().unwrap();
        let [FileEvent::Left(from, one), FileEvent::Came(to, other)] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!((from, to, one), (&"old".into(), &"new".into(), other));
        events.watch(&"new".into()).unwrap();
        events.watch(&"new/within".into()).unwrap();
        events.forget(&"old".into());
        fs::write(path("new/within/a"), "1").unwrap();
        let both = |name| Ok(vec![written(name), changed(name)]);
        assert_eq!(events.read().unwrap(), both("new/within/a"));
        // In the other order they are watched again.
        fs::rename(path("new"), path("third")).unwrap();
        events.forget(&"new".into());
        events.watch(&"third".into()).unwrap();
        events.watch(&"third/within".into()).unwrap();
        events.read().unwrap().unwrap();
        fs::write(path("third/within/b"), "1").unwrap();
        assert_eq!(events.read().unwrap(), both("third/within/b"));
        // Moved away, and replaced by another one.
        fs::rename(path("third/within"), folder.path().with_extension("away")).unwrap();
        events.retain_children(&"third".into(), &["third/b".into()]);
        assert_eq!((events.names.len(), events.numbers.len()), (2, 2));
        fs::remove_dir_all(folder.path().with_extension("away")).unwrap();
        fs::remove_dir_all(path("third")).unwrap();
        events.read().unwrap().unwrap();
        events.forget(&"third".into());
        assert_eq!((events.names.len(), events.numbers.len()), (1, 1), "the folder itself is left");
    }

    #[test]
    fn queue_overflow_is_reported() {
        let (folder, mut events) = watched();
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let limit: usize = limit.trim().parse().unwrap();
        assert!(limit < 1_000_000, "this machine's queue is too long for a test");
        // Two equal events in a row would count as one.
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        for number in 0..=limit {
            fs::write(&paths[number % 2], "1").unwrap();
        }
        let mut told = Vec::new();
        loop {
            match events.read().unwrap().unwrap() {
                more if more.is_empty() => break,
                more => told.extend(more),
            }
        }
        assert_eq!(told.last(), Some(&FileEvent::Lost));
    }

    #[test]
    fn removal_of_the_watched_folder_is_reported() {
        let (folder, mut events) = watched();
        fs::rename(folder.path(), folder.path().with_extension("moved")).unwrap();
        assert_eq!(events.read().unwrap(), Err(Gone));
        fs::remove_dir(folder.path().with_extension("moved")).unwrap();
    }
}
