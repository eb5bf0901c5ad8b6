//! nginx as a CDN that keeps pages, in front of a proxy that knows of it (ADR 20).

use tempfile::TempDir;

use super::*;
use crate::common::Client;

const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/140.0.0.0 Safari/537.36";
const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
const TEXT: &str = "document.querySelector('p').innerText";
/// Pages are kept by host and URL, like a CDN that is configured to cache pages: the cookie of signed-in users leads past
/// the cache. Requests with `X-Lull` need their `If-None-Match`, which nginx removes where it caches.
const CDN: &str = "proxy_cache front; proxy_cache_key $host$request_uri;
    proxy_cache_bypass $cookie_session; proxy_no_cache $cookie_session;
    add_header X-Cache $upstream_cache_status always;";

/// A site with pages for all, which greets its users; the proxy; and the CDN.
struct Network {
    cdn: Nginx,
    proxy: Proxy,
    pages: Pages,
    _cache: TempDir,
}

impl Network {
    /// With more directives of the CDN.
    fn with(more: &str) -> Self {
        let greeting = "map $cookie_session $who { default ann; '' nobody; }";
        let page = |name: &str, cache: &str| {
            format!(
                "location = /{name} {{ add_header Cache-Control '{cache}';
                 return 200 '<!doctype html><html><head><title>{name}</title></head><body><p>{name} of $who</p>\
                 <a id=a href=/a>a</a> <a id=b href=/b>b</a></body></html>'; }}"
            )
        };
        let shared = "public, s-maxage=600";
        let site = [page("a", shared), page("b", shared), page("own", "max-age=60")].concat();
        let nginx = Nginx::start(&format!("default_type text/html; {greeting}"), &site);
        nginx.put("robots.txt", "");
        let pages = Pages(nginx);
        let settings = Settings {
            trust_forwarded: true,
            behind_cdn: true,
            ..settings(Access::Token("secret".into()))
        };
        let nps = Nps::new(settings, model_of(["/b", "/b"]), None);
        let change = |config: &mut lull_web::proxy::Config| {
            config.trust_forwarded = true;
            config.background = Options::new().carrier(Carrier::UserSpace);
        };
        let proxy = proxy_with(pages.0.address, change, Some(Arc::new(nps)));
        let cache = tempfile::tempdir().unwrap();
        let http = format!(
            "proxy_cache_path {} keys_zone=front:1m use_temp_path=off; proxy_http_version 1.1;
             map $http_x_lull $tag_of_copy {{ default $http_if_none_match; '' ''; }}
             map $http_x_lull $is_of_lull {{ default 1; '' ''; }}",
            cache.path().display()
        );
        let server = format!(
            "location / {{ proxy_pass http://{}; proxy_set_header Host $http_host;
             proxy_set_header Connection ''; proxy_set_header Via '1.1 cdn';
             proxy_set_header X-Forwarded-For $remote_addr;
             proxy_set_header If-None-Match $tag_of_copy; {CDN} {more} }}",
            proxy.address()
        );
        Network { cdn: Nginx::start(&http, &server), proxy, pages, _cache: cache }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.cdn.address)
    }

    /// A visit without a browser: what the cache did, and the page.
    fn visit(&self, path: &str, agent: &str, cookie: &str) -> (String, String) {
        let mut client = Client::connect(self.cdn.address);
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\nUser-Agent: {agent}\r\nCookie: {cookie}\r\n\
             Connection: close\r\n\r\n",
            self.cdn.address
        ));
        let answer = client.rest();
        let cache = answer.header("x-cache").unwrap_or("none").to_owned();
        (cache, String::from_utf8(answer.body).unwrap())
    }

    /// A browser on /a that has a copy of /b, which the CDN has as well.
    fn visitor_with_a_copy(&self, cookie: &str) -> Chromium {
        for expected in ["MISS", "HIT"] {
            for path in ["/a", "/b"] {
                assert_eq!(self.visit(path, FIREFOX, "").0, expected, "{path}");
            }
        }
        let mut chromium = Chromium::start();
        chromium.goto(&self.url("/robots.txt"));
        chromium.run(&format!("document.cookie = '{cookie}'"));
        chromium.goto(&self.url("/a"));
        let behind = format!("http://{}/a", self.proxy.address());
        self.pages.wait_for_prefetch("/b", &mut chromium, &behind);
        chromium.wait_for_copy("/b");
        chromium
    }
}

#[test]
fn page_is_prefetched_past_the_cache_of_a_cdn() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let network = Network::with("");
    let mut chromium = network.visitor_with_a_copy("");
    chromium.click("#b", &network.url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
    assert_eq!(chromium.run("sessionStorage.lull"), Value::Null);
    assert_eq!(network.visit("/b", CHROME, "").0, "HIT", "the prefetch is not kept by the CDN");
}

#[test]
fn harmless_cookies_use_a_copy_behind_a_cdn() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let network = Network::with("");
    let mut chromium = network.visitor_with_a_copy("_ga=GA1.1.1; path=/");
    wait_for(&network.proxy, "the confirmation", |status| status["renewed"] == 1);
    thread::sleep(Duration::from_secs(2));
    chromium.click("#b", &network.url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
}

#[test]
fn signed_in_user_behind_a_cdn_is_shown_no_copy() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let network = Network::with("");
    let mut chromium = network.visitor_with_a_copy("");
    chromium.run("document.cookie = 'session=1; path=/'");
    chromium.click("#b", &network.url("/b"));
    assert_eq!(chromium.run(TEXT), "b of ann");
    assert_eq!(chromium.run(DELIVERY), "");
}

#[test]
fn cdn_that_answers_prefetches_itself_is_detected() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    // As CDNs that key by the URL alone.
    let network = Network::with("proxy_ignore_headers Vary;");
    assert_eq!(network.visit("/a", FIREFOX, "").0, "MISS");
    assert_eq!(network.visit("/b", FIREFOX, "").0, "MISS");
    let mut chromium = Chromium::start();
    chromium.goto(&network.url("/a"));
    let begun = Instant::now();
    while chromium.run("sessionStorage.lull") != "1" {
        assert!(begun.elapsed() < TIMEOUT, "not detected: {:#}", chromium.run(DONE));
        thread::sleep(Duration::from_millis(100));
        chromium.go_on(begun, &format!("http://{}/a", network.proxy.address()));
    }
    assert_eq!(status(&network.proxy)["prefetches"], 0);
    // The owner can tell it to pass them on.
    let network = Network::with(
        "proxy_ignore_headers Vary; proxy_cache_bypass $is_of_lull; proxy_no_cache $is_of_lull;",
    );
    let mut chromium = network.visitor_with_a_copy("");
    chromium.click("#b", &network.url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
}

#[test]
fn page_behind_a_cdn_is_the_same_for_all_visitors() {
    needs!(lull_testing::command("nginx"));
    let network = Network::with("");
    let direct = |path: &str, agent: &str, cookie: &str| {
        let answer = network.proxy.exchange(format!(
            "GET {path} HTTP/1.1\r\nHost: site.example\r\nAccept: text/html\r\nUser-Agent: {agent}\r\n\
             Cookie: {cookie}\r\nX-Forwarded-For: 192.0.2.7\r\nVia: 1.1 cdn\r\nConnection: close\r\n\r\n"
        ));
        let varies = answer.head.to_ascii_lowercase().contains("vary: x-lull");
        assert!(varies, "{}", answer.head);
        String::from_utf8(answer.body).unwrap()
    };
    let page = direct("/a", CHROME, "_ga=1");
    assert!(page.contains("/.lull/lull-"), "{page}");
    assert!(!page.contains("data-"), "{page}");
    assert_eq!(page, direct("/a", FIREFOX, ""));
    // Users: a shared page is the same but for what the site itself changes.
    let of_ann = direct("/a", CHROME, "session=1");
    assert_eq!(page, of_ann.replace("a of ann", "a of nobody"));
    assert!(!direct("/own", CHROME, "session=1").contains("lull"));
    assert!(direct("/own", FIREFOX, "").contains("/.lull/lull-"));
}
