//! Reads, and the bodies that they name.

use core::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes as Buffer;
use lull_replication::Pin;
use lull_replication::path::Path;
use lull_replication::replica::{
    Answer, Holding, Outcome, ReadId, ReadTarget, Request, WaitReason,
};
use lull_replication::time::{LocalTime, WallTime};
use lull_replication::types::{Sequence, Version};
use lull_replication::wire::{Outline, PIECE};
use thiserror::Error;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::retries::Retries;
use super::{ReplicaHandle, Shared};
use crate::daemon::read_with_retries;
use crate::store::{BodyReader, StoreError};

/// Why a read was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// It would wait for longer than its caller.
    #[error("{}", waits(*.0))]
    Waits(WaitReason),
    /// The body was evicted each time before it was read, until the caller's patience ended: the quota is too
    /// small for the data that are read.
    #[error("the body is evicted as fast as it is fetched: raise the quota")]
    Evicted,
    /// The origin has lost the body.
    #[error("the origin has lost the body: publish it there again")]
    Lost,
    /// The machine was out of descriptors or memory until the caller's patience ended.
    #[error("this machine has no free descriptors or memory for it: try again")]
    Scarce,
    /// The daemon ends.
    #[error("the replica has stopped")]
    Stopped,
}

fn waits(why: WaitReason) -> &'static str {
    match why {
        WaitReason::Stale => {
            "the lease has expired, because the origin sent no message: try again, or ask another \
             replica"
        }
        WaitReason::Applying => "newer state is being written to the disk: try again",
        WaitReason::Behind => {
            "this session has seen newer state than this replica has: try again, or return to the \
             previous replica"
        }
        WaitReason::Invalid => "the body is being fetched from the origin: try again",
        WaitReason::Order => "an earlier read waits: try again",
    }
}

/// A started read. Dropping it cancels it.
pub struct Pending {
    shared: Arc<Shared>,
    id: ReadId,
    answer: oneshot::Receiver<Answer>,
    answered: bool,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Pending {
    /// Why it waits; none if it does not.
    pub fn why(&self) -> Option<WaitReason> {
        self.shared.try_with(|core, _| core.machine.why(self.id)).flatten()
    }

    /// The result of [`answer`](Pending::answer) if it needs no waiting. To be called once, before any
    /// waiting.
    pub fn at_once(&mut self) -> Option<Result<Answer, ReadError>> {
        let answer = match self.answer.try_recv() {
            Ok(answer) => Ok(answer),
            Err(TryRecvError::Closed) => Err(ReadError::Stopped),
            Err(TryRecvError::Empty) => return None,
        };
        self.answered = true;
        Some(answer)
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// If the daemon ends first.
    pub async fn answer(&mut self) -> Result<Answer, ReadError> {
        let answer = (&mut self.answer).await.map_err(|_| ReadError::Stopped)?;
        self.answered = true;
        Ok(answer)
    }

    /// Waits for the answer: for `patience` at most, or without a limit.
    ///
    /// # Errors
    /// Why it still waits then (§6.2.2: the server of the read returns an error, or names another replica).
    pub async fn within(&mut self, patience: Option<Duration>) -> Result<Answer, ReadError> {
        let Some(patience) = patience else { return self.answer().await };
        match tokio::time::timeout(patience, self.answer()).await {
            Ok(answer) => answer,
            Err(_) => match self.why() {
                Some(why) => Err(ReadError::Waits(why)),
                // It was answered just now.
                None => self.answer().await,
            },
        }
    }

    /// Waits for the answer, without a runtime.
    ///
    /// # Errors
    /// As for [`answer`](Pending::answer).
    pub fn blocking(&mut self) -> Result<Answer, ReadError> {
        futures_executor::block_on(self.answer())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.shared.try_with(|core, now| {
            if core.reads.remove(&self.id).is_some() {
                core.machine.cancel_read(now, self.id);
            }
        });
    }
}

/// A body that is kept for a reader.
struct Pinned {
    shared: Arc<Shared>,
    pin: Pin,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.shared.try_with(|core, _| core.machine.unpin(self.pin));
    }
}

/// An object that was read. Its body is kept while this value exists, also if it is overwritten, unless it is
/// corrupted.
pub struct Found {
    /// The state that it was read from.
    pub at: Sequence,
    /// Its version.
    pub version: Version,
    /// All writes acknowledged before this time are in that state. None if no read was answered for it.
    pub reflects: Option<LocalTime>,
    shared: Arc<Shared>,
    body: Opened,
    pinned: Option<Pinned>,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").field("version", &self.version).finish_non_exhaustive()
    }
}

/// A body that is stored here.
#[derive(Clone)]
enum Opened {
    /// All of it, verified.
    Whole(Buffer),
    /// The expected hashes of its pieces.
    Pieces(Arc<Outline>),
}

impl Found {
    /// The whole body, if it is in memory.
    pub(crate) fn whole(&self) -> Option<&Buffer> {
        match &self.body {
            Opened::Whole(bytes) => Some(bytes),
            Opened::Pieces(_) => None,
        }
    }

    /// From now on its body may be discarded like any other.
    pub(crate) fn release_hold(&mut self) {
        self.pinned = None;
    }

    /// The bytes from `begin` to before `end`; none if they are no longer stored.
    pub(crate) async fn bytes(&self, begin: u64, end: u64) -> Result<Option<Vec<u8>>, ReadError> {
        let piece = PIECE as u64;
        let mut bytes = Vec::new();
        for number in begin / piece..end.div_ceil(piece) {
            let read = self.piece(u32::try_from(number).unwrap_or(u32::MAX)).await?;
            let Some(all) = read else { return Ok(None) };
            let first = number * piece;
            let from = begin.saturating_sub(first) as usize;
            let to = (end - first).min(all.len() as u64) as usize;
            let Some(part) = all.get(from..to) else { return Ok(None) };
            bytes.extend_from_slice(part);
        }
        Ok(Some(bytes))
    }

    /// The piece of this number, [`PIECE`] bytes except for the last one; none if it is missing or corrupt:
    /// then the body is fetched again when it is read.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn piece(&self, number: u32) -> Result<Option<Buffer>, ReadError> {
        /// The time to wait for a resource that the machine is out of.
        const TIMEOUT: Duration = Duration::from_secs(10);
        let outline = match &self.body {
            Opened::Whole(bytes) if number == 0 => return Ok(Some(bytes.clone())),
            Opened::Whole(_) => return Ok(None),
            Opened::Pieces(outline) => Arc::clone(outline),
        };
        let content = self.version.content;
        let read = move |body_reader: &BodyReader| {
            let piece = body_reader.piece(&content.digest, content.size, number)?;
            Ok::<_, StoreError>(piece.filter(|piece| outline.has(number, piece)))
        };
        let read = read_with_retries(&self.shared.body_reader, Some(TIMEOUT), read).await;
        let failed = |error: StoreError| {
            if error.is_passing() { ReadError::Scarce } else { ReadError::Stopped }
        };
        let read = read.map_err(failed)?;
        if read.is_none() {
            self.shared.with(|core, now| core.machine.handle_missing(now, &content.digest));
        }
        Ok(read)
    }
}

impl ReplicaHandle {
    /// Begins a read.
    ///
    /// # Errors
    /// If the daemon ends.
    pub fn begin(&self, request: Request) -> Result<Pending, ReadError> {
        let (sender, answer) = oneshot::channel();
        let begun = self.0.try_with(|core, now| {
            if core.closed || core.failed.is_some() {
                return Err(ReadError::Stopped);
            }
            core.last_read.0 += 1;
            core.reads.insert(core.last_read, sender);
            core.machine.handle_read(now, core.last_read, request);
            Ok(core.last_read)
        });
        let id = begun.unwrap_or(Err(ReadError::Stopped))?;
        Ok(Pending { shared: Arc::clone(&self.0), id, answer, answered: false })
    }

    /// Reads, and waits for the answer: for `patience` at most, or without a limit.
    ///
    /// # Errors
    /// As for [`begin`](ReplicaHandle::begin) and [`Pending::within`].
    pub async fn read(
        &self,
        request: Request,
        patience: Option<Duration>,
    ) -> Result<Answer, ReadError> {
        self.begin(request)?.within(patience).await
    }

    /// Reads an object and finds its body; none if the object does not exist. Also returns the state that
    /// shows it.
    ///
    /// # Errors
    /// As for [`read`](ReplicaHandle::read), and those of the body.
    pub async fn object(
        &self,
        path: &Path,
        after: Sequence,
        patience: Option<Duration>,
    ) -> Result<(Sequence, Option<Found>), ReadError> {
        let request = Request { target: ReadTarget::Object(path.clone()), after };
        self.fetch(request, patience).await
    }

    /// Reads which version an object is, without its body; none if the object does not exist. Also returns
    /// the state that shows it.
    ///
    /// # Errors
    /// As for [`read`](ReplicaHandle::read).
    pub async fn entry(
        &self,
        path: &Path,
        after: Sequence,
        patience: Option<Duration>,
    ) -> Result<(Sequence, Option<Version>), ReadError> {
        let request = Request { target: ReadTarget::Entry(path.clone()), after };
        let answer = self.read(request, patience).await?;
        Ok((answer.at, answer.outcome.version()))
    }

    /// For a caller that has the body, a read of its name replaces a read of the body: so it counts as one.
    pub(crate) fn count_read(&self, path: &Path) {
        self.0.with(|core, _| core.machine.count_read(path));
    }

    /// The body of a version that an earlier read returned, for a later reader; none if it was overwritten
    /// and is gone. Waits only for a new fetch: no other read delays it, and it delays none.
    ///
    /// # Errors
    /// As for [`object`](ReplicaHandle::object).
    pub async fn version(
        &self,
        path: &Path,
        version: Version,
        patience: Option<Duration>,
    ) -> Result<Option<Found>, ReadError> {
        if let Some(found) = self.open(version.sequence, version, patience).await? {
            return Ok(Some(found));
        }
        let target = ReadTarget::Opened(path.clone(), version);
        let (_, found) = self.fetch(Request { target, after: Sequence::ZERO }, patience).await?;
        Ok(found)
    }

    /// The states that a caller can read, see
    /// [`Replica::states`](lull_replication::replica::Replica::states): from the earliest to the present one,
    /// and when each was made.
    pub fn states(&self) -> Vec<(Sequence, WallTime)> {
        self.0.with(|core, _| core.machine.states().collect())
    }

    /// When a state was made; none if it is not available.
    pub fn made(&self, at: Sequence) -> Option<WallTime> {
        self.0.with(|core, _| core.machine.made(at))
    }

    /// The entry under a name in a state; none if it is not available.
    pub fn entry_at(&self, at: Sequence, path: &Path) -> Option<Outcome> {
        self.0.with(|core, _| core.machine.entry_at(at, path))
    }

    /// `forget` is called before any read is answered from another state. It is also called when an answer
    /// may no longer be used without a new request: see [`Answer::holds_for`]. It is called under the
    /// replica's lock, so it must neither wait nor read. Once it returns false, it is not called any more.
    pub(crate) fn remember(&self, forget: impl Fn() -> bool + Send + 'static) {
        self.0.with(|core, _| core.remember.push(Box::new(forget)));
    }

    /// The names in a folder in a state; none if it is not available.
    pub fn names_at(&self, at: Sequence, folder: Option<&Path>) -> Option<Outcome> {
        self.0.with(|core, _| core.machine.names_at(at, folder))
    }

    /// Where the body of a version of one of these states is.
    pub fn holding(&self, path: &Path, version: &Version) -> Holding {
        self.0.with(|core, _| core.machine.holding(path, version))
    }

    async fn fetch(
        &self,
        request: Request,
        patience: Option<Duration>,
    ) -> Result<(Sequence, Option<Found>), ReadError> {
        // A body may be evicted between the answer and its first byte. That repeats only if the quota holds
        // less than is read at once.
        let mut retries = Retries::new(patience);
        while retries.next().await {
            let left = retries.left();
            let answer = self.read(request.clone(), left).await?;
            let version = match answer.outcome {
                Outcome::Object(version) => version,
                Outcome::Lost(_) => return Err(ReadError::Lost),
                _ => return Ok((answer.at, None)),
            };
            if let Some(found) = self.open(answer.at, version, left).await? {
                return Ok((answer.at, Some(Found { reflects: answer.reflects, ..found })));
            }
            self.0.with(|core, now| core.machine.handle_missing(now, &version.content.digest));
        }
        Err(ReadError::Evicted)
    }

    /// Finds the body of a version; none if it is not stored here.
    async fn open(
        &self,
        at: Sequence,
        version: Version,
        patience: Option<Duration>,
    ) -> Result<Option<Found>, ReadError> {
        let shared = &self.0;
        let content = version.content;
        let (body_reader, digest) = (&shared.body_reader, content.digest);
        let mut pinned = None;
        let body = if content.size.0 == 0 {
            Some(Opened::Whole(Buffer::new()))
        } else if content.size.0 <= PIECE as u64 {
            let read = read_with_retries(body_reader, patience, move |body_reader| {
                body_reader.read(&digest)
            })
            .await;
            read.map_err(|error| self.failed(error))?.map(Opened::Whole)
        } else {
            let Some(pin) = shared.with(|core, _| core.machine.pin(&digest)) else {
                return Ok(None);
            };
            pinned = Some(Pinned { shared: Arc::clone(shared), pin });
            let outline = shared.outlines.get_or_read(body_reader, &content, patience).await;
            outline.map_err(|error| self.failed(error))?.map(Opened::Pieces)
        };
        let shared = Arc::clone(shared);
        Ok(body.map(|body| Found { at, version, reflects: None, shared, body, pinned }))
    }

    /// The read error for a failure of the store. Unless the machine is short of a resource, the store ends.
    fn failed(&self, error: StoreError) -> ReadError {
        match error {
            error if error.is_passing() => return ReadError::Scarce,
            // It has ended already.
            StoreError::Stopped => {}
            error => {
                self.0.try_with(|core, _| core.fail(error));
            }
        }
        ReadError::Stopped
    }
}
