//! The contents of a folder, and the changes that make the tree of an origin equal.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::Ordering;

use lull_cc::Bytes;
use lull_replication::path::Path;
use lull_replication::types::{Content, Digest, MAX_BODY_BYTES};

use super::{ClientError, Published, Publishing};
use crate::http::origin::Entry;
use crate::http::transaction::{File, Head, ObjectKind, PutContent};
use crate::source::{self, Snapshot};

/// An object to be published.
#[derive(Clone, Debug)]
pub(super) struct Local {
    file: PathBuf,
    content: File,
}

/// The changes that give the tree these files, and no others below `into`. The origin has the bodies of the
/// tree, and those that were `sent` to it.
pub(super) fn difference(
    files: &Files,
    tree: &BTreeMap<Path, Entry>,
    into: Option<&Path>,
    sent: &BTreeSet<String>,
) -> (Vec<(Head, Option<PathBuf>)>, Published) {
    // Bodies that the origin has lost are sent again.
    let here = tree.values().filter(|entry| !entry.lost);
    let mut known: BTreeSet<&str> = here.map(|entry| &*entry.file.digest).collect();
    known.extend(sent.iter().map(String::as_str));
    let (mut heads, mut published) = (Vec::new(), Published::default());
    for (path, local) in files {
        let old = tree.get(path);
        let same = |old: &Entry| !old.lost && old.file.content() == local.content.content();
        if old.is_some_and(same) {
            published.unchanged += counted(&local.content);
            continue;
        }
        published.put += counted(&local.content);
        let (put, file) = if known.contains(&*local.content.digest) {
            (PutContent::Stored(local.content.clone()), None)
        } else {
            published.bytes += local.content.size;
            (PutContent::Body(local.content.clone()), Some(local.file.clone()))
        };
        heads.push((Head { path: path.to_string(), put }, file));
    }
    let below = into.map_or(&b""[..], Path::as_bytes);
    for (path, entry) in tree {
        if path.is_within(below) && !files.contains_key(path) {
            published.deleted += counted(&entry.file);
            heads.push((Head { path: path.to_string(), put: PutContent::Delete }, None));
        }
    }
    (heads, published)
}

/// The identity of the files of a published folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeDigest {
    /// How many files there are, without links and folders.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// BLAKE3 of the lines that `b3sum` prints for the files, sorted by the bytes of their names in the folder.
    pub digest: Digest,
}

impl TreeDigest {
    pub(super) fn of(files: &Files, into: Option<&Path>) -> Self {
        let (mut hasher, mut tree) = (blake3::Hasher::new(), TreeDigest::default());
        let within = into.map_or_else(Vec::new, Path::prefix);
        for (path, Local { content, .. }) in files {
            if content.kind != ObjectKind::File {
                continue;
            }
            (tree.files, tree.bytes) = (tree.files + 1, tree.bytes + content.size);
            let name = path.as_bytes().strip_prefix(&within[..]).unwrap_or(path.as_bytes());
            let escaped = escaped(name);
            // As of GNU's `md5sum`: such a line begins with a backslash.
            hasher.update(if escaped.len() > name.len() { b"\\" } else { b"" });
            hasher.update(content.digest.as_bytes());
            hasher.update(b"  ");
            hasher.update(&escaped);
            hasher.update(b"\n");
        }
        tree.digest = Digest(*hasher.finalize().as_bytes());
        tree
    }
}

/// A name in a line of `b3sum`.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in name {
        match byte {
            b'\\' => text.extend(b"\\\\"),
            b'\n' => text.extend(b"\\n"),
            b'\r' => text.extend(b"\\r"),
            other => text.push(*other),
        }
    }
    text
}

/// Folders are not counted.
fn counted(content: &File) -> u64 {
    u64::from(content.kind != ObjectKind::Folder)
}

/// The objects of a folder by name.
pub(super) type Files = BTreeMap<Path, Local>;

/// Whether there are no entries except folders.
pub(super) fn is_empty(files: &Files) -> bool {
    files.values().all(|local| local.content.kind == ObjectKind::Folder)
}

/// All entries of a folder, with the hashes of the bodies; and the folder's path without links. With `into`,
/// the folder itself is an object as well.
///
/// # Errors
/// All unpublishable entries.
pub(super) fn scan(
    source: &FilePath,
    into: Option<&Path>,
    publishing: &Publishing,
) -> Result<(PathBuf, Files), ClientError> {
    let unreadable = |path: &FilePath, source| ClientError::File { path: path.to_owned(), source };
    let root = source.canonicalize().map_err(|error| unreadable(source, error))?;
    if !root.is_dir() {
        let error = io::Error::from(io::ErrorKind::NotADirectory);
        return Err(unreadable(source, error));
    }
    let (mut files, mut errors) = (BTreeMap::new(), Vec::new());
    let mut entries = walkdir::WalkDir::new(&root).into_iter();
    while let Some(entry) = entries.next() {
        let is_folder = entry.as_ref().is_ok_and(|entry| entry.file_type().is_dir());
        let object = entry.map_err(|error| of_walk(error, &root));
        match object.and_then(|entry| local(&root, into, &entry)) {
            Ok(Some((path, local))) => {
                publishing.files.fetch_add(1, Ordering::Relaxed);
                publishing.read.fetch_add(local.content.size, Ordering::Relaxed);
                files.insert(path, local);
            }
            Ok(None) => {}
            Err(error) => {
                errors.push(error);
                if is_folder {
                    // One line covers everything below.
                    entries.skip_current_dir();
                }
            }
        }
    }
    match errors.pop() {
        None => Ok((root, files)),
        Some(only) if errors.is_empty() => Err(only),
        Some(last) => {
            errors.push(last);
            Err(ClientError::Several(errors))
        }
    }
}

/// Without the text that `walkdir` puts around its cause: that repeats the path.
fn of_walk(error: walkdir::Error, root: &FilePath) -> ClientError {
    let path = error.path().unwrap_or(root).to_owned();
    let source = error.into_io_error();
    let source = source.unwrap_or_else(|| io::Error::other("the links form a loop"));
    ClientError::File { path, source }
}

/// The object for an entry of the folder; none if the entry is not published.
fn local(
    root: &FilePath,
    into: Option<&Path>,
    entry: &walkdir::DirEntry,
) -> Result<Option<(Path, Local)>, ClientError> {
    let file = entry.path();
    let within = file.strip_prefix(root).unwrap_or(file).as_os_str().as_encoded_bytes();
    let name = match into {
        Some(into) if within.is_empty() => into.as_bytes().to_owned(),
        // The root of the tree has no name.
        None if within.is_empty() => return Ok(None),
        into => [&into.map_or_else(Vec::new, Path::prefix), within].concat(),
    };
    let named = |why| ClientError::Name { path: file.to_owned(), why };
    let path = Path::from_bytes(&name).map_err(named)?;
    let failed = |source| ClientError::File { path: file.to_owned(), source };
    let kind = entry.file_type();
    let content = if kind.is_dir() {
        File::from_content(&source::folder(&file.symlink_metadata().map_err(failed)?))
    } else if kind.is_symlink() {
        let link = source::link(file).map_err(failed)?;
        File::from_content(&link.ok_or_else(|| ClientError::Restless(file.to_owned()))?.1)
    } else if kind.is_file() {
        hash(root, file)?
    } else {
        return Err(ClientError::Kind(file.to_owned()));
    };
    if content.size > MAX_BODY_BYTES.0 {
        return Err(ClientError::Large(file.to_owned()));
    }
    Ok(Some((path, Local { file: file.to_owned(), content })))
}

/// Checks a file before and after reading it, until both checks agree.
pub(super) fn hash(root: &FilePath, path: &FilePath) -> Result<File, ClientError> {
    const TRIES: usize = 5;
    for _ in 0..TRIES {
        let mut hasher = blake3::Hasher::new();
        let take = |bytes: &[u8]| {
            hasher.update(bytes);
            Ok(())
        };
        let read = source::open(root, path).and_then(|file| source::read(file, take));
        let failed = |source| ClientError::File { path: path.to_owned(), source };
        if let Some(Snapshot { size, metadata, .. }) = read.map_err(failed)? {
            let digest = Digest(*hasher.finalize().as_bytes());
            return Ok(File::from_content(&Content { digest, size: Bytes(size), metadata }));
        }
    }
    Err(ClientError::Restless(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tree_digest_is_that_of_the_lines_of_b3sum() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        for (name, text) in [("b/2", "two"), ("a\\\n", "one"), ("b-1", "three")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("a", folder.path().join("link")).unwrap();
        let line = |text: &[u8]| blake3::hash(text).to_hex();
        let lines = format!(
            "\\{}  a\\\\\\n\n{}  b-1\n{}  b/2\n",
            line(b"one"),
            line(b"three"),
            line(b"two"),
        );
        let expected = TreeDigest { files: 3, bytes: 11, digest: Digest::of(lines.as_bytes()) };
        for into in [None, Some(Path::new("docs/en").unwrap())] {
            let (_, files) = scan(folder.path(), into.as_ref(), &Publishing::default()).unwrap();
            assert_eq!(TreeDigest::of(&files, into.as_ref()), expected);
        }
    }
}
