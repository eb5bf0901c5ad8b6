//! Pages whose browser may not keep copies: the site's own service worker sees their requests, or cookies are
//! blocked.

use super::site::WORKER;
use super::*;

/// The site's own service worker takes over the current page.
fn hire(chromium: &mut Chromium) {
    chromium.run(&format!(
        "navigator.serviceWorker.register('{WORKER}').then(() => navigator.serviceWorker.controller
            || new Promise(done => navigator.serviceWorker.oncontrollerchange = done)).then(() => 0)"
    ));
}

#[test]
fn page_with_a_service_worker_of_the_site_prefetches_nothing() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/b", ">/c"])]);
    let mut chromium = Chromium::start();
    chromium.goto(&site.url("/start"));
    hire(&mut chromium);
    chromium.goto(&site.url("/a"));
    site.wait_until("a request for hints", |seen| {
        seen.hints.iter().any(|asked| asked.page == "/a")
    });
    let is_barred = |asked: &HintsRequest| asked.page == "/a" && asked.barred;
    assert!(site.seen().hints.iter().any(is_barred));
    point(&mut chromium, "#c");
    chromium.run("new Promise(done => setTimeout(done, 1000))");
    assert!(!site.seen().asked.iter().any(|asked| asked.ahead));
    chromium.run("fetch('/sign-in', {method: 'POST'}).then(reply => reply.text())");
    chromium.click("#b", &site.url("/b"));
    assert_eq!(chromium.run(TEXT), "page /b for ann");
}

#[test]
fn service_worker_that_takes_over_later_gets_no_copy() {
    needs!(chromium::installed());
    for cookies in ["", "_ga=GA1.1.1"] {
        let (site, mut chromium) = {
            let site = Site::start(&[("/a", &["/slow", ">/b"])]);
            let mut chromium = Chromium::start();
            chromium.goto(&site.url("/start"));
            chromium.run(&format!("document.cookie = '{cookies}'"));
            chromium.goto(&site.url("/a"));
            site.wait_for(prefetch("/slow"));
            (site, chromium)
        };
        hire(&mut chromium);
        // It is on the list, and would be fetched and confirmed.
        point(&mut chromium, "#b");
        chromium.run("new Promise(done => setTimeout(done, 1000))");
        assert_eq!(site.count(prefetch("/b")), 0, "{cookies}");
        chromium.run("fetch('/sign-in', {method: 'POST'}).then(reply => reply.text())");
        chromium.click("#b", &site.url("/b"));
        assert_eq!(chromium.run(TEXT), "page /b for ann", "{cookies}");
    }
}

#[test]
fn browser_that_blocks_cookies_prefetches_nothing() {
    needs!(chromium::installed());
    let site = Site::start(&[("/a", &["/b"])]);
    let mut chromium = Chromium::start();
    chromium
        .before("Object.defineProperty(Navigator.prototype, 'cookieEnabled', {get: () => false})");
    chromium.goto(&site.url("/a"));
    site.wait_until("a request for hints", |seen| seen.hints.iter().any(|asked| asked.barred));
    assert_eq!(site.count(prefetch("/b")), 0);
}
