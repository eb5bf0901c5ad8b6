//! Several sites behind one proxy, over real sockets: by host and path, with groups of servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use lull_speculate::model::Model;
use lull_speculate::observe::{ClientHasher, Limits};
use lull_speculate::predict::PpmParameters;
use lull_web::nps::{Access, Nps, Settings};
use lull_web::proxy::{
    CertificateFiles, Config, ErrorPage, Event, HealthCheck, MakeHook, NextSite, Route, Site,
    SiteConfig, Upstream, UpstreamConfig,
};

use crate::common::{
    Answer, Away, Client, LIMIT, Proxy, answering, proxy_with, proxy_with_hooks, unused_address,
};

/// A server that says its name and what it was asked.
fn named(name: &'static str) -> SocketAddr {
    answering(move |head| {
        let body = format!("{name}\n{head}");
        format!(
            "HTTP/1.1 200 OK\r\nServer: secret/1\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    })
}

fn server(address: SocketAddr) -> Upstream {
    format!("http://{address}").parse().unwrap()
}

fn site(names: &[&str], upstream: SocketAddr) -> SiteConfig {
    let mut site = SiteConfig::new(server(upstream));
    site.names = names.iter().map(|name| (*name).to_owned()).collect();
    site
}

/// A proxy of these sites.
fn proxy(sites: Vec<SiteConfig>, change: impl FnOnce(&mut Config)) -> Proxy {
    let with = |config: &mut Config| {
        config.sites = sites;
        change(config);
    };
    proxy_with(unused_address(), with, None)
}

fn get(proxy: &Proxy, host: &str, path: &str) -> Answer {
    proxy.exchange(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

/// Which server has answered.
fn by(answer: &Answer) -> String {
    answer.text().lines().next().unwrap_or_default().to_owned()
}

#[test]
fn request_goes_to_the_site_of_its_host() {
    let sites =
        vec![site(&["a.example", "www.a.example"], named("a")), site(&["*.b.example"], named("b"))];
    let with_rest = [sites.clone(), vec![site(&[], named("rest"))]].concat();
    let (proxy, with_rest) = (self::proxy(sites, |_| {}), self::proxy(with_rest, |_| {}));
    for (host, expected) in [
        ("a.example", "a"),
        ("WWW.A.EXAMPLE:8080", "a"),
        ("x.b.example", "b"),
        ("b.example", "rest"),
        ("127.0.0.1", "rest"),
    ] {
        assert_eq!(by(&get(&with_rest, host, "/")), expected, "{host}");
        let answer = get(&proxy, host, "/");
        match expected {
            "rest" => assert_eq!(answer.status(), 421, "{host}"),
            _ => assert_eq!(by(&answer), expected, "{host}"),
        }
    }
}

#[test]
fn route_sends_its_paths_to_another_server() {
    let mut site = site(&[], named("pages"));
    let mut upstream = UpstreamConfig::new(server(named("api")));
    upstream.host = Some(HeaderValue::from_static("api.internal"));
    site.routes.push(Route { prefix: "/api/".to_owned(), upstream });
    let proxy = self::proxy(vec![site], |_| {});
    for (path, expected, host) in [
        ("/", "pages", "a.example"),
        ("/api", "pages", "a.example"),
        ("/api/1", "api", "api.internal"),
    ] {
        let answer = get(&proxy, "a.example", path);
        assert_eq!(by(&answer), expected, "{path}");
        let text = answer.text();
        assert!(text.contains(&format!("GET {path} HTTP/1.1\r\n")), "{text}");
        assert!(text.to_lowercase().contains(&format!("host: {host}\r\n")), "{text}");
    }
}

#[test]
fn another_server_answers_if_one_cannot_be_reached() {
    let mut site = site(&[], unused_address());
    site.upstream.servers.push(server(named("second")));
    let proxy = self::proxy(vec![site], |_| {});
    for _ in 0..10 {
        let answer = get(&proxy, "a.example", "/");
        assert_eq!((answer.status(), by(&answer)), (200, "second".to_owned()));
    }
    // A request with a body is not lost either: nothing of it was sent.
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
    assert_eq!(proxy.exchange(post).status(), 200);
}

#[test]
fn answer_is_502_if_no_server_can_be_reached() {
    let mut site = site(&[], unused_address());
    site.upstream.servers.push(server(unused_address()));
    let proxy = self::proxy(vec![site], |_| {});
    for _ in 0..3 {
        assert_eq!(get(&proxy, "a.example", "/").status(), 502);
    }
}

#[test]
fn idle_servers_share_the_requests() {
    let mut site = site(&[], named("first"));
    site.upstream.servers.push(server(named("second")));
    let proxy = self::proxy(vec![site], |_| {});
    let mut counts = BTreeMap::new();
    for _ in 0..20 {
        *counts.entry(by(&get(&proxy, "a.example", "/"))).or_insert(0) += 1;
    }
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [10, 10], "{counts:?}");
}

#[test]
fn unhealthy_server_gets_no_requests_until_it_is_healthy() {
    let (is_ill, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (ill, seen) = (Arc::clone(&is_ill), Arc::clone(&asked));
    let first = answering(move |head| {
        if !head.starts_with("GET /health ") {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        let status = if ill.load(Ordering::Relaxed) { "500 Oh" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\nfirst")
    });
    let mut site = site(&[], first);
    site.upstream.servers.push(server(named("second")));
    site.upstream.health = Some(HealthCheck {
        path: "/health".to_owned(),
        interval: Duration::from_millis(20),
        timeout: LIMIT,
    });
    let proxy = self::proxy(vec![site], |_| {});
    let until = |is_it: fn(&Event) -> bool| {
        let begun = Instant::now();
        while proxy.told(is_it) == 0 {
            assert!(begun.elapsed() < LIMIT, "{:?}", proxy.events.lock().unwrap());
            thread::sleep(Duration::from_millis(5));
        }
    };
    until(|event| matches!(event, Event::ServerUnhealthy { .. }));
    let before = asked.load(Ordering::Relaxed);
    for _ in 0..10 {
        assert_eq!(by(&get(&proxy, "a.example", "/")), "second");
    }
    assert_eq!(asked.load(Ordering::Relaxed), before);
    is_ill.store(false, Ordering::Relaxed);
    until(|event| matches!(event, Event::ServerHealthy { .. }));
    let found: Vec<_> = (0..10).map(|_| by(&get(&proxy, "a.example", "/"))).collect();
    assert!(found.iter().any(|name| name == "first"), "{found:?}");
}

/// The value of a metric of a site with prefetching.
fn metric(proxy: &Proxy, host: &str, name: &str) -> String {
    let answer = proxy.exchange(format!(
        "GET /.lull/metrics HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\r\n"
    ));
    let text = answer.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).to_owned()
}

fn prefetching() -> Arc<dyn Site> {
    let settings =
        Settings { access: Access::Token("secret".into()), is_routed: true, ..Settings::default() };
    let model = Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped());
    Arc::new(Nps::new(settings, model, None))
}

#[test]
fn metrics_of_a_site_are_of_its_requests_and_servers() {
    let (up, down) = (named("a"), unused_address());
    let sites = vec![site(&["a.example"], up), site(&["b.example"], down)];
    let with = |config: &mut Config| config.sites = sites;
    let proxy =
        proxy_with_hooks(unused_address(), with, vec![Some(prefetching()), Some(prefetching())]);
    for _ in 0..3 {
        assert_eq!(get(&proxy, "a.example", "/").status(), 200);
    }
    assert_eq!(get(&proxy, "b.example", "/").status(), 502);
    let of = |host, name: &str| metric(&proxy, host, &format!("lull_web_{name}"));
    assert_eq!(of("a.example", "responses_total{class=\"5xx\"}"), "0");
    assert_eq!(of("b.example", "responses_total{class=\"5xx\"}"), "1");
    // One of them asked for this before.
    assert_eq!(of("a.example", "requests_total"), "4");
    let is_up = |host, server| of(host, &format!("upstream_up{{server=\"http://{server}\"}}"));
    assert_eq!((is_up("a.example", up), is_up("b.example", down)), ("1".into(), "0".into()));
}

#[test]
fn replaced_sites_serve_the_next_request_of_a_connection() {
    let (slow, release) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (is_slow, is_released) = (Arc::clone(&slow), Arc::clone(&release));
    let first = answering(move |_| {
        while is_slow.load(Ordering::Relaxed) && !is_released.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst".to_owned()
    });
    let sites = vec![site(&["a.example"], first), site(&["b.example"], named("b"))];
    let proxy = proxy(sites, |_| {});
    let ask = |client: &mut Client, host: &str| {
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    };
    let (mut waiting, mut idle) = (proxy.connect(), proxy.connect());
    ask(&mut waiting, "a.example");
    ask(&mut idle, "b.example");
    idle.answer();
    let totals = proxy.wait("both connections", |totals| totals.upstream_connections == 2);
    let connections = totals.upstream_connections;
    let make: MakeHook = Box::new(|| None);
    let next = site(&["a.example", "c.example"], named("second"));
    proxy
        .server
        .replace_sites(vec![NextSite::Kept(1), NextSite::New(Box::new(next), make)])
        .unwrap();
    // The request in progress ends as it began.
    release.store(true, Ordering::Relaxed);
    assert_eq!(waiting.answer().text(), "first");
    for host in ["a.example", "c.example"] {
        ask(&mut waiting, host);
        assert_eq!(by(&waiting.answer()), "second");
    }
    ask(&mut idle, "b.example");
    assert_eq!(by(&idle.answer()), "b");
    // That was over the kept connection.
    assert_eq!(proxy.totals().upstream_connections, connections + 1);
    let lost = vec![NextSite::Kept(0)];
    proxy.server.replace_sites(lost).unwrap();
    assert_eq!(get(&proxy, "c.example", "/").status(), 421);
}

#[test]
fn unhealthy_server_is_better_than_none() {
    let away = Away::new();
    let mut site = site(&[], away.address);
    site.upstream.health = Some(HealthCheck {
        path: "/".to_owned(),
        interval: Duration::from_millis(10),
        timeout: LIMIT,
    });
    let proxy = self::proxy(vec![site], |_| {});
    let begun = Instant::now();
    while proxy.told(|event| matches!(event, Event::ServerUnhealthy { .. })) == 0 {
        assert!(begun.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(get(&proxy, "a.example", "/").status(), 502);
}

#[test]
fn owners_headers_are_in_requests_and_answers() {
    let mut site = site(&[], named("a"));
    let name = HeaderName::from_static;
    site.request_headers.push(name("x-site"), Some(HeaderValue::from_static("shop")));
    site.request_headers.push(name("accept-language"), None);
    site.response_headers.push(name("server"), None);
    site.response_headers.push(name("x-frame-options"), Some(HeaderValue::from_static("DENY")));
    site.hsts = Some(HeaderValue::from_static("max-age=600"));
    let proxy = self::proxy(vec![site], |_| {});
    let answer = proxy.exchange(
        "GET / HTTP/1.1\r\nHost: a\r\nAccept-Language: en\r\nX-Site: forged\r\nConnection: close\r\n\r\n",
    );
    let upstream = answer.text().to_lowercase();
    assert!(upstream.contains("x-site: shop\r\n") && !upstream.contains("forged"), "{upstream}");
    assert!(!upstream.contains("accept-language"), "{upstream}");
    assert_eq!((answer.header("server"), answer.header("x-frame-options")), (None, Some("DENY")));
    // Over HTTP browsers ignore it, and it must not be sent (RFC 6797 §7.2).
    assert_eq!(answer.header("strict-transport-security"), None);
}

#[test]
fn owners_page_is_shown_for_the_proxys_own_errors() {
    let mut site = site(&[], unused_address());
    let page = ErrorPage {
        kind: HeaderValue::from_static("text/html; charset=utf-8"),
        body: "<h1>Back soon</h1>".into(),
    };
    site.error_pages.insert(502, page);
    let name = HeaderName::from_static("x-frame-options");
    site.response_headers.push(name, Some(HeaderValue::from_static("DENY")));
    let proxy = self::proxy(vec![site], |_| {});
    let answer = get(&proxy, "a.example", "/");
    assert_eq!((answer.status(), answer.text().as_str()), (502, "<h1>Back soon</h1>"));
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-frame-options"), Some("DENY"));
}

/// A certificate for one host.
fn certificate(folder: &Path, host: &str) -> CertificateFiles {
    let pair = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    let files = CertificateFiles {
        certificates: folder.join(format!("{host}.pem")),
        key: folder.join(format!("{host}.key")),
    };
    std::fs::write(&files.certificates, pair.cert.pem()).unwrap();
    std::fs::write(&files.key, pair.signing_key.serialize_pem()).unwrap();
    files
}

/// Asks by curl, which trusts only the certificate of this host.
fn curl(folder: &Path, host: &str, port: u16, arguments: &[&str]) -> String {
    let (to, ca) = (format!("{host}:{port}:127.0.0.1"), folder.join(format!("{host}.pem")));
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--max-time", "20", "--resolve", &to])
        .args(["--cacert", ca.to_str().unwrap()])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn each_site_has_its_certificate_and_its_redirect() {
    lull_testing::needs!(lull_testing::command("curl"));
    let folder = tempfile::tempdir().unwrap();
    let hosts = ["a.example", "b.example"];
    let sites = hosts.map(|host| {
        let mut site = site(&[host], named(if host == "a.example" { "a" } else { "b" }));
        site.certificate = Some(certificate(folder.path(), host));
        site.hsts = Some(HeaderValue::from_static("max-age=600"));
        site
    });
    let mut sites = Vec::from(sites);
    sites[0].redirect_to_https = Some(443);
    let proxy = self::proxy(sites, |config| {
        config.listen =
            vec!["https://127.0.0.1:0".parse().unwrap(), "http://127.0.0.1:0".parse().unwrap()];
    });
    let [https, http] = [0, 1].map(|at| proxy.server.addresses()[at].address.port());
    for (host, expected) in [("a.example", "\r\n\r\na\n"), ("b.example", "\r\n\r\nb\n")] {
        for version in ["--http1.1", "--http2"] {
            let url = format!("https://{host}:{https}/x");
            let answer = curl(folder.path(), host, https, &[version, &url]);
            assert!(answer.contains(expected), "{answer}");
            let answer = answer.to_lowercase();
            assert!(answer.contains("strict-transport-security: max-age=600\r\n"), "{answer}");
        }
    }
    let url = format!("http://a.example:{http}/x?y=1");
    let answer = curl(folder.path(), "a.example", http, &[&url]);
    assert!(answer.starts_with("HTTP/1.1 301 "), "{answer}");
    assert!(answer.to_lowercase().contains("location: https://a.example/x?y=1\r\n"), "{answer}");
    let answer = curl(folder.path(), "a.example", http, &["--data", "body", &url]);
    assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
    let url = format!("http://b.example:{http}/x");
    let answer = curl(folder.path(), "b.example", http, &[&url]);
    assert!(answer.contains("\r\n\r\nb\n") && !answer.contains("max-age"), "{answer}");
}
