//! Puts fetched objects into files, links and folders.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use blake3::Hasher;
use lull_replication::path::Path;
use lull_replication::types::{Content, Digest, Kind, PIECE, Version};

use super::{FetchError, FetchProgress, Fetcher, FilePart, Stream, Target};

/// An object that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Its name.
    pub name: Path,
    /// Its version.
    pub version: Version,
    /// Where it is; none if it went to a stream.
    pub file: Option<PathBuf>,
    /// Bytes that were on the disk before.
    pub resumed: u64,
}

impl Fetcher {
    /// Writes the only object of a name to a stream.
    ///
    /// # Errors
    /// If it is not a single file, or does not arrive.
    pub async fn write_to(
        &self,
        objects: &[(Path, Version)],
        to: impl Write,
        progress: &FetchProgress,
    ) -> Result<Fetched, FetchError> {
        let [(name, version)] = objects else {
            return Err(FetchError::NotOneFile(objects[0].0.clone()));
        };
        if version.content.metadata.kind != Kind::File {
            return Err(FetchError::NotOneFile(name.clone()));
        }
        progress.total.fetch_add(version.content.size.0, Ordering::Relaxed);
        let mut target = Stream::new(to);
        let version = self.get(name, *version, &mut target, progress).await?;
        target.finish()?;
        Ok(Fetched { name: name.clone(), version, file: None, resumed: 0 })
    }

    /// Puts the objects of a name, which are all of it, to `destination`: a file, or a folder with what is below the
    /// name. `on_fetched` is called for each.
    ///
    /// # Errors
    /// If one does not arrive, or cannot be written.
    pub async fn place(
        &self,
        (name, objects): (Option<&Path>, &[(Path, Version)]),
        destination: &FilePath,
        progress: &FetchProgress,
        mut on_fetched: impl FnMut(Fetched),
    ) -> Result<(), FetchError> {
        let sizes = objects.iter().map(|(_, version)| version.content.size.0);
        progress.total.fetch_add(sizes.sum(), Ordering::Relaxed);
        let mut folders = Vec::new();
        for (path, version) in objects {
            let file = file_of(name, path, destination);
            make_parents(destination, &file)?;
            let fetched = self.place_one(path, *version, file, progress).await?;
            if let (Kind::Folder, Some(folder)) = (version.content.metadata.kind, &fetched.file) {
                folders.push((folder.clone(), version.content));
            }
            on_fetched(fetched);
        }
        // At the end: a folder may not be writable, and its time changes with each file. The deepest come first.
        for (folder, content) in folders.iter().rev() {
            set_metadata(folder, content)?;
        }
        Ok(())
    }

    async fn place_one(
        &self,
        path: &Path,
        version: Version,
        file: PathBuf,
        progress: &FetchProgress,
    ) -> Result<Fetched, FetchError> {
        let failed = |source| FetchError::File { path: file.clone(), source };
        let of = |version, resumed| Fetched {
            name: path.clone(),
            version,
            file: Some(file.clone()),
            resumed,
        };
        match version.content.metadata.kind {
            Kind::Folder => {
                match fs::create_dir(&file) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(failed(error));
                    }
                    _ => {}
                }
                refuse_link(&file)?;
                Ok(of(version, 0))
            }
            Kind::Link => {
                let mut to = Vec::new();
                let mut target = Stream::new(&mut to);
                let version = self.get(path, version, &mut target, progress).await?;
                target.finish()?;
                remove_other(&file).map_err(failed)?;
                symlink(OsStr::from_bytes(&to), &file).map_err(failed)?;
                Ok(of(version, 0))
            }
            Kind::File => {
                if is_here(&file, &version.content) {
                    progress.here.fetch_add(version.content.size.0, Ordering::Relaxed);
                    set_metadata(&file, &version.content)?;
                    return Ok(of(version, version.content.size.0));
                }
                let (version, resumed) = self.place_file(path, version, &file, progress).await?;
                Ok(of(version, resumed))
            }
        }
    }

    async fn place_file(
        &self,
        path: &Path,
        version: Version,
        file: &FilePath,
        progress: &FetchProgress,
    ) -> Result<(Version, u64), FetchError> {
        let mut part = FilePart::open(file, &version.content)?;
        let mut resumed = part.bytes();
        progress.here.fetch_add(resumed, Ordering::Relaxed);
        let mut version = version;
        loop {
            version = self.get(path, version, &mut part, progress).await?;
            let bytes = part.bytes();
            match part.finish(file, &version.content.digest)? {
                None => break,
                // The part on the disk is of another version.
                Some(again) => {
                    progress.here.fetch_sub(bytes, Ordering::Relaxed);
                    (part, resumed) = (again, 0);
                }
            }
        }
        set_metadata(file, &version.content)?;
        Ok((version, resumed))
    }
}

/// Where an object belongs: `name` itself is the destination.
fn file_of(name: Option<&Path>, path: &Path, destination: &FilePath) -> PathBuf {
    let below = match name {
        Some(name) => &path.as_bytes()[name.as_bytes().len()..],
        None => path.as_bytes(),
    };
    let below = below.strip_prefix(b"/").unwrap_or(below);
    if below.is_empty() {
        destination.to_owned()
    } else {
        destination.join(OsStr::from_bytes(below))
    }
}

/// Makes the folders of a file below the destination. None of them may be a link, which could lead out of it.
fn make_parents(destination: &FilePath, file: &FilePath) -> Result<(), FetchError> {
    if file == destination {
        return Ok(());
    }
    let parents: Vec<_> =
        file.ancestors().skip(1).take_while(|one| one.starts_with(destination)).collect();
    for folder in parents.into_iter().rev() {
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(FetchError::File { path: folder.to_owned(), source: error });
            }
            _ => {}
        }
        if folder != destination {
            refuse_link(folder)?;
        }
    }
    Ok(())
}

fn refuse_link(folder: &FilePath) -> Result<(), FetchError> {
    let is_link = fs::symlink_metadata(folder).is_ok_and(|of| of.is_symlink());
    if is_link { Err(FetchError::IsLink(folder.to_owned())) } else { Ok(()) }
}

/// Removes what a link replaces.
fn remove_other(file: &FilePath) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a file has this content.
fn is_here(file: &FilePath, content: &Content) -> bool {
    let is_file = |of: fs::Metadata| of.is_file() && of.len() == content.size.0;
    if !fs::symlink_metadata(file).is_ok_and(is_file) {
        return false;
    }
    digest_of(file).is_ok_and(|digest| digest == content.digest)
}

fn digest_of(file: &FilePath) -> io::Result<Digest> {
    let (mut file, mut hasher) = (File::open(file)?, Hasher::new());
    let mut bytes = vec![0; PIECE];
    while let count @ 1.. = file.read(&mut bytes)? {
        hasher.update(&bytes[..count]);
    }
    Ok(Digest(*hasher.finalize().as_bytes()))
}

/// Sets permissions and time.
fn set_metadata(file: &FilePath, content: &Content) -> Result<(), FetchError> {
    let failed = |source| FetchError::File { path: file.to_owned(), source };
    let since = u64::try_from(content.metadata.modified.as_nanos()).unwrap_or(0);
    let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(since);
    let opened = File::open(file).map_err(failed)?;
    opened.set_modified(modified).map_err(failed)?;
    let mode = content.metadata.mode.bits();
    opened.set_permissions(Permissions::from_mode(mode.into())).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_placed_below_the_destination() {
        let path = |text: &str| Path::new(text).unwrap();
        let of = |name: Option<&str>, object: &str| {
            let name = name.map(path);
            file_of(name.as_ref(), &path(object), FilePath::new("out"))
        };
        assert_eq!(of(Some("a/b"), "a/b"), FilePath::new("out"));
        assert_eq!(of(Some("a/b"), "a/b/c/d"), FilePath::new("out/c/d"));
        assert_eq!(of(None, "a/b"), FilePath::new("out/a/b"));
    }

    #[test]
    fn link_in_the_destination_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        fs::create_dir_all(&out).unwrap();
        symlink(folder.path(), out.join("a")).unwrap();
        let made = make_parents(&out, &out.join("a/b/c"));
        assert!(matches!(made, Err(FetchError::IsLink(link)) if link == out.join("a")));
        make_parents(&out, &out.join("d/e/f")).unwrap();
        assert!(out.join("d/e").is_dir());
    }
}
