//! The stored state of a replica: its position, and all objects.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use lull_cc::Bytes;
use lull_replication::path::Path;
use lull_replication::replica::{Effect, Image, Object, Step};
use lull_replication::types::{Digest, Incarnation, Payload, Position};
use lull_replication::wire::WireError;
use lull_replication::wire::cursor::{Reader, Writer};
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};

use super::journal::sealed::Tables;
use super::journal::{ROW, Store, open};
use super::origin::whole;
use super::{Body, Job, Settings, StoreError};

/// Versions by path, and whether the body is here.
const OBJECTS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("objects");

/// The head of a replica's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaState {
    incarnation: Incarnation,
    position: Option<Position>,
}

impl ReplicaState {
    /// The position of the durable state.
    pub fn position(&self) -> Option<Position> {
        self.position
    }
}

impl Store<ReplicaState> {
    /// Makes the store of a new replica in `folder`.
    ///
    /// # Errors
    /// If there is one already, or the disk fails.
    pub fn create_replica(folder: &FilePath, settings: Settings) -> Result<(), StoreError> {
        Self::create_in(folder, settings, ReplicaState::default())
    }
}

impl From<Effect<Body>> for Job<Arc<Step>> {
    fn from(effect: Effect<Body>) -> Self {
        match effect {
            Effect::Body(effect) => effect.into(),
            Effect::Commit(step) => Job::Step(step),
        }
    }
}

impl Tables for ReplicaState {
    const ROLE: u8 = 2;
    const NAME: &'static str = "a replica";
    type Step = Arc<Step>;
    type Image = Image;

    fn write(&self, to: &mut Writer<'_>) {
        to.u64(self.incarnation.0);
        to.flag(self.position.is_some());
        if let Some(position) = &self.position {
            to.position(position);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(ReplicaState {
            incarnation: Incarnation(from.u64("incarnation")?),
            position: from.option("position", Reader::position)?,
        })
    }

    fn begin_life(&mut self, least: Incarnation) {
        self.incarnation = Incarnation(self.incarnation.0 + 1).max(least);
    }

    fn size(step: &Arc<Step>) -> u64 {
        ROW + step.changes.keys().map(|path| ROW + path.as_bytes().len() as u64).sum::<u64>()
    }

    /// The same as [`Image::apply`], on tables.
    fn apply<'a>(
        &mut self,
        transaction: &WriteTransaction,
        step: &'a Arc<Step>,
    ) -> Result<&'a [Payload<Body>], StoreError> {
        let mut objects = open(transaction, OBJECTS)?;
        let mut row = Vec::new();
        for (path, object) in &step.changes {
            match object {
                Some(object) => {
                    row.clear();
                    let mut to = Writer::new(&mut row);
                    let written = to.version(&object.version);
                    written.map_err(|error| StoreError::Damaged(format!("{path} ({error})")))?;
                    to.flag(object.valid);
                    objects.insert(&*path.key(), &row[..])?;
                }
                None => {
                    objects.remove(&*path.key())?;
                }
            }
        }
        self.position = step.position;
        Ok(&[])
    }

    fn load(&self, transaction: &ReadTransaction) -> Result<Image, StoreError> {
        let mut objects = BTreeMap::new();
        let table = match transaction.open_table(OBJECTS) {
            Ok(table) => Some(table),
            Err(redb::TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let rows = table.as_ref().map(|table| table.iter()).transpose()?;
        for row in rows.into_iter().flatten() {
            let (path, object) = row?;
            let damaged =
                |error: &dyn core::fmt::Display| StoreError::Damaged(format!("a path ({error})"));
            let path = Path::of_key(path.value()).map_err(|error| damaged(&error))?;
            let object = whole(object.value(), |from| {
                Ok(Object { version: from.version()?, valid: from.flag("valid")? })
            });
            objects.insert(path, object.map_err(|error| damaged(&error))?);
        }
        Ok(Image { incarnation: self.incarnation, position: self.position, objects })
    }

    fn bodies(image: &Image) -> BTreeMap<Digest, Bytes> {
        let contents = image.objects.values().map(|object| object.version.content);
        contents.map(|content| (content.digest, content.size)).collect()
    }
}
