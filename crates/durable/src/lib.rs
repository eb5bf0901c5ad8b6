//! Files that are replaced as a whole: readers see the old content or the new one, also after a crash.
//!
//! - [`replace`] and [`replace_private`] write bytes, for a file that one process owns
//! - [`replace_by`] takes the bytes from a function
//! - [`Replacement`] also rejects a second program that replaces the same file
//!
//! When they return, content and name are on the disk. A killed program leaves no part of a file behind.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("state.json");
//! lull_durable::replace(&path, b"{}")?;
//! lull_durable::replace(&path, b"{\"round\": 2}")?;
//! assert_eq!(std::fs::read_to_string(path)?, "{\"round\": 2}");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod replacement;

use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use atomic_write_file::AtomicWriteFile;
use atomic_write_file::unix::OpenOptionsExt as _;

pub use replacement::Replacement;

/// Replaces a file. Its permissions stay.
///
/// # Errors
/// If it cannot be written. The file then keeps its old content.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_by(path, |to| to.write_all(bytes))
}

/// Replaces a file by the bytes that `write` writes. Its permissions stay.
///
/// # Errors
/// If `write` fails, or the file cannot be written. The file then keeps its old content.
pub fn replace_by(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    commit(AtomicWriteFile::open(path)?, write)
}

/// Replaces a file that only its owner may read, such as a key.
///
/// # Errors
/// If it cannot be written. The file then keeps its old content.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = AtomicWriteFile::options();
    // An earlier file may have been readable by others.
    let file = options.preserve_mode(false).mode(0o600).open(path)?;
    commit(file, |to| to.write_all(bytes))
}

fn commit(
    file: AtomicWriteFile,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut to = BufWriter::new(file);
    write(&mut to)?;
    to.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn private_file_is_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace(&path, b"still shared").unwrap();
        assert_eq!(mode(&path), 0o644);
        for text in ["new", "newer"] {
            replace_private(&path, text.as_bytes()).unwrap();
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), (text, 0o600));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn failed_write_leaves_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, b"old").unwrap();
        let error = replace_by(&path, |to| {
            to.write_all(b"half")?;
            Err(io::Error::other("the disk is full"))
        });
        assert_eq!(error.unwrap_err().to_string(), "the disk is full");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert!(replace(&folder.path().join("missing/file"), b"").is_err());
    }
}
