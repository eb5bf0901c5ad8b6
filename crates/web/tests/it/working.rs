//! The service worker in a real Chromium that claims to be Firefox, with the proxy in front of a site.

use crate::browser::chromium;
use std::thread;
use std::time::{Duration, Instant};

use crate::browser::chromium::Chromium;
use crate::common::pages::{FIREFOX, Pages, front, front_with, settings, switch_off};
use crate::common::{Proxy, header, proxy_with};
use lull_testing::needs;
use lull_web::nps::{ServiceWorker, Settings};
use lull_web::proxy::{Config, Event};
use serde_json::Value;

/// How long a test waits for a required event.
const TIMEOUT: Duration = Duration::from_secs(120);

const TEXT: &str = "document.querySelector('p').innerText";
const IS_COPY: &str = "performance.getEntriesByType('navigation')[0].serverTiming\
    .some(one => one.name === 'lull')";
/// The installed workers: their scripts' paths.
const WORKERS: &str = "navigator.serviceWorker.getRegistrations().then(all => all.flatMap(one => \
    [one.installing, one.waiting, one.active].filter(Boolean))\
    .map(one => new URL(one.scriptURL).pathname).sort().join())";
/// Number of items in Lull's cache: copies, and until when the worker stays.
const KEPT: &str = "caches.has('lull').then(has => has ? caches.open('lull')\
    .then(cache => cache.keys()).then(keys => keys.length) : 0)";

/// Waits until an expression has a value.
fn wait_for(chromium: &mut Chromium, expression: &str, expected: impl Into<Value>) {
    let (begun, expected) = (Instant::now(), expected.into());
    loop {
        let found = chromium.run(expression);
        if found == expected {
            return;
        }
        assert!(begun.elapsed() < TIMEOUT, "{expression} is {found}, not {expected}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn url(proxy: &Proxy, path: &str) -> String {
    format!("http://{}{path}", proxy.address())
}

/// A browser that shows a, and whose service worker has a copy of b.
fn visitor_with_a_copy(pages: &Pages, proxy: &Proxy, cookies: &str) -> Chromium {
    let mut chromium = Chromium::called(FIREFOX);
    if !cookies.is_empty() {
        chromium.goto(&url(proxy, "/c"));
        chromium.run(&format!("document.cookie = '{cookies}'"));
    }
    let page = url(proxy, "/a");
    chromium.goto(&page);
    let begun = Instant::now();
    while chromium.run(KEPT) != 2 {
        assert!(begun.elapsed() < TIMEOUT, "no copy is made");
        thread::sleep(Duration::from_millis(100));
        chromium.go_on(begun, &page);
    }
    assert_eq!(chromium.run(WORKERS), "/.lull/worker.js");
    let asked = pages.asked("/b");
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(header(&asked[0], "sec-purpose"), Some("prefetch"));
    chromium
}

#[test]
fn click_shows_the_copy_and_reload_the_page() {
    needs!(chromium::installed());
    let pages = Pages::start();
    let proxy = front(&pages, settings());
    let mut chromium = visitor_with_a_copy(&pages, &proxy, "");
    // No program of the site finds it by the page's URL, which is the most common lookup.
    assert_eq!(chromium.run("caches.match('/b').then(Boolean)"), false);
    chromium.click("#b", &url(&proxy, "/b"));
    assert_eq!(chromium.run(IS_COPY), true);
    assert_eq!(chromium.run(TEXT), "page /b for nobody");
    assert_eq!(chromium.run("location.href"), url(&proxy, "/b"));
    assert_eq!(pages.asked("/b").len(), 1);

    chromium.reload();
    assert_eq!(chromium.run(IS_COPY), false);
    assert_eq!(chromium.run(TEXT), "page /b for nobody");
    assert_eq!(pages.asked("/b").len(), 2);
    // Neither has removed it.
    assert_eq!(chromium.run(WORKERS), "/.lull/worker.js");
}

/// The page itself was shown, and nothing is left.
fn assert_gone(chromium: &mut Chromium, pages: &Pages, text: &str) {
    assert_eq!(chromium.run(TEXT), text);
    assert_eq!(chromium.run(IS_COPY), false);
    assert_eq!(pages.asked("/b").len(), 2);
    wait_for(chromium, WORKERS, "");
    wait_for(chromium, KEPT, 0);
}

#[test]
fn sign_in_after_a_copy_shows_the_page_of_the_user() {
    needs!(chromium::installed());
    // A cookie that no script sees, and one that no reply has set.
    let by_reply = "fetch('/sign-in', {method: 'POST'}).then(reply => reply.text())";
    let by_script = "document.cookie = 'session=1'";
    for sign_in in [by_reply, by_script] {
        let pages = Pages::start();
        let proxy = front(&pages, settings());
        let mut chromium = visitor_with_a_copy(&pages, &proxy, "");
        chromium.run(sign_in);
        chromium.click("#b", &url(&proxy, "/b"));
        assert_gone(&mut chromium, &pages, "page /b for ann");
    }
}

#[test]
fn signed_in_user_gets_no_worker() {
    needs!(chromium::installed());
    let pages = Pages::start();
    let proxy = front(&pages, settings());
    let mut chromium = Chromium::called(FIREFOX);
    chromium.goto(&url(&proxy, "/c"));
    chromium.run("fetch('/sign-in', {method: 'POST'}).then(reply => reply.text())");
    chromium.goto(&url(&proxy, "/a"));
    thread::sleep(Duration::from_secs(4));
    assert_eq!(chromium.run("document.querySelectorAll('script').length"), 0);
    assert_eq!(chromium.run(WORKERS), "");
    assert_eq!(pages.asked("/b").len(), 0);
}

#[test]
fn worker_removes_itself_after_its_lifetime() {
    needs!(chromium::installed());
    let pages = Pages::start();
    let life = Duration::from_secs(5);
    let worker = Some(ServiceWorker { life });
    let proxy = front(&pages, Settings { service_worker: worker, ..settings() });
    let mut chromium = visitor_with_a_copy(&pages, &proxy, "");
    thread::sleep(life);
    chromium.click("#b", &url(&proxy, "/b"));
    // The proxy would have permitted the copy.
    assert_gone(&mut chromium, &pages, "page /b for nobody");
}

#[test]
fn worker_removes_itself_on_a_page_without_lull() {
    needs!(chromium::installed());
    let pages = Pages::start();
    let proxy = front(&pages, settings());
    let mut chromium = visitor_with_a_copy(&pages, &proxy, "");
    let address = proxy.address();
    proxy.server.stop();
    let same = |config: &mut Config| config.listen = vec![address.to_string().parse().unwrap()];
    let plain = proxy_with(pages.address, same, None);
    chromium.click("#b", &url(&plain, "/b"));
    assert_gone(&mut chromium, &pages, "page /b for nobody");
}

#[test]
fn worker_removes_itself_after_the_kill_switch() {
    needs!(chromium::installed());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("off");
    let pages = Pages::start();
    let proxy = front(&pages, Settings { off_file: Some(file.clone()), ..settings() });
    let mut chromium = visitor_with_a_copy(&pages, &proxy, "");
    let get = format!(
        "GET /a HTTP/1.1\r\nHost: {}\r\nUser-Agent: {FIREFOX}\r\nAccept: text/html\r\n\
         Connection: close\r\n\r\n",
        proxy.address()
    );
    switch_off(&file, || proxy.exchange(&get).text().contains("<script"));
    chromium.click("#b", &url(&proxy, "/b"));
    assert_gone(&mut chromium, &pages, "page /b for nobody");
}

#[test]
fn cleared_copy_is_not_shown() {
    needs!(chromium::installed());
    let pages = Pages::start();
    let proxy = front(&pages, settings());
    let mut chromium = visitor_with_a_copy(&pages, &proxy, "");
    chromium.run("fetch('/clear').then(reply => reply.text())");
    chromium.click("#b", &url(&proxy, "/b"));
    assert_eq!(chromium.run(IS_COPY), false);
    assert_eq!(pages.asked("/b").len(), 2);
}

#[test]
fn no_worker_is_installed_beside_one_of_the_site() {
    needs!(chromium::installed());
    let pages = Pages::start();
    let plain = proxy_with(pages.address, |_| {}, None);
    let mut chromium = Chromium::called(FIREFOX);
    chromium.goto(&url(&plain, "/c"));
    // For a folder, of which the proxy will get no report.
    chromium.run("navigator.serviceWorker.register('/sw.js', {scope: '/app/'}).then(() => 1)");
    let address = plain.address();
    plain.server.stop();
    let proxy = front_with(&pages, settings(), |config| {
        config.listen = vec![address.to_string().parse().unwrap()];
    });
    chromium.goto(&url(&proxy, "/a"));
    assert!(chromium.run("document.scripts[0].src").as_str().unwrap().contains("/.lull/"));
    thread::sleep(Duration::from_secs(6));
    assert_eq!(chromium.run(WORKERS), "/sw.js");
    assert_eq!(chromium.run(KEPT), 0);
    assert_eq!(pages.asked("/b").len(), 0);
    assert_eq!(proxy.told(|event| matches!(event, Event::SiteHasWorker { .. })), 0);
}

#[test]
fn later_worker_of_the_site_replaces_that_of_lull() {
    needs!(chromium::installed());
    let pages = Pages::start();
    let proxy = front(&pages, settings());
    let mut chromium = visitor_with_a_copy(&pages, &proxy, "");
    chromium.run("navigator.serviceWorker.register('/sw.js').then(() => 1)");
    wait_for(&mut chromium, KEPT, 0);
    assert_eq!(proxy.told(|event| matches!(event, Event::SiteHasWorker { .. })), 1);
    for _ in 0..2 {
        chromium.click("#b", &url(&proxy, "/b"));
        assert_eq!(chromium.run(TEXT), "page /b for nobody");
        assert_eq!(chromium.run(IS_COPY), false);
        // The site's is never removed with Lull's.
        assert!(chromium.run(WORKERS).as_str().unwrap().contains("/sw.js"));
        chromium.click("#c", &url(&proxy, "/c"));
    }
    assert_eq!(chromium.run(KEPT), 0);
}

/// Makes the worker fetch a page, like the script of the current page with that entry of its lists. Returns
/// the pages with copies after that.
fn take(chromium: &mut Chromium, path: &str, rank: u32) -> String {
    let kept = chromium.run(&format!(
        "new Promise(done => {{
            const way = new MessageChannel();
            way.port1.onmessage = done;
            navigator.serviceWorker.controller.postMessage({{take: '{path}', rank: {rank}}}, [way.port2]);
        }}).then(() => caches.open('lull')).then(cache => cache.keys())
            .then(keys => keys.map(key => key.url.split('/').slice(6).join('/')).filter(Boolean).sort().join(' '))"
    ));
    kept.as_str().unwrap().to_owned()
}

#[test]
fn full_worker_drops_the_worst_copy_of_the_oldest_page() {
    needs!(chromium::installed());
    let pages = Pages::start();
    let proxy = front(&pages, settings());
    let mut chromium = visitor_with_a_copy(&pages, &proxy, "");
    // The worker takes over with the next page.
    chromium.goto(&url(&proxy, "/c"));
    let mut kept = String::new();
    for rank in 1..=15 {
        kept = take(&mut chromium, &format!("/n{rank}"), rank);
    }
    assert_eq!(kept.split(' ').count(), 16, "{kept}");
    // One more than there is room for: the previous page has /b.
    kept = take(&mut chromium, "/n16", 16);
    assert!(!kept.contains("b ") && kept.contains("n1 ") && kept.contains("n16"), "{kept}");
    // The current page keeps its best.
    kept = take(&mut chromium, "/n17", 17);
    assert!(!kept.contains("n17") && kept.contains("n1 ") && kept.contains("n16"), "{kept}");
    // The next page replaces the worst of the previous one.
    chromium.goto(&url(&proxy, "/a"));
    kept = take(&mut chromium, "/m", 1);
    assert!(kept.contains("m ") && kept.contains("n1 ") && !kept.contains("n16"), "{kept}");
}
