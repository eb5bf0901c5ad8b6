//! Replaying a log elsewhere into the database.

use std::path::Path as FilePath;
use std::sync::Arc;

use redb::ReadableDatabase;

use super::journal::{DATABASE, State, Store};
use super::upstream::{CURSOR, Upstream};
use super::{Job, Settings, StoreError};

impl<S: State> Store<S> {
    /// Whether there is a store in `folder`.
    pub fn exists(folder: &FilePath) -> bool {
        folder.join(DATABASE).exists()
    }

    /// Opens the store in `folder` without beginning a life, to [`replay`](Store::replay) a log elsewhere.
    ///
    /// # Errors
    /// As for [`open`](Store::open).
    pub fn open_to_replay(folder: &FilePath, settings: Settings) -> Result<Self, StoreError> {
        Self::open_as_follower(folder, settings)
    }

    /// From now on this log is written first.
    pub fn follow_log(&mut self, upstream: Arc<dyn Upstream<S::Step>>) {
        self.upstream = Some(upstream);
    }

    /// The stored position in the log elsewhere; none if it was never used.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn cursor(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.shared.with(|database| {
            let transaction = database.begin_read()?;
            let table = match transaction.open_table(CURSOR) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            Ok(table.get(())?.map(|row| row.value().to_vec()))
        })
    }

    /// Applies jobs of the log elsewhere, up to this position.
    ///
    /// # Errors
    /// [`StoreError::Full`] without room, and if the disk fails.
    pub fn replay(&mut self, jobs: &[Job<S::Step>], cursor: Vec<u8>) -> Result<(), StoreError> {
        self.cursor = Some(cursor);
        let replayed = self.attempt(jobs)?;
        replayed.map(drop).map_err(|_| StoreError::Full)
    }
}
