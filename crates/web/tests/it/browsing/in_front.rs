//! Another nginx in front of the proxy, which may keep what passes.

use tempfile::TempDir;

use super::*;

/// It adds nothing about itself to forwarded messages.
struct Front {
    nginx: Nginx,
    _cache: TempDir,
}

impl Front {
    /// With the directives `all` for its pages, and `b` for /b.
    fn of(proxy: &Proxy, all: &str, b: &str) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let path = cache.path().display();
        let http = format!(
            "proxy_cache_path {path} keys_zone=front:1m use_temp_path=off; proxy_http_version 1.1;
             proxy_set_header Host $http_host; proxy_set_header Connection '';"
        );
        let pass = format!("proxy_pass http://{};", proxy.address());
        let server = format!("location / {{ {pass} {all} }} location = /b {{ {pass} {b} }}");
        Front { nginx: Nginx::start(&http, &server), _cache: cache }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.nginx.address)
    }

    /// A visit without a browser.
    fn visit(&self, path: &str) -> String {
        let mut client = crate::common::Client::connect(self.nginx.address);
        client.send(crate::common::get(path));
        client.rest().head
    }
}

const CACHED: &str = "proxy_cache front;";

/// A site with cacheable pages, and prefetching for it.
fn site() -> (Pages, Proxy) {
    let pages = Pages::with("add_header Cache-Control 'public, max-age=200';");
    let proxy = front(&pages, 0);
    (pages, proxy)
}

/// A page of the proxy, bypassing the server in front.
fn behind(proxy: &Proxy) -> String {
    format!("http://{}/a", proxy.address())
}

/// Waits until the script has detected the other server.
fn wait_for_the_word(chromium: &mut Chromium, proxy: &Proxy) {
    let begun = Instant::now();
    while chromium.run("sessionStorage.lull") != "1" {
        if begun.elapsed() > TIMEOUT {
            panic!("it is not noticed by {:#}", chromium.run(DONE));
        }
        thread::sleep(Duration::from_millis(100));
        chromium.go_on(begun, &behind(proxy));
    }
}

/// Goes to another page, from which nothing is prefetched, either.
fn goes_on_without(chromium: &mut Chromium, front: &Front, proxy: &Proxy) {
    let before = status(proxy);
    chromium.goto(&front.url("/a?again"));
    thread::sleep(Duration::from_secs(4));
    let after = status(proxy);
    for counted in ["asked", "prefetches"] {
        assert_eq!(after[counted], before[counted], "{counted}");
    }
}

#[test]
fn cache_in_front_with_the_page_is_detected_before_prefetching() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let (pages, proxy) = site();
    let front = Front::of(&proxy, CACHED, CACHED);
    let mut chromium = Chromium::start();
    chromium.goto(&front.url("/a"));
    wait_for_the_word(&mut chromium, &proxy);
    goes_on_without(&mut chromium, &front, &proxy);
    assert_eq!(status(&proxy)["prefetches"], 0);
    assert_eq!(pages.asked("/b"), Vec::<String>::new());
    // A click is answered as usual.
    chromium.goto(&front.url("/b"));
    assert_eq!(chromium.run(DELIVERY), "");
}

#[test]
fn cache_in_front_is_detected_at_its_first_hit() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let (_pages, proxy) = site();
    let front = Front::of(&proxy, "", CACHED);
    let head = front.visit("/b");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut chromium = Chromium::start();
    chromium.goto(&front.url("/a"));
    wait_for_the_word(&mut chromium, &proxy);
    goes_on_without(&mut chromium, &front, &proxy);
    assert_eq!(status(&proxy)["prefetches"], 0);
}

#[test]
fn plain_proxy_in_front_is_no_cache() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let (pages, proxy) = site();
    let front = Front::of(&proxy, "", "");
    let mut chromium = Chromium::start();
    chromium.goto(&front.url("/a"));
    pages.wait_for_prefetch("/b", &mut chromium, &behind(&proxy));
    chromium.wait_for_copy("/b");
    chromium.click("#b", &front.url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
    assert_eq!(chromium.run("sessionStorage.lull"), Value::Null);
}

#[test]
fn page_cached_by_an_earlier_visit_is_no_cache_in_front() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let (pages, proxy) = site();
    let url = |path: &str| format!("http://{}{path}", proxy.address());
    let mut chromium = Chromium::start();
    // A hidden page sends no requests.
    chromium.before(
        "if (location.pathname === '/b')
             Object.defineProperty(Document.prototype, 'hidden', {get: () => true});",
    );
    chromium.goto(&url("/b"));
    chromium.goto(&url("/a"));
    let is_listed = |status: &Value| status["lists"].as_u64() > Some(0);
    wait_for_budget(&proxy, "a list", is_listed, &mut chromium);
    // Its copy is taken for the prefetch, so the site is probed again: for this page.
    proxy.wait("questions", |totals| totals.marked == 2);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(chromium.run("sessionStorage.lull"), Value::Null);
    assert_eq!((pages.asked("/b").len(), proxy.totals().marked), (1, 2));
}
