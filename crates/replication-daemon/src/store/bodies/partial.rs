//! Bodies that have arrived in part: a later connection, or the next process, continues behind their last piece.
//!
//! ```text
//!           take                   all bytes are here
//!   idle ──────────▶ in transit ───────────────────────▶ (a body, which the store renames)
//!    ▲                 │
//!    └─────────────────┤ broken off
//!                      └▶ (deleted) no room, or nothing of it is here
//! ```
//!
//! Each is a file under the hash of the body. Nothing is synced before the body is whole, so after a crash of the machine
//! a file may contain other bytes: the hash of the whole body shows that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blake3::Hasher;
use lull_cc::Bytes;
use lull_replication::types::{Digest, PIECE};
use object_store::path::Path as Name;

/// The folder, among those of the bodies.
const FOLDER: &str = "partial";
/// The end of their names, behind the hash.
const SUFFIX: &str = ".part";
/// How many are kept.
const MOST: usize = 16;
/// How many bytes they have, if there is no quota: as much as the largest body.
const MOST_BYTES: u64 = 16 << 30;

/// The bodies of a store that have arrived in part.
#[derive(Clone, Debug)]
pub(super) struct Partials(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    most_bytes: u64,
    all: BTreeMap<Digest, State>,
    /// Counts the uses.
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Its bytes, and when it was used last.
    Idle(u64, u64),
    InTransit,
}

impl Partials {
    /// The partial bodies in a folder of bodies.
    pub(super) fn open(bodies: &FilePath) -> io::Result<Self> {
        let folder = bodies.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let digits = name.strip_suffix(SUFFIX);
            let digest = digits.and_then(|digits| blake3::Hash::from_hex(digits).ok());
            match digest {
                Some(digest) => {
                    let metadata = entry.metadata()?;
                    found.push((metadata.modified()?, Digest(*digest.as_bytes()), metadata.len()));
                }
                None => fs::remove_file(entry.path())?,
            }
        }
        found.sort();
        let mut inner = Inner { folder, most_bytes: MOST_BYTES, all: BTreeMap::new(), uses: 0 };
        for (_, digest, bytes) in found {
            inner.rest(digest, bytes);
        }
        Ok(Partials(Arc::new(Mutex::new(inner))))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps at most this many bytes from now on.
    pub(super) fn limit(&self, most: Bytes) {
        let mut inner = self.lock();
        inner.most_bytes = inner.most_bytes.min(most.0);
        inner.evict();
    }

    /// The bodies that are not in transit, and how many whole pieces each has.
    pub(super) fn list(&self) -> Vec<(Digest, u32)> {
        let inner = self.lock();
        let pieces = |(digest, state): (&Digest, &State)| match state {
            State::Idle(bytes, _) => {
                let pieces = u32::try_from(bytes / PIECE as u64).unwrap_or(u32::MAX);
                (pieces > 0).then_some((*digest, pieces))
            }
            State::InTransit => None,
        };
        inner.all.iter().filter_map(pieces).collect()
    }

    /// Deletes those that are of no use any more.
    pub(super) fn retain(&self, is_of_use: impl Fn(&Digest) -> bool) {
        let mut inner = self.lock();
        let idle = |(digest, state): (&Digest, &State)| {
            (matches!(state, State::Idle(..)) && !is_of_use(digest)).then_some(*digest)
        };
        let gone: Vec<_> = inner.all.iter().filter_map(idle).collect();
        gone.iter().for_each(|digest| inner.delete(digest));
    }

    /// A body begins, or goes on behind its first `begin` bytes, which are added to the hash, and which `on_piece` gets.
    /// None if it is in transit already; then, and without these bytes, this transfer has to be kept elsewhere.
    pub(super) fn take(
        &self,
        digest: &Digest,
        begin: u64,
        hasher: &mut Hasher,
        on_piece: impl FnMut(&[u8]),
    ) -> io::Result<Option<PartialFile>> {
        let path = {
            let mut inner = self.lock();
            let before = inner.all.get(digest).copied();
            let has = match before {
                None => 0,
                Some(State::Idle(bytes, _)) => bytes,
                Some(State::InTransit) => return Ok(None),
            };
            if has < begin {
                return Ok(None);
            }
            inner.all.insert(*digest, State::InTransit);
            inner.path(digest)
        };
        let options = File::options().read(true).write(true).create(true).truncate(false).clone();
        let mut taken = match options.open(path) {
            Ok(file) => PartialFile {
                partials: self.clone(),
                digest: *digest,
                file,
                bytes: 0,
                is_kept: true,
            },
            Err(error) => {
                self.lock().delete(digest);
                return Err(error);
            }
        };
        taken.go_on(begin, hasher, on_piece)?;
        Ok(Some(taken))
    }
}

impl Inner {
    fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{digest}{SUFFIX}"))
    }

    /// One is not in transit any more.
    fn rest(&mut self, digest: Digest, bytes: u64) {
        self.uses += 1;
        self.all.insert(digest, State::Idle(bytes, self.uses));
        self.evict();
    }

    /// Deletes those that were not used for the longest time, if there are too many.
    fn evict(&mut self) {
        loop {
            let idle = self.all.iter().filter_map(|(digest, state)| match state {
                State::Idle(bytes, used) => Some((*used, *bytes, *digest)),
                State::InTransit => None,
            });
            let idle: Vec<_> = idle.collect();
            let bytes: u64 = idle.iter().map(|(_, bytes, _)| bytes).sum();
            if idle.len() <= MOST && bytes <= self.most_bytes {
                return;
            }
            let Some((_, _, oldest)) = idle.into_iter().min() else { return };
            self.delete(&oldest);
        }
    }

    fn delete(&mut self, digest: &Digest) {
        self.all.remove(digest);
        // One that stays is found at the next start.
        let _ = fs::remove_file(self.path(digest));
    }
}

/// A body in transit.
#[derive(Debug)]
pub(super) struct PartialFile {
    partials: Partials,
    digest: Digest,
    file: File,
    bytes: u64,
    is_kept: bool,
}

impl PartialFile {
    /// Its name in the folder of bodies.
    pub(super) fn name(&self) -> Name {
        Name::from(format!("{FOLDER}/{}{SUFFIX}", self.digest))
    }

    /// Reads the first bytes, and cuts off the others.
    fn go_on(
        &mut self,
        begin: u64,
        hasher: &mut Hasher,
        mut on_piece: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.bytes = begin;
        let mut piece = Vec::with_capacity(PIECE);
        loop {
            piece.clear();
            let left = begin - (&self.file).stream_position()?;
            (&self.file).take(left.min(PIECE as u64)).read_to_end(&mut piece)?;
            if piece.is_empty() {
                break;
            }
            hasher.update(&piece);
            on_piece(&piece);
        }
        self.file.set_len(begin)?;
        self.file.seek(SeekFrom::Start(begin))?;
        Ok(())
    }

    /// Whether nothing of it is on the disk.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// It is whole: makes it durable. It is not kept as a part from now on.
    pub(super) fn complete(&mut self) -> io::Result<()> {
        self.is_kept = false;
        self.file.sync_all()
    }

    /// There is no room for it.
    pub(super) fn discard(mut self) {
        self.bytes = 0;
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        let mut inner = self.partials.lock();
        if self.is_kept && self.bytes >= PIECE as u64 {
            inner.rest(self.digest, self.bytes);
        } else if self.is_kept {
            inner.delete(&self.digest);
        } else {
            // Its file has another name by now, or was deleted.
            inner.all.remove(&self.digest);
        }
    }
}
