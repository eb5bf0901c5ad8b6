//! Malicious clients: ambiguous requests, deliberate slowness, and excess.

use crate::common;
mod http2;

use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{get, header, mirror, proxy, proxy_with, upstream};
use lull_web::proxy::{Event, Failure};

/// Sends `raw`. Returns the status of the first answer and the requests that went upstream until then, or
/// until the end of the connection if `ends`.
fn smuggle(raw: &str, ends: bool) -> (u16, Vec<String>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let proxy = proxy(upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            let mut whole = head.clone();
            if let Some(length) = header(&head, "content-length") {
                whole += &String::from_utf8(peer.body(length.parse().unwrap())).unwrap();
            } else if header(&head, "transfer-encoding").is_some() {
                whole += &peer.until("0\r\n\r\n");
            }
            seen.lock().unwrap().push(whole);
            peer.ok("ok");
        }
    }));
    let mut client = proxy.connect();
    client.send(raw);
    let answer = client.answer();
    if ends {
        assert!(client.is_closed_within(common::LIMIT), "{raw:?}");
    }
    let heads = heads.lock().unwrap().clone();
    (answer.status(), heads)
}

/// A request that would be the second one, for a parser that reads the first as shorter.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn malformed_request_is_rejected_and_ends_the_connection() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\n";
    for (raw, status) in [
        // Lengths.
        (format!("{head}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc{HIDDEN}"), 400),
        (format!("{head}Content-Length: 3, 4\r\n\r\nabc{HIDDEN}"), 400),
        (format!("{head}Content-Length: +3\r\n\r\nabc{HIDDEN}"), 400),
        (format!("{head}Content-Length: -3\r\n\r\nabc{HIDDEN}"), 400),
        (format!("{head}Content-Length: 0x3\r\n\r\nabc{HIDDEN}"), 400),
        (format!("{head}Content-Length: 99999999999999999999\r\n\r\nabc{HIDDEN}"), 400),
        (format!("{head}Content-Length:\r\n\r\n{HIDDEN}"), 400),
        // Codings.
        (format!("{head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{HIDDEN}"), 400),
        (format!("{head}Transfer-Encoding: identity\r\n\r\n{HIDDEN}"), 400),
        (format!("{head}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{HIDDEN}"), 400),
        (format!("{head}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n{HIDDEN}"), 501),
        (
            format!(
                "{head}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            501,
        ),
        (format!("{head}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{HIDDEN}"), 400),
        (format!("{head}Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n{HIDDEN}"), 400),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(), 400),
        // Lines.
        (format!("{head}A: b\r\n folded\r\n\r\n{HIDDEN}"), 400),
        (format!("{head} A: b\r\n\r\n{HIDDEN}"), 400),
        (format!("{head}A\r\n\r\n{HIDDEN}"), 400),
        (format!("{head}A: b\0c\r\n\r\n{HIDDEN}"), 400),
        (format!("{head}A: b\rC: d\r\n\r\n{HIDDEN}"), 400),
        (format!("{head}: b\r\n\r\n{HIDDEN}"), 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n".into(), 400),
        ("GET / HTTP/3.7\r\nHost: a\r\n\r\n".into(), 400),
        ("G\0T / HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        // Hosts and targets.
        ("GET / HTTP/1.1\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), 400),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".into(), 501),
    ] {
        let (found, sent) = smuggle(&raw, true);
        assert_eq!(found, status, "{raw:?}");
        assert!(sent.is_empty(), "{raw:?} came through as {sent:?}");
    }
}

#[test]
fn ambiguous_request_goes_upstream_in_one_reading() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (raw, sent) in [
        // RFC 9112 §6.1: the coding counts, and the connection ends after the answer.
        (
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n{chunked}\r\n0\r\n\r\n"),
            "transfer-encoding: chunked",
        ),
        (
            format!("POST / HTTP/1.1\r\nHost: a\r\n{chunked}Content-Length: 3\r\n\r\n0\r\n\r\n"),
            "transfer-encoding: chunked",
        ),
    ] {
        let (status, heads) = smuggle(&format!("{raw}{HIDDEN}"), true);
        assert_eq!(status, 200, "{raw:?}");
        assert_eq!(heads.len(), 1, "{heads:?}");
        assert!(heads[0].contains(sent) && !heads[0].contains("content-length"), "{heads:?}");
    }
    for (raw, has, has_not) in [
        // RFC 9112 §6.3: a repeated equal length is one.
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            "content-length: 3\r\n",
            "transfer-encoding",
        ),
        // RFC 9112 §2.2: a bare line feed may end a line; forwarded lines end with both.
        ("GET / HTTP/1.1\nHost: a\nA: b\n\n", "a: b\r\n", "\r\nb"),
        // RFC 9112 §3.2.2: an absolute target overrides Host.
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", "host: b\r\n", "host: a\r\n"),
        ("GET http://b HTTP/1.1\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\n", "http://"),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: host\r\n\r\n", "host: a\r\n", "connection"),
    ] {
        let (status, heads) = smuggle(raw, false);
        assert_eq!((status, heads.len()), (200, 1), "{raw:?}");
        assert!(heads[0].contains(has) && !heads[0].contains(has_not), "{raw:?} went as {heads:?}");
        assert_eq!(
            heads[0].matches("content-length").count(),
            has.matches("content-length").count()
        );
    }
}

#[test]
fn malformed_chunk_ends_the_exchange() {
    for chunk in
        ["x\r\n", "5;a\nhello\r\n", "5\nhello\n", "-1\r\n", "5\r\nhelloX", "fffffffffffffffff\r\n"]
    {
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&bodies);
        let proxy = proxy(upstream(move |mut peer| {
            while peer.head().is_some() {
                let mut body = Vec::new();
                let _ = peer.stream.read_to_end(&mut body);
                seen.lock().unwrap().push(body);
            }
        }));
        let raw = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut client = proxy.connect();
        client.send(format!("{raw}{chunk}{HIDDEN}"));
        assert!(client.is_closed_within(common::LIMIT), "{chunk:?}");
        let totals = proxy.wait("end", |totals| totals.open_connections == 0);
        assert_eq!(totals.requests, 1, "{chunk:?}");
        let bodies = bodies.lock().unwrap();
        assert!(bodies.len() <= 1, "{chunk:?}");
        for body in bodies.iter() {
            assert!(!body.ends_with(b"0\r\n\r\n"), "{chunk:?} was made to look whole");
        }
    }
}

#[test]
fn oversized_head_gets_its_status() {
    let proxy = proxy(mirror());
    for (raw, status) in [
        (get(&format!("/{}", "x".repeat(20_000))), 414),
        (
            get("/").replace(
                "Connection",
                &format!("Cookie: a={}\r\nConnection", "x".repeat(2_000_000)),
            ),
            431,
        ),
        (get("/").replace("Connection", &format!("{}Connection", "A: b\r\n".repeat(101))), 431),
        (get("/").replace("Connection", &format!("{}: b\r\nConnection", "a".repeat(70_000))), 431),
    ] {
        let answer = proxy.exchange(&raw);
        assert_eq!(answer.status(), status, "{}", &raw[..60]);
        // With a reset some clients would lose it.
        assert!(!answer.is_reset, "{}", &raw[..60]);
    }
    // As the second request of a connection, most of which arrives later.
    let mut client = proxy.connect();
    client.send(get("/").replace("Connection: close\r\n", ""));
    assert_eq!(client.answer().status(), 200);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: a={}", "x".repeat(66_000)));
    thread::sleep(Duration::from_millis(100));
    client.send("x".repeat(100_000));
    thread::sleep(Duration::from_millis(100));
    client.send("x".repeat(100_000));
    let answer = client.rest();
    assert_eq!((answer.status(), answer.is_reset), (431, false));
    let cookie = format!("Cookie: a={}\r\nConnection", "x".repeat(30_000));
    assert_eq!(proxy.exchange(get("/").replace("Connection", &cookie)).status(), 200);
}

/// A proxy whose clients have a fifth of a second for everything.
fn impatient() -> common::Proxy {
    slow_or_big(|config| {
        let short = Duration::from_millis(200);
        config.timeouts.client_head = short;
        config.timeouts.client_stalled = short;
        config.timeouts.client_idle = Duration::from_millis(600);
    })
}

/// A proxy before an upstream that has a large and a slow answer, and reads everything.
fn slow_or_big(change: impl FnOnce(&mut lull_web::proxy::Config)) -> common::Proxy {
    proxy_with(
        upstream(|mut peer| {
            while let Some(head) = peer.head() {
                if head.contains("/big") {
                    let big = vec![b'x'; 16 << 20];
                    peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", big.len()));
                    peer.send(&big);
                } else if head.contains("/slow") {
                    thread::sleep(Duration::from_millis(900));
                    peer.ok("slow");
                } else if head.starts_with("POST") {
                    let _ = peer.stream.read_to_end(&mut Vec::new());
                } else {
                    peer.ok("ok");
                }
            }
        }),
        change,
        None,
    )
}

/// Sends bytes now and then for longer than the test waits for an end, and returns whether there was one.
fn dribble(
    client: &common::Client,
    bytes: impl AsRef<[u8]> + Send + 'static,
) -> thread::JoinHandle<bool> {
    let mut writer = client.0.get_ref().try_clone().unwrap();
    thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < 2 * common::LIMIT {
            if writer.write_all(bytes.as_ref()).is_err() {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    })
}

#[test]
fn head_sent_byte_by_byte_is_cut() {
    let proxy = impatient();
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\n");
    let dribble = dribble(&client, b"A: b\r\n");
    assert!(client.is_closed_within(common::LIMIT));
    assert!(dribble.join().unwrap());
    assert_eq!(proxy.totals().requests, 0);
}

#[test]
fn announced_but_unsent_body_ends_the_connection() {
    let proxy = impatient();
    let mut client = proxy.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    assert!(client.is_closed_within(common::LIMIT));

    // Single bytes at intervals are not a body either.
    let mut client = proxy.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\nabc");
    let dribble = dribble(&client, b"x");
    assert!(client.is_closed_within(common::LIMIT));
    assert!(dribble.join().unwrap());
    let totals = proxy.wait("ends", |totals| totals.open_connections == 0);
    assert_eq!(totals.failures_of(Failure::Client), 2, "{totals:?}");
}

#[test]
fn client_that_reads_no_answer_is_cut() {
    let proxy = impatient();
    let mut client = proxy.connect();
    client.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    let totals = proxy.wait("cut", |totals| totals.failures_of(Failure::Client) == 1);
    assert!(totals.bytes_sent < 16 << 20);
}

#[test]
fn client_waiting_for_the_upstream_is_kept() {
    let proxy = impatient();
    assert_eq!(proxy.get("/slow").text(), "slow");
}

#[test]
fn idle_connections_are_closed() {
    let proxy = slow_or_big(|config| config.timeouts.client_idle = Duration::from_secs(4));
    let mut silent = proxy.connect();
    let mut used = proxy.connect();
    used.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(used.answer().text(), "ok");
    thread::sleep(Duration::from_secs(1));
    used.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(used.answer().text(), "ok", "not yet");
    assert!(used.is_closed_within(common::LIMIT));
    assert!(silent.is_closed_within(common::LIMIT));
}

#[test]
fn connections_per_address_are_limited() {
    let limit = |config: &mut lull_web::proxy::Config| {
        config.limits.connections_per_address = NonZeroUsize::new(2);
    };
    let proxy = proxy_with(mirror(), limit, None);
    let (first, _second) = (proxy.connect(), proxy.connect());
    proxy.wait("two", |totals| totals.open_connections == 2);
    for _ in 0..2 {
        let mut third = proxy.connect();
        assert!(third.is_closed_within(common::LIMIT));
    }
    proxy.wait("refusals", |totals| totals.refused_connections == 2);
    let is_refusal =
        |event: &Event| matches!(event, Event::AddressRefused { address } if address.is_loopback());
    assert_eq!(proxy.told(is_refusal), 1);
    drop(first);
    proxy.wait("room", |totals| totals.open_connections == 1);
    assert_eq!(proxy.get("/").status(), 200);
}

#[test]
fn connection_beyond_the_total_waits() {
    let limit =
        |config: &mut lull_web::proxy::Config| config.limits.connections = NonZeroUsize::new(1);
    let proxy = proxy_with(mirror(), limit, None);
    let first = proxy.connect();
    proxy.wait("one", |totals| totals.open_connections == 1);
    let mut second = proxy.connect();
    second.send(get("/"));
    thread::sleep(Duration::from_millis(100));
    assert_eq!(proxy.totals().requests, 0);
    drop(first);
    assert_eq!(second.rest().status(), 200);
}

/// The limit is no reason to keep a visitor waiting for the idle timeout of others, which is 75 s.
#[test]
fn idle_connections_make_room_for_a_visitor_at_the_limit() {
    let limit = |config: &mut lull_web::proxy::Config| {
        config.limits.connections = NonZeroUsize::new(16);
        config.limits.connections_per_address = NonZeroUsize::new(64);
    };
    let proxy = proxy_with(mirror(), limit, None);
    let mut idle: Vec<_> = (0..16).map(|_| proxy.connect()).collect();
    for client in &mut idle {
        client.send(get("/").replace("Connection: close\r\n", ""));
        assert_eq!(client.answer().status(), 200);
    }
    let mut visitor = proxy.connect();
    visitor.send(get("/"));
    assert_eq!(visitor.rest().status(), 200);
}
