//! Bodies that are read while they are overwritten, evicted, or corrupted.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lull_cc::Bytes;
use lull_replication::types::{Digest, Sequence};
use lull_replication::wire::PIECE;
use lull_replication_daemon::daemon::Found;

use super::site::{Site, body, path, patient, runtime};

const LIMIT: Option<Duration> = Some(Duration::from_secs(120));

/// The files of the first replica's bodies.
fn files(site: &Site) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in fs::read_dir(site.folder().join("0/bodies")).expect("a folder") {
        for file in fs::read_dir(folder.expect("an entry").path()).expect("a folder") {
            files.push(file.expect("an entry").path());
        }
    }
    files
}

/// The first replica's version under a name.
async fn found(site: &Site, name: &str) -> Found {
    let name = path(name);
    let reading = site.replica(0).object(&name, Sequence::ZERO, LIMIT);
    reading.await.expect("an answer").1.expect("it is there")
}

async fn piece(found: &Found, number: u32) -> Option<Vec<u8>> {
    found.piece(number).await.expect("a disk").map(|bytes| bytes.to_vec())
}

fn piece_of(bytes: &[u8], number: usize) -> Option<Vec<u8>> {
    bytes.chunks(PIECE).nth(number).map(<[u8]>::to_vec)
}

#[test]
fn only_the_pieces_of_a_large_body_that_are_read_are_checked() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let large = body(4, 10 * PIECE + 7);
        let sequence = site.write(&[("a", Some(&large))]).await;
        site.reach(sequence).await;
        assert_eq!(site.read(0, "a").await.as_ref(), Some(&large));
        let asked = site.replica(0).status().demands;
        let all = files(&site);
        let [file] = &all[..] else { panic!("one file: {all:?}") };
        let mut bytes = fs::read(file).expect("a body");
        bytes[5 * PIECE] ^= 1;
        fs::write(file, &bytes).expect("a body");
        let before = found(&site, "a").await;
        assert_eq!(piece(&before, 0).await, piece_of(&large, 0));
        assert_eq!(piece(&before, 10).await, piece_of(&large, 10));
        assert_eq!(site.replica(0).status().missing, 0, "no read has requested the others");
        // A read of the corrupt piece fetches the whole body again.
        assert_eq!(piece(&before, 5).await, None);
        assert_eq!(site.replica(0).status().missing, 1);
        assert_eq!(site.read(0, "a").await.as_ref(), Some(&large));
        assert_eq!(site.replica(0).status().demands, asked + 1);
        drop(before);
        assert_eq!(piece(&found(&site, "a").await, 5).await, piece_of(&large, 5));
        site.stop().await;
    });
}

#[test]
fn body_in_use_stays_after_an_overwrite() {
    runtime().block_on(async {
        let mut site = Site::with(1, |config| config.grace = Duration::from_millis(100)).await;
        let large = body(1, 300_000);
        let sequence = site.write(&[("a", Some(&large))]).await;
        site.reach(sequence).await;
        let before = found(&site, "a").await;
        assert_eq!(piece(&before, 0).await, piece_of(&large, 0));
        let sequence = site.write(&[("a", Some(b"new"))]).await;
        site.reach(sequence).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(site.read(0, "a").await.as_deref(), Some(&b"new"[..]));
        for number in 0..5 {
            assert_eq!(piece(&before, number).await, piece_of(&large, number as usize));
        }
        drop(before);
        patient("it goes with its last reader", || files(&site).is_empty()).await;
        site.stop().await;
    });
}

#[test]
fn body_in_use_is_not_evicted() {
    runtime().block_on(async {
        // Space for one body, not for two.
        let mut site = Site::with(1, |config| config.quota = Some(Bytes(400_000))).await;
        let (first, second) = (body(1, 300_000), body(2, 300_000));
        let sequence = site.write(&[("a", Some(&first))]).await;
        site.reach(sequence).await;
        let before = found(&site, "a").await;
        site.write(&[("b", Some(&second))]).await;
        patient("its invalidation", || site.replica(0).position() == Sequence(2)).await;
        assert_eq!(site.read(0, "b").await, Some(second));
        for number in 0..5 {
            assert_eq!(piece(&before, number).await, piece_of(&first, number as usize));
        }
        site.stop().await;
    });
}

#[test]
fn waiting_reader_gets_a_repeatedly_evicted_body() {
    runtime().block_on(async {
        let mut site = Site::with(1, |config| config.retry = Duration::from_millis(10)).await;
        // A file that is read as a whole.
        let content = body(1, 50_000);
        let sequence = site.write(&[("a", Some(&content))]).await;
        site.reach(sequence).await;
        let digits = Digest::of(&content).to_string();
        let file = site.folder().join("0/bodies").join(&digits[..2]).join(digits);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let giving_up = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let _ = fs::remove_file(&file);
            }
        });
        patient("it is gone", || files(&site).is_empty()).await;
        let replica = site.replica(0).clone();
        let reading =
            tokio::spawn(async move { replica.object(&path("a"), Sequence::ZERO, None).await });
        // Unless it is read before it is deleted, which is equally good.
        patient("it was given up often", || {
            reading.is_finished() || site.replica(0).status().missing >= 10
        })
        .await;
        stop.store(true, Ordering::Relaxed);
        giving_up.join().expect("no panic");
        let found = tokio::time::timeout(Duration::from_secs(120), reading).await;
        let (_, found) = found.expect("in time").expect("no panic").expect("it waits");
        assert_eq!(piece(&found.expect("it is there"), 0).await, Some(content));
        site.stop().await;
    });
}
