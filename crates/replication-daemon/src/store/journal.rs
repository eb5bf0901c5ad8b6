//! The database: steps and small bodies, in transactions that survive whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lull_cc::Bytes;
use lull_replication::time::WallTime;
use lull_replication::types::{Digest, DiskFull, Incarnation, Payload};
use lull_replication::wire::WireError;
use lull_replication::wire::cursor::{Reader, Writer};
use redb::{Builder, Database, DatabaseError, ReadTransaction, TableDefinition, WriteTransaction};

use super::body_reader::{BodyReader, INLINE, Opener, Shared, any_inline, begin_read, lengths};
use super::shortage::{Shortage, worth_trying};
use super::upstream::{CURSOR, Upstream};
use super::{Bodies, Body, Done, Job, Settings, StoreError, is_full};

/// The version of the written format. In version 1 a file was executable or not; these two modes still have
/// the same bytes.
const FORMAT: u16 = 3;
/// The oldest readable version.
const OLDEST_FORMAT: u16 = 1;
/// One row: format, role, number of the transaction, and the head of the state.
const HEAD: TableDefinition<'static, (), &[u8]> = TableDefinition::new("head");

/// The minimum size of a write of one row: its page is written again.
pub(super) const ROW: u64 = 4_096;

/// The state of an origin or a replica, [`OriginState`](super::OriginState) or
/// [`ReplicaState`](super::ReplicaState). This is the part of it that stays in memory.
pub trait State: sealed::Tables + Send + 'static {}

impl<S: sealed::Tables + Send + 'static> State for S {}

pub(crate) mod sealed {
    use super::*;

    /// How a role's state is stored in tables.
    pub trait Tables: Clone {
        /// The role, as in the head.
        const ROLE: u8;
        /// The role's name.
        const NAME: &'static str;
        /// The changes of one durable step.
        type Step: Send;
        /// The whole state.
        type Image;

        /// Writes the fields of the head.
        fn write(&self, to: &mut Writer<'_>);

        /// Reads it.
        fn read(from: &mut Reader<'_>) -> Result<Self, WireError>;

        /// Begins a life with a number that is at least one more than the last one, and at least `least`.
        fn begin_life(&mut self, least: Incarnation);

        /// The approximate number of bytes that a step writes.
        fn size(step: &Self::Step) -> u64;

        /// Applies a step; returns the bodies that are stored with it.
        fn apply<'a>(
            &mut self,
            transaction: &WriteTransaction,
            step: &'a Self::Step,
        ) -> Result<&'a [Payload<Body>], StoreError>;

        /// The whole content.
        fn load(&self, transaction: &ReadTransaction) -> Result<Self::Image, StoreError>;

        /// The bodies that an image refers to, with their lengths.
        fn bodies(image: &Self::Image) -> BTreeMap<Digest, Bytes>;
    }
}

/// The store of an origin or a replica. Calls block.
///
/// Only one caller writes at a time, by [`run`](Store::run); bodies are read by any number of [`BodyReader`]
/// clones.
pub struct Store<S: State> {
    pub(super) shared: Arc<Shared>,
    pub(super) state: S,
    /// Counts transactions, so that after a failure it is known whether the last one happened.
    transactions: u64,
    /// Nothing may become durable any more.
    abandoned: Arc<AtomicBool>,
    pub(super) shortage: Shortage,
    /// Small bodies that were reported as deleted but are still stored: there was no space for the deletion.
    pub(super) deferred_deletes: BTreeSet<Digest>,
    /// The log that is written before the database.
    pub(super) upstream: Option<Arc<dyn Upstream<S::Step>>>,
    /// The position in that log, while it is read.
    pub(super) cursor: Option<Vec<u8>>,
}

impl<S: State> core::fmt::Debug for Store<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Store").field("transactions", &self.transactions).finish_non_exhaustive()
    }
}

/// A store, and its contents, from which a state machine starts.
#[derive(Debug)]
pub struct Opened<S: State> {
    /// The store.
    pub store: Store<S>,
    /// The state; its life has begun.
    pub image: S::Image,
    /// The existing bodies, if they have their full length.
    pub bodies: Vec<(Digest, Bytes)>,
}

/// The least number of a life that begins now, so that a store restored from a backup does not repeat one.
pub fn first_life(now: WallTime) -> Incarnation {
    Incarnation(u64::try_from(now.as_nanos() / 1_000).unwrap_or(0))
}

pub(super) const DATABASE: &str = "state.redb";
const BODIES: &str = "bodies";

fn opener(path: PathBuf, settings: Settings) -> Opener {
    let cache = usize::try_from(settings.cache.0).unwrap_or(usize::MAX);
    Box::new(move || Builder::new().set_cache_size(cache).create(&path))
}

impl<S: State> Store<S> {
    /// Makes a store in `folder`, which is made if it does not exist.
    pub(super) fn create_in(
        folder: &FilePath,
        settings: Settings,
        state: S,
    ) -> Result<(), StoreError> {
        let failed = |source| StoreError::Folder { path: folder.to_owned(), source };
        crate::folder::create(folder).map_err(failed)?;
        if folder.join(DATABASE).exists() {
            return Err(StoreError::Exists(folder.to_owned()));
        }
        // It gets its final name when it is complete: an interrupted creation leaves no store. The database writes
        // and syncs its file by itself, so `lull_durable` cannot.
        let beside = folder.join(format!("{DATABASE}.new"));
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let bodies = Bodies::open(&folder.join(BODIES), settings.inline)?;
        Self::create(opener(beside.clone(), settings), bodies, state)?;
        std::fs::rename(beside, folder.join(DATABASE)).map_err(failed)?;
        // The database has synced its file, not the folder that names it.
        std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
    }

    /// Makes a store on any backend of the database.
    ///
    /// # Errors
    /// [`StoreError::Full`] without room, and failures of the backend.
    pub fn create(open: Opener, bodies: Bodies, state: S) -> Result<(), StoreError> {
        let full = |error: DatabaseError| match StoreError::from(error) {
            error if is_full(&error) => StoreError::Full,
            error => error,
        };
        let shared = Shared::over(open().map_err(full)?, open, bodies);
        let mut store = Store::over(shared, state, 0);
        // An empty store would be taken for one of something else.
        store.attempt(&[])?.map_err(|DiskFull| StoreError::Full)?;
        Ok(())
    }

    /// Opens the store in `folder` and begins a life: from now on its incarnation is higher than ever before.
    /// Its number depends on `now`, so that a store restored from a backup does not repeat a life.
    ///
    /// # Errors
    /// If there is no store of this role and version, another process has it open, it is damaged, or the
    /// disk fails.
    pub fn open(
        folder: &FilePath,
        settings: Settings,
        now: WallTime,
    ) -> Result<Opened<S>, StoreError> {
        Self::open_by(folder, settings, first_life(now), Ok)
    }

    /// The same, with other bodies made of those in the folder.
    pub(super) fn open_by(
        folder: &FilePath,
        settings: Settings,
        least: Incarnation,
        bodies_of: impl FnOnce(Bodies) -> Result<Bodies, StoreError>,
    ) -> Result<Opened<S>, StoreError> {
        if !folder.join(DATABASE).exists() {
            return Err(StoreError::Nothing(folder.to_owned()));
        }
        let open = opener(folder.join(DATABASE), settings);
        // First, because that locks it: unfinished files in the folder may belong to another process.
        let database = open()?;
        let bodies = bodies_of(Bodies::open(&folder.join(BODIES), settings.inline)?)?;
        let mut opened = Self::start_life(open, database, bodies, least)?;
        opened.store.shortage = Shortage::on_disk_of(folder.to_owned());
        Ok(opened)
    }

    /// Opens a store on any backend of the database. A new life begins, with a number from `now`.
    ///
    /// # Errors
    /// If it is another store or damaged, and failures of the backend.
    pub fn open_with(open: Opener, bodies: Bodies, now: WallTime) -> Result<Opened<S>, StoreError> {
        let database = open()?;
        Self::start_life(open, database, bodies, first_life(now))
    }

    fn start_life(
        open: Opener,
        database: Database,
        bodies: Bodies,
        least: Incarnation,
    ) -> Result<Opened<S>, StoreError> {
        let (mut state, transactions) = head::<S>(&database)?;
        state.begin_life(least);
        let shared = Shared::over(database, open, bodies);
        let mut store = Store::over(shared, state, transactions);
        // Without space the number of its life is not written. The next one is higher by the clock.
        let _ = store.attempt(&[])?;
        let (image, inline) = store.shared.with(|database| {
            let transaction = begin_read(database)?;
            Ok((store.state.load(&transaction)?, lengths(&transaction)?))
        })?;
        let expected = S::bodies(&image);
        // Without an answer of the bucket all bodies are taken to be there: reads find those that are not.
        let all = || expected.iter().map(|(digest, size)| (*digest, *size)).collect();
        let mut bodies = match store.shared.bodies.list()? {
            Some(listed) => store.shared.bodies.look_again(listed, |listed| {
                let here: BTreeSet<_> = listed.iter().chain(&inline).map(|(one, _)| *one).collect();
                expected.keys().filter(|digest| !here.contains(*digest)).copied().collect()
            }),
            None => all(),
        };
        bodies.extend(inline);
        // The state machine drops the unknown ones.
        bodies.retain(|(digest, size)| expected.get(digest).is_none_or(|known| known == size));
        bodies.sort_unstable();
        bodies.dedup_by_key(|(digest, _)| *digest);
        Ok(Opened { store, image, bodies })
    }

    /// Opens the store in `folder` without a new life, to apply what another log has.
    pub(super) fn open_as_follower(
        folder: &FilePath,
        settings: Settings,
    ) -> Result<Self, StoreError> {
        if !folder.join(DATABASE).exists() {
            return Err(StoreError::Nothing(folder.to_owned()));
        }
        let open = opener(folder.join(DATABASE), settings);
        let database = open()?;
        let (state, transactions) = head::<S>(&database)?;
        let bodies = Bodies::open(&folder.join(BODIES), settings.inline)?;
        let mut store = Store::over(Shared::over(database, open, bodies), state, transactions);
        store.shortage = Shortage::on_disk_of(folder.to_owned());
        Ok(store)
    }

    fn over(shared: Arc<Shared>, state: S, transactions: u64) -> Self {
        let (abandoned, shortage, deferred_deletes, upstream, cursor) = Default::default();
        Store {
            shared,
            state,
            transactions,
            abandoned,
            shortage,
            deferred_deletes,
            upstream,
            cursor,
        }
    }

    /// The part of the state that stays in memory.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The flag that cancels all work that is not being synced already.
    pub(super) fn abandoned(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.abandoned)
    }

    /// The reader of bodies.
    pub fn body_reader(&self) -> BodyReader {
        BodyReader(Arc::clone(&self.shared))
    }

    /// The folder of large bodies.
    pub fn bodies(&self) -> &Bodies {
        &self.shared.bodies
    }

    /// Runs the jobs, and returns the results that would survive a crash then. Steps and small bodies are one
    /// transaction: many waiting jobs cost one sync of the disk. If there is no space for all of them, the
    /// smallest are tried one by one. Jobs that are not much smaller than a failed one are refused.
    ///
    /// # Errors
    /// If the contents of the disk are unknown: the store must not be used any more.
    pub fn run(&mut self, jobs: Vec<Job<S::Step>>) -> Result<Vec<Done>, StoreError> {
        let mut done = Vec::new();
        let (mut left, mut writing) = (Vec::new(), Vec::new());
        for job in jobs {
            match job {
                Job::Store(payload) if !self.shared.bodies.is_small(payload.size) => {
                    let outcome = self.shared.bodies.store(&payload)?;
                    done.push(Done::Stored(payload.digest, outcome));
                }
                Job::Store(payload) => match self.shared.bodies.reserve_bytes(payload.size) {
                    Ok(small) => {
                        writing.push(small);
                        left.push(Job::Store(payload));
                    }
                    Err(full) => done.push(Done::Stored(payload.digest, Err(full))),
                },
                job => left.push(job),
            }
        }
        if !self.deferred_deletes.is_empty() && self.shortage.failed() == u64::MAX {
            self.delete_deferred()?;
        }
        let mut failed = self.shortage.failed();
        while !left.is_empty() {
            let mut count = left.len();
            if failed < u64::MAX {
                left.sort_by_key(size_of::<S>);
                count = worth_trying(left.iter().map(size_of::<S>), failed);
            }
            if count == 0 {
                break;
            }
            match self.attempt(&left[..count])? {
                Ok(some) => {
                    done.extend(some);
                    left.drain(..count);
                }
                Err(DiskFull) => failed = left[..count].iter().map(size_of::<S>).sum(),
            }
        }
        for job in &left {
            done.push(self.refuse(job, DiskFull)?);
        }
        Ok(done)
    }

    /// Deletes some of the small bodies that were reported as deleted.
    fn delete_deferred(&mut self) -> Result<(), StoreError> {
        /// In one transaction.
        const SOME: usize = 256;
        let some: Vec<_> = self.deferred_deletes.iter().copied().take(SOME).collect();
        let jobs: Vec<_> = some.iter().map(|digest| Job::Drop(*digest)).collect();
        if self.attempt(&jobs)?.is_ok() {
            for digest in &some {
                self.deferred_deletes.remove(digest);
            }
        }
        Ok(())
    }

    /// The result of a job without space.
    pub(super) fn refuse(
        &mut self,
        job: &Job<S::Step>,
        full: DiskFull,
    ) -> Result<Done, StoreError> {
        Ok(match job {
            Job::Step(_) => Done::Step(Err(full)),
            Job::Store(payload) => Done::Stored(payload.digest, Err(full)),
            Job::Drop(digest) => {
                // A file is deleted all the same, and frees space. A small body is no longer requested; it is
                // deleted when there is space, or at the next start.
                self.shared.bodies.delete(digest)?;
                self.deferred_deletes.insert(*digest);
                Done::Dropped(*digest)
            }
        })
    }

    pub(super) fn attempt(
        &mut self,
        jobs: &[Job<S::Step>],
    ) -> Result<Result<Vec<Done>, DiskFull>, StoreError> {
        if let Some(files) = self.only_files(jobs)? {
            for digest in &files {
                self.shared.bodies.delete(digest)?;
            }
            return Ok(Ok(files.into_iter().map(Done::Dropped).collect()));
        }
        let begun = Instant::now();
        let outcome = self.shared.with(|database| self.write(database, jobs));
        match outcome {
            Ok(Written { state, done, stored, files }) => {
                self.state = state;
                self.transactions += 1;
                for digest in stored {
                    self.deferred_deletes.remove(&digest);
                }
                for digest in files {
                    self.shared.bodies.delete(&digest)?;
                }
                Ok(Ok(done))
            }
            // A new store has nothing to recover.
            Err(error) if is_full(&error) && self.transactions == 0 => Ok(Err(DiskFull)),
            Err(error) if is_full(&error) => {
                self.shared.reopen()?;
                self.shortage.remember(jobs.iter().map(size_of::<S>).sum(), begun.elapsed());
                let (_, transactions) = self.shared.with(head::<S>)?;
                // It may have failed after it was complete.
                // An entry of another log cannot be refused any more.
                if transactions == self.transactions && self.upstream.is_none() {
                    Ok(Err(DiskFull))
                } else {
                    Err(StoreError::Unsure)
                }
            }
            Err(error) => {
                self.shared.fail();
                Err(error)
            }
        }
    }

    /// The bodies to be dropped, if there are no other jobs and none of these bodies is in the database: then
    /// the database has nothing to write, and needs no sync.
    fn only_files(&self, jobs: &[Job<S::Step>]) -> Result<Option<Vec<Digest>>, StoreError> {
        let digest = |job: &Job<S::Step>| match job {
            Job::Drop(digest) => Some(*digest),
            Job::Step(_) | Job::Store(_) => None,
        };
        let digests: Option<Vec<_>> = jobs.iter().map(digest).collect();
        let Some(digests) = digests.filter(|digests| !digests.is_empty()) else {
            return Ok(None);
        };
        let inline = self.shared.with(|database| any_inline(&begin_read(database)?, &digests))?;
        Ok((!inline).then_some(digests))
    }

    /// One transaction.
    fn write(&self, database: &Database, jobs: &[Job<S::Step>]) -> Result<Written<S>, StoreError> {
        let transaction = database.begin_write()?;
        let mut state = self.state.clone();
        let (mut done, mut stored, mut files) = (Vec::new(), Vec::new(), Vec::new());
        for job in jobs {
            match job {
                Job::Step(step) => {
                    let inline = state.apply(&transaction, step)?;
                    // Most steps bring none, and opening a table costs a search.
                    if !inline.is_empty() {
                        let mut table = open(&transaction, INLINE)?;
                        for payload in inline {
                            insert(&mut table, payload)?;
                            stored.push(payload.digest);
                        }
                    }
                    done.push(Done::Step(Ok(())));
                }
                Job::Store(payload) => {
                    insert(&mut open(&transaction, INLINE)?, payload)?;
                    stored.push(payload.digest);
                    done.push(Done::Stored(payload.digest, Ok(())));
                }
                Job::Drop(digest) => {
                    let mut table = open(&transaction, INLINE)?;
                    if table.remove(&digest.0)?.is_none() {
                        files.push(*digest);
                    }
                    done.push(Done::Dropped(*digest));
                }
            }
        }
        let mut row = Vec::new();
        let mut to = Writer::new(&mut row);
        to.u16(FORMAT);
        to.u8(S::ROLE);
        to.u64(self.transactions + 1);
        state.write(&mut to);
        open(&transaction, HEAD)?.insert((), &row[..])?;
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(StoreError::Stopped);
        }
        let cursor = match &self.upstream {
            Some(upstream) => upstream.append(jobs)?,
            None => self.cursor.clone(),
        };
        if let Some(cursor) = cursor {
            open(&transaction, CURSOR)?.insert((), &cursor[..])?;
        }
        // Durable when it returns: redb's default.
        transaction.commit()?;
        Ok(Written { state, done, stored, files })
    }
}

/// The result of a transaction.
struct Written<S> {
    state: S,
    done: Vec<Done>,
    /// Small bodies that are stored now.
    stored: Vec<Digest>,
    /// Bodies that are not small and are not needed.
    files: Vec<Digest>,
}

/// The approximate number of bytes that a job writes.
fn size_of<S: State>(job: &Job<S::Step>) -> u64 {
    match job {
        Job::Step(step) => S::size(step),
        Job::Store(payload) => ROW + payload.size.0,
        Job::Drop(_) => ROW,
    }
}

fn insert(
    table: &mut redb::Table<'_, &'static [u8; 32], &'static [u8]>,
    payload: &Payload<Body>,
) -> Result<(), StoreError> {
    let Body::Memory(bytes) = &payload.bytes else {
        return Err(StoreError::Damaged("a small body in a file".to_owned()));
    };
    table.insert(&payload.digest.0, &bytes[..])?;
    Ok(())
}

/// A table to write to.
pub(super) fn open<'a, K: redb::Key + 'static, V: redb::Value + 'static>(
    transaction: &'a WriteTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<redb::Table<'a, K, V>, StoreError> {
    Ok(transaction.open_table(table)?)
}

/// The head of the state, and the number of the last transaction.
fn head<S: State>(database: &Database) -> Result<(S, u64), StoreError> {
    let transaction = begin_read(database)?;
    let other = |found: String| StoreError::Other {
        found,
        expected: format!("that of {} of format {FORMAT}", S::NAME),
    };
    let table = match transaction.open_table(HEAD) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Err(other("none".to_owned())),
        Err(error) => return Err(error.into()),
    };
    let row = table.get(())?;
    let row = row.ok_or_else(|| other("empty".to_owned()))?;
    let mut from = Reader::new(row.value());
    let damaged = |error: WireError| StoreError::Damaged(format!("the head ({error})"));
    let (format, role) = (from.u16("format").map_err(damaged)?, from.u8("role").map_err(damaged)?);
    if !(OLDEST_FORMAT..=FORMAT).contains(&format) || role != S::ROLE {
        return Err(other(format!("of role {role} and format {format}")));
    }
    let transactions = from.u64("transactions").map_err(damaged)?;
    let state = S::read(&mut from).map_err(damaged)?;
    from.end().map_err(damaged)?;
    Ok((state, transactions))
}
