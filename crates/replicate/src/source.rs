//! Files of others, which may be written while they are read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path as FilePath;
use std::time::UNIX_EPOCH;

use nix::fcntl::OFlag;

use crate::time::WallTime;
use crate::types::Metadata;

/// What is read at a time.
const CHUNK: usize = 64 * 1024;

/// Opens a file that has to be in a folder, whatever has been made of the names that lead to it since
/// they were looked at. `root` is the folder's path without links.
///
/// # Errors
/// If it is out of the folder, and as the system has them.
pub(crate) fn open(root: &FilePath, path: &FilePath) -> io::Result<File> {
    // Of what has become a pipe meanwhile nobody waits for the other end.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let opened = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if opened.starts_with(root) {
        Ok(file)
    } else {
        Err(io::Error::other("it lies out of the folder"))
    }
}

/// Reads a file, and looks at it before and after: its length and what it has beside its bytes, or none
/// if the two looks do not agree.
///
/// # Errors
/// If it can't be read, is no file, or `take` has failed.
pub(crate) fn read(
    mut file: File,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Option<(u64, Metadata)>> {
    let before = file.metadata()?;
    if !before.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut chunk = vec![0; CHUNK];
    let mut size = 0;
    loop {
        let count = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        take(&chunk[..count])?;
        size += count as u64;
    }
    let after = file.metadata()?;
    let modified = after.modified()?;
    if before.modified()? != modified || after.len() != size {
        return Ok(None);
    }
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let modified = WallTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
    let executable = after.permissions().mode() & 0o111 != 0;
    Ok(Some((size, Metadata { modified, executable })))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_is_written_while_it_is_read_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let path = root.join("a");
        fs::write(&path, vec![1; 3 * CHUNK]).unwrap();
        let mut bytes = Vec::new();
        let whole = read(open(&root, &path).unwrap(), |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        });
        let (size, metadata) = whole.unwrap().expect("nobody writes");
        assert_eq!((size, bytes.len(), metadata.executable), (196_608, 196_608, false));
        let mut chunks = 0;
        let during = read(open(&root, &path).unwrap(), |_| {
            chunks += 1;
            if chunks == 1 {
                // Behind what was read, and long after it was made.
                let file = File::options().append(true).open(&path)?;
                (&file).write_all(b"more")?;
                file.set_modified(UNIX_EPOCH)?;
            }
            Ok(())
        });
        assert_eq!(during.unwrap(), None);
        let pipe = root.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let pipe = open(&root, &pipe).unwrap();
        assert!(read(pipe, |_| Ok(())).is_err(), "and it does not wait for a writer");
    }

    #[test]
    fn no_file_out_of_the_folder_is_opened_whatever_its_name_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("root");
        fs::create_dir_all(root.join("d")).unwrap();
        fs::write(root.join("d/a"), "1").unwrap();
        let file = root.join("d/a");
        assert!(open(&root, &file).is_ok());
        // Somebody has put a link in the place of the folder that the file was in.
        fs::rename(root.join("d"), folder.path().join("out")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("out"), root.join("d")).unwrap();
        assert!(fs::read(&file).is_ok());
        assert_eq!(open(&root, &file).unwrap_err().to_string(), "it lies out of the folder");
    }
}
