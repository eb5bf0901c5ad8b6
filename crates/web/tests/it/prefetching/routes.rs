//! Each route of a site has its own server, and learns how much that can serve.

use std::sync::atomic::{AtomicBool, Ordering};

use lull_web::proxy::{Route, UpstreamConfig};

use super::*;

/// How long the servers take for a request.
const WORK: Duration = Duration::from_millis(15);

/// A server that takes requests one after the other, or all at the same time.
fn server(is_serial: bool) -> SocketAddr {
    let turn = Mutex::new(());
    upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            if head.starts_with("GET /robots.txt ") {
                peer.send(NO_ROBOTS);
                continue;
            }
            let turn = is_serial.then(|| turn.lock().unwrap());
            thread::sleep(WORK);
            drop(turn);
            peer.send(page("", PAGE));
        }
    })
}

/// A request over a connection of its own, until its end.
fn exchange(proxy: SocketAddr, request: String) {
    let mut client = common::Client::connect(proxy);
    client.send(request);
    client.rest();
}

/// The present limit of a route, by the metrics.
fn limit(proxy: &Proxy, route: &str) -> f64 {
    let token = "Authorization: Bearer secret\r\n";
    let text = proxy.exchange(visit("/.lull/metrics", token)).text();
    let name = format!("lull_web_scheduler_limit_requests{{route=\"{route}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {name}in {text}")).parse().unwrap()
}

#[test]
fn each_route_learns_the_limit_of_its_server() {
    let upstream = UpstreamConfig::new(format!("http://{}", server(true)).parse().unwrap());
    let route = Route { prefix: "/serial/".to_owned(), upstream };
    let change = |config: &mut lull_web::proxy::Config| {
        config.sites[0].routes.push(route);
        config.background = Options::new().carrier(Carrier::UserSpace);
    };
    let settings = Settings { access: Access::Token("secret".to_owned()), ..Settings::default() };
    let proxy = proxy_with(server(false), change, Some(Arc::new(nps(settings))));
    until(|| proxy.exchange(prefetch("/known", "1", "")).status() == 200);
    let (address, is_over) = (proxy.address(), AtomicBool::new(false));
    thread::scope(|scope| {
        // Also where an assertion ends it.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _end = End(&is_over);
        let is_over = &is_over;
        for path in ["/a", "/serial/a"] {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    exchange(address, visit(path, ""));
                    thread::sleep(WORK / 2);
                }
            });
            for _ in 0..3 {
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        exchange(address, prefetch(path, "1", ""));
                    }
                });
            }
        }
        // A busy machine makes both slow now and then.
        let begun = Instant::now();
        loop {
            let (concurrent, serial) = (limit(&proxy, "/"), limit(&proxy, "/serial/"));
            if concurrent > 0.55 && serial < concurrent / 2.0 {
                break;
            }
            assert!(begun.elapsed() < 4 * LIMIT, "limits of {concurrent} and {serial}");
            thread::sleep(Duration::from_millis(200));
        }
    });
}
