//! The whole system: a real Chromium, the proxy with prefetching, and nginx with a site behind.
use crate::browser::chromium;
mod cdn;
mod in_front;
mod own_connection;
mod packed;
mod signing_in;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::browser::chromium::Chromium;
use crate::common::nginx::Nginx;
use crate::common::{Proxy, proxy_with};
use lull_cc::Timestamp;
use lull_speculate::budget::{Growth, Parameters, Rationing};
use lull_speculate::log::Entry;
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Limits};
use lull_speculate::predict::PpmParameters;
use lull_testing::needs;
use lull_transport::{Carrier, Options};
use lull_web::nps::{Access, MinBenefit, MonitorSettings, Nps, Settings};
use serde_json::Value;

const DELIVERY: &str = "performance.getEntriesByType('navigation')[0].deliveryType";
/// The requests and the state of a page and its script.
const DONE: &str = "({
    page: location.href, hidden: document.hidden, cache: sessionStorage.lull,
    network: navigator.connection.effectiveType, tag: document.querySelector('script')?.outerHTML,
    asked: performance.getEntriesByType('resource').map(one =>
        [one.name, one.initiatorType, one.responseStatus, one.startTime, one.duration].join(' ')),
})";
/// How long a test waits for a required event.
const TIMEOUT: Duration = Duration::from_secs(120);

/// nginx with pages that link to each other.
struct Pages(Nginx);

impl Pages {
    fn start() -> Self {
        Pages::with("")
    }

    /// With this among the directives of the server.
    fn with(directives: &str) -> Self {
        let nginx = Nginx::start("default_type text/html;", directives);
        for (name, text) in [("a", "one"), ("b", "two"), ("c", "three")] {
            let page = format!(
                "<!doctype html><html><head><title>{name}</title></head><body><p>{text}</p>\
                 <a id=a href=/a>a</a> <a id=b href=/b>b</a> <a id=c href=/c>c</a>{}</body></html>",
                "<!-- and so on -->".repeat(100)
            );
            nginx.put(name, page);
        }
        nginx.put("robots.txt", "User-agent: *\nDisallow: /c\n");
        Pages(nginx)
    }

    /// The requests of browsers for a path.
    fn asked(&self, path: &str) -> Vec<String> {
        let log = self.0.log();
        let start = format!("GET {path} ");
        let is_browsers = |line: &&str| line.starts_with(&start) && line.contains("Mozilla");
        log.lines().filter(is_browsers).map(str::to_owned).collect()
    }

    /// Waits until the present page has prefetched this one; otherwise reports what it has done. `page` is a
    /// full URL of the proxy.
    fn wait_for_prefetch(&self, path: &str, chromium: &mut Chromium, page: &str) {
        let begun = Instant::now();
        while !self.asked(path).iter().any(|line| line.contains("prefetch")) {
            if begun.elapsed() > TIMEOUT {
                panic!("{path} is never prefetched by {:#}", chromium.run(DONE));
            }
            thread::sleep(Duration::from_millis(50));
            chromium.go_on(begun, page);
        }
    }
}

/// A model of visitors who all went from a to one of these.
fn model_of(next: [&str; 2]) -> Model {
    // More than the 64 prefetches that one page may request.
    let parameters = PpmParameters { followers_per_context: 100, ..PpmParameters::shipped() };
    let mut model = Model::new(ClientHasher::new([7; 16]), Limits::default(), parameters);
    for client in 0..60u64 {
        for (step, page) in (0..).zip(["/a", next[client as usize % 2]]) {
            let at = Timestamp::from_nanos((1_000_000 + 100 * client + step) * 1_000_000_000);
            let visit = Entry::page(at, format!("192.0.2.{client}"), page);
            model.learn(&visit).unwrap();
        }
    }
    model
}

fn front(nginx: &Pages, held_back: u16) -> Proxy {
    front_for(nginx, held_back, Access::Token("secret".into()))
}

fn front_for(nginx: &Pages, held_back: u16, access: Access) -> Proxy {
    front_with(nginx, Settings { held_back, ..settings(access) })
}

/// Clients without a budget ask again at once: nearly each test begins with that, and the waits of a site's
/// visitors are longer.
const PROMPT: Rationing =
    Rationing::FirstCome { from: Duration::from_millis(500), to: Duration::from_secs(1) };

/// Settings whose budget grows from the start.
fn settings(access: Access) -> Settings {
    let parameters = Parameters {
        document: 3,
        rationing: PROMPT,
        ..Parameters::paper([Duration::from_secs(2)])
    };
    let monitor = MonitorSettings { objects: vec!["/a".into()], parameters: Some(parameters) };
    // Including pages that could wait for hover.
    Settings { monitor, access, min_benefit: MinBenefit(0.0), ..Settings::default() }
}

fn front_with(nginx: &Pages, settings: Settings) -> Proxy {
    front_of(nginx, settings, model_of(["/b", "/c"]))
}

fn front_of(nginx: &Pages, settings: Settings, model: Model) -> Proxy {
    let nps = Arc::new(Nps::new(settings, model, None));
    let change = |config: &mut lull_web::proxy::Config| {
        config.background = Options::new().carrier(Carrier::UserSpace);
    };
    proxy_with(nginx.0.address, change, Some(nps))
}

fn status(proxy: &Proxy) -> Value {
    let answer = proxy.exchange(format!(
        "GET /.lull/status HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer secret\r\n\
         Connection: close\r\n\r\n",
        proxy.address()
    ));
    serde_json::from_slice(&answer.body).unwrap()
}

/// Waits until the figures have this property.
fn wait_for(proxy: &Proxy, what: &str, is: impl Fn(&Value) -> bool) {
    wait_beside(proxy, what, is, |_| {});
}

/// The same for figures that need a budget.
fn wait_for_budget(
    proxy: &Proxy,
    what: &str,
    is: impl Fn(&Value) -> bool,
    chromium: &mut Chromium,
) {
    let page = format!("http://{}/a", proxy.address());
    wait_beside(proxy, what, is, |begun| chromium.go_on(begun, &page));
}

fn wait_beside(
    proxy: &Proxy,
    what: &str,
    is: impl Fn(&Value) -> bool,
    mut act: impl FnMut(Instant),
) {
    let begun = Instant::now();
    loop {
        let status = status(proxy);
        if is(&status) {
            return;
        }
        assert!(begun.elapsed() < TIMEOUT, "{what}: {status:#}");
        thread::sleep(Duration::from_millis(100));
        act(begun);
    }
}

/// A browser that shows a and has a copy of b.
fn visitor_with_a_copy(nginx: &Pages, proxy: &Proxy) -> Chromium {
    let mut chromium = Chromium::start();
    let page = format!("http://{}/a", proxy.address());
    chromium.goto(&page);
    // Once there is budget.
    nginx.wait_for_prefetch("/b", &mut chromium, &page);
    wait_for(proxy, "the copy", |status| status["prefetched_bytes"].as_u64() > Some(0));
    // A prefetch by rules is no request of the page.
    if chromium.run("!!document.querySelector('script[type=speculationrules]')") == true {
        chromium.run("new Promise(done => setTimeout(done, 1000))");
    } else {
        chromium.wait_for_copy("/b");
    }
    chromium
}

#[test]
fn clicked_page_comes_from_the_cache() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::start();
    let proxy = front(&nginx, 0);
    let url = |path: &str| format!("http://{}{path}", proxy.address());
    let mut chromium = visitor_with_a_copy(&nginx, &proxy);
    chromium.click("#b", &url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
    assert_eq!(chromium.run("document.querySelector('p').innerText"), "two");
    assert_eq!(nginx.asked("/b").len(), 1);
    // Pages disallowed by robots.txt are never prefetched, however popular they are.
    assert_eq!(nginx.asked("/c").len(), 0);

    // Reports come when pages are left.
    chromium.goto(&url("/c"));
    assert_eq!(chromium.run(DELIVERY), "");
    wait_for(&proxy, "reports", |status| {
        status["with"]["count"] == 2 && status["with"]["cached"] == 1
    });
    let status = status(&proxy);
    // Page b, too, may have fetched something ahead.
    let bytes = |name: &str| status[name].as_u64().unwrap();
    assert!((1..=bytes("prefetched_bytes")).contains(&bytes("used_bytes")), "{status:#}");
    assert_eq!(status["without"]["count"], 0);
}

#[test]
fn page_of_64_files_is_prefetched_without_a_repeated_hint() {
    const PAGES: usize = 80;
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::start();
    let mut model = model_of(["/b", "/b"]);
    let mut second = 2_000_000;
    for page in 0..PAGES {
        nginx.0.put(&format!("n{page}"), "<!doctype html><p>next</p>");
        for client in 0..6 {
            for path in ["/a".to_owned(), format!("/n{page}")] {
                second += 1;
                let at = Timestamp::from_nanos(second * 1_000_000_000);
                model.learn(&Entry::page(at, format!("198.51.{page}.{client}"), path)).unwrap();
            }
        }
    }
    let mut settings = settings(Access::Token("secret".into()));
    if let Some(parameters) = &mut settings.monitor.parameters {
        (parameters.document, parameters.growth) = (10, Growth::DoublingFirst);
    }
    let proxy = front_of(&nginx, settings, model);
    let mut chromium = Chromium::start();
    chromium.goto(&format!("http://{}/a", proxy.address()));
    let all = |status: &Value| status["prefetches"].as_u64() >= Some(64);
    wait_for_budget(&proxy, "all of a page", all, &mut chromium);
    // Longer than the time to the next request.
    thread::sleep(Duration::from_secs(4));
    let status = status(&proxy);
    assert_eq!([&status["hints"], &status["prefetches"]], [64, 64], "{status:#}");
    let next = (0..PAGES).map(|page| nginx.asked(&format!("/n{page}")).len());
    assert!(next.max() == Some(1), "one was fetched twice");
}

#[test]
fn signed_in_user_is_shown_no_prefetched_page() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::start();
    let proxy = front(&nginx, 0);
    let url = |path: &str| format!("http://{}{path}", proxy.address());
    let mut chromium = visitor_with_a_copy(&nginx, &proxy);
    // Like a sign-in by a script.
    chromium.run("document.cookie = 'session=1'");
    chromium.click("#b", &url("/b"));
    assert_eq!(chromium.run(DELIVERY), "");
    assert_eq!(nginx.asked("/b").len(), 2);
    assert_eq!(chromium.run("document.querySelectorAll('script').length"), 0);
    // Nothing is prefetched from then on, either.
    let before = status(&proxy)["prefetches"].clone();
    chromium.click("#a", &url("/a"));
    thread::sleep(Duration::from_secs(4));
    assert_eq!(status(&proxy)["prefetches"], before);
}

fn front_by_rules(nginx: &Pages) -> Proxy {
    let access = Access::Token("secret".into());
    front_with(nginx, Settings { speculation_rules: true, ..settings(access) })
}

#[test]
fn prefetches_by_speculation_rules_are_counted() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::start();
    let proxy = front_by_rules(&nginx);
    let url = |path: &str| format!("http://{}{path}", proxy.address());
    let mut chromium = visitor_with_a_copy(&nginx, &proxy);
    // Chromium's own mark, which the script cannot send. It has probed for a cache in front, once.
    assert_eq!(proxy.totals().marked, 1);
    chromium.click("#b", &url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
    assert_eq!(nginx.asked("/b").len(), 1);
    chromium.goto(&url("/c"));
    wait_for(&proxy, "reports", |status| status["with"]["cached"] == 1);
    let counted = status(&proxy);
    let bytes = |name: &str| counted[name].as_u64().unwrap();
    assert!((1..=bytes("prefetched_bytes")).contains(&bytes("used_bytes")), "{counted:#}");
    assert_eq!(counted["refused"], 0, "{counted:#}");
}

#[test]
fn signed_in_user_is_shown_no_page_prefetched_by_rules() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::start();
    let proxy = front_by_rules(&nginx);
    let mut chromium = visitor_with_a_copy(&nginx, &proxy);
    chromium.run("document.cookie = 'session=1'");
    chromium.click("#b", &format!("http://{}/b", proxy.address()));
    assert_eq!(chromium.run(DELIVERY), "");
    assert_eq!(nginx.asked("/b").len(), 2);
    assert_eq!(chromium.run("document.querySelectorAll('script').length"), 0);
}

#[test]
fn control_group_reports_and_prefetches_nothing() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::start();
    let proxy = front(&nginx, 10_000);
    let url = |path: &str| format!("http://{}{path}", proxy.address());
    let mut chromium = Chromium::start();
    chromium.goto(&url("/a"));
    wait_for(&proxy, "a question", |status| status["asked"] == 1);
    thread::sleep(Duration::from_secs(4));
    chromium.click("#b", &url("/b"));
    chromium.goto(&url("/c"));
    wait_for(&proxy, "reports", |status| status["without"]["count"].as_u64() >= Some(2));
    let status = status(&proxy);
    assert_eq!(status["with"]["count"], 0);
    assert_eq!(status["prefetches"], 0);
    assert!(nginx.asked("/b").iter().all(|line| !line.contains("prefetch")));
}

/// The dashboard compares two medians, in milliseconds, with confidence intervals of this relative width to
/// either side.
fn verdict(looker: &mut Chromium, with: f64, without: f64, aside: f64) -> String {
    let of = |median: f64| {
        let (from, to) = (median * (1.0 - aside), median * (1.0 + aside));
        format!("{{median: {median}, median_from: {from}, median_to: {to}}}")
    };
    let said = looker.run(&format!("verdict({}, {})[0]", of(with), of(without)));
    said.as_str().unwrap().to_owned()
}

#[test]
fn dashboard_claims_no_difference_without_significance() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::start();
    let proxy = front_for(&nginx, 0, Access::Generated("secret".into()));
    let mut looker = Chromium::start();
    looker.goto(&format!("http://{}/.lull/?token=secret", proxy.address()));
    for (with, without, aside, expected) in [
        (50.0, 125.0, 0.1, "2.5 × faster"),
        (100.0, 110.0, 0.01, "10 % faster"),
        (110.0, 100.0, 0.01, "10 % slower"),
        (99.0, 101.0, 0.05, "no visible difference"),
        (50.0, 125.0, 0.8, "too few to say"),
    ] {
        assert_eq!(verdict(&mut looker, with, without, aside), expected);
    }
    let few = "verdict({median: 50, median_to: null}, {median: 500, median_to: 600})[0]";
    assert_eq!(looker.run(few), "too few to say");
}

#[test]
fn dashboard_token_may_contain_base64_characters() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::start();
    let proxy = front_for(&nginx, 0, Access::Token("se+c/ret=".into()));
    let mut looker = Chromium::start();
    looker.goto(&format!("http://{}/.lull/?token=se+c/ret=", proxy.address()));
    let begun = Instant::now();
    let said = loop {
        let said = looker.run("document.getElementById('state').textContent");
        if said != "…" {
            break said;
        }
        assert!(begun.elapsed() < TIMEOUT);
        thread::sleep(Duration::from_millis(200));
    };
    assert!(said.as_str().unwrap().starts_with("prefetching"), "{said}");
}

#[test]
fn dashboard_shows_the_activity() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::start();
    let proxy = front_for(&nginx, 0, Access::Generated("secret".into()));
    let url = |path: &str| format!("http://{}{path}", proxy.address());
    let mut visitor = visitor_with_a_copy(&nginx, &proxy);
    visitor.click("#b", &url("/b"));
    visitor.goto(&url("/c"));

    let mut looker = Chromium::start();
    looker.goto(&url("/.lull/?token=secret"));
    let begun = Instant::now();
    let text = |looker: &mut Chromium, id: &str| {
        let text = looker.run(&format!("document.getElementById('{id}').textContent"));
        text.as_str().unwrap().to_owned()
    };
    while text(&mut looker, "hits-of") != "1 of 2" {
        assert!(begun.elapsed() < TIMEOUT, "{}", text(&mut looker, "tiles"));
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(text(&mut looker, "state"), "prefetching");
    assert!(text(&mut looker, "objects").starts_with("/a: late from "));
    assert_eq!(text(&mut looker, "hits"), "50 %");
    // Two pages allow no conclusion, about the start or the last hour.
    for period in ["hour", "start"] {
        looker.run(&format!("document.getElementById('{period}').click()"));
        assert_eq!(text(&mut looker, "hits-of"), "1 of 2", "{period}");
        assert_eq!(text(&mut looker, "bars").matches("too few to say").count(), 3, "{period}");
        let pressed = "document.querySelector('button[aria-pressed=true]').id";
        assert_eq!(looker.run(pressed), period);
    }
    assert!(text(&mut looker, "wasted").ends_with(" B"));
    assert!(text(&mut looker, "budget").ends_with(" a second"));
    // There was no budget in a full minute.
    assert_eq!(looker.run("document.querySelectorAll('svg polyline').length"), 6);
    // It was prefetched only once robots.txt was known, and /c never.
    assert!(text(&mut looker, "hints-rejected").starts_with("robots.txt forbids it: "));
    assert!(text(&mut looker, "left-out").starts_with("/c: "));
    assert!(text(&mut looker, "probe").ends_with(" ms"), "{}", text(&mut looker, "probe"));
    // Untouched, it continues to show new events.
    visitor.goto(&url("/a"));
    let begun = Instant::now();
    while text(&mut looker, "hits-of") != "1 of 3" {
        assert!(begun.elapsed() < TIMEOUT, "{}", text(&mut looker, "tiles"));
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(text(&mut looker, "hits"), "33 %");
    // A minute later, as in a tab in the background, and after a restart.
    let later = |looker: &mut Chromium, change: &str| {
        looker.run(&format!(
            "(() => {{ const next = structuredClone(last); {change}; show(next); \
             return at('rate').textContent; }})()"
        ))
    };
    let minute = "next.seconds += 60; next.prefetches += 600";
    assert_eq!(later(&mut looker, minute), "10 a second");
    let restart = "next.seconds = 1; next.prefetches = 0";
    assert_eq!(later(&mut looker, restart), "0 a second");
    // The server's record of the last day.
    let kept = "{every: 60, ago: 5, prefetches: [60, 600], navigations: [1, 4], ahead: [0, 1], \
                errors: [0, 2], budget: [3, 5], demand: [null, 12], visitors: [2, 3]}";
    let drawn = looker.run(&format!("drawHistory({kept}), at('graphs').textContent"));
    for most in
        ["10 a second", "25 %", "4 a minute", "12 ms", "5 a second", "2 a minute", "3 in a minute"]
    {
        assert!(drawn.as_str().unwrap().contains(&format!("most: {most}")), "{most}: {drawn}");
    }
}
