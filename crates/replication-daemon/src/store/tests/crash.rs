//! Crashes at any operation of the disk, with unsynced writes lost and torn: from seeds.
//!
//! `LULL_REPLICATE_STORE_SEEDS` is the number of seeds (100), `LULL_REPLICATE_STORE_SEED` a single one.

use std::collections::BTreeMap;
use std::fs;

use lull_replication::origin::Event;
use lull_replication::types::{Change, Commit};
use lull_sim::random::Random;

use super::*;

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Runs `test` for each seed, and reports which one has failed.
pub(super) fn each_seed(test: impl Fn(&mut Random) + std::panic::RefUnwindSafe) {
    let seeds = match variable("LULL_REPLICATE_STORE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("LULL_REPLICATE_STORE_SEEDS").unwrap_or(100),
    };
    for seed in seeds {
        let run = std::panic::catch_unwind(|| test(&mut Random::new(seed)));
        if let Err(panic) = run {
            eprintln!("LULL_REPLICATE_STORE_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// One of few bodies, small or large, so that they are dropped, and used again.
fn some_body(random: &mut Random) -> Vec<u8> {
    let size = [3, 64, 65, 900][random.below(4) as usize];
    vec![random.below(5) as u8; size]
}

fn some_transaction(random: &mut Random) -> Transaction<Body> {
    let changes = (0..1 + random.below(3)).map(|_| {
        let name = path(&format!("f{}", random.below(6)));
        let put = match random.below(4) {
            0 => Put::Delete,
            _ => Put::Body(payload(some_body(random)), Metadata::default()),
        };
        (name, put)
    });
    Transaction { changes: changes.collect() }
}

fn changes(writes: &Transaction<Body>) -> Vec<Change> {
    let changes = writes.changes.iter().map(|(path, put)| {
        let content = match put {
            Put::Body(payload, metadata) => {
                Some(Content { digest: payload.digest, size: payload.size, metadata: *metadata })
            }
            Put::Stored(content) => Some(*content),
            Put::Delete => None,
        };
        Change { path: path.clone(), content }
    });
    changes.collect()
}

/// Keeps nothing, a part, or all of a body that was being written when the power failed.
fn leave_torn(disks: &Disks, body: &Payload<Body>, random: &mut Random) {
    let Body::Memory(bytes) = &body.bytes else { return };
    if body.size > INLINE && random.below(2) == 0 {
        let digits = body.digest.to_string();
        let folder = disks.folder.path().join(&digits[..2]);
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join(&digits);
        if !file.exists() {
            let part = random.below(bytes.len() as u64 + 1) as usize;
            fs::write(file, &bytes[..part]).expect("a body");
        }
    }
}

#[test]
fn any_crash_loses_no_acknowledged_write_and_tears_nothing() {
    each_seed(|random| {
        let disks = Disks::new();
        disks.create_origin();
        // All submitted changes that may be in the log, in order, and how many are certain to be.
        let mut submitted: Vec<Vec<Change>> = Vec::new();
        let mut acknowledged = Sequence::ZERO;
        let mut life = Incarnation(0);
        for _ in 0..4 {
            let opened = disks.open::<OriginState>().expect("a crash damages nothing");
            let (mut origin, mut store) = recover(opened);
            check(&origin, &store, &submitted, acknowledged);
            assert!(origin.image().incarnation > life);
            life = origin.image().incarnation;
            submitted.truncate(origin.last().sequence.0 as usize);
            disks.disk.set_fuse(Some(random.below(400)));
            let mut under_way = Vec::new();
            for number in 0..40 {
                for _ in 0..random.below(4) {
                    let writes = some_transaction(random);
                    submitted.push(changes(&writes));
                    let bodies = writes.changes.values().filter_map(|put| match put {
                        Put::Body(payload, _) => Some(payload.clone()),
                        _ => None,
                    });
                    under_way = bodies.collect();
                    origin.handle_transaction(at(100), TransactionId(number), writes);
                }
                let pumped = pump(&mut origin, &mut store);
                while let Some(event) = origin.poll_event() {
                    if let Event::Acknowledged { sequence, .. } = event {
                        acknowledged = acknowledged.max(sequence);
                    }
                }
                if pumped.is_err() {
                    break;
                }
            }
            drop(store);
            disks.disk.crash(random);
            for body in &under_way {
                leave_torn(&disks, body, random);
            }
        }
    });
}

/// The log is a prefix of the submitted transactions, with all acknowledged ones; the state is its result;
/// the bodies of both are there.
fn check(
    origin: &Origin<Body>,
    store: &Store<OriginState>,
    submitted: &[Vec<Change>],
    acknowledged: Sequence,
) {
    let image = origin.image();
    let last = image.last();
    assert!(last.sequence >= acknowledged, "{acknowledged} is lost, the log ends at {last:?}");
    assert!(last.sequence.0 as usize <= submitted.len());
    let mut objects = BTreeMap::new();
    for (sequence, changes) in (1..=last.sequence.0).map(Sequence).zip(submitted) {
        if let Some(entry) = image.entry(sequence) {
            assert_eq!(&entry.commit.changes[..], &changes[..], "{sequence}");
        }
        for change in changes {
            match change.content {
                Some(content) => objects.insert(change.path.clone(), Version { sequence, content }),
                None => objects.remove(&change.path),
            };
        }
    }
    assert_eq!(image.objects, objects);
    let before = image.log.iter().flat_map(|entry| &entry.before).flatten();
    for version in image.objects.values().chain(before) {
        let read = store.body_reader().read(&version.content.digest).expect("the disk is fine");
        assert_eq!(read.map(|bytes| bytes.len() as u64), Some(version.content.size.0));
    }
}

#[test]
fn replica_recovers_a_complete_confirmed_step_after_a_crash() {
    each_seed(|random| {
        let disks = Disks::new();
        let state = ReplicaState::default();
        Store::create(disks.opener(), disks.bodies(), state).expect("an empty disk");
        // The states after each requested step, from the first one.
        let mut states = vec![replica::Image::default()];
        let mut confirmed = 0;
        for _ in 0..4 {
            let opened = disks.open::<ReplicaState>().expect("a crash damages nothing");
            let Opened { mut store, image, bodies } = opened;
            let same = |state: &replica::Image| {
                (&state.position, &state.objects) == (&image.position, &image.objects)
            };
            let found = states.iter().rposition(same).expect("a state that was asked for");
            assert!(found >= confirmed, "step {confirmed} was confirmed, {found} is there");
            for object in image.objects.values() {
                let content = object.version.content;
                assert!(bodies.contains(&(content.digest, content.size)));
                let read = store.body_reader().read(&content.digest).expect("the disk is fine");
                assert!(read.is_some());
            }
            states.truncate(found + 1);
            confirmed = found;
            disks.disk.set_fuse(Some(random.below(300)));
            while let Ok(()) = step(&mut store, &mut states, &mut confirmed, random) {
                if states.len() > 120 {
                    break;
                }
            }
            drop(store);
            disks.disk.crash(random);
        }
    });
}

/// Some bodies and a step that uses them, in the order of a replica: the bodies first.
fn step(
    store: &mut Store<ReplicaState>,
    states: &mut Vec<replica::Image>,
    confirmed: &mut usize,
    random: &mut Random,
) -> Result<(), StoreError> {
    let mut image = states.last().cloned().unwrap_or_default();
    let sequence = Sequence(states.len() as u64);
    let mut step = Step { position: image.position, changes: BTreeMap::new() };
    let mut jobs = Vec::new();
    for change in changes(&some_transaction(random)) {
        let valid = Object {
            version: Version { sequence, content: content_of(&payload(some_body(random))) },
            valid: true,
        };
        step.changes.insert(change.path, change.content.map(|_| valid));
    }
    for object in step.changes.values().flatten() {
        jobs.push(Job::Store(body_of(&object.version.content)));
    }
    let commit = Commit { sequence, stamp: WallTime::default(), changes: Arc::from([]) };
    let position = image.position.unwrap_or(Position::beginning([7; 32]));
    step.position = Some(position.after(&commit));
    store.run(jobs)?;
    image.apply(&step);
    states.push(image);
    store.run(vec![Job::Step(Arc::new(step))])?;
    *confirmed = states.len() - 1;
    Ok(())
}

fn content_of(body: &Payload<Body>) -> Content {
    Content { digest: body.digest, size: body.size, metadata: Metadata::default() }
}

/// The body that [`some_body`] made with this content.
fn body_of(content: &Content) -> Payload<Body> {
    let all = (0..5).map(|byte| payload(vec![byte; content.size.0 as usize]));
    all.into_iter().find(|body| body.digest == content.digest).expect("one of few")
}

#[test]
fn crashes_tear_unsynced_writes() {
    // Otherwise the tests above would show nothing.
    let mut torn = 0;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let disks = Disks::new();
        disks.create_origin();
        let Opened { mut store, .. } = disks.open::<OriginState>().expect("it was made");
        disks.disk.set_fuse(Some(3 + random.below(20)));
        let some = (0..30).map(|byte| Job::Store(payload(vec![byte; 50])));
        for job in some {
            if store.run(vec![job]).is_err() {
                break;
            }
        }
        drop(store);
        torn += u64::from(disks.disk.crash(&mut random));
    }
    assert!(torn > 5, "{torn} of 20");
}
