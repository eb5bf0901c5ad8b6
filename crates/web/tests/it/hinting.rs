//! The hint server and the monitor behind the proxy, over real sockets.
use crate::common;
mod busy_disk;
mod busy_processor;
mod disk;
mod documents;
mod far_server;
mod flood;
mod late_probes;
mod learned;
mod neighbour;
mod paused;
mod pointing;
mod queries;
mod quiet;
mod reports;
mod restart;
mod sharing;
mod slow_page;
mod slower;
mod spread;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Answer, LIMIT, Proxy, header, proxy_with, upstream};
use lull_speculate::budget::{Parameters, Rationing};
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Limits};
use lull_speculate::predict::PpmParameters;
use lull_web::nps::{Learn, MinBenefit, MonitorSettings, Nps, Save, Settings};
use lull_web::proxy::Event;
use serde_json::{Value, json};

const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0 Safari/537.36";
const PAGE: &str = "<!doctype html><html><head><title>a</title></head><body>b</body></html>";

/// A site, visitors at many addresses, and the learned model.
struct Site {
    proxy: Proxy,
    nps: Arc<Nps>,
    asked: Arc<Mutex<Vec<String>>>,
    /// How long the server takes for its representative object, in milliseconds.
    delay: Arc<AtomicU64>,
    saved: Arc<Mutex<Option<Vec<u8>>>>,
}

/// A budget that grows while the object takes less than 200 ms, and pays for lists of three.
fn quick() -> MonitorSettings {
    let parameters = Parameters {
        document: 3,
        rationing: Rationing::shipped(),
        ..Parameters::paper([Duration::from_millis(200)])
    };
    MonitorSettings { objects: vec!["/probe".into()], parameters: Some(parameters) }
}

/// One that learns from when on the object is late.
fn learning() -> Settings {
    let parameters = Parameters { document: 3, ..Parameters::shipped(1) };
    let monitor = MonitorSettings { objects: vec!["/probe".into()], parameters: Some(parameters) };
    Settings { monitor, ..Settings::default() }
}

/// Longest time before a server that was late gets a new request.
const RARELY: Duration = Duration::from_secs(60);

fn empty_model() -> Model {
    Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped())
}

fn site() -> Site {
    site_with(Settings { monitor: quick(), ..Settings::default() }, empty_model())
}

fn site_with(settings: Settings, model: Model) -> Site {
    site_by(settings, |settings, save| Nps::new(settings, model, Some(save)))
}

/// The same with a model that is not made yet.
fn site_learning(learn: Learn) -> Site {
    let settings = Settings { monitor: quick(), ..Settings::default() };
    site_by(settings, |settings, save| Nps::learning(settings, learn, Some(save)))
}

fn site_by(settings: Settings, nps: impl FnOnce(Settings, Save) -> Nps) -> Site {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let delay: Arc<AtomicU64> = Arc::default();
    let (heard, slow) = (Arc::clone(&asked), Arc::clone(&delay));
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            heard.lock().unwrap().push(head.clone());
            let path = head.split(' ').nth(1).unwrap();
            let fields = match path {
                "/robots.txt" => {
                    peer.send("HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
                    continue;
                }
                "/probe" => {
                    thread::sleep(Duration::from_millis(slow.load(Ordering::Relaxed)));
                    ""
                }
                "/own" => "Cache-Control: private\r\n",
                "/varies" => "Vary: Cookie\r\n",
                _ => "",
            };
            // Signed-in users, and requests with a query, get more.
            let has_more = header(&head, "cookie").is_some() || path.contains('?');
            let page = if has_more { PAGE.repeat(2) } else { PAGE.to_owned() };
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{fields}Content-Length: {}\r\n\r\n\
                 {page}",
                page.len()
            ));
        }
    });
    Site { asked, delay, ..site_before(address, settings, nps) }
}

/// The same in front of a given server.
fn site_before(
    server: SocketAddr,
    settings: Settings,
    nps: impl FnOnce(Settings, Save) -> Nps,
) -> Site {
    let settings = Settings { trust_forwarded: true, ..settings };
    let saved: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let keep = Arc::clone(&saved);
    let save: Save = Box::new(move |model: &[u8]| {
        *keep.lock().unwrap() = Some(model.to_vec());
        Ok(())
    });
    let nps = Arc::new(nps(settings, save));
    let change = |config: &mut lull_web::proxy::Config| config.trust_forwarded = true;
    let proxy = proxy_with(server, change, Some(Arc::clone(&nps) as _));
    Site { proxy, nps, asked: Arc::default(), delay: Arc::default(), saved }
}

impl Site {
    fn visit(&self, visitor: u32, path: &str) -> Answer {
        self.visit_with(visitor, path, "")
    }

    fn visit_with(&self, visitor: u32, path: &str, more: &str) -> Answer {
        let answer = self.get(visitor, path, more);
        assert_eq!(answer.status(), 200);
        answer
    }

    fn get(&self, visitor: u32, path: &str, more: &str) -> Answer {
        self.proxy.exchange(format!(
            "GET {path} HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {CHROME}\r\n\
             Accept: text/html\r\nX-Forwarded-For: 192.0.2.{visitor}\r\nConnection: close\r\n\
             {more}\r\n"
        ))
    }

    fn post(&self, visitor: u32, path: &str, more: &str, body: &str) -> Answer {
        self.proxy.exchange(format!(
            "POST {path} HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {CHROME}\r\n\
             X-Forwarded-For: 192.0.2.{visitor}\r\nConnection: close\r\n{more}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    fn ask(&self, visitor: u32, page: &str, had: &[&str], cached: bool) -> Value {
        let message = json!({"v": 1, "page": page, "first": true, "cached": cached, "had": had});
        let json = "Content-Type: application/json\r\n";
        let answer = self.post(visitor, "/.lull/hints", json, &message.to_string());
        assert_eq!((answer.status(), answer.header("cache-control")), (200, Some("no-store")));
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// A list for a page, once there is budget for one.
    #[track_caller]
    fn list(&self, visitor: u32, page: &str, had: &[&str]) -> Vec<String> {
        let hints = self.hints(visitor, page, had);
        hints.iter().map(|hint| hint["url"].as_str().unwrap().into()).collect()
    }

    /// Its hints.
    #[track_caller]
    fn hints(&self, visitor: u32, page: &str, had: &[&str]) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let reply = self.ask(visitor, page, had, false);
            let hints = reply["hints"].as_array().unwrap();
            if !hints.is_empty() {
                return hints.clone();
            }
            assert!(begun.elapsed() < RARELY + LIMIT, "no list: {reply}");
            // At an interval at which no request is put off.
            thread::sleep(Duration::from_millis(220));
        }
    }

    /// Waits until no client gets a list any more.
    #[track_caller]
    fn until_there_is_none(&self) {
        let begun = Instant::now();
        let mut dry = 0;
        for visitor in 0.. {
            if dry >= 40 {
                break;
            }
            // Each time another client, so that none is over its rate.
            let is_empty = self.ask(100 + visitor % 100, "/a", &[], false)["hints"] == json!([]);
            dry = if is_empty { dry + 1 } else { 0 };
            assert!(begun.elapsed() < 2 * LIMIT, "there are still lists");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Visitors from `from` on go from one page to the next.
    fn go(&self, visitors: std::ops::Range<u32>, pages: &[&str]) {
        for visitor in visitors {
            for page in pages {
                self.visit(visitor, page);
            }
        }
    }

    fn asked(&self, path: &str) -> usize {
        let start = format!("GET {path} ");
        self.asked.lock().unwrap().iter().filter(|head| head.starts_with(&start)).count()
    }

    /// The learned model, at the end.
    fn learned(self) -> Model {
        drop(self.proxy);
        self.nps.stop();
        let model = self.saved.lock().unwrap().take();
        common::kept_model(&model.expect("it is saved at the end"))
    }
}

#[test]
fn client_whose_prefetches_are_rejected_gets_no_hints() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    assert_eq!(site.list(30, "/a", &[]), ["/b"]);
    // A visitor at that address signs in by HTTP. The others there have no credentials.
    site.visit_with(30, "/c", "Authorization: Basic eA==\r\n");
    let reply = site.ask(30, "/a", &[], false);
    assert_eq!(reply["hints"], json!([]));
    assert!(reply["wait"].as_f64().unwrap() >= 1.0, "{reply}");
    assert_eq!(site.list(31, "/a", &[]), ["/b"]);
}

#[test]
fn page_visited_by_five_clients_is_hinted_to_the_sixth() {
    let site = site();
    site.go(1..5, &["/a", "/b"]);
    // Four are not enough: a page with fewer visitors may be personal.
    assert_eq!(site.ask(9, "/a", &[], false)["hints"], json!([]));
    assert_eq!(site.ask(9, "/a", &[], false)["wait"], Value::Null);
    site.go(5..25, &["/a", "/b"]);
    assert_eq!(site.list(30, "/a", &[]), ["/b"]);
    let reply = loop {
        let reply = site.ask(30, "/a", &[], false);
        if reply["hints"] != json!([]) {
            break reply;
        }
        thread::sleep(Duration::from_millis(220));
    };
    assert_eq!(reply["mark"], "1");
    assert_eq!(reply["hints"], json!([{"url": "/b", "as": "document", "bytes": PAGE.len()}]));
    assert_eq!(reply["wait"], 0.0);
}

#[test]
fn visitor_with_harmless_cookies_must_confirm_copies() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    let more = "Content-Type: application/json\r\nX-Forwarded-Proto: https\r\nCookie: _ga=1\r\n";
    let ask = r#"{"v":1,"page":"/a","first":true,"cached":false}"#;
    let answer = site.post(30, "/.lull/hints", more, ask);
    let reply: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(reply["mark"], "2", "{reply}");
}

#[test]
fn lists_use_rules_in_browsers_that_send_speculation_tags() {
    let settings = Settings { monitor: quick(), speculation_rules: true, ..Settings::default() };
    let site = site_with(settings, empty_model());
    site.go(1..25, &["/a", "/b"]);
    site.list(30, "/a", &[]);
    let ask = r#"{"v":1,"page":"/a","first":true,"cached":false}"#;
    let begun = Instant::now();
    for (visitor, version, expected) in [(31, "136", json!(true)), (32, "135", Value::Null)] {
        let more = format!(
            "Content-Type: application/json\r\nSec-CH-UA: \"Chromium\";v=\"{version}\"\r\n"
        );
        let reply = loop {
            let answer = site.post(visitor, "/.lull/hints", &more, ask);
            let reply: Value = serde_json::from_slice(&answer.body).unwrap();
            if reply["hints"] != json!([]) {
                break reply;
            }
            assert!(begun.elapsed() < 2 * LIMIT, "no list: {reply}");
            thread::sleep(Duration::from_millis(220));
        };
        assert_eq!(reply["rules"], expected, "{version}");
    }
}

#[test]
fn cached_pages_and_the_page_itself_are_not_hinted() {
    let site = site();
    site.go(1..25, &["/a", "/b", "/a", "/c"]);
    let list = site.list(99, "/a", &[]);
    assert!(!list.contains(&"/a".into()), "{list:?}");
    assert_eq!(site.list(99, "/a", &["/b"]), ["/c"]);
    assert_eq!(site.ask(9, "/a", &["/b", "/c"], false)["wait"], Value::Null);
}

#[test]
fn private_page_is_never_hinted() {
    let site = site();
    site.go(1..25, &["/a", "/own", "/b"]);
    let list = site.list(99, "/a", &[]);
    assert!(!list.contains(&"/own".into()), "{list:?}");
}

#[test]
fn requests_of_scripts_are_no_navigations() {
    let site = site();
    for visitor in 1..25 {
        site.visit(visitor, "/a");
        for _ in 0..3 {
            site.visit_with(visitor, "/news", "X-Requested-With: XMLHttpRequest\r\n");
        }
        site.visit(visitor, "/b");
    }
    assert_eq!(site.list(99, "/a", &[]), ["/b"]);
    assert_eq!(site.ask(98, "/news", &[], false)["wait"], Value::Null);
}

#[test]
fn page_that_varies_on_cookies_is_hinted_to_all() {
    // If it is not worth its bytes otherwise, it is hinted for hover.
    for (least, pointed) in [(0.0, Value::Null), (1000.0, json!(true))] {
        let min_benefit = MinBenefit(least);
        let settings = Settings { monitor: quick(), min_benefit, ..Settings::default() };
        let site = site_with(settings, empty_model());
        site.go(1..25, &["/a", "/varies"]);
        assert_eq!(site.list(97, "/a", &[]), ["/varies"]);
        assert_eq!(site.hints(96, "/a", &[])[0]["pointed"], pointed);
        let more =
            "Content-Type: application/json\r\nX-Forwarded-Proto: https\r\nCookie: _ga=1\r\n";
        let ask = r#"{"v":1,"page":"/a","first":true,"cached":false}"#;
        let begun = Instant::now();
        let reply = loop {
            let answer = site.post(99, "/.lull/hints", more, ask);
            let reply: Value = serde_json::from_slice(&answer.body).unwrap();
            if reply["hints"] != json!([]) {
                break reply;
            }
            assert!(begun.elapsed() < LIMIT, "no list: {reply}");
            thread::sleep(Duration::from_millis(220));
        };
        assert_eq!((&reply["hints"][0]["url"], &reply["mark"]), (&json!("/varies"), &json!("2")));
    }
}

#[test]
fn spent_budget_gives_empty_lists_and_a_wait_of_1_to_30_s() {
    let site = site();
    // Later than its threshold, so the budget never grows.
    site.delay.store(400, Ordering::Relaxed);
    site.go(1..25, &["/a", "/b"]);
    let mut waits = Vec::new();
    for visitor in 30..60 {
        let reply = site.ask(visitor, "/a", &[], false);
        assert_eq!(reply["hints"], json!([]));
        waits.push(reply["wait"].as_f64().unwrap());
    }
    assert!(waits.iter().all(|wait| (1.0..30.0).contains(wait)), "{waits:?}");
    waits.sort_by(f64::total_cmp);
    waits.dedup();
    assert!(waits.len() > 20, "each at a time of its own: {waits:?}");
}

#[test]
fn invented_pages_do_not_grow_the_model() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    for number in 0..40 {
        let page = format!("/made-up/{number}");
        assert_eq!(site.ask(9, &page, &["/made-up"], true)["wait"], Value::Null);
    }
    let urls = site.learned();
    let urls = urls.observer().urls();
    // And the object that the monitor requests is not a visitor's.
    assert_eq!(urls.len(), 2);
}

#[test]
fn page_shown_from_a_cache_is_learned() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    site.visit(20, "/a");
    site.ask(20, "/b", &[], true);
    let model = site.learned();
    let observer = model.observer();
    let (at, urls) = (model.latest(), observer.urls());
    let popularity = |path| urls.popularity(observer.url(path).unwrap(), at);
    assert!((popularity("/b") - popularity("/a")).abs() < 0.1, "{}", popularity("/b"));
}

#[test]
fn list_ignores_other_clients_behind_the_address() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    site.go(31..55, &["/x", "/a", "/c"]);
    let fresh = site.list(60, "/a", &[]);
    site.go(70..71, &["/x", "/a", "/b", "/c"]);
    let mut known = site.list(70, "/a", &[]);
    known.sort();
    let mut sorted = fresh;
    sorted.sort();
    assert_eq!(known, sorted);
}

#[test]
fn pages_of_other_sites_get_no_hints() {
    let site = site();
    let json = "Content-Type: application/json\r\n";
    let message = r#"{"v":1,"page":"/a","first":true,"cached":false}"#;
    for (more, expected) in [
        (json.to_owned(), 200),
        (format!("{json}Origin: http://site.example\r\n"), 200),
        (format!("{json}Sec-Fetch-Site: same-origin\r\n"), 200),
        (format!("{json}Origin: http://other.example\r\n"), 403),
        (format!("{json}Origin: null\r\n"), 403),
        // By a page that sends no referrer.
        (format!("{json}Sec-Fetch-Site: same-origin\r\nOrigin: null\r\n"), 200),
        (format!("{json}Sec-Fetch-Site: cross-site\r\nOrigin: null\r\n"), 403),
        (format!("{json}Sec-Fetch-Site: cross-site\r\n"), 403),
        ("Content-Type: text/plain\r\n".to_owned(), 403),
        (String::new(), 403),
    ] {
        assert_eq!(site.post(9, "/.lull/hints", &more, message).status(), expected, "{more}");
    }
    for (message, expected) in
        [("{}".to_owned(), 400), (String::new(), 400), (" ".repeat(100_000), 413)]
    {
        assert_eq!(site.post(9, "/.lull/hints", json, &message).status(), expected);
        assert_eq!(site.post(9, "/.lull/beacon", "", &message).status(), expected);
    }
    let beacon = r#"{"v":1,"page":"/a"}"#;
    assert_eq!(site.post(9, "/.lull/beacon", "", beacon).status(), 204);
    assert_eq!(site.post(9, "/.lull/beacon", "Origin: http://b\r\n", beacon).status(), 403);
}

#[test]
fn client_that_may_not_prefetch_gets_no_hints() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    let json = "Content-Type: application/json\r\n";
    let message = r#"{"v":1,"page":"/a","first":true,"cached":false}"#;
    for more in ["Cookie: session=1\r\n", "Authorization: Basic eA==\r\n", "Save-Data: on\r\n"] {
        let answer = site.post(9, "/.lull/hints", &format!("{json}{more}"), message);
        assert_eq!(answer.text(), r#"{"v":1,"mark":"","hints":[],"wait":null}"#, "{more}");
    }
}

#[test]
fn server_is_probed_only_while_hints_are_requested() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(site.asked("/probe"), 0);
    site.list(99, "/a", &[]);
    assert!(site.asked("/probe") > 0);
    let asked = site.asked.lock().unwrap();
    let head = |path: &str| asked.iter().find(|head| head.starts_with(path)).unwrap();
    let probe = head("GET /probe ");
    assert!(header(probe, "user-agent").unwrap().contains("lull"), "{probe}");
    // A server that compresses its answers takes as long for it as for a visitor; the bytes are read without
    // decoding.
    assert_eq!(header(probe, "accept-encoding"), Some("gzip, deflate"));
    assert_eq!(header(head("GET /robots.txt "), "accept-encoding"), Some("identity"));
}

#[test]
fn most_popular_objects_are_probed_by_default() {
    let parameters = Parameters { document: 3, ..Parameters::shipped(2) };
    let monitor = MonitorSettings { objects: Vec::new(), parameters: Some(parameters) };
    let site = site_with(Settings { monitor, ..Settings::default() }, empty_model());
    site.go(1..25, &["/a", "/style.css", "/b"]);
    let of_visitors = site.asked("/style.css");
    let begun = Instant::now();
    while site.asked("/style.css") < of_visitors + 20 {
        assert!(begun.elapsed() < LIMIT, "it is not asked for");
        // Two seconds after the last request for hints, probes become rare.
        site.ask(9, "/a", &[], false);
        thread::sleep(Duration::from_millis(220));
    }
    // Their thresholds are learned, and then there are hints.
    assert!(site.list(99, "/a", &[]).contains(&"/b".into()));
}

#[test]
fn hint_has_the_length_of_the_public_page() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    // Twice as long, for themselves.
    site.visit_with(40, "/b", "Cookie: session=1\r\n");
    site.visit(41, "/b?of=41");
    let begun = Instant::now();
    let hints = loop {
        let reply = site.ask(30, "/a", &[], false);
        if reply["hints"] != json!([]) {
            break reply["hints"].clone();
        }
        assert!(begun.elapsed() < RARELY + LIMIT, "no list: {reply}");
        thread::sleep(Duration::from_millis(220));
    };
    assert_eq!(hints, json!([{"url": "/b", "as": "document", "bytes": PAGE.len()}]));
}

#[test]
fn client_behind_a_shared_cache_gets_no_script_and_no_hints() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    assert!(site.visit(30, "/a").text().contains("<script"));
    site.list(30, "/a", &[]);
    let message = r#"{"v":1,"page":"/a","first":true,"cached":false}"#;
    let told = || site.proxy.told(|event| matches!(event, Event::BehindCdn { .. }));
    assert_eq!(told(), 0);
    let ahead = |more| site.get(30, "/b", &format!("X-Lull: 1\r\n{more}")).status();
    assert_eq!(ahead(""), 200);
    for more in [
        "CDN-Loop: cloudflare\r\n",
        "Via: 1.1 varnish (Varnish/7.1)\r\n",
        "Via: 2.0 0a1b.cloudfront.net (CloudFront)\r\n",
        "X-Amz-Cf-Id: a==\r\n",
        "Akamai-Origin-Hop: 1\r\n",
        "True-Client-IP: 192.0.2.30\r\n",
    ] {
        let page = site.visit_with(30, "/a", more);
        assert_eq!(page.text(), PAGE, "{more}");
        assert_eq!(ahead(more), 204, "{more}");
        let more = format!("Content-Type: application/json\r\n{more}");
        let answer = site.post(30, "/.lull/hints", &more, message);
        assert_eq!(answer.text(), r#"{"v":1,"mark":"","hints":[],"wait":null}"#, "{more}");
        assert_eq!(told(), 1);
    }
    // Other visitors get the same as usual.
    assert!(site.visit(30, "/a").text().contains("<script"));
}

#[test]
fn site_is_served_while_saved_state_is_read() {
    let (go_on, waits) = channel();
    let site = site_learning(Box::new(move |_, _| {
        let () = waits.recv().ok()?;
        Some(empty_model())
    }));
    // They are learned once there is a model.
    site.go(1..25, &["/a", "/b"]);
    let reply = site.ask(30, "/a", &[], false);
    assert_eq!((&reply["hints"], &reply["wait"]), (&json!([]), &json!(30.0)));
    go_on.send(()).unwrap();
    assert_eq!(site.list(30, "/a", &[]), ["/b"]);
}

#[test]
fn shutdown_does_not_wait_for_the_import_or_save_it() {
    let site = site_learning(Box::new(|_, is_ending| {
        while !is_ending.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        None
    }));
    site.go(1..5, &["/a"]);
    let begun = Instant::now();
    drop(site.proxy);
    site.nps.stop();
    let took = begun.elapsed();
    assert!(
        took < lull_testing::bound(Duration::from_secs(60), Duration::from_secs(4)),
        "{took:?}"
    );
    assert!(site.saved.lock().unwrap().is_none());
}
