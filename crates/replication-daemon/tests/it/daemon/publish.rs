//! Folders that are published, as `lull publish` and `lull origin run --watch` do it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use lull_replication::origin::{Put, Transaction};
use lull_replication::types::{Metadata, Sequence};
use lull_replication_daemon::daemon::{OriginEvent, WriteError};
use lull_replication_daemon::http::OriginHttp;
use lull_replication_daemon::http::client::{Client, ClientError};
use lull_replication_daemon::watch::{WatchOptions, Watched};
use tempfile::TempDir;

use super::site::{Site, body, path, patient, runtime};

/// The folder of the origin.
fn own(site: &Site) -> PathBuf {
    site.folder().join("origin")
}

/// The socket for orders.
fn face(site: &Site) -> lull_replication_daemon::http::Serving {
    OriginHttp::open_local(&own(site), site.origin().clone(), None).expect("a socket")
}

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("below the folder")).expect("folders");
        fs::write(file, bytes).expect("written");
    }
    folder
}

/// An origin that has a small file and a large one, and has lost the body of the large one.
async fn with_a_lost_body(source: &TempDir) -> Site {
    let mut site = Site::new(0).await;
    let face = face(&site);
    let published = Client::new(own(&site)).publish(source.path(), None, false).await;
    assert_eq!(published.expect("published").put, 2);
    face.close().await;
    site.stop_origin().await;
    assert_eq!(site.lose_bodies(), 1, "only the large one is a file");
    site.start_origin().await;
    // Although it was not requested.
    site.told_origin(
        |event| matches!(event, OriginEvent::Lost { paths } if *paths == [path("large")]),
    )
    .await;
    site
}

#[test]
fn lost_body_is_restored_by_publishing_it_again() {
    runtime().block_on(async {
        let large = body(3, 200_000);
        let source = folder(&[("small", b"small"), ("large", &large)]);
        let mut site = with_a_lost_body(&source).await;
        let face = face(&site);
        let client = Client::new(own(&site));
        fs::write(source.path().join("copy"), &large).expect("written");
        let again = client.publish(source.path(), None, false).await.expect("published");
        assert_eq!((again.put, again.unchanged), (2, 1));
        site.add_replica().await;
        assert_eq!(site.read(0, "large").await.as_ref(), Some(&large));
        assert_eq!(site.read(0, "copy").await.as_ref(), Some(&large));
        let nothing = client.publish(source.path(), None, false).await.expect("published");
        assert_eq!((nothing.put, nothing.bytes), (0, 0), "it is here");
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn watched_folder_restores_lost_bodies() {
    runtime().block_on(async {
        let large = body(3, 200_000);
        let source = folder(&[("small", b"small"), ("large", &large)]);
        let mut site = with_a_lost_body(&source).await;
        let before = site.origin().last();
        let origin = site.origin().clone();
        let options = WatchOptions::default();
        let watched = Watched::open(source.path(), &own(&site), origin, options, |_| {});
        let watched = watched.expect("a folder");
        patient("it is committed again", || site.origin().last() > before).await;
        site.add_replica().await;
        assert_eq!(site.read(0, "large").await, Some(large));
        watched.close().await;
        site.stop().await;
    });
}

#[test]
fn write_is_refused_only_if_its_own_subtree_has_changed() {
    runtime().block_on(async {
        let mut site = Site::new(0).await;
        let first = site.write(&[("site/a", Some(b"1")), ("other", Some(b"1"))]).await;
        let second = site.write(&[("other", Some(b"2")), ("sites", Some(b"2"))]).await;
        let mut last = second;
        for (after, within, is_written) in [
            (first, None, false),
            (first, Some("other"), false),
            (first, Some("site"), true),
            // That change was below it.
            (second, Some("site"), false),
            (second, Some("other"), true),
            (last.next().next(), None, true),
            (last.next().next().next().next(), None, false),
        ] {
            let changes = site.transaction(&[("site/b", Some(&after.0.to_le_bytes()))]);
            let folder = within.map(path);
            let written = site.origin().write_after(after, folder.as_ref(), changes).await;
            match written {
                Ok(sequence) if is_written => last = sequence,
                Err(WriteError::Moved(at)) if !is_written => assert_eq!(at, last),
                other => panic!("after {after}, within {within:?}: {other:?}"),
            }
        }
        site.stop().await;
    });
}

/// Writes one object repeatedly.
fn busy(site: &Site, name: &'static str, pause: Duration) -> tokio::task::JoinHandle<()> {
    let origin = site.origin().clone();
    tokio::spawn(async move {
        for number in 0_u64.. {
            let bytes = number.to_le_bytes();
            let mut stager = origin.bodies().stage();
            stager.write(&bytes).expect("a disk").expect("room");
            let body = stager.finish().expect("a disk").expect("room");
            let changes = [(path(name), Put::Body(body, Metadata::default()))].into();
            if origin.write(Transaction { changes }).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    })
}

#[test]
fn publisher_beside_other_writers_sends_each_body_once() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let face = face(&site);
        let client = Client::new(own(&site));
        let large: Vec<Vec<u8>> = (0..3).map(|seed| body(seed, 12_000_000)).collect();
        let names = ["a", "b", "c"];
        let files: Vec<(&str, &[u8])> =
            names.iter().zip(&large).map(|(name, bytes)| (*name, &bytes[..])).collect();
        let source = folder(&files);
        // Continuously, and in another place.
        let elsewhere = busy(&site, "elsewhere", Duration::from_millis(1));
        let below = path("site");
        let published = client.publish(source.path(), Some(&below), false).await;
        assert_eq!(published.map(|one| (one.put, one.bytes)).expect("published"), (3, 36_000_000));
        elsewhere.abort();
        // Now and then, including deleted files: it takes several attempts, of which one sends the bodies.
        let large: Vec<Vec<u8>> = (3..6).map(|seed| body(seed, 12_000_000)).collect();
        let files: Vec<(&str, &[u8])> =
            names.iter().zip(&large).map(|(name, bytes)| (*name, &bytes[..])).collect();
        let source = folder(&files);
        let there = busy(&site, "there", Duration::from_millis(60));
        let published = client.publish(source.path(), None, false).await.expect("published");
        assert_eq!((published.put, published.bytes), (3, 36_000_000));
        assert!(published.deleted >= 4, "{published:?}");
        there.abort();
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn empty_folder_deletes_nothing_without_confirmation() {
    runtime().block_on(async {
        let mut site = Site::new(0).await;
        site.write(&[("site/a", Some(b"1")), ("site/b", Some(b"2")), ("other", Some(b"3"))]).await;
        let face = face(&site);
        let client = Client::new(own(&site));
        let source = folder(&[]);
        fs::create_dir_all(source.path().join("not/mounted")).expect("folders");
        let below = path("site");
        let refused = client.publish(source.path(), Some(&below), false).await;
        assert!(matches!(refused, Err(ClientError::Empty { deleted: 2, .. })), "{refused:?}");
        assert_eq!(site.origin().last(), Sequence(1));
        let meant = client.publish(source.path(), Some(&below), true).await.expect("published");
        assert_eq!((meant.sequence, meant.deleted), (Sequence(2), 2));
        // Without deletions no confirmation is needed.
        let nothing = client.publish(source.path(), Some(&below), false).await.expect("fine");
        assert_eq!((nothing.sequence, nothing.deleted), (Sequence(2), 0));
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn wait_needs_a_known_replica_and_may_time_out() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("a", Some(b"1"))]).await;
        site.reach(sequence).await;
        let face = face(&site);
        let client = Client::new(own(&site));
        let here = ["replica-0".to_owned()];
        client.joined(&here).await.expect("it is one");
        client.wait_for(&here, sequence, None).await.expect("it shows that");
        let later = client.wait_for(&here, sequence.next(), Some(Duration::from_millis(50))).await;
        assert!(matches!(later, Err(ClientError::Late { .. })), "{later:?}");
        let nobody = ["replica-0".to_owned(), "replica-1".to_owned()];
        let refused = client.joined(&nobody).await.expect_err("there is one").to_string();
        assert!(refused.contains("there is no replica `replica-1`"), "{refused}");
        face.close().await;
        site.stop().await;
    });
}
