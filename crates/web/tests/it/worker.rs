//! The service worker, from the proxy's side: the URLs that it may fetch and show, over real sockets.
//! `working.rs` has it in a browser.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::pages::{FIREFOX, Pages, front, settings, switch_off};
use crate::common::{Answer, Client, LIMIT, Proxy, header};
use lull_web::nps::Settings;
use lull_web::proxy::Event;
use lull_web::script::{script, script_by_worker};

const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0 Safari/537.36";

/// In front of it, as if reached by HTTPS through another proxy.
struct Fronted {
    proxy: Proxy,
    pages: Pages,
}

fn fronted(change: impl FnOnce(&mut Settings)) -> Fronted {
    let pages = Pages::start();
    let mut settings = Settings { trust_forwarded: true, ..settings() };
    change(&mut settings);
    let has_worker = settings.service_worker.is_some();
    let site = Fronted { proxy: front(&pages, settings), pages };
    let begun = Instant::now();
    // Until robots.txt is known.
    while has_worker && site.ahead("/known", "").status() != 200 {
        assert!(begun.elapsed() < LIMIT, "nothing is ever let through");
        thread::sleep(Duration::from_millis(10));
    }
    site
}

impl Fronted {
    fn exchange(&self, door: usize, head: &str, more: &str) -> Answer {
        let mut client = Client::connect(self.proxy.server.addresses()[door].address);
        client.send(format!("{head}Connection: close\r\n{more}\r\n"));
        client.rest()
    }

    /// A navigation of Firefox.
    fn visit(&self, path: &str, more: &str) -> Answer {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {FIREFOX}\r\n\
             Accept: text/html\r\nX-Forwarded-Proto: https\r\n"
        );
        self.exchange(0, &head, more)
    }

    /// A fetch of the service worker.
    fn ahead(&self, path: &str, more: &str) -> Answer {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: site.example:8443\r\nUser-Agent: {FIREFOX}\r\n\
             Accept: text/html\r\nX-Forwarded-Proto: https\r\nOrigin: https://site.example\r\n"
        );
        self.exchange(1, &head, more)
    }

    /// The name of a copy.
    fn copy(&self, path: &str) -> String {
        let answer = self.ahead(path, "");
        answer.header("x-lull-copy").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    }

    /// Which copy a navigation is shown; `None` for the page itself.
    fn shown(&self, path: &str, names: &str, more: &str) -> Option<String> {
        let preload = format!("Service-Worker-Navigation-Preload: lull {names}\r\n");
        let answer = self.visit(path, &format!("{preload}{more}"));
        let copy = answer.header("x-lull-copy").map(str::to_owned);
        assert_eq!(answer.status(), 200, "{answer:?}");
        assert_eq!(copy.is_none(), answer.text().contains("<p>page"), "{answer:?}");
        copy
    }
}

#[test]
fn worker_port_serves_only_prefetches() {
    let site = fronted(|_| {});
    let fetch = "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n";
    let answer =
        site.ahead("/b", &format!("{fetch}Cache-Control: no-cache\r\nPragma: no-cache\r\n"));
    assert_eq!(answer.status(), 200);
    for (name, expected) in [
        ("access-control-allow-origin", "https://site.example"),
        ("access-control-expose-headers", "*"),
        ("cache-control", "private, max-age=200"),
    ] {
        assert_eq!(answer.header(name), Some(expected), "{name}");
    }
    let asked = site.pages.asked("/b");
    for (name, expected) in [
        ("host", Some("site.example")),
        ("x-forwarded-host", Some("site.example")),
        ("sec-purpose", Some("prefetch")),
        ("sec-fetch-site", Some("same-origin")),
        ("sec-fetch-dest", Some("document")),
        ("origin", None),
        ("cache-control", None),
        ("pragma", None),
        ("cookie", None),
    ] {
        assert_eq!(header(&asked[0], name), expected, "{name} in {asked:?}");
    }
    // A page with a script has the one for use with the worker.
    assert!(site.ahead("/a", fetch).text().contains(&script_by_worker().path));

    let before = site.pages.asked.lock().unwrap().len();
    for more in [
        "Cookie: _ga=1\r\n",
        "Cookie: session=1\r\n",
        "Authorization: Basic eA==\r\n",
        "Range: bytes=0-1\r\n",
        "Save-Data: on\r\n",
        "Via: 1.1 cache\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Mode: navigate\r\n",
        "Sec-Fetch-Dest: document\r\n",
    ] {
        let answer = site.ahead("/b", more);
        let found = (answer.status(), answer.header("cache-control"), answer.text());
        assert_eq!(found, (204, Some("no-store"), String::new()), "{more}");
    }
    for path in ["/logout", "/b?x=1", "/a/../b", "/.lull/worker.js", "/.lull/hints"] {
        assert_eq!(site.ahead(path, "").status(), 204, "{path}");
    }
    let host = "Host: site.example:8443\r\n";
    let agent = format!("User-Agent: {FIREFOX}\r\n");
    for (head, what) in [
        (format!("GET /b HTTP/1.1\r\n{host}{agent}"), "a visitor's navigation"),
        (
            format!("GET /b HTTP/1.1\r\n{host}{agent}Origin: https://other.example\r\n"),
            "another site",
        ),
        (format!("GET /b HTTP/1.1\r\n{host}{agent}Origin: null\r\n"), "who does not say"),
        (
            format!(
                "POST /b HTTP/1.1\r\n{host}{agent}Origin: https://site.example\r\nContent-Length: 0\r\n"
            ),
            "what does something",
        ),
        (
            format!(
                "GET /b HTTP/1.1\r\n{host}User-Agent: {CHROME}\r\nOrigin: https://site.example\r\n"
            ),
            "who needs no worker",
        ),
    ] {
        let answer = site.exchange(1, &head, "");
        assert_eq!((answer.status(), answer.text().as_str()), (204, ""), "{what}");
    }
    assert_eq!(site.pages.asked.lock().unwrap().len(), before);
    // A reply that must not be kept is not sent.
    let answer = site.ahead("/own", "");
    assert_eq!((answer.status(), answer.header("x-lull-copy")), (204, None));
}

#[test]
fn copy_is_shown_to_anonymous_users_at_its_navigation() {
    let site = fronted(|_| {});
    let (b, c) = (site.copy("/b"), site.copy("/c"));
    let names = format!("{c} {b}");
    let asked = site.pages.asked("/b").len();
    assert_eq!(site.shown("/b", &names, ""), Some(b.clone()));
    assert_eq!(site.shown("/b", &names, "Cookie: _ga=1\r\n"), Some(b.clone()));
    assert_eq!(site.pages.asked("/b").len(), asked);
    for (path, names, more) in [
        ("/b", names.as_str(), "Cookie: session=1\r\n"),
        ("/b", &names, "Cookie: _ga=1; session=1\r\n"),
        ("/b", &names, "Authorization: Basic eA==\r\n"),
        // Through a cache with unknown contents.
        ("/b", &names, "Via: 1.1 cache\r\n"),
        // Reloads, and requests for other resources than pages.
        ("/b", &names, "Cache-Control: max-age=0\r\n"),
        ("/b", &names, "Pragma: no-cache\r\n"),
        ("/b", &names, "Range: bytes=0-\r\n"),
        ("/b", &names, "Sec-Fetch-Dest: iframe\r\n"),
        ("/b", &c, ""),
        ("/b", "", ""),
        ("/b?x", &names, ""),
        ("/d", &names, ""),
    ] {
        assert_eq!(site.shown(path, names, more), None, "{path} {more}");
    }
    for head in site.pages.asked("/b") {
        assert_eq!(header(&head, "service-worker-navigation-preload"), None);
    }
    // The field of the site's own worker goes to the site.
    let own = "Service-Worker-Navigation-Preload: true\r\n";
    site.visit("/e", own);
    let asked = site.pages.asked("/e");
    assert_eq!(header(&asked[0], "service-worker-navigation-preload"), Some("true"));
}

#[test]
fn copy_is_shown_by_the_same_rules_without_https() {
    let site = fronted(|settings| settings.trust_forwarded = false);
    let name = site.copy("/b");
    let shown = |host: &str, more: &str| {
        let head = format!(
            "GET /b HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {FIREFOX}\r\nAccept: text/html\r\n\
             Service-Worker-Navigation-Preload: lull {name}\r\n"
        );
        site.exchange(0, &head, more).header("x-lull-copy").is_some()
    };
    assert!(shown("127.0.0.1", ""));
    assert!(shown("127.0.0.1", "Cookie: _ga=1\r\n"));
    assert!(!shown("127.0.0.1", "Cookie: session=1\r\n"));
}

#[test]
fn navigation_response_says_whether_the_worker_stays() {
    let site = fronted(|_| {});
    let name = site.copy("/b");
    let preload = format!("Service-Worker-Navigation-Preload: lull {name}\r\n");
    let stays = |path: &str, more: &str| {
        site.visit(path, &format!("{preload}{more}")).header("x-lull-worker").is_some()
    };
    // With or without a script, for any result.
    assert!(stays("/a", "") && stays("/c", "") && stays("/clear", ""));
    assert!(!stays("/a", "Cookie: session=1\r\n"));
    assert!(!stays("/a", "Save-Data: on\r\n"));
    let without = site.visit("/a", "");
    assert_eq!(without.header("x-lull-worker"), None);
    assert!(without.text().contains(&script_by_worker().path));
}

#[test]
fn cleared_or_revoked_copy_is_not_shown() {
    let site = fronted(|_| {});
    let name = site.copy("/b");
    assert!(site.shown("/b", &name, "").is_some());
    site.visit("/clear", "");
    assert_eq!(site.shown("/b", &name, ""), None);

    // A user who has written something would be shown the earlier page.
    let site = fronted(|_| {});
    let name = site.copy("/b");
    let vote = format!(
        "POST /vote HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {FIREFOX}\r\nContent-Length: 0\r\n\
         X-Forwarded-Proto: https\r\n"
    );
    assert_eq!(site.exchange(0, &vote, "").status(), 200);
    assert_eq!(site.shown("/b", &name, ""), None);
    // A later copy is valid: pages may write with each view, such as for statistics.
    let name = site.copy("/b");
    assert_eq!(site.shown("/b", &name, ""), Some(name));
}

#[test]
fn kill_switch_acts_at_the_next_navigation() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("off");
    let site = fronted(|settings| settings.off_file = Some(file.clone()));
    let name = site.copy("/b");
    assert!(site.shown("/b", &name, "").is_some());
    assert!(!is_one_that_goes(&site.visit("/.lull/worker.js", "")));
    switch_off(&file, || site.visit("/a", "").text().contains("<script"));
    assert_eq!(site.shown("/b", &name, ""), None);
    let preload = "Service-Worker-Navigation-Preload: lull\r\n";
    assert_eq!(site.visit("/a", preload).header("x-lull-worker"), None);
    assert!(is_one_that_goes(&site.visit("/.lull/worker.js", "")));
    assert_eq!(site.ahead("/b", "").status(), 204);
}

fn is_one_that_goes(answer: &Answer) -> bool {
    assert_eq!(answer.header("service-worker-allowed"), Some("/"), "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    answer.text().starts_with("const PORT=0,")
}

#[test]
fn signed_in_user_gets_the_self_removing_worker() {
    let site = fronted(|_| {});
    assert!(!is_one_that_goes(&site.visit("/.lull/worker.js", "")));
    assert!(!is_one_that_goes(&site.visit("/.lull/worker.js", "Cookie: _ga=1\r\n")));
    assert!(is_one_that_goes(&site.visit("/.lull/worker.js", "Cookie: session=1\r\n")));
    // And so do all others if workers are no longer wanted.
    let site = fronted(|settings| settings.service_worker = None);
    assert!(is_one_that_goes(&site.visit("/.lull/worker.js", "")));
}

#[test]
fn worker_of_the_site_removes_that_of_lull() {
    let site = fronted(|_| {});
    let name = site.copy("/b");
    let asks = "Service-Worker: script\r\nSec-Fetch-Dest: serviceworker\r\n";
    // That is our worker.
    site.visit("/.lull/worker.js", asks);
    assert!(site.shown("/b", &name, "").is_some());
    site.visit("/sw.js", asks);
    assert_eq!(site.shown("/b", &name, ""), None);
    assert_eq!(site.ahead("/b", "").status(), 204);
    assert!(is_one_that_goes(&site.visit("/.lull/worker.js", "")));
    // New visitors get none of it; a browser with the worker gets the script that cleans up.
    let preload = "Service-Worker-Navigation-Preload: lull\r\n";
    assert!(!site.visit("/a", "").text().contains("<script"));
    let answer = site.visit("/a", preload);
    assert!(answer.text().contains(&script_by_worker().path));
    assert_eq!(answer.header("x-lull-worker"), None);
    site.visit("/sw.js", asks);
    let is_it = |event: &Event| matches!(event, Event::SiteHasWorker { path } if path == "/sw.js");
    assert_eq!(site.proxy.told(is_it), 1);
}

#[test]
fn request_like_a_worker_script_disables_nothing() {
    let site = fronted(|_| {});
    let name = site.copy("/b");
    let dest = "Sec-Fetch-Dest: serviceworker\r\n";
    for (path, more) in [
        // No browser sends such a request.
        ("/sw.js", "Service-Worker: script\r\n".to_owned()),
        ("/sw.js", dest.to_owned()),
        ("/sw.js", "Service-Worker: script\r\nSec-Fetch-Dest: script\r\n".to_owned()),
        // And here there is none.
        ("/c", format!("Service-Worker: script\r\n{dest}")),
        ("/gone", format!("Service-Worker: script\r\n{dest}")),
    ] {
        site.visit(path, &more);
        assert!(site.shown("/b", &name, "").is_some(), "{path} {more}");
    }
    assert_eq!(site.proxy.told(|event| matches!(event, Event::SiteHasWorker { .. })), 0);
}

#[test]
fn only_firefox_gets_the_worker_if_enabled() {
    let pages_of = |site: &Fronted, agent: &str, proto: &str| {
        let head = format!(
            "GET /a HTTP/1.1\r\nHost: site.example\r\nUser-Agent: {agent}\r\nAccept: text/html\r\n\
             X-Forwarded-Proto: {proto}\r\n"
        );
        site.exchange(0, &head, "").text()
    };
    let site = fronted(|_| {});
    assert!(pages_of(&site, FIREFOX, "https").contains(&script_by_worker().path));
    assert!(pages_of(&site, CHROME, "https").contains(&script().path));
    // Browsers have no workers on insecure connections.
    assert!(!pages_of(&site, FIREFOX, "http").contains("<script"));
    for path in ["/strict", "/typed"] {
        assert!(!site.visit(path, "").text().contains("<script"), "{path}");
    }
    let site = fronted(|settings| settings.service_worker = None);
    assert!(!pages_of(&site, FIREFOX, "https").contains("<script"));
    assert!(pages_of(&site, CHROME, "https").contains(&script().path));
}
