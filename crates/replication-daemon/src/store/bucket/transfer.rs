//! Uploads, downloads and listings.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use blake3::Hasher;
use bytes::Bytes as Buffer;
use futures_executor::block_on;
use lull_cc::Bytes;
use lull_replication::types::Digest;
use object_store::multipart::PartId;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::catalog::Object;
use super::claim::NotClaimed;
use super::{Bucket, DOWNLOADS, Failure, Shared, lock};

/// The length of the parts of a large body, in bytes. S3 takes 5 MiB at least, and 10,000 parts.
pub(super) const PART: u64 = 8 << 20;
/// Parts of one download at a time.
const AHEAD: usize = 3;
/// Objects that are listed in one request.
const PAGE: usize = 1_000;
/// Parts of a listing at a time.
const LISTINGS: usize = 16;

/// The bytes of a body that is to be uploaded.
#[derive(Clone, Debug)]
pub(in crate::store) enum Source {
    /// All of them.
    Memory(Buffer),
    /// An object of a local store.
    Local(Arc<dyn ObjectStore>, Name),
}

impl Source {
    async fn part(&self, begin: u64, end: u64) -> Result<Buffer, NotUploaded> {
        match self {
            Source::Memory(bytes) => {
                let at = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
                let (begin, end) = (at(begin).min(bytes.len()), at(end).min(bytes.len()));
                Ok(bytes.slice(begin..end))
            }
            Source::Local(objects, name) => {
                objects.get_range(name, begin..end).await.map_err(NotUploaded::Local)
            }
        }
    }
}

/// Why a body was not uploaded.
#[derive(Debug)]
pub(in crate::store) enum NotUploaded {
    /// The local store failed.
    Local(object_store::Error),
    /// The local bytes are not those of the hash.
    Corrupt,
    /// The bucket failed.
    Bucket(Failure),
}

impl From<Failure> for NotUploaded {
    fn from(failure: Failure) -> Self {
        NotUploaded::Bucket(failure)
    }
}

/// The outcome of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Downloaded {
    /// All bytes were passed on.
    Whole,
    /// Another caller has downloaded the body meanwhile.
    ByOther,
    /// The bucket does not have it.
    Missing,
}

impl Bucket {
    /// Stores a body; it is durable when this returns. If it `is_needed` no more at the end, it is deleted.
    pub(in crate::store) fn upload(
        &self,
        digest: Digest,
        size: Bytes,
        source: Source,
        is_needed: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<(), NotUploaded> {
        if self.has(&digest) {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        self.run(async move { shared.upload(digest, size, source, is_needed).await })?
    }

    /// Passes the bytes of a body to `take`, in order. They are not compared with the hash.
    ///
    /// # Errors
    /// If the bucket fails, or there are too many downloads at the moment; and the error of `take`.
    pub(in crate::store) fn download<E: From<Failure>>(
        &self,
        digest: &Digest,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Downloaded, E> {
        let Some(_turn) = self.take_slot(digest)? else { return Ok(Downloaded::ByOther) };
        let (sender, mut parts) = mpsc::channel(1);
        let (shared, digest) = (Arc::clone(&self.shared), *digest);
        self.spawn(async move {
            let ended = shared.download(&digest, &sender).await;
            // The receiver is gone after an error of `take`.
            let _ = sender.send(ended.map(Part::End)).await;
        });
        while let Some(part) = block_on(parts.recv()) {
            match part? {
                Part::Bytes(bytes) => take(&bytes)?,
                Part::End(ended) => return Ok(ended),
            }
        }
        Err(Failure::Away("the process ends".to_owned()).into())
    }

    /// The right to download a body; none if another caller had it, and has ended.
    fn take_slot(&self, digest: &Digest) -> Result<Option<DownloadSlot<'_>>, Failure> {
        let mut downloads = lock(&self.downloads);
        let mut waited = false;
        while downloads.contains(digest) {
            waited = true;
            downloads =
                self.downloaded.wait(downloads).unwrap_or_else(|poison| poison.into_inner());
        }
        if waited {
            return Ok(None);
        }
        if downloads.len() >= DOWNLOADS {
            let why = format!("`{}` has {DOWNLOADS} downloads already", self.shared.address);
            return Err(Failure::Away(why));
        }
        downloads.insert(*digest);
        Ok(Some(DownloadSlot { bucket: self, digest: *digest }))
    }
}

/// The right to download a body.
struct DownloadSlot<'a> {
    bucket: &'a Bucket,
    digest: Digest,
}

impl Drop for DownloadSlot<'_> {
    fn drop(&mut self) {
        lock(&self.bucket.downloads).remove(&self.digest);
        self.bucket.downloaded.notify_all();
    }
}

enum Part {
    Bytes(Buffer),
    End(Downloaded),
}

impl Shared {
    /// Refuses work while it is unknown whose the bucket is.
    fn ready(&self) -> Result<(), Failure> {
        if self.is_ready() {
            return Ok(());
        }
        let why = self.outage.why();
        Err(Failure::Away(why.unwrap_or_else(|| format!("`{}` is being listed", self.address))))
    }

    async fn upload(
        self: Arc<Self>,
        digest: Digest,
        size: Bytes,
        source: Source,
        is_needed: impl FnOnce() -> bool,
    ) -> Result<(), NotUploaded> {
        self.ready()?;
        let object = lock(&self.catalog).new_object(size);
        let name = object.name(&self.folder(), &digest);
        let sent = if size.0 <= PART {
            self.upload_whole(&digest, &name, size, &source).await
        } else {
            self.upload_parts(&digest, &name, size, &source).await
        };
        match sent {
            Err(NotUploaded::Bucket(Failure::Missing)) => {
                self.confirm_missing().await?;
                let why = format!("an upload to `{}` was aborted", self.address);
                return Err(Failure::Away(why).into());
            }
            sent => sent?,
        }
        let unneeded = {
            let mut catalog = lock(&self.catalog);
            if is_needed() { catalog.insert(digest, object) } else { Some(object) }
        };
        self.discard(unneeded.map(|unneeded| unneeded.name(&self.folder(), &digest)));
        Ok(())
    }

    async fn upload_whole(
        &self,
        digest: &Digest,
        name: &Name,
        size: Bytes,
        source: &Source,
    ) -> Result<(), NotUploaded> {
        let _room = self.parts.acquire().await;
        let bytes = source.part(0, size.0).await?;
        if Digest::of(&bytes) != *digest {
            return Err(NotUploaded::Corrupt);
        }
        let put = || self.objects.put(name, bytes.clone().into());
        self.retried(put).await?;
        Ok(())
    }

    async fn upload_parts(
        self: &Arc<Self>,
        digest: &Digest,
        name: &Name,
        size: Bytes,
        source: &Source,
    ) -> Result<(), NotUploaded> {
        let id = self.retried(|| self.objects.create_multipart(name)).await?;
        let uploaded = self.send_parts(digest, name, &id, size, source).await;
        match uploaded {
            Ok(parts) => {
                let complete = || self.objects.complete_multipart(name, &id, parts.clone());
                match self.retried(complete).await {
                    // An earlier attempt was carried out, and its answer was lost.
                    Err(Failure::Missing) => {
                        let found = self.retried(|| self.objects.head(name)).await?;
                        if found.size == size.0 { Ok(()) } else { Err(Failure::Missing.into()) }
                    }
                    completed => Ok(completed.map(drop)?),
                }
            }
            Err(error) => {
                // Otherwise the parts stay until a rule of the bucket deletes them.
                let _ = self.objects.abort_multipart(name, &id).await;
                Err(error)
            }
        }
    }

    /// Sends the parts, several at a time.
    async fn send_parts(
        self: &Arc<Self>,
        digest: &Digest,
        name: &Name,
        id: &str,
        size: Bytes,
        source: &Source,
    ) -> Result<Vec<PartId>, NotUploaded> {
        let mut hasher = Hasher::new();
        let mut sending = JoinSet::new();
        let count = size.0.div_ceil(PART);
        for number in 0..count {
            let room = Arc::clone(&self.parts).acquire_owned().await;
            let (begin, end) = (number * PART, ((number + 1) * PART).min(size.0));
            let bytes = source.part(begin, end).await?;
            hasher.update(&bytes);
            let (shared, name, id) = (Arc::clone(self), name.clone(), id.to_owned());
            let index = usize::try_from(number).unwrap_or(usize::MAX);
            sending.spawn(async move {
                let put = || {
                    let payload = PutPayload::from(bytes.clone());
                    shared.objects.put_part(&name, &id, index, payload)
                };
                let part = shared.retried(put).await;
                drop(room);
                part.map(|part| (index, part))
            });
        }
        if Digest(*hasher.finalize().as_bytes()) != *digest {
            return Err(NotUploaded::Corrupt);
        }
        let mut parts = Vec::new();
        while let Some(sent) = sending.join_next().await {
            let stopped = |_| Failure::Away("the process ends".to_owned());
            parts.push(sent.map_err(stopped)??);
        }
        parts.sort_by_key(|(index, _)| *index);
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }

    async fn download(
        self: &Arc<Self>,
        digest: &Digest,
        to: &mpsc::Sender<Result<Part, Failure>>,
    ) -> Result<Downloaded, Failure> {
        self.ready()?;
        let Some(object) = lock(&self.catalog).get(digest) else { return Ok(Downloaded::Missing) };
        let name = object.name(&self.folder(), digest);
        let mut coming = VecDeque::new();
        let mut next = 0;
        loop {
            while next < object.size.0 && coming.len() < AHEAD {
                let range = next..(next + PART).min(object.size.0);
                next = range.end;
                let (shared, name) = (Arc::clone(self), name.clone());
                coming.push_back(tokio::spawn(async move {
                    let get = || shared.objects.get_range(&name, range.clone());
                    shared.retried(get).await
                }));
            }
            let Some(part) = coming.pop_front() else { return Ok(Downloaded::Whole) };
            let part = part.await.map_err(|_| Failure::Away("the process ends".to_owned()))?;
            match part {
                Ok(bytes) => {
                    if to.send(Ok(Part::Bytes(bytes))).await.is_err() {
                        return Ok(Downloaded::Whole);
                    }
                }
                Err(Failure::Missing | Failure::Changed) => {
                    self.confirm_missing().await?;
                    lock(&self.catalog).remove(digest);
                    // The next look finds one that an old listing did not have.
                    self.look_for(&[*digest]).await?;
                    let mut catalog = lock(&self.catalog);
                    if catalog.get(digest) == Some(object) {
                        catalog.remove(digest);
                    }
                    return Ok(Downloaded::Missing);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// An object is missing. It is lost only if the bucket is still that of this origin: otherwise the whole
    /// bucket is missing.
    async fn confirm_missing(&self) -> Result<(), Failure> {
        match self.is_claimed().await {
            Ok(()) => Ok(()),
            Err(NotClaimed::Failed(failure)) => Err(failure),
            Err(why) => {
                let why = self.explain(&why);
                self.outage.give_up(Instant::now(), &why);
                Err(Failure::Away(why))
            }
        }
    }

    /// All bodies in the bucket. A large bucket is listed by its 256 folders, several at a time.
    pub(super) async fn list(self: &Arc<Self>) -> Result<Vec<(Digest, Object)>, NotClaimed> {
        if let Some(found) = self.list_folder(self.folder(), Some(PAGE)).await? {
            return Ok(found);
        }
        let places = Arc::new(Semaphore::new(LISTINGS));
        let mut listing = JoinSet::new();
        for number in 0..=u8::MAX {
            let (shared, places) = (Arc::clone(self), Arc::clone(&places));
            let folder = self.folder().join(format!("{number:02x}"));
            listing.spawn(async move {
                let _place = places.acquire().await;
                shared.list_folder(folder, None).await
            });
        }
        let mut found = Vec::new();
        while let Some(some) = listing.join_next().await {
            let stopped = |_| Failure::Away("the process ends".to_owned());
            found.extend(some.map_err(stopped)??.unwrap_or_default());
        }
        Ok(found)
    }

    /// Lists the folders of these bodies once more, and enters the bodies that are there.
    pub(super) async fn look_for(&self, digests: &[Digest]) -> Result<(), Failure> {
        let folders: BTreeSet<String> =
            digests.iter().map(|digest| digest.to_string()[..2].to_owned()).collect();
        for folder in folders {
            let found = self.list_folder(self.folder().join(&*folder), None).await?;
            for (digest, object) in found.unwrap_or_default() {
                let mut catalog = lock(&self.catalog);
                if digests.contains(&digest) && catalog.get(&digest).is_none_or(|one| one < object)
                {
                    catalog.insert(digest, object);
                }
            }
        }
        Ok(())
    }

    /// The bodies of one folder; none if there are more than `most`.
    async fn list_folder(
        &self,
        folder: Name,
        most: Option<usize>,
    ) -> Result<Option<Vec<(Digest, Object)>>, Failure> {
        let list = || async {
            let mut found = Vec::new();
            let mut objects = self.objects.list(Some(&folder));
            while let Some(object) = next_of(&mut objects).await {
                let object = object?;
                found.extend(Object::parse(&object.location, object.size));
                if most.is_some_and(|most| found.len() >= most) {
                    return Ok(None);
                }
            }
            Ok(Some(found))
        };
        self.retried(list).await
    }
}

/// The next item of a stream.
async fn next_of<S: futures_core::Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    core::future::poll_fn(|context| core::pin::Pin::new(&mut *stream).poll_next(context)).await
}
