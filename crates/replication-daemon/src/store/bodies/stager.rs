//! Bodies while they arrive.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use blake3::Hasher;
use bytes::Bytes as Buffer;
use futures_executor::block_on;
use lull_cc::Bytes;
use lull_replication::types::{Digest, DiskFull, Payload};
use object_store::path::Path as Name;
use object_store::{MultipartUpload, ObjectStoreExt};

use super::partial::PartialFile;
use super::{Bodies, Body, CountedBytes, STAGED, Staged};
use crate::store::{StoreError, or_full};

/// Receives the bytes of one body. Small ones stay in memory, large ones go to the disk as they arrive, and
/// so do others if there are many at a time.
#[derive(Debug)]
pub struct Stager {
    pub(super) bodies: Bodies,
    pub(super) hasher: Hasher,
    pub(super) size: u64,
    /// The bytes that are not in the file.
    pub(super) memory: CountedBytes,
    /// The body's hash, if what is on the disk is to be kept when the transfer breaks off.
    pub(super) kept_as: Option<Digest>,
    /// The file in that case.
    pub(super) partial: Option<PartialFile>,
    pub(super) file: Option<(Name, Box<dyn MultipartUpload>)>,
}

/// Bytes written to the disk at once.
const PART: usize = 1 << 20;

impl Stager {
    /// The next bytes of the body.
    ///
    /// # Errors
    /// If the disk fails. A full disk is an answer; then the body is discarded.
    pub fn write(&mut self, bytes: &[u8]) -> Result<Result<(), DiskFull>, StoreError> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        let room = self.memory.extend(bytes) || self.bodies.is_small(Bytes(self.size));
        let stays = self.memory.bytes.len() < PART && room;
        if stays { Ok(Ok(())) } else { self.flush() }
    }

    /// Takes the bytes in memory.
    fn take(&mut self) -> CountedBytes {
        core::mem::replace(&mut self.memory, CountedBytes::new(&self.bodies.budget))
    }

    /// Keeps nothing of it.
    pub fn discard(mut self) {
        self.partial.take().into_iter().for_each(PartialFile::discard);
    }

    fn flush(&mut self) -> Result<Result<(), DiskFull>, StoreError> {
        let room = self.bodies.reserve_bytes(Bytes(self.memory.bytes.len() as u64));
        let written = room.map(|_writing| or_full(self.write_part()));
        let written = written.unwrap_or_else(|full| Ok(Err(full)));
        if matches!(written, Ok(Err(DiskFull))) {
            // Its space is needed, also that of others.
            self.partial.take().into_iter().for_each(PartialFile::discard);
            self.bodies.retain_partials(|_| false);
        }
        written
    }

    fn write_part(&mut self) -> object_store::Result<()> {
        if self.partial.is_none()
            && self.file.is_none()
            && let (Some(digest), Some(partials)) = (self.kept_as, &self.bodies.partials)
        {
            self.partial =
                partials.take(&digest, 0, &mut Hasher::new(), |_| {}).map_err(of_file)?;
        }
        if let Some(partial) = &mut self.partial {
            partial.write(&self.memory.bytes).map_err(of_file)?;
            drop(self.take());
            return Ok(());
        }
        if self.file.is_none() {
            let number = self.bodies.staged.fetch_add(1, Ordering::Relaxed);
            let name = Name::from(format!("{STAGED}/{number}"));
            let upload = block_on(self.bodies.objects.put_multipart(&name))?;
            self.file = Some((name, upload));
        }
        let mut part = self.take();
        let bytes = core::mem::take(&mut part.bytes);
        match &mut self.file {
            Some((_, upload)) => block_on(upload.put_part(bytes.into())),
            None => Ok(()),
        }
    }

    /// All bytes have arrived: returns the body, which is in no store so far.
    ///
    /// # Errors
    /// As for [`write`](Stager::write).
    pub fn finish(mut self) -> Result<Result<Payload<Body>, DiskFull>, StoreError> {
        let digest = Digest(*self.hasher.finalize().as_bytes());
        let size = Bytes(self.size);
        let is_on_disk = |partial: &PartialFile| !partial.is_empty();
        if self.file.is_none() && !self.partial.as_ref().is_some_and(is_on_disk) {
            let bytes = Body::Memory(Buffer::from_owner(self.take()));
            return Ok(Ok(Payload { digest, size, bytes }));
        }
        // A cancelled body is removed by the drop.
        if !self.memory.bytes.is_empty()
            && let Err(full) = self.flush()?
        {
            return Ok(Err(full));
        }
        let objects = Arc::clone(&self.bodies.objects);
        if let Some(mut partial) = self.partial.take() {
            partial.complete().map_err(of_file)?;
            let (name, partial) = (partial.name(), Some(partial));
            let bytes = Body::Staged(Arc::new(Staged { name, objects, _partial: partial }));
            return Ok(Ok(Payload { digest, size, bytes }));
        }
        let Some((name, mut upload)) = self.file.take() else { return Err(StoreError::Stopped) };
        if let Err(full) = or_full(block_on(upload.complete()))? {
            let _ = block_on(upload.abort());
            return Ok(Err(full));
        }
        let bytes = Body::Staged(Arc::new(Staged { name, objects, _partial: None }));
        Ok(Ok(Payload { digest, size, bytes }))
    }
}

impl Drop for Stager {
    fn drop(&mut self) {
        if let Some((_, upload)) = &mut self.file {
            let _ = block_on(upload.abort());
        }
        if let Some(mut partial) = self.partial.take().filter(|partial| !partial.is_empty())
            && partial.write(&self.memory.bytes).is_err()
        {
            partial.discard();
        }
    }
}

/// A failed file of a body, as the store reports it.
pub(super) fn of_file(error: std::io::Error) -> object_store::Error {
    object_store::Error::Generic { store: "a folder", source: error.into() }
}
