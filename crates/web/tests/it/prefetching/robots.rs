//! The rules of the site's robots.txt, and the behaviour if it is unreadable.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn nothing_is_prefetched_before_robots_txt_is_known() {
    let site = fronted_with(
        Settings::default(),
        "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
        |peer, _| peer.send(page("", PAGE)),
    );
    assert_eq!(site.prefetch("/b").status(), 204);
    // It is requested again.
    let begun = Instant::now();
    while site.asked("/robots.txt").len() < 2 {
        assert!(begun.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(10));
    }
    let answer = site.prefetch("/b");
    assert_eq!((answer.status(), answer.header("cache-control")), (204, Some("no-store")));
    assert_eq!(site.asked("/b").len(), 0);
    assert_eq!(site.visit("/b", "").status(), 200);
}

#[test]
fn site_that_requires_https_sees_https_in_own_requests() {
    let settings = Settings { trust_forwarded: true, ..Settings::default() };
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&asked);
    // TLS ends in front of the proxy, and there was no visit so far.
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            heard.lock().unwrap().push(head.clone());
            let path = head.split(' ').nth(1).unwrap();
            peer.send(match (header(&head, "x-forwarded-proto"), header(&head, "host")) {
                (Some("https"), _) if path == "/robots.txt" => NO_ROBOTS.to_owned(),
                (Some("https"), _) => page("", PAGE),
                (_, host) => format!(
                    "HTTP/1.1 301 Go\r\nLocation: https://{}{path}\r\nContent-Length: 0\r\n\r\n",
                    host.unwrap()
                ),
            });
        }
    });
    let proxy = proxy_with(
        address,
        |config| {
            config.trust_forwarded = true;
            config.background = Options::new().carrier(Carrier::UserSpace);
        },
        Some(Arc::new(nps(settings))),
    );
    let begun = Instant::now();
    while proxy.exchange(prefetch("/a", "1", "X-Forwarded-Proto: https\r\n")).status() != 200 {
        assert!(begun.elapsed() < LIMIT, "{:?}", asked.lock().unwrap());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(proxy.told(|event| matches!(event, Event::RobotsUnknown { .. })), 0);
}

#[test]
fn owner_learns_why_nothing_is_prefetched() {
    for (robots, said) in [
        ("301 Go\r\nLocation: https://www.other.example/robots.txt", "https://www.other.example/"),
        ("400 What", "400 Bad Request"),
        ("500 Oh", "500 Internal Server Error"),
    ] {
        let robots = format!("HTTP/1.1 {robots}\r\nContent-Length: 0\r\n\r\n");
        let access = Access::Token("secret".into());
        let settings = Settings { access, ..Settings::default() };
        let site = fronted_with(settings, robots.leak(), |peer, _| peer.send(page("", PAGE)));
        let is_it = |event: &Event| {
            matches!(event, Event::RobotsUnknown { why } if why.contains(said))
                && event.is_warning()
        };
        let begun = Instant::now();
        while site.proxy.told(is_it) == 0 {
            assert!(begun.elapsed() < LIMIT, "{:?}", site.proxy.events.lock().unwrap());
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(site.prefetch("/b").status(), 204);
        let status = site.visit("/.lull/status", "Authorization: Bearer secret\r\n").text();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        assert!(status["robots"].as_str().unwrap().contains(said), "{status}");
        assert!(status["refusal"].as_str().unwrap().contains("robots.txt"), "{status}");
        assert_eq!(site.proxy.told(is_it), 1);
    }
}

#[test]
fn missing_robots_txt_of_a_late_server_is_reported() {
    let away = common::Away::new();
    let proxy = proxy_with(away.address, |_| {}, Some(Arc::new(nps(Settings::default()))));
    let is_it = |event: &Event| matches!(event, Event::RobotsUnknown { .. });
    // The server is unreachable three times, which another event reports: the last time after 1.5 s.
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(proxy.told(is_it), 0);
    let server = away.come();
    thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
            while std::io::BufRead::read_line(&mut reader, &mut line).is_ok_and(|read| read > 2) {}
            let _ = stream
                .write_all(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    until(|| proxy.told(is_it) == 1);
}

#[test]
fn pages_disallowed_by_robots_txt_are_not_prefetched() {
    let site = fronted_with(
        Settings::default(),
        "HTTP/1.1 200 OK\r\nContent-Length: 35\r\n\r\nUser-agent: lull\nDisallow: /private",
        |peer, _| peer.send(page("", PAGE)),
    );
    site.until_robots_are_known();
    assert_eq!(site.prefetch("/private/a").status(), 204);
    assert_eq!(site.prefetch("/public").status(), 200);
    let agent = header(&site.asked("/robots.txt")[0], "user-agent").map(str::to_owned);
    assert!(agent.is_some_and(|agent| agent.contains("lull")));
}

#[test]
fn new_robots_txt_rules_apply_after_a_reload() {
    let forbids = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&forbids);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            let rules = "User-agent: *\nDisallow: /b\n";
            let is_forbidden = says.load(Ordering::Relaxed);
            peer.send(match head.starts_with("GET /robots.txt ") {
                true if is_forbidden => {
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{rules}", rules.len())
                }
                true => NO_ROBOTS.to_owned(),
                false => page("", PAGE),
            });
        }
    });
    let proxy = proxy_with(address, |_| {}, Some(Arc::new(nps(Settings::default()))));
    let status = || proxy.exchange(prefetch("/b", "1", "")).status();
    until(|| status() == 200);
    forbids.store(true, Ordering::Relaxed);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(status(), 200, "it is asked for once an hour");
    proxy.server.reload();
    until(|| status() == 204);
}

#[test]
fn upstream_may_be_down_at_start() {
    let site = Arc::new(nps(Settings::default()));
    let away = common::Away::new();
    let proxy = proxy_with(away.address, |_| {}, Some(site));
    assert_eq!(proxy.exchange(prefetch("/b", "1", "")).status(), 204);
    let server = away.come();
    let (mut stream, _) = server.accept().unwrap();
    let mut peer = std::io::BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut peer, &mut line).unwrap();
    assert_eq!(line, "GET /robots.txt HTTP/1.1\r\n");
    stream.write_all(NO_ROBOTS.as_bytes()).unwrap();
}
