//! The guarantees of a store, on disks that keep their writes and on those that do not.

mod crash;
mod formats;
mod full;
mod partial;

use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use lull_replication::message::{Frame, PROTOCOL, Refusal, Session, ToOrigin, ToReplica};
use lull_replication::origin::{
    Append, Config, Image, Origin, Put, ReadsPerWriteAndByte, Transaction, TransactionId,
};
use lull_replication::path::Path;
use lull_replication::replica::{self, Object, Replica, Step};
use lull_replication::subscription::Subscription;
use lull_replication::time::{LocalTime, Reading, WallTime};
use lull_replication::types::{
    Content, Incarnation, Metadata, Mode, Position, ReplicaId, Sequence, Version,
};
use lull_replication_sim::faulty_disk::FaultyDisk;
use object_store::local::LocalFileSystem;
use redb::{Builder, Database, DatabaseError, ReadableTable};
use tempfile::TempDir;

use super::*;
use shortage::{Reserve, Room, Shortage};

/// Bodies up to this size are in the database, in these tests.
const INLINE: Bytes = Bytes(64);

fn settings() -> Settings {
    Settings { cache: Bytes(1 << 20), inline: INLINE }
}

fn path(name: &str) -> Path {
    Path::new(name).expect("a path")
}

fn at(seconds: i64) -> Reading {
    let nanos = seconds * 1_000_000_000;
    Reading { local: LocalTime::from_nanos(nanos), wall: WallTime::from_nanos(nanos) }
}

fn payload(bytes: Vec<u8>) -> Payload<Body> {
    let (digest, size) = (Digest::of(&bytes), Bytes(bytes.len() as u64));
    Payload { digest, size, bytes: Body::Memory(bytes.into()) }
}

fn put(name: &str, bytes: Vec<u8>) -> Transaction<Body> {
    let put = Put::Body(payload(bytes), Metadata::default());
    Transaction { changes: [(path(name), put)].into() }
}

/// The disks of a test.
struct Disks {
    disk: FaultyDisk,
    folder: TempDir,
}

impl Disks {
    fn new() -> Self {
        Disks { disk: FaultyDisk::default(), folder: TempDir::new().expect("a folder") }
    }

    fn opener(&self) -> Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync> {
        let disk = self.disk.clone();
        Box::new(move || Builder::new().set_cache_size(1 << 20).create_with_backend(disk.clone()))
    }

    /// Bodies without syncs: no test covers a crash of the test's machine.
    fn bodies(&self) -> Bodies {
        let objects = LocalFileSystem::new_with_prefix(self.folder.path()).expect("a folder");
        Bodies::over(Arc::new(objects), INLINE)
    }

    fn create_origin(&self) {
        let state = OriginState::new([7; 32]);
        Store::create(self.opener(), self.bodies(), state).expect("an empty disk");
    }

    fn open<S: State>(&self) -> Result<Opened<S>, StoreError> {
        Store::open_with(self.opener(), self.bodies(), WallTime::default())
    }
}

fn config() -> Config {
    Config { inline: INLINE, log: 6, chain: 9, batch: 4, ..Config::default() }
}

fn recover(opened: Opened<OriginState>) -> (Origin<Body>, Store<OriginState>) {
    let policy = Box::new(ReadsPerWriteAndByte);
    let Opened { store, image, bodies } = opened;
    (Origin::recover(at(100), config(), policy, image, bodies), store)
}

fn apply_done(origin: &mut Origin<Body>, done: Done) {
    match done {
        Done::Step(outcome) => origin.handle_appended(at(100), outcome),
        Done::Stored(digest, outcome) => origin.handle_stored(at(100), &digest, outcome),
        Done::Dropped(digest) => origin.handle_dropped(at(100), &digest),
    }
}

/// Carries out the origin's requests until there are no more.
fn pump(origin: &mut Origin<Body>, store: &mut Store<OriginState>) -> Result<(), StoreError> {
    loop {
        let jobs: Vec<Job<Append<Body>>> =
            std::iter::from_fn(|| origin.poll_effect()).map(Job::from).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        for done in store.run(jobs)? {
            apply_done(origin, done);
        }
    }
}

fn open_in(folder: &FilePath, now: i64) -> (Origin<Body>, Store<OriginState>) {
    recover(Store::open(folder, settings(), at(now).wall).expect("it was made"))
}

fn write(
    origin: &mut Origin<Body>,
    store: &mut Store<OriginState>,
    name: &str,
    bytes: Vec<u8>,
) -> Sequence {
    origin.handle_transaction(at(100), TransactionId(1), put(name, bytes));
    pump(origin, store).expect("a disk that does not fail");
    origin.last().sequence
}

#[test]
fn origin_resumes_its_state() {
    let folder = TempDir::new().expect("a folder");
    Store::create_origin(folder.path(), settings(), [7; 32]).expect("an empty folder");
    let (mut origin, mut store) = open_in(folder.path(), 1);
    let large = vec![b'l'; 100_000];
    for round in 0..12_u8 {
        write(&mut origin, &mut store, "small", vec![round; 8]);
    }
    write(&mut origin, &mut store, "large", large.clone());
    let before = origin.image().clone();
    drop(store);
    let (again, store) = open_in(folder.path(), 2);
    let image = again.image();
    assert!(image.incarnation > before.incarnation);
    assert_eq!(Image { incarnation: before.incarnation, ..image.clone() }, before);
    assert_eq!(image.log.len(), config().log);
    let read = |name: &str| {
        let digest = image.objects[&path(name)].content.digest;
        store.body_reader().read(&digest).expect("the disk is fine").expect("it is there")
    };
    assert_eq!((&read("small")[..], &read("large")[..]), (&[11; 8][..], &large[..]));
}

#[test]
fn store_is_created_once_and_opened_only_by_its_kind() {
    let folder = TempDir::new().expect("a folder");
    let open = |now| Store::<OriginState>::open(folder.path(), settings(), at(now).wall);
    assert!(matches!(open(1), Err(StoreError::Nothing(_))));
    Store::create_origin(folder.path(), settings(), [7; 32]).expect("an empty folder");
    let again = Store::create_origin(folder.path(), settings(), [8; 32]);
    assert!(matches!(again, Err(StoreError::Exists(_))));
    let other = Store::<ReplicaState>::open(folder.path(), settings(), at(1).wall);
    assert!(matches!(other, Err(StoreError::Other { .. })), "{other:?}");
    assert!(open(1).is_ok());
}

fn copy(from: &FilePath, to: &FilePath) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let from = entry.expect("an entry").path();
        let to = to.join(from.file_name().expect("a name"));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).expect("a file");
        }
    }
}

/// The origin's greeting for a replica at `position`.
fn greeting(origin: &mut Origin<Body>, position: Position) -> ToReplica {
    let session = Session { origin: Incarnation(0), replica: Incarnation(1), connection: 1 };
    let message = ToOrigin::Hello {
        protocol: PROTOCOL,
        replica: ReplicaId(3),
        position: Some(position),
        committed: position.sequence,
        only: Subscription::default(),
    };
    origin.handle_frame(at(100), ReplicaId(3), Frame { session, message });
    origin.poll_control(at(100), ReplicaId(3)).expect("an answer").message
}

#[test]
fn origin_restored_from_an_old_backup_is_detected() {
    let folder = TempDir::new().expect("a folder");
    let (live, backup) = (folder.path().join("live"), folder.path().join("backup"));
    Store::create_origin(&live, settings(), [7; 32]).expect("an empty folder");
    let (mut origin, mut store) = open_in(&live, 1);
    write(&mut origin, &mut store, "a", vec![1; 8]);
    drop(store);
    copy(&live, &backup);
    let (mut origin, mut store) = open_in(&live, 2);
    write(&mut origin, &mut store, "a", vec![2; 8]);
    let seen = origin.last();
    let life = origin.image().incarnation;
    drop(store);
    let (mut origin, mut store) = open_in(&backup, 3);
    assert_ne!(origin.image().incarnation, life, "no life is lived twice");
    let refused = ToReplica::Refused(Refusal::Ahead(Sequence(1)));
    assert_eq!(greeting(&mut origin, seen), refused);
    // Once written past the replica's position, the numbers agree again.
    write(&mut origin, &mut store, "a", vec![3; 8]);
    write(&mut origin, &mut store, "a", vec![4; 8]);
    drop(store);
    let (mut origin, _store) = open_in(&backup, 4);
    assert_eq!(greeting(&mut origin, seen), ToReplica::Refused(Refusal::Diverged));
}

/// The only file of the folder of bodies.
fn body_file(folder: &FilePath) -> PathBuf {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

fn replica_with(folder: &FilePath, body: &Payload<Body>) -> Store<ReplicaState> {
    Store::create_replica(folder, settings()).expect("an empty folder");
    let opened = Store::<ReplicaState>::open(folder, settings(), at(1).wall);
    let Opened { mut store, .. } = opened.expect("it was made");
    let content = Content { digest: body.digest, size: body.size, metadata: Metadata::default() };
    let object = Object { version: Version { sequence: Sequence(1), content }, valid: true };
    let step = Step {
        position: Some(Position { sequence: Sequence(1), ..Position::beginning([7; 32]) }),
        changes: [(path("a"), Some(object))].into(),
    };
    let jobs = vec![Job::Store(body.clone()), Job::Step(Arc::new(step))];
    let done = store.run(jobs).expect("a disk that does not fail");
    assert_eq!(done, [Done::Stored(body.digest, Ok(())), Done::Step(Ok(()))]);
    store
}

/// A damaged body is not read, and after a restart its object waits to be fetched again.
#[test]
fn missing_or_corrupt_body_makes_its_object_invalid() {
    let body = payload(vec![b'b'; 200_000]);
    for damage in ["missing", "torn", "rotten"] {
        let folder = TempDir::new().expect("a folder");
        let store = replica_with(folder.path(), &body);
        let body_reader = store.body_reader();
        let outline = || body_reader.outline(&body.digest, body.size).expect("the disk is fine");
        assert!(body_reader.read(&body.digest).expect("the disk is fine").is_some());
        assert!(outline().is_some());
        let file = body_file(&folder.path().join(BODIES));
        let mut bytes = fs::read(&file).expect("a body");
        match damage {
            "missing" => fs::remove_file(&file).expect("a body"),
            "torn" => fs::write(&file, &bytes[..70_000]).expect("a body"),
            _ => {
                bytes[100_000] ^= 1;
                fs::write(&file, &bytes).expect("a body");
            }
        }
        assert_eq!(body_reader.read(&body.digest).expect("the disk is fine"), None, "{damage}");
        assert_eq!(outline(), None, "{damage}");
        drop((store, body_reader));
        let opened = Store::<ReplicaState>::open(folder.path(), settings(), at(2).wall);
        let Opened { image, bodies, .. } = opened.expect("the state is fine");
        let replica: Replica<Body> =
            Replica::recover(at(2), replica::Config::default(), image, bodies);
        let valid = replica.image().objects[&path("a")].valid;
        // Corruption is found when the body is read: `Replica::handle_missing`.
        assert_eq!(valid, damage == "rotten", "{damage}");
    }
}

const BODIES: &str = "bodies";

#[test]
fn large_body_is_written_to_disk_as_it_arrives() {
    let folder = TempDir::new().expect("a folder");
    Store::create_replica(folder.path(), settings()).expect("an empty folder");
    let opened = Store::<ReplicaState>::open(folder.path(), settings(), at(1).wall);
    let Opened { mut store, .. } = opened.expect("it was made");
    let bytes: Vec<u8> = (0..3_500_000_u32).map(|at| (at / 7) as u8).collect();
    let mut stager = store.bodies().stage();
    for part in bytes.chunks(70_000) {
        stager.write(part).expect("the disk is fine").expect("there is room");
    }
    let body = stager.finish().expect("the disk is fine").expect("there is room");
    assert_eq!((body.digest, body.size), (Digest::of(&bytes), Bytes(3_500_000)));
    assert!(matches!(body.bytes, Body::Staged(_)));
    store.run(vec![Job::Store(body.clone())]).expect("the disk is fine");
    let (digest, size) = (body.digest, body.size);
    drop(body);
    let read = store.body_reader().read(&digest).expect("the disk is fine");
    assert_eq!(read.as_deref(), Some(&bytes[..]));
    let outline = store.body_reader().outline(&digest, size).expect("the disk is fine");
    assert_eq!(
        outline,
        Some(lull_replication::wire::Outline::of(bytes.chunks(lull_replication::wire::PIECE)))
    );
    let last = store.body_reader().piece(&digest, size, 53).expect("the disk is fine");
    assert_eq!(last.as_deref(), Some(&bytes[53 * lull_replication::wire::PIECE..]));
    body_file(&folder.path().join(BODIES));
}

#[test]
fn cancelled_body_leaves_no_file() {
    let folder = TempDir::new().expect("a folder");
    Store::create_replica(folder.path(), settings()).expect("an empty folder");
    let opened = Store::<ReplicaState>::open(folder.path(), settings(), at(1).wall);
    let Opened { store, .. } = opened.expect("it was made");
    let large = vec![1; 2_000_000];
    for finished in [false, true] {
        let mut stager = store.bodies().stage();
        stager.write(&large).expect("the disk is fine").expect("there is room");
        if finished {
            drop(stager.finish().expect("the disk is fine").expect("there is room"));
        }
    }
    let bodies = folder.path().join(BODIES);
    // The leftovers of a killed process: a body before its rename, and one that was being written.
    let left = [bodies.join("staged/7"), bodies.join("staged/8#1"), bodies.join("ab/ab12#1")];
    for file in &left {
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, b"left").expect("a file");
    }
    drop(store);
    Store::<ReplicaState>::open(folder.path(), settings(), at(2).wall).expect("it was made");
    for file in left {
        assert!(!file.exists(), "{}", file.display());
    }
    assert_eq!(fs::read_dir(bodies.join("staged")).expect("a folder").count(), 0);
}

#[test]
fn store_in_use_is_left_unchanged() {
    let folder = TempDir::new().expect("a folder");
    Store::create_replica(folder.path(), settings()).expect("an empty folder");
    let open = |now| Store::<ReplicaState>::open(folder.path(), settings(), at(now).wall);
    let Opened { mut store, .. } = open(1).expect("it was made");
    let large = vec![1; 2_000_000];
    let mut stager = store.bodies().stage();
    stager.write(&large).expect("the disk is fine").expect("there is room");
    // A second start meanwhile.
    let again = open(2);
    assert!(matches!(again, Err(StoreError::InUse)), "{again:?}");
    let body = stager.finish().expect("the disk is fine").expect("there is room");
    assert!(matches!(body.bytes, Body::Staged(_)));
    let done = store.run(vec![Job::Store(body.clone())]).expect("its file is still there");
    assert_eq!(done, [Done::Stored(body.digest, Ok(()))]);
    drop((store, body));
    assert!(open(3).is_ok(), "it has ended");
}

#[test]
fn log_truncation_at_start_is_persisted() {
    let folder = TempDir::new().expect("a folder");
    Store::create_origin(folder.path(), settings(), [7; 32]).expect("an empty folder");
    let (mut origin, mut store) = open_in(folder.path(), 1);
    for round in 0..4_u8 {
        write(&mut origin, &mut store, "a", vec![round; 1_000]);
    }
    assert_eq!(origin.overwritten(), Bytes(3_000));
    let before = origin.image().clone();
    let files = || store_files(&folder.path().join(BODIES));
    assert_eq!(files(), 4);
    drop(store);
    let opened = Store::<OriginState>::open(folder.path(), settings(), at(2).wall);
    let Opened { mut store, image, bodies } = opened.expect("it was made");
    let bounded = Config { log_bytes: Bytes(1_000), ..config() };
    let policy = Box::new(ReadsPerWriteAndByte);
    let mut origin = Origin::recover(at(100), bounded, policy, image, bodies);
    pump(&mut origin, &mut store).expect("a disk that does not fail");
    assert_eq!((files(), origin.overwritten()), (2, Bytes(1_000)));
    drop(store);
    let (origin, _store) = open_in(folder.path(), 3);
    assert_eq!((origin.image().log_after(), origin.image().last()), (Sequence(3), before.last()));
    assert_eq!(origin.lost().count(), 0);
}

/// Number of files in a folder, at any depth.
fn store_files(folder: &FilePath) -> usize {
    let entries = fs::read_dir(folder).expect("a folder");
    let count = |path: PathBuf| if path.is_dir() { store_files(&path) } else { 1 };
    entries.map(|entry| count(entry.expect("an entry").path())).sum()
}

#[test]
fn jobs_waiting_together_cost_one_sync() {
    let disks = Disks::new();
    disks.create_origin();
    let Opened { mut store, .. } = disks.open::<OriginState>().expect("it was made");
    let one = |byte: u8| Job::Store(payload(vec![byte; 40]));
    let before = disks.disk.syncs();
    store.run(vec![one(0)]).expect("the disk is fine");
    let single = disks.disk.syncs() - before;
    let before = disks.disk.syncs();
    store.run((1..=200).map(one).collect()).expect("the disk is fine");
    assert_eq!(disks.disk.syncs() - before, single);
}

#[test]
fn dropping_bodies_syncs_the_database_only_if_they_are_in_it() {
    let disks = Disks::new();
    disks.create_origin();
    let Opened { mut store, .. } = disks.open::<OriginState>().expect("it was made");
    let (small, large) = (payload(vec![1; 40]), payload(vec![2; 400]));
    for (dropped, synced) in
        [(vec![&large], false), (vec![&small], true), (vec![&large, &small], true)]
    {
        let stored = [&small, &large].map(|one| Job::Store(one.clone()));
        store.run(stored.into()).expect("there is room");
        let before = disks.disk.syncs();
        let jobs = dropped.iter().map(|one| Job::Drop(one.digest)).collect();
        let done = store.run(jobs).expect("the disk is fine");
        let expected: Vec<_> = dropped.iter().map(|one| Done::Dropped(one.digest)).collect();
        assert_eq!((done, disks.disk.syncs() > before), (expected, synced));
        for one in dropped {
            assert_eq!(store.body_reader().read(&one.digest).expect("the disk is fine"), None);
        }
    }
}

#[test]
fn worker_reports_each_job_and_ends_after_the_last() {
    let disks = Disks::new();
    disks.create_origin();
    let Opened { store, .. } = disks.open::<OriginState>().expect("it was made");
    let body_reader = store.body_reader();
    let (told, done) = mpsc::channel();
    let on_done = move |one: Result<Done, StoreError>| {
        // After a failure of the test there is no receiver.
        let _ = told.send(one.expect("the disk is fine"));
    };
    let worker = Worker::spawn(store, on_done).expect("threads");
    let sizes = [10, 64, 65, 5_000, 200_000];
    let bodies: Vec<_> = (0..50).map(|at| payload(vec![at as u8; sizes[at % 5]])).collect();
    for body in &bodies {
        worker.ask(Job::Store(body.clone())).expect("it has not failed");
    }
    drop(worker);
    let mut told: Vec<_> = done.iter().collect();
    let mut expected: Vec<_> =
        bodies.iter().map(|body| Done::Stored(body.digest, Ok(()))).collect();
    let key = |done: &Done| match done {
        Done::Stored(digest, _) | Done::Dropped(digest) => *digest,
        Done::Step(_) => Digest::default(),
    };
    told.sort_by_key(key);
    expected.sort_by_key(key);
    assert_eq!(told, expected);
    for body in bodies {
        assert!(body_reader.read(&body.digest).expect("the disk is fine").is_some());
    }
}

#[test]
fn abandoned_worker_starts_no_job_and_reports_nothing() {
    let disks = Disks::new();
    disks.create_origin();
    let Opened { store, .. } = disks.open::<OriginState>().expect("it was made");
    let body_reader = store.body_reader();
    let (told, done) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let on_done = move |one: Result<Done, StoreError>| {
        let _ = told.send(one.expect("the disk is fine"));
        // The receiver is busy, and meanwhile more is requested.
        let _ = wait.lock().expect("no panic").recv();
    };
    let worker = Worker::spawn(store, on_done).expect("threads");
    let small: Vec<_> = (0..20).map(|at| payload(vec![at; 10])).collect();
    let large: Vec<_> = (0..20).map(|at| payload(vec![at; 5_000])).collect();
    // Each thread reports one job: the journal, and the four that write large bodies.
    for body in small[..1].iter().chain(&large[..4]) {
        worker.ask(Job::Store(body.clone())).expect("it has not failed");
    }
    for _ in 0..5 {
        done.recv().expect("one of each");
    }
    for body in small[1..].iter().chain(&large[4..]) {
        worker.ask(Job::Store(body.clone())).expect("it has not failed");
    }
    let abandoned = Arc::clone(&worker.abandoned);
    let ending = std::thread::spawn(move || worker.abandon());
    while !abandoned.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    drop(go);
    ending.join().expect("no panic");
    assert_eq!(done.iter().count(), 0);
    let there = |body: &Payload<Body>| body_reader.read(&body.digest).expect("a disk").is_some();
    assert_eq!(small.iter().filter(|body| there(body)).count(), 1);
    assert_eq!(large.iter().filter(|body| there(body)).count(), 4);
}

#[test]
fn modified_log_is_detected() {
    const LOG: redb::TableDefinition<'static, u64, &[u8]> = redb::TableDefinition::new("log");
    let folder = TempDir::new().expect("a folder");
    Store::create_origin(folder.path(), settings(), [7; 32]).expect("an empty folder");
    let (mut origin, mut store) = open_in(folder.path(), 1);
    for round in 0..4 {
        write(&mut origin, &mut store, "a", vec![round; 8]);
    }
    drop(store);
    let database = Database::open(folder.path().join("state.redb")).expect("it was closed");
    let transaction = database.begin_write().expect("a transaction");
    {
        let mut log = transaction.open_table(LOG).expect("a table");
        let mut row = log.get(3).expect("a row").expect("a row").value().to_vec();
        row[0] ^= 1;
        log.insert(3, &row[..]).expect("a row");
    }
    transaction.commit().expect("a disk that does not fail");
    drop(database);
    let opened = Store::<OriginState>::open(folder.path(), settings(), at(2).wall);
    assert!(matches!(opened, Err(StoreError::Damaged(_))), "{opened:?}");
}
