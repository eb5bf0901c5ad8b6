//! The S3 endpoint of a replica, read by a client of S3.

use std::time::Duration;

use lull_replication::origin::{Put, Transaction};
use lull_replication::path::Path;
use lull_replication::time::WallTime;
use lull_replication::types::{Content, Digest, Kind, Metadata, Mode};
use lull_replication_daemon::http::{BUCKET, Blocked, ReplicaS3, Serving};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};

use super::faces::{ask, listen};
use super::s3_client::{all, client};
use super::site::{Site, body, path, runtime};

/// A number of bytes in several pieces.
const LARGE: usize = 200_000;

async fn endpoint(site: &Site, blocked: Blocked) -> (Serving, std::net::SocketAddr) {
    let (listener, address) = listen().await;
    (ReplicaS3::open(listener, site.replica(0).clone(), blocked), address)
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("text")
}

#[test]
fn s3_client_lists_and_reads_files() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let large = body(1, LARGE);
        let files: [(&str, Option<&[u8]>); 5] = [
            ("docs/a & b.txt", Some(b"first")),
            ("docs/en/large.bin", Some(&large)),
            ("docs.txt", Some(b"second")),
            ("empty", Some(b"")),
            ("zoo/last", Some(b"third")),
        ];
        site.write(&files).await;
        // Neither of these is an object of the bucket.
        let metadata = Metadata { kind: Kind::Link, mode: Mode::LINK, ..Metadata::default() };
        let mut stager = site.origin().bodies().stage();
        stager.write(b"docs.txt").expect("a disk").expect("room");
        let target = stager.finish().expect("a disk").expect("room");
        let folder = Put::Stored(Content::folder(WallTime::from_nanos(1), Mode::EXECUTABLE));
        let changes = [(path("link"), Put::Body(target, metadata)), (path("none"), folder)];
        let sequence = site.origin().write(Transaction { changes: changes.into() }).await;
        site.reach(sequence.expect("written")).await;
        let (serving, address) = endpoint(&site, Blocked::Wait).await;
        // Many programs can only sign.
        for key in [None, Some(("key", "secret"))] {
            let s3 = client(address, BUCKET, key);
            let listed = all(s3.list(None)).await;
            let names: Vec<_> = listed.iter().map(|one| one.location.as_ref()).collect();
            let expected = ["docs.txt", "docs/a & b.txt", "docs/en/large.bin", "empty", "zoo/last"];
            assert_eq!(names, expected);
            assert_eq!(listed[2].size, LARGE as u64);
            assert_eq!(listed[2].e_tag, Some(format!("\"{}\"", Digest::of(&large))));
            let top = s3.list_with_delimiter(None).await.expect("an answer");
            let prefixes: Vec<_> = top.common_prefixes.iter().map(Key::as_ref).collect();
            assert_eq!(prefixes, ["docs", "zoo"]);
            let names: Vec<_> = top.objects.iter().map(|one| one.location.as_ref()).collect();
            assert_eq!(names, ["docs.txt", "empty"]);
            let below = s3.list_with_delimiter(Some(&Key::from("docs"))).await.expect("an answer");
            assert_eq!((below.objects.len(), below.common_prefixes.len()), (1, 1));
            let after = all(s3.list_with_offset(None, &Key::from("docs/en"))).await;
            assert_eq!(after.len(), 3, "{after:?}");

            let name = Key::from("docs/en/large.bin");
            let read = s3.get(&name).await.expect("an answer").bytes().await.expect("all of it");
            assert_eq!(read, large);
            for (range, bytes) in [
                (GetRange::Bounded(65_530..65_540), &large[65_530..65_540]),
                (GetRange::Offset(LARGE as u64 - 3), &large[LARGE - 3..]),
                (GetRange::Suffix(70_000), &large[LARGE - 70_000..]),
            ] {
                let options = GetOptions { range: Some(range), ..GetOptions::default() };
                let part = s3.get_opts(&name, options).await.expect("an answer");
                assert_eq!(part.bytes().await.expect("the part"), bytes);
            }
            let head = s3.head(&name).await.expect("an answer");
            assert_eq!((head.size, &head.e_tag), (LARGE as u64, &listed[2].e_tag));
            let known = GetOptions { if_none_match: head.e_tag.clone(), ..GetOptions::default() };
            let known = s3.get_opts(&name, known).await;
            assert!(matches!(known, Err(object_store::Error::NotModified { .. })), "{known:?}");
            let other = GetOptions { if_match: Some("\"x\"".to_owned()), ..GetOptions::default() };
            let other = s3.get_opts(&name, other).await;
            assert!(matches!(other, Err(object_store::Error::Precondition { .. })), "{other:?}");
            for absent in ["none", "link", "docs"] {
                let absent = s3.get(&Key::from(absent)).await;
                assert!(matches!(absent, Err(object_store::Error::NotFound { .. })), "{absent:?}");
            }
            assert!(s3.put(&Key::from("new"), "bytes".into()).await.is_err());
            assert!(s3.delete(&name).await.is_err());
        }
        serving.close().await;
        site.stop().await;
    });
}

/// Each page of a listing is of one state, and no later page or read is of an earlier one.
#[test]
fn s3_listing_shows_one_state_under_writes() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let pair = |size: usize| vec![size as u8; size];
        let bytes = pair(1);
        let sequence = site.write(&[("a", Some(&bytes)), ("z", Some(&bytes))]).await;
        site.reach(sequence).await;
        let (serving, address) = endpoint(&site, Blocked::Wait).await;
        let s3 = client(address, BUCKET, None);
        let reading = tokio::spawn(async move {
            let (mut last, mut states) = (0, 0);
            while last < 60 {
                let listed = all(s3.list(None)).await;
                let sizes: Vec<_> = listed.iter().map(|one| one.size).collect();
                assert!(sizes.len() == 2 && sizes[0] == sizes[1] && sizes[0] >= last, "{sizes:?}");
                states += usize::from(sizes[0] > last);
                last = sizes[0];
                let read = s3.get(&Key::from("a")).await.expect("an answer").bytes().await;
                let read = read.expect("all of it");
                assert!(read.len() as u64 >= last, "{} before {last}", read.len());
                assert!(read.iter().all(|byte| usize::from(*byte) == read.len()));
                last = read.len() as u64;
            }
            states
        });
        for size in 2..=60 {
            let bytes = pair(size);
            let written = site.write(&[("a", Some(&bytes)), ("z", Some(&bytes))]).await;
            site.reach(written).await;
        }
        assert!(reading.await.expect("no violation") > 2);
        serving.close().await;
        site.stop().await;
    });
}

#[test]
fn s3_listing_of_many_files_comes_in_pages() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let names: Vec<String> =
            (0..2_500).map(|number| format!("{:02}/{number:04}", number % 50)).collect();
        let files: Vec<(&str, Option<&[u8]>)> =
            names.iter().map(|name| (&**name, Some(&b"x"[..]))).collect();
        let sequence = site.write(&files).await;
        site.reach(sequence).await;
        let (serving, address) = endpoint(&site, Blocked::Wait).await;
        let s3 = client(address, BUCKET, None);
        let mut sorted = names.clone();
        sorted.sort();
        let listed = all(s3.list(None)).await;
        let listed: Vec<_> = listed.iter().map(|one| one.location.to_string()).collect();
        assert_eq!(listed, sorted);
        // Version 1 of the request, with small pages, also of common beginnings.
        for (delimiter, expected) in [("", sorted.len()), ("/", 50)] {
            let (mut found, mut marker) = (0, String::new());
            loop {
                let place = format!("/{BUCKET}?max-keys=37&delimiter={delimiter}&marker={marker}");
                let page = ask(address, "GET", &place, "", b"").await;
                let page = text(&page.2);
                found += page.matches("<Key>").count() + page.matches("<CommonPrefixes>").count();
                let next =
                    page.split("<NextMarker>").nth(1).and_then(|rest| rest.split('<').next());
                let Some(next) = next else { break };
                assert!(*next > *marker && page.contains("<IsTruncated>true"), "{page}");
                marker = next.to_owned();
            }
            assert_eq!(found, expected, "{delimiter}");
        }
        serving.close().await;
        site.stop().await;
    });
}

#[test]
fn s3_errors_are_those_of_s3() {
    runtime().block_on(async {
        let site = Site::new(1).await;
        let odd = Path::from_bytes(b"odd/\xff").expect("a path");
        let mut stager = site.origin().bodies().stage();
        stager.write(b"bytes").expect("a disk").expect("room");
        let odd_body = stager.finish().expect("a disk").expect("room");
        let metadata = Metadata { modified: WallTime::from_nanos(1), ..Metadata::default() };
        let changes = [(odd, Put::Body(odd_body, metadata))].into();
        let sequence = site.origin().write(Transaction { changes }).await.expect("written");
        site.reach(sequence).await;
        let (serving, address) = endpoint(&site, Blocked::Wait).await;
        for (method, place, headers, status, code) in [
            ("GET", "/", "", 200, "<Name>lull</Name>"),
            ("HEAD", "/lull", "", 200, ""),
            ("HEAD", "/other", "", 404, ""),
            ("GET", "/lull?location", "", 200, "<LocationConstraint"),
            ("GET", "/lull?versioning", "", 501, "NotImplemented"),
            ("GET", "/lull/odd?acl", "", 501, "NotImplemented"),
            ("GET", "/lull/none", "", 404, "NoSuchKey"),
            ("GET", "/lull/..", "", 404, "NoSuchKey"),
            ("GET", "/other/none", "", 404, "NoSuchBucket"),
            ("PUT", "/lull/new", "", 405, "MethodNotAllowed"),
            ("POST", "/lull?delete", "", 405, "MethodNotAllowed"),
            ("DELETE", "/lull/odd", "", 405, "MethodNotAllowed"),
            ("GET", "/lull/odd/%ff", "", 200, "bytes"),
            ("GET", "/lull/odd/%ff", "Range: bytes=9-\r\n", 416, "InvalidRange"),
            ("GET", "/lull/odd/%ff", "If-Match: \"x\"\r\n", 412, "PreconditionFailed"),
            ("GET", "/lull/odd/%ff", "Lull-Session: x\r\n", 400, "InvalidArgument"),
            ("GET", "/lull?list-type=2", "", 400, "encoding-type=url"),
            ("GET", "/lull?list-type=2&encoding-type=url", "", 200, "<Key>odd/%FF</Key>"),
            ("GET", "/lull?list-type=2&max-keys=0", "", 200, "<IsTruncated>false"),
            ("GET", "/lull?list-type=2&max-keys=x", "", 400, "InvalidArgument"),
            ("GET", "/lull?list-type=3", "", 400, "InvalidArgument"),
            ("GET", "/lull?list-type=2&continuation-token=x", "", 400, "InvalidArgument"),
        ] {
            let answer = ask(address, method, place, headers, b"").await;
            let body = text(&answer.2);
            assert!(
                answer.0 == status && body.contains(code),
                "{method} {place}: {} {body}",
                answer.0
            );
        }
        serving.close().await;
        site.stop().await;
    });
}

#[test]
fn s3_read_without_a_lease_is_slowed_down() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("a", Some(b"bytes"))]).await;
        site.reach(sequence).await;
        site.crash_origin();
        // It has heard nothing from its origin since it started.
        site.crash_replica(0);
        site.start_replica(0).await;
        let blocked = Blocked::Error(Duration::from_millis(50));
        let (serving, address) = endpoint(&site, blocked).await;
        for place in ["/lull/a", "/lull?list-type=2", "/lull"] {
            let answer = ask(address, "GET", place, "", b"").await;
            assert_eq!(answer.0, 503, "{place}");
            assert!(answer.1.to_lowercase().contains("retry-after: 1"), "{}", answer.1);
            assert!(text(&answer.2).contains("<Code>ServiceUnavailable</Code>"));
        }
        // The client repeats it until the origin is back.
        let s3 = client(address, BUCKET, None);
        let reading = tokio::spawn(async move { s3.get(&Key::from("a")).await?.bytes().await });
        site.start_origin().await;
        assert_eq!(reading.await.expect("no panic").expect("an answer"), &b"bytes"[..]);
        serving.close().await;
        site.stop().await;
    });
}
