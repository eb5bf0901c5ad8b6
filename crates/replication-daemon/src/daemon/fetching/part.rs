//! Where the bytes of a body go: a file beside its destination, or a stream.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path as FilePath, PathBuf};

use blake3::Hasher;
use lull_replication::types::{Content, Digest, PIECE};

use super::FetchError;

/// Suffix of the name of an incomplete file.
const SUFFIX: &str = ".lull-part";
/// Digits of the hash in its name: a part of another version is of no use.
const DIGITS: usize = 16;

/// Takes the bytes of a body in order.
pub trait Target {
    /// How many whole pieces it has.
    fn pieces(&self) -> u32;

    /// How many bytes it has.
    fn bytes(&self) -> u64;

    /// The next bytes.
    ///
    /// # Errors
    /// If they cannot be written.
    fn write(&mut self, bytes: &[u8]) -> Result<(), FetchError>;

    /// Another body begins. Returns whether that is possible.
    ///
    /// # Errors
    /// If the first bytes cannot be discarded.
    fn restart(&mut self) -> Result<bool, FetchError>;
}

fn pieces(bytes: u64) -> u32 {
    u32::try_from(bytes / PIECE as u64).unwrap_or(u32::MAX)
}

/// A file that has arrived in part. It stays when the process is killed.
pub(super) struct FilePart {
    path: PathBuf,
    file: File,
    hasher: Hasher,
    bytes: u64,
}

impl FilePart {
    /// The part of a file with this content: a new one, or what an earlier process has left. The parts of other versions
    /// are deleted.
    pub(super) fn open(destination: &FilePath, content: &Content) -> Result<Self, FetchError> {
        let path = path_of(destination, &content.digest);
        let failed = |source| FetchError::File { path: path.clone(), source };
        delete_others(destination, &path);
        let options = File::options().read(true).write(true).create(true).truncate(false).clone();
        let file = options.open(&path).map_err(failed)?;
        let mut part = FilePart { path: path.clone(), file, hasher: Hasher::new(), bytes: 0 };
        part.resume(content.size.0).map_err(failed)?;
        Ok(part)
    }

    /// Reads the whole pieces that are here, of a body of `size` bytes. Its last piece comes in any case.
    fn resume(&mut self, size: u64) -> io::Result<()> {
        let length = self.file.metadata()?.len().min(size.saturating_sub(1));
        let whole = length / PIECE as u64 * PIECE as u64;
        let mut prefix = (&self.file).take(whole);
        let mut piece = vec![0; PIECE];
        while let count @ 1.. = prefix.read(&mut piece)? {
            self.hasher.update(&piece[..count]);
        }
        self.bytes = whole;
        self.file.set_len(whole)?;
        self.file.seek(io::SeekFrom::Start(whole)).map(drop)
    }

    /// Makes it the destination, if all of it has this hash. Otherwise its bytes are deleted, and it begins again.
    pub(super) fn finish(
        mut self,
        destination: &FilePath,
        digest: &Digest,
    ) -> Result<Option<Self>, FetchError> {
        let path = self.path.clone();
        if Digest(*self.hasher.finalize().as_bytes()) != *digest {
            self.restart()?;
            return Ok(Some(self));
        }
        let done = self.file.sync_all().and_then(|()| fs::rename(&path, destination));
        done.map_err(|source| FetchError::File { path: destination.to_owned(), source })?;
        Ok(None)
    }
}

impl Target for FilePart {
    fn pieces(&self) -> u32 {
        pieces(self.bytes)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        let failed = |source| FetchError::File { path: self.path.clone(), source };
        self.file.write_all(bytes).map_err(failed)?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn restart(&mut self) -> Result<bool, FetchError> {
        let failed = |source| FetchError::File { path: self.path.clone(), source };
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(failed)?;
        (self.hasher, self.bytes) = (Hasher::new(), 0);
        Ok(true)
    }
}

/// The name of the part of a file.
fn path_of(destination: &FilePath, digest: &Digest) -> PathBuf {
    let mut name = stem(destination);
    name.push(&digest.to_string()[..DIGITS]);
    name.push(SUFFIX);
    destination.with_file_name(name)
}

/// The common prefix of the names of a file's parts.
fn stem(destination: &FilePath) -> OsString {
    let mut name = OsString::from(".");
    name.push(destination.file_name().unwrap_or_default());
    name.push(".");
    name
}

/// Deletes the parts of other versions.
fn delete_others(destination: &FilePath, kept: &FilePath) {
    let Some(folder) = destination.parent() else { return };
    let folder = if folder.as_os_str().is_empty() { FilePath::new(".") } else { folder };
    let Ok(entries) = fs::read_dir(folder) else { return };
    let stem = stem(destination).into_encoded_bytes();
    for entry in entries.flatten() {
        let name = entry.file_name().into_encoded_bytes();
        let rest =
            name.strip_prefix(&stem[..]).and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
        let is_part =
            rest.is_some_and(|rest| rest.len() == DIGITS && rest.iter().all(u8::is_ascii_hexdigit));
        if is_part && Some(&*entry.file_name()) != kept.file_name() {
            // One that stays takes space only.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A stream, to which each piece is written once.
pub(super) struct Stream<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Stream<W> {
    pub(super) fn new(to: W) -> Self {
        Stream { to, bytes: 0 }
    }

    pub(super) fn finish(mut self) -> Result<(), FetchError> {
        self.to.flush().map_err(of_stream)
    }
}

fn of_stream(source: io::Error) -> FetchError {
    FetchError::File { path: PathBuf::from("-"), source }
}

impl<W: Write> Target for Stream<W> {
    fn pieces(&self) -> u32 {
        pieces(self.bytes)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        self.to.write_all(bytes).map_err(of_stream)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn restart(&mut self) -> Result<bool, FetchError> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;
    use lull_replication::types::Metadata;

    use super::*;

    fn content(bytes: &[u8]) -> Content {
        let (digest, size) = (Digest::of(bytes), Bytes(bytes.len() as u64));
        Content { digest, size, metadata: Metadata::default() }
    }

    #[test]
    fn part_continues_at_its_last_whole_piece() {
        let folder = tempfile::tempdir().unwrap();
        let destination = folder.path().join("image.iso");
        let bytes: Vec<u8> = (0..3 * PIECE + 7).map(|at| (at % 251) as u8).collect();
        let (digest, other) = (Digest::of(&bytes), Digest::of(b"another version"));
        let content = content(&bytes);
        let all = bytes.len();
        for (length, whole) in [(0, 0), (PIECE - 1, 0), (PIECE, 1), (2 * PIECE + 5, 2), (all, 3)] {
            fs::write(path_of(&destination, &digest), &bytes[..length]).unwrap();
            fs::write(path_of(&destination, &other), b"old").unwrap();
            let mut part = FilePart::open(&destination, &content).unwrap();
            assert_eq!(part.pieces(), whole, "{length} bytes");
            part.write(&bytes[whole as usize * PIECE..]).unwrap();
            assert!(part.finish(&destination, &digest).unwrap().is_none());
            assert!(fs::read(&destination).unwrap() == bytes);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no part is left");
        }
    }

    #[test]
    fn part_with_wrong_bytes_begins_again() {
        let folder = tempfile::tempdir().unwrap();
        let destination = folder.path().join("image.iso");
        let bytes = vec![7; PIECE + 1];
        let digest = Digest::of(&bytes);
        fs::write(path_of(&destination, &digest), vec![8; PIECE]).unwrap();
        let mut part = FilePart::open(&destination, &content(&bytes)).unwrap();
        part.write(&bytes[PIECE..]).unwrap();
        let mut part = part.finish(&destination, &digest).unwrap().unwrap();
        assert_eq!((part.pieces(), destination.exists()), (0, false));
        part.write(&bytes).unwrap();
        assert!(part.finish(&destination, &digest).unwrap().is_none());
    }
}
