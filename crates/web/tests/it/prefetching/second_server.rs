//! Prefetches with servers of their own, at a lower priority of the operating system.

use super::*;

/// A site with a server for demand and one for prefetches, and the paths that each was asked for.
struct TwoServers {
    proxy: Proxy,
    demand: Arc<Mutex<Vec<String>>>,
    prefetches: Arc<Mutex<Vec<String>>>,
}

/// A server that answers paths with the prefix `/held` when the test says so, and everything else at once.
fn server(name: &'static str, asked: &Arc<Mutex<Vec<String>>>, gate: Receiver<()>) -> SocketAddr {
    let (asked, gate) = (Arc::clone(asked), Mutex::new(gate));
    upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            if head.starts_with("GET /robots.txt ") {
                peer.send(NO_ROBOTS);
                continue;
            }
            let path = head.split(' ').nth(1).unwrap().to_owned();
            asked.lock().unwrap().push(path.clone());
            if path.starts_with("/held") {
                let _ = gate.lock().unwrap().recv_timeout(LIMIT);
            }
            peer.send(page("", &format!("<title>{name}</title>")));
        }
    })
}

impl TwoServers {
    /// The site; a message to the first or the second sender lets that server answer one `/held`.
    fn start() -> (Self, [std::sync::mpsc::Sender<()>; 2]) {
        let (go, gate) = channel();
        let (go_prefetch, gate_of_prefetches) = channel();
        let (demand, prefetches) = (Arc::default(), Arc::default());
        let first = server("first", &demand, gate);
        let second = server("second", &prefetches, gate_of_prefetches);
        let proxy = Self::proxy(first, second);
        let site = TwoServers { proxy, demand, prefetches };
        until(|| site.proxy.exchange(prefetch("/known", "1", "")).status() == 200);
        site.prefetches.lock().unwrap().clear();
        (site, [go, go_prefetch])
    }

    fn proxy(first: SocketAddr, second: SocketAddr) -> Proxy {
        let prefetch_server = format!("http://{second}").parse().unwrap();
        let change = |config: &mut lull_web::proxy::Config| {
            config.sites[0].upstream.prefetch_servers = vec![prefetch_server];
            config.background = Options::new().carrier(Carrier::UserSpace);
        };
        proxy_with(first, change, Some(Arc::new(nps(Settings::default()))))
    }

    fn demand(&self) -> Vec<String> {
        self.demand.lock().unwrap().clone()
    }

    fn prefetches(&self) -> Vec<String> {
        self.prefetches.lock().unwrap().clone()
    }
}

#[test]
fn prefetches_go_to_their_own_server_beside_demand() {
    let (site, [go, _]) = TwoServers::start();
    let mut visitor = site.proxy.connect();
    visitor.send(visit("/held", ""));
    until(|| site.demand() == ["/held"]);
    let answer = site.proxy.exchange(prefetch("/b", "1", ""));
    assert_eq!((answer.status(), answer.header("x-lull")), (200, Some("1")), "it does not wait");
    assert!(answer.text().contains("<title>second</title>"));
    go.send(()).unwrap();
    assert_eq!(visitor.rest().status(), 200);
    assert_eq!((site.demand(), site.prefetches()), (vec!["/held".into()], vec!["/b".into()]));
}

#[test]
fn demand_does_not_abort_prefetches_at_their_own_server() {
    let (site, [_, go_prefetch]) = TwoServers::start();
    let mut ahead = site.proxy.connect();
    ahead.send(prefetch("/held", "1", ""));
    until(|| site.prefetches() == ["/held"]);
    assert_eq!(site.proxy.exchange(visit("/a", "")).status(), 200);
    go_prefetch.send(()).unwrap();
    assert_eq!(ahead.rest().status(), 200);
    assert_eq!(site.prefetches(), ["/held"], "it was sent once");
}

/// A visitor must not wait for a server of a lower priority.
#[test]
fn awaited_prefetch_is_sent_to_the_server_for_demand() {
    let (site, [go, _held]) = TwoServers::start();
    let mut ahead = site.proxy.connect();
    ahead.send(prefetch("/held", "1", ""));
    until(|| site.prefetches() == ["/held"]);
    awaits(&site.proxy, "/held");
    until(|| site.demand() == ["/held"]);
    go.send(()).unwrap();
    let answer = ahead.rest();
    assert_eq!(answer.status(), 200);
    assert!(answer.text().contains("<title>first</title>"));
}

#[test]
fn visits_continue_while_the_prefetch_server_is_down() {
    let (_go, gate) = channel();
    let first = server("first", &Arc::default(), gate);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = TwoServers::proxy(first, closed);
    // The script may ask again later. Robots rules come from the server for demand.
    until(|| proxy.exchange(prefetch("/known", "1", "")).header("x-lull") == Some("3"));
    assert_eq!(proxy.exchange(visit("/a", "")).status(), 200);
}
