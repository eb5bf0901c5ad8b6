//! Files that are there whole or not at all, whenever the program or the machine stops.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that is about to be replaced. What is written goes into a draft beside it, which takes
/// the file's place once it is on the disk; so whoever reads sees the old file or the new one.
///
/// A draft that a killed program left behind is used again, so that none pile up. Links and
/// permissions stay as they are.
#[derive(Debug)]
pub struct Replacement {
    path: PathBuf,
    draft: PathBuf,
    file: File,
    permissions: Option<Permissions>,
}

impl Replacement {
    /// Begins to replace a file, which nobody else can do until this one has ended.
    ///
    /// # Errors
    /// If something else than a file is there, if another program is replacing it, or if nothing
    /// can be written beside it.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let path = match fs::canonicalize(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
            result => result?,
        };
        let permissions = match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
            Ok(there) if !there.is_file() => {
                return Err(io::Error::new(ErrorKind::InvalidInput, "it is there, and no file"));
            }
            Ok(there) => Some(there.permissions()),
        };
        let draft = draft(&path)?;
        let file = claim(&draft)?;
        Ok(Replacement { path, draft, file, permissions })
    }

    /// Replaces the file by what `write` writes.
    ///
    /// # Errors
    /// If it cannot be written. The file is as it was then.
    pub fn finish(
        mut self,
        write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.file.set_len(0)?;
        if let Some(permissions) = self.permissions.take() {
            self.file.set_permissions(permissions)?;
        }
        let mut to = BufWriter::new(&self.file);
        write(&mut to)?;
        to.flush()?;
        drop(to);
        self.file.sync_all()?;
        fs::rename(&self.draft, &self.path)?;
        // The new name is on the disk once the folder is.
        File::open(folder(&self.path))?.sync_all()
    }
}

impl Drop for Replacement {
    /// Removes the draft, as long as there is one: it may take the room that was missing.
    fn drop(&mut self) {
        if is_at(&self.file, &self.draft).unwrap_or(false) {
            let _ = fs::remove_file(&self.draft);
        }
    }
}

/// Where the draft of a file lies: beside it, so that it can take its place.
fn draft(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it has no name of a file"))?;
    let mut draft = OsString::from(".");
    draft.push(name);
    draft.push(".draft");
    Ok(folder(path).join(draft))
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Opens a draft that nobody else writes.
fn claim(draft: &Path) -> io::Result<File> {
    let busy = || io::Error::new(ErrorKind::ResourceBusy, "another program is writing it");
    let file = OpenOptions::new().create(true).write(true).truncate(false).open(draft)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(busy()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Whoever had it before may have put it in its place meanwhile: then this is no draft any more.
    if is_at(&file, draft).unwrap_or(false) { Ok(file) } else { Err(busy()) }
}

/// Whether a path leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (own, there) = (file.metadata()?, fs::symlink_metadata(path)?);
    Ok((own.dev(), own.ino()) == (there.dev(), there.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn replace(
        path: &Path,
        write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> io::Result<()> {
        Replacement::begin(path)?.finish(write)
    }

    fn text(words: &'static str) -> impl FnOnce(&mut BufWriter<&File>) -> io::Result<()> {
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
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        for words in ["one, which is longer", "two"] {
            replace(&path, text(words)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), words);
        }
        assert_eq!(names(folder.path()), ["model"]);
    }

    #[test]
    fn what_fails_leaves_the_file_as_it_was() {
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
    fn a_draft_of_a_killed_program_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        fs::write(folder.path().join(".model.draft"), "half of something much longer").unwrap();
        replace(&path, text("whole")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(names(folder.path()), ["model"]);
    }

    #[test]
    fn what_is_begun_and_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        drop(Replacement::begin(&path).unwrap());
        assert_eq!(names(folder.path()), [] as [&str; 0]);
    }

    #[test]
    fn two_programs_do_not_write_one_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let first = Replacement::begin(&path).unwrap();
        assert_eq!(Replacement::begin(&path).unwrap_err().kind(), ErrorKind::ResourceBusy);
        first.finish(text("first")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
    }

    #[test]
    fn permissions_and_links_stay_as_they_are() {
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
    fn what_is_no_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        assert!(replace(folder.path(), text("x")).is_err());
        assert!(replace(Path::new("/dev/null"), text("x")).is_err());
        assert!(replace(&folder.path().join("missing/model"), text("x")).is_err());
        assert_eq!(names(folder.path()), [] as [&str; 0]);
    }
}
