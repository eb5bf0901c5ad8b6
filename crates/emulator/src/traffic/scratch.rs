//! The folder for files of a cell's programs.

use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use tempfile::TempDir;

use crate::Container;

/// Folders that a cell does not need. The first one that exists and contains nothing needed is covered: the
/// cell sees its own files in it, and no other process does.
const COVERED: &[&str] = &["/mnt", "/media", "/srv", "/tmp"];

/// A folder that is removed with the cell.
#[derive(Debug)]
pub enum Scratch {
    /// Covered by a file system that ends with the container.
    Covered(PathBuf),
    /// For this cell only, separate from other cells of this process; removed when dropped.
    Ordinary(TempDir),
}

impl Scratch {
    /// Inside a container, a file system in memory that only the container sees; it ends with the container
    /// in any case. Otherwise a folder in the system's temporary one. `needed` are the paths that stay
    /// visible, besides this program and its working directory.
    pub fn new(container: Option<&Container>, needed: &[PathBuf]) -> io::Result<Self> {
        if container.is_none() {
            return tempfile::Builder::new().prefix("lull-scratch-").tempdir().map(Self::Ordinary);
        }
        let own = [std::env::current_exe(), std::env::current_dir()].into_iter().flatten();
        let needed: Vec<PathBuf> = own.chain(needed.iter().cloned()).collect();
        let covered = first_free(COVERED.iter().map(Path::new), &needed);
        let path = covered.ok_or_else(|| {
            let text = format!(
                "no folder can be covered with a file system in memory: each of {} is missing, or \
                 holds this program, its working directory or the results (--out): create one of \
                 them",
                COVERED.join(", ")
            );
            io::Error::new(io::ErrorKind::NotFound, text)
        })?;
        let path = path.to_owned();
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("lull"), &path, Some("tmpfs"), flags, Some("size=25%"))?;
        Ok(Self::Covered(path))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::Covered(path) => path,
            Self::Ordinary(folder) => folder.path(),
        }
    }
}

/// The first folder that exists and contains none of the needed paths.
fn first_free<'a>(
    mut folders: impl Iterator<Item = &'a Path>,
    needed: &[PathBuf],
) -> Option<&'a Path> {
    // A missing path cannot be hidden; its name counts, because it may still be created.
    let real = |path: &Path| {
        path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or(path.to_owned())
    };
    let needed: Vec<PathBuf> = needed.iter().map(|path| real(path)).collect();
    folders.find(|folder| {
        folder.is_dir() && !needed.iter().any(|needed| needed.starts_with(real(folder)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_one_process_have_separate_folders() {
        let [one, other] = [(), ()].map(|()| Scratch::new(None, &[]).unwrap());
        let gone = one.path().to_owned();
        drop(one);
        assert!(!gone.exists() && other.path().is_dir());
    }

    #[test]
    fn needed_folder_is_never_mounted_over() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let folders = ["missing", "one", "two", "three"].map(path);
        for folder in &folders[1..] {
            std::fs::create_dir(folder).unwrap();
        }
        let free = |needed: &[PathBuf]| {
            let found = first_free(folders.iter().map(PathBuf::as_path), needed);
            found.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        };
        assert_eq!(free(&[]).as_deref(), Some("one"));
        // The folder itself, a file that will be created in it, and the target of a link.
        assert_eq!(free(&[path("one")]).as_deref(), Some("two"));
        assert_eq!(free(&[path("one/yet/to/be/made")]).as_deref(), Some("two"));
        std::os::unix::fs::symlink(path("two"), path("link")).unwrap();
        assert_eq!(free(&[path("one"), path("link")]).as_deref(), Some("three"));
        // A name with the same prefix is another folder.
        assert_eq!(free(&[path("one-more")]).as_deref(), Some("one"));
        assert_eq!(free(&[root.path().to_owned()]).as_deref(), Some("one"));
        assert_eq!(free(&["one", "two", "three"].map(path)), None);
    }
}
