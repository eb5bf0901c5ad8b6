//! The messages that pass the proxy, and their changes.

use crate::common;
use std::io::Read;
use std::net::Shutdown;
use std::num::NonZeroUsize;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    Answer, answering, get, header, mirror, proxy, proxy_with, unused_address, upstream,
};
use bytes::Bytes;
use http::{HeaderValue, Request, header::COOKIE, request};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lull_web::proxy::{Connection, Decision, Site};
use proptest::prelude::*;

#[test]
fn request_goes_upstream_with_client_address_and_host() {
    let proxy = proxy(mirror());
    let asked = proxy.exchange(
        "GET /a?b=%20c HTTP/1.1\r\nHost: Site.example:81\r\nAccept: text/html\r\nX-Lull: 1\r\n\
         Connection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\r\n",
    );
    assert_eq!(asked.status(), 200);
    let sent = asked.text();
    assert!(sent.starts_with("GET /a?b=%20c HTTP/1.1\r\n"), "{sent}");
    for (name, value) in [
        ("host", Some("Site.example:81")),
        ("accept", Some("text/html")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some("Site.example:81")),
        ("sec-purpose", Some("prefetch")),
        ("x-lull", None),
        ("x-hop", None),
        ("connection", None),
        ("te", None),
        ("via", None),
    ] {
        assert_eq!(header(&sent, name), value, "{name} in {sent}");
    }
}

/// Keeps the cookies of each request, as they arrive.
#[derive(Default)]
struct Cookies(Mutex<Vec<Vec<HeaderValue>>>);

impl Site for Cookies {
    fn request(&self, head: &mut request::Parts, _: &Arc<Connection>) -> Decision {
        self.0.lock().unwrap().push(head.headers.get_all(COOKIE).iter().cloned().collect());
        Decision::Forward
    }
}

#[test]
fn http2_cookie_fields_are_merged_into_one() {
    let site = Arc::new(Cookies::default());
    let proxy = proxy_with(mirror(), |_| {}, Some(Arc::clone(&site) as _));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sent = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
        let (mut sender, driver): (SendRequest<Empty<Bytes>>, _) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        let request = Request::get("http://site.example/")
            .header(COOKIE, "_ga=1")
            .header(COOKIE, "a=2; session=3")
            .header(COOKIE, "b=4");
        let answer = sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        answer.into_body().collect().await.unwrap().to_bytes()
    });
    let sent = String::from_utf8(sent.to_vec()).unwrap();
    assert_eq!(sent.matches("cookie:").count(), 1, "{sent}");
    assert_eq!(header(&sent, "cookie"), Some("_ga=1; a=2; session=3; b=4"));
    assert_eq!(*site.0.lock().unwrap(), [["_ga=1; a=2; session=3; b=4"]]);
}

#[test]
fn empty_request_declares_a_zero_length() {
    let proxy = proxy(mirror());
    for (method, length) in
        [("POST", Some("0")), ("PUT", Some("0")), ("PATCH", Some("0")), ("DELETE", None)]
    {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let sent = proxy.exchange(head).text();
        assert!(sent.starts_with(method), "{sent}");
        assert_eq!(header(&sent, "content-length"), length, "{sent}");
    }
}

#[test]
fn alt_svc_and_hop_by_hop_headers_are_not_forwarded() {
    let proxy = proxy(answering(|_| {
        "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nAlt-Svc: h3=\":443\"\r\nKeep-Alive: timeout=5\r\n\
         Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\nok"
            .to_owned()
    }));
    let answer = proxy.get("/");
    assert!(answer.head.starts_with("HTTP/1.1 200 Fine\r\n"), "{}", answer.head);
    for gone in ["alt-svc", "keep-alive", "x-hop"] {
        assert_eq!(answer.header(gone), None);
    }
    assert_eq!(answer.head.matches("set-cookie").count(), 2);
    assert!(answer.header("date").is_some(), "RFC 9110 §6.6.1");
    assert_eq!(answer.text(), "ok");
}

#[test]
fn upstream_connection_is_reused_across_clients() {
    let connections = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&connections);
    let proxy = proxy(upstream(move |mut peer| {
        while peer.head().is_some() {
            seen.lock().unwrap().push(peer.number);
            peer.ok("hello");
        }
    }));
    let mut client = proxy.connect();
    for _ in 0..3 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().text(), "hello");
    }
    assert_eq!(proxy.get("/").text(), "hello");
    assert_eq!(*connections.lock().unwrap(), [0; 4]);
    assert_eq!(proxy.totals().upstream_connections, 1);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let proxy = proxy(mirror());
    let mut client = proxy.connect();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.answer().text().starts_with("GET /1 "));
    assert!(client.answer().text().starts_with("GET /2 "));
}

#[test]
fn answers_without_a_body_have_none() {
    let proxy = proxy(answering(|head| {
        let status = if head.contains("/204") {
            "204 No Content\r\n"
        } else if head.contains("/304") {
            "304 Not Modified\r\nETag: \"a\"\r\n"
        } else {
            "200 OK\r\nContent-Length: 1000\r\n"
        };
        format!("HTTP/1.1 {status}\r\n")
    }));
    let mut client = proxy.connect();
    for (request, status) in [("HEAD /", 200), ("GET /204", 204), ("GET /304", 304)] {
        client.send(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let head = client.head();
        assert_eq!(head.split(' ').nth(1).unwrap().parse(), Ok(status), "{head}");
        if request.starts_with("HEAD") {
            assert_eq!(header(&head, "content-length"), Some("1000"), "{head}");
        }
    }
    // The next answer begins at the correct place.
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.rest().body, b"");
    let failures = proxy.totals().failures;
    assert_eq!(failures, [0; 10]);
}

#[test]
fn chunked_bodies_and_trailers_pass() {
    let proxy = proxy(upstream(|mut peer| {
        let head = peer.head().unwrap();
        assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
        let body = peer.until("\r\n\r\n");
        assert_eq!(body, "5\r\nhello\r\n0\r\nx-sum: up\r\n\r\n");
        peer.send(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
             3\r\nyes\r\n0\r\nX-Sum: down\r\n\r\n",
        );
    }));
    let mut client = proxy.connect();
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\
         Trailer: X-Sum\r\nConnection: TE, close\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: up\r\n\r\n",
    );
    let head = client.head();
    assert_eq!(header(&head, "transfer-encoding"), Some("chunked"), "{head}");
    let mut rest = String::new();
    client.0.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "3\r\nyes\r\n0\r\nx-sum: down\r\n\r\n");
}

#[test]
fn get_keeps_its_chunked_body() {
    let proxy = proxy(upstream(|mut peer| {
        let head = peer.head().unwrap();
        assert_eq!(header(&head, "transfer-encoding"), Some("chunked"), "{head}");
        assert_eq!(peer.until("0\r\n\r\n"), "5\r\nhello\r\n0\r\n\r\n");
        peer.ok("whole");
    }));
    let answer = proxy.exchange(
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         5\r\nhello\r\n0\r\n\r\n",
    );
    assert_eq!(answer.text(), "whole");
}

#[test]
fn event_stream_is_forwarded_event_by_event() {
    let (next, told) = channel::<()>();
    let told = Mutex::new(told);
    let proxy = proxy(upstream(move |mut peer| {
        peer.head().unwrap();
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
        for number in 0..3 {
            peer.send(format!("data: {number}\n\n"));
            told.lock().unwrap().recv().unwrap();
        }
    }));
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(header(&client.head(), "transfer-encoding"), Some("chunked"));
    for number in 0..3 {
        // The next event is sent only after this one has arrived.
        assert_eq!(client.exactly(14), format!("9\r\ndata: {number}\n\n\r\n").as_bytes());
        next.send(()).unwrap();
    }
    assert_eq!(client.exactly(5), b"0\r\n\r\n");
}

#[test]
fn websocket_passes_bytes_in_both_directions() {
    let proxy = proxy(upstream(|mut peer| {
        let head = peer.head().unwrap();
        assert_eq!(header(&head, "upgrade"), Some("websocket"));
        assert_eq!(header(&head, "connection"), Some("upgrade"));
        assert_eq!(header(&head, "sec-websocket-key"), Some("x"));
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\
             first",
        );
        let heard = peer.body(5);
        peer.send(heard);
    }));
    let mut client = proxy.connect();
    client.send(
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: x\r\n\r\n",
    );
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(header(&head, "upgrade"), Some("websocket"));
    assert_eq!(client.exactly(5), b"first");
    client.send("hello");
    assert_eq!(client.exactly(5), b"hello");
    assert_eq!(client.rest().head, "");
    proxy.wait("end", |totals| totals.open_connections == 0);
}

#[test]
fn declined_upgrade_is_an_ordinary_answer() {
    let proxy =
        proxy(answering(|_| "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno".to_owned()));
    let answer = proxy.exchange(
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n",
    );
    assert_eq!((answer.status(), answer.text().as_str()), (400, "no"));
}

/// A request with `Expect`, and the upstream's reaction to its head.
fn expecting(says: &'static str) -> common::Proxy {
    proxy(upstream(move |mut peer| {
        let head = peer.head().unwrap();
        assert_eq!(header(&head, "expect"), Some("100-continue"));
        peer.send(says);
        if !says.contains("413") {
            assert_eq!(peer.body(5), b"hello");
            peer.ok("thanks");
        }
        // Until the proxy has noticed it.
        let _ = peer.head();
    }))
}

const EXPECT: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\
                      Connection: close\r\n\r\n";

/// How long a client with `Expect` waits for the permission of an upstream that first sends `says`.
fn goes_on_after(says: &'static str) -> Duration {
    let proxy = expecting(says);
    let mut client = proxy.connect();
    let started = Instant::now();
    client.send(EXPECT);
    assert!(client.head().starts_with("HTTP/1.1 100 "));
    let waited = started.elapsed();
    client.send("hello");
    assert_eq!(client.rest().text(), "thanks");
    waited
}

#[test]
fn expect_continue_is_answered_by_the_upstream() {
    // After a second it would be the proxy's answer, and a busy machine may take as long.
    assert!((0..5).any(|_| goes_on_after("HTTP/1.1 100 Continue\r\n\r\n").as_millis() < 900));

    let proxy = expecting("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
    let mut client = proxy.connect();
    client.send(EXPECT);
    assert_eq!(client.rest().status(), 413);
    assert_eq!(proxy.totals().bytes_received, 0);
}

#[test]
fn expect_continue_times_out_into_a_100_of_the_proxy() {
    goes_on_after("");
}

#[test]
fn answer_may_precede_the_end_of_the_body() {
    let proxy = proxy(upstream(|mut peer| {
        while peer.head().is_some() {
            peer.ok("early");
            assert_eq!(peer.body(200_000).len(), 200_000);
        }
    }));
    let mut client = proxy.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    assert_eq!(client.answer().text(), "early");
    client.send(vec![b'x'; 200_000]);
    // Both connections can be used again.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    assert_eq!(client.answer().text(), "early");
    client.send(vec![b'x'; 200_000]);
}

#[test]
fn early_answer_reaches_a_client_that_still_sends() {
    // Like nginx for a body that is too large.
    let refusing = upstream(|mut peer| {
        peer.head().unwrap();
        peer.send("HTTP/1.1 413 Much\r\nConnection: close\r\nContent-Length: 4\r\n\r\nmuch");
        peer.stream.get_ref().shutdown(Shutdown::Write).unwrap();
        let _ = std::io::copy(&mut peer.stream, &mut std::io::sink());
    });
    for (upstream, status) in [(refusing, 413), (unused_address(), 502)] {
        let proxy = proxy(upstream);
        let mut client = proxy.connect();
        // More than all kernels on the way can buffer.
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n");
        client.send(vec![b'x'; 20_000_000]);
        let answer = client.rest();
        assert_eq!((answer.status(), answer.is_reset), (status, false), "{answer:?}");
    }
}

#[test]
fn upload_after_its_answer_keeps_its_upstream_slot() {
    let proxy = proxy_with(
        upstream(|mut peer| {
            while let Some(head) = peer.head() {
                peer.ok("early");
                if head.starts_with("POST ") {
                    peer.body(200_000);
                }
            }
        }),
        |config| {
            config.limits.upstream_requests = NonZeroUsize::new(1);
            config.timeouts.connect = Duration::from_millis(200);
        },
        None,
    );
    let mut client = proxy.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    assert_eq!(client.answer().text(), "early");
    assert_eq!(proxy.get("/").status(), 503);
    client.send(vec![b'x'; 200_000]);
    let begun = Instant::now();
    while proxy.get("/").status() != 200 {
        assert!(begun.elapsed() < common::LIMIT, "the place is not given back");
    }
}

#[test]
fn http_1_0_upstream_gets_one_request_per_connection() {
    let proxy = proxy(upstream(|mut peer| {
        while let Some(head) = peer.head() {
            let said = format!("{} {head}", peer.number);
            let length = said.len();
            peer.send(format!(
                "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: {length}\r\n\r\n{said}"
            ));
        }
    }));
    assert!(proxy.get("/").text().starts_with("0 GET / HTTP/1.1\r\n"));
    // Of an unknown length, which that version cannot express.
    let answer = proxy.exchange(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n",
    );
    let said = answer.text();
    assert!(said.starts_with("1 POST / HTTP/1.1\r\n"), "{said}");
    assert_eq!(header(&said, "transfer-encoding"), Some("chunked"), "{said}");
}

#[test]
fn repeated_content_length_is_merged() {
    for lengths in ["5, 5", "5,5 , 5", "5\r\nContent-Length: 5"] {
        let proxy = proxy(answering(move |_| {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {lengths}\r\n\r\nhello")
        }));
        let answer = proxy.get("/");
        assert_eq!(answer.header("content-length"), Some("5"), "{lengths}");
        assert_eq!((answer.text().as_str(), answer.is_whole), ("hello", true));
    }
}

#[test]
fn http_1_0_clients_get_their_own_version() {
    let proxy = proxy(answering(|_| {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n".to_owned()
    }));
    let answer = proxy.exchange("GET / HTTP/1.0\r\n\r\n");
    assert!(answer.head.starts_with("HTTP/1.0 200 "), "{}", answer.head);
    assert_eq!(answer.header("transfer-encoding"), None);
    assert_eq!(answer.text(), "ok");
}

#[test]
fn answer_that_ends_with_its_connection_passes() {
    let proxy = proxy(upstream(|mut peer| {
        peer.head().unwrap();
        peer.send("HTTP/1.0 200 OK\r\n\r\nall of it");
    }));
    let answer = proxy.get("/");
    assert!(answer.is_whole, "{answer:?}");
    assert_eq!(answer.text(), "all of it");
}

#[test]
fn log_is_in_combined_format_and_rotates() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = lull_web::proxy::AccessLog::File(path.clone());
    let proxy = proxy_with(mirror(), |config| config.access_log = Some(log), None);
    proxy.exchange(
        "GET /one HTTP/1.1\r\nHost: a\r\nReferer: http://a/\r\nUser-Agent: test\r\n\
         Connection: close\r\n\r\n",
    );
    proxy.wait("end", |totals| totals.responses[2] == 1);
    let rotated = folder.path().join("access.log.1");
    // The line is written, now or by the reload.
    std::fs::rename(&path, &rotated).unwrap();
    proxy.server.reload();
    proxy.get("/two");
    proxy.wait("end", |totals| totals.responses[2] == 2);
    proxy.server.stop();
    let first = std::fs::read_to_string(&rotated).unwrap();
    assert!(first.starts_with("127.0.0.1 - - ["), "{first}");
    assert!(first.contains("\"GET /one HTTP/1.1\" 200 "), "{first}");
    assert!(first.ends_with("\"http://a/\" \"test\"\n"), "{first}");
    let second = std::fs::read_to_string(&path).unwrap();
    assert!(second.contains("/two") && !second.contains("/one"), "{second}");
}

/// Data in chunks of these sizes, chunked or with a length.
fn in_pieces(sizes: &[usize], is_chunked: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut body = Vec::new();
    let mut pieces = Vec::new();
    for (number, &size) in sizes.iter().enumerate() {
        let piece: Vec<u8> = (0..size).map(|at| (at * 7 + number) as u8).collect();
        body.extend_from_slice(&piece);
        pieces.push(if is_chunked {
            [format!("{size:x}\r\n").as_bytes(), &piece, b"\r\n"].concat()
        } else {
            piece
        });
    }
    if is_chunked {
        pieces.push(b"0\r\n\r\n".to_vec());
    }
    (body, pieces)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Without a site, bodies are the same byte for byte in both directions, in any framing.
    #[test]
    fn bodies_pass_unchanged(
        sizes in proptest::collection::vec(1_usize..40_000, 1..8),
        is_chunked: bool,
        pause: bool,
    ) {
        let (body, pieces) = in_pieces(&sizes, is_chunked);
        let framing = if is_chunked {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {}", body.len())
        };
        let (head, mut down) = (format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n"), pieces.clone());
        down.insert(0, head.into_bytes());
        let raw: usize = pieces.iter().map(Vec::len).sum();
        let (heard, hears) = channel();
        let heard = Mutex::new(heard);
        let proxy = proxy(upstream(move |mut peer| {
            let Some(head) = peer.head() else { return };
            // The proxy's chunks are not the client's.
            let up = if is_chunked {
                let text = read_chunked(&mut peer);
                Answer::parse(&[head.as_bytes(), &text].concat(), false).body
            } else {
                peer.body(raw)
            };
            heard.lock().unwrap().send(up).unwrap();
            for piece in &down {
                peer.send(piece);
                if pause {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            let _ = peer.head();
        }));
        let mut client = proxy.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{framing}\r\n\r\n"));
        for piece in &pieces {
            client.send(piece);
            if pause {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let answer = client.rest();
        prop_assert!(hears.recv().unwrap() == body, "what went up");
        prop_assert!(answer.is_whole && answer.body == body, "what came down");
    }
}

/// A chunked body as it arrives, to its end.
fn read_chunked(peer: &mut common::Peer) -> Vec<u8> {
    use std::io::BufRead;

    let mut all = Vec::new();
    loop {
        let mut line = String::new();
        peer.stream.read_line(&mut line).unwrap();
        let size = usize::from_str_radix(line.trim(), 16).unwrap();
        all.extend_from_slice(line.as_bytes());
        all.extend_from_slice(&peer.body(size + 2));
        if size == 0 {
            return all;
        }
    }
}

#[test]
fn request_over_a_unix_socket_is_served() {
    use std::io::{BufRead, BufReader, Write};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            stream.read_line(&mut head).unwrap();
        }
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nunix").unwrap();
    });
    let upstream = format!("unix:{}", path.display()).parse().unwrap();
    let proxy = proxy_with(
        common::unused_address(),
        |config| config.sites[0].upstream.servers[0] = upstream,
        None,
    );
    assert_eq!(proxy.exchange(get("/")).text(), "unix");
}

#[test]
fn many_clients_are_served_by_many_threads() {
    let threads = std::num::NonZeroUsize::new(4);
    let proxy = proxy_with(mirror(), |config| config.threads = threads, None);
    let address = proxy.address();
    let clients: Vec<_> = (0..16)
        .map(|number| {
            thread::spawn(move || {
                let mut client = common::Client::connect(address);
                for request in 0..20 {
                    client.send(format!("GET /{number}/{request} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    let text = client.answer().text();
                    assert!(text.starts_with(&format!("GET /{number}/{request} ")), "{text}");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let totals = proxy.wait("ends", |totals| totals.open_connections == 0);
    assert_eq!((totals.requests, totals.responses[2]), (320, 320));
    assert!(totals.upstream_connections <= 16, "{totals:?}");
}
