//! A file that is about to be replaced, locked against other programs.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;

/// A file that is about to be replaced. Readers see the old content or the new one. The new content has no name until
/// it is complete, so a killed program leaves nothing behind. Symbolic links and permissions stay.
#[derive(Debug)]
pub struct Replacement {
    file: AtomicWriteFile,
    /// Keeps other programs from replacing the same file. A file that does not exist yet cannot be locked.
    _lock: Option<File>,
}

impl Replacement {
    /// Begins to replace a file. No other program can begin until this one has ended.
    ///
    /// # Errors
    /// If the path is not a file, if another program is replacing it, or if its folder is not writable.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let (path, lock) = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => (path.to_owned(), None),
            Err(error) => return Err(error),
            Ok(there) if !there.metadata()?.is_file() => {
                return Err(io::Error::new(ErrorKind::InvalidInput, "it exists and is not a file"));
            }
            Ok(there) => lock(path, there)?,
        };
        Ok(Replacement { file: AtomicWriteFile::open(path)?, _lock: lock })
    }

    /// Replaces the file by what `write` writes, and waits until it is on disk.
    ///
    /// # Errors
    /// If it cannot be written. The file then keeps its old content.
    pub fn finish(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        crate::commit(self.file, write)
    }
}

/// Locks a file that is open, and returns its path without symbolic links.
fn lock(path: &Path, file: File) -> io::Result<(PathBuf, Option<File>)> {
    let busy = || io::Error::new(ErrorKind::ResourceBusy, "another program is writing it");
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(busy()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Another program may have replaced the file before the lock.
    let (own, there) = (file.metadata()?, fs::metadata(path)?);
    if (own.dev(), own.ino()) != (there.dev(), there.ino()) {
        return Err(busy());
    }
    Ok((fs::canonicalize(path)?, Some(file)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn replace(
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        Replacement::begin(path)?.finish(write)
    }

    fn text(words: &'static str) -> impl FnOnce(&mut dyn Write) -> io::Result<()> {
        move |to| to.write_all(words.as_bytes())
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn replaced_file_is_the_only_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        for words in ["one, which is longer", "two"] {
            replace(&path, text(words)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), words);
        }
        assert_eq!(names(folder.path()), ["model"]);
    }

    #[test]
    fn failed_write_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        replace(&path, text("old")).unwrap();
        let error = replace(&path, |to| {
            to.write_all(b"half")?;
            to.flush()?;
            Err(io::Error::other("the disk is full"))
        });
        assert_eq!(error.unwrap_err().to_string(), "the disk is full");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["model"]);
    }

    #[test]
    fn unfinished_replacement_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let replacement = Replacement::begin(&path).unwrap();
        // A killed program does not drop it, so nothing may have a name now.
        assert_eq!(names(folder.path()), [] as [&str; 0]);
        drop(replacement);
        assert_eq!(names(folder.path()), [] as [&str; 0]);
    }

    #[test]
    fn second_replacement_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        replace(&path, text("old")).unwrap();
        let first = Replacement::begin(&path).unwrap();
        assert_eq!(Replacement::begin(&path).unwrap_err().kind(), ErrorKind::ResourceBusy);
        first.finish(text("first")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        replace(&path, text("second")).unwrap();
    }

    #[test]
    fn permissions_and_links_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("model"), folder.path().join("link"));
        replace(&path, text("old")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("model", &link).unwrap();
        replace(&link, text("new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn other_files_than_regular_ones_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        assert!(replace(folder.path(), text("x")).is_err());
        assert!(replace(Path::new("/dev/null"), text("x")).is_err());
        assert!(replace(&folder.path().join("missing/model"), text("x")).is_err());
        assert_eq!(names(folder.path()), [] as [&str; 0]);
    }
}
