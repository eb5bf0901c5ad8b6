//! A server to which a new connection takes longer than an answer over an open one.

use common::far::{LIFE, way_to};

use super::*;

#[test]
fn path_latency_does_not_count_as_server_load() {
    let server = upstream(|mut peer| {
        while let Some(head) = peer.head() {
            if head.starts_with("GET /robots.txt ") {
                peer.send("HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
            } else {
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{PAGE}",
                    PAGE.len()
                ));
            }
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let files = common::certificate(folder.path());
    let roots = files.certificates.clone();
    let behind = proxy_with(server, |config| config.sites[0].certificate = Some(files), None);
    let url = format!("https://localhost:{}", way_to(behind.address()).port());

    let settings = Settings { trust_forwarded: true, ..learning() };
    let nps = Arc::new(Nps::new(settings, empty_model(), None));
    let change = |config: &mut lull_web::proxy::Config| {
        let upstream = &mut config.sites[0].upstream;
        (upstream.servers[0], upstream.roots) = (url.parse().unwrap(), Some(roots));
        config.trust_forwarded = true;
    };
    let proxy = proxy_with(common::unused_address(), change, Some(Arc::clone(&nps) as _));
    let (asked, delay, saved) = <(Arc<_>, Arc<_>, Arc<_>)>::default();
    let site = Site { proxy, nps, asked, delay, saved };
    site.go(1..25, &["/a", "/b"]);
    // Repeatedly, as connections come and go. Without an open one before the request, none ever comes.
    for visitor in 97..100 {
        site.list(visitor, "/a", &[]);
        thread::sleep(LIFE);
    }
}
