//! Upstreams that fail, and slow clients: no truncated body looks complete, and no buffer is unbounded.

use crate::common;
use std::io::{BufRead, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Away, Peer, get, header, mirror, proxy, proxy_with, upstream};
use http::{Response, StatusCode, request};
use lull_testing::free_port;
use lull_web::proxy::{
    AccessLog, Body, Connection, Decision, Event, Exchange, Failure, PrefetchPriority, Site,
};

const SHORT: Duration = Duration::from_millis(200);

#[test]
fn unreachable_upstream_gives_502_and_is_reported_once() {
    let away = Away::new();
    let proxy = proxy(away.address);
    for _ in 0..3 {
        let answer = proxy.get("/");
        assert_eq!(answer.status(), 502);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert!(answer.text().contains("cannot be reached"), "{answer:?}");
    }
    let totals = proxy.wait("failures", |totals| totals.responses[5] == 3);
    assert_eq!(totals.failures_of(Failure::Unreachable), 3);
    assert_eq!(proxy.told(|event| matches!(event, Event::UpstreamDown { .. })), 1);

    let listener = away.come();
    thread::spawn(move || {
        let mut peer =
            Peer { stream: std::io::BufReader::new(listener.accept().unwrap().0), number: 0 };
        peer.head();
        peer.ok("back");
    });
    assert_eq!(proxy.get("/").text(), "back");
    assert_eq!(proxy.told(|event| matches!(event, Event::UpstreamUp)), 1);
}

#[test]
fn upstream_that_does_not_accept_gives_504() {
    // A backlog of one, which is full: the kernel answers no more SYNs.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let _first = std::net::TcpStream::connect(address).unwrap();
    let proxy = proxy_with(address, |config| config.timeouts.connect = SHORT, None);
    assert_eq!(proxy.get("/").status(), 504);
    let totals = proxy.wait("failure", |totals| totals.responses[5] == 1);
    assert_eq!(totals.failures_of(Failure::ConnectTimeout), 1);
}

#[test]
fn upstream_that_does_not_answer_gives_504() {
    let proxy = proxy_with(
        upstream(|mut peer| while peer.head().is_some() {}),
        |config| config.timeouts.head = SHORT,
        None,
    );
    assert_eq!(proxy.get("/").status(), 504);
    let totals = proxy.wait("failure", |totals| totals.responses[5] == 1);
    assert_eq!(totals.failures_of(Failure::HeadTimeout), 1);
}

#[test]
fn upstream_timeout_starts_after_the_body_is_sent() {
    let proxy = proxy_with(
        upstream(|mut peer| {
            peer.head().unwrap();
            assert_eq!(peer.body(4), b"slow");
            peer.ok("in time");
        }),
        |config| config.timeouts.head = SHORT,
        None,
    );
    let mut client = proxy.connect();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\n");
    for byte in [b"s", b"l", b"o", b"w"] {
        thread::sleep(SHORT * 3 / 4);
        client.send(byte);
    }
    assert_eq!(client.rest().text(), "in time");
}

#[test]
fn non_http_answer_gives_502() {
    for garbage in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA b\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        "\0\0\0\0",
    ] {
        let proxy = proxy(common::answering(move |_| garbage.to_owned()));
        assert_eq!(proxy.get("/").status(), 502, "{garbage:?}");
        let totals = proxy.wait("failure", |totals| totals.responses[5] == 1);
        assert_eq!(totals.failures_of(Failure::Garbage), 1, "{garbage:?} {totals:?}");
    }
}

#[test]
fn oversized_upstream_headers_give_502() {
    let proxy = proxy(common::answering(|_| {
        format!("HTTP/1.1 200 OK\r\nSet-Cookie: a={}\r\n\r\n", "x".repeat(100_000))
    }));
    assert_eq!(proxy.get("/").status(), 502);
}

/// How an upstream fails.
#[derive(Clone, Copy, Debug)]
enum Break {
    Close,
    Reset,
    Stall,
}

/// A proxy before an upstream that cuts off an answer, once "hello" has arrived.
fn breaking(head: &'static str, how: Break) -> (common::Proxy, Sender<()>) {
    let (heard, has_heard) = channel();
    let has_heard = Mutex::new(has_heard);
    let proxy = proxy_with(
        upstream(move |mut peer| {
            peer.head().unwrap();
            peer.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n"));
            peer.send(if head.contains("chunked") { "5\r\nhello\r\n" } else { "hello" });
            match how {
                Break::Close | Break::Reset => {
                    has_heard.lock().unwrap().recv_timeout(common::LIMIT).unwrap();
                    if matches!(how, Break::Reset) {
                        peer.reset();
                    }
                }
                Break::Stall => {
                    let _ = peer.head();
                }
            }
        }),
        |config| {
            if matches!(how, Break::Stall) {
                config.timeouts.body = SHORT;
            }
        },
        None,
    );
    (proxy, heard)
}

#[test]
fn truncated_answer_never_looks_complete() {
    for head in ["Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n"] {
        for (how, failure) in [
            (Break::Close, Failure::Reset),
            (Break::Reset, Failure::Reset),
            (Break::Stall, Failure::BodyTimeout),
        ] {
            let (proxy, heard) = breaking(head, how);
            let answer = proxy.until_it_breaks(get("/"), "hello", &heard);
            assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"), "{how:?}");
            assert!(!answer.is_whole, "{head:?} {how:?} {answer:?}");
            let totals = proxy.wait("failure", |totals| totals.responses[2] == 1);
            assert_eq!(totals.failures_of(failure), 1, "{head:?} {how:?} {totals:?}");
        }
    }
}

#[test]
fn truncated_body_without_length_resets_the_connection() {
    let (proxy, heard) = breaking("Transfer-Encoding: chunked\r\n", Break::Close);
    let answer = proxy.until_it_breaks("GET / HTTP/1.0\r\nHost: a\r\n\r\n", "hello", &heard);
    assert_eq!(answer.header("content-length"), None);
    assert!(answer.is_reset, "{answer:?}");
}

#[test]
fn idempotent_request_is_retried_when_a_kept_connection_closes() {
    for (second, status, asked) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200, 3),
        ("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", 200, 3),
        // A request that must not be repeated takes a new connection.
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 200, 2),
        ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 200, 2),
    ] {
        let heads = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&heads);
        let proxy = proxy(upstream(move |mut peer| {
            // The first connection closes as soon as its second request has arrived.
            for number in 0.. {
                if peer.head().is_none() {
                    return;
                }
                count.fetch_add(1, Ordering::Relaxed);
                if peer.number == 0 && number == 1 {
                    return;
                }
                peer.ok("ok");
            }
        }));
        let mut client = proxy.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().status(), 200);
        client.send(second);
        assert_eq!(client.answer().status(), status, "{second:?}");
        assert_eq!(heads.load(Ordering::Relaxed), asked, "{second:?}");
        assert_eq!(proxy.totals().retries, u64::from(asked == 3));
    }
}

#[test]
fn request_is_retried_once_and_never_after_a_response_byte() {
    for (says, asked) in [("", 3), ("HTTP/1.1 2", 2)] {
        let heads = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&heads);
        let proxy = proxy(upstream(move |mut peer| {
            for number in 0.. {
                if peer.head().is_none() {
                    return;
                }
                count.fetch_add(1, Ordering::Relaxed);
                if peer.number > 0 || number > 0 {
                    peer.send(says);
                    return;
                }
                peer.ok("ok");
            }
        }));
        let mut client = proxy.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().status(), 200);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().status(), 502);
        assert_eq!(heads.load(Ordering::Relaxed), asked, "{says:?}");
    }
}

#[test]
fn post_does_not_use_a_closed_connection() {
    let (gone, told) = channel();
    let gone = Mutex::new(gone);
    let proxy = proxy(upstream(move |mut peer| {
        peer.head();
        peer.ok("ok");
        // Closes without an announcement.
        drop(peer);
        gone.lock().unwrap().send(()).unwrap();
    }));
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
    let mut client = proxy.connect();
    for _ in 0..3 {
        client.send(post);
        assert_eq!(client.answer().status(), 200);
        told.recv_timeout(common::LIMIT).unwrap();
        // Until it is noticed.
        thread::sleep(Duration::from_millis(50));
    }
}

/// As servers with NTLM and Negotiate do: a sign-in authenticates the whole connection.
#[test]
fn connection_with_a_sign_in_serves_no_other_client() {
    let address = upstream(|mut peer| {
        let mut who = "nobody";
        while let Some(head) = peer.head() {
            match header(&head, "authorization") {
                Some("NTLM first") => {
                    peer.send(
                        "HTTP/1.1 401 No\r\nWWW-Authenticate: NTLM then\r\nContent-Length: 0\r\n\r\n",
                    );
                    continue;
                }
                Some("NTLM last" | "Negotiate ticket" | "negotiate ticket") => who = "ann",
                _ => {}
            }
            peer.ok(who);
        }
    });
    let proxy = proxy(address);
    let says = |said: &str| {
        let more = format!("Authorization: {said}\r\nConnection: close\r\n");
        proxy.exchange(get("/").replace("Connection: close\r\n", &more))
    };
    for said in ["NTLM last", "Negotiate ticket", "negotiate ticket"] {
        assert_eq!(says(said).text(), "ann", "{said}");
        assert_eq!(proxy.get("/").text(), "nobody", "after {said}");
    }
    // Nor in the middle of the handshake. All other connections are kept, as usual.
    let connections = || proxy.totals().upstream_connections;
    for (said, more) in [("NTLM first", 1), ("Basic eA==", 0), ("Bearer x", 0)] {
        proxy.get("/");
        let before = connections();
        says(said);
        proxy.get("/");
        assert_eq!(connections(), before + more, "{said}");
    }
}

#[test]
fn requests_over_the_upstream_limit_wait_and_get_503() {
    let proxy = proxy_with(
        upstream(|mut peer| while peer.head().is_some() {}),
        |config| {
            config.limits.upstream_requests = std::num::NonZeroUsize::new(1);
            config.timeouts.connect = SHORT;
        },
        None,
    );
    let mut first = proxy.connect();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    proxy.wait("first request", |totals| totals.upstream_connections == 1);
    assert_eq!(proxy.get("/").status(), 503);
}

/// A site whose requests are all prefetches.
struct Ahead;

impl Site for Ahead {
    fn request(&self, _: &mut request::Parts, _: &Arc<Connection>) -> Decision {
        Decision::Watch(Box::new(Ahead))
    }
}

impl Exchange for Ahead {
    fn prefetch(&self) -> Option<PrefetchPriority> {
        Some(PrefetchPriority { client: 1, priority: 1.0 })
    }

    fn failed(&mut self, _: Failure) -> Option<Response<Body>> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Some(response)
    }
}

#[test]
fn prefetch_does_not_wait_for_an_upstream_slot() {
    let proxy = proxy_with(
        upstream(|mut peer| while peer.head().is_some() {}),
        |config| {
            config.limits.upstream_requests = std::num::NonZeroUsize::new(1);
            config.timeouts.connect = common::LIMIT;
        },
        Some(Arc::new(Ahead)),
    );
    let mut first = proxy.connect();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    proxy.wait("first request", |totals| totals.upstream_connections == 1);
    let begun = Instant::now();
    // With the answer of the site.
    assert_eq!(proxy.get("/").status(), 204);
    assert!(begun.elapsed() < common::LIMIT / 2, "{:?}", begun.elapsed());
    assert_eq!(proxy.totals().failures_of(Failure::Busy), 1);
}

#[test]
fn disconnected_client_cancels_its_request() {
    let (came, told) = channel();
    let came = Mutex::new(came);
    let proxy = proxy(upstream(move |mut peer| {
        peer.head().unwrap();
        came.lock().unwrap().send(true).unwrap();
        // Only the end follows.
        let rest = peer.stream.read_to_end(&mut Vec::new());
        came.lock().unwrap().send(rest.is_ok()).unwrap();
    }));
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    told.recv_timeout(common::LIMIT).unwrap();
    drop(client);
    told.recv_timeout(common::LIMIT).unwrap();
    let totals = proxy.wait("end", |totals| totals.open_connections == 0);
    assert_eq!(totals.failures_of(Failure::Client), 1);
    assert_eq!(totals.responses[4], 1, "as 499");
}

/// More than the buffers of all sockets in between hold. Its memory is measured in a separate process, in the
/// tests of the command.
const BIG: usize = 64 << 20;

#[test]
fn large_answer_is_streamed_at_the_speed_of_the_client() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let proxy = proxy(upstream(move |mut peer| {
        peer.head().unwrap();
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n"));
        let piece = vec![b'x'; 1 << 16];
        for _ in 0..BIG / piece.len() {
            peer.send(&piece);
            count.fetch_add(piece.len(), Ordering::Relaxed);
        }
    }));
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(header(&client.head(), "content-length"), Some(BIG.to_string().as_str()));
    // Without a reader the buffers of the sockets fill, and the transfer stops.
    thread::sleep(Duration::from_millis(300));
    assert!(sent.load(Ordering::Relaxed) < BIG / 2);
    let mut taken = 0;
    while taken < BIG {
        let piece = client.0.fill_buf().unwrap().len();
        assert_ne!(piece, 0);
        client.0.consume(piece);
        taken += piece;
    }
}

#[test]
fn large_upload_is_streamed_at_the_speed_of_the_upstream() {
    let proxy = proxy(upstream(|mut peer| {
        peer.head().unwrap();
        thread::sleep(Duration::from_millis(300));
        let mut taken = 0;
        while taken < BIG {
            let piece = peer.stream.fill_buf().unwrap().len();
            assert_ne!(piece, 0);
            peer.stream.consume(piece);
            taken += piece;
        }
        peer.ok("all of it");
    }));
    let mut client = proxy.connect();
    client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {BIG}\r\n\r\n"));
    let piece = vec![b'x'; 1 << 16];
    let started = Instant::now();
    for _ in 0..BIG / piece.len() {
        client.send(&piece);
    }
    assert!(started.elapsed() > Duration::from_millis(250), "it was held back");
    assert_eq!(client.answer().text(), "all of it");
}

#[test]
fn full_disk_stops_no_requests_and_is_reported_once() {
    let log = AccessLog::File("/dev/full".into());
    let proxy = proxy_with(mirror(), |config| config.access_log = Some(log), None);
    let lost = || proxy.told(|event| matches!(event, Event::LogLost { .. }));
    let visit = || {
        assert_eq!(proxy.get("/").status(), 200);
        thread::sleep(Duration::from_millis(20));
    };
    let begun = Instant::now();
    while lost() == 0 {
        assert!(begun.elapsed() < common::LIMIT, "no loss is reported");
        visit();
    }
    // Lines go to the disk a fifth of a second after they were written, and then the next ones.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_300) {
        visit();
    }
    assert_eq!(lost(), 1);
    proxy.server.stop();
    let events = proxy.events.lock().unwrap();
    let why = events.iter().find_map(|event| match event {
        Event::LogLost { why } => Some(why.as_str()),
        _ => None,
    });
    assert!(why.is_some_and(|why| why.contains("No space left")), "{why:?}");
    assert_eq!(events.iter().filter(|event| matches!(event, Event::LogLost { .. })).count(), 1);
}

#[test]
fn proxy_rejects_itself_as_upstream() {
    use lull_web::proxy::{Config, Listener, Server};
    let start = |upstream: &str, listen: &str, port: u16| {
        let mut config = Config::new(format!("http://{upstream}:{port}").parse().unwrap());
        config.listen.push(format!("{listen}:{port}").parse().unwrap());
        Server::start(config, None, Listener::new(|_| {})).map(drop)
    };
    for (upstream, listen) in [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("127.0.0.1", "0.0.0.0"),
        ("127.0.0.1", "[::]"),
        ("[::1]", "[::]"),
        ("0.0.0.0", "0.0.0.0"),
    ] {
        let error = start(upstream, listen, free_port()).unwrap_err();
        assert!(error.to_string().contains("this proxy itself"), "{upstream} {listen}: {error}");
    }
    // These are different: by another port, another address, another machine.
    for (upstream, listen) in [("127.0.0.2", "127.0.0.1"), ("192.0.2.1", "0.0.0.0")] {
        start(upstream, listen, free_port()).unwrap();
    }
}

#[test]
fn wildcard_listeners_of_both_families_coexist() {
    use lull_web::proxy::{Config, Listener, Server};
    let port = free_port();
    for order in [["[::]", "0.0.0.0"], ["0.0.0.0", "[::]"]] {
        let mut config = Config::new("http://192.0.2.1".parse().unwrap());
        config.listen = order.map(|all| format!("{all}:{port}").parse().unwrap()).to_vec();
        drop(Server::start(config, None, Listener::new(|_| {})).unwrap());
    }
    // Alone, the IPv6 address accepts both.
    let mut config = Config::new("http://192.0.2.1".parse().unwrap());
    config.listen.push(format!("[::]:{port}").parse().unwrap());
    let server = Server::start(config, None, Listener::new(|_| {})).unwrap();
    std::net::TcpStream::connect(("127.0.0.1", server.addresses()[0].address.port())).unwrap();
}
