//! Full disks: reported, nothing half-visible, and work continues when there is space again.

use std::collections::BTreeMap;

use lull_replication::origin::{Event, Refused};

use super::*;

/// The origin's state on the disk.
fn on_disk(disks: &Disks) -> Image {
    disks.open::<OriginState>().expect("a full disk damages nothing").image
}

#[test]
fn bodies_leave_the_last_space_to_the_state() {
    let disks = Disks::new();
    Store::create(disks.opener(), disks.bodies(), ReplicaState::default()).expect("an empty disk");
    let free = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&free);
    let room = move || Some(Room { size: 160, free: told.load(Ordering::Relaxed) });
    let bodies = disks.bodies().leaving(Reserve::by(room));
    let opened = Store::<ReplicaState>::open_with(disks.opener(), bodies, WallTime::default());
    let mut store = opened.expect("it was made").store;
    let (small, large) = (payload(vec![1; 60]), payload(vec![2; 90]));
    let [first, second] = [&small, &large].map(|body| body.digest);
    let coming = vec![3; 2 << 20];
    for (least, kept) in [(69, [false; 2]), (159, [true, false]), (160, [true; 2])] {
        free.store(least, Ordering::Relaxed);
        let step = Job::Step(Arc::new(Step { position: None, changes: BTreeMap::new() }));
        let jobs = vec![Job::Store(small.clone()), Job::Store(large.clone()), step];
        let done = store.run(jobs).expect("no room is an answer");
        let outcome = |kept: bool| if kept { Ok(()) } else { Err(DiskFull) };
        assert!(done.contains(&Done::Stored(first, outcome(kept[0]))), "{least}: {done:?}");
        assert!(done.contains(&Done::Stored(second, outcome(kept[1]))), "{least}: {done:?}");
        assert!(done.contains(&Done::Step(Ok(()))), "{least}: {done:?}");
        assert_eq!(store.bodies().stage().write(&coming).expect("an answer"), Err(DiskFull));
    }
    free.store(10 + (2 << 20), Ordering::Relaxed);
    let mut stager = store.bodies().stage();
    assert_eq!(stager.write(&coming).expect("an answer"), Ok(()));
    // The rest of a body that was received in part.
    stager.write(&[4; 100]).expect("an answer").expect("it stays in memory");
    free.store(10 + 99, Ordering::Relaxed);
    assert!(stager.finish().expect("an answer").is_err());
    let left = fs::read_dir(disks.folder.path().join("staged")).expect("a folder");
    assert_eq!(left.count(), 0, "it is given up");
}

/// One job of many small bodies: more than fit.
fn too_much() -> Append<Body> {
    Append {
        commits: Vec::new(),
        inline: (0..4_000_u64).map(|n| payload(n.to_be_bytes().repeat(8))).collect(),
        log_after: Sequence::ZERO,
        chain_from: Sequence::ZERO,
    }
}

#[test]
fn full_disk_refuses_whole_transactions_until_space_is_free() {
    for room in 0..12 {
        let disks = Disks::new();
        disks.create_origin();
        let (mut origin, mut store) = recover(disks.open().expect("it was made"));
        write(&mut origin, &mut store, "before", vec![1; 8]);
        while origin.poll_event().is_some() {}
        disks.disk.set_room(Some(room * 3));
        let mut refused = 0;
        for number in 0..200_u64 {
            let mut writes = put(&format!("f{number}"), number.to_le_bytes().repeat(7));
            writes.changes.extend(put(&format!("g{number}"), vec![number as u8; 60]).changes);
            origin.handle_transaction(at(100), TransactionId(number), writes);
            pump(&mut origin, &mut store).expect("no room is an answer");
            while let Some(event) = origin.poll_event() {
                match event {
                    Event::Refused { why: Refused::Disk(_), .. } => refused += 1,
                    Event::Acknowledged { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(refused > 0, "room for {room}");
        disks.disk.set_room(None);
        let last = write(&mut origin, &mut store, "after", vec![2; 8]);
        assert_eq!(last.0, 202 - refused, "the log has no gaps");
        let image = origin.image().clone();
        assert!(image.objects.contains_key(&path("after")));
        for number in 0..200 {
            let has = |name: String| image.objects.contains_key(&path(&name));
            assert_eq!(has(format!("f{number}")), has(format!("g{number}")), "half of {number}");
        }
        drop(store);
        let found = on_disk(&disks);
        assert_eq!(Image { incarnation: image.incarnation, ..found }, image);
    }
}

/// A store that reads each page from its disk.
fn without_cache(disks: &Disks) -> Store<OriginState> {
    let disk = disks.disk.clone();
    let open = move || Builder::new().set_cache_size(0).create_with_backend(disk.clone());
    let opened = Store::open_with(Box::new(open), disks.bodies(), WallTime::default());
    opened.expect("it was made").store
}

/// A failed write makes the database fail for all readers, until it is opened again.
#[test]
fn reads_are_unaffected_by_writes_to_a_full_disk() {
    let disks = Disks::new();
    disks.create_origin();
    let mut store = without_cache(&disks);
    let here: Vec<_> = (0..600_u64).map(|number| payload(number.to_le_bytes().repeat(8))).collect();
    store.run(here.iter().cloned().map(Job::Store).collect()).expect("there is room");
    disks.disk.set_pause(Duration::from_micros(50));
    disks.disk.set_room(Some(0));
    let (body_reader, ended) = (store.body_reader(), AtomicBool::new(false));
    let read = || {
        let mut reads = 0;
        for body in here.iter().cycle().take_while(|_| !ended.load(Ordering::Relaxed)) {
            let read = body_reader.read(&body.digest).expect("nothing is wrong with what is there");
            assert!(read.is_some());
            reads += 1;
        }
        reads
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        for _ in 0..20 {
            let done = store.run(vec![Job::Step(too_much())]).expect("no room is an answer");
            assert_eq!(done, [Done::Step(Err(DiskFull))]);
        }
        ended.store(true, Ordering::Relaxed);
        let reads: Vec<u64> =
            readers.into_iter().map(|one| one.join().expect("a reader")).collect();
        assert!(reads.iter().all(|reads| *reads > 0), "{reads:?}");
    });
}

#[test]
fn read_fails_at_once_after_a_permanent_write_error() {
    let disks = Disks::new();
    disks.create_origin();
    let mut store = without_cache(&disks);
    let body = payload(vec![7; 50]);
    store.run(vec![Job::Store(body.clone())]).expect("there is room");
    let body_reader = store.body_reader();
    disks.disk.set_fuse(Some(0));
    let failed = store.run(vec![Job::Drop(body.digest)]);
    assert!(matches!(failed, Err(StoreError::Database(_))), "{failed:?}");
    let read = body_reader.read(&body.digest);
    assert!(matches!(read, Err(StoreError::Stopped)), "{read:?}");
}

#[test]
fn store_creation_on_a_full_disk_leaves_no_store() {
    let mut rooms = 0;
    loop {
        let disks = Disks::new();
        disks.disk.set_room(Some(rooms));
        let state = OriginState::new([7; 32]);
        match Store::create(disks.opener(), disks.bodies(), state) {
            Ok(()) => {
                disks.disk.set_room(None);
                break drop(disks.open::<OriginState>().expect("what was made is there"));
            }
            Err(error) => assert!(matches!(error, StoreError::Full), "room for {rooms}: {error:?}"),
        }
        rooms += 1;
        assert!(rooms < 1_000, "an empty store takes less");
    }
    assert!(rooms > 1);
}

#[test]
fn job_without_space_does_not_block_the_others() {
    let disks = Disks::new();
    disks.create_origin();
    let Opened { mut store, .. } = disks.open::<OriginState>().expect("it was made");
    let small = payload(vec![1; 10]);
    disks.disk.set_room(Some(20));
    let done = store.run(vec![Job::Step(too_much()), Job::Store(small.clone())]);
    let done = done.expect("no room is an answer");
    assert_eq!(done, [Done::Stored(small.digest, Ok(())), Done::Step(Err(DiskFull))]);
    let read = store.body_reader().read(&small.digest).expect("the disk is fine");
    assert_eq!(read.as_deref(), Some(&[1; 10][..]));
}

/// An origin's store, and how often its database was opened.
fn counted(disks: &Disks) -> (Store<OriginState>, Arc<AtomicU64>) {
    disks.create_origin();
    let (open, opened) = (disks.opener(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&opened);
    let open = move || {
        count.fetch_add(1, Ordering::Relaxed);
        open()
    };
    let store = Store::open_with(Box::new(open), disks.bodies(), WallTime::default());
    let Opened { store, .. } = store.expect("it was made");
    (store, opened)
}

#[test]
fn few_of_many_jobs_without_space_are_tried() {
    let disks = Disks::new();
    let (mut store, opened) = counted(&disks);
    let bodies: Vec<_> = (0..256_u64).map(|n| payload(n.to_le_bytes().repeat(8))).collect();
    disks.disk.set_room(Some(0));
    let done = store.run(bodies.iter().cloned().map(Job::Store).collect());
    let full = |done: &&Done| matches!(done, Done::Stored(_, Err(DiskFull)));
    let done = done.expect("no room is an answer");
    assert!(done.len() == 256 && done.iter().filter(full).count() >= 200, "{done:?}");
    let opened = opened.load(Ordering::Relaxed);
    assert!(opened <= 4, "a start, and {opened} in all");
}

#[test]
fn job_without_space_is_not_retried_before_space_is_free() {
    let disks = Disks::new();
    let (mut store, opened) = counted(&disks);
    let free = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&free);
    store.shortage = Shortage::by(move || Some(told.load(Ordering::Relaxed)));
    disks.disk.set_room(Some(0));
    let mut try_it = || store.run(vec![Job::Step(too_much())]).expect("no room is an answer");
    for _ in 0..50 {
        assert_eq!(try_it(), [Done::Step(Err(DiskFull))]);
    }
    let times = opened.load(Ordering::Relaxed);
    // One, unless the machine stops for much longer than the first one has taken.
    assert!(times <= 4, "it was opened {times} times");
    disks.disk.set_room(None);
    free.store(1 << 30, Ordering::Relaxed);
    assert_eq!(try_it(), [Done::Step(Ok(()))]);
}

#[test]
fn undeleted_small_bodies_are_removed_once_space_is_free() {
    let disks = Disks::new();
    let (mut store, _) = counted(&disks);
    let bodies = [1, 2, 3].map(|byte| payload(vec![byte; 10]));
    store.run(bodies.iter().cloned().map(Job::Store).collect()).expect("there is room");
    for body in &bodies[..2] {
        let done = store.refuse(&Job::Drop(body.digest), DiskFull).expect("the disk is fine");
        assert_eq!(done, Done::Dropped(body.digest));
    }
    let body_reader = store.body_reader();
    let there = || {
        [0, 1, 2].map(|at: usize| body_reader.read(&bodies[at].digest).expect("a disk").is_some())
    };
    assert_eq!(there(), [true; 3]);
    // The first is used again, while there is little space.
    store.shortage = Shortage::by(|| Some(0));
    store.shortage.remember(1 << 20, Duration::from_secs(3_600));
    store.run(vec![Job::Store(bodies[0].clone())]).expect("the disk is fine");
    assert_eq!(there(), [true; 3]);
    store.shortage = Shortage::default();
    store.run(vec![Job::Store(payload(vec![4; 10]))]).expect("there is room");
    assert_eq!(there(), [true, false, true]);
}

#[test]
fn temporary_shortage_is_recognized_by_its_error() {
    for (number, passes) in [(12, true), (23, true), (24, true), (5, false), (13, false)] {
        let error = || io::Error::from_raw_os_error(number);
        let wrapped = object_store::Error::Generic { store: "a", source: Box::new(error()) };
        assert_eq!(StoreError::from(wrapped).is_passing(), passes, "{number}");
        let database = StoreError::from(redb::StorageError::Io(error()));
        assert_eq!(database.is_passing(), passes, "{number}");
    }
    assert!(!StoreError::Stopped.is_passing());
}

/// It had its name when there was no descriptor for the folder.
#[test]
fn renamed_large_body_is_stored_on_retry() {
    let folder = TempDir::new().expect("a folder");
    Store::create_replica(folder.path(), settings()).expect("an empty folder");
    let opened = Store::<ReplicaState>::open(folder.path(), settings(), at(1).wall);
    let Opened { store, .. } = opened.expect("it was made");
    let mut stager = store.bodies().stage();
    let large = vec![7; 2_000_000];
    stager.write(&large).expect("the disk is fine").expect("there is room");
    let body = stager.finish().expect("the disk is fine").expect("there is room");
    assert!(matches!(body.bytes, Body::Staged(_)));
    assert_eq!(store.bodies().store(&body).expect("the disk is fine"), Ok(()));
    assert!(store.bodies().store(&body).is_err(), "it is not where it was");
    assert_eq!(store.bodies().store_again(&body).expect("the disk is fine"), Ok(()));
    let read = store.body_reader().read(&body.digest).expect("the disk is fine");
    assert_eq!(read.map(|read| read.len()), Some(2_000_000));
}

#[test]
fn large_body_is_deleted_without_space_for_the_record() {
    let folder = TempDir::new().expect("a folder");
    Store::create_replica(folder.path(), settings()).expect("an empty folder");
    let opened = Store::<ReplicaState>::open(folder.path(), settings(), at(1).wall);
    let Opened { mut store, .. } = opened.expect("it was made");
    let (small, large) = (payload(vec![1; 10]), payload(vec![2; 100_000]));
    let jobs = vec![Job::Store(small.clone()), Job::Store(large.clone())];
    store.run(jobs).expect("the disk is fine");
    for body in [&small, &large] {
        let done = store.refuse(&Job::Drop(body.digest), DiskFull).expect("the disk is fine");
        assert_eq!(done, Done::Dropped(body.digest));
    }
    let there =
        |body: &Payload<Body>| store.body_reader().read(&body.digest).expect("a disk").is_some();
    assert_eq!([there(&small), there(&large)], [true, false]);
}

#[test]
fn full_disk_is_recognized_by_its_error() {
    let full = || io::Error::from(io::ErrorKind::StorageFull);
    let wrapped = object_store::Error::Generic { store: "a", source: Box::new(full()) };
    assert!(is_full(&wrapped));
    assert!(is_full(&StoreError::from(redb::StorageError::Io(full()))));
    let other = redb::StorageError::Io(io::ErrorKind::PermissionDenied.into());
    assert!(!is_full(&StoreError::from(other)));
}
