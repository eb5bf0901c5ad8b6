//! The rules, the script inserter and the proxy as one, over real sockets.
use crate::common;
mod compression;
mod http2;
mod http2_upstream;
mod in_halves;
mod opting_out;
mod replies;
mod robots;
mod routes;
mod scheduling;
mod second_server;
mod signing_in;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Answer, LIMIT, Peer, Proxy, header, proxy_with, upstream};
use in_halves::{in_halves, slow_upstream};
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Limits};
use lull_speculate::predict::PpmParameters;
use lull_transport::{Carrier, Options};
use lull_web::nps::{Access, Nps, Settings};
use lull_web::proxy::{Connection, Decision, Event, Fetcher, Listener, Metrics, Site};
use lull_web::script::script;

const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0 Safari/537.36";
const PAGE: &str = "<!doctype html><html><head><title>a</title></head><body>b</body></html>";

/// The request of a visitor's browser for a page.
fn visit(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {CHROME}\r\n\
         Accept: text/html\r\nConnection: close\r\n{more}\r\n"
    )
}

/// The request of the script.
fn prefetch(path: &str, mark: &str, more: &str) -> String {
    visit(path, &format!("X-Lull: {mark}\r\n{more}"))
}

fn page(fields: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         {fields}\r\n{body}",
        body.len()
    )
}

fn without_the_tag(page: &str) -> String {
    let Some(at) = page.find("<script async") else { return page.to_owned() };
    let end = page[at..].find("</script>").unwrap() + "</script>".len();
    format!("{}{}", &page[..at], &page[at + end..])
}

/// A site with prefetching in front of it.
struct Fronted {
    proxy: Proxy,
    asked: Arc<Mutex<Vec<String>>>,
}

/// Answers each request, except for robots.txt, by `serve`.
fn fronted_with(
    settings: Settings,
    robots: &'static str,
    serve: impl Fn(&mut Peer, &str) + Send + Sync + 'static,
) -> Fronted {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&asked);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            heard.lock().unwrap().push(head.clone());
            if head.starts_with("GET /robots.txt ") {
                peer.send(robots);
            } else {
                serve(&mut peer, &head);
            }
        }
    });
    let site = Arc::new(nps(settings.clone()));
    let proxy = proxy_with(
        address,
        |config| {
            config.trust_forwarded = settings.trust_forwarded;
            config.background = Options::new().carrier(Carrier::UserSpace);
        },
        Some(site),
    );
    Fronted { proxy, asked }
}

/// Prefetching with an empty model.
fn nps(settings: Settings) -> Nps {
    let hasher = ClientHasher::new([7; 16]);
    let model = Model::new(hasher, Limits::default(), PpmParameters::shipped());
    Nps::new(settings, model, None)
}

const NO_ROBOTS: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

fn fronted(serve: impl Fn(&str) -> String + Send + Sync + 'static) -> Fronted {
    let fronted = fronted_with(Settings::default(), NO_ROBOTS, move |peer, head| {
        let answer = serve(head);
        peer.send(answer);
    });
    fronted.until_robots_are_known();
    fronted
}

impl Fronted {
    /// The heads that the upstream has seen for a path.
    fn asked(&self, path: &str) -> Vec<String> {
        let start = format!("GET {path} ");
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|head| head.starts_with(&start)).cloned().collect()
    }

    fn until_robots_are_known(&self) {
        let begun = Instant::now();
        while self.proxy.exchange(prefetch("/.-known", "1", "")).status() != 200 {
            assert!(begun.elapsed() < LIMIT, "nothing is ever let through");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn visit(&self, path: &str, more: &str) -> Answer {
        self.proxy.exchange(visit(path, more))
    }

    /// The reply to a script that has a copy of `path` with this ETag, and requests it again with this mark.
    fn asks_again(&self, path: &str, mark: &str, tag: &str, more: &str) -> Answer {
        self.proxy.exchange(prefetch(path, mark, &format!("If-None-Match: {tag}\r\n{more}")))
    }

    fn prefetch(&self, path: &str) -> Answer {
        self.proxy.exchange(prefetch(path, "1", ""))
    }
}

#[test]
fn page_gets_the_script_and_its_new_length() {
    let site = fronted(|_| page("ETag: \"a\"\r\nAlt-Svc: h3=\":443\"\r\n", PAGE));
    let answer = site.visit("/", "");
    assert!(answer.is_whole, "{answer:?}");
    assert!(answer.text().contains(&format!("src=\"{}\"", script().path)), "{answer:?}");
    assert_eq!(without_the_tag(&answer.text()), PAGE);
    for (name, expected) in
        [("content-length", None), ("etag", Some("W/\"a\"")), ("alt-svc", None), ("vary", None)]
    {
        assert_eq!(answer.header(name), expected, "{name}");
    }
    let head = site.proxy.exchange(visit("/", "").replacen("GET", "HEAD", 1));
    assert_eq!((head.header("content-length"), head.header("etag")), (None, Some("W/\"a\"")));
    assert_eq!(head.text(), "");
}

#[test]
fn each_chunk_of_a_page_is_forwarded_on_arrival() {
    let (go, gone) = channel::<()>();
    let gone: Mutex<Receiver<()>> = Mutex::new(gone);
    let site = fronted_with(Settings::default(), NO_ROBOTS, move |peer, _| {
        let (first, second) = PAGE.split_at(PAGE.find("b</body>").unwrap());
        peer.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n\
             {:x}\r\n{first}\r\n",
            first.len()
        ));
        // Only once the client has the first piece.
        gone.lock().unwrap().recv_timeout(LIMIT).unwrap();
        peer.send(format!("{:x}\r\n{second}\r\n0\r\n\r\n", second.len()));
    });
    let mut client = site.proxy.connect();
    client.send(visit("/", ""));
    let mut seen = client.head();
    while !seen.ends_with("<body>") {
        seen += &String::from_utf8(client.exactly(1)).unwrap();
    }
    go.send(()).unwrap();
    seen += &client.rest().text();
    assert!(seen.contains("<script async"), "{seen}");
}

#[test]
fn small_chunk_with_a_long_page_passes_complete() {
    let body = format!("{PAGE}<!-- {} -->", " ".repeat(20 << 20));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(body.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let site = fronted_with(Settings::default(), NO_ROBOTS, move |peer, _| {
        let fields = "Content-Type: text/html\r\nContent-Encoding: gzip\r\n";
        peer.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", packed.len()));
        peer.send(&packed);
    });
    let answer = site.visit("/", "");
    assert!(answer.is_whole);
    let mut plain = String::new();
    std::io::Read::read_to_string(
        &mut flate2::read::MultiGzDecoder::new(&answer.body[..]),
        &mut plain,
    )
    .unwrap();
    assert!(without_the_tag(&plain) == body, "{} bytes", plain.len());
}

#[test]
fn truncated_page_stays_truncated() {
    let site = fronted_with(Settings::default(), NO_ROBOTS, |peer, _| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000\r\n\r\n");
        peer.send("<html><head><title>a");
        let socket = peer.stream.get_ref().try_clone().unwrap();
        socket.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let answer = site.visit("/", "");
    assert!(!answer.is_whole, "{answer:?}");
}

#[test]
fn signed_in_user_gets_the_page_unchanged() {
    let site = fronted(|_| page("ETag: \"a\"\r\n", PAGE));
    for more in ["Cookie: session=1\r\n", "Authorization: Basic eA==\r\n", "Save-Data: on\r\n"] {
        let answer = site.visit("/", more);
        assert_eq!(
            (answer.text().as_str(), answer.header("etag")),
            (PAGE, Some("\"a\"")),
            "{more}"
        );
    }
}

#[test]
fn script_is_immutable_and_compressed_if_accepted() {
    let site = fronted(|_| page("", PAGE));
    let plain = site.visit(&script().path, "");
    assert_eq!(plain.text(), script().body);
    for (name, expected) in [
        ("content-type", "text/javascript; charset=utf-8"),
        ("cache-control", "public, max-age=31536000, immutable"),
        ("vary", "Accept-Encoding"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(plain.header(name), Some(expected));
    }
    let packed = site.visit(&script().path, "Accept-Encoding: br, gzip\r\n");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed.body[..]), &mut text)
        .unwrap();
    assert_eq!(text, script().body);
    assert_eq!(site.visit("/.lull/lull-0000000000000000.js", "").status(), 404);
    assert_eq!(site.asked("/.lull/lull-0000000000000000.js").len(), 0);
}

#[test]
fn prefetch_is_marked_upstream_and_private_downstream() {
    let site = fronted(|_| {
        page("Cache-Control: public, max-age=9999\r\nETag: \"a\"\r\nAlt-Svc: clear\r\n", PAGE)
    });
    let answer = site.proxy.exchange(prefetch("/b", "1", "If-None-Match: \"a\"\r\n"));
    assert_eq!(answer.status(), 200);
    for (name, expected) in [
        ("cache-control", Some("private, max-age=300")),
        ("vary", Some("Cookie")),
        ("alt-svc", None),
        ("content-length", None),
    ] {
        assert_eq!(answer.header(name), expected, "{name}");
    }
    // The page that the navigation finds has the script.
    assert!(answer.text().contains("<script async"), "{answer:?}");
    let asked = &site.asked("/b")[0];
    for (name, expected) in
        [("x-lull", None), ("if-none-match", None), ("sec-purpose", Some("prefetch"))]
    {
        assert_eq!(header(asked, name), expected, "{name} in {asked}");
    }
}

#[test]
fn complete_prefetch_is_no_failure() {
    let site = fronted(|head| match head.split(' ').nth(1).unwrap() {
        "/page" => page("", PAGE),
        _ => "HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nContent-Length: 4\r\n\r\na {}".into(),
    });
    let before = site.proxy.wait("ends", |totals| totals.open_connections == 0);
    for path in ["/page", "/style.css"] {
        let answer = site.prefetch(path);
        assert!(answer.status() == 200 && answer.is_whole, "{answer:?}");
    }
    let totals = site.proxy.wait("ends", |totals| totals.open_connections == 0);
    assert_eq!(totals.requests, before.requests + 2);
    assert_eq!(totals.failures, before.failures);
}

#[test]
fn side_effect_seen_by_a_visitor_bars_a_url() {
    let site = fronted(|head| match head.split(' ').nth(1).unwrap() {
        "/moved" => "HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n".into(),
        "/cookie" => page("Set-Cookie: a=b\r\n", PAGE),
        "/off" => page("", &PAGE.replace("<title>", "<meta name=lull content=off><title>")),
        "/leads" => {
            let meta = "<meta http-equiv=refresh content='0; url=/a'><title>";
            page("", &PAGE.replace("<title>", meta))
        }
        _ => page("", PAGE),
    });
    for path in ["/moved", "/cookie", "/off", "/leads"] {
        assert_eq!(site.asked(path).len(), 0);
        site.visit(path, "");
        let answer = site.prefetch(path);
        assert_eq!((answer.status(), answer.text().as_str()), (204, ""), "{path}");
        assert_eq!(site.asked(path).len(), 1, "{path}");
    }
    assert_eq!(site.prefetch("/a").status(), 200);
}

#[test]
fn private_reply_is_not_given_to_a_prefetch() {
    let site = fronted(|head| match head.split(' ').nth(1).unwrap() {
        "/private" => page("Cache-Control: private\r\n", "a private page"),
        _ => page("", PAGE),
    });
    let answer = site.prefetch("/private");
    assert_eq!((answer.status(), answer.text().as_str()), (204, ""));
    // And not requested again.
    assert_eq!(site.prefetch("/private").status(), 204);
    assert_eq!(site.asked("/private").len(), 1);
}

#[test]
fn unchanged_page_gets_304() {
    let site = fronted(|head| match header(head, "if-none-match") {
        Some(tags) if tags.contains(", \"a\"") => "HTTP/1.1 304 Same\r\nETag: \"a\"\r\n\r\n".into(),
        _ => page("ETag: \"a\"\r\n", PAGE),
    });
    let answer = site.visit("/", "If-None-Match: W/\"a\"\r\n");
    assert_eq!((answer.status(), answer.header("etag")), (304, Some("W/\"a\"")));
    assert_eq!(header(&site.asked("/")[0], "if-none-match"), Some("W/\"a\", \"a\""));
}

#[test]
fn only_requests_for_its_host_belong_to_the_site() {
    let settings =
        Settings { hosts: vec!["www.site.example".parse().unwrap()], ..Settings::default() };
    let site = fronted_with(settings, NO_ROBOTS, |peer, _| peer.send(page("", PAGE)));
    let named = |request: String| request.replace("site.example", "www.Site.example");
    let begun = Instant::now();
    while site.proxy.exchange(named(prefetch("/b", "1", ""))).status() != 200 {
        assert!(begun.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(header(&site.asked("/robots.txt")[0], "host"), Some("www.site.example"));
    assert!(site.proxy.exchange(named(visit("/", ""))).text().contains("<script async"));
    assert_eq!(site.visit("/", "").text(), PAGE);
    assert_eq!(site.prefetch("/b").status(), 204);
}

#[test]
fn own_requests_use_the_host_of_visitor_requests() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&asked);
    // It has one name itself, and redirects to the other one.
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            heard.lock().unwrap().push(head.clone());
            peer.send(match head.split(' ').nth(1).unwrap() {
                _ if header(&head, "host") != Some("inner.example") => {
                    "HTTP/1.1 421 Whom\r\nContent-Length: 0\r\n\r\n".to_owned()
                }
                "/robots.txt" => format!(
                    "HTTP/1.1 301 Go\r\nLocation: http://{}/robots\r\nContent-Length: 0\r\n\r\n",
                    header(&head, "x-forwarded-host").unwrap()
                ),
                "/robots" => NO_ROBOTS.to_owned(),
                _ => page("", PAGE),
            });
        }
    });
    let settings = Settings { hosts: vec!["site.example".parse().unwrap()], ..Settings::default() };
    let proxy = proxy_with(
        address,
        |config| config.sites[0].upstream.host = Some("inner.example".parse().unwrap()),
        Some(Arc::new(nps(settings))),
    );
    until(|| !asked.lock().unwrap().is_empty());
    assert_eq!(proxy.exchange(visit("/", "")).status(), 200);
    for head in asked.lock().unwrap().iter() {
        for (name, expected) in [("host", "inner.example"), ("x-forwarded-host", "site.example")] {
            assert_eq!(header(head, name), Some(expected), "{head}");
        }
    }
    until(|| proxy.exchange(prefetch("/b", "1", "")).status() == 200);
}

#[test]
fn cdn_in_front_is_reported_once() {
    let site = fronted(|_| page("", PAGE));
    let told = || {
        site.proxy.told(|event| matches!(event, Event::BehindCdn { name } if name == "cdn-loop: a"))
    };
    assert_eq!(told(), 0);
    for _ in 0..2 {
        site.visit("/", "CDN-Loop: a\r\n");
        assert_eq!(told(), 1);
    }
}

/// Prefetching, and for each request the place of its connection on arrival.
struct Watching(Nps, Mutex<Vec<(Arc<Connection>, Option<Carrier>)>>);

impl Watching {
    fn new() -> Arc<Self> {
        let settings = Settings { trust_forwarded: true, ..Settings::default() };
        Arc::new(Watching(nps(settings), Mutex::default()))
    }

    /// A proxy with it as its site, and the carrier that each machine has.
    fn in_front_of(self: &Arc<Self>, upstream: SocketAddr) -> Proxy {
        proxy_with(
            upstream,
            |config| config.background = Options::new().carrier(Carrier::UserSpace),
            Some(Arc::clone(self) as _),
        )
    }
}

impl Site for Watching {
    fn started(&self, metrics: &Metrics, fetcher: Fetcher, listener: &Listener) {
        self.0.started(metrics, fetcher, listener);
    }

    fn request(&self, head: &mut http::request::Parts, connection: &Arc<Connection>) -> Decision {
        let seen = (Arc::clone(connection), connection.carrier());
        self.1.lock().unwrap().push(seen);
        self.0.request(head, connection)
    }
}

#[test]
fn prefetch_moves_its_connection_to_background_until_demand() {
    let address = upstream(|mut peer| {
        while let Some(head) = peer.head() {
            let is_robots = head.starts_with("GET /robots.txt ");
            peer.send(if is_robots { NO_ROBOTS.to_owned() } else { page("", PAGE) });
        }
    });
    let site = Watching::new();
    let proxy = site.in_front_of(address);
    let https = "X-Forwarded-Proto: https\r\n";
    let kept = |request: String| request.replace("Connection: close\r\n", "");
    for mark in ["1", "0"] {
        site.1.lock().unwrap().clear();
        let mut client = proxy.connect();
        // This does not depend on its admission.
        for request in [
            visit("/plain", &format!("{https}Accept-Encoding: x\r\nSave-Data: on\r\n")),
            prefetch("/.lull", mark, https),
            prefetch("/.lull", mark, https),
            visit("/plain", &format!("{https}Save-Data: on\r\n")),
            visit("/plain", &format!("{https}Save-Data: on\r\n")),
        ] {
            client.send(kept(request));
            client.answer();
        }
        let background = Some(Carrier::UserSpace);
        let expected = [None, None, background, background, None];
        let found: Vec<_> = site.1.lock().unwrap().iter().map(|seen| seen.1).collect();
        assert_eq!(found, expected, "{mark}");
    }
}

fn until(is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(10));
    }
}

/// A visitor of `/a` has clicked on the way to `page`.
fn awaits(proxy: &Proxy, page: &str) {
    let report = format!(r#"{{"v":1,"page":"/a","awaits":"{page}"}}"#);
    let post = format!(
        "POST /.lull/beacon HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{report}",
        report.len()
    );
    assert_eq!(proxy.exchange(post).status(), 204);
}

/// The browser may give a click the rest of a prefetch that is still under way.
#[test]
fn awaited_prefetch_leaves_the_background_at_once() {
    let (address, go_on) = slow_upstream("/b");
    let site = Watching::new();
    let proxy = site.in_front_of(address);
    until(|| proxy.exchange(prefetch("/.-known", "1", "")).status() == 200);
    site.1.lock().unwrap().clear();
    let mut client = proxy.connect();
    client.send(prefetch("/b", "1", ""));
    until(|| !site.1.lock().unwrap().is_empty());
    let connection = Arc::clone(&site.1.lock().unwrap()[0].0);
    until(|| connection.carrier() == Some(Carrier::UserSpace));

    // A client that waits for another page changes nothing.
    for (page, expected) in [("/c", Some(Carrier::UserSpace)), ("/b", None)] {
        awaits(&proxy, page);
        until(|| connection.carrier() == expected);
    }
    go_on.send(()).unwrap();
    assert_eq!(client.answer().status(), 200);
}

/// The proxy's part of it fits into the buffers, and leaves them at the rate of the background.
#[test]
fn buffered_awaited_prefetch_leaves_the_background_at_once() {
    let body = "b".repeat(20_000);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            let is_robots = head.starts_with("GET /robots.txt ");
            peer.send(if is_robots { NO_ROBOTS.to_owned() } else { page("", &body) });
        }
    });
    let site = Watching::new();
    let proxy = site.in_front_of(address);
    until(|| proxy.exchange(prefetch("/.-known", "1", "")).status() == 200);
    let before = proxy.totals().bytes_sent;
    site.1.lock().unwrap().clear();
    let background = Some(Carrier::UserSpace);
    let kept = |path| prefetch(path, "1", "").replace("Connection: close\r\n", "");
    let mut client = proxy.connect();
    client.send(kept("/b"));
    // For the proxy it has ended, while the client has not read a byte.
    proxy.wait("end", |totals| totals.bytes_sent >= before + 20_000);
    let connection = Arc::clone(&site.1.lock().unwrap()[0].0);
    until(|| connection.carrier() == background);
    awaits(&proxy, "/b");
    until(|| connection.carrier().is_none());

    // The next one is not awaited.
    let answer = Answer::parse(&read_chunked(&mut client), false);
    assert!(answer.is_whole && answer.body.len() == 20_000, "{answer:?}");
    client.send(kept("/c"));
    until(|| connection.carrier() == background);
}

/// The next answer, whose length is unknown before its end.
fn read_chunked(client: &mut common::Client) -> Vec<u8> {
    let mut bytes = client.head().into_bytes();
    while !bytes.ends_with(b"\r\n0\r\n\r\n") {
        bytes.extend(client.exactly(1));
    }
    bytes
}
