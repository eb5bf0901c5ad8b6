//! The proxy as the scheduler of its upstream: demand first, prefetches when there is room.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// An upstream that answers paths with the prefix `/held` on request of the test, and everything else at
/// once.
fn held() -> (Fronted, std::sync::mpsc::Sender<()>) {
    let (go, gone) = channel::<()>();
    let gone: Mutex<Receiver<()>> = Mutex::new(gone);
    let site = fronted_with(Settings::default(), NO_ROBOTS, move |peer, head| {
        if head.starts_with("GET /held") {
            gone.lock().unwrap().recv_timeout(LIMIT).unwrap();
        }
        peer.send(page("", PAGE));
    });
    site.until_robots_are_known();
    (site, go)
}

/// Waits until the upstream has received this many requests.
fn until_asked(site: &Fronted, path: &str, times: usize) {
    let begun = Instant::now();
    while site.asked(path).len() < times {
        assert!(begun.elapsed() < LIMIT, "{path} was not asked for {times} times");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Prefetches that are sent without waiting for their answers.
fn sent(site: &Fronted, paths: impl Iterator<Item = String>) -> Vec<common::Client> {
    paths
        .map(|path| {
            let mut client = site.proxy.connect();
            client.send(prefetch(&path, "1", ""));
            client
        })
        .collect()
}

#[test]
fn prefetch_waits_for_demand_and_is_sent_after_it() {
    let (site, go) = held();
    let mut visitor = site.proxy.connect();
    visitor.send(visit("/held", ""));
    until_asked(&site, "/held", 1);
    let [ahead] = <[_; 1]>::try_from(sent(&site, ["/b".to_owned()].into_iter())).ok().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(site.asked("/b").len(), 0, "demand is still in service");
    go.send(()).unwrap();
    assert_eq!(visitor.rest().status(), 200);
    let answer = ahead.rest();
    assert_eq!((answer.status(), answer.header("x-lull")), (200, Some("1")));
}

#[test]
fn prefetch_in_service_is_aborted_for_demand_and_sent_again() {
    let (first, go) = (AtomicUsize::new(0), channel::<()>());
    let (closed, is_closed) = channel::<bool>();
    let closed = Mutex::new(closed);
    let site = fronted_with(Settings::default(), NO_ROBOTS, move |peer, head| {
        if head.starts_with("GET /ahead ") && first.fetch_add(1, Ordering::Relaxed) == 0 {
            // Nothing is answered: the proxy has to close the connection.
            let is_over = peer.head().is_none();
            closed.lock().unwrap().send(is_over).unwrap();
            return;
        }
        peer.send(page("", PAGE));
    });
    drop(go);
    site.until_robots_are_known();
    let ahead = sent(&site, ["/ahead".to_owned()].into_iter()).remove(0);
    until_asked(&site, "/ahead", 1);
    assert_eq!(site.visit("/a", "").status(), 200);
    assert!(is_closed.recv_timeout(LIMIT).unwrap());
    assert_eq!(ahead.rest().status(), 200, "its client has seen nothing of that");
    assert_eq!(site.asked("/ahead").len(), 2);
}

#[test]
fn client_that_marks_all_requests_is_deferred() {
    let (site, go) = held();
    let mut visitor = site.proxy.connect();
    visitor.send(visit("/held", ""));
    until_asked(&site, "/held", 1);
    let many = sent(&site, (0..40).map(|number| format!("/many/{number}")));
    let begun = Instant::now();
    let not_now = loop {
        let metrics = site.proxy.get("/.lull/metrics").text();
        assert!(begun.elapsed() < LIMIT, "{metrics}");
        let refused = many
            .iter()
            .filter(|client| client.0.get_ref().set_nonblocking(true).is_ok())
            .filter(|client| client.0.get_ref().peek(&mut [0; 1]).is_ok_and(|bytes| bytes > 0))
            .count();
        if refused >= 24 {
            break refused;
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(not_now, 24, "16 of 40 wait");
    go.send(()).unwrap();
    assert_eq!(visitor.rest().status(), 200);
    let mut statuses: Vec<(u16, Option<String>)> = many
        .into_iter()
        .map(|client| {
            client.0.get_ref().set_nonblocking(false).unwrap();
            let answer = client.rest();
            (answer.status(), answer.header("x-lull").map(str::to_owned))
        })
        .collect();
    statuses.sort();
    let not_now = statuses.iter().filter(|one| **one == (204, Some("3".into()))).count();
    assert!(not_now >= 24, "{statuses:?}");
}

#[test]
fn cancelled_prefetches_free_their_slots() {
    let (site, go) = held();
    let mut visitor = site.proxy.connect();
    visitor.send(visit("/held", ""));
    until_asked(&site, "/held", 1);
    for round in 0..20 {
        drop(sent(&site, (0..10).map(|number| format!("/gone/{round}/{number}"))));
    }
    go.send(()).unwrap();
    assert_eq!(visitor.rest().status(), 200);
    assert_eq!(site.visit("/a", "").status(), 200);
    let begun = Instant::now();
    while site.prefetch("/after").status() != 200 {
        assert!(begun.elapsed() < LIMIT, "nothing is prefetched any more");
    }
}

#[test]
fn thousands_of_cancelled_prefetches_leave_room() {
    let (site, go) = held();
    for round in 0..40 {
        // In the queue behind a visitor, or while they are in service.
        let mut visitor = site.proxy.connect();
        let is_waiting = round % 2 == 0;
        if is_waiting {
            visitor.send(visit("/held", ""));
            until_asked(&site, "/held", round / 2 + 1);
        }
        drop(sent(&site, (0..50).map(|number| format!("/gone/{round}/{number}"))));
        if is_waiting {
            go.send(()).unwrap();
            assert_eq!(visitor.rest().status(), 200);
        }
        assert_eq!(site.visit("/a", "").status(), 200, "in round {round}");
    }
    let begun = Instant::now();
    while site.prefetch("/after").status() != 200 {
        assert!(begun.elapsed() < LIMIT, "nothing is prefetched any more");
    }
    site.proxy.wait("ends", |totals| totals.open_connections == 0);
}

#[test]
fn upstream_that_hangs_for_prefetches_serves_visitors() {
    let site = fronted_with(Settings::default(), NO_ROBOTS, move |peer, head| {
        if head.starts_with("GET /hangs") {
            // Until the proxy closes the connection.
            let _ = peer.head();
            return;
        }
        peer.send(page("", PAGE));
    });
    site.until_robots_are_known();
    let hangs = sent(&site, ["/hangs".to_owned()].into_iter()).remove(0);
    until_asked(&site, "/hangs", 1);
    for _ in 0..5 {
        assert_eq!(site.visit("/a", "").status(), 200);
    }
    let answer = hangs.rest();
    assert_eq!((answer.status(), answer.header("x-lull")), (204, Some("3")));
}

/// Only the clock shows that it hangs.
#[test]
fn prefetch_that_hangs_on_a_route_is_aborted_in_time() {
    let hangs = upstream(|mut peer| while peer.head().is_some() {});
    let rest = common::answering(|_| NO_ROBOTS.to_owned());
    let route = lull_web::proxy::Route {
        prefix: "/route/".to_owned(),
        upstream: lull_web::proxy::UpstreamConfig::new(format!("http://{hangs}").parse().unwrap()),
    };
    let change = |config: &mut lull_web::proxy::Config| config.sites[0].routes.push(route);
    let proxy = proxy_with(rest, change, Some(Arc::new(nps(Settings::default()))));
    // Before robots.txt is known, it is refused with 0.
    until(|| proxy.exchange(prefetch("/route/a", "1", "")).header("x-lull") == Some("3"));
}
