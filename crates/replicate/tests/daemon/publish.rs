//! Folders that are published, as `lull publish` and `lull origin run --watch` do it.

use std::fs;
use std::path::PathBuf;

use lull_replicate::daemon::OriginEvent;
use lull_replicate::http::OriginFace;
use lull_replicate::http::client::Client;
use lull_replicate::watch::Watched;
use tempfile::TempDir;

use crate::site::{Site, body, path, patient, runtime};

/// The folder of the origin.
fn own(site: &Site) -> PathBuf {
    site.folder().join("origin")
}

/// What orders come by.
fn face(site: &Site) -> lull_replicate::http::Serving {
    OriginFace::open_local(&own(site), site.origin().clone(), None).expect("a socket")
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
    let published = Client::new(own(&site)).publish(source.path(), None).await;
    assert_eq!(published.expect("published").put, 2);
    face.close().await;
    site.stop_origin().await;
    assert_eq!(site.lose_bodies(), 1, "only the large one is a file");
    site.start_origin().await;
    // Though nobody has asked for it.
    site.told_origin(
        |event| matches!(event, OriginEvent::Lost { paths } if *paths == [path("large")]),
    )
    .await;
    site
}

#[test]
fn a_lost_body_comes_back_when_it_is_published_again() {
    runtime().block_on(async {
        let large = body(3, 200_000);
        let source = folder(&[("small", b"small"), ("large", &large)]);
        let mut site = with_a_lost_body(&source).await;
        let face = face(&site);
        let client = Client::new(own(&site));
        fs::write(source.path().join("copy"), &large).expect("written");
        let again = client.publish(source.path(), None).await.expect("published");
        assert_eq!((again.put, again.unchanged), (2, 1));
        site.add_replica().await;
        assert_eq!(site.read(0, "large").await.as_ref(), Some(&large));
        assert_eq!(site.read(0, "copy").await.as_ref(), Some(&large));
        let nothing = client.publish(source.path(), None).await.expect("published");
        assert_eq!((nothing.put, nothing.bytes), (0, 0), "it is here");
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn a_watched_folder_gives_back_what_the_origin_has_lost() {
    runtime().block_on(async {
        let large = body(3, 200_000);
        let source = folder(&[("small", b"small"), ("large", &large)]);
        let mut site = with_a_lost_body(&source).await;
        let before = site.origin().last();
        let origin = site.origin().clone();
        let watched = Watched::open(source.path(), &own(&site), origin, |_| {});
        let watched = watched.expect("a folder");
        patient("it is committed again", || site.origin().last() > before).await;
        site.add_replica().await;
        assert_eq!(site.read(0, "large").await, Some(large));
        watched.close().await;
        site.stop().await;
    });
}
