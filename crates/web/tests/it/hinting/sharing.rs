//! Two proxies of one site share what they learn through a real NATS server.

use lull_testing::nats::NatsServers;
use lull_testing::needs;
use lull_web::nps::{Access, ShareSettings};

use super::*;

/// Longest time until something that one proxy has learned is known at the other.
const SOON: Duration = Duration::from_secs(60);

/// A proxy of the site with a key, in front of its own server.
fn proxy(nats: &NatsServers, key: u8, held_back: u16) -> Site {
    proxy_at(&nats.url(), key, held_back)
}

fn proxy_at(url: &str, key: u8, held_back: u16) -> Site {
    let share = ShareSettings {
        servers: url.split(',').map(str::to_owned).collect(),
        name: "site-example".into(),
        key: [key; 16],
    };
    let settings = Settings {
        monitor: quick(),
        share: Some(share),
        held_back,
        access: Access::Token("secret".into()),
        ..Settings::default()
    };
    let model =
        Model::new(ClientHasher::new([key; 16]), Limits::default(), PpmParameters::shipped());
    site_with(settings, model)
}

/// Waits until a proxy has this figure of sharing, of at least this value.
#[track_caller]
fn until(site: &Site, name: &str, value: u64) {
    let begun = Instant::now();
    loop {
        let status = site.get(1, "/.lull/status", "Authorization: Bearer secret\r\n");
        let status: Value = serde_json::from_slice(&status.body).unwrap_or_default();
        let found = &status["share"][name];
        let found = found.as_u64().or(found.as_bool().map(u64::from)).unwrap_or(0);
        if found >= value {
            return;
        }
        assert!(begun.elapsed() < SOON, "no {name} of {value}: {}", status["share"]);
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until the list for a page has, or has not, a URL.
#[track_caller]
fn until_hinted(site: &Site, page: &str, url: &str, is_hinted: bool) {
    let begun = Instant::now();
    for visitor in (200..250).cycle() {
        let reply = site.ask(visitor, page, &[], false);
        let hints = reply["hints"].as_array().unwrap();
        let has = hints.iter().any(|hint| hint["url"] == url);
        // Without budget a list is empty, which says nothing.
        if has == is_hinted && !hints.is_empty() {
            return;
        }
        assert!(begun.elapsed() < SOON, "{url} at {page}: {reply}");
        thread::sleep(Duration::from_millis(220));
    }
}

/// Waits until a proxy has reported such an event.
#[track_caller]
fn until_reported(site: &Site, is_expected: impl Fn(&Event) -> bool) {
    let begun = Instant::now();
    loop {
        let (is_reported, all) = {
            let events = site.proxy.events.lock().unwrap();
            (events.iter().any(&is_expected), format!("{events:?}"))
        };
        if is_reported {
            return;
        }
        assert!(begun.elapsed() < SOON, "not among {all}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn proxy_that_starts_before_the_server_shares_later() {
    needs!(lull_testing::command("nats-server"));
    let mut nats = NatsServers::single();
    nats.kill(0);
    let (one, other) = (proxy(&nats, 1, 0), proxy(&nats, 1, 0));
    one.go(1..25, &["/a", "/b"]);
    until_hinted(&one, "/a", "/b", true);
    assert_eq!(other.ask(60, "/a", &[], false)["hints"], json!([]));
    nats.restart(0);
    nats.wait_until_ready(0);
    until_hinted(&other, "/a", "/b", true);
}

/// The credentials are in the address.
#[test]
fn rejected_proxy_reports_it_and_another_is_accepted() {
    needs!(lull_testing::command("nats-server"));
    let nats = NatsServers::single_with("authorization { user: u, password: p }");
    let rejected = proxy(&nats, 1, 0);
    let accepted = proxy_at(&nats.url().replace("nats://", "nats://u:p@"), 1, 0);
    until(&accepted, "connected", 1);
    until_reported(
        &rejected,
        |event| matches!(event, Event::ShareDown { why } if why.contains("authorization")),
    );
}

/// The server accepts these users, and what they publish. The client for NATS repeats the requests for ever.
#[test]
fn proxy_that_may_not_receive_reports_the_cause() {
    needs!(lull_testing::command("nats-server"));
    let user = |name: &str, denied: &str| {
        format!("{{ user: {name}, password: p, permissions: {{ {denied} }} }}")
    };
    let users = [
        user("creates", "publish: { deny: \"$JS.API.CONSUMER.CREATE.>\" }"),
        user("pulls", "publish: { deny: \"$JS.API.CONSUMER.MSG.NEXT.>\" }"),
        user("hears", "subscribe: { deny: \"lull.web.>\" }"),
    ];
    let nats =
        NatsServers::single_with(&format!("authorization {{ users: [ {} ] }}", users.join(", ")));
    let as_user = |name: &str| nats.url().replace("nats://", &format!("nats://{name}:p@"));
    let sites = ["creates", "pulls", "hears"].map(|name| proxy_at(&as_user(name), 1, 0));
    for (site, subject) in sites.iter().zip(["CONSUMER.CREATE", "CONSUMER.MSG.NEXT", "lull.web."]) {
        until_reported(
            site,
            |event| matches!(event, Event::ShareDown { why } if why.contains(subject) && why.contains("permit")),
        );
    }
}

#[test]
fn page_learned_at_one_proxy_is_hinted_at_another() {
    needs!(lull_testing::command("nats-server"));
    let mut nats = NatsServers::single();
    let (one, other) = (proxy(&nats, 1, 0), proxy(&nats, 1, 0));
    one.go(1..25, &["/a", "/b"]);
    until_hinted(&other, "/a", "/b", true);
    until(&one, "proxies", 1);
    until(&other, "proxies", 1);
    // The server is away: both continue, and neither request waits.
    nats.kill(0);
    one.go(30..55, &["/c", "/d"]);
    until_hinted(&one, "/c", "/d", true);
    assert_eq!(other.ask(60, "/c", &[], false)["hints"], json!([]));
    until_hinted(&other, "/a", "/b", true);
    nats.restart(0);
    nats.wait_until_ready(0);
    until_hinted(&other, "/c", "/d", true);
    // A proxy that starts now gets what was sent before.
    let third = proxy(&nats, 1, 0);
    until_hinted(&third, "/a", "/b", true);
    until(&third, "proxies", 2);
}

/// The promise to visitors: a page that one visitor alone got is never a hint, although the visitor came to
/// two proxies.
#[test]
fn page_of_one_visitor_at_two_proxies_stays_private() {
    needs!(lull_testing::command("nats-server"));
    let nats = NatsServers::single();
    let (one, other) = (proxy(&nats, 1, 0), proxy(&nats, 1, 0));
    // At each proxy three of four visitors are the same: four in all, and by adding six.
    for _ in 0..3 {
        one.go(1..4, &["/a", "/letter/1f3c"]);
        other.go(2..5, &["/a", "/letter/1f3c"]);
    }
    one.go(10..25, &["/a", "/b"]);
    other.go(30..45, &["/a", "/e"]);
    for site in [&one, &other] {
        until_hinted(site, "/a", "/b", true);
        until_hinted(site, "/a", "/e", true);
        let list = site.list(250, "/a", &[]);
        assert!(!list.contains(&"/letter/1f3c".into()), "{list:?}");
    }
    // And by two more visitors it is public at both.
    one.go(5..25, &["/a", "/letter/1f3c"]);
    until_hinted(&other, "/a", "/letter/1f3c", true);
}

#[test]
fn bar_at_one_proxy_holds_at_the_other() {
    needs!(lull_testing::command("nats-server"));
    let nats = NatsServers::single();
    let moved: Arc<std::sync::atomic::AtomicBool> = Arc::default();
    let is_moved = Arc::clone(&moved);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            let path = head.split(' ').nth(1).unwrap();
            peer.send(match path {
                "/robots.txt" => "HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n".to_owned(),
                "/b" if is_moved.load(Ordering::Relaxed) => {
                    "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n".to_owned()
                }
                _ => format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{PAGE}",
                    PAGE.len()
                ),
            });
        }
    });
    let start = || {
        let share =
            ShareSettings { servers: vec![nats.url()], name: "site-example".into(), key: [1; 16] };
        let settings = Settings { monitor: quick(), share: Some(share), ..Settings::default() };
        let model =
            Model::new(ClientHasher::new([1; 16]), Limits::default(), PpmParameters::shipped());
        site_before(address, settings, |settings, save| Nps::new(settings, model, Some(save)))
    };
    let (one, other) = (start(), start());
    one.go(1..25, &["/a", "/b", "/a", "/c"]);
    until_hinted(&other, "/a", "/b", true);
    moved.store(true, Ordering::Relaxed);
    assert_eq!(one.get(99, "/b", "").status(), 302);
    until_hinted(&other, "/a", "/b", false);
    until_hinted(&other, "/a", "/c", true);
}

#[test]
fn proxies_hold_the_same_visitors_back() {
    needs!(lull_testing::command("nats-server"));
    let nats = NatsServers::single();
    let (one, other, foreign) =
        (proxy(&nats, 1, 5_000), proxy(&nats, 1, 5_000), proxy(&nats, 2, 5_000));
    let groups = |site: &Site| -> Vec<bool> {
        (1..40).map(|visitor| site.visit(visitor, "/a").text().contains("data-held=1")).collect()
    };
    let groups_of_one = groups(&one);
    assert_eq!(groups(&other), groups_of_one);
    assert_ne!(groups(&foreign), groups_of_one);
    // A proxy with another key takes nothing, and says so once.
    one.go(1..25, &["/a", "/b"]);
    until_hinted(&other, "/a", "/b", true);
    until_reported(&foreign, |event| matches!(event, Event::ShareUnreadable { .. }));
    assert_eq!(foreign.ask(60, "/a", &[], false)["hints"], json!([]));
}
