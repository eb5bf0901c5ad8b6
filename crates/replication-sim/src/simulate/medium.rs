//! The real store on disks with power failures: `redb` on a backend that loses unsynced writes, and large
//! bodies in memory, of which one in progress may be stored in part.

use std::sync::{Arc, OnceLock};

use futures_executor::block_on;
use lull_cc::Bytes;
use lull_replication::origin;
use lull_replication::time::WallTime;
use lull_replication::types::{Digest, DiskFull, Incarnation, Payload};
use lull_replication_daemon::store::{
    Bodies, Done, Job, Opened, Opener, Store, StoreError, Tables, name_of,
};
use lull_sim::random::Random;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use redb::Builder;

use crate::faulty_disk::FaultyDisk;

use super::durable::{Body, Durable, Operation, contents, real};

/// Operations of the backend within which the power fails, at a crash. A transaction has about twelve.
const FUSE: u64 = 20;

/// A disk with an empty database. Making it is the same in each run, so it is done once.
fn formatted() -> FaultyDisk {
    static FORMATTED: OnceLock<FaultyDisk> = OnceLock::new();
    let made = FORMATTED.get_or_init(|| {
        let disk = FaultyDisk::default();
        drop(opener(disk.clone())().expect("an empty disk"));
        disk
    });
    made.fork()
}

fn opener(disk: FaultyDisk) -> Opener {
    Box::new(move || Builder::new().set_cache_size(1 << 20).create_with_backend(disk.clone()))
}

pub(super) struct Medium<I: Durable> {
    disk: FaultyDisk,
    objects: Arc<InMemory>,
    store: Option<Store<I::State>>,
    random: Random,
}

/// A copy of its contents.
impl<I: Durable> Clone for Medium<I> {
    fn clone(&self) -> Self {
        Medium {
            disk: self.disk.fork(),
            objects: Arc::new(self.objects.fork()),
            store: None,
            random: self.random.clone(),
        }
    }
}

impl<I: Durable> Drop for Medium<I> {
    /// A run is over: the writes of a regular close are not needed.
    fn drop(&mut self) {
        self.close();
    }
}

impl<I: Durable> Medium<I> {
    /// An empty one for a state that begins as `image`.
    pub(super) fn new(image: &I, seed: u64) -> Self {
        let medium = Medium {
            disk: formatted(),
            objects: Arc::default(),
            store: None,
            random: Random::new(seed),
        };
        Store::create(medium.opener(), medium.folder(), image.state()).expect("an empty disk");
        medium
    }

    fn opener(&self) -> Opener {
        opener(self.disk.clone())
    }

    fn folder(&self) -> Bodies {
        let objects: Arc<dyn ObjectStore> = Arc::clone(&self.objects) as _;
        Bodies::over(objects, origin::Config::default().inline)
    }

    /// Starts an incarnation of at least this number: returns the contents.
    pub(super) fn open(&mut self, least: Incarnation) -> (I, Vec<(Digest, Bytes)>) {
        // Another owner of the database has to close it first.
        self.close();
        let now = WallTime::from_nanos(i64::try_from(least.0 * 1_000).unwrap_or(i64::MAX));
        let opened = Store::<I::State>::open_with(self.opener(), self.folder(), now);
        let Opened { store, image, bodies } = opened.expect("a crash damages nothing");
        self.store = Some(store);
        (image, bodies)
    }

    fn close(&mut self) {
        // The process has ended: nothing is written any more.
        self.disk.set_fuse(Some(0));
        self.store = None;
        self.disk.set_fuse(None);
    }

    fn is_small(size: Bytes) -> bool {
        size <= origin::Config::default().inline
    }

    fn job(operation: &Operation<I::Step>) -> Job<<I::State as Tables>::Step> {
        match operation {
            Operation::Store(payload) => Job::Store(real(payload)),
            Operation::Drop(digest) => Job::Drop(*digest),
            Operation::Step(step) => Job::Step(I::step(step)),
        }
    }

    /// Does one operation durably.
    pub(super) fn perform(
        &mut self,
        operation: &Operation<I::Step>,
        full: bool,
    ) -> Result<Result<(), DiskFull>, StoreError> {
        if let Operation::Store(payload) = operation
            && full
            && !Self::is_small(payload.size)
        {
            return Ok(Err(DiskFull));
        }
        let Some(store) = &mut self.store else { return Err(StoreError::Stopped) };
        self.disk.set_room(full.then_some(0));
        let done = store.run(vec![Self::job(operation)]);
        self.disk.set_room(None);
        Ok(match done?[..] {
            [Done::Step(outcome) | Done::Stored(_, outcome)] => outcome,
            [Done::Dropped(_)] => Ok(()),
            _ => unreachable!("one thing was to be done"),
        })
    }

    /// The power fails during these operations; returns whether something was torn.
    pub(super) fn lose_power(&mut self, under_way: &[Operation<I::Step>], full: bool) -> bool {
        let mut torn = false;
        let mut jobs = Vec::new();
        for operation in under_way {
            match operation {
                Operation::Store(payload) if !Self::is_small(payload.size) => {
                    if full || self.random.below(3) == 0 {
                        continue;
                    }
                    let part = self.random.below(2 * payload.size.0).min(payload.size.0);
                    torn |= part < payload.size.0;
                    self.leave(payload, part);
                }
                Operation::Step(_) => jobs.push(Self::job(operation)),
                _ if self.random.below(4) > 0 => jobs.push(Self::job(operation)),
                _ => {}
            }
        }
        if let Some(store) = &mut self.store {
            self.disk.set_room(full.then_some(0));
            self.disk.set_fuse(Some(self.random.below(FUSE)));
            // The next start finds out whether it was done.
            let _ = store.run(jobs);
            self.disk.set_room(None);
        }
        self.close();
        torn | self.disk.crash(&mut self.random)
    }

    /// Leaves the beginning of a body under its name. An existing body stays, since a new one is renamed over
    /// it.
    fn leave(&self, payload: &Payload<Body>, part: u64) {
        if block_on(self.objects.head(&name_of(&payload.digest))).is_err() {
            self.cut(payload, part);
        }
    }

    fn cut(&self, payload: &Payload<Body>, part: u64) {
        let mut bytes = contents(payload.bytes, payload.size);
        bytes.truncate(usize::try_from(part).unwrap_or(usize::MAX));
        let put = block_on(self.objects.put(&name_of(&payload.digest), bytes.into()));
        put.expect("memory takes it");
    }

    /// Corrupts a body on it: a large one is cut to one half.
    pub(super) fn corrupt(&self, payload: &Payload<Body>) {
        if !Self::is_small(payload.size) {
            self.cut(payload, payload.size.0 / 2);
        }
    }

    /// Reads stored bodies, and returns whether each is intact.
    pub(super) fn read(&self, found: &[(Digest, Bytes)]) -> Vec<(Payload<Body>, bool)> {
        let Some(store) = &self.store else { return Vec::new() };
        let body_reader = store.body_reader();
        let read = found.iter().map(|&(digest, size)| {
            let bytes = body_reader.read(&digest).expect("the disk is fine");
            let number = bytes.as_ref().and_then(|bytes| bytes.first_chunk());
            let body =
                lull_replication::checker::Body(u64::from_le_bytes(*number.unwrap_or(&[0; 8])));
            (Payload { digest, size, bytes: body }, bytes.is_some())
        });
        read.collect()
    }
}
