//! The HTTP answers of origin and replicas.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lull_replication::origin::{Put, Transaction};
use lull_replication::types::{Digest, Metadata, Mode, Sequence};
use lull_replication::wire::PIECE;
use lull_replication_daemon::daemon::ReplicaEvent;
use lull_replication_daemon::http::{Blocked, OriginHttp, ReplicaHttp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::mounts::{LARGE, LIMIT, bare};
use super::site::{Site, body, path, patient, runtime};

/// A response: its status, its head, and its body.
pub(crate) struct Answer(pub(crate) u16, pub(crate) String, pub(crate) Vec<u8>);

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.1.lines().filter_map(|line| line.split_once(": "));
        pairs.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

pub(crate) async fn ask(
    address: SocketAddr,
    method: &str,
    place: &str,
    headers: &str,
    body: &[u8],
) -> Answer {
    let mut stream = TcpStream::connect(address).await.expect("a face");
    let length = body.len();
    let head = format!(
        "{method} {place} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(answer[..end].to_vec()).expect("text");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer(status.expect("a status"), head, answer[end + 4..].to_vec())
}

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

#[test]
fn request_without_a_body_does_not_wait_for_one() {
    runtime().block_on(async {
        let mut site = Site::with(1, bare).await;
        let sequence = site.write(&[("filler", Some(&body(9, 150_000)))]).await;
        site.reach(sequence).await;
        patient("the filler", || site.replica(0).status().valid_bytes == 150_000).await;
        // It exceeds the quota, so it comes only on demand.
        let large = body(1, LARGE);
        let sequence = site.write(&[("a", Some(&large))]).await;
        site.reach(sequence).await;
        let (listener, address) = listen().await;
        let face = ReplicaHttp::open(listener, site.replica(0).clone(), Blocked::Wait);
        let tag = format!("\"{}\"", Digest::of(&large));
        // Ranges are for GET.
        for headers in ["", "Range: bytes=0-9\r\n", "Range: bytes=999999-\r\n"] {
            let head = ask(address, "HEAD", "/a", headers, b"").await;
            assert_eq!((head.0, head.header("content-length")), (200, Some("90000")), "{}", head.1);
            assert_eq!(head.header("etag"), Some(&*tag));
            assert!(head.header("lull-session").is_some() && head.2.is_empty());
        }
        let known = format!("If-None-Match: {tag}\r\n");
        for method in ["HEAD", "GET"] {
            let same = ask(address, method, "/a", &known, b"").await;
            assert_eq!((same.0, same.header("etag")), (304, Some(&*tag)), "{method}");
        }
        assert_eq!(ask(address, "HEAD", "/none", "", b"").await.0, 404);
        assert_eq!(site.replica(0).status().demands, 0);
        let other = ask(address, "GET", "/a", "If-None-Match: \"other\"\r\n", b"").await;
        assert_eq!((other.0, other.2), (200, large));
        assert_eq!(site.replica(0).status().demands, 1);
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn if_range_part_belongs_to_the_version_of_the_client() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let (old, new) = (body(1, LARGE), body(2, LARGE + 1));
        let sequence = site.write(&[("a", Some(&old))]).await;
        site.reach(sequence).await;
        let (listener, address) = listen().await;
        let face = ReplicaHttp::open(listener, site.replica(0).clone(), Blocked::Wait);
        let tag = |of: &[u8]| format!("\"{}\"", Digest::of(of));
        let get = async |place: &str, headers: &str| ask(address, "GET", place, headers, b"").await;
        for (round, current) in [&old, &new].into_iter().enumerate() {
            if round == 1 {
                let sequence = site.write(&[("a", Some(&new))]).await;
                site.reach(sequence).await;
            }
            let whole = get("/a", "").await;
            let date = whole.header("last-modified").expect("a date").to_owned();
            for (condition, is_part) in [
                (String::new(), true),
                (format!("If-Range: {}\r\n", tag(&old)), round == 0),
                (format!("If-Range: {}\r\n", tag(&new)), round == 1),
                // Weakly equal versions may differ in their bytes, and two versions may have the same second.
                (format!("If-Range: W/{}\r\n", tag(current)), false),
                (format!("If-Range: {date}\r\n"), false),
                ("If-Range: nonsense\r\n".to_owned(), false),
            ] {
                let range = format!("Range: bytes=70000-70009\r\n{condition}");
                let answer = get("/a", &range).await;
                let (status, bytes) =
                    if is_part { (206, &current[70_000..70_010]) } else { (200, &current[..]) };
                assert!((answer.0, &answer.2[..]) == (status, bytes), "{range}: {}", answer.1);
                assert_eq!(answer.header("etag"), Some(&*tag(current)), "{range}");
                let content_range = format!("bytes 70000-70009/{}", current.len());
                let shown = is_part.then_some(&*content_range);
                assert_eq!(answer.header("content-range"), shown, "{range}");
            }
        }
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn range_beyond_the_end_is_answered_with_the_size() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("a", Some(&body(1, 10))), ("empty", Some(b""))]).await;
        site.reach(sequence).await;
        let (listener, address) = listen().await;
        let face = ReplicaHttp::open(listener, site.replica(0).clone(), Blocked::Wait);
        for (place, range, expected) in [
            ("/a", "bytes=9-", (206, "bytes 9-9/10", 1)),
            ("/a", "bytes=0-99", (206, "bytes 0-9/10", 10)),
            ("/a", "bytes=-3", (206, "bytes 7-9/10", 3)),
            ("/a", "bytes=10-", (416, "bytes */10", 0)),
            ("/a", "bytes=10-20", (416, "bytes */10", 0)),
            ("/a", "bytes=-0", (416, "bytes */10", 0)),
            ("/empty", "bytes=0-", (416, "bytes */0", 0)),
            ("/empty", "bytes=-1", (416, "bytes */0", 0)),
            // Unknown units are ignored.
            ("/a", "bytes=5-4", (200, "", 10)),
            ("/a", "bytes=0-1,3-4", (200, "", 10)),
            ("/a", "lines=0-1", (200, "", 10)),
        ] {
            let headers = format!("Range: {range}\r\n");
            let answer = ask(address, "GET", place, &headers, b"").await;
            let told = answer.header("content-range").unwrap_or_default();
            assert_eq!((answer.0, told, answer.2.len()), expected, "{place} {range}");
        }
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn age_grows_without_the_origin_and_drops_on_return() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("a", Some(b"1"))]).await;
        site.reach(sequence).await;
        let (listener, address) = listen().await;
        let face = ReplicaHttp::open(listener, site.replica(0).clone(), Blocked::Wait);
        let age = async || {
            let answer = ask(address, "GET", "/a", "", b"").await;
            assert_eq!((answer.0, &answer.2[..]), (200, &b"1"[..]));
            answer.header("age").and_then(|age| age.parse::<u64>().ok()).expect("seconds")
        };
        // The body is stored from now on: a read would wait for it while there is no origin.
        age().await;
        site.crash_origin();
        site.told(0, |event| matches!(event, ReplicaEvent::Disconnected { .. })).await;
        let begun = Instant::now();
        let first = age().await;
        let mut ages = vec![first];
        while ages.last() < Some(&(first + 3)) {
            assert!(begun.elapsed() < LIMIT, "{ages:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            ages.push(age().await);
        }
        assert!(ages.is_sorted() && begun.elapsed() >= Duration::from_secs(2), "{ages:?}");
        site.start_origin().await;
        let back = async {
            while age().await > 1 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LIMIT, back).await.expect("it is heard again");
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn status_can_be_hidden_from_readers() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("a", Some(b"1"))]).await;
        site.reach(sequence).await;
        let ((first, all), (second, objects), (third, figures)) =
            (listen().await, listen().await, listen().await);
        let replica = || site.replica(0).clone();
        let faces = [
            ReplicaHttp::open(first, replica(), Blocked::Wait),
            ReplicaHttp::open_objects(second, replica(), Blocked::Wait),
            ReplicaHttp::open_figures(third, replica()),
        ];
        for (place, expected) in [
            ("/a", [200, 200, 404]),
            ("/.lull/status", [200, 404, 200]),
            ("/.lull/metrics", [200, 404, 200]),
            ("/.lull/none", [404, 404, 404]),
        ] {
            let mut told = Vec::new();
            for address in [all, objects, figures] {
                told.push(ask(address, "GET", place, "", b"").await.0);
            }
            assert_eq!(told, expected, "{place}");
        }
        for face in faces {
            face.close().await;
        }
        site.stop().await;
    });
}

#[test]
fn origin_token_allows_only_writes() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        site.write(&[("a", Some(b"1"))]).await;
        let (listener, address) = listen().await;
        let face = OriginHttp::open(listener, site.origin().clone(), None, "secret");
        let bearer = "Authorization: Bearer secret\r\n";
        let order = br#"{"revoke":{"name":"replica-0","=":""}}"#;
        for (place, body) in [
            ("/.lull/orders", &order[..]),
            ("/.lull/orders", &br#"{"rollback":{"to":0}}"#[..]),
            ("/.lull/orders", &br#"{"rotate":{"finish":false}}"#[..]),
            ("/.lull/transactions", &b"\0\0\0\0"[..]),
        ] {
            // As a form of another site would send it, in a browser that has the password.
            let plain = format!("{bearer}Content-Type: text/plain\r\n");
            let refused = ask(address, "POST", place, &plain, body).await;
            assert_eq!(refused.0, 403, "{place}: {}", refused.1);
        }
        assert_eq!(site.origin().last(), Sequence(1));
        site.origin().joined(&["replica-0".to_owned()]).expect("it is still one");
        assert_eq!(ask(address, "GET", "/.lull/status", bearer, b"").await.0, 200);
        assert_eq!(ask(address, "PUT", "/a", bearer, b"2").await.0, 200);
        assert_eq!(ask(address, "DELETE", "/a", bearer, b"").await.0, 200);
        assert_eq!(ask(address, "DELETE", "/a", "", b"").await.0, 401);
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn origin_page_accepts_the_token_as_a_password() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let (listener, address) = listen().await;
        let face = OriginHttp::open(listener, site.origin().clone(), None, "sec:ret");
        let asked = ask(address, "GET", "/.lull/", "", b"").await;
        assert_eq!((asked.0, asked.header("www-authenticate").is_some()), (401, true));
        assert!(asked.header("www-authenticate").is_some_and(|ask| ask.starts_with("Basic ")));
        for (scheme, name_and_password, status) in [
            ("Basic", "anybody:sec:ret", 200),
            ("basic", ":sec:ret", 200),
            ("Basic", "anybody:secret", 401),
            ("Basic", "sec:ret", 401),
            ("Basic", "anybody", 401),
            ("Digest", "anybody:sec:ret", 401),
        ] {
            let encoded = STANDARD.encode(name_and_password);
            let headers = format!("Authorization: {scheme} {encoded}\r\n");
            let answer = ask(address, "GET", "/.lull/", &headers, b"").await;
            assert_eq!(answer.0, status, "{scheme} {name_and_password}");
            let is_page = String::from_utf8_lossy(&answer.2).contains("<title>Lull origin</title>");
            assert_eq!(is_page, status == 200, "{scheme} {name_and_password}");
        }
        let broken = ask(address, "GET", "/.lull/", "Authorization: Basic ?\r\n", b"").await;
        assert_eq!(broken.0, 401);
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn rejected_upload_gets_its_reason() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let (listener, address) = listen().await;
        let face = OriginHttp::open(listener, site.origin().clone(), None, "secret");
        let bearer = "Authorization: Bearer secret\r\n";
        // More than the kernel buffers before it is read.
        let large = body(1, 30_000_000);
        for (method, place, headers, status) in [
            ("PUT", "/a", "", 401),
            ("PUT", "/a", "Content-Range: bytes 1-2/3\r\n", 400),
            ("PUT", "/a/../b", "", 400),
            ("POST", "/a", "", 405),
            ("POST", "/.lull/transactions", "", 403),
        ] {
            let headers = if status == 401 { String::new() } else { format!("{bearer}{headers}") };
            let answer = ask(address, method, place, &headers, &large).await;
            assert_eq!(answer.0, status, "{method} {place}: {}", answer.1);
        }
        assert_eq!(site.origin().last(), Sequence::ZERO);
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn put_keeps_the_mode_and_returns_a_session_token() {
    runtime().block_on(async {
        let site = Site::new(1).await;
        let mut stager = site.origin().bodies().stage();
        stager.write(b"#!/bin/sh\n").expect("a disk").expect("room");
        let script = stager.finish().expect("a disk").expect("room");
        let put = Put::Body(script, Metadata { mode: Mode::EXECUTABLE, ..Metadata::default() });
        let changes = [(path("run"), put)].into();
        let sequence = site.origin().write(Transaction { changes }).await.expect("written");
        site.reach(sequence).await;
        let (listener, address) = listen().await;
        let face = OriginHttp::open(listener, site.origin().clone(), None, "secret");
        let bearer = "Authorization: Bearer secret\r\n";
        // A part would replace the whole.
        let part = format!("{bearer}Content-Range: bytes 10-13/14\r\n");
        let refused = ask(address, "PUT", "/run", &part, b"exit").await;
        assert_eq!(refused.0, 400, "{}", refused.1);
        assert_eq!(site.read(0, "run").await.as_deref(), Some(&b"#!/bin/sh\n"[..]));
        let mut last = String::new();
        for (place, executable) in [("/run", true), ("/new", false)] {
            let put = ask(address, "PUT", place, bearer, b"#!/bin/sh\nexit").await;
            assert_eq!(put.0, 200, "{}", put.1);
            last = put.header("lull-session").expect("a token").to_owned();
            let metadata = site.origin().metadata(&path(&place[1..])).expect("an object");
            assert_eq!(metadata.mode.is_executable(), executable, "{place}");
        }
        let seen = site.replica(0).tokens().verify(&last);
        assert_eq!(seen, Ok(Sequence(3)));
        // The redirect target answers with the written body.
        let new = path("new");
        let reading = site.replica(0).object(&new, Sequence(3), Some(Duration::from_secs(120)));
        let (at, found) = reading.await.expect("an answer");
        assert!(at >= Sequence(3) && found.is_some());
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn conditional_write_succeeds_only_if_its_condition_holds() {
    runtime().block_on(async {
        let site = Site::new(1).await;
        let (listener, address) = listen().await;
        let face = OriginHttp::open(listener, site.origin().clone(), None, "secret");
        let write = async |method: &str, condition: &str, body: &[u8]| {
            let headers = format!("Authorization: Bearer secret\r\n{condition}\r\n");
            ask(address, method, "/a", &headers, body).await
        };
        let tag = |of: &[u8]| format!("\"{}\"", Digest::of(of));
        let (one, two) = (format!("If-Match: {}", tag(b"1")), format!("If-Match: {}", tag(b"2")));
        let not_two = format!("If-None-Match: {}", tag(b"2"));
        let mut writes = 0;
        for (method, condition, body, status) in [
            ("PUT", "If-Match: *", &b"1"[..], 412),
            ("DELETE", "If-Match: *", b"", 412),
            ("PUT", "If-None-Match: *", b"1", 200),
            ("PUT", "If-None-Match: *", b"2", 412),
            ("PUT", &two, b"3", 412),
            ("PUT", "If-Match: \"1\", W/\"2\"", b"3", 412),
            ("PUT", &one, b"2", 200),
            ("PUT", &one, b"3", 412),
            ("PUT", &not_two, b"3", 412),
            ("DELETE", &one, b"", 412),
            ("DELETE", "If-None-Match: *", b"", 412),
            ("PUT", "If-Unmodified-Since: Sat, 29 Oct 2094 19:43:31 GMT", b"3", 400),
            ("DELETE", "If-Unmodified-Since: Sat, 29 Oct 2094 19:43:31 GMT", b"", 400),
        ] {
            let answer = write(method, condition, body).await;
            assert_eq!(answer.0, status, "{method} {condition}: {}", answer.1);
            if status == 200 {
                writes += 1;
                assert_eq!(answer.header("etag"), Some(&*tag(body)));
            } else {
                assert_eq!(answer.2.trim_ascii_end().split(|byte| *byte == b'\n').count(), 1);
            }
            assert_eq!(site.origin().last(), Sequence(writes), "{method} {condition}");
        }
        // Of concurrent ones one is the first.
        let all: Vec<_> = (3..11_u8)
            .map(|body| {
                let headers = format!("Authorization: Bearer secret\r\n{two}\r\n");
                tokio::spawn(async move { ask(address, "PUT", "/a", &headers, &[body]).await.0 })
            })
            .collect();
        let mut done = 0;
        for one in all {
            match one.await.expect("no panic") {
                200 => done += 1,
                status => assert_eq!(status, 412),
            }
        }
        assert_eq!((done, site.origin().last()), (1, Sequence(3)));
        // With the tag from a replica.
        site.reach(Sequence(3)).await;
        let (listener, replica) = listen().await;
        let door = ReplicaHttp::open(listener, site.replica(0).clone(), Blocked::Wait);
        let read = ask(replica, "GET", "/a", "", b"").await;
        let current = format!("If-Match: {}\r\n", read.header("etag").expect("a tag"));
        for (headers, status) in [
            (current.clone(), 200),
            (format!("{one}\r\n"), 412),
            (format!("{one}\r\nRange: bytes=0-0\r\n"), 412),
            (format!("{current}Range: bytes=0-0\r\n"), 206),
            ("If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 GMT\r\n".to_owned(), 412),
            ("If-Match: *\r\n".to_owned(), 200),
        ] {
            for method in ["GET", "HEAD"] {
                let answer = ask(replica, method, "/a", &headers, b"").await;
                let expected = if (method, status) == ("HEAD", 206) { 200 } else { status };
                assert_eq!(answer.0, expected, "{method} {headers}: {}", answer.1);
            }
        }
        let none = ask(replica, "GET", "/none", "If-Match: *\r\n", b"").await;
        assert_eq!(none.0, 404);
        assert_eq!(write("DELETE", current.trim_end(), b"").await.0, 200);
        face.close().await;
        door.close().await;
        site.stop().await;
    });
}

#[test]
fn client_that_leaves_during_a_refetch_leaves_no_read() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let size = 20 * PIECE;
        let sequence = site.write(&[("a", Some(&body(1, size))), ("b", Some(b"small"))]).await;
        site.reach(sequence).await;
        let (listener, address) = listen().await;
        let face = ReplicaHttp::open(listener, site.replica(0).clone(), Blocked::Wait);
        let whole = ask(address, "GET", "/a", "", b"").await;
        assert_eq!(whole.2.len(), size);
        // Its second half becomes corrupt, and no other copy is reachable.
        let digest = Digest::of(&body(1, size)).to_string();
        let file = site.folder().join("0/bodies").join(&digest[..2]).join(&digest);
        let mut bytes = std::fs::read(&file).expect("a body");
        bytes[10 * PIECE..].fill(0);
        std::fs::write(&file, &bytes).expect("a body");
        site.crash_origin();
        site.told(0, |event| matches!(event, ReplicaEvent::Disconnected { .. })).await;

        let mut client = TcpStream::connect(address).await.expect("a face");
        client.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
        let mut first = vec![0; 10 * PIECE];
        client.read_exact(&mut first).await.expect("what is intact");
        let replica = site.replica(0).clone();
        patient("it is fetched again", || replica.status().waiting == 1).await;
        let other = tokio::time::timeout(LIMIT, ask(address, "GET", "/b", "", b"")).await;
        assert_eq!(other.expect("others go on").2, b"small");
        drop(client);
        patient("nothing waits", || replica.status().waiting == 0).await;
        face.close().await;
        site.stop().await;
    });
}
