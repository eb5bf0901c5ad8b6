//! A log elsewhere that is written before the database, which then has a prefix of it.

use core::fmt;

use redb::TableDefinition;

use super::{Job, StoreError};

/// One row: the position in the log elsewhere, up to which the database has it.
pub(super) const CURSOR: TableDefinition<'static, (), &[u8]> = TableDefinition::new("cursor");

/// A log elsewhere.
pub trait Upstream<T>: fmt::Debug + Send + Sync {
    /// Appends the jobs of one transaction. Returns the position after them when they are durable; none if the log
    /// needs none of them. Waits while the log does not answer.
    ///
    /// # Errors
    /// If that is not possible any more: then the store must not be used any more.
    fn append(&self, jobs: &[Job<T>]) -> Result<Option<Vec<u8>>, StoreError>;
}
