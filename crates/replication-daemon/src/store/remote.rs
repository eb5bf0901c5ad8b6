//! Bodies whose durable copies are in a bucket. The folder has copies of those that were used recently.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lull_cc::Bytes;
use lull_replication::time::WallTime;
use lull_replication::types::Digest;
use object_store::ObjectStore;
use serde::{Deserialize, Serialize};

use super::StoreError;
use super::body_name::name_of;
use super::bucket::{
    self, Bucket, BucketAddress, Change, Claim, Failure, NotUploaded, Objects, Patience, Source,
};
use super::copies::Copies;
use crate::identity;

/// A bucket for the large bodies of an origin.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Where it is.
    pub address: BucketAddress,
    /// Identifier and secret of the access key; none for those of the environment.
    pub key: Option<(String, String)>,
    /// How long it may fail.
    pub patience: Patience,
    /// The origin, if several processes on other machines may be it, one after the other.
    pub shared: Option<SharedOrigin>,
}

/// An origin that has a log which several machines share. The log decides which of them uses the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedOrigin {
    /// The number of the origin, the same on all machines.
    pub number: String,
    /// The number of this life, higher than that of all before.
    pub life: u64,
}

impl Remote {
    /// The bucket at this address.
    pub fn new(address: BucketAddress) -> Self {
        Remote { address, key: None, patience: Patience::default(), shared: None }
    }
}

/// The file in the origin's folder that names its bucket.
const RECORD: &str = "store.json";

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The address of the bucket.
    store: String,
    /// The random number of this origin in the marker of the bucket.
    origin: String,
    /// The start times of the processes that may have written the marker last, in microseconds since 1970. Empty before
    /// the first start.
    lives: Vec<u64>,
    /// Whether the bucket has the marker.
    claimed: bool,
}

impl Record {
    fn read(folder: &FilePath) -> Result<Option<Self>, StoreError> {
        let path = folder.join(RECORD);
        match fs::read(&path) {
            Ok(bytes) => {
                let record = serde_json::from_slice(&bytes);
                record.map(Some).map_err(|_| StoreError::Damaged(format!("`{}`", path.display())))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Folder { path, source }),
        }
    }

    /// Replaces the file, durably.
    fn write(&self, folder: &FilePath) -> Result<(), StoreError> {
        let path = folder.join(RECORD);
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        let written = bytes.and_then(|bytes| lull_durable::replace(&path, &bytes));
        written.map_err(|source| StoreError::Folder { path, source })
    }
}

/// The bucket, and the copies on this machine.
pub(super) struct Attached {
    pub(super) bucket: Bucket,
    pub(super) copies: Copies,
    /// Bodies that were in the folder at the start, and may not be in the bucket.
    unsent: Arc<Mutex<BTreeSet<Digest>>>,
}

impl core::fmt::Debug for Attached {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Attached({:?})", self.bucket)
    }
}

impl Attached {
    /// The bucket of the origin in `folder`, if it has one: the one that is requested, or that of the last
    /// start. `here` are the bodies on this machine; those that the bucket does not have are uploaded to it.
    pub(super) fn open(
        folder: &FilePath,
        remote: Option<Remote>,
        shared: Option<SharedOrigin>,
        copies: Bytes,
        now: WallTime,
        local: &Arc<dyn ObjectStore>,
        here: Vec<(Digest, Bytes)>,
    ) -> Result<Option<Arc<Self>>, StoreError> {
        let record = Record::read(folder)?;
        let recorded = record.as_ref().map(|record| record.store.parse::<BucketAddress>());
        let recorded =
            recorded.transpose().map_err(|error| StoreError::Bucket(error.to_string()))?;
        let mut remote = match (remote, &recorded) {
            (Some(remote), _) => remote,
            (None, Some(address)) => Remote::new(address.clone()),
            (None, None) => return Ok(None),
        };
        remote.shared = shared.or(remote.shared);
        let failed = |error: object_store::Error| {
            StoreError::Bucket(format!("`{}` cannot be used: {error}", remote.address))
        };
        let objects = bucket::client(&remote.address, remote.key.as_ref()).map_err(failed)?;
        Self::over(folder, objects, remote, copies, now, local, here).map(Some)
    }

    /// The same on any object store.
    pub(super) fn over(
        folder: &FilePath,
        objects: Arc<dyn Objects>,
        remote: Remote,
        copies: Bytes,
        now: WallTime,
        local: &Arc<dyn ObjectStore>,
        here: Vec<(Digest, Bytes)>,
    ) -> Result<Arc<Self>, StoreError> {
        let before = Record::read(folder)?;
        let url = remote.address.to_url();
        let first = u64::try_from(now.as_nanos() / 1_000).unwrap_or(0);
        let life = remote.shared.as_ref().map_or(first, |shared| shared.life);
        let (origin, mut lives, claimed) = match &before {
            Some(record) => (record.origin.clone(), record.lives.clone(), record.claimed),
            None => {
                let random = identity::random();
                let random = random.map_err(|error| StoreError::Bucket(error.to_string()))?;
                (Digest(random).to_string(), Vec::new(), false)
            }
        };
        let moved_from = before.filter(|before| before.claimed && before.store != url);
        let moved_from = moved_from.map(|before| before.store);
        let last_lives = if claimed { lives.clone() } else { Vec::new() };
        lives.push(life);
        let store = moved_from.clone().unwrap_or_else(|| url.clone());
        let record = Record { store, origin, lives, claimed };
        // Before the marker exists, so that a crash leaves no marker of an unknown origin or process.
        record.write(folder)?;
        let shared_as = remote.shared.map(|shared| shared.number);
        let origin = record.origin.clone();
        let claim = Claim { origin, life, last_lives, moved_from, shared_as };
        let bucket = Bucket::open(objects, remote.address, claim, remote.patience);
        let bucket = bucket.map_err(StoreError::Bucket)?;
        // Without an answer so far, the marker may be that of an earlier process.
        let lives = if bucket.list().is_some() { vec![life] } else { record.lives };
        Record { store: url, lives, claimed: true, ..record }.write(folder)?;
        let unsent = Mutex::new(here.iter().map(|(digest, _)| *digest).collect());
        let copies = Copies::new(copies, here.iter().copied());
        let attached = Arc::new(Attached { bucket, copies, unsent: Arc::new(unsent) });
        let (uploading, local) = (Arc::downgrade(&attached), Arc::clone(local));
        if !here.is_empty() {
            let upload = move || upload_unsent(&uploading, &local, here);
            let thread = std::thread::Builder::new().name("lull-upload".to_owned());
            thread.spawn(upload).map_err(|error| StoreError::Bucket(error.to_string()))?;
        }
        Ok(attached)
    }

    /// The bodies in the bucket and on this machine; none if the bucket has not answered so far.
    pub(super) fn list(&self) -> Option<Vec<(Digest, Bytes)>> {
        let mut all = self.bucket.list()?;
        all.extend(self.copies.list());
        Some(all)
    }

    /// The bodies among these that are in the bucket by now.
    pub(super) fn look_for(&self, digests: Vec<Digest>) -> Vec<(Digest, Bytes)> {
        self.bucket.look_for(digests)
    }

    pub(super) fn away(&self) -> Option<String> {
        self.bucket.away()
    }

    pub(super) fn follow(&self, on_change: impl Fn(Change) + Send + Sync + 'static) {
        self.bucket.follow(on_change);
    }

    pub(super) fn address(&self) -> String {
        self.bucket.address().to_string()
    }

    /// The body is not needed any more.
    pub(super) fn discard(&self, digest: &Digest) {
        // Before the bucket forgets it, so that an upload that ends now does not enter it again.
        lock(&self.unsent).remove(digest);
        self.copies.forget(digest);
        self.bucket.discard(digest);
    }
}

/// The pause before an upload is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Uploads the bodies that are only on this machine, until all are in the bucket or it is dropped.
fn upload_unsent(
    attached: &Weak<Attached>,
    local: &Arc<dyn ObjectStore>,
    here: Vec<(Digest, Bytes)>,
) {
    for (digest, size) in here {
        loop {
            let Some(attached) = attached.upgrade() else { return };
            let unsent = Arc::clone(&attached.unsent);
            let is_needed = move || lock(&unsent).contains(&digest);
            if !is_needed() {
                break;
            }
            let source = Source::Local(Arc::clone(local), name_of(&digest));
            match attached.bucket.upload(digest, size, source, is_needed) {
                Err(NotUploaded::Bucket(_)) => {
                    drop(attached);
                    std::thread::sleep(PAUSE);
                }
                // Reads find out that a body is damaged.
                Ok(()) | Err(NotUploaded::Local(_) | NotUploaded::Corrupt) => {
                    lock(&attached.unsent).remove(&digest);
                    break;
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        StoreError::Away(failure.to_string())
    }
}
