//! The mount point: its requirements, mounting, unmounting.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::statvfs;
use nix::unistd::{getegid, geteuid};
use thiserror::Error;

const DEVICE: &str = "/dev/fuse";
/// The type that distinguishes mounts of Lull from others.
const KIND: &str = "fuse.lull";
/// The source shown for the mount.
const SOURCE: &str = "lull";

/// Why nothing is mounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// There is no such folder.
    #[error("`{}` does not exist: create the folder first", .0.display())]
    Missing(PathBuf),
    /// It is not a folder.
    #[error("`{}` is not a folder: name one", .0.display())]
    NoFolder(PathBuf),
    /// Files in it would be hidden.
    #[error("`{}` is not empty: name an empty folder", .0.display())]
    NotEmpty(PathBuf),
    /// Something is mounted there.
    #[error("`{}` has {kind} mounted on it: name another folder, or umount it", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
        /// Its path.
        kind: String,
    },
    /// Only root may mount.
    #[error("only root may mount `{}`: use sudo, or read over --http", .0.display())]
    Rights(PathBuf),
    /// The kernel has no FUSE, or a container hides it.
    #[error(
        "{DEVICE} is missing: run `modprobe fuse`, pass the device to the container, or read \
             over --http"
    )]
    Device(#[source] io::Error),
    /// The kernel's FUSE is too old.
    #[error("the FUSE of this kernel is too old: use Linux 4.20 or later, or read over --http")]
    Kernel,
    /// Something else.
    #[error("cannot mount `{}`", path.display())]
    System {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A mount, until it is unmounted or dropped.
#[derive(Debug)]
pub(super) struct Point {
    path: PathBuf,
    mounted: bool,
}

impl Point {
    /// The full path of a folder that may be mounted on, and the device for the kernel's requests.
    pub(super) fn check(path: &Path) -> Result<(PathBuf, File), MountError> {
        let path = prepare(path)?;
        match OpenOptions::new().read(true).write(true).open(DEVICE) {
            Ok(device) => Ok((path, device)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(MountError::Rights(path))
            }
            Err(error) => Err(MountError::Device(error)),
        }
    }

    /// Mounts the file system that is served through the returned file.
    pub(super) fn mount(path: &Path) -> Result<(Self, File), MountError> {
        let (path, device) = Self::check(path)?;
        // All users have access. The kernel does not check permissions; `open` and `access` do. Otherwise the
        // kernel would request the attributes of each folder on the way, which is a read, and an earlier
        // state is read without one.
        let options = format!(
            "fd={},rootmode=40000,user_id={},group_id={},allow_other",
            device.as_raw_fd(),
            geteuid(),
            getegid(),
        );
        let flags =
            MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOATIME;
        match mount(Some(SOURCE), &path, Some(KIND), flags, Some(options.as_str())) {
            Ok(()) => Ok((Point { path, mounted: true }, device)),
            Err(Errno::EPERM) => Err(MountError::Rights(path)),
            Err(Errno::ENODEV) => Err(MountError::Device(Errno::ENODEV.into())),
            Err(error) => Err(MountError::System { path, source: error.into() }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// It was unmounted externally.
    pub(super) fn forget(&mut self) {
        self.mounted = false;
    }

    /// Unmounts it. Waiting requests get an error; a mount in use disappears with its last user.
    pub(super) fn unmount(&mut self) -> io::Result<()> {
        if !core::mem::take(&mut self.mounted) {
            return Ok(());
        }
        // By force: otherwise the connection to the kernel stays open while any other mount namespace has a
        // copy of the mount. Every namespace that was made meanwhile has one.
        umount2(&self.path, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH).map_err(io::Error::from)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // No receiver is left for the error.
        let _ = self.unmount();
    }
}

/// The full path of the folder, if it can be mounted on. A mount left by a killed process is removed first.
fn prepare(path: &Path) -> Result<PathBuf, MountError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => MountError::Missing(path.to_owned()),
        io::ErrorKind::NotADirectory => MountError::NoFolder(path.to_owned()),
        _ => MountError::System { path: path.to_owned(), source },
    };
    // The second error if the server dies at this moment.
    let is_dead = |error: &io::Error| {
        let error = error.raw_os_error().map(Errno::from_raw);
        matches!(error, Some(Errno::ENOTCONN | Errno::ECONNABORTED))
    };
    let whole = match fs::canonicalize(path) {
        Err(error) if is_dead(&error) => absolute(path),
        other => other,
    };
    let whole = whole.map_err(failed)?;
    while let Some(kind) = mounted_at(&whole).map_err(failed)? {
        // Of the file system, not of the folder: that would be a read of a replica that is mounted there, and
        // might have to wait.
        match statvfs(&whole).map_err(io::Error::from) {
            // Its server is dead.
            Err(error) if is_dead(&error) && kind == KIND => {
                umount2(&whole, MntFlags::MNT_DETACH).map_err(|error| match error {
                    Errno::EPERM => MountError::Rights(path.to_owned()),
                    error => failed(error.into()),
                })?;
            }
            Err(error) if is_dead(&error) => return Err(MountError::Busy { path: whole, kind }),
            Ok(_) if kind == KIND => return Err(MountError::Busy { path: whole, kind }),
            // An empty disk may be mounted over like any empty folder.
            _ => break,
        }
    }
    let mut entries = fs::read_dir(&whole).map_err(failed)?;
    if entries.next().is_some() { Err(MountError::NotEmpty(path.to_owned())) } else { Ok(whole) }
}

/// The full path of something that may not be resolved itself.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Ok(path),
    }
}

/// The type of the file system that was mounted there last, if any.
pub(crate) fn mounted_at(path: &Path) -> io::Result<Option<String>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(kind_in(&table, path.as_os_str().as_bytes()))
}

/// The same from a table as in proc(5): the path is the fifth field, with some bytes in octal; the type is
/// the first one after a separate dash.
fn kind_in(table: &[u8], path: &[u8]) -> Option<String> {
    table.rsplit(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        if unescaped(fields.nth(4)?) != path {
            return None;
        }
        fields.find(|field| *field == b"-")?;
        fields.next().map(|kind| String::from_utf8_lossy(kind).into_owned())
    })
}

fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| core::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_mount_of_a_folder_is_found_in_the_table() {
        let table = b"36 35 98:0 / /mnt rw,noatime shared:1 - ext4 /dev/root rw\n\
            37 36 0:40 / /mnt/a\\040b ro - fuse.lull lull ro,user_id=0\n\
            38 36 0:41 / /mnt ro master:1 propagate_from:2 - tmpfs tmpfs rw\n";
        for (path, expected) in
            [("/mnt", Some("tmpfs")), ("/mnt/a b", Some("fuse.lull")), ("/mnt/a", None), ("", None)]
        {
            assert_eq!(kind_in(table, path.as_bytes()).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn mount_point_error_says_how_to_fix_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for (path, words) in [
            (folder.path().join("none"), "create the folder first"),
            (file, "name one"),
            (folder.path().to_owned(), "name an empty folder"),
        ] {
            let error = prepare(&path).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
