//! The outlines of bodies that are read in pieces. All of a body is read once; from then on only the
//! requested pieces are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lull_cc::Bytes;
use lull_replication::lane::{Lane, Lanes};
use lull_replication::types::{Content, Digest};
use lull_replication::wire::{Outline, PIECE};
use tokio::sync::{Semaphore, watch};

use super::read_with_retries;
use crate::store::{BodyReader, StoreError};

/// Bytes of outlines that are kept: enough for 64 GiB of bodies.
const MAX_BYTES: usize = 32 << 20;
/// The approximate memory of one beside its hashes.
const EACH: usize = 256;
/// Bodies of a lane that are read for their outlines at a time: other jobs of the store continue meanwhile,
/// and short ones do not wait for long ones.
const AT_ONCE: usize = 4;

/// None if the body is missing or corrupt.
type Found = Option<Arc<Outline>>;

/// The outlines of a store's bodies, the most recently used ones.
#[derive(Clone, Debug)]
pub(super) struct Outlines(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    kept: Mutex<OutlineCache>,
    places: [Semaphore; Lane::COUNT],
}

#[derive(Debug, Default)]
struct OutlineCache {
    outlines: BTreeMap<Digest, (u64, Arc<Outline>, usize)>,
    /// By their last use.
    used: BTreeMap<u64, Digest>,
    uses: u64,
    bytes: usize,
    /// Outlines in computation. A failed one ends without a value.
    coming: BTreeMap<Digest, Weak<watch::Sender<Option<Found>>>>,
}

impl OutlineCache {
    fn get(&mut self, digest: &Digest) -> Found {
        let (used, outline, _) = self.outlines.get_mut(digest)?;
        self.used.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.used.insert(self.uses, *digest);
        Some(Arc::clone(outline))
    }

    fn put(&mut self, digest: Digest, outline: Arc<Outline>, bytes: usize) {
        self.uses += 1;
        if let Some((used, _, bytes)) = self.outlines.insert(digest, (self.uses, outline, bytes)) {
            self.used.remove(&used);
            self.bytes -= bytes;
        }
        self.used.insert(self.uses, digest);
        self.bytes += bytes;
        while self.bytes > MAX_BYTES
            && let Some((_, oldest)) = self.used.pop_first()
        {
            let bytes = self.outlines.remove(&oldest).map_or(0, |(.., bytes)| bytes);
            self.bytes -= bytes;
        }
    }
}

/// The memory of the outline of a body.
fn taken_by(size: Bytes) -> usize {
    let pieces = size.0.div_ceil(PIECE as u64);
    usize::try_from(32 * pieces).unwrap_or(MAX_BYTES) + EACH
}

impl Outlines {
    pub(super) fn new() -> Self {
        let places = Lane::ALL.map(|_| Semaphore::new(AT_ONCE));
        Outlines(Arc::new(Shared { kept: Mutex::default(), places }))
    }

    /// The outline of a body that has arrived.
    pub(super) fn keep(&self, content: &Content, outline: &Arc<Outline>) {
        let bytes = taken_by(content.size);
        self.0.kept().put(content.digest, Arc::clone(outline), bytes);
    }

    /// The outline of a body. If it is unknown, the whole body is read. That happens once for all requests,
    /// and continues to the end even if they do not wait.
    ///
    /// # Errors
    /// If the disk fails, or the machine lacks a resource for longer than `patience`.
    pub(super) async fn get_or_read(
        &self,
        body_reader: &BodyReader,
        content: &Content,
        patience: Option<Duration>,
    ) -> Result<Found, StoreError> {
        let Content { digest, size, .. } = *content;
        let ask = move |body_reader: &BodyReader| body_reader.outline(&digest, size);
        let mut coming = {
            let mut kept = self.0.kept();
            if let Some(outline) = kept.get(&digest) {
                return Ok(Some(outline));
            }
            match kept.coming.get(&digest).and_then(Weak::upgrade) {
                Some(sender) => sender.subscribe(),
                None => {
                    let (sender, coming) = watch::channel(None);
                    let sender = Arc::new(sender);
                    kept.coming.insert(digest, Arc::downgrade(&sender));
                    let (shared, body_reader) = (Arc::clone(&self.0), body_reader.clone());
                    let bytes = taken_by(size);
                    tokio::spawn(async move {
                        // Never closed.
                        let place =
                            shared.places[Lanes::default().lane_for(size).index()].acquire().await;
                        if shared.is_given_up(&digest, &sender) {
                            return;
                        }
                        let found = read_with_retries(&body_reader, patience, ask).await;
                        drop(place);
                        let mut kept = shared.kept();
                        kept.coming.remove(&digest);
                        let Ok(found) = found else { return };
                        let found = found.map(Arc::new);
                        if let Some(outline) = &found {
                            kept.put(digest, Arc::clone(outline), bytes);
                        }
                        drop(kept);
                        sender.send_replace(Some(found));
                    });
                    coming
                }
            }
        };
        if let Ok(found) = coming.wait_for(Option::is_some).await {
            return Ok(found.clone().flatten());
        }
        // The reason of a failure goes to each caller directly.
        Ok(read_with_retries(body_reader, patience, ask).await?.map(Arc::new))
    }
}

#[cfg(test)]
impl Outlines {
    /// Until the result is dropped, no body of that size is read for its outline.
    pub(super) async fn keep_busy(&self, size: Bytes) -> impl Drop + use<> {
        struct Busy(Outlines, usize);
        impl Drop for Busy {
            fn drop(&mut self) {
                self.0.0.places[self.1].add_permits(AT_ONCE);
            }
        }
        let lane = Lanes::default().lane_for(size).index();
        let places = self.0.places[lane].acquire_many(AT_ONCE as u32).await;
        places.expect("it is never closed").forget();
        Busy(self.clone(), lane)
    }

    /// How many are kept, and how many are being read.
    pub(super) fn count(&self) -> (usize, usize) {
        let kept = self.0.kept();
        (kept.outlines.len(), kept.coming.len())
    }

    /// How many wait for one that is being read.
    pub(super) fn waiting(&self) -> usize {
        let kept = self.0.kept();
        kept.coming.values().filter_map(Weak::upgrade).map(|sender| sender.receiver_count()).sum()
    }
}

impl Shared {
    /// Whether no caller waits for the body that is about to be read; then the read is cancelled. Otherwise a
    /// replica that demands and withdraws large bodies one after the other would have all of them read, and
    /// delay all others.
    fn is_given_up(&self, digest: &Digest, sender: &watch::Sender<Option<Found>>) -> bool {
        // Callers take a receiver behind the same lock.
        let mut kept = self.kept();
        let is_given_up = sender.receiver_count() == 0;
        if is_given_up {
            kept.coming.remove(digest);
        }
        is_given_up
    }

    fn kept(&self) -> MutexGuard<'_, OutlineCache> {
        // The data are consistent whenever a panic is possible.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Job, Opened, ReplicaState, Settings, Store};
    use lull_replication::time::WallTime;
    use lull_replication::types::Metadata;

    fn outline() -> Arc<Outline> {
        Arc::new(Outline::default())
    }

    fn digest(number: u64) -> Digest {
        Digest::of(&number.to_le_bytes())
    }

    #[test]
    fn most_recently_used_outlines_are_kept() {
        let mut kept = OutlineCache::default();
        for number in 0..10 {
            kept.put(digest(number), outline(), MAX_BYTES / 4);
            assert!(kept.get(&digest(0)).is_some(), "at {number}");
            assert!(kept.bytes <= MAX_BYTES);
        }
        let here: Vec<u64> = (0..10).filter(|at| kept.get(&digest(*at)).is_some()).collect();
        assert_eq!(here, [0, 7, 8, 9]);
        kept.put(digest(7), outline(), MAX_BYTES / 4);
        assert_eq!((kept.bytes, kept.outlines.len(), kept.used.len()), (MAX_BYTES, 4, 4));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn body_is_read_once_for_concurrent_requests() {
        let folder = tempfile::tempdir().unwrap();
        Store::create_replica(folder.path(), Settings::default()).unwrap();
        let opened =
            Store::<ReplicaState>::open(folder.path(), Settings::default(), WallTime::default());
        let Opened { mut store, .. } = opened.unwrap();
        let bytes = vec![7; 10 * PIECE];
        let mut stager = store.bodies().stage();
        stager.write(&bytes).unwrap().unwrap();
        let body = stager.finish().unwrap().unwrap();
        let (digest, size) = (body.digest, body.size);
        store.run(vec![Job::Store(body)]).unwrap();
        let (body_reader, outlines) = (store.body_reader(), Outlines::new());
        let content = Content { digest, size, metadata: Metadata::default() };
        let ask = || outlines.get_or_read(&body_reader, &content, None);
        let (one, other) = tokio::join!(ask(), ask());
        let (one, other) = (one.unwrap().unwrap(), other.unwrap().unwrap());
        assert!(Arc::ptr_eq(&one, &other) && outlines.0.kept().coming.is_empty());
        // The store no longer checks whether it exists.
        std::fs::remove_dir_all(folder.path().join("bodies")).unwrap();
        assert!(Arc::ptr_eq(&one, &ask().await.unwrap().unwrap()));
        let other = Content { digest: Digest::of(b"another"), size: Bytes(100_000), ..content };
        assert_eq!(outlines.get_or_read(&body_reader, &other, None).await.unwrap(), None);
        assert!(outlines.0.kept().coming.is_empty(), "and what is not there is not remembered");
    }
}
