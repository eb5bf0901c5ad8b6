//! The whole state of an origin in rows, to be copied to another folder.

use lull_replication::types::Sequence;
use lull_replication::wire::cursor::{Reader, Writer};
use redb::{ReadableDatabase, ReadableTable};

use super::body_reader::INLINE;
use super::journal::sealed::Tables;
use super::journal::{Store, open};
use super::origin::{CHAIN, LOG, OBJECTS};
use super::{OriginState, StoreError};

/// Bytes of rows in one piece, about.
const PIECE: usize = 4 << 20;

/// Rows of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The number of the table.
    pub table: u8,
    /// Keys and values.
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Collects rows in pieces.
struct Pieces<'a> {
    table: u8,
    size: usize,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    take: &'a mut dyn FnMut(Rows) -> Result<(), StoreError>,
}

impl Pieces<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.size += key.len() + value.len();
        self.rows.push((key.to_vec(), value.to_vec()));
        if self.size < PIECE { Ok(()) } else { self.end() }
    }

    fn end(&mut self) -> Result<(), StoreError> {
        self.size = 0;
        let rows = core::mem::take(&mut self.rows);
        if rows.is_empty() { Ok(()) } else { (self.take)(Rows { table: self.table, rows }) }
    }

    fn next_table(&mut self) -> Result<(), StoreError> {
        self.end()?;
        self.table += 1;
        Ok(())
    }
}

fn malformed() -> StoreError {
    StoreError::Damaged("a row of the log".to_owned())
}

fn array(bytes: &[u8]) -> Result<&[u8; 32], StoreError> {
    bytes.try_into().map_err(|_| malformed())
}

impl Store<OriginState> {
    /// Whether the state has no commits.
    pub fn is_new(&self) -> bool {
        self.state.last().sequence == Sequence::ZERO
    }

    /// All rows, and then the head.
    ///
    /// # Errors
    /// If the disk fails, or the error of `take`.
    pub fn rows(
        &self,
        take: &mut dyn FnMut(Rows) -> Result<(), StoreError>,
    ) -> Result<Vec<u8>, StoreError> {
        self.shared.with(|database| {
            let transaction = database.begin_read()?;
            let mut pieces = Pieces { table: 0, size: 0, rows: Vec::new(), take };
            macro_rules! each {
                ($table:ident, $key:expr) => {
                    match transaction.open_table($table) {
                        Ok(table) => {
                            for row in table.iter()? {
                                let (key, value) = row?;
                                pieces.add(&$key(key.value()), &value.value()[..])?;
                            }
                        }
                        Err(redb::TableError::TableDoesNotExist(_)) => {}
                        Err(error) => return Err(error.into()),
                    }
                    pieces.next_table()?;
                };
            }
            each!(OBJECTS, |key: &str| key.as_bytes().to_vec());
            each!(LOG, |key: u64| key.to_le_bytes());
            each!(CHAIN, |key: u64| key.to_le_bytes());
            each!(INLINE, |key: &[u8; 32]| *key);
            let mut head = Vec::new();
            self.state.write(&mut Writer::new(&mut head));
            Ok(head)
        })
    }

    /// Drops all rows. The state is incomplete until [`finish`](Store::finish).
    ///
    /// # Errors
    /// If the disk fails.
    pub fn clear(&mut self, cursor: Vec<u8>) -> Result<(), StoreError> {
        self.shared.with(|database| {
            let transaction = database.begin_write()?;
            transaction.delete_table(OBJECTS)?;
            transaction.delete_table(LOG)?;
            transaction.delete_table(CHAIN)?;
            transaction.delete_table(INLINE)?;
            transaction.commit()?;
            Ok(())
        })?;
        self.replay(&[], cursor)
    }

    /// Inserts rows of another folder.
    ///
    /// # Errors
    /// If a row is malformed, or the disk fails.
    pub fn insert(
        &mut self,
        Rows { table, rows }: &Rows,
        cursor: Vec<u8>,
    ) -> Result<(), StoreError> {
        self.shared.with(|database| {
            let transaction = database.begin_write()?;
            let number =
                |key: &[u8]| key.try_into().map(u64::from_le_bytes).map_err(|_| malformed());
            match table {
                0 => {
                    let mut table = open(&transaction, OBJECTS)?;
                    for (key, value) in rows {
                        let key = core::str::from_utf8(key).map_err(|_| malformed())?;
                        table.insert(key, &value[..])?;
                    }
                }
                1 => {
                    let mut table = open(&transaction, LOG)?;
                    for (key, value) in rows {
                        table.insert(number(key)?, &value[..])?;
                    }
                }
                2 => {
                    let mut table = open(&transaction, CHAIN)?;
                    for (key, value) in rows {
                        table.insert(number(key)?, array(value)?)?;
                    }
                }
                3 => {
                    let mut table = open(&transaction, INLINE)?;
                    for (key, value) in rows {
                        table.insert(array(key)?, &value[..])?;
                    }
                }
                _ => return Err(malformed()),
            }
            transaction.commit()?;
            Ok(())
        })?;
        self.replay(&[], cursor)
    }

    /// The rows are complete, with this head.
    ///
    /// # Errors
    /// If the head is malformed, or the disk fails.
    pub fn finish(&mut self, head: &[u8], cursor: Vec<u8>) -> Result<(), StoreError> {
        let mut from = Reader::new(head);
        self.state = OriginState::read(&mut from).map_err(|_| malformed())?;
        self.replay(&[], cursor)
    }
}
