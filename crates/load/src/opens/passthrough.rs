//! A mount that passes a folder's contents through, and does nothing else.
//!
//! It is mounted and answers like a replica's mount: read-only, for all users, without permission checks in
//! the kernel. Names and attributes are not cached; pages of opened files are.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, Request, SessionACL,
};

/// For how long the kernel may cache names and attributes.
const NEVER: Duration = Duration::ZERO;
/// Concurrent readahead, as in a replica's mount.
const BACKGROUND: u16 = 64;

/// Why the folder could not be mounted.
#[derive(Debug, thiserror::Error)]
#[error("the pass-through mount failed: it needs root and /dev/fuse")]
pub struct PassThroughError(#[source] io::Error);

/// The files of a folder, without those in subfolders, mounted in another one. It is unmounted when this is
/// dropped.
#[derive(Debug)]
pub struct PassThrough {
    _session: BackgroundSession,
}

impl PassThrough {
    /// Mounts `source` in the empty folder `place`; this many threads take the kernel's requests.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn mount(source: &Path, place: &Path, threads: usize) -> Result<Self, PassThroughError> {
        let mut config = Config::default();
        config.n_threads = Some(threads);
        config.acl = SessionACL::All;
        config.mount_options = vec![
            MountOption::FSName("lull-lab".to_owned()),
            MountOption::RO,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoAtime,
        ];
        let face = PassThroughFileSystem {
            source: source.to_owned(),
            names: Mutex::default(),
            open: Mutex::default(),
        };
        let session = fuser::spawn_mount(face, place, &config).map_err(PassThroughError)?;
        Ok(PassThrough { _session: session })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the kernel.
#[derive(Debug)]
struct PassThroughFileSystem {
    source: PathBuf,
    /// Paths by the numbers of their inodes, which are those of the folder.
    names: Mutex<BTreeMap<u64, PathBuf>>,
    /// The open files, by handle; and the last handle.
    open: Mutex<(u64, BTreeMap<u64, Arc<File>>)>,
}

fn refusal(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
}

fn attributes(number: u64, of: &Metadata) -> FileAttr {
    let since = |seconds: i64, nanos: i64| {
        let seconds = Duration::from_secs(seconds.unsigned_abs());
        UNIX_EPOCH + seconds + Duration::from_nanos(nanos.unsigned_abs())
    };
    let modified = since(of.mtime(), of.mtime_nsec());
    FileAttr {
        ino: INodeNo(number),
        size: of.size(),
        blocks: of.blocks(),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind: if of.is_dir() { FileType::Directory } else { FileType::RegularFile },
        perm: (of.mode() & 0o555) as u16,
        nlink: 1,
        uid: of.uid(),
        gid: of.gid(),
        rdev: 0,
        blksize: 64 * 1024,
        flags: 0,
    }
}

impl PassThroughFileSystem {
    /// The path of an inode.
    fn path(&self, number: INodeNo) -> io::Result<PathBuf> {
        if number == INodeNo::ROOT {
            return Ok(self.source.clone());
        }
        let path = lock(&self.names).get(&number.0).cloned();
        path.ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let path = self.path(parent)?.join(name);
        let of = path.symlink_metadata()?;
        lock(&self.names).insert(of.ino(), path);
        Ok(attributes(of.ino(), &of))
    }
}

impl Filesystem for PassThroughFileSystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A feature that an older kernel lacks, the replica's mount lacks too.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look_up(parent, name) {
            Ok(of) => reply.entry(&NEVER, &of, Generation(0)),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.path(ino).and_then(|path| path.symlink_metadata()) {
            Ok(of) => reply.attr(&NEVER, &attributes(ino.0, &of)),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.path(ino).and_then(File::open) {
            Ok(file) => {
                let handle = {
                    let mut open = lock(&self.open);
                    open.0 += 1;
                    let handle = open.0;
                    open.1.insert(handle, Arc::new(file));
                    handle
                };
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(refusal(&error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = lock(&self.open).1.get(&fh.0).cloned();
        let Some(file) = file else { return reply.error(Errno::EBADF) };
        let mut bytes = vec![0; size as usize];
        match file.read_at(&mut bytes, offset) {
            Ok(count) => reply.data(&bytes[..count]),
            Err(error) => reply.error(refusal(&error)),
        }
    }

    // As in a replica's mount: the kernel asks once.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        // Closed outside the lock.
        let file = lock(&self.open).1.remove(&fh.0);
        drop(file);
        reply.ok();
    }
}
