//! What a folder has, and what makes the tree of an origin the same.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::Ordering;

use super::{ClientError, Published, Publishing};
use crate::http::origin::Entry;
use crate::http::transaction::{File, Head, What};
use crate::path::Path;
use crate::source::{self, Snapshot};

/// A file that is to be published.
#[derive(Clone, Debug)]
pub(super) struct Local {
    file: PathBuf,
    content: File,
}

/// What has to be done so that the tree has these files, and no others below `into`. The origin has the
/// bodies of the tree, and those that were `sent` to it.
pub(super) fn difference(
    files: &Files,
    tree: &BTreeMap<Path, Entry>,
    into: Option<&Path>,
    sent: &BTreeSet<String>,
) -> (Vec<(Head, Option<PathBuf>)>, Published) {
    // What the origin has lost is sent once more.
    let here = tree.values().filter(|entry| !entry.lost);
    let mut known: BTreeSet<&str> = here.map(|entry| &*entry.file.digest).collect();
    known.extend(sent.iter().map(String::as_str));
    let (mut heads, mut published) = (Vec::new(), Published::default());
    for (path, local) in files {
        let old = tree.get(path);
        let same = |old: &Entry| !old.lost && old.file.content() == local.content.content();
        if old.is_some_and(same) {
            published.unchanged += 1;
            continue;
        }
        published.put += 1;
        let (put, file) = if known.contains(&*local.content.digest) {
            (What::Stored(local.content.clone()), None)
        } else {
            published.bytes += local.content.size;
            (What::Body(local.content.clone()), Some(local.file.clone()))
        };
        heads.push((Head { path: path.to_string(), put }, file));
    }
    let below = into.map_or(&b""[..], Path::as_bytes);
    for path in tree.keys() {
        if path.is_within(below) && !files.contains_key(path) {
            published.deleted += 1;
            heads.push((Head { path: path.to_string(), put: What::Delete }, None));
        }
    }
    (heads, published)
}

/// The files of a folder by name.
pub(super) type Files = BTreeMap<Path, Local>;

/// All files of a folder, with the hashes of their bytes; and the folder's path without links.
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
    let mut files = BTreeMap::new();
    for entry in walkdir::WalkDir::new(&root) {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(&root).to_owned();
            // Without what it says around that: it names the path once more.
            let source = error.into_io_error();
            let source = source.unwrap_or_else(|| io::Error::other("links lead in a circle"));
            ClientError::File { path, source }
        })?;
        let shown = entry.path();
        let kind = entry.file_type();
        if kind.is_dir() {
            continue;
        }
        let file = if kind.is_symlink() {
            // To a file of the same folder: it becomes one more file.
            let target = shown.canonicalize().map_err(|_| ClientError::Link(shown.to_owned()))?;
            if !target.starts_with(&root) || !target.is_file() {
                return Err(ClientError::Link(shown.to_owned()));
            }
            target
        } else if kind.is_file() {
            shown.to_owned()
        } else {
            return Err(ClientError::Kind(shown.to_owned()));
        };
        let within = shown.strip_prefix(&root).unwrap_or(shown).as_os_str().as_encoded_bytes();
        let mut name = into.map_or_else(Vec::new, Path::prefix);
        name.extend(within);
        let named = |why| ClientError::Name { path: shown.to_owned(), why };
        let path = Path::from_bytes(&name).map_err(named)?;
        let content = hash(&root, &file)?;
        publishing.files.fetch_add(1, Ordering::Relaxed);
        publishing.read.fetch_add(content.size, Ordering::Relaxed);
        files.insert(path, Local { file, content });
    }
    Ok((root, files))
}

/// Looks at a file before and after it is read, until both looks agree.
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
            return Ok(File {
                digest: hasher.finalize().to_hex().to_string(),
                size,
                modified: metadata.modified.as_nanos(),
                executable: metadata.mode.is_executable(),
                mode: Some(metadata.mode.bits()),
            });
        }
    }
    Err(ClientError::Restless(path.to_owned()))
}
