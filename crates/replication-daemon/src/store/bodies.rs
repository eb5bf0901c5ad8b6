//! Bodies as files, each under its hash.

mod bucketed;
mod partial;
mod stager;

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use blake3::Hasher;
use bytes::Bytes as Buffer;
use futures_executor::{block_on, block_on_stream};
use lull_cc::Bytes;
use lull_replication::time::WallTime;
use lull_replication::types::{Digest, DiskFull, Payload};
use lull_replication::wire::{Outline, PIECE};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt};

use self::partial::{PartialFile, Partials};
pub use self::stager::Stager;
use self::stager::of_file;
use super::body_name::{digest_of, name_of};
use super::bucket::{Change, Source};
use super::remote::{Attached, Remote, SharedOrigin};
use super::shortage::{Reserve, Writing};
use super::{StoreError, cause, or_full};

/// The bodies that the state machines pass on: small ones are in memory, large ones are in a file that is
/// still to be renamed.
#[derive(Clone, Debug)]
pub enum Body {
    /// The bytes.
    Memory(Buffer),
    /// A file beside the bodies.
    Staged(Arc<Staged>),
}

/// A file without a final name so far; deleted if it never gets one.
#[derive(Debug)]
pub struct Staged {
    name: Name,
    objects: Arc<dyn ObjectStore>,
    /// Until this is dropped, no other transfer of the body uses its file.
    _partial: Option<PartialFile>,
}

impl Staged {
    pub(super) fn source(&self) -> Source {
        Source::Local(Arc::clone(&self.objects), self.name.clone())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a body is stored it has another name, and this finds nothing. Leftovers of a crash are
        // deleted at the next start.
        let _ = block_on(self.objects.delete(&self.name));
    }
}

/// A folder of bodies. Calls block.
#[derive(Clone, Debug)]
pub struct Bodies {
    objects: Arc<dyn ObjectStore>,
    staged: Arc<AtomicU64>,
    inline: Bytes,
    budget: Arc<Budget>,
    reserve: Arc<Reserve>,
    /// Bodies that have arrived in part.
    partials: Option<Partials>,
    /// A bucket, of which the folder has copies.
    pub(super) attached: Option<Arc<Attached>>,
}

/// Memory for all incoming bodies until they are stored, in bytes. More is written to the disk as it arrives,
/// except for bodies of the database, which stay in memory.
const MAX_IN_MEMORY: u64 = 64 << 20;

/// Bytes of memory that are left.
#[derive(Debug)]
struct Budget(AtomicU64);

/// Bytes in memory, counted while they exist.
#[derive(Debug)]
struct CountedBytes {
    bytes: Vec<u8>,
    /// Number of them that the budget counts.
    counted: u64,
    budget: Arc<Budget>,
}

impl CountedBytes {
    fn new(budget: &Arc<Budget>) -> Self {
        CountedBytes { bytes: Vec::new(), counted: 0, budget: Arc::clone(budget) }
    }

    /// Appends bytes; returns whether the budget has room for them.
    fn extend(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        let count = bytes.len() as u64;
        let less = |left: u64| left.checked_sub(count);
        let room = self.budget.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        self.counted += if room { count } else { 0 };
        room
    }
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.counted, Ordering::Relaxed);
    }
}

/// The folder of bodies before they get their final name.
const STAGED: &str = "staged";

/// Pauses before each look for bodies that a listing of the bucket does not have.
const LOOKS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(2)];

impl Bodies {
    /// The bodies in `folder`, which is made if it does not exist.
    pub(super) fn open(folder: &FilePath, inline: Bytes) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Folder { path: folder.to_owned(), source };
        crate::folder::create(folder).map_err(failed)?;
        remove_unfinished(folder).map_err(failed)?;
        // Without fsync, which is the default, a confirmed body may be lost in a crash.
        let objects = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
        let reserve = Arc::new(Reserve::on_disk_of(folder.to_owned()));
        let partials = Some(Partials::open(folder).map_err(failed)?);
        Ok(Bodies { reserve, partials, ..Self::over(Arc::new(objects), inline) })
    }

    /// Bodies in another object store than a local folder.
    pub fn over(objects: Arc<dyn ObjectStore>, inline: Bytes) -> Self {
        let budget = Arc::new(Budget(AtomicU64::new(MAX_IN_MEMORY)));
        let (staged, reserve) = Default::default();
        Bodies { objects, staged, inline, budget, reserve, partials: None, attached: None }
    }

    /// The same bodies, with those of the bucket of the origin in `folder`, if it has one.
    pub(super) fn with_bucket(
        self,
        folder: &FilePath,
        remote: Option<Remote>,
        shared: Option<SharedOrigin>,
        copies: Bytes,
        now: WallTime,
    ) -> Result<Self, StoreError> {
        let here = self.list_here()?;
        let attached = Attached::open(folder, remote, shared, copies, now, &self.objects, here)?;
        Ok(Bodies { attached, ..self })
    }

    /// Why the bucket does not answer, if there is one and it is away.
    pub fn away(&self) -> Option<String> {
        self.attached.as_ref()?.away()
    }

    /// The address of the bucket, if there is one.
    pub fn bucket(&self) -> Option<String> {
        Some(self.attached.as_ref()?.address())
    }

    /// Calls `on_change` when the bucket is away, and when it is back.
    pub(crate) fn follow(&self, on_change: impl Fn(Change) + Send + Sync + 'static) {
        if let Some(attached) = &self.attached {
            attached.follow(on_change);
        }
    }

    /// Bodies that can be stored at a time.
    pub(super) fn writers(&self) -> usize {
        /// Each waits for the disk.
        const TO_DISK: usize = 4;
        /// Each waits for an answer from the network.
        const TO_BUCKET: usize = 24;
        if self.attached.is_some() { TO_BUCKET } else { TO_DISK }
    }

    /// Reserves this many bytes to be written: none if that would take the space of the state.
    pub(super) fn reserve_bytes(&self, bytes: Bytes) -> Result<Writing, DiskFull> {
        self.reserve.write(bytes.0).ok_or(DiskFull)
    }

    /// Whether other files may take this many bytes on the same disk.
    pub(crate) fn has_room(&self, bytes: Bytes) -> bool {
        self.reserve_bytes(bytes).is_ok()
    }

    /// The same bodies with this reserve, which stays free for the state.
    #[cfg(test)]
    pub(super) fn leaving(self, reserve: Reserve) -> Self {
        Bodies { reserve: Arc::new(reserve), ..self }
    }

    /// Whether a body belongs in the database.
    pub(super) fn is_small(&self, size: Bytes) -> bool {
        size <= self.inline
    }

    /// The existing bodies, with their lengths; none if the bucket has not answered so far.
    pub(super) fn list(&self) -> Result<Option<Vec<(Digest, Bytes)>>, StoreError> {
        match &self.attached {
            Some(attached) => Ok(attached.list()),
            None => self.list_here().map(Some),
        }
    }

    /// Looks again for bodies that a listing does not have: a bucket's listing may be older than its objects. Returns the
    /// list with those that were found.
    pub(super) fn look_again(
        &self,
        mut listed: Vec<(Digest, Bytes)>,
        missing: impl Fn(&[(Digest, Bytes)]) -> Vec<Digest>,
    ) -> Vec<(Digest, Bytes)> {
        let Some(attached) = &self.attached else { return listed };
        for pause in LOOKS {
            let missing = missing(&listed);
            if missing.is_empty() {
                break;
            }
            std::thread::sleep(pause);
            listed.extend(attached.look_for(missing));
        }
        listed
    }

    fn list_here(&self) -> Result<Vec<(Digest, Bytes)>, StoreError> {
        let mut found = Vec::new();
        for object in block_on_stream(self.objects.list(None)) {
            let object = object?;
            if let Some(digest) = digest_of(&object.location) {
                found.push((digest, Bytes(object.size)));
            }
        }
        Ok(found)
    }

    /// Receives a body in parts.
    pub fn stage(&self) -> Stager {
        Stager {
            bodies: self.clone(),
            hasher: Hasher::new(),
            size: 0,
            memory: CountedBytes::new(&self.budget),
            kept_as: None,
            partial: None,
            file: None,
        }
    }

    /// Receives the body with this hash in parts, behind its first `begin` bytes, which `on_piece` gets in pieces. If it
    /// breaks off, what is on the disk by then is kept for the next transfer. Without these first bytes the result has
    /// another hash.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn stage_from(
        &self,
        digest: &Digest,
        begin: Bytes,
        on_piece: impl FnMut(&[u8]),
    ) -> Result<Stager, StoreError> {
        let mut stager = self.stage();
        stager.kept_as = Some(*digest);
        if begin > Bytes(0)
            && let Some(partials) = &self.partials
        {
            let taken = partials.take(digest, begin.0, &mut stager.hasher, on_piece);
            stager.partial = taken.map_err(of_file)?;
            stager.size = stager.partial.as_ref().map_or(0, |_| begin.0);
        }
        Ok(stager)
    }

    /// The bodies that have arrived in part and are not in transit, with the number of their pieces.
    pub fn partials(&self) -> Vec<(Digest, u32)> {
        self.partials.as_ref().map_or_else(Vec::new, Partials::list)
    }

    /// Deletes those that are of no use any more.
    pub fn retain_partials(&self, is_of_use: impl Fn(&Digest) -> bool) {
        self.partials.iter().for_each(|partials| partials.retain(&is_of_use));
    }

    /// Keeps at most this many bytes of them.
    pub fn limit_partials(&self, most: Bytes) {
        self.partials.iter().for_each(|partials| partials.limit(most));
    }

    /// Makes a body durable under its hash.
    ///
    /// # Errors
    /// If the disk fails. A full disk is an answer.
    pub fn store(&self, payload: &Payload<Body>) -> Result<Result<(), DiskFull>, StoreError> {
        match &self.attached {
            Some(attached) => self.store_remote(attached, payload),
            None => self.store_here(payload),
        }
    }

    /// Stores a body in the folder.
    pub(super) fn store_here(
        &self,
        payload: &Payload<Body>,
    ) -> Result<Result<(), DiskFull>, StoreError> {
        let name = name_of(&payload.digest);
        let stored = match &payload.bytes {
            Body::Memory(bytes) => {
                let _writing = match self.reserve_bytes(payload.size) {
                    Ok(writing) => writing,
                    Err(full) => return Ok(Err(full)),
                };
                block_on(self.objects.put(&name, bytes.clone().into())).map(drop)
            }
            // The file is on the disk already: only its name is missing.
            Body::Staged(file) => block_on(self.objects.rename(&file.name, &name)),
        };
        or_full(stored)
    }

    /// Continues after [`store`](Bodies::store) had no descriptors or no memory.
    ///
    /// # Errors
    /// As for that.
    pub(super) fn store_again(
        &self,
        payload: &Payload<Body>,
    ) -> Result<Result<(), DiskFull>, StoreError> {
        match self.store(payload) {
            // It had got its name, but the name's folder was missing, which has to be synced: that is a part
            // of each rename, also of a rename into itself.
            Err(StoreError::Bodies(object_store::Error::NotFound { .. })) => {
                let name = name_of(&payload.digest);
                or_full(block_on(self.objects.rename(&name, &name)))
            }
            other => other,
        }
    }

    /// Deletes a body; fine if it does not exist.
    pub(super) fn delete(&self, digest: &Digest) -> Result<(), StoreError> {
        if let Some(attached) = &self.attached {
            attached.discard(digest);
        }
        self.delete_here(digest)
    }

    pub(super) fn delete_here(&self, digest: &Digest) -> Result<(), StoreError> {
        match block_on(self.objects.delete(&name_of(digest))) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The whole body, if it is there and intact.
    pub(super) fn read(&self, digest: &Digest) -> Result<Option<Buffer>, StoreError> {
        self.through(digest, || self.read_here(digest))
    }

    fn read_here(&self, digest: &Digest) -> Result<Option<Buffer>, StoreError> {
        let read = block_on(async { self.objects.get(&name_of(digest)).await?.bytes().await });
        match found(read)? {
            Some(bytes) if Digest::of(&bytes) == *digest => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    /// One piece of a body, as it is on the disk: the outline shows whether it is intact.
    pub(super) fn piece(
        &self,
        digest: &Digest,
        size: Bytes,
        number: u32,
    ) -> Result<Option<Buffer>, StoreError> {
        let begin = u64::from(number) * PIECE as u64;
        let end = (begin + PIECE as u64).min(size.0);
        if begin >= end {
            return Ok(None);
        }
        self.through(digest, || self.range_here(digest, begin..end))
    }

    /// Some bytes of a body, as they are on the disk.
    pub(super) fn range(
        &self,
        digest: &Digest,
        range: core::ops::Range<u64>,
    ) -> Result<Option<Buffer>, StoreError> {
        self.through(digest, || self.range_here(digest, range.clone()))
    }

    fn range_here(
        &self,
        digest: &Digest,
        range: core::ops::Range<u64>,
    ) -> Result<Option<Buffer>, StoreError> {
        found(block_on(self.objects.get_range(&name_of(digest), range)))
    }

    /// The hashes of the pieces of a body, if it is there and intact. Reads all of it.
    pub(super) fn outline(
        &self,
        digest: &Digest,
        size: Bytes,
    ) -> Result<Option<Outline>, StoreError> {
        self.through(digest, || self.outline_here(digest, size))
    }

    fn outline_here(&self, digest: &Digest, size: Bytes) -> Result<Option<Outline>, StoreError> {
        let mut outline = Outline::default();
        let mut hasher = Hasher::new();
        for begin in (0..size.0).step_by(PIECE) {
            let range = begin..(begin + PIECE as u64).min(size.0);
            let Some(piece) = self.range_here(digest, range)? else { return Ok(None) };
            hasher.update(&piece);
            outline.push(&piece);
        }
        let intact = Digest(*hasher.finalize().as_bytes()) == *digest;
        Ok(intact.then_some(outline))
    }
}

/// Linux's number of an error of the device: the bytes cannot be read back.
const EIO: i32 = 5;

/// The bytes that were read, unless the body is missing, too short, or on a bad sector of the disk.
fn found<T>(outcome: object_store::Result<T>) -> Result<Option<T>, StoreError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => match cause(&error) {
            Some(io) if io.raw_os_error() != Some(EIO) => Err(error.into()),
            _ => Ok(None),
        },
    }
}

/// Deletes leftovers of bodies that were being written at a crash: `object_store` writes beside the name,
/// with a `#` in it, and does not list that.
fn remove_unfinished(folder: &FilePath) -> std::io::Result<()> {
    let entries = |folder: &FilePath| -> std::io::Result<Vec<PathBuf>> {
        std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
    };
    for below in entries(folder)? {
        if !below.is_dir() {
            continue;
        }
        let staged = below.file_name().is_some_and(|name| name == STAGED);
        for file in entries(&below)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if staged || name.contains('#') {
                std::fs::remove_file(&file)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incoming_bodies_use_at_most_the_memory_budget() {
        const BUDGET: u64 = 1_000_000;
        const SIZE: usize = 100_000;
        let folder = tempfile::tempdir().unwrap();
        let bodies = Bodies::open(folder.path(), Bytes(64)).unwrap();
        let bodies = Bodies { budget: Arc::new(Budget(AtomicU64::new(BUDGET))), ..bodies };
        let left = || bodies.budget.0.load(Ordering::Relaxed);
        let begin = |number: u8| {
            let mut stager = bodies.stage();
            for _ in 0..10 {
                stager.write(&[number; SIZE / 10]).unwrap().unwrap();
            }
            stager
        };
        let coming: Vec<_> = (0..40).map(begin).collect();
        let in_memory = |stagers: &[Stager]| -> u64 {
            stagers.iter().map(|stager| stager.memory.bytes.len() as u64).sum()
        };
        assert!(in_memory(&coming) <= BUDGET, "{} bytes", in_memory(&coming));
        // One that belongs into the database is in memory nevertheless.
        let mut small = bodies.stage();
        small.write(&[7; 64]).unwrap().unwrap();
        assert!(small.file.is_none());
        // Bodies received so far wait to be stored.
        let finish = |stager: Stager| stager.finish().unwrap().unwrap();
        let mut waiting: Vec<_> = coming.into_iter().map(finish).collect();
        let kept = |payload: &Payload<Body>| matches!(payload.bytes, Body::Memory(_));
        let count = waiting.iter().filter(|payload| kept(payload)).count();
        assert!((1..=10).contains(&count), "{count} of 100 kB are in memory");
        for (number, payload) in (0..).zip(&waiting) {
            assert_eq!(payload.digest, Digest::of(&[number; SIZE]));
            bodies.store(payload).unwrap().unwrap();
            assert!(bodies.read(&payload.digest).unwrap().is_some_and(|all| all.len() == SIZE));
        }
        // There is room again when they are stored and released.
        waiting.clear();
        drop(small);
        assert_eq!(left(), BUDGET);
        assert!(kept(&finish(begin(1))));
    }
}
