//! Files of other programs, which may be written while they are read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path as FilePath;

use lull_cc::Bytes;
use lull_replication::time::WallTime;
use lull_replication::types::{Content, Digest, Kind, Metadata, Mode};
use nix::fcntl::OFlag;

/// The size of one read.
const CHUNK: usize = 64 * 1024;
/// A file is checked again after this many bytes.
const CHECK: u64 = 16 << 20;

/// Opens a file that must be in a folder, even if the names that lead to it were changed since they were
/// checked. `root` is the folder's path without links.
///
/// # Errors
/// If it is outside the folder, and as for the system call.
pub(crate) fn open(root: &FilePath, path: &FilePath) -> io::Result<File> {
    // If it has become a pipe meanwhile, the open does not wait for the other end.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let opened = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if opened.starts_with(root) {
        Ok(file)
    } else {
        Err(io::Error::other("it is outside the folder"))
    }
}

/// Distinguishes contents of a file without reading them. The kernel sets `changed` (`st_ctime`) at each
/// write, and no program can set it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) inode: u64,
    size: u64,
    modified: WallTime,
    pub(crate) changed: WallTime,
}

impl Fingerprint {
    pub(crate) fn of(metadata: &fs::Metadata) -> Self {
        Fingerprint {
            inode: metadata.ino(),
            size: metadata.len(),
            modified: wall(metadata.mtime(), metadata.mtime_nsec()),
            changed: wall(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// The times of a file system have a wider range than `WallTime`, which ends in the years 1677 and 2262.
fn wall(seconds: i64, nanos: i64) -> WallTime {
    WallTime::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// A folder, by what `lstat` reports.
pub(crate) fn folder(metadata: &fs::Metadata) -> Content {
    Content::folder(Fingerprint::of(metadata).modified, Mode::new(metadata.mode()))
}

/// A symbolic link: its target, which is not followed, and the link as an object. None if it was replaced
/// meanwhile.
///
/// # Errors
/// If it can't be read.
pub(crate) fn link(path: &FilePath) -> io::Result<Option<(Vec<u8>, Content)>> {
    let before = path.symlink_metadata()?;
    let target = fs::read_link(path)?.into_os_string().into_vec();
    let fingerprint = Fingerprint::of(&before);
    let is_same = Fingerprint::of(&path.symlink_metadata()?) == fingerprint;
    let metadata = Metadata { kind: Kind::Link, modified: fingerprint.modified, mode: Mode::LINK };
    let (digest, size) = (Digest::of(&target), Bytes(target.len() as u64));
    Ok(is_same.then_some((target, Content { digest, size, metadata })))
}

/// The result of reading a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) size: u64,
    pub(crate) metadata: Metadata,
    pub(crate) fingerprint: Fingerprint,
    /// How many names it has.
    pub(crate) names: u64,
}

/// Reads a file; none if it was changed meanwhile. That is checked every [`CHECK`] bytes, so that a file that
/// is being written costs no more.
///
/// # Errors
/// If it cannot be read, is not a file, or `take` has failed.
pub(crate) fn read(
    mut file: File,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Option<Snapshot>> {
    let before = file.metadata()?;
    if !before.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let fingerprint = Fingerprint::of(&before);
    let is_same = |metadata: &fs::Metadata| {
        // The mode and the number of links change `changed`, too.
        Fingerprint::of(metadata) == fingerprint
    };
    let mut chunk = vec![0; CHUNK];
    let (mut size, mut check) = (0, CHECK);
    loop {
        let count = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        take(&chunk[..count])?;
        size += count as u64;
        if size >= check {
            check += CHECK;
            if !is_same(&file.metadata()?) {
                return Ok(None);
            }
        }
    }
    let after = file.metadata()?;
    if !is_same(&after) || after.len() != size {
        return Ok(None);
    }
    let modified = fingerprint.modified;
    let metadata = Metadata { kind: Kind::File, modified, mode: Mode::new(after.mode()) };
    Ok(Some(Snapshot { size, metadata, fingerprint, names: after.nlink() }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn time_before_1970_is_preserved() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let file = File::create(root.join("a")).unwrap();
        file.set_modified(UNIX_EPOCH - Duration::from_millis(1_500)).unwrap();
        let read = read(open(&root, &root.join("a")).unwrap(), |_| Ok(())).unwrap().unwrap();
        assert_eq!(read.metadata.modified.as_nanos(), -1_500_000_000);
    }

    #[test]
    fn file_written_while_it_is_read_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let path = root.join("a");
        fs::write(&path, vec![1; 3 * CHUNK]).unwrap();
        let modified = path.metadata().unwrap().modified().unwrap();
        let mut bytes = Vec::new();
        let whole = read(open(&root, &path).unwrap(), |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        });
        let whole = whole.unwrap().expect("no process writes");
        assert_eq!((whole.size, bytes.len()), (196_608, 196_608));
        assert_eq!((whole.names, whole.metadata.mode.is_executable()), (1, false));
        let mut chunks = 0;
        let during = read(open(&root, &path).unwrap(), |_| {
            chunks += 1;
            if chunks == 1 {
                // After the part that was read, and long after it was made.
                let file = File::options().append(true).open(&path)?;
                (&file).write_all(b"more")?;
                file.set_modified(modified)?;
            }
            Ok(())
        });
        assert!(during.unwrap().is_none());
        // A change that keeps length and time.
        let (mut size, mut is_written) = (0, false);
        File::options().write(true).open(&path).unwrap().set_len(10 * CHECK).unwrap();
        let during = read(open(&root, &path).unwrap(), |chunk| {
            size += chunk.len() as u64;
            if !core::mem::replace(&mut is_written, true) {
                let file = File::options().write(true).open(&path)?;
                let modified = file.metadata()?.modified()?;
                (&file).write_all(b"other")?;
                file.set_modified(modified)?;
            }
            Ok(())
        });
        assert!(during.unwrap().is_none());
        assert_eq!(size, CHECK, "the rest is not read");
        let pipe = root.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let pipe = open(&root, &pipe).unwrap();
        assert!(read(pipe, |_| Ok(())).is_err(), "and it does not wait for a writer");
    }

    #[test]
    fn no_file_outside_the_folder_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("root");
        fs::create_dir_all(root.join("d")).unwrap();
        fs::write(root.join("d/a"), "1").unwrap();
        let file = root.join("d/a");
        assert!(open(&root, &file).is_ok());
        // A link has replaced the folder that the file was in.
        fs::rename(root.join("d"), folder.path().join("out")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("out"), root.join("d")).unwrap();
        assert!(fs::read(&file).is_ok());
        assert_eq!(open(&root, &file).unwrap_err().to_string(), "it is outside the folder");
    }
}
