//! A site's view of the traffic, and its possible changes; and the class of marked requests' answers.

use crate::common;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use crate::common::far::{WAY, way_to};
use crate::common::{header, mirror, proxy_with, unused_address, upstream};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header as names, request, response};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use lull_transport::{Carrier, Options};
use lull_web::proxy::{
    Address, Body, BoxError, Connection, Decision, Exchange, Failure, Fetcher, Listener, Metrics,
    Outcome, RequestBody, Site,
};

/// Answers some paths itself, changes the others to upper case, and records its observations.
#[derive(Default)]
struct Shouting {
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    carriers: Mutex<Vec<Option<Carrier>>>,
    metrics: Mutex<Option<Metrics>>,
    doors: Mutex<Vec<Address>>,
    reloads: Mutex<u32>,
    changes: Mutex<u32>,
}

impl Site for Shouting {
    fn started(&self, metrics: &Metrics, _: Fetcher, _: &Listener) {
        *self.metrics.lock().unwrap() = Some(metrics.clone());
    }

    fn listens(&self, at: Address) {
        self.doors.lock().unwrap().push(at);
    }

    fn reloaded(&self) {
        *self.reloads.lock().unwrap() += 1;
    }

    fn upstream_changed(&self) {
        *self.changes.lock().unwrap() += 1;
    }

    fn request(&self, head: &mut request::Parts, connection: &Arc<Connection>) -> Decision {
        assert!(connection.peer().ip().is_loopback() && !connection.is_secure());
        self.carriers.lock().unwrap().push(connection.carrier());
        match head.uri.path() {
            "/.lull/hints" => Decision::Answer(Response::new(Body::full("hints"))),
            "/.lull/beacon" => Decision::AnswerLater(Box::new(|request: Request<RequestBody>| {
                Box::pin(async move {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    Response::new(Body::full(format!("{} bytes", body.len())))
                })
            })),
            "/quiet" => Decision::Forward,
            _ => {
                head.headers.insert("x-seen", HeaderValue::from_static("yes"));
                Decision::Watch(Box::new(Shout { outcomes: Arc::clone(&self.outcomes) }))
            }
        }
    }
}

struct Shout {
    outcomes: Arc<Mutex<Vec<Outcome>>>,
}

impl Exchange for Shout {
    fn response(&mut self, head: &mut response::Parts, body: Body) -> Body {
        assert!(!head.headers.contains_key(names::ALT_SVC));
        head.headers.remove(names::CONTENT_LENGTH);
        Body::wrap(Upper(body))
    }

    fn ended(self: Box<Self>, outcome: &Outcome) {
        self.outcomes.lock().unwrap().push(*outcome);
    }
}

/// A body in capitals, followed by a mark.
struct Upper(Body);

impl http_body::Body for Upper {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(cx).map(|frame| {
            frame.map(|frame| {
                frame.map(|frame| frame.map_data(|data| data.to_ascii_uppercase().into()))
            })
        })
    }
}

fn shouting(address: std::net::SocketAddr) -> (common::Proxy, Arc<Shouting>) {
    let site = Arc::new(Shouting::default());
    let proxy = proxy_with(
        address,
        |config| config.background = Options::new().carrier(Carrier::UserSpace),
        Some(Arc::clone(&site) as _),
    );
    (proxy, site)
}

#[test]
fn site_answers_its_own_paths() {
    let (proxy, _) = shouting(unused_address());
    assert_eq!(proxy.get("/.lull/hints").text(), "hints");
    let mut client = proxy.connect();
    client.send("POST /.lull/beacon HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.answer().text(), "5 bytes");
    client.send("HEAD /.lull/hints HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = client.rest();
    assert_eq!((answer.header("content-length"), answer.text().as_str()), (Some("5"), ""));
    let totals = proxy.wait("ends", |totals| totals.responses[2] == 3);
    assert_eq!(totals.failures, [0; 10]);
}

#[test]
fn site_transforms_only_watched_responses() {
    let (proxy, site) = shouting(mirror());
    let loud = proxy.get("/loud");
    assert!(loud.text().starts_with("GET /LOUD HTTP/1.1\r\n"), "{loud:?}");
    assert!(loud.text().contains("X-SEEN: YES\r\n"));
    assert!(loud.is_whole && loud.header("content-length").is_none(), "{loud:?}");
    let quiet = proxy.get("/quiet");
    assert!(quiet.text().starts_with("GET /quiet HTTP/1.1\r\n"), "{quiet:?}");
    proxy.wait("ends", |totals| totals.responses[2] == 2);
    let outcomes = site.outcomes.lock().unwrap();
    let [outcome] = outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!((outcome.status, outcome.failure), (200, None));
    assert_eq!(outcome.bytes, loud.body.len() as u64);
    assert!(outcome.time_to_first_byte.unwrap() <= outcome.duration);
    let metrics = site.metrics.lock().unwrap().clone().unwrap();
    assert_eq!(metrics.totals(), proxy.totals());
}

#[test]
fn upstream_time_excludes_the_network_path() {
    let folder = tempfile::tempdir().unwrap();
    let files = common::certificate(folder.path());
    let roots = files.certificates.clone();
    let behind = proxy_with(mirror(), |config| config.sites[0].certificate = Some(files), None);
    let url = format!("https://localhost:{}", way_to(behind.address()).port());
    let site = Arc::new(Shouting::default());
    let change = |config: &mut lull_web::proxy::Config| {
        let upstream = &mut config.sites[0].upstream;
        (upstream.servers[0], upstream.roots) = (url.parse().unwrap(), Some(roots));
        config.background = Options::new().carrier(Carrier::UserSpace);
    };
    let proxy = proxy_with(unused_address(), change, Some(Arc::clone(&site) as _));
    proxy.get("/loud");
    proxy.wait("an end", |totals| totals.responses[2] == 1);
    let outcomes = site.outcomes.lock().unwrap();
    let [outcome] = outcomes[..] else { panic!("{outcomes:?}") };
    let (whole, upstream) = (outcome.time_to_first_byte.unwrap(), outcome.upstream_time.unwrap());
    assert!(whole >= WAY && upstream + WAY <= whole, "{upstream:?} of {whole:?}");
}

#[test]
fn upstream_time_is_reported_unless_clients_can_inflate_it() {
    let (proxy, site) = shouting(upstream(|mut peer| {
        while let Some(head) = peer.head() {
            if head.starts_with("POST ") {
                peer.body(5);
            }
            peer.ok("ok");
        }
    }));
    proxy.get("/without");
    let mut client = proxy.connect();
    client.send("POST /with HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\n");
    // It counts from its arrival to the head.
    proxy.wait("the head", |totals| totals.requests == 2);
    std::thread::sleep(std::time::Duration::from_millis(400));
    client.send("hello");
    client.rest();
    proxy.wait("ends", |totals| totals.responses[2] == 2);
    let outcomes = site.outcomes.lock().unwrap();
    let [without, with] = outcomes[..] else { panic!("{outcomes:?}") };
    assert!(without.upstream_time.unwrap() <= without.time_to_first_byte.unwrap());
    assert!(with.time_to_first_byte.unwrap().as_millis() >= 200);
    assert_eq!(with.upstream_time, None);
}

#[test]
fn site_receives_listener_addresses_and_owner_reloads() {
    let site = Arc::new(Shouting::default());
    let change = |config: &mut lull_web::proxy::Config| {
        config.listen.push("127.0.0.1:0".parse().unwrap());
        config.listen_background = Some("127.0.0.1:0".parse().unwrap());
    };
    let proxy = proxy_with(mirror(), change, Some(Arc::clone(&site) as _));
    assert_eq!(*site.doors.lock().unwrap(), proxy.server.addresses());
    for count in 1..3 {
        proxy.server.reload();
        assert_eq!(*site.reloads.lock().unwrap(), count);
    }
    assert_eq!(*site.changes.lock().unwrap(), 0);
    proxy.server.upstream_changed();
    assert_eq!((*site.reloads.lock().unwrap(), *site.changes.lock().unwrap()), (2, 1));
}

#[test]
fn site_receives_the_failure() {
    let (proxy, site) = shouting(upstream(|mut peer| {
        let head = peer.head().unwrap();
        if head.contains("/broken") {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello");
        } else {
            // Until the client has disconnected.
            let _ = peer.head();
        }
    }));
    assert!(!proxy.get("/broken").is_whole);
    proxy.wait("first end", |totals| totals.responses[2] == 1);
    let mut client = proxy.connect();
    client.send("GET /left HTTP/1.1\r\nHost: a\r\n\r\n");
    proxy.wait("request", |totals| totals.upstream_connections == 2);
    drop(client);
    proxy.wait("second end", |totals| totals.responses[4] == 1);
    // The result comes a moment later.
    proxy.wait("two outcomes", |_| site.outcomes.lock().unwrap().len() == 2);
    let outcomes = site.outcomes.lock().unwrap();
    let ends: Vec<_> = outcomes.iter().map(|outcome| (outcome.status, outcome.failure)).collect();
    assert_eq!(ends, [(200, Some(Failure::Reset)), (499, Some(Failure::Client))]);
    assert_eq!(outcomes[1].time_to_first_byte, None);
}

#[test]
fn connection_is_background_from_marked_to_unmarked_request() {
    let (proxy, site) = shouting(mirror());
    let mut client = proxy.connect();
    let mut ask = |mark: &str| {
        client.send(format!("GET /quiet HTTP/1.1\r\nHost: a\r\n{mark}\r\n"));
        let sent = client.answer().text();
        assert_eq!(header(&sent, "x-lull"), None, "{sent}");
        header(&sent, "sec-purpose").map(str::to_owned)
    };
    let mark = "X-Lull: 1\r\n";
    let purposes = ["", mark, mark, "", mark, ""].map(&mut ask);
    let purposes = purposes.each_ref().map(Option::as_deref);
    let prefetch = Some("prefetch");
    assert_eq!(purposes, [None, prefetch, prefetch, None, prefetch, None]);
    // Each request sees where the answer to the previous one was sent from.
    let there = Some(Carrier::UserSpace);
    assert_eq!(*site.carriers.lock().unwrap(), [None, None, there, there, None, there]);
    assert_eq!(proxy.totals().marked, 3);
}

#[test]
fn background_listener_keeps_all_requests_in_background() {
    let site = Arc::new(Shouting::default());
    let proxy = proxy_with(
        mirror(),
        |config| {
            config.background = Options::new().carrier(Carrier::UserSpace);
            config.listen_background = Some("127.0.0.1:0".parse().unwrap());
        },
        Some(Arc::clone(&site) as _),
    );
    let [demand, background] = proxy.server.addresses() else { panic!("two listeners") };
    assert!(!demand.background && background.background);
    for (at, expected) in [(demand, None), (background, Some(Carrier::UserSpace))] {
        let mut client = common::Client::connect(at.address);
        for _ in 0..3 {
            client.send("GET /quiet HTTP/1.1\r\nHost: a\r\n\r\n");
            client.answer();
        }
        // From the first request on.
        let found: Vec<_> = site.carriers.lock().unwrap().drain(..).collect();
        assert_eq!(found, [expected; 3]);
    }
    assert_eq!(proxy.totals().marked, 0);
}

#[test]
fn kernel_carries_marked_answers_if_it_can() {
    lull_testing::needs!(lull_testing::command("ss"));
    let site = Arc::new(Shouting::default());
    // Any congestion control that every kernel has and that is not the default.
    let here = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let other = if here.trim() == "reno" { "cubic" } else { "reno" };
    let proxy = proxy_with(
        mirror(),
        |config| config.background = Options::new().congestion_control(other),
        Some(Arc::clone(&site) as _),
    );
    let mut client = proxy.connect();
    let port = client.0.get_ref().local_addr().unwrap().port();
    let mut control = |mark: &str| {
        client.send(format!("GET /quiet HTTP/1.1\r\nHost: a\r\n{mark}\r\n"));
        client.answer();
        let output = std::process::Command::new("ss")
            .args(["-tinH", "state", "established", &format!("dport = :{port}")])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().find(|word| [here.trim(), other].contains(word)).map(str::to_owned)
    };
    assert_eq!(control("").as_deref(), Some(here.trim()));
    assert_eq!(control("X-Lull: 1\r\n").as_deref(), Some(other));
    assert_eq!(control("").as_deref(), Some(here.trim()));
}

#[test]
fn unwatched_response_keeps_its_length() {
    let (proxy, _) = shouting(mirror());
    assert!(proxy.get("/quiet").header("content-length").is_some());
    let body = Body::full("five!");
    assert_eq!(body.size_hint().exact(), Some(5));
}
