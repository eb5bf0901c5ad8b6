//! In HTTP/2 a browser has one connection for all requests to a site, except those without credentials.

use std::sync::Mutex;

use http::{HeaderMap, Version, request};
use lull_web::proxy::{Address, Connection, Decision, Fetcher, Listener, Metrics, Site};

use super::*;

/// Prefetching, and the requests with their connections.
struct Watching {
    nps: Nps,
    seen: Mutex<Vec<SeenRequest>>,
}

#[derive(Clone)]
struct SeenRequest {
    path: String,
    is_ahead: bool,
    /// The browser's urgency, from 0 for the first to 7.
    urgency: u8,
    version: Version,
    connection: Arc<Connection>,
}

impl Site for Watching {
    fn started(&self, metrics: &Metrics, fetcher: Fetcher, listener: &Listener) {
        self.nps.started(metrics, fetcher, listener);
    }

    fn listens(&self, at: Address) {
        self.nps.listens(at);
    }

    fn request(&self, head: &mut request::Parts, connection: &Arc<Connection>) -> Decision {
        self.seen.lock().unwrap().push(SeenRequest {
            path: head.uri.path().to_owned(),
            is_ahead: head.headers.contains_key("x-lull"),
            urgency: urgency(&head.headers),
            version: head.version,
            connection: Arc::clone(connection),
        });
        self.nps.request(head, connection)
    }
}

/// RFC 9218 §4.1: 3 by default.
fn urgency(headers: &HeaderMap) -> u8 {
    let priority = headers.get("priority").map_or("", |value| value.to_str().unwrap());
    let said = priority.split(',').find_map(|one| one.trim().strip_prefix("u="));
    said.map_or(3, |urgency| urgency.parse().unwrap())
}

impl Watching {
    fn find(&self, path: &str, is_ahead: bool) -> SeenRequest {
        let seen = self.seen.lock().unwrap();
        seen.iter().find(|one| one.path == path && one.is_ahead == is_ahead).unwrap().clone()
    }
}

#[test]
fn only_the_prefetch_connection_yields_in_http2() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let nginx = Pages::start();
    let folder = tempfile::tempdir().unwrap();
    let certificate = crate::common::certificate(folder.path());
    let mut chromium = Chromium::trusting(&certificate.certificates);
    let nps = Nps::new(settings(Access::Nobody), model_of(["/b", "/b"]), None);
    let site = Arc::new(Watching { nps, seen: Mutex::default() });
    let change = |config: &mut lull_web::proxy::Config| {
        config.background = Options::new().carrier(Carrier::UserSpace);
        config.sites[0].certificate = Some(certificate);
        config.listen = vec!["https://127.0.0.1:0".parse().unwrap()];
    };
    let proxy = proxy_with(nginx.0.address, change, Some(Arc::clone(&site) as _));
    let url = |path: &str| format!("https://{}{path}", proxy.address());

    chromium.goto(&url("/a"));
    nginx.wait_for_prefetch("/b", &mut chromium, &url("/a"));
    let (page, ahead) = (site.find("/a", false), site.find("/b", true));
    assert_eq!((page.version, ahead.version), (Version::HTTP_2, Version::HTTP_2));
    assert!(!Arc::ptr_eq(&page.connection, &ahead.connection), "it is coalesced");
    assert_eq!(page.connection.carrier(), None);
    assert_eq!(ahead.connection.carrier(), Some(Carrier::UserSpace));

    // Requests of the page's own scripts precede it.
    chromium.run("fetch('/robots.txt').then(answer => answer.status)");
    let own = site.find("/robots.txt", false);
    assert!(own.urgency < ahead.urgency, "{} and {}", own.urgency, ahead.urgency);

    chromium.wait_for_copy("/b");
    chromium.click("#b", &url("/b"));
    assert_eq!(chromium.run(DELIVERY), "cache");
    // Requests from there use the first one, which was never slowed.
    chromium.goto(&url("/c"));
    assert!(Arc::ptr_eq(&site.find("/c", false).connection, &page.connection));
    assert_eq!(page.connection.carrier(), None);
}
