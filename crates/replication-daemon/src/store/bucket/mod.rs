//! Large bodies in a bucket of an S3-compatible object store.
//!
//! ```text
//!            store                       read
//!              │                          ▲
//!              ▼                          │ intact
//!   staged file or memory ───────▶ local copies, up to a limit
//!              │                          ▲
//!              │ 1. upload                │ download, compared with the hash
//!              ▼                          │
//!   PREFIX/bodies/ab/HASH.PROCESS+NUMBER ─┘      PREFIX/lull-origin.json: whose they are
//! ```
//!
//! A body is durable when the bucket has confirmed it; the copy on the local disk may be deleted at any time
//! after that. Each request is retried with backoff. If the bucket fails for longer than its patience, it is
//! away: bodies to be stored are refused, and reads of bodies without a local copy wait.

mod address;
mod catalog;
mod claim;
mod deletion;
mod outage;
mod transfer;
mod transport;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lull_cc::Bytes;
use lull_replication::types::Digest;
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Name;
use object_store::{ObjectStore, RetryConfig};
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, Semaphore};

use self::catalog::Catalog;
use self::claim::{Marker, NotClaimed};
use self::outage::{Backoff, Outage};

pub use self::address::{AddressError, BucketAddress};
pub use self::outage::{Change, Patience};
pub(super) use self::transfer::{Downloaded, NotUploaded, Source};

/// The requests that a bucket has to answer.
pub(in crate::store) trait Objects: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> Objects for T {}

/// The user of a bucket.
#[derive(Clone, Debug)]
pub(in crate::store) struct Claim {
    /// The random number of the origin.
    pub(in crate::store) origin: String,
    /// When the process began, in microseconds since 1970.
    pub(in crate::store) life: u64,
    /// The start times of the processes that may have used the bucket last. Empty if the origin has never used it.
    pub(in crate::store) last_lives: Vec<u64>,
    /// The URL of the bucket that the origin has used before this one.
    pub(in crate::store) moved_from: Option<String>,
    /// The number of the origin that several machines share; a log decides which of them uses the bucket.
    pub(in crate::store) shared_as: Option<String>,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(in crate::store) enum Failure {
    /// There is no such object or bucket.
    #[error("there is no such object or bucket")]
    Missing,
    /// The object is not in the required state.
    #[error("the object has changed")]
    Changed,
    /// The server cannot do that.
    #[error("the server does not support this request")]
    Unsupported,
    /// The bucket failed for longer than its patience, or is known to be away.
    #[error("{0}")]
    Away(String),
}

/// A bucket with the bodies of one origin.
pub(in crate::store) struct Bucket {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    /// Bodies that are being downloaded.
    downloads: Mutex<BTreeSet<Digest>>,
    downloaded: Condvar,
}

/// The part that the tasks have.
struct Shared {
    objects: Arc<dyn Objects>,
    address: BucketAddress,
    marker: Marker,
    last_lives: Vec<u64>,
    /// The bucket before this one.
    moved_from: Option<String>,
    /// The number before the origin was shared, if it is.
    unshared: Option<String>,
    catalog: Mutex<Catalog>,
    outage: Outage,
    seeds: AtomicU64,
    /// Memory for parts that are being uploaded.
    parts: Arc<Semaphore>,
    garbage: Mutex<Vec<Name>>,
    more_garbage: Notify,
    /// When the marker was read last.
    checked: Mutex<Option<Instant>>,
}

impl core::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Bucket({})", self.shared.address)
    }
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Shared({})", self.address)
    }
}

/// The folder of bodies below the prefix.
const BODIES: &str = "bodies";
/// Parts in memory for uploads, of [`transfer::PART`] each at most.
const PARTS: usize = 16;
/// Bodies that are downloaded at a time. Other readers need the remaining threads.
const DOWNLOADS: usize = 32;
/// The pause before a listing is tried again.
const RELIST: Duration = Duration::from_secs(5);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The client of an S3-compatible server. Its other settings are those of the environment: `AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, and those of a container or
/// a machine in the cloud.
pub(in crate::store) fn client(
    address: &BucketAddress,
    key: Option<&(String, String)>,
) -> object_store::Result<Arc<dyn Objects>> {
    // Retries are here, because the state of the bucket follows from them.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&address.bucket)
        .with_http_connector(transport::Connector)
        .with_retry(retry)
        // The server compares each part with it before it confirms the part.
        .with_checksum_algorithm(Checksum::SHA256);
    if let Some(endpoint) = &address.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &address.region {
        builder = builder.with_region(region);
    }
    if let Some((id, secret)) = key {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
    }
    Ok(Arc::new(builder.build()?))
}

impl Bucket {
    /// Takes the bucket for a process of an origin, and lists its bodies. Without an answer of a bucket that was
    /// used before, that is done when it answers again.
    ///
    /// # Errors
    /// Why the bucket may not be used, in one line.
    pub(in crate::store) fn open(
        objects: Arc<dyn Objects>,
        address: BucketAddress,
        claim: Claim,
        patience: Patience,
    ) -> Result<Self, String> {
        let Claim { origin, life, last_lives, moved_from, shared_as } = claim;
        let may_wait = (shared_as.is_some() || !last_lives.is_empty()) && moved_from.is_none();
        let unshared = shared_as.as_ref().map(|_| origin.clone());
        let threads = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = threads.map_err(|error| format!("the system gives no thread: {error}"))?;
        let shared = Arc::new(Shared {
            objects,
            address,
            marker: Marker::new(shared_as.as_ref().unwrap_or(&origin), life),
            last_lives,
            moved_from,
            unshared,
            catalog: Mutex::new(Catalog::new(life)),
            outage: Outage::new(patience),
            seeds: AtomicU64::new(life),
            parts: Arc::new(Semaphore::new(PARTS)),
            garbage: Mutex::default(),
            more_garbage: Notify::new(),
            checked: Mutex::default(),
        });
        let (downloads, downloaded) = Default::default();
        let bucket =
            Bucket { shared: Arc::clone(&shared), runtime: Some(runtime), downloads, downloaded };
        let begun = Arc::clone(&shared);
        let ready = bucket.run(async move { begun.claim_and_list().await });
        match ready.unwrap_or_else(|failure| Err(failure.into())) {
            Ok(()) => {}
            Err(NotClaimed::Failed(Failure::Away(why))) if may_wait && !is_refusal(&why) => {
                shared.outage.give_up(Instant::now(), &why);
                bucket.spawn(Arc::clone(&shared).begin_later());
            }
            Err(why) => return Err(shared.explain(&why)),
        }
        bucket.spawn(shared.delete_garbage());
        Ok(bucket)
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(work);
        }
    }

    /// Runs work on the bucket's own threads and waits for it. The caller may be any thread.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failure> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.spawn(async move {
            let _ = sender.send(work.await);
        });
        receiver.recv().map_err(|_| Failure::Away("the process ends".to_owned()))
    }

    /// The bodies in the bucket; none if it has not answered so far.
    pub(in crate::store) fn list(&self) -> Option<Vec<(Digest, Bytes)>> {
        let catalog = lock(&self.shared.catalog);
        catalog.is_listed.then(|| catalog.bodies())
    }

    /// Lists the folders of these bodies once more. Returns those that are there.
    pub(in crate::store) fn look_for(&self, digests: Vec<Digest>) -> Vec<(Digest, Bytes)> {
        let (shared, wanted) = (Arc::clone(&self.shared), digests.clone());
        // Without an answer they are missing: reads find those that are not.
        let _ = self.run(async move { shared.look_for(&wanted).await });
        let catalog = lock(&self.shared.catalog);
        let found = digests.iter().filter_map(|one| Some((*one, catalog.get(one)?.size)));
        found.collect()
    }

    /// Whether a body is in the bucket.
    pub(in crate::store) fn has(&self, digest: &Digest) -> bool {
        lock(&self.shared.catalog).get(digest).is_some()
    }

    /// The copy in the bucket is damaged: it is treated as missing.
    pub(in crate::store) fn forget(&self, digest: &Digest) {
        lock(&self.shared.catalog).remove(digest);
    }

    /// Why the bucket does not answer, if it is away.
    pub(in crate::store) fn away(&self) -> Option<String> {
        self.shared.outage.why()
    }

    /// Calls `on_change` when the bucket is away, and when it is back.
    pub(in crate::store) fn follow(&self, on_change: impl Fn(Change) + Send + Sync + 'static) {
        self.shared.outage.follow(Box::new(on_change));
    }

    /// The address, without its options.
    pub(in crate::store) fn address(&self) -> &BucketAddress {
        &self.shared.address
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Requests in flight are cancelled. A caller may be a task.
            runtime.shutdown_background();
        }
    }
}

/// Whether a failure needs the operator: waiting does not help.
fn is_refusal(why: &str) -> bool {
    why.contains(REFUSED)
}

const REFUSED: &str = "refuses access";

impl Shared {
    fn folder(&self) -> Name {
        self.address.prefix.clone().join(BODIES)
    }

    async fn claim_and_list(self: &Arc<Self>) -> Result<(), NotClaimed> {
        self.claim().await?;
        let found = self.list().await?;
        let unneeded = lock(&self.catalog).list(found);
        let folder = self.folder();
        self.discard(unneeded.into_iter().map(|(digest, object)| object.name(&folder, &digest)));
        self.outage.succeed();
        Ok(())
    }

    /// Whether the bucket is claimed and listed.
    fn is_ready(&self) -> bool {
        lock(&self.catalog).is_listed
    }

    async fn begin_later(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RELIST).await;
            match self.claim_and_list().await {
                Ok(()) => return,
                Err(why) => self.outage.give_up(Instant::now(), &self.explain(&why)),
            }
        }
    }

    /// The failure of a request, in one line with what to do.
    fn explain_error(&self, error: &object_store::Error) -> String {
        let address = &self.address;
        match error {
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => format!(
                "`{address}` {REFUSED}: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and that this key may \
                 list, read, write and delete objects below the prefix"
            ),
            error => {
                let root = root_of(error);
                let why = one_line(message_of(&root));
                format!("`{address}` does not answer as it should ({why})")
            }
        }
    }

    /// Sends a request until it is answered, for as long as the patience with the bucket lasts.
    async fn retried<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let begun = Instant::now();
        let is_ready = self.is_ready();
        if is_ready {
            self.outage.admit(begun).map_err(Failure::Away)?;
        }
        let mut backoff = Backoff::new(self.seeds.fetch_add(1, Ordering::Relaxed));
        loop {
            let error = match attempt().await {
                Ok(value) => {
                    if is_ready {
                        self.outage.succeed();
                    }
                    return Ok(value);
                }
                Err(error) if is_missing(&error) => return Err(Failure::Missing),
                Err(
                    object_store::Error::AlreadyExists { .. }
                    | object_store::Error::Precondition { .. },
                ) => return Err(Failure::Changed),
                Err(
                    object_store::Error::NotImplemented { .. }
                    | object_store::Error::NotSupported { .. },
                ) => return Err(Failure::Unsupported),
                Err(error) => error,
            };
            let why = self.explain_error(&error);
            if is_refusal(&why) {
                self.outage.give_up(Instant::now(), &why);
            }
            let is_away = self.outage.fail(Instant::now(), &why);
            if is_away || begun.elapsed() >= self.outage.patience() {
                return Err(Failure::Away(why));
            }
            tokio::time::sleep(backoff.pause()).await;
        }
    }
}

/// Whether an object or a bucket does not exist. Any other answer with 404, such as the page of a proxy that does
/// not know the server, must not make all bodies count as lost.
fn is_missing(error: &object_store::Error) -> bool {
    let object_store::Error::NotFound { source, .. } = error else { return false };
    let text = root_of(&**source);
    match text.split_once("404 Not Found:") {
        Some((_, body)) => body.trim().is_empty() || body.contains("<Code>NoSuch"),
        None => true,
    }
}

/// The message of an error of S3, or the whole text.
fn message_of(text: &str) -> &str {
    let message = text.split_once("<Message>").and_then(|(_, rest)| rest.split_once("</Message>"));
    message.map_or(text, |(message, _)| message)
}

/// The innermost cause of an error that says something.
fn root_of(error: &dyn core::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let inner = cause.to_string();
        if !inner.is_empty() {
            text = inner;
        }
        next = cause.source();
    }
    text
}

/// The text on one line of bounded length.
fn one_line(text: &str) -> String {
    const MAX_FRAME_BYTES: usize = 200;
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_FRAME_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_found(body: &str) -> object_store::Error {
        let source = format!("Server returned non-2xx status code: 404 Not Found: {body}");
        object_store::Error::NotFound { path: "a".to_owned(), source: source.into() }
    }

    #[test]
    fn only_answers_of_s3_say_that_an_object_is_missing() {
        let with = |code: &str| format!("<Error><Code>{code}</Code><Message>why</Message></Error>");
        for body in ["", " ", &with("NoSuchKey"), &with("NoSuchBucket"), &with("NoSuchUpload")] {
            assert!(is_missing(&not_found(body)), "{body}");
        }
        for body in ["<html>This domain is for sale", &with("XAdminUserNotFound")] {
            assert!(!is_missing(&not_found(body)), "{body}");
        }
        let other = object_store::Error::Generic { store: "S3", source: "404 Not Found:".into() };
        assert!(!is_missing(&other));
    }

    #[test]
    fn error_of_s3_is_shown_by_its_message() {
        assert_eq!(message_of("500: <Error><Code>A</Code><Message>why</Message>"), "why");
        assert_eq!(message_of("<Message>cut"), "<Message>cut");
        assert_eq!(one_line("a\n  b\tc"), "a b c");
        assert_eq!(one_line(&"x".repeat(1_000)).len(), 200);
    }
}
