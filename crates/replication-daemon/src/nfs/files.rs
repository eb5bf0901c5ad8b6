//! Reads of the replica for NFS.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lull_replication::path::{Path, PathError};
use lull_replication::replica::{Answer, Entry, Outcome, ReadTarget, Request};
use lull_replication::types::{Metadata, Sequence, Version};
use nfs3_types::nfs3::{fattr3, nfs_fh3, nfsstat3};
use nfs3_types::xdr_codec::Opaque;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

use super::attributes;
use super::handles::{HandleError, Handles, Node};
use super::listings::{Listing, Listings};
use crate::daemon::{Found, ReadError, ReplicaHandle, Retries};

/// Reads that are answered at the same time. Each takes as much memory as it asks for.
const AT_A_TIME: usize = 64;
/// Versions whose bodies are remembered: NFS does not say when a file is closed.
const OPENED: usize = 1_024;

/// An error of a read for the client.
pub(super) fn status_of(error: ReadError) -> nfsstat3 {
    match error {
        ReadError::Waits(_) | ReadError::Scarce | ReadError::Evicted => nfsstat3::NFS3ERR_JUKEBOX,
        ReadError::Lost => nfsstat3::NFS3ERR_IO,
        ReadError::Stopped => nfsstat3::NFS3ERR_SERVERFAULT,
    }
}

/// A version that a client has read.
#[derive(Debug)]
pub(super) struct Opened {
    path: Path,
    pub(super) version: Version,
    found: AsyncMutex<Option<Arc<Found>>>,
}

type Key = (Path, Sequence);

#[derive(Debug, Default)]
struct OpenedFiles {
    by_key: BTreeMap<Key, Arc<Opened>>,
    /// The oldest first.
    order: VecDeque<Key>,
}

/// The replica, and what is remembered of its clients' handles.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) replica: ReplicaHandle,
    patience: Duration,
    handles: Mutex<Handles>,
    listings: Mutex<Listings>,
    opened: Mutex<OpenedFiles>,
    slots: Semaphore,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    pub(super) fn new(replica: ReplicaHandle, patience: Duration) -> Self {
        Files {
            replica,
            patience,
            handles: Mutex::default(),
            listings: Mutex::default(),
            opened: Mutex::default(),
            slots: Semaphore::new(AT_A_TIME),
        }
    }

    pub(super) fn handle_bytes(&self, node: &Node) -> Vec<u8> {
        lock(&self.handles).handle(node)
    }

    pub(super) fn handle(&self, node: &Node) -> nfs_fh3 {
        nfs_fh3 { data: Opaque::owned(self.handle_bytes(node)) }
    }

    pub(super) fn resolve(&self, handle: &[u8]) -> Result<Node, nfsstat3> {
        lock(&self.handles).node(handle).map_err(|error| match error {
            HandleError::Bad => nfsstat3::NFS3ERR_BADHANDLE,
            HandleError::Stale => nfsstat3::NFS3ERR_STALE,
        })
    }

    /// The node of an entry under a name.
    pub(super) fn node(path: Path, entry: &Entry) -> Node {
        match entry {
            Entry::File(version) => Node::File(path, version.sequence),
            Entry::Folder(_) => Node::Folder(Some(path)),
        }
    }

    /// The path of a name in a folder.
    pub(super) fn child(&self, folder: &Node, name: &[u8]) -> Result<Path, nfsstat3> {
        let Node::Folder(folder) = folder else { return Err(nfsstat3::NFS3ERR_NOTDIR) };
        let mut path = folder.as_ref().map_or_else(Vec::new, Path::prefix);
        path.extend_from_slice(name);
        if name.contains(&b'/') {
            return Err(nfsstat3::NFS3ERR_NOENT);
        }
        Path::from_bytes(&path).map_err(|error| match error {
            PathError::Long | PathError::LongName => nfsstat3::NFS3ERR_NAMETOOLONG,
            // No object can have such a name.
            _ => nfsstat3::NFS3ERR_NOENT,
        })
    }

    async fn ask(&self, target: ReadTarget) -> Result<Answer, nfsstat3> {
        // All clients are one session, answered by one replica that has always seen their state.
        let request = Request { target, after: Sequence::ZERO };
        self.replica.read(request, Some(self.patience)).await.map_err(status_of)
    }

    /// The entry under a name, and its state.
    pub(super) async fn entry(&self, path: &Path) -> Result<(Sequence, Option<Entry>), nfsstat3> {
        let answer = self.ask(ReadTarget::Entry(path.clone())).await?;
        Ok(match answer.outcome {
            Outcome::Entry(entry) => (answer.at, Some(entry)),
            _ => (answer.at, None),
        })
    }

    /// The entry of a handle in the present state: the version, or the fields of a folder's object.
    pub(super) async fn current(&self, node: &Node) -> Result<(Sequence, Entry), nfsstat3> {
        let Some(path) = node.path() else {
            return Ok((self.ask(ReadTarget::Root).await?.at, Entry::Folder(None)));
        };
        let (at, entry) = self.entry(path).await?;
        match (node, entry) {
            (Node::Folder(_), Some(entry @ Entry::Folder(_))) => Ok((at, entry)),
            (Node::File(_, sequence), Some(Entry::File(version)))
                if version.sequence == *sequence =>
            {
                Ok((at, Entry::File(version)))
            }
            // It was deleted, or overwritten: its name has another handle now.
            _ => Err(nfsstat3::NFS3ERR_STALE),
        }
    }

    /// The attributes of an entry in a state.
    pub(super) fn attributes(&self, path: Option<&Path>, at: Sequence, entry: &Entry) -> fattr3 {
        match (entry, path) {
            (Entry::File(version), Some(path)) => attributes::of_version(path, version),
            (Entry::Folder(told), _) => self.folder_attributes(path, at, *told),
            (Entry::File(_), None) => self.folder_attributes(None, at, None),
        }
    }

    fn folder_attributes(
        &self,
        path: Option<&Path>,
        at: Sequence,
        told: Option<Metadata>,
    ) -> fattr3 {
        let path = path.map_or(&b""[..], Path::as_bytes);
        attributes::of_folder(path, told, at, self.replica.made(at))
    }

    /// The names of a folder: those of the state that the client has begun with, if there is one.
    pub(super) async fn listing(
        &self,
        folder: &Option<Path>,
        begun: Option<Sequence>,
    ) -> Result<Arc<Listing>, nfsstat3> {
        let (at, outcome) = match begun {
            Some(at) => {
                let remembered = lock(&self.listings).get(folder, at);
                if let Some(listing) = remembered {
                    return Ok(listing);
                }
                let outcome = self.replica.names_at(at, folder.as_ref());
                // The client begins again.
                (at, outcome.ok_or(nfsstat3::NFS3ERR_BAD_COOKIE)?)
            }
            None => {
                let answer = self.ask(ReadTarget::Names(folder.clone())).await?;
                (answer.at, answer.outcome)
            }
        };
        let Outcome::Names(names) = outcome else { return Err(nfsstat3::NFS3ERR_STALE) };
        let listing = Arc::new(Listing { folder: folder.clone(), at, names });
        lock(&self.listings).add(Arc::clone(&listing));
        Ok(listing)
    }

    /// The version of a handle, to read from: also one that was overwritten a short time ago.
    pub(super) async fn open(&self, path: &Path, at: Sequence) -> Result<Arc<Opened>, nfsstat3> {
        let key = (path.clone(), at);
        let known = lock(&self.opened).by_key.get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let current = self.current(&Node::File(path.clone(), at)).await;
        let entry = match current {
            Ok((_, entry)) => entry,
            Err(status) => match self.replica.entry_at(at, path) {
                Some(Outcome::Entry(entry)) => entry,
                _ => return Err(status),
            },
        };
        let Entry::File(version) = entry else { return Err(nfsstat3::NFS3ERR_STALE) };
        if version.sequence != at {
            return Err(nfsstat3::NFS3ERR_STALE);
        }
        let opened = Opened { path: path.clone(), version, found: AsyncMutex::new(None) };
        let opened = Arc::new(opened);
        let mut all = lock(&self.opened);
        if all.by_key.insert(key.clone(), Arc::clone(&opened)).is_none() {
            all.order.push_back(key);
        }
        if all.order.len() > OPENED
            && let Some(oldest) = all.order.pop_front()
        {
            all.by_key.remove(&oldest);
        }
        Ok(opened)
    }

    /// The bytes of a version from `begin` to before `end`.
    pub(super) async fn bytes(
        &self,
        opened: &Opened,
        begin: u64,
        end: u64,
    ) -> Result<Vec<u8>, nfsstat3> {
        let mut tries = Retries::new(Some(self.patience));
        while tries.next().await {
            let found = self.found(opened, tries.left()).await?;
            let read = {
                // Never closed.
                let _slot = self.slots.acquire().await;
                found.bytes(begin, end).await.map_err(status_of)?
            };
            if let Some(bytes) = read {
                return Ok(bytes);
            }
            // It was overwritten long ago, or evicted. If it is still current, it is fetched again.
            opened.found.lock().await.take_if(|own| Arc::ptr_eq(own, &found));
        }
        Err(nfsstat3::NFS3ERR_JUKEBOX)
    }

    async fn found(
        &self,
        opened: &Opened,
        patience: Option<Duration>,
    ) -> Result<Arc<Found>, nfsstat3> {
        let Opened { path, version, found } = opened;
        // Held during the lookup, so that many readers of one large file look for it once.
        let mut shared = found.lock().await;
        if let Some(found) = &*shared {
            return Ok(Arc::clone(found));
        }
        let looked_up = self.replica.version(path, *version, patience).await.map_err(status_of)?;
        // It was overwritten, and its time of grace is over.
        let mut found = looked_up.ok_or(nfsstat3::NFS3ERR_STALE)?;
        // Nothing says when the file is closed, so an overwritten body is dropped after that time.
        found.release_hold();
        let found = Arc::new(found);
        *shared = Some(Arc::clone(&found));
        Ok(found)
    }
}
