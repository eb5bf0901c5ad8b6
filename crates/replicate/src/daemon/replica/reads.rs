//! Reads, and the bodies that they name.

use core::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes as Buffer;
use thiserror::Error;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::spawn_blocking;

use super::{ReplicaHandle, Shared};
use crate::path::Path;
use crate::replica::{Answer, Holding, Outcome, ReadId, Request, What, Why};
use crate::store::{Library, StoreError};
use crate::time::WallTime;
use crate::types::{Sequence, Version};
use crate::wire::{Outline, PIECE};

/// Why a read was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// It would have to wait for longer than whoever reads does.
    #[error("{}", waits(*.0))]
    Waits(Why),
    /// The body went away each time before it was read: the quota is too small for what is read.
    #[error("the body is given up as fast as it is fetched: raise the quota")]
    Evicted,
    /// The daemon ends.
    #[error("the replica has stopped")]
    Stopped,
}

fn waits(why: Why) -> &'static str {
    match why {
        Why::Stale => {
            "the origin was not heard for too long to answer: try again, or ask another replica"
        }
        Why::Applying => "newer state is on its way to the disk: try again",
        Why::Behind => {
            "this session has seen newer state than is here: try again, or go back to where it was"
        }
        Why::Invalid => "the body is on its way from the origin: try again",
        Why::Order => "an earlier read waits: try again",
    }
}

/// A read that was begun. Dropped, nobody waits for it any more.
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
    pub fn why(&self) -> Option<Why> {
        self.shared.with(|core, _| core.machine.why(self.id))
    }

    /// What [`answer`](Pending::answer) gives without waiting. To be asked once, before anything is
    /// waited for.
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
    /// If the daemon ends before.
    pub async fn answer(&mut self) -> Result<Answer, ReadError> {
        let answer = (&mut self.answer).await.map_err(|_| ReadError::Stopped)?;
        self.answered = true;
        Ok(answer)
    }

    /// Waits for the answer: for `patience` at most, if it has an end.
    ///
    /// # Errors
    /// Why it still waits then (§6.2.2: whoever serves the read gives an error, or names another
    /// replica).
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

    /// Waits until the answer is there, without a runtime.
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
        self.shared.with(|core, now| {
            if core.reads.remove(&self.id).is_some() {
                core.machine.cancel_read(now, self.id);
            }
        });
    }
}

/// An object that was read.
pub struct Found {
    /// The state that it was read from.
    pub at: Sequence,
    /// Its version.
    pub version: Version,
    library: Library,
    body: Opened,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").field("version", &self.version).finish_non_exhaustive()
    }
}

/// A body that was found to be what it should be.
#[derive(Clone)]
enum Opened {
    /// All of it.
    Whole(Buffer),
    /// What its pieces have to be.
    Pieces(Arc<Outline>),
}

impl Found {
    /// All of it, if it is in memory.
    #[cfg(feature = "fuse")]
    pub(crate) fn whole(&self) -> Option<&Buffer> {
        match &self.body {
            Opened::Whole(bytes) => Some(bytes),
            Opened::Pieces(_) => None,
        }
    }

    /// The piece of this number, [`PIECE`] bytes but for the last one; none if it has gone, because
    /// the body was overwritten longer ago than [`Config::grace`](crate::replica::Config::grace), or
    /// given up for want of room.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn piece(&self, number: u32) -> Result<Option<Buffer>, ReadError> {
        let outline = match &self.body {
            Opened::Whole(bytes) if number == 0 => return Ok(Some(bytes.clone())),
            Opened::Whole(_) => return Ok(None),
            Opened::Pieces(outline) => Arc::clone(outline),
        };
        let (library, content) = (self.library.clone(), self.version.content);
        let read = move || {
            let piece = library.piece(&content.digest, content.size, number);
            piece.map(|piece| piece.filter(|piece| outline.has(number, piece)))
        };
        let read = spawn_blocking(read).await.map_err(|_| ReadError::Stopped)?;
        read.map_err(|_| ReadError::Stopped)
    }
}

impl ReplicaHandle {
    /// Begins a read.
    ///
    /// # Errors
    /// If the daemon ends.
    pub fn begin(&self, request: Request) -> Result<Pending, ReadError> {
        let (sender, answer) = oneshot::channel();
        let id = self.0.with(|core, now| {
            if core.closed || core.failed.is_some() {
                return Err(ReadError::Stopped);
            }
            core.last_read.0 += 1;
            core.reads.insert(core.last_read, sender);
            core.machine.handle_read(now, core.last_read, request);
            Ok(core.last_read)
        })?;
        Ok(Pending { shared: Arc::clone(&self.0), id, answer, answered: false })
    }

    /// Reads, and waits for the answer: for `patience` at most, if it has an end.
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

    /// Reads an object and finds its body; none if there is no such object. With the state that says
    /// so.
    ///
    /// # Errors
    /// As for [`read`](ReplicaHandle::read), and [`ReadError::Evicted`].
    pub async fn object(
        &self,
        path: &Path,
        after: Sequence,
        patience: Option<Duration>,
    ) -> Result<(Sequence, Option<Found>), ReadError> {
        let request = Request { what: What::Object(path.clone()), after };
        self.fetch(request, patience).await
    }

    /// The body of a version that a read has answered with, for whoever reads it later; none if it was
    /// overwritten and is gone. Waits only if it has to be fetched again.
    ///
    /// # Errors
    /// As for [`object`](ReplicaHandle::object).
    pub async fn version(
        &self,
        path: &Path,
        version: Version,
        patience: Option<Duration>,
    ) -> Result<Option<Found>, ReadError> {
        if let Some(body) = self.open(version).await? {
            let library = self.0.library.clone();
            return Ok(Some(Found { at: version.sequence, version, library, body }));
        }
        let what = What::Version(path.clone(), version);
        let (_, found) = self.fetch(Request { what, after: Sequence::ZERO }, patience).await?;
        Ok(found)
    }

    /// The states that can be told, see [`Replica::states`](crate::replica::Replica::states): from the
    /// earliest to the present one, and when each was made.
    pub fn states(&self) -> Vec<(Sequence, WallTime)> {
        self.0.with(|core, _| core.machine.states().collect())
    }

    /// When a state was made; none if it can't be told.
    pub fn made(&self, at: Sequence) -> Option<WallTime> {
        self.0.with(|core, _| core.machine.made(at))
    }

    /// What was under a name in a state; none if it can't be told.
    pub fn entry_at(&self, at: Sequence, path: &Path) -> Option<Outcome> {
        self.0.with(|core, _| core.machine.entry_at(at, path))
    }

    /// What was in a folder in a state; none if it can't be told.
    pub fn names_at(&self, at: Sequence, folder: &str) -> Option<Outcome> {
        self.0.with(|core, _| core.machine.names_at(at, folder))
    }

    /// What is here of the body of a version, which one of these states has.
    pub fn holding(&self, path: &Path, version: &Version) -> Holding {
        self.0.with(|core, _| core.machine.holding(path, version))
    }

    async fn fetch(
        &self,
        request: Request,
        patience: Option<Duration>,
    ) -> Result<(Sequence, Option<Found>), ReadError> {
        /// A body may be given up between the answer and its first byte; that goes on only where the
        /// quota holds less than what is read at once.
        const TRIES: usize = 8;
        for _ in 0..TRIES {
            let answer = self.read(request.clone(), patience).await?;
            let Outcome::Object(version) = answer.outcome else { return Ok((answer.at, None)) };
            if let Some(body) = self.open(version).await? {
                let library = self.0.library.clone();
                let found = Found { at: answer.at, version, library, body };
                return Ok((answer.at, Some(found)));
            }
            self.0.with(|core, now| core.machine.handle_missing(now, &version.content.digest));
        }
        Err(ReadError::Evicted)
    }

    async fn open(&self, version: Version) -> Result<Option<Opened>, ReadError> {
        let (library, content) = (self.0.library.clone(), version.content);
        let open = move || -> Result<Option<Opened>, StoreError> {
            if content.size.0 == 0 {
                return Ok(Some(Opened::Whole(Buffer::new())));
            }
            if content.size.0 <= PIECE as u64 {
                return Ok(library.read(&content.digest)?.map(Opened::Whole));
            }
            let outline = library.outline(&content.digest, content.size)?;
            Ok(outline.map(|outline| Opened::Pieces(Arc::new(outline))))
        };
        match spawn_blocking(open).await {
            Ok(Ok(opened)) => Ok(opened),
            Ok(Err(error)) => {
                self.0.with(|core, _| core.fail(error));
                Err(ReadError::Stopped)
            }
            // Only at the end of the runtime.
            Err(_) => Err(ReadError::Stopped),
        }
    }
}
