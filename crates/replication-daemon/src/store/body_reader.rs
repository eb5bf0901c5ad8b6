//! The readers of bodies, beside the one writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes as Buffer;
use lull_cc::Bytes;
use lull_replication::types::Digest;
use lull_replication::wire::Outline;
use redb::{
    Database, DatabaseError, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    TableDefinition,
};

use super::{Bodies, PAUSE, StoreError};

/// Small bodies by their hash.
pub(super) const INLINE: TableDefinition<'static, &[u8; 32], &[u8]> =
    TableDefinition::new("inline");

/// How the database is opened, again after a failure.
pub type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// The database and the folder of bodies, for readers beside the one writer.
pub(super) struct Shared {
    open: Opener,
    /// None while it is being opened again.
    database: RwLock<Option<Database>>,
    /// It is not opened again any more.
    failed: AtomicBool,
    pub(super) bodies: Bodies,
}

/// Reads bodies of a store.
#[derive(Clone)]
pub struct BodyReader(pub(super) Arc<Shared>);

pub(super) fn begin_read(database: &Database) -> Result<ReadTransaction, StoreError> {
    Ok(database.begin_read()?)
}

type Inline = ReadOnlyTable<&'static [u8; 32], &'static [u8]>;

/// The table of small bodies; none before the first one.
fn inline_of(transaction: &ReadTransaction) -> Result<Option<Inline>, StoreError> {
    match transaction.open_table(INLINE) {
        Ok(table) => Ok(Some(table)),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether one of these is a stored small body.
pub(super) fn any_inline(
    transaction: &ReadTransaction,
    digests: &[Digest],
) -> Result<bool, StoreError> {
    let Some(table) = inline_of(transaction)? else { return Ok(false) };
    for digest in digests {
        if table.get(&digest.0)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The small bodies and their lengths.
pub(super) fn lengths(transaction: &ReadTransaction) -> Result<Vec<(Digest, Bytes)>, StoreError> {
    let Some(table) = inline_of(transaction)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for row in table.iter()? {
        let (digest, body) = row?;
        found.push((Digest(*digest.value()), Bytes(body.value().len() as u64)));
    }
    Ok(found)
}

/// Longest wait of a reader for access to the database after a failed write. A writer only has to release
/// that write first.
const LATCHED: Duration = Duration::from_secs(10);

impl Shared {
    pub(super) fn over(database: Database, open: Opener, bodies: Bodies) -> Arc<Self> {
        let (database, failed) = (RwLock::new(Some(database)), AtomicBool::new(false));
        Arc::new(Shared { open, database, failed, bodies })
    }

    /// For readers beside the one writer: a failed write makes reads fail as well, until the database is
    /// opened again.
    fn read<T>(&self, work: impl Fn(&Database) -> Result<T, StoreError>) -> Result<T, StoreError> {
        /// Between two looks.
        const SHORT: Duration = Duration::from_millis(1);
        let mut left = LATCHED;
        loop {
            match self.with(&work) {
                Err(StoreError::Database(redb::Error::PreviousIo)) if !left.is_zero() => {
                    if self.failed.load(Ordering::Relaxed) {
                        // The writer reports the reason.
                        return Err(StoreError::Stopped);
                    }
                    left = left.saturating_sub(SHORT);
                    std::thread::sleep(SHORT);
                }
                read => return read,
            }
        }
    }

    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        work(database.as_ref().ok_or(StoreError::Stopped)?)
    }

    /// The store has failed permanently.
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// After a failure the database refuses everything until it is opened again.
    pub(super) fn reopen(&self) -> Result<(), StoreError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // Closed first: the database can be open only once.
        *database = None;
        loop {
            match (self.open)().map_err(StoreError::from) {
                // Other parts of the process may have taken the descriptor.
                Err(error) if error.is_passing() => std::thread::sleep(PAUSE),
                opened => {
                    *database = Some(opened?);
                    return Ok(());
                }
            }
        }
    }
}

impl core::fmt::Debug for BodyReader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("BodyReader(…)")
    }
}

impl BodyReader {
    /// Closes the database for all readers, so that it can be opened again. To be called when the store is no
    /// longer written.
    pub(crate) fn close(&self) {
        *self.0.database.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The whole body, if it is there and intact: for bodies that fit in memory.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn read(&self, digest: &Digest) -> Result<Option<Buffer>, StoreError> {
        let inline = self.inline(digest)?;
        match inline {
            Some(bytes) if Digest::of(&bytes) == *digest => Ok(Some(bytes)),
            Some(_) => Ok(None),
            None => self.0.bodies.read(digest),
        }
    }

    /// The hashes of the pieces of a body, if it is there and intact. Reads all of it.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn outline(&self, digest: &Digest, size: Bytes) -> Result<Option<Outline>, StoreError> {
        match self.inline(digest)? {
            Some(bytes) if Digest::of(&bytes) == *digest => {
                Ok(Some(Outline::of(bytes.chunks(lull_replication::wire::PIECE))))
            }
            Some(_) => Ok(None),
            None => self.0.bodies.outline(digest, size),
        }
    }

    /// One piece of a body, as it is on the disk: the caller compares it with the outline.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn piece(
        &self,
        digest: &Digest,
        size: Bytes,
        number: u32,
    ) -> Result<Option<Buffer>, StoreError> {
        match self.inline(digest)? {
            Some(bytes) if number == 0 && bytes.len() <= lull_replication::wire::PIECE => {
                Ok(Some(bytes))
            }
            Some(_) => Ok(None),
            None => self.0.bodies.piece(digest, size, number),
        }
    }

    /// Some bytes of a body that is longer than a piece, as they are on the disk; none if they are missing.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn range(
        &self,
        digest: &Digest,
        range: core::ops::Range<u64>,
    ) -> Result<Option<Buffer>, StoreError> {
        self.0.bodies.range(digest, range)
    }

    fn inline(&self, digest: &Digest) -> Result<Option<Buffer>, StoreError> {
        self.0.read(|database| {
            let transaction = begin_read(database)?;
            let Some(table) = inline_of(&transaction)? else { return Ok(None) };
            let body = table.get(&digest.0)?;
            Ok(body.map(|body| Buffer::copy_from_slice(body.value())))
        })
    }
}
