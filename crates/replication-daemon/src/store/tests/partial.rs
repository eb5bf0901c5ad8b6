//! Bodies that have arrived in part, before and after crashes.

use lull_replication::wire::PIECE;
use lull_sim::random::Random;

use super::crash::each_seed;
use super::*;

fn bodies_in(folder: &TempDir) -> Bodies {
    Bodies::open(folder.path(), INLINE).expect("a folder")
}

/// Some pieces, all different.
fn some_bytes(seed: u8, pieces: usize) -> Vec<u8> {
    (0..pieces * PIECE + 77).map(|at| (at / 251) as u8 ^ at as u8 ^ seed).collect()
}

fn files(folder: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.path().join("partial")).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// Receives these pieces, behind those that are here.
fn receive(bodies: &Bodies, bytes: &[u8], begin: usize, end: usize) -> Stager {
    let mut stager = bodies
        .stage_from(&Digest::of(bytes), Bytes((begin * PIECE) as u64), |_| {})
        .expect("a disk");
    for piece in bytes[begin * PIECE..].chunks(PIECE).take(end - begin) {
        stager.write(piece).expect("a disk").expect("room");
    }
    stager
}

fn finish(stager: Stager) -> Payload<Body> {
    stager.finish().expect("a disk").expect("room")
}

#[test]
fn broken_off_body_continues_behind_its_last_piece() {
    let folder = TempDir::new().expect("a folder");
    let bodies = bodies_in(&folder);
    let bytes = some_bytes(1, 50);
    let digest = Digest::of(&bytes);
    // All of it that has come is kept: what is not on the disk so far is written then.
    drop(receive(&bodies, &bytes, 0, 21));
    assert_eq!(bodies.partials(), [(digest, 21)]);
    // Once more, and by another process.
    let bodies = bodies_in(&folder);
    assert_eq!(bodies.partials(), [(digest, 21)]);
    drop(receive(&bodies, &bytes, 21, 40));
    assert_eq!(bodies.partials(), [(digest, 40)]);
    // The origin may begin earlier than necessary.
    let payload = finish(receive(&bodies, &bytes, 30, 51));
    assert_eq!((payload.digest, payload.size), (digest, Bytes(bytes.len() as u64)));
    assert!(bodies.partials().is_empty(), "it is whole");
    bodies.store(&payload).expect("a disk").expect("room");
    drop(payload);
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
    let read = bodies.read(&digest).expect("a disk").expect("it is there");
    assert!(read == bytes);
    assert_eq!(bodies.list().expect("a disk"), Some(vec![(digest, Bytes(bytes.len() as u64))]));
}

#[test]
fn body_in_transit_twice_is_kept_once() {
    let folder = TempDir::new().expect("a folder");
    let bodies = bodies_in(&folder);
    let bytes = some_bytes(1, 40);
    let digest = Digest::of(&bytes);
    let (first, second) = (receive(&bodies, &bytes, 0, 30), receive(&bodies, &bytes, 0, 39));
    assert!(bodies.partials().is_empty(), "both are in transit");
    drop(second);
    assert!(bodies.partials().is_empty(), "of the second one nothing is kept");
    drop(first);
    assert_eq!(bodies.partials(), [(digest, 30)]);
    // One that is whole, and is not stored so far.
    let payload = finish(receive(&bodies, &bytes, 30, 41));
    drop(receive(&bodies, &bytes, 0, 39));
    assert_eq!(payload.digest, digest);
    bodies.store(&payload).expect("a disk").expect("room");
    assert!(bodies.read(&digest).expect("a disk").is_some_and(|read| read == bytes));
}

#[test]
fn missing_or_changed_first_pieces_give_another_hash() {
    let folder = TempDir::new().expect("a folder");
    let bodies = bodies_in(&folder);
    let bytes = some_bytes(1, 40);
    let digest = Digest::of(&bytes);
    assert_ne!(finish(receive(&bodies, &bytes, 20, 41)).digest, digest, "nothing is here");
    drop(receive(&bodies, &bytes, 0, 30));
    let all = files(&folder);
    let [file] = &all[..] else { panic!("one file: {all:?}") };
    let mut part = fs::read(file).expect("a part");
    part[5 * PIECE] ^= 1;
    fs::write(file, part).expect("a part");
    let wrong = finish(receive(&bodies, &bytes, 30, 41));
    assert_ne!(wrong.digest, digest);
    // Nothing of it is used again.
    drop(wrong);
    assert_eq!((bodies.partials(), files(&folder)), (vec![], vec![]));
    assert_eq!(finish(receive(&bodies, &bytes, 0, 41)).digest, digest);
}

#[test]
fn partial_bodies_are_limited_and_oldest_are_deleted() {
    let folder = TempDir::new().expect("a folder");
    let bodies = bodies_in(&folder);
    let all: Vec<_> = (0..20).map(|seed| some_bytes(seed, 30)).collect();
    for bytes in &all {
        drop(receive(&bodies, bytes, 0, 20));
    }
    let has = |bodies: &Bodies, bytes: &[u8]| {
        bodies.partials().iter().any(|(digest, _)| *digest == Digest::of(bytes))
    };
    assert_eq!((bodies.partials().len(), files(&folder).len()), (16, 16));
    assert!(!has(&bodies, &all[3]) && has(&bodies, &all[4]));
    bodies.limit_partials(Bytes(3 * 20 * PIECE as u64));
    assert_eq!((bodies.partials().len(), files(&folder).len()), (3, 3));
    assert!(has(&bodies, &all[19]));
    bodies.retain_partials(|digest| *digest == Digest::of(&all[18]));
    assert_eq!(files(&folder).len(), 1);
    // Less than a piece, and a corrupt one.
    receive(&bodies, &all[0], 0, 20).discard();
    assert_eq!(files(&folder).len(), 1);
    // Anything else there is deleted at the next start.
    fs::write(folder.path().join("partial/other"), b"x").expect("a file");
    assert_eq!(bodies_in(&folder).partials().len(), 1);
    assert_eq!(files(&folder).len(), 1);
}

/// After a crash of the machine, a part may be shorter, or have other bytes.
fn tear(folder: &TempDir, random: &mut Random) {
    for file in files(folder) {
        let mut bytes = fs::read(&file).expect("a part");
        match random.below(4) {
            0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
            1 if !bytes.is_empty() => {
                let from = random.below(bytes.len() as u64) as usize;
                let to = (from + 4_096).min(bytes.len());
                bytes[from..to].fill(0);
            }
            2 => bytes.extend(vec![0; random.below(3 * PIECE as u64) as usize]),
            // It was a process that was killed.
            _ => {}
        }
        fs::write(&file, bytes).expect("a part");
    }
}

#[test]
fn body_is_whole_after_any_crashes_or_begins_again() {
    each_seed(|random| {
        let folder = TempDir::new().expect("a folder");
        let bytes = some_bytes(random.below(250) as u8, 40);
        let digest = Digest::of(&bytes);
        for _ in 0..3 {
            let bodies = bodies_in(&folder);
            let begin = bodies.partials().first().map_or(0, |(_, pieces)| *pieces as usize).min(40);
            let end = begin + random.below(41 - begin as u64) as usize;
            let stager = receive(&bodies, &bytes, begin, end);
            if random.below(2) == 0 {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a killed process runs no destructor"
                )]
                std::mem::forget(stager);
            }
            tear(&folder, random);
        }
        let bodies = bodies_in(&folder);
        let begin = bodies.partials().first().map_or(0, |(_, pieces)| *pieces as usize).min(40);
        let mut payload = finish(receive(&bodies, &bytes, begin, 41));
        if payload.digest != digest {
            drop(payload);
            assert!(bodies.partials().is_empty(), "it begins again");
            payload = finish(receive(&bodies, &bytes, 0, 41));
        }
        assert_eq!(payload.digest, digest);
        bodies.store(&payload).expect("a disk").expect("room");
        assert!(bodies.read(&digest).expect("a disk").is_some_and(|read| read == bytes));
        drop(payload);
        assert!(files(&folder).is_empty());
    });
}
