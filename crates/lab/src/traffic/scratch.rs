//! Room for the files that programs of a cell write.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use crate::emulate::Container;

/// Folders that nobody misses while a cell runs, the first that is there: the cell sees files of
/// its own in it, and nobody else sees anything of that.
const COVERED: &[&str] = &["/mnt", "/media", "/srv", "/tmp"];

/// A folder that is gone when the cell is.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// Whether it has to be removed.
    is_ordinary: bool,
}

impl Scratch {
    /// Inside a container, a file system in memory that only the container sees; it ends with the
    /// container, however that ends. Otherwise a folder under the system's one for such things.
    pub(crate) fn new(container: Option<&Container>) -> io::Result<Self> {
        if container.is_none() {
            let name = format!("lull-scratch-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path)?;
            return Ok(Scratch { path, is_ordinary: true });
        }
        let covered = COVERED.iter().map(Path::new).find(|path| path.is_dir());
        let path = covered.ok_or(io::ErrorKind::NotFound)?.to_owned();
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("lull"), &path, Some("tmpfs"), flags, Some("size=25%"))?;
        Ok(Scratch { path, is_ordinary: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_ordinary {
            // What cannot be removed here, the system's cleaning does.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
