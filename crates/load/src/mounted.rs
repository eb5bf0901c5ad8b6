//! The mount of a replica, as its readers hold it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{FUSE_SUPER_MAGIC, fstatfs};

/// A mount, held by its root: operations through that reach the mount, and never the folder below it, which
/// is visible while its replica does not run.
#[derive(Debug)]
pub(crate) struct Root(File);

impl Root {
    /// Opens the mount on a folder.
    ///
    /// # Errors
    /// [`ErrorKind::NotConnected`] if nothing is mounted.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let root = hold(folder)?;
        match fstatfs(&root.0)?.filesystem_type() {
            FUSE_SUPER_MAGIC => Ok(root),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Opens the present folder, mounted or not.
    pub(crate) fn hold(folder: &Path) -> io::Result<Self> {
        hold(folder)
    }

    /// A folder within it, held in the same way.
    pub(crate) fn within(&self, name: &str) -> io::Result<Self> {
        hold(&self.path(name))
    }

    /// The path of an entry, by a relative path.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))
    }
}

fn hold(folder: &Path) -> io::Result<Root> {
    let mut options = OpenOptions::new();
    // Not a request: a replica that has to wait would keep it.
    options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
    Ok(Root(options.open(folder)?))
}
