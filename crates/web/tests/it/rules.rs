//! Pages that browsers prefetch by speculation rules: through the proxy over real sockets, and by a real
//! Chromium.

use crate::browser::chromium;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::browser::chromium::Chromium;
use crate::browser::site::{Asked, Site};
use crate::common::{Answer, LIMIT, Proxy, header, proxy_with, upstream};
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Limits};
use lull_speculate::predict::PpmParameters;
use lull_testing::needs;
use lull_web::nps::{Nps, Settings};
use lull_web::proxy::Event;

const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0 Safari/537.36";
const PAGE: &str = "<!doctype html><html><head><title>a</title></head><body>b</body></html>";
/// Chromium's fields of a prefetch by the script's rules.
const BY_RULES: &str = "Sec-Purpose: prefetch\r\nSec-Speculation-Tags: \"lull\"\r\n\
    Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";

/// A site with prefetching in front.
struct Fronted {
    proxy: Proxy,
    asked: Arc<Mutex<Vec<String>>>,
}

fn fronted(speculation_rules: bool) -> Fronted {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&asked);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            heard.lock().unwrap().push(head.clone());
            let fields = match head.split(' ').nth(1).unwrap() {
                "/robots.txt" => {
                    peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
                    continue;
                }
                "/own" => "Cache-Control: private\r\n",
                "/strict" => "Content-Security-Policy: script-src 'self'\r\n",
                _ => "Cache-Control: max-age=9999\r\n",
            };
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{fields}Content-Length: {}\r\n\r\n\
                 {PAGE}",
                PAGE.len()
            ));
        }
    });
    let hasher = ClientHasher::new([7; 16]);
    let model = Model::new(hasher, Limits::default(), PpmParameters::shipped());
    let settings = Settings { speculation_rules, trust_forwarded: true, ..Settings::default() };
    let nps = Arc::new(Nps::new(settings, model, None));
    let proxy = proxy_with(address, |config| config.trust_forwarded = true, Some(nps));
    let site = Fronted { proxy, asked };
    let begun = Instant::now();
    while site.get("/.-known", "X-Lull: 1\r\n").status() != 200 {
        assert!(begun.elapsed() < LIMIT, "nothing is ever let through");
        thread::sleep(Duration::from_millis(10));
    }
    site
}

impl Fronted {
    fn send(&self, method: &str, path: &str, more: &str) -> Answer {
        self.proxy.exchange(format!(
            "{method} {path} HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {CHROME}\r\n\
             Accept: text/html\r\nConnection: close\r\n{more}\r\n"
        ))
    }

    fn get(&self, path: &str, more: &str) -> Answer {
        self.send("GET", path, more)
    }

    fn asked(&self, path: &str) -> Vec<String> {
        let start = format!("GET {path} ");
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|head| head.starts_with(&start)).cloned().collect()
    }
}

#[test]
fn rules_lead_to_a_copy_that_varies_on_cookies() {
    let site = fronted(true);
    let marked = site.proxy.totals().marked;
    let led = site.get("/.lull/to/b", BY_RULES);
    assert_eq!((led.status(), led.header("location")), (307, Some("/b")));
    assert_eq!(led.header("cache-control"), Some("no-store"));
    assert_eq!(site.asked("/b").len(), 0);

    let https = "X-Forwarded-Proto: https\r\n";
    for cookies in ["", "Cookie: _ga=1\r\n"] {
        let answer = site.get("/b", &format!("{BY_RULES}{https}{cookies}If-None-Match: \"a\"\r\n"));
        assert_eq!(answer.status(), 200);
        for (name, expected) in [("cache-control", "private, max-age=300"), ("vary", "Cookie")] {
            assert_eq!(answer.header(name), Some(expected), "{name} {cookies}");
        }
        assert!(answer.text().contains("<script async"), "{answer:?}");
    }
    for asked in site.asked("/b") {
        for (name, expected) in [
            ("sec-purpose", Some("prefetch")),
            ("accept", Some("text/html")),
            ("sec-speculation-tags", None),
            ("cookie", None),
            ("if-none-match", None),
        ] {
            assert_eq!(header(&asked, name), expected, "{name} in {asked}");
        }
    }
    // None of this should be in the background.
    assert_eq!(site.proxy.totals().marked, marked);
}

#[test]
fn rules_redirect_only_admitted_prefetches() {
    let site = fronted(true);
    for (method, path, more) in [
        ("GET", "/.lull/to/b", "Cookie: session=1\r\n"),
        ("GET", "/.lull/to/b", "Authorization: Basic eA==\r\n"),
        ("GET", "/.lull/to/b", "Save-Data: on\r\n"),
        ("HEAD", "/.lull/to/b", ""),
        ("GET", "/.lull/to//other.example/", ""),
        ("GET", "/.lull/to/b/../c", ""),
        ("GET", "/.lull/to/logout", ""),
        ("GET", "/.lull/to/b?page=2", ""),
        ("GET", "/.lull/to/.lull/hints", ""),
    ] {
        let answer = site.send(method, path, &format!("{BY_RULES}{more}"));
        let found = (answer.status(), answer.header("location"), answer.header("cache-control"));
        assert_eq!(found, (204, None, Some("no-store")), "{method} {path} {more}");
    }
    // Requests not caused by our rules.
    for more in [
        String::new(),
        BY_RULES.replace("\"lull\"", "\"other\""),
        BY_RULES.replace("\"lull\"", "null"),
        BY_RULES.replace("prefetch", "prefetch;prerender"),
        BY_RULES.replace("Site: none", "Site: cross-site"),
    ] {
        let answer = site.get("/.lull/to/b", &more);
        assert_eq!((answer.status(), answer.header("location")), (204, None), "{more}");
    }
    for path in ["/.lull/tob", "/.lull/to"] {
        assert_eq!(site.get(path, BY_RULES).status(), 404, "{path}");
    }
    assert_eq!(site.asked("/b").len(), 0);
}

#[test]
fn signed_in_user_is_refused_a_copy_by_rules() {
    let site = fronted(true);
    for more in ["Cookie: session=1\r\n", "Authorization: Basic eA==\r\n"] {
        let answer = site.get("/b", &format!("{BY_RULES}{more}"));
        assert_eq!((answer.status(), answer.header("cache-control")), (204, Some("no-store")));
    }
    assert_eq!(site.asked("/b").len(), 0);
    // Nor does any client get a private page.
    let answer = site.get("/own", BY_RULES);
    assert_eq!((answer.status(), answer.text().as_str()), (204, ""));
}

#[test]
fn speculation_rules_of_the_site_pass_unchanged() {
    for (ours, tags) in [(true, "\"other\""), (true, "null"), (false, "\"lull\"")] {
        let site = fronted(ours);
        let more = BY_RULES.replace("\"lull\"", tags);
        let answer = site.get("/b", &format!("{more}Cookie: session=1\r\n"));
        assert_eq!((answer.status(), answer.text().as_str()), (200, PAGE));
        assert_eq!(
            (answer.header("vary"), answer.header("cache-control")),
            (None, Some("max-age=9999"))
        );
        assert_eq!(header(&site.asked("/b")[0], "cookie"), Some("session=1"));
    }
    assert_eq!(fronted(false).get("/.lull/to/b", BY_RULES).status(), 204);
}

#[test]
fn pages_mark_where_rules_are_allowed() {
    for (ours, path, expected) in
        [(true, "/b", true), (true, "/strict", false), (false, "/b", false)]
    {
        let site = fronted(ours);
        let page = site.get(path, "").text();
        assert!(page.contains("<script async"), "{page}");
        assert_eq!(page.contains(" data-rules></script>"), expected, "{ours} {path}");
    }
}

#[test]
fn lack_of_background_with_rules_is_reported_at_start() {
    for ours in [false, true] {
        let site = fronted(ours);
        assert_eq!(site.proxy.told(|event| *event == Event::NotInBackground), usize::from(ours));
    }
}

/// How the current page was delivered.
const DELIVERY: &str = "performance.getEntriesByType('navigation')[0].deliveryType";
const TEXT: &str = "document.body.innerText";

fn by_rules(path: &'static str) -> impl Fn(&Asked) -> bool {
    move |asked| asked.path == path && asked.by_rules
}

fn demand(path: &'static str) -> impl Fn(&Asked) -> bool {
    move |asked| asked.path == path && !asked.ahead
}

/// A Chromium that shows /a and has fetched /b.
fn visitor(site: &Site, cookies: &str) -> Chromium {
    let mut chromium = Chromium::start();
    if !cookies.is_empty() {
        chromium.goto(&site.url("/c"));
        chromium.run(&format!("document.cookie = '{cookies}'"));
    }
    chromium.goto(&site.url("/a"));
    site.wait_for(by_rules("/b"));
    // The whole of it has arrived.
    chromium.run("new Promise(done => setTimeout(done, 1000))");
    chromium
}

#[test]
fn rules_prefetch_on_a_demand_connection_into_the_cache() {
    needs!(chromium::installed());
    for cookies in ["", "_ga=GA1.1.1"] {
        let site = Site::by_rules(&[("/a", &["/b"])], None);
        let mut chromium = visitor(&site, cookies);
        let ahead = site.wait_for(by_rules("/b"));
        let of_demand = |asked: &Asked| {
            asked.connection == ahead.connection
                && !asked.ahead
                && !asked.path.starts_with("/.lull/to")
        };
        assert!(site.count(of_demand) > 0, "{:#?}", site.seen().asked);
        assert_eq!(ahead.cookie, None);

        chromium.click("#b", &site.url("/b"));
        assert_eq!(chromium.run(DELIVERY), "cache", "{cookies}");
        assert_eq!(chromium.run(TEXT), "page /b for nobody");
        assert_eq!(site.count(demand("/b")), 0);
        site.wait_until("a hints request of /b", |seen| {
            seen.hints.iter().any(|hints| hints.page == "/b" && hints.cached && hints.first)
        });
        chromium.goto(&site.url("/c"));
        site.wait_until("a report of /b", |seen| {
            seen.beacons.iter().any(|beacon| {
                beacon.page == "/b" && beacon.nav.as_ref().is_some_and(|nav| nav.cached)
            })
        });
    }
}

#[test]
fn sign_in_after_a_rules_prefetch_shows_the_page_of_the_user() {
    needs!(chromium::installed());
    let by_reply = "fetch('/sign-in', {method: 'POST'}).then(reply => reply.text())";
    let by_script = "document.cookie = 'session=1'";
    for (cookies, sign_in) in [("", by_reply), ("", by_script), ("_ga=GA1.1.1", by_script)] {
        let site = Site::by_rules(&[("/a", &["/b"])], None);
        let mut chromium = visitor(&site, cookies);
        chromium.run(sign_in);
        chromium.click("#b", &site.url("/b"));
        assert_eq!(chromium.run(TEXT), "page /b for ann", "{cookies} {sign_in}");
        assert_eq!(site.count(demand("/b")), 1);
    }
}

#[test]
fn signed_in_user_gets_no_rules() {
    needs!(chromium::installed());
    let site = Site::by_rules(&[("/a", &["/b"])], None);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/c"));
    chromium.run("document.cookie = 'session=1'");
    chromium.goto(&site.url("/a"));
    thread::sleep(Duration::from_secs(3));
    assert_eq!(chromium.run("document.querySelectorAll('script').length"), 0);
    chromium.click("#b", &site.url("/b"));
    assert_eq!(chromium.run(TEXT), "page /b for ann");
    assert_eq!(site.count(|asked| asked.ahead), 0);
}

#[test]
fn script_fetches_without_violations_where_policy_bars_rules() {
    needs!(chromium::installed());
    for (policy, may) in [
        ("script-src 'nonce-abc' 'strict-dynamic'; connect-src 'self'", true),
        ("script-src 'self' 'inline-speculation-rules'", true),
        ("script-src 'self'", false),
        ("script-src https://cdn.example", false),
        ("require-trusted-types-for 'script'; trusted-types 'none'", false),
    ] {
        let site = Site::by_rules(&[("/a", &["/b"])], Some(policy));
        let mut chromium = Chromium::start();
        chromium.before(
            "window.violations = 0;
             document.addEventListener('securitypolicyviolation', () => violations++);",
        );
        chromium.goto(&site.url("/a"));
        let ahead = site.wait_for(|asked| asked.path == "/b" && asked.ahead);
        assert_eq!(ahead.by_rules, may, "{policy}");
        assert_eq!(chromium.run("violations"), 0, "{policy}");
    }
}

#[test]
fn repeatedly_pressed_link_has_one_rule() {
    needs!(chromium::installed());
    let site = Site::by_rules(&[("/a", &["/b"])], None);
    let mut chromium = visitor(&site, "");
    site.wait_for(by_rules("/b"));
    let press = "document.querySelector('#b').dispatchEvent(
        new PointerEvent('pointerdown', {bubbles: true, button: 0}))";
    for _ in 0..5 {
        chromium.run(press);
        chromium.run("new Promise(done => setTimeout(done, 100))");
    }
    let rules = "document.querySelectorAll('script[type=speculationrules]').length";
    assert!(chromium.run(rules).as_u64().unwrap() <= 1);
}

#[test]
fn click_on_another_link_ends_a_prefetch_by_rules() {
    needs!(chromium::installed());
    let site = Site::by_rules(&[("/a", &["/slow"])], None);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(by_rules("/slow"));
    chromium.click("#c", &site.url("/c"));
    site.wait_until("the end of the slow prefetch", |seen| seen.cut_off.contains(&"/slow".into()));
}

#[test]
fn redirect_found_by_rules_bars_its_url_and_is_not_followed() {
    needs!(chromium::installed());
    let site = Site::by_rules(&[("/a", &["/moved", "/b"])], None);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/a"));
    site.wait_for(by_rules("/b"));
    site.wait_for(by_rules("/moved"));
    chromium.run("new Promise(done => setTimeout(done, 1000))");
    assert!(site.is_barred("/moved"));
    assert_eq!(site.count(|asked| asked.path == "/sign-in"), 0);
}
