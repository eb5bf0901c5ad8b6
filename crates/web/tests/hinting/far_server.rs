//! A server to which a connection takes longer to make than an answer over one.

use std::io::{ErrorKind, copy};
use std::net::{Shutdown, TcpListener, TcpStream};

use super::*;

/// What making one takes, and how long it lives.
const WAY: Duration = Duration::from_millis(80);
const LIFE: Duration = Duration::from_millis(1_500);

/// Leads to `to`, as a long way with many hands to shake.
fn way_to(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((here, _)) = listener.accept() {
            thread::spawn(move || {
                thread::sleep(WAY);
                // The test may have ended.
                let Ok(there) = TcpStream::connect(to) else { return };
                let pipe = |from: &TcpStream, to: &TcpStream| {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        // It ends when its life does.
                        let ended = copy(&mut from, &mut to);
                        assert!(!matches!(ended, Err(error) if error.kind() == ErrorKind::Other));
                    });
                };
                pipe(&here, &there);
                pipe(&there, &here);
                thread::sleep(LIFE);
                for stream in [here, there] {
                    let _ = stream.shutdown(Shutdown::Both);
                }
            });
        }
    });
    address
}

#[test]
fn the_way_to_a_server_is_not_taken_for_its_load() {
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
    let behind = proxy_with(server, |config| config.certificate = Some(files), None);
    let url = format!("https://localhost:{}", way_to(behind.address()).port());

    let settings = Settings { trust_forwarded: true, ..learning() };
    let nps = Arc::new(Nps::new(settings, empty_model(), None));
    let change = |config: &mut lull_web::proxy::Config| {
        (config.upstream, config.upstream_roots) = (url.parse().unwrap(), Some(roots));
        config.trust_forwarded = true;
    };
    let proxy = proxy_with(common::nobody(), change, Some(Arc::clone(&nps) as _));
    let (asked, delay, saved) = <(Arc<_>, Arc<_>, Arc<_>)>::default();
    let site = Site { proxy, nps, asked, delay, saved };
    site.go(1..25, &["/a", "/b"]);
    // Again and again, as connections come and go. Without one at hand before it is asked, none ever comes.
    for visitor in 97..100 {
        site.list(visitor, "/a", &[]);
        thread::sleep(LIFE);
    }
}
