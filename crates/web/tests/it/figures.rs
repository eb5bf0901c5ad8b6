//! The limits of prefetching, its kill switch, and its dashboard, over real sockets.
mod groups;
mod payback;
mod reasons;

use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::pages::switch_off;
use crate::common::{Answer, LIMIT, Proxy, header, proxy_with, upstream};
use lull_cc::Bytes;
use lull_speculate::budget::{Parameters, Rationing};
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Limits};
use lull_speculate::predict::PpmParameters;
use lull_web::nps::{Access, ByteCaps, MinBenefit, MonitorSettings, Nps, Settings};
use lull_web::proxy::Event;
use serde_json::{Value, json};

const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0 Safari/537.36";
/// The length of each page.
const LENGTH: usize = 10_000;

struct Site {
    proxy: Proxy,
    asked: Arc<Mutex<Vec<String>>>,
}

/// Settings whose budget grows from the start.
fn settings() -> Settings {
    let parameters = Parameters {
        document: 3,
        rationing: Rationing::shipped(),
        ..Parameters::paper([Duration::from_secs(1)])
    };
    let monitor = MonitorSettings { objects: vec!["/probe".into()], parameters: Some(parameters) };
    Settings { trust_forwarded: true, monitor, ..Settings::default() }
}

fn site(settings: Settings) -> Site {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&asked);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            heard.lock().unwrap().push(head.clone());
            if head.starts_with("GET /robots.txt ") {
                peer.send("HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
                continue;
            }
            let failing = [("/gone", "404 Gone"), ("/full", "429 Full"), ("/busy", "503 Busy")];
            let is_for = |path: &str| head.starts_with(&format!("GET {path} "));
            if let Some((_, status)) = failing.into_iter().find(|&(path, _)| is_for(path)) {
                peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
                continue;
            }
            if is_for("/dead") {
                return;
            }
            let page = format!("<html><head></head>{}", " ".repeat(LENGTH - 19));
            let more = if is_for("/sign-in") || is_for("/cookie") {
                "Set-Cookie: session=1\r\n"
            } else {
                ""
            };
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{more}Content-Length: {LENGTH}\r\n\
                 \r\n{page}"
            ));
        }
    });
    let trusts = settings.trust_forwarded;
    let model = Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped());
    let nps = Nps::new(settings, model, None);
    let change = |config: &mut lull_web::proxy::Config| config.trust_forwarded = trusts;
    Site { proxy: proxy_with(address, change, Some(Arc::new(nps))), asked }
}

impl Site {
    fn get(&self, visitor: u32, path: &str, more: &str) -> Answer {
        self.proxy.exchange(format!(
            "GET {path} HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {CHROME}\r\n\
             Accept: text/html\r\nX-Forwarded-For: 192.0.2.{visitor}\r\nConnection: close\r\n\
             {more}\r\n"
        ))
    }

    fn prefetch(&self, visitor: u32, path: &str) -> Answer {
        self.get(visitor, path, "X-Lull: 1\r\n")
    }

    fn until_robots_are_known(&self) {
        let begun = Instant::now();
        while self.prefetch(250, "/.-known").status() != 200 {
            assert!(begun.elapsed() < LIMIT, "nothing is ever let through");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn go(&self, visitors: std::ops::Range<u32>, pages: &[&str]) {
        for visitor in visitors {
            for page in pages {
                assert_eq!(self.get(visitor, page, "").status(), 200);
            }
        }
    }

    fn post(&self, visitor: u32, path: &str, message: &Value) -> Answer {
        let message = message.to_string();
        self.proxy.exchange(format!(
            "POST {path} HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {CHROME}\r\n\
             X-Forwarded-For: 192.0.2.{visitor}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{message}",
            message.len()
        ))
    }

    fn ask(&self, visitor: u32, page: &str) -> Value {
        let message = json!({"v": 1, "page": page, "first": true, "cached": false});
        let answer = self.post(visitor, "/.lull/hints", &message);
        assert_eq!(answer.status(), 200);
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// The first list with an entry, within the growth time of budgets. If a busy machine delays a probe by
    /// half a second, the monitor sends none for a minute.
    fn list(&self, page: &str) -> Option<Value> {
        let begun = Instant::now();
        (100..).find_map(|visitor| {
            thread::sleep(Duration::from_millis(150));
            if begun.elapsed() > 2 * LIMIT {
                return Some(None);
            }
            let list = self.ask(visitor % 200, page);
            (list["hints"] != json!([])).then_some(Some(list))
        })?
    }

    /// Whether a client gets a list, within that time.
    fn hints(&self, page: &str) -> bool {
        self.list(page).is_some()
    }

    fn beacon(&self, visitor: u32, page: &str, cached: bool, ttfb: f64) {
        let nav = json!({"type": "navigate", "cached": cached, "ttfb": ttfb, "lcp": 80, "load": 0});
        let answer =
            self.post(visitor, "/.lull/beacon", &json!({"v": 1, "page": page, "nav": nav}));
        assert_eq!(answer.status(), 204);
    }

    /// The status, with the token.
    fn status(&self) -> Value {
        let answer = self.get(1, "/.lull/status", "Authorization: Bearer secret\r\n");
        serde_json::from_slice(&answer.body).unwrap()
    }

    fn asked(&self, path: &str) -> usize {
        let start = format!("GET {path} ");
        self.asked.lock().unwrap().iter().filter(|head| head.starts_with(&start)).count()
    }
}

fn token() -> Access {
    Access::Token("secret".into())
}

#[test]
fn visitor_prefetches_at_most_the_daily_bytes() {
    let caps = ByteCaps { visitor: Bytes(25_000), daily: None };
    let site = site(Settings { caps, access: token(), ..settings() });
    site.until_robots_are_known();
    for path in ["/a", "/b"] {
        let answer = site.prefetch(1, path);
        assert!(answer.status() == 200 && answer.is_whole, "{path}");
    }
    // The third would exceed the limit: it is cut off, and so not kept by the browser.
    assert!(!site.prefetch(1, "/c").is_whole);
    assert_eq!(site.prefetch(1, "/d").status(), 204);
    assert_eq!(site.asked("/d"), 0);
    assert_eq!(site.ask(1, "/a")["wait"], Value::Null);
    // Other visitors continue, and so does this one, without being ahead.
    assert_eq!(site.prefetch(2, "/d").status(), 200);
    assert!(site.get(1, "/d", "").is_whole);
}

#[test]
fn all_visitors_prefetch_at_most_the_daily_bytes() {
    let caps = ByteCaps { visitor: Bytes(1 << 30), daily: Some(Bytes(35_000)) };
    let site = site(Settings { caps, ..settings() });
    site.until_robots_are_known();
    assert_eq!(site.prefetch(1, "/a").status(), 200);
    assert_eq!(site.prefetch(2, "/a").status(), 200);
    assert!(!site.prefetch(3, "/a").is_whole);
    assert_eq!(site.prefetch(4, "/a").status(), 204);
}

#[test]
fn kill_switch_ends_only_prefetching() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("off");
    let site = site(Settings { off_file: Some(file.clone()), access: token(), ..settings() });
    site.until_robots_are_known();
    site.go(1..25, &["/a", "/b"]);
    assert!(site.get(30, "/a", "").text().contains("<script"));
    assert!(site.hints("/a"));

    switch_off(&file, || site.status()["off"] != true);
    let answer = site.get(30, "/a", "");
    assert!(answer.status() == 200 && !answer.text().contains("<script"));
    assert_eq!(site.prefetch(30, "/b").status(), 204);
    assert_eq!(site.ask(30, "/a")["wait"], Value::Null);
    // One may be on its way.
    thread::sleep(Duration::from_millis(500));
    let probes = site.asked("/probe");
    thread::sleep(Duration::from_millis(1_000));
    assert_eq!(site.asked("/probe"), probes);

    fs::remove_file(&file).unwrap();
    assert!(site.hints("/a"));
}

#[test]
fn shadow_mode_only_predicts() {
    let site = site(Settings { shadow: true, access: token(), ..settings() });
    site.go(1..25, &["/a", "/b"]);
    let answer = site.get(30, "/a", "");
    assert!(!answer.text().contains("<script"));
    assert_eq!(site.ask(30, "/a")["wait"], Value::Null);
    assert_eq!(site.prefetch(30, "/b").status(), 204);
    let before = site.status()["shadow_hits"].as_u64().unwrap();
    site.go(31..41, &["/a", "/b"]);
    let begun = Instant::now();
    loop {
        let status = site.status();
        // Ten visits went to a predicted page.
        if status["shadow_hits"].as_u64().unwrap() >= before + 10 {
            assert!(status["shadow_pages"].as_u64().unwrap() >= 69, "{status}");
            break;
        }
        assert!(begun.elapsed() < LIMIT, "{status}");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(site.asked("/probe"), 0);

    // A sign-in changes nothing, either.
    for shadow in [true, false] {
        let site = self::site(Settings { shadow, ..settings() });
        let answer = site.get(30, "/a", "Authorization: Basic eA==\r\n");
        assert_eq!(answer.header("set-cookie").is_none(), shadow, "{answer:?}");
    }
}

#[test]
fn status_counts_prefetches_and_hits() {
    let site = site(Settings { access: token(), ..settings() });
    site.until_robots_are_known();
    site.go(1..25, &["/a", "/b"]);
    assert!(site.hints("/a"));
    let before = site.status();
    assert_eq!(site.prefetch(30, "/b").status(), 200);
    site.beacon(30, "/b", true, 2.0);
    // Out of the cache again, which is independent of the prefetch now.
    site.beacon(30, "/b", true, 2.0);
    let status = site.status();
    let more = |what: &str| status[what].as_u64().unwrap() - before[what].as_u64().unwrap();
    assert_eq!(more("prefetches"), 1);
    let sent = more("prefetched_bytes");
    assert!(sent > LENGTH as u64 && more("used_bytes") == sent, "{status}");
    for group in [&status["with"], &status["with"]["hour"]] {
        assert_eq!([&group["count"], &group["cached"], &group["ahead"]], [2, 2, 1], "{status}");
        assert_eq!(
            [&group["ttfb"]["mean"], &group["ttfb"]["median_from"]],
            [&json!(2.0), &Value::Null]
        );
        let median = group["ttfb"]["median"].as_f64().unwrap();
        assert!((1.8..=2.0).contains(&median), "{median}");
    }
    assert!(status["budget"].as_u64().unwrap() > 0);
    assert_eq!(status["objects"], json!([{"path": "/probe", "threshold": 1000.0}]));
    assert!(status["probe"]["median"].as_f64().unwrap() > 0.0);
    assert!(status["demand"]["count"].as_u64().unwrap() >= 48);

    let metrics = site.get(1, "/.lull/metrics", "Authorization: Bearer secret\r\n");
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let text = metrics.text();
    for line in [
        "lull_web_navigations_total{prefetching=\"yes\",cached=\"yes\"} 2",
        "lull_web_navigations_ahead_total 1",
        "lull_web_navigation_ttfb_seconds_bucket{prefetching=\"yes\",le=\"0.0022\"} 2",
        "lull_web_navigation_ttfb_seconds_count{prefetching=\"no\"} 0",
        "# TYPE lull_web_demand_ttfb_seconds histogram",
        "lull_web_is_off 0",
    ] {
        assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("lull_web_") && value.parse::<f64>().is_ok(), "{line}");
    }
}

const FIGURES: [&str; 4] = ["/.lull/", "/.lull/status", "/.lull/history", "/.lull/metrics"];

#[test]
fn status_needs_the_token_in_any_form() {
    let site = site(Settings { access: token(), trust_forwarded: false, ..settings() });
    let get = |path: &str, more: &str| {
        // As a server in front sends it without the client's address.
        site.proxy.exchange(format!(
            "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n{more}\r\n"
        ))
    };
    for path in FIGURES {
        let asked = get(path, "");
        assert_eq!(asked.status(), 401, "{path}");
        assert!(asked.header("www-authenticate").unwrap().starts_with("Basic "));
        for (more, status) in [
            ("Authorization: Bearer guess\r\n", 401),
            ("Authorization: Bearer secret\r\n", 200),
            ("Authorization: Basic OnNlY3JldA==\r\n", 200),
        ] {
            assert_eq!(get(path, more).status(), status, "{path} {more}");
        }
        for (query, status) in [("token=secret", 200), ("token=guess", 401), ("a=secret", 401)] {
            assert_eq!(get(&format!("{path}?{query}"), "").status(), status, "{path} {query}");
        }
    }
    let page = get("/.lull/?token=secret", "");
    assert!(page.text().contains("/.lull/status"));
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    // As a user types it.
    let typed = get("/.lull?token=secret", "");
    assert_eq!((typed.status(), typed.header("location")), (307, Some("/.lull/?token=secret")));
    assert_eq!(site.asked("/.lull"), 0);
    assert_eq!(site.asked("/.lull/"), 0);

    let without = self::site(settings());
    for path in FIGURES {
        assert_eq!(without.get(1, path, "Authorization: Bearer secret\r\n").status(), 404);
    }
}

#[test]
fn dashboard_password_is_no_sign_in() {
    let site = site(Settings { access: token(), ..settings() });
    site.go(1..25, &["/a", "/b"]);
    // prometheus:secret
    let basic = "Authorization: Basic cHJvbWV0aGV1czpzZWNyZXQ=\r\n";
    assert_eq!(site.get(30, "/.lull/status", basic).status(), 200);
    let begun = Instant::now();
    while site.get(30, "/b", "X-Lull: 1\r\n").status() != 200 {
        assert!(begun.elapsed() < LIMIT, "nothing is let through");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn dashboard_url_is_reported_at_start_for_a_generated_token() {
    let told = |access| {
        let site = site(Settings { access, ..settings() });
        let url = site.proxy.events.lock().unwrap().iter().find_map(|event| match event {
            Event::Figures { url } => Some(url.clone()),
            _ => None,
        });
        (site, url)
    };
    let (site, url) = told(Access::Generated("made".into()));
    let url = url.unwrap();
    let path = url.strip_prefix(&format!("http://{}", site.proxy.address())).unwrap();
    assert_eq!(site.get(1, path, "").status(), 200);
    assert_eq!(site.get(1, path.split('?').next().unwrap(), "").status(), 401);
    // A configured token is not reported.
    assert_eq!(told(token()).1, None);
}

/// A site whose server takes this long for the monitor's objects, and counts those requests.
fn slow_site(settings: Settings, slow: Duration) -> (Site, Arc<Mutex<u32>>) {
    let asked: Arc<Mutex<u32>> = Arc::default();
    let heard = Arc::clone(&asked);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            if header(&head, "user-agent").is_some_and(|agent| agent.starts_with("lull/"))
                && head.contains("probe ")
            {
                *heard.lock().unwrap() += 1;
                thread::sleep(slow);
            }
            peer.ok("ok");
        }
    });
    let model = Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped());
    let nps = Arc::new(Nps::new(settings, model, None));
    let proxy = proxy_with(address, |config| config.trust_forwarded = true, Some(nps));
    (Site { proxy, asked: Arc::default() }, asked)
}

#[test]
fn dashboard_opens_under_any_host_name_with_the_token() {
    let hosts = vec!["www.site.example".parse().unwrap(), "site.example:443".parse().unwrap()];
    let site = site(Settings { hosts, access: token(), ..settings() });
    let get = |host: &str, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        site.proxy.exchange(request)
    };
    for path in FIGURES {
        for host in ["127.0.0.1", "localhost:8080", "www.site.example", "site.example"] {
            assert_eq!(get(host, &format!("{path}?token=secret")).status(), 200, "{host} {path}");
            assert_eq!(site.asked(path), 0, "{host} {path}");
        }
    }
    assert_eq!(get("WWW.site.example", "/.lull/").status(), 401);
    assert_eq!(get("site.example:443", "/.lull/").status(), 401);
    // A client without it gets the page of another host, as usual.
    get("127.0.0.1", "/.lull/");
    assert_eq!(site.asked("/.lull/"), 1);
    for (host, expected) in
        [("www.site.example", true), ("site.example", true), ("other.example", false)]
    {
        let page = site.proxy.exchange(format!(
            "GET /a HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {CHROME}\r\nAccept: text/html\r\n\
             Connection: close\r\n\r\n"
        ));
        assert_eq!(page.text().contains("<script"), expected, "{host}");
    }
}

#[test]
fn late_answers_bypass_neither_probe_share_nor_kill_switch() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("off");
    let (threshold, slow) = (Duration::from_millis(100), Duration::from_millis(800));
    let parameters = Parameters {
        document: 3,
        rationing: Rationing::shipped(),
        ..Parameters::paper([threshold])
    };
    let monitor = MonitorSettings { objects: vec!["/probe".into()], parameters: Some(parameters) };
    let settings = Settings { monitor, off_file: Some(file.clone()), ..settings() };
    let (site, asked) = slow_site(settings, slow);
    site.go(1..25, &["/a", "/b"]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        site.ask(100, "/a");
        thread::sleep(Duration::from_millis(500));
    }
    // Half a second that was saved up, half a second for second samples, and a hundredth of the time. The
    // last of each kind may begin just before that is used up, over a new connection with one before it. For
    // a server that became so slow all of that is work.
    let most = (1.0 + begun.elapsed().as_secs_f64() / 100.0) / slow.as_secs_f64() + 4.0;
    let probes = *asked.lock().unwrap();
    assert!(probes >= 2 && f64::from(probes) <= most, "{probes} of {most}");

    switch_off(&file, || site.ask(101, "/a")["wait"] != Value::Null);
    // One may be on its way.
    thread::sleep(Duration::from_millis(500));
    let probes = *asked.lock().unwrap();
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(*asked.lock().unwrap(), probes);
    fs::remove_file(&file).unwrap();

    // It is not permanent: visitors' own requests count at once.
    let begun = Instant::now();
    while site.ask(101, "/a")["hints"] == json!([]) {
        assert!(begun.elapsed() < LIMIT, "no list comes again");
        for _ in 0..4 {
            site.go(1..2, &["/probe"]);
            thread::sleep(Duration::from_millis(60));
        }
    }
    assert!(*asked.lock().unwrap() <= probes + 4);
}

#[test]
fn server_that_is_always_late_is_probed_rarely() {
    let (site, asked) = slow_site(settings(), Duration::from_secs(3));
    site.go(1..25, &["/a", "/b"]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(12) {
        site.ask(100, "/a");
        thread::sleep(Duration::from_millis(500));
    }
    // The first one is paid for until the next probe a minute later.
    let probes = *asked.lock().unwrap();
    assert!((1..=2).contains(&probes), "{probes}");
}

#[test]
fn visitor_requests_teach_one_object_at_a_time() {
    let objects = vec!["/a-probe".to_owned(), "/b-probe".to_owned()];
    let parameters = Parameters { document: 3, ..Parameters::shipped(2) };
    let monitor = MonitorSettings { objects, parameters: Some(parameters) };
    let settings = Settings { monitor, access: token(), ..settings() };
    // At this speed its own requests would take minutes.
    let (site, asked) = slow_site(settings, Duration::from_millis(300));
    site.go(1..25, &["/a", "/b"]);
    for (place, path) in ["/a-probe", "/b-probe"].into_iter().enumerate() {
        let begun = Instant::now();
        while site.status()["objects"][place]["threshold"] == Value::Null {
            assert!(begun.elapsed() < 2 * LIMIT, "{path} is not learned: {}", site.status());
            site.ask(100 + place as u32, "/a");
            for _ in 0..4 {
                site.go(1..2, &[path]);
                thread::sleep(Duration::from_millis(60));
            }
        }
        // Until the first sample has expired.
        thread::sleep(Duration::from_millis(1_200));
    }
    assert_eq!(site.status()["paused"], false);
    assert!(*asked.lock().unwrap() <= 8, "{}", asked.lock().unwrap());
}

#[test]
fn object_without_answers_is_reported_and_dropped() {
    let objects = || vec!["/probe".to_owned(), "/gone".to_owned()];
    let given = Parameters::paper([Duration::from_secs(1); 2]);
    for (parameters, left) in [(None, &["/probe"][..]), (Some(given), &["/probe", "/gone"])] {
        let monitor = MonitorSettings { objects: objects(), parameters };
        let site = site(Settings { monitor, access: token(), ..settings() });
        site.until_robots_are_known();
        site.go(1..9, &["/a", "/b"]);
        let told = |path: &str| {
            let is_it =
                |event: &Event| matches!(event, Event::ProbesFail { path: of, .. } if of == path);
            site.proxy.told(is_it)
        };
        let begun = Instant::now();
        let is_so = |status: &Value| {
            let paths = status["objects"].as_array().unwrap().iter();
            told("/gone") == 1
                && status["paused"] == false
                && paths.map(|one| &one["path"]).eq(left)
        };
        while !is_so(&site.status()) {
            assert!(begun.elapsed() < 6 * LIMIT, "{}", site.status());
            // Hints are wanted.
            site.ask(7, "/a");
            thread::sleep(Duration::from_millis(200));
        }
        thread::sleep(Duration::from_secs(1));
        assert_eq!((told("/gone"), told("/probe")), (1, 0));
    }
}

#[test]
fn monitor_uses_at_most_one_percent_of_the_time() {
    let slow = Duration::from_millis(100);
    let (site, asked) = slow_site(settings(), slow);
    site.go(1..25, &["/a", "/b"]);
    // Until the first list it may take more.
    site.list("/a").expect("there is a budget in the end");
    let (begun, early) = (Instant::now(), *asked.lock().unwrap());
    while begun.elapsed() < Duration::from_secs(10) {
        site.ask(100, "/a");
        thread::sleep(Duration::from_millis(500));
    }
    // Half a second that was saved up, and a hundredth of ten seconds; the last one may begin just before
    // that is used up.
    let most = (0.5 + begun.elapsed().as_secs_f64() / 100.0) / slow.as_secs_f64() + 1.0;
    let probes = *asked.lock().unwrap() - early;
    assert!(probes >= 2 && f64::from(probes) <= most, "{probes} of {most}");

    // Visitors' requests cost nothing, and give the same information.
    let before = *asked.lock().unwrap();
    for _ in 0..20 {
        site.go(1..2, &["/probe"]);
        thread::sleep(Duration::from_millis(50));
    }
    assert!(*asked.lock().unwrap() <= before + 2);
}
