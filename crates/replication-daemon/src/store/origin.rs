//! The stored state of an origin: its log, the chain of hashes, and all objects.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path as FilePath;

use lull_cc::Bytes;
use lull_replication::origin::{Append, Chain, Effect, Entry, Image};
use lull_replication::path::Path;
use lull_replication::time::WallTime;
use lull_replication::types::{
    Change, Commit, Digest, Incarnation, Payload, Position, Sequence, Version,
};
use lull_replication::wire::WireError;
use lull_replication::wire::cursor::{Reader, Writer};
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};

use super::journal::sealed::Tables;
use super::journal::{ROW, Store, first_life, open};
use super::{Bodies, Body, Job, Opened, Remote, Settings, SharedOrigin, StoreError};

/// Versions by the key of the path.
pub(super) const OBJECTS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("objects");
/// Commits, with their overwritten versions, by position.
pub(super) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
/// Hashes of the log by position.
pub(super) const CHAIN: TableDefinition<'static, u64, &[u8; 32]> = TableDefinition::new("chain");

/// Changes of a commit: as many as there are.
const CHANGES: (&str, usize) = ("changes", u32::MAX as usize);

/// The head of an origin's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginState {
    incarnation: Incarnation,
    last: Position,
    stamp: WallTime,
    log_after: Sequence,
    chain_first: Sequence,
}

impl OriginState {
    pub(crate) fn new(identity: [u8; 32]) -> Self {
        Self::beginning(Position::beginning(identity))
    }

    /// Without commits, with this beginning of the chain.
    pub fn beginning(last: Position) -> Self {
        OriginState {
            incarnation: Incarnation(0),
            last,
            stamp: WallTime::default(),
            log_after: last.sequence,
            chain_first: last.sequence,
        }
    }

    /// The last commit that is durable.
    pub fn last(&self) -> Position {
        self.last
    }
}

impl Store<OriginState> {
    /// Makes the store of a new origin in `folder`.
    ///
    /// `identity` must be random: it distinguishes this log from all others.
    ///
    /// # Errors
    /// If there is one already, or the disk fails.
    pub fn create_origin(
        folder: &FilePath,
        settings: Settings,
        identity: [u8; 32],
    ) -> Result<(), StoreError> {
        Self::create_in(folder, settings, OriginState::new(identity))
    }

    /// Opens the store of an origin, as [`open`](Store::open), with its large bodies in a bucket: in this one,
    /// or in that of the last start. At most `copies` bytes of them are also in the folder.
    ///
    /// # Errors
    /// As for [`open`](Store::open), and [`StoreError::Bucket`].
    pub fn open_origin(
        folder: &FilePath,
        settings: Settings,
        remote: Option<Remote>,
        copies: Bytes,
        now: WallTime,
    ) -> Result<Opened<OriginState>, StoreError> {
        let bodies = |here: Bodies| here.with_bucket(folder, remote, None, copies, now);
        Self::open_by(folder, settings, first_life(now), bodies)
    }

    /// The same for an origin that shares its log with other machines, and writes it now.
    ///
    /// # Errors
    /// As for [`open_origin`](Store::open_origin).
    pub fn open_shared_origin(
        folder: &FilePath,
        settings: Settings,
        remote: Option<Remote>,
        copies: Bytes,
        now: WallTime,
        shared: SharedOrigin,
    ) -> Result<Opened<OriginState>, StoreError> {
        let life = Incarnation(shared.life);
        let bodies = |here: Bodies| here.with_bucket(folder, remote, Some(shared), copies, now);
        Self::open_by(folder, settings, life, bodies)
    }
}

impl From<Effect<Body>> for Job<Append<Body>> {
    fn from(effect: Effect<Body>) -> Self {
        match effect {
            Effect::Body(effect) => effect.into(),
            Effect::Append(append) => Job::Step(append),
        }
    }
}

fn damaged(what: &str, error: impl core::fmt::Display) -> StoreError {
    StoreError::Damaged(format!("{what} ({error})"))
}

impl Tables for OriginState {
    const ROLE: u8 = 1;
    const NAME: &'static str = "an origin";
    type Step = Append<Body>;
    type Image = Image;

    fn write(&self, to: &mut Writer<'_>) {
        to.u64(self.incarnation.0);
        to.position(&self.last);
        to.wall(self.stamp);
        to.sequence(self.log_after);
        to.sequence(self.chain_first);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(OriginState {
            incarnation: Incarnation(from.u64("incarnation")?),
            last: from.position()?,
            stamp: from.wall("stamp")?,
            log_after: from.sequence("log")?,
            chain_first: from.sequence("chain")?,
        })
    }

    fn begin_life(&mut self, least: Incarnation) {
        self.incarnation = Incarnation(self.incarnation.0 + 1).max(least);
    }

    fn size(step: &Append<Body>) -> u64 {
        // The path is written twice, and once more with its earlier version.
        let row = |change: &Change| ROW + 3 * change.path.as_bytes().len() as u64;
        let rows = |commit: &Commit| 2 * ROW + commit.changes.iter().map(row).sum::<u64>();
        let inline = step.inline.iter().map(|payload| ROW + payload.size.0);
        step.commits.iter().map(rows).chain(inline).sum()
    }

    /// The same as [`Image::apply`], on tables.
    fn apply<'a>(
        &mut self,
        transaction: &WriteTransaction,
        step: &'a Append<Body>,
    ) -> Result<&'a [Payload<Body>], StoreError> {
        let mut objects = open(transaction, OBJECTS)?;
        let mut log = open(transaction, LOG)?;
        let mut chain = open(transaction, CHAIN)?;
        if self.last.sequence == Sequence::ZERO {
            // The identity of the log.
            chain.insert(0, &self.last.chain.0)?;
        }
        let mut row = Vec::new();
        for commit in &step.commits {
            if commit.sequence != self.last.sequence.next() {
                return Err(StoreError::Damaged(format!(
                    "the order of the log at {}",
                    commit.sequence
                )));
            }
            row.clear();
            let mut to = Writer::new(&mut row);
            to.wall(commit.stamp);
            let written = to.list(CHANGES, &commit.changes, |to, change| {
                to.path(&change.path);
                to.option(change.content.as_ref(), Writer::content)
            });
            written.map_err(|error| damaged("a commit", error))?;
            for change in &*commit.changes {
                let path = &*change.path.key();
                let before = match change.content {
                    Some(content) => {
                        let mut version = Vec::new();
                        Writer::new(&mut version)
                            .version(&Version { sequence: commit.sequence, content })
                            .map_err(|error| damaged("a version", error))?;
                        objects.insert(path, &version[..])?
                    }
                    None => objects.remove(path)?,
                };
                let mut to = Writer::new(&mut row);
                to.flag(before.is_some());
                if let Some(before) = before {
                    to.bytes(before.value());
                }
            }
            log.insert(commit.sequence.0, &row[..])?;
            self.last = self.last.after(commit);
            self.stamp = self.stamp.max(commit.stamp);
            chain.insert(self.last.sequence.0, &self.last.chain.0)?;
        }
        while self.chain_first < step.chain_from && self.chain_first < self.last.sequence {
            chain.remove(self.chain_first.0)?;
            self.chain_first = self.chain_first.next();
        }
        while self.log_after < step.log_after && self.log_after < self.last.sequence {
            self.log_after = self.log_after.next();
            log.remove(self.log_after.0)?;
        }
        Ok(&step.inline)
    }

    fn load(&self, transaction: &ReadTransaction) -> Result<Image, StoreError> {
        let mut image = Image {
            incarnation: self.incarnation,
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            chain: Chain::new(self.last),
            stamp: self.stamp,
        };
        if self.last.sequence == Sequence::ZERO {
            return Ok(image);
        }
        let table = transaction.open_table(OBJECTS)?;
        for row in table.iter()? {
            let (path, version) = row?;
            let path = Path::of_key(path.value()).map_err(|error| damaged("a path", error))?;
            let version = whole(version.value(), |from| from.version());
            let version = version.map_err(|error| damaged(&path.to_string(), error))?;
            image.objects.insert(path, version);
        }
        let table = transaction.open_table(CHAIN)?;
        let mut chain: Option<Chain> = None;
        for row in table.range(self.chain_first.0..)? {
            let (sequence, digest) = row?;
            let (sequence, digest) = (Sequence(sequence.value()), Digest(*digest.value()));
            let next =
                chain.as_ref().map_or(self.chain_first, |chain| chain.last().sequence.next());
            if sequence != next {
                return Err(StoreError::Damaged(format!("the chain at {sequence}")));
            }
            match &mut chain {
                Some(chain) => chain.push(digest),
                None => chain = Some(Chain::new(Position { sequence, chain: digest })),
            }
        }
        image.chain = chain
            .filter(|chain| chain.last() == self.last)
            .ok_or_else(|| StoreError::Damaged("the end of the chain".to_owned()))?;
        let table = transaction.open_table(LOG)?;
        let mut position = image
            .chain
            .at(self.log_after)
            .map(|chain| Position { sequence: self.log_after, chain })
            .ok_or_else(|| StoreError::Damaged("the chain behind the log".to_owned()))?;
        for row in table.range(self.log_after.0 + 1..)? {
            let (sequence, entry) = row?;
            let sequence = Sequence(sequence.value());
            let entry = whole(entry.value(), |from| read_entry(sequence, from));
            let entry = entry.map_err(|error| damaged(&format!("the log at {sequence}"), error))?;
            let before = position.sequence;
            position = position.after(&entry.commit);
            if sequence != before.next() || image.chain.at(sequence) != Some(position.chain) {
                return Err(StoreError::Damaged(format!("the log at {sequence}")));
            }
            image.log.push_back(entry);
        }
        if position != self.last {
            return Err(StoreError::Damaged("the end of the log".to_owned()));
        }
        Ok(image)
    }

    fn bodies(image: &Image) -> BTreeMap<Digest, Bytes> {
        let before = image.log.iter().flat_map(|entry| &entry.before).flatten();
        let versions = image.objects.values().chain(before);
        versions.map(|version| (version.content.digest, version.content.size)).collect()
    }
}

/// Decodes all of some bytes.
pub(super) fn whole<T>(
    bytes: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, WireError>,
) -> Result<T, WireError> {
    let mut from = Reader::new(bytes);
    let value = read(&mut from)?;
    from.end()?;
    Ok(value)
}

fn read_entry(sequence: Sequence, from: &mut Reader<'_>) -> Result<Entry, WireError> {
    let stamp = from.wall("stamp")?;
    // A change is at least a path of one byte and a flag.
    let changes = from.list(CHANGES, 4, |from| {
        let path = from.path()?;
        Ok(Change { path, content: from.option("content", Reader::content)? })
    })?;
    let before: Result<_, _> =
        changes.iter().map(|_| from.option("before", Reader::version)).collect();
    let commit = Commit { sequence, stamp, changes: changes.into() };
    Ok(Entry { commit, before: before? })
}
