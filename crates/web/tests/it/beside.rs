//! Prefetches and the proxy's own requests: their relation to visitors at the upstream, in the access log and
//! on the dashboard.

use std::fs;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Answer, LIMIT, Peer, Proxy, mirror, proxy_with, upstream};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lull_speculate::log::Reader;
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Limits};
use lull_speculate::predict::PpmParameters;
use lull_web::nps::{Access, Nps, Settings};
use lull_web::proxy::{AccessLog, Config};

const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0 Safari/537.36";
const HTTPS: &str = "X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.7\r\n";

/// A site behind prefetching, and its received requests.
struct Site {
    proxy: Proxy,
    asked: Arc<Mutex<Vec<String>>>,
}

/// Answers each request, except for robots.txt, by `serve`.
fn site(
    change: impl FnOnce(&mut Config),
    serve: impl Fn(&mut Peer, &str) + Send + Sync + 'static,
) -> Site {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&asked);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            heard.lock().unwrap().push(head.clone());
            if head.starts_with("GET /robots.txt ") {
                peer.send("HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
            } else {
                serve(&mut peer, &head);
            }
        }
    });
    let access = Access::Token("secret".into());
    let settings = Settings { trust_forwarded: true, access, ..Settings::default() };
    let model = Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped());
    let nps = Nps::new(settings, model, None);
    let change = |config: &mut Config| {
        config.trust_forwarded = true;
        change(config);
    };
    let site = Site { proxy: proxy_with(address, change, Some(Arc::new(nps))), asked };
    // Until robots.txt is known nothing is admitted.
    until(|| site.prefetch("/.-known", "1").status() == 200);
    site
}

#[track_caller]
fn until(is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(10));
    }
}

fn page(peer: &mut Peer, length: usize) {
    let page = "x".repeat(length);
    peer.send(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{page}"
    ));
}

fn visit(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {CHROME}\r\n\
         Accept: text/html\r\nConnection: close\r\n{more}\r\n"
    )
}

impl Site {
    fn visit(&self, path: &str, more: &str) -> Answer {
        self.proxy.exchange(visit(path, more))
    }

    fn prefetch(&self, path: &str, mark: &str) -> Answer {
        self.visit(path, &format!("{HTTPS}X-Lull: {mark}\r\n"))
    }

    fn figures(&self, of: &str) -> String {
        self.visit(&format!("/.lull/{of}"), "Authorization: Bearer secret\r\n").text()
    }

    fn asked(&self, path: &str) -> usize {
        let start = format!("GET {path} ");
        self.asked.lock().unwrap().iter().filter(|head| head.starts_with(&start)).count()
    }
}

#[test]
fn half_of_the_upstream_capacity_is_kept_for_visitors() {
    let is_held = Arc::new(AtomicBool::new(true));
    let holds = Arc::clone(&is_held);
    let site = site(
        |config| config.limits.upstream_requests = NonZeroUsize::new(4),
        move |peer, head| {
            while head.starts_with("GET /slow ") && holds.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            page(peer, 10);
        },
    );
    let mut visitors = [site.proxy.connect(), site.proxy.connect()];
    for (number, visitor) in visitors.iter_mut().enumerate() {
        visitor.send(visit("/slow", ""));
        until(|| site.asked("/slow") > number);
    }
    assert_eq!(site.prefetch("/b", "1").status(), 204);
    assert_eq!(site.asked("/b"), 0);
    let status = site.figures("status");
    assert!(status.contains("the server has half of its maximum"), "{status}");
    // It is not at its limit.
    assert_eq!(site.visit("/c", "").status(), 200);
    is_held.store(false, Ordering::Relaxed);
    until(|| site.prefetch("/b", "1").status() == 200);
}

#[test]
fn slow_client_does_not_hold_a_prefetch_at_the_upstream() {
    const LENGTH: usize = 200_000;
    let site = site(
        |config| {
            config.limits.upstream_requests = NonZeroUsize::new(1);
            config.timeouts.connect = Duration::from_secs(2);
        },
        |peer, head| page(peer, if head.starts_with("GET /big ") { LENGTH } else { 10 }),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(site.proxy.address()).await.unwrap();
        // Only a small part of the answer is sent, and more only when it is read.
        let (mut sender, driver): (SendRequest<Empty<Bytes>>, _) =
            Builder::new(TokioExecutor::new())
                .initial_stream_window_size(65_535)
                .handshake(TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(driver);
        let request = Request::get("http://site.example/big")
            .header("user-agent", CHROME)
            .header("accept", "text/html")
            .header("x-lull", "1")
            .body(Empty::new())
            .unwrap();
        let ahead = sender.send_request(request).await.unwrap();
        assert_eq!(ahead.status(), 200);
        assert_eq!(site.visit("/b", "").status(), 200);
        let body = ahead.into_body().collect().await.unwrap().to_bytes();
        assert!(body.len() == LENGTH && body.iter().all(|byte| *byte == b'x'));
    });
    drop(runtime);
    let totals = site.proxy.wait("end", |totals| totals.open_connections == 0);
    assert_eq!(totals.failures, [0; 10]);
}

#[test]
fn truncated_prefetch_does_not_look_complete() {
    let (heard, has_heard) = channel();
    let has_heard = Mutex::new(has_heard);
    let site = site(
        |_| {},
        move |peer, head| {
            if head.starts_with("GET /known ") {
                peer.send(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\n",
                );
                peer.send("hello");
            } else if head.starts_with("GET /unknown ") {
                peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n");
                peer.send("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
            } else {
                return page(peer, 10);
            }
            has_heard.lock().unwrap().recv_timeout(LIMIT).unwrap();
            let _ = peer.stream.get_ref().shutdown(std::net::Shutdown::Both);
        },
    );
    for path in ["/known", "/unknown"] {
        let request = visit(path, &format!("{HTTPS}X-Lull: 1\r\n"));
        let answer = site.proxy.until_it_breaks(request, "hello", &heard);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"), "{path}");
        assert!(!answer.is_whole, "{path}");
    }
    assert!(site.prefetch("/b", "1").is_whole);
}

#[test]
fn access_log_has_the_navigations_and_their_clients() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = AccessLog::File(path.clone());
    let site = site(|config| config.access_log = Some(log), |peer, _| page(peer, 10));
    assert_eq!(site.prefetch("/b", "1").status(), 200);
    assert_eq!(site.prefetch("/b?c", "1").status(), 204);
    assert_eq!(site.prefetch("/b", "2").status(), 204);
    let script = lull_web::script::script().path.as_str();
    assert_eq!(site.visit(script, "").status(), 200);
    site.figures("status");
    for (path, status) in [("/a", 200), ("/.lull/none", 404)] {
        assert_eq!(site.visit(path, HTTPS).status(), status);
    }
    // An unparsable request is logged with its connection's address.
    let refused = site.proxy.exchange("GET / HTTP/1.1\r\nX-Lull: 1\r\n\r\n");
    assert_eq!(refused.status(), 400);
    site.proxy.wait("ends", |totals| totals.open_connections == 0);
    site.proxy.server.stop();
    let log = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = log.lines().collect();
    let [a, malformed] = lines[..] else { panic!("{log}") };
    assert!(a.starts_with("192.0.2.7 - - [") && a.contains("\"GET /a HTTP/1.1\" 200 10 "), "{a}");
    assert!(malformed.starts_with("127.0.0.1 - - [") && malformed.contains(" 400 "), "{malformed}");
}

#[test]
fn access_log_has_pages_shown_from_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = AccessLog::File(path.clone());
    let site = site(|config| config.access_log = Some(log), |peer, _| page(peer, 10));
    assert_eq!(site.prefetch("/b", "1").status(), 200);
    let say = |of: &str, message: &str| {
        site.proxy.exchange(format!(
            "POST /.lull/{of} HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {CHROME}\r\n{HTTPS}\
             Content-Type: application/json\r\nReferer: https://site.example/b\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{message}",
            message.len()
        ))
    };
    // Once, also if it is repeated; and not for a page that was in the browser's cache anyway.
    for shown in ["/b", "/a"] {
        let ask = format!(r#"{{"v":1,"page":"{shown}","first":true,"cached":true}}"#);
        assert_eq!(say("hints", &ask).status(), 200);
        let report = format!(
            r#"{{"v":1,"page":"{shown}","nav":{{"type":"navigate","cached":true,"ttfb":1,"load":2}}}}"#
        );
        assert_eq!(say("beacon", &report).status(), 204);
    }
    site.proxy.wait("ends", |totals| totals.open_connections == 0);
    site.proxy.server.stop();
    let log = fs::read_to_string(&path).unwrap();
    let [line] = log.lines().collect::<Vec<_>>()[..] else { panic!("{log}") };
    assert!(line.starts_with("192.0.2.7 prefetched - ["), "{line}");
    let end = format!("\"GET /b HTTP/1.1\" 200 - \"-\" \"{CHROME}\"");
    assert!(line.ends_with(&end), "{line}");
    // The predictor reads it as a visit.
    let mut reader = Reader::detect([line.as_bytes()]).unwrap();
    let entry = reader.read(line.as_bytes()).unwrap();
    let visit = (&*entry.client, &*entry.target, entry.prefetch, entry.private);
    assert_eq!(visit, ("192.0.2.7", "/b", false, false));
}

#[test]
fn access_log_has_all_requests_without_prefetching() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = AccessLog::File(path.clone());
    let proxy = proxy_with(mirror(), |config| config.access_log = Some(log), None);
    assert_eq!(proxy.exchange(visit("/.lull/a", "X-Lull: 1\r\n")).status(), 200);
    proxy.wait("end", |totals| totals.open_connections == 0);
    proxy.server.stop();
    let log = fs::read_to_string(&path).unwrap();
    assert!(log.contains("\"GET /.lull/a HTTP/1.1\" 200 "), "{log}");
}

/// A site whose `/chat` is a WebSocket, which sets a cookie.
fn chatting() -> Site {
    site(
        |_| {},
        |peer, head| {
            if head.starts_with("GET /chat ") {
                peer.send(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                     Upgrade: websocket\r\nSet-Cookie: session=1\r\n\r\n",
                );
            } else {
                page(peer, 10);
            }
        },
    )
}

/// A handshake with these fields.
fn chat(site: &Site, more: &str) -> String {
    let mut client = site.proxy.connect();
    client.send(
        visit("/chat", &format!("{HTTPS}Upgrade: websocket\r\n{more}"))
            .replace("Connection: close", "Connection: Upgrade"),
    );
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("set-cookie: session=1"), "{head}");
    head
}

#[test]
fn password_of_a_websocket_marks_its_browser() {
    let site = chatting();
    let head = chat(&site, "Authorization: Basic eA==\r\n");
    assert!(head.contains("set-cookie: lull_auth=1; "), "{head}");
    assert!(!chat(&site, "").contains("lull_auth"));
}

#[test]
fn prefetch_cannot_upgrade_the_protocol() {
    let site = chatting();
    let answer =
        site.visit("/chat", "Connection: Upgrade, close\r\nUpgrade: websocket\r\nX-Lull: 1\r\n");
    assert_eq!((answer.status(), answer.header("upgrade")), (204, None), "{answer:?}");
}

#[test]
fn metrics_report_the_work_of_the_proxy() {
    let site = site(
        |_| {},
        |peer, head| {
            if head.starts_with("GET /broken ") {
                peer.send("SSH-2.0-OpenSSH_9.2\r\n");
            } else {
                page(peer, 10);
            }
        },
    );
    assert_eq!(site.visit("/broken", "").status(), 502);
    assert_eq!(site.visit("/.lull/none", "").status(), 404);
    site.proxy.wait("ends", |totals| totals.open_connections == 0);
    let text = site.figures("metrics");
    for line in [
        "lull_web_responses_total{class=\"4xx\"} 1",
        "lull_web_responses_total{class=\"5xx\"} 1",
        "lull_web_failures_total{failure=\"garbage\"} 1",
        "lull_web_failures_total{failure=\"unreachable\"} 0",
        "lull_web_retries_total 0",
        "lull_web_refused_connections_total 0",
        "# TYPE lull_web_open_connections gauge",
        // The connection of this request.
        "lull_web_open_connections 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
