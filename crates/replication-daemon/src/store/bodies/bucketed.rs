//! Bodies whose durable copies are in a bucket: the folder has copies of those that were used recently.

use lull_cc::Bytes;
use lull_replication::types::{Digest, DiskFull, Payload};

use super::super::bucket::{Downloaded, NotUploaded, Source};
use super::super::remote::Attached;
use super::super::{StoreError, or_full};
use super::{Bodies, Body};

impl Bodies {
    /// Stores a body in the bucket, and a copy in the folder if there is room.
    pub(super) fn store_remote(
        &self,
        attached: &Attached,
        payload: &Payload<Body>,
    ) -> Result<Result<(), DiskFull>, StoreError> {
        let source = match &payload.bytes {
            Body::Memory(bytes) => Source::Memory(bytes.clone()),
            Body::Staged(file) => file.source(),
        };
        match attached.bucket.upload(payload.digest, payload.size, source, || true) {
            Ok(()) => {}
            Err(NotUploaded::Local(error)) => return or_full(Err(error)),
            Err(NotUploaded::Corrupt) => {
                return Err(StoreError::Damaged("a body that was to be uploaded".to_owned()));
            }
            Err(NotUploaded::Bucket(failure)) => {
                // During a short failure the write waits.
                return match attached.away() {
                    Some(_) => Ok(Err(DiskFull)),
                    None => Err(failure.into()),
                };
            }
        }
        self.make_room(attached, payload.size)?;
        if self.store_here(payload)?.is_ok() {
            attached.copies.touch(&payload.digest, payload.size);
        }
        Ok(Ok(()))
    }

    /// Deletes copies that were not used for the longest time, if there are too many.
    fn make_room(&self, attached: &Attached, size: Bytes) -> Result<(), StoreError> {
        for digest in attached.copies.evict(size, |digest| attached.bucket.has(digest)) {
            self.delete_here(&digest)?;
        }
        Ok(())
    }

    /// Downloads a body into the folder. Returns whether it is there then.
    pub(super) fn fetch(&self, attached: &Attached, digest: &Digest) -> Result<bool, StoreError> {
        /// A body may have been damaged on the way.
        const TRIES: usize = 2;
        for _ in 0..TRIES {
            let mut stager = self.stage();
            let take = |bytes: &[u8]| stager.write(bytes)?.map_err(|DiskFull| StoreError::Full);
            match attached.bucket.download(digest, take)? {
                Downloaded::Missing => return Ok(false),
                Downloaded::ByOther => return Ok(true),
                Downloaded::Whole => {}
            }
            let payload = stager.finish()?.map_err(|DiskFull| StoreError::Full)?;
            if payload.digest != *digest {
                continue;
            }
            self.make_room(attached, payload.size)?;
            self.store_here(&payload)?.map_err(|DiskFull| StoreError::Full)?;
            attached.copies.touch(digest, payload.size);
            return Ok(true);
        }
        // Not deleted, so that its operator can look at it. It is stored again under another name.
        attached.bucket.forget(digest);
        Ok(false)
    }

    /// Reads a body from the folder, or after a download if it is not there.
    pub(super) fn through<T>(
        &self,
        digest: &Digest,
        read: impl Fn() -> Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        /// Another reader may have failed to download it.
        const TRIES: usize = 3;
        let Some(attached) = &self.attached else { return read() };
        let _pinned = attached.copies.pin(digest);
        for _ in 0..TRIES {
            let had_copy = attached.copies.has(digest);
            let found = read()?;
            if found.is_some() {
                attached.copies.used(digest);
                return Ok(found);
            }
            if had_copy {
                // It is damaged.
                attached.copies.forget(digest);
                self.delete_here(digest)?;
            }
            if !self.fetch(attached, digest)? {
                return Ok(None);
            }
        }
        Err(StoreError::Away(format!("a body of `{}` cannot be copied", attached.address())))
    }
}
