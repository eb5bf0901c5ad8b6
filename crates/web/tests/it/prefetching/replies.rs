//! The consequences of a reply, beyond the prefetch or the visit that it answers.

use std::sync::atomic::{AtomicBool, Ordering};

use super::in_halves::UnderWay;
use super::*;

const HTTPS: &str = "X-Forwarded-Proto: https\r\n";

fn trusting() -> Settings {
    Settings { trust_forwarded: true, ..Settings::default() }
}

#[test]
fn redirect_to_https_or_after_a_form_bars_nothing() {
    let site = fronted_with(trusting(), NO_ROBOTS, |peer, head| {
        let path = head.split(' ').nth(1).unwrap();
        let to = match (header(head, "x-forwarded-proto"), header(head, "host")) {
            (Some("http"), _) => format!("https://site.example{path}"),
            (_, Some("www.site.example")) => format!("https://site.example{path}"),
            _ if head.starts_with("POST ") => path.to_owned(),
            _ => return peer.send(page("", PAGE)),
        };
        peer.send(format!("HTTP/1.1 301 Go\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"));
    });
    let known = || site.proxy.exchange(prefetch("/.-known", "1", HTTPS)).status() == 200;
    until(known);
    let form = visit("/b", HTTPS).replacen("GET", "POST", 1);
    for before in [
        visit("/b", "X-Forwarded-Proto: http\r\n"),
        visit("/b", HTTPS).replace("Host: ", "Host: www."),
        form,
        // Nor does it if a prefetch finds it.
        prefetch("/b", "1", "X-Forwarded-Proto: http\r\n"),
    ] {
        let answer = site.proxy.exchange(&before);
        assert!([301, 204].contains(&answer.status()), "{answer:?}");
        let answer = site.proxy.exchange(prefetch("/b", "1", HTTPS));
        assert_eq!(answer.status(), 200, "{before}");
    }
}

#[test]
fn prefetch_replies_carry_the_mark_of_the_proxy() {
    let settings = Settings { access: Access::Token("secret".into()), ..trusting() };
    let site = fronted_with(settings, NO_ROBOTS, |peer, _| peer.send(page("", PAGE)));
    site.until_robots_are_known();
    let said = |request: String| {
        let answer = site.proxy.exchange(request);
        (answer.status(), answer.header("x-lull").map(str::to_owned))
    };
    let status = || {
        let status = site.visit("/.lull/status", "Authorization: Bearer secret\r\n").text();
        serde_json::from_str::<serde_json::Value>(&status).unwrap()
    };
    let before = status();
    assert_eq!(said(prefetch("/b", "1", "")), (200, Some("1".into())));
    // A cache may store these.
    assert_eq!(said(visit("/b", "")), (200, None));
    // The probe for a cache in front, of any page.
    let asked = site.asked.lock().unwrap().len();
    for method in ["HEAD", "GET"] {
        for path in ["/b", "/b?page=2", "/logout", "/"] {
            let request = prefetch(path, "0", "").replacen("GET", method, 1);
            let answer = site.proxy.exchange(request);
            let found = (answer.status(), answer.header("x-lull"), answer.header("cache-control"));
            assert_eq!(found, (204, Some("0"), Some("no-store")), "{method} {path}");
        }
    }
    assert_eq!(status()["refused"], before["refused"]);
    assert_eq!(said(prefetch("/logout", "1", "")), (204, Some("0".into())));
    assert_eq!(site.asked.lock().unwrap().len(), asked);
}

#[test]
fn page_that_varies_on_cookies_is_prefetched_for_all() {
    let site = fronted_with(trusting(), NO_ROBOTS, |peer, _| {
        peer.send(page("Vary: Cookie, X-Inertia\r\n", PAGE));
    });
    site.until_robots_are_known();
    let copy = site.prefetch("/b");
    assert_eq!((copy.status(), copy.header("vary")), (200, Some("Cookie, X-Inertia")));
    assert_eq!(site.asks_again("/b", "1", copy.header("etag").unwrap(), "").status(), 304);
}

#[test]
fn page_stale_in_the_cache_of_the_site_is_prefetched_again() {
    let is_old = Arc::new(AtomicBool::new(true));
    let old = Arc::clone(&is_old);
    let site = fronted(move |head| {
        let is_old = head.starts_with("GET /b ") && old.load(Ordering::Relaxed);
        let age = if is_old { "Age: 101\r\n" } else { "Age: 1\r\n" };
        page(&format!("Cache-Control: max-age=100\r\n{age}"), PAGE)
    });
    assert_eq!(site.prefetch("/b").status(), 204);
    is_old.store(false, Ordering::Relaxed);
    let fresh = site.prefetch("/b");
    assert_eq!((fresh.status(), fresh.header("cache-control")), (200, Some("private, max-age=99")));
}

#[test]
fn missing_page_is_requested_once_and_forgotten() {
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&is_gone);
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            *count.lock().unwrap() += usize::from(head.starts_with("GET /b "));
            let is_there = !gone.load(Ordering::Relaxed) || !head.starts_with("GET /b ");
            let is_robots = head.starts_with("GET /robots.txt ");
            peer.send(if is_there && !is_robots { page("", PAGE) } else { NO_ROBOTS.to_owned() });
        }
    });
    let saved: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let keep = Arc::clone(&saved);
    let save = Box::new(move |model: &[u8]| {
        *keep.lock().unwrap() = Some(model.to_vec());
        Ok(())
    });
    let hasher = ClientHasher::new([7; 16]);
    let model = Model::new(hasher, Limits::default(), PpmParameters::shipped());
    let nps = Arc::new(Nps::new(trusting(), model, Some(save)));
    let change = |config: &mut lull_web::proxy::Config| config.trust_forwarded = true;
    let proxy = proxy_with(address, change, Some(Arc::clone(&nps) as _));
    until(|| proxy.exchange(prefetch("/.-known", "1", "")).status() == 200);
    for visitor in 1..13 {
        for path in ["/a", "/b"] {
            let from = format!("X-Forwarded-For: 192.0.2.{visitor}\r\n");
            assert_eq!(proxy.exchange(visit(path, &from)).status(), 200);
        }
    }
    is_gone.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(proxy.exchange(prefetch("/b", "1", "")).status(), 204);
    }
    assert_eq!(*asked.lock().unwrap(), 13);
    drop(proxy);
    nps.stop();
    let model = common::kept_model(&saved.lock().unwrap().take().unwrap());
    let observer = model.observer();
    let is_public = |path| observer.urls().is_public(observer.url(path).unwrap());
    assert_eq!((is_public("/a"), is_public("/b")), (true, false));
}

#[test]
fn kill_switch_ends_a_prefetch_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("off");
    let settings = Settings { off_file: Some(file.clone()), ..Settings::default() };
    let (in_halves, go) = in_halves("text/plain");
    let site = fronted_with(settings, NO_ROBOTS, move |peer, head| {
        if head.starts_with("GET /slow ") {
            in_halves(peer);
        } else {
            peer.send(page("", PAGE));
        }
    });
    site.until_robots_are_known();
    let slow = UnderWay::begin(&site, "/slow", "1", "");
    std::fs::write(&file, "").unwrap();
    until(|| site.prefetch("/b").status() == 204);
    go.send(()).unwrap();
    slow.assert_cut_off();
}
