//! Origins whose large bodies are in a bucket of an S3 server.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use lull_cc::Bytes;
use lull_replication::types::{Digest, Sequence};
use lull_replication_daemon::daemon::{
    Clock, DaemonError, MachineClock, OriginDaemon, OriginEvent, OriginOptions, ReadError,
    WriteError, create_origin,
};
use lull_replication_daemon::store::Remote;
use lull_testing::needs;

use super::s3_server::{Fault, Server};
use super::site::{Site, body, path, patient, runtime};

/// More copies than any test has.
const MANY: Bytes = Bytes(1 << 30);

/// Starts an origin in a new folder with this bucket; returns the error.
async fn refusal(remote: Remote) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    create_origin(folder.path(), MachineClock.read().wall).expect("a new origin");
    error_of_start(folder.path(), remote).await
}

async fn error_of_start(folder: &std::path::Path, remote: Remote) -> String {
    let options =
        OriginOptions { store: Some(remote), ..OriginOptions::new(folder, "127.0.0.1:0") };
    match OriginDaemon::start(options, Arc::new(MachineClock), |_| {}).await {
        Ok(_) => panic!("it starts"),
        Err(DaemonError::Store(error)) => error.to_string(),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn bodies_are_in_the_bucket_and_the_folder_has_copies() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("site/one"), MANY, None).await;
        // In the log, one request, one request of several pieces, and three parts.
        let sizes = [0, 1_000, 50_000, 3_000_000, 20_000_000];
        let files: Vec<_> = sizes.iter().map(|size| (size.to_string(), body(7, *size))).collect();
        for (name, bytes) in &files {
            site.write(&[(name, Some(bytes))]).await;
        }
        assert_eq!(server.bodies("site/one").len(), 3, "{:?}", server.bodies("site/one"));
        site.stop_origin().await;
        assert_eq!(site.lose_bodies(), 3);
        // The folder knows its bucket.
        site.start_origin().await;
        site.add_replica().await;
        for (name, bytes) in &files {
            assert!(site.read(0, name).await.as_ref() == Some(bytes), "{name}");
        }
        assert_eq!(site.lose_bodies(), 3, "and there are copies again");
        site.stop().await;
    });
}

#[test]
fn copies_are_deleted_at_their_limit_and_bodies_stay() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote(""), Bytes(250_000), None).await;
        for number in 0..10 {
            site.write(&[(&number.to_string(), Some(&body(number, 100_000)))]).await;
        }
        site.add_replica().await;
        for number in 0..10 {
            let read = site.read(0, &number.to_string()).await;
            assert!(read == Some(body(number, 100_000)), "{number}");
        }
        assert!(site.lose_bodies() <= 2);
        assert_eq!(server.bodies("").len(), 10);
        site.stop().await;
    });
}

#[test]
fn throttled_bucket_delays_writes_and_loses_none() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("p"), MANY, None).await;
        for fault in [Fault::SlowDown(3), Fault::Cut(3)] {
            server.inject(fault);
            let writes: Vec<_> = (0..12)
                .map(|number| {
                    let name = format!("{fault:?}/{number}");
                    let bytes = body(number, 40_000 + usize::from(number));
                    let changes = site.transaction(&[(&name, Some(&bytes))]);
                    let origin = site.origin().clone();
                    tokio::spawn(async move { origin.write(changes).await })
                })
                .collect();
            for write in writes {
                write.await.expect("no panic").expect("written");
            }
        }
        // Also while it reads.
        site.stop_origin().await;
        site.lose_bodies();
        site.start_origin().await;
        site.add_replica().await;
        for fault in [Fault::SlowDown(3), Fault::Cut(3)] {
            for number in 0..12 {
                let read = site.read(0, &format!("{fault:?}/{number}")).await;
                assert!(read == Some(body(number, 40_000 + usize::from(number))), "{number}");
            }
        }
        site.stop().await;
    });
}

#[test]
fn acknowledged_bodies_survive_crashes_and_lost_copies() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("p"), MANY, None).await;
        let mut acknowledged = Vec::new();
        for round in 0..6_u8 {
            server.inject(if round % 2 == 0 { Fault::None } else { Fault::Cut(3) });
            let begin = |number: u8| {
                let name = format!("{round}/{number}");
                let bytes = body(round * 16 + number, 30_000 + usize::from(number));
                let changes = site.transaction(&[(&name, Some(&bytes))]);
                let origin = site.origin().clone();
                (name, bytes, tokio::spawn(async move { origin.write(changes).await }))
            };
            let writes: Vec<_> = (0..10).map(begin).collect();
            // Some are done by then.
            tokio::time::sleep(Duration::from_millis(30 * u64::from(round))).await;
            site.crash_origin();
            for (name, bytes, write) in writes {
                if write.await.expect("no panic").is_ok() {
                    acknowledged.push((name, bytes));
                }
            }
            site.lose_bodies();
            server.inject(Fault::None);
            site.start_origin().await;
            assert_eq!(site.origin().status().lost, 0, "after round {round}");
        }
        let sequence = site.write(&[("last", Some(&body(200, 30_000)))]).await;
        acknowledged.push(("last".to_owned(), body(200, 30_000)));
        site.add_replica().await;
        site.reach(sequence).await;
        for (name, bytes) in &acknowledged {
            assert!(site.read(0, name).await.as_ref() == Some(bytes), "{name}");
        }
        site.stop().await;
    });
}

#[test]
fn large_writes_are_refused_while_the_bucket_is_away() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("p"), MANY, None).await;
        site.add_replica().await;
        let sequence = site.write(&[("before", Some(&body(1, 90_000)))]).await;
        site.reach(sequence).await;
        server.inject(Fault::Closed);
        let refused = site.origin().write(site.transaction(&[("a", Some(&body(2, 90_000)))])).await;
        let Err(WriteError::StoreAway(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("s3://pages/p"), "{why}");
        site.told_origin(|event| matches!(event, OriginEvent::StoreAway(_))).await;
        assert!(!site.origin().status().disk_full);
        // Small files, and reads of bodies on this machine, go on.
        let sequence = site.write(&[("small", Some(b"small"))]).await;
        site.reach(sequence).await;
        assert_eq!(site.read(0, "small").await.as_deref(), Some(&b"small"[..]));
        site.add_replica().await;
        assert_eq!(site.read(1, "before").await, Some(body(1, 90_000)));
        // After a start without its bucket as well.
        site.stop_origin().await;
        site.start_origin().await;
        site.told_origin(|event| matches!(event, OriginEvent::StoreAway(_))).await;
        site.add_replica().await;
        assert_eq!(site.read(2, "before").await, Some(body(1, 90_000)));
        server.inject(Fault::None);
        site.told_origin(|event| matches!(event, OriginEvent::StoreBack)).await;
        let sequence = site.write(&[("a", Some(&body(2, 90_000)))]).await;
        site.reach(sequence).await;
        assert_eq!(site.read(2, "a").await, Some(body(2, 90_000)));
        site.stop().await;
    });
}

#[test]
fn reads_without_a_copy_wait_for_the_bucket() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("p"), MANY, None).await;
        site.write(&[("a", Some(&body(1, 90_000)))]).await;
        site.lose_bodies();
        server.inject(Fault::Closed);
        site.add_replica().await;
        let soon = Some(Duration::from_secs(2));
        let waits = site.replica(0).object(&path("a"), Sequence::ZERO, soon).await;
        assert!(matches!(waits, Err(ReadError::Waits(_))), "not lost: {waits:?}");
        server.inject(Fault::None);
        assert_eq!(site.read(0, "a").await, Some(body(1, 90_000)));
        site.stop().await;
    });
}

#[test]
fn wrong_bytes_from_the_bucket_are_never_served() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("p"), MANY, None).await;
        site.write(&[("a", Some(&body(1, 90_000)))]).await;
        site.lose_bodies();
        server.inject(Fault::OtherByte);
        site.add_replica().await;
        site.told_origin(|event| matches!(event, OriginEvent::Lost { .. })).await;
        let read = site.replica(0).object(&path("a"), Sequence::ZERO, None).await;
        assert_eq!(read.unwrap_err(), ReadError::Lost);
        server.inject(Fault::None);
        // It is stored again, under another name.
        let sequence = site.write(&[("b", Some(&body(1, 90_000)))]).await;
        site.reach(sequence).await;
        assert_eq!(site.read(0, "a").await, Some(body(1, 90_000)));
        assert_eq!(server.bodies("p").len(), 2);
        // The other copy is deleted after the next start.
        site.stop_origin().await;
        site.start_origin().await;
        patient("one is left", || server.bodies("p").len() == 1).await;
        site.stop().await;
    });
}

#[test]
fn slow_bucket_delays_writes_and_reads() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("p"), MANY, None).await;
        // As long as the patience with a bucket that does not answer.
        server.inject(Fault::Slow(Duration::from_secs(1)));
        let sequence = site.write(&[("a", Some(&body(1, 90_000)))]).await;
        site.lose_bodies();
        site.add_replica().await;
        site.reach(sequence).await;
        assert_eq!(site.read(0, "a").await, Some(body(1, 90_000)));
        assert_eq!(site.origin().status().lost, 0);
        site.stop().await;
    });
}

/// A store whose listing is older than its objects.
#[test]
fn body_missing_from_a_listing_is_looked_for_again() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("p"), MANY, None).await;
        let sequence = site.write(&[("a", Some(&body(1, 90_000)))]).await;
        for (is_next, lost) in [(true, 0), (false, 1)] {
            site.stop_origin().await;
            site.lose_bodies();
            server.inject(Fault::EmptyListing(is_next));
            site.start_origin().await;
            assert_eq!(site.origin().status().lost, lost, "{is_next}");
        }
        server.inject(Fault::None);
        site.stop_origin().await;
        site.start_origin().await;
        assert_eq!(site.origin().status().lost, 0);
        site.add_replica().await;
        site.reach(sequence).await;
        assert_eq!(site.read(0, "a").await, Some(body(1, 90_000)));
        site.stop().await;
    });
}

#[test]
fn unreferenced_bodies_are_deleted_from_the_bucket() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("p"), MANY, Some(2)).await;
        for number in 0..10 {
            site.write(&[("a", Some(&body(number, 50_000)))]).await;
        }
        // The last one, and those that a rollback may need.
        patient("few are left", || server.bodies("p").len() <= 3).await;
        // One that no commit names, as a crash leaves it, and files that are not from here.
        site.stop_origin().await;
        let body_file = server.bodies("p").remove(0);
        let name = body_file.file_name().expect("a name").to_string_lossy().into_owned();
        let orphan = format!("{}0000{}", &name[..2], &name[6..]);
        let folder = body_file.parent().expect("a folder");
        fs::write(folder.join(&orphan), b"left over").expect("written");
        fs::write(folder.join("note.txt"), b"of the operator").expect("written");
        site.start_origin().await;
        patient("it is gone", || !folder.join(&orphan).exists()).await;
        assert!(folder.join("note.txt").exists(), "others are left alone");
        site.add_replica().await;
        assert_eq!(site.read(0, "a").await, Some(body(9, 50_000)));
        site.stop().await;
    });
}

#[test]
fn bodies_of_an_existing_origin_are_uploaded() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::new(0).await;
        for number in 0..5 {
            site.write(&[(&number.to_string(), Some(&body(number, 60_000)))]).await;
        }
        site.stop_origin().await;
        site.store = Some((server.remote("p"), Bytes(0)));
        site.start_origin().await;
        patient("all are there", || server.bodies("p").len() == 5).await;
        // From now on the folder has only what was used.
        site.write(&[("5", Some(&body(5, 60_000)))]).await;
        assert!(site.lose_bodies() <= 1);
        // And it goes on with its bucket, although that is not requested.
        site.stop_origin().await;
        site.store = None;
        let error = error_of_start(&site.folder().join("origin"), server.remote("q")).await;
        assert!(error.contains("aws s3 sync"), "{error}");
        site.stop().await;
    });
}

#[test]
fn bucket_that_may_not_be_used_is_refused_with_the_remedy() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let site = Site::with_store(server.remote("p"), MANY, None).await;
        site.stop().await;
        let mut other_key = server.remote("q");
        other_key.key = Some(("other".to_owned(), "secret".to_owned()));
        let mut other_secret = server.remote("q");
        other_secret.key = Some((super::s3_server::KEY.0.to_owned(), "secret".to_owned()));
        let unreachable = "s3://pages/p?endpoint=http://127.0.0.1:1".parse().expect("an address");
        for (remote, words) in [
            (server.remote("p"), "has the bodies of another origin: use another prefix"),
            (server.remote_of("none", "p"), "there is no bucket `none`: create it"),
            (other_key, "No user exists with the provided access key ID"),
            (other_secret, "refuses access: check AWS_ACCESS_KEY_ID"),
            (Remote { address: unreachable, ..server.remote("") }, "does not answer"),
        ] {
            let error = refusal(remote).await;
            assert!(error.contains(words) && !error.contains('\n'), "{words}: {error}");
        }
    });
}

/// A copy of the files that an origin needs.
fn copy_of(site: &Site) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for name in ["identity.json", "state.redb", "store.json"] {
        let from = site.folder().join("origin").join(name);
        fs::copy(from, copy.path().join(name)).expect("a copy");
    }
    copy
}

#[test]
fn older_copy_of_an_origin_may_not_use_its_bucket() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("p"), MANY, None).await;
        site.write(&[("a", Some(&body(0, 50_000)))]).await;
        site.stop_origin().await;
        let copy = copy_of(&site);
        site.start_origin().await;
        site.write(&[("b", Some(&body(1, 50_000)))]).await;
        let error = error_of_start(copy.path(), server.remote("p")).await;
        assert!(error.contains("from another folder since: start it there"), "{error}");
        assert_eq!(server.bodies("p").len(), 2);
        // The operator insists.
        fs::remove_file(copy.path().join("store.json")).expect("deleted");
        let error = error_of_start(copy.path(), server.remote("p")).await;
        assert!(error.contains("has the bodies of another origin"), "{error}");
        site.stop().await;
    });
}

#[test]
fn second_process_of_an_origin_ends_deletions_of_the_first() {
    needs!(lull_testing::command("versitygw"));
    runtime().block_on(async {
        let server = Server::start();
        let mut site = Site::with_store(server.remote("p"), MANY, Some(2)).await;
        site.write(&[("a", Some(&body(0, 50_000)))]).await;
        site.stop_origin().await;
        site.start_origin().await;
        let copy = copy_of(&site);
        let options = OriginOptions {
            store: Some(server.remote("p")),
            ..OriginOptions::new(copy.path(), "127.0.0.1:0")
        };
        let second = OriginDaemon::start(options, Arc::new(MachineClock), |_| {}).await;
        let second = second.expect("it starts");
        for number in 1..8 {
            let write = site.transaction(&[("a", Some(&body(number, 50_000)))]);
            // Refused once it has noticed.
            let _ = site.origin().write(write).await;
        }
        site.told_origin(
            |event| matches!(event, OriginEvent::StoreAway(why) if why.contains("another process")),
        )
        .await;
        // The second one needs it.
        let needed = Digest::of(&body(0, 50_000)).to_string();
        let is_there = server.bodies("p").iter().any(|file| {
            file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&needed))
        });
        assert!(is_there);
        second.stop().await.expect("it was well");
        drop(site);
    });
}
