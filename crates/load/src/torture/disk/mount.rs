//! The disk as a file system that the kernel mounts.
//!
//! The kernel caches nothing of it: no page, no name, no attribute. So a power cut forgets unsynced writes
//! completely, and each `fsync` is seen here. Locks are the kernel's own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use lull_sim::random::Random;
use nix::errno::Errno;

use super::{Attributes, Disk, DiskFault, Kind, ROOT};

/// Threads that answer the kernel.
const THREADS: usize = 2;
/// For how long the kernel may cache.
const NEVER: Duration = Duration::ZERO;
/// `stat` counts space in these.
const BLOCK: u32 = 512;
/// The free space for `df`, which is constant.
const ROOM: u64 = 1 << 22;

/// Why the disk could not be mounted.
#[derive(Debug, thiserror::Error)]
#[error("the lab's disk cannot be mounted: it needs root and /dev/fuse")]
pub struct MountError(#[source] io::Error);

/// A disk that forgets unsynced writes, mounted in a folder. Dropping it unmounts it.
#[derive(Debug)]
pub struct LabDisk {
    disk: Arc<Mutex<Disk>>,
    _session: BackgroundSession,
}

impl LabDisk {
    /// An empty disk, mounted in a folder.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn mount(folder: &Path) -> Result<Self, MountError> {
        let disk = Arc::new(Mutex::new(Disk::default()));
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        config.mount_options = vec![
            MountOption::FSName("lull-lab".to_owned()),
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoAtime,
        ];
        let face = DiskFileSystem { disk: Arc::clone(&disk), listed: Mutex::default() };
        let session = fuser::spawn_mount(face, folder, &config).map_err(MountError)?;
        Ok(LabDisk { disk, _session: session })
    }

    /// Everything is on the disk now, as after `sync`.
    pub fn sync(&self) {
        lock(&self.disk).sync_all();
    }

    /// From now on it confirms each sync at once, and performs one in this many: a cut loses the writes
    /// confirmed since then.
    pub fn drop_syncs(&self, one_in: u64) {
        lock(&self.disk).fault = DiskFault::Lies { one_in };
    }

    /// The power was cut: unsynced writes are forgotten. To be called when no process has a file open.
    /// `tearing` draws the sectors that survive all the same; on a lying disk none does. Returns whether any
    /// does.
    pub fn cut(&self, tearing: Option<&mut Random>) -> bool {
        let mut disk = lock(&self.disk);
        let honest = disk.fault == DiskFault::Honest;
        disk.cut(tearing.filter(|_| honest))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entries of a folder when it was opened.
type Listed = Vec<(u64, FileType, std::ffi::OsString)>;

/// Answers the kernel.
#[derive(Debug)]
struct DiskFileSystem {
    disk: Arc<Mutex<Disk>>,
    /// Folders that are open, by handle.
    listed: Mutex<(u64, BTreeMap<u64, Listed>)>,
}

fn type_of(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Folder => FileType::Directory,
        Kind::Socket => FileType::Socket,
    }
}

fn attributes(of: Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(of.number),
        size: of.length,
        blocks: of.length.div_ceil(u64::from(BLOCK)),
        // Times are not used here.
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: type_of(of.kind),
        perm: (of.mode & 0o7777) as u16,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4_096,
        flags: 0,
    }
}

fn reply_attributes(of: Result<Attributes, Errno>, reply: ReplyAttr) {
    match of {
        Ok(of) => reply.attr(&NEVER, &attributes(of)),
        Err(error) => reply.error(refusal(error)),
    }
}

fn refusal(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error as i32)
}

impl DiskFileSystem {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    fn made(&self, made: Result<u64, Errno>, reply: ReplyEntry) {
        match made.and_then(|node| self.disk().attributes(node)) {
            Ok(of) => reply.entry(&NEVER, &attributes(of), Generation(0)),
            Err(error) => reply.error(refusal(error)),
        }
    }
}

fn done(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(refusal(error)),
    }
}

impl Filesystem for DiskFileSystem {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.disk().look_up(parent.0, name);
        self.made(found, reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let of = self.disk().attributes(ino.0);
        reply_attributes(of, reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut disk = self.disk();
        let set = mode.map_or(Ok(()), |mode| disk.set_mode(ino.0, mode)).and_then(|()| {
            if let Some(size) = size {
                disk.file_mut(ino.0)?.set_length(size);
            }
            disk.attributes(ino.0)
        });
        reply_attributes(set, reply);
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = match mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File,
            libc::S_IFSOCK => Kind::Socket,
            _ => return reply.error(refusal(Errno::EPERM)),
        };
        let made = self.disk().make(parent.0, name, kind, mode & 0o7777 & !umask);
        self.made(made, reply);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.disk().make(parent.0, name, Kind::Folder, mode & 0o7777 & !umask);
        self.made(made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.disk().remove(parent.0, name, false), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.disk().remove(parent.0, name, true), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut disk = self.disk();
        let renamed = if flags.is_empty() {
            disk.rename((parent.0, name), (newparent.0, newname))
        } else if flags != RenameFlags::RENAME_NOREPLACE {
            Err(Errno::EINVAL)
        } else if disk.look_up(newparent.0, newname).is_ok() {
            Err(Errno::EEXIST)
        } else {
            disk.rename((parent.0, name), (newparent.0, newname))
        };
        done(renamed, reply);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.disk().link(ino.0, newparent.0, newname).map(|()| ino.0);
        self.made(linked, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.disk().file(ino.0).map(drop) {
            // Each read and each write reaches this.
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(refusal(error)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut disk = self.disk();
        let made = disk.make(parent.0, name, Kind::File, mode & 0o7777 & !umask);
        match made.and_then(|node| disk.attributes(node)) {
            Ok(of) => {
                let (generation, flags) = (Generation(0), FopenFlags::FOPEN_DIRECT_IO);
                reply.created(&NEVER, &attributes(of), generation, FileHandle(0), flags);
            }
            Err(error) => reply.error(refusal(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.disk().file(ino.0).map(|file| file.read(offset, size as usize));
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(refusal(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.disk().file_mut(ino.0).map(|file| file.write(offset, data));
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(refusal(error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A close keeps nothing, and after this answer the kernel asks no more. A killed daemon closes its
        // files. It would wait here forever if this process was killed too, and is itself waiting for a file
        // in the daemon's mount.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.disk().sync(ino.0), reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let disk = self.disk();
        let names = match disk.names(ino.0) {
            Ok(names) => names,
            Err(error) => return reply.error(refusal(error)),
        };
        let mut list: Listed = vec![
            (ino.0, FileType::Directory, ".".into()),
            // The kernel resolves the parent folder itself.
            (ROOT, FileType::Directory, "..".into()),
        ];
        list.extend(names.iter().filter_map(|(name, node)| {
            let kind = disk.attributes(*node).ok()?.kind;
            Some((*node, type_of(kind), name.clone()))
        }));
        drop(disk);
        let mut listed = lock(&self.listed);
        listed.0 += 1;
        let handle = listed.0;
        listed.1.insert(handle, list);
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = lock(&self.listed);
        let list = listed.1.get(&fh.0).map_or(&[][..], Vec::as_slice);
        let first = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (node, kind, name)) in list.iter().enumerate().skip(first) {
            if reply.add(INodeNo(*node), at as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        lock(&self.listed).1.remove(&fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.disk().sync(ino.0), reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(ROOM, ROOM, ROOM, ROOM, ROOM, 4_096, 255, 4_096);
    }
}
