//! A site with prefetching by a service worker in front, for tests of the worker.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lull_cc::Timestamp;
use lull_speculate::budget::{Parameters, Rationing};
use lull_speculate::log::Entry;
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Limits};
use lull_speculate::predict::PpmParameters;
use lull_transport::{Carrier, Options};
use lull_web::nps::{Access, MonitorSettings, Nps, ServiceWorker, Settings};
use lull_web::proxy::Config;

use super::{LIMIT, Peer, Proxy, header, proxy_with, upstream};

pub(crate) const FIREFOX: &str =
    "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0";

/// The site itself. It knows its signed-in users, and nothing about prefetching.
pub(crate) struct Pages {
    pub(crate) address: SocketAddr,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl Pages {
    pub(crate) fn start() -> Self {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&asked);
        let address = upstream(move |mut peer| {
            while let Some(head) = peer.head() {
                heard.lock().unwrap().push(head.clone());
                serve(&mut peer, &head);
            }
        });
        Pages { address, asked }
    }

    pub(crate) fn asked(&self, path: &str) -> Vec<String> {
        let start = format!("GET {path} ");
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|head| head.starts_with(&start)).cloned().collect()
    }
}

fn serve(peer: &mut Peer, head: &str) {
    let path = head.split(' ').nth(1).unwrap_or_default();
    let is_ann = header(head, "cookie").is_some_and(|all| all.contains("session="));
    let who = if is_ann { "ann" } else { "nobody" };
    let (fields, body) = match path {
        "/robots.txt" => {
            peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        "/sign-in" => ("Set-Cookie: session=1; HttpOnly\r\n", "in".to_owned()),
        "/clear" => ("Clear-Site-Data: \"cache\"\r\n", "clear".to_owned()),
        // As many do: first any cache of the site, otherwise the network.
        "/sw.js" => (
            "Content-Type: text/javascript\r\nCache-Control: no-cache\r\n",
            "addEventListener('fetch', event => event.respondWith(caches.match(event.request)\
             .then(found => found || fetch(event.request))))"
                .to_owned(),
        ),
        "/gone" => {
            peer.send(
                "HTTP/1.1 404 Not Found\r\nContent-Type: text/javascript\r\nContent-Length: 0\r\n\r\n",
            );
            return;
        }
        "/own" => ("Cache-Control: private\r\n", page(path, who)),
        "/strict" => ("Content-Security-Policy: worker-src 'none'\r\n", page(path, who)),
        "/typed" => {
            ("Content-Security-Policy: require-trusted-types-for 'script'\r\n", page(path, who))
        }
        "/a" => ("", page(path, who)),
        // Without a script, so that this page fetches nothing ahead.
        _ => ("X-Robots-Tag: nofollow\r\nCache-Control: max-age=200\r\n", page(path, who)),
    };
    let kind = if fields.contains("Content-Type") { "" } else { "Content-Type: text/html\r\n" };
    peer.send(format!(
        "HTTP/1.1 200 OK\r\n{kind}{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
}

fn page(path: &str, who: &str) -> String {
    format!(
        "<!doctype html><html><head><title>{path}</title></head><body><p>page {path} for {who}</p>\
         <a id=b href=/b>b</a> <a id=c href=/c>c</a></body></html>"
    )
}

/// A model of visitors who all went from a to b.
fn model() -> Model {
    let mut model =
        Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped());
    for client in 0..60u64 {
        for (step, page) in (0..).zip(["/a", "/b"]) {
            let at = Timestamp::from_nanos((1_000_000 + 100 * client + step) * 1_000_000_000);
            let visit = Entry::page(at, format!("192.0.2.{client}"), page);
            model.learn(&visit).unwrap();
        }
    }
    model
}

pub(crate) fn settings() -> Settings {
    let parameters = Parameters {
        document: 3,
        rationing: Rationing::shipped(),
        ..Parameters::paper([Duration::from_secs(2)])
    };
    Settings {
        monitor: MonitorSettings { objects: vec!["/a".into()], parameters: Some(parameters) },
        access: Access::Token("secret".into()),
        service_worker: Some(ServiceWorker::default()),
        ..Settings::default()
    }
}

/// Prefetching in front of the site.
pub(crate) fn front_with(
    pages: &Pages,
    settings: Settings,
    change: impl FnOnce(&mut Config),
) -> Proxy {
    let nps = Arc::new(Nps::new(settings.clone(), model(), None));
    let all = |config: &mut Config| {
        config.trust_forwarded = settings.trust_forwarded;
        config.background = Options::new().carrier(Carrier::UserSpace);
        config.listen_background = Some("127.0.0.1:0".parse().unwrap());
        change(config);
    };
    proxy_with(pages.address, all, Some(nps))
}

pub(crate) fn front(pages: &Pages, settings: Settings) -> Proxy {
    front_with(pages, settings, |_| {})
}

pub(crate) fn switch_off(file: &Path, is_on: impl Fn() -> bool) {
    std::fs::write(file, "").unwrap();
    let begun = Instant::now();
    while is_on() {
        assert!(begun.elapsed() < LIMIT, "the switch is not seen");
        thread::sleep(Duration::from_millis(50));
    }
}
