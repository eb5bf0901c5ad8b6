//! Real programs on both sides: nginx behind, curl in front, TLS and HTTP/2 in between.

use crate::common;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::nginx::Nginx;
use crate::common::{LIMIT, Proxy, certificate, mirror, proxy_with, upstream};
use lull_web::proxy::Event;

fn nginx() -> Nginx {
    Nginx::start("gzip_types text/plain;", "keepalive_requests 10;")
}

/// The output of curl; `%{…}` of `--write-out` follows the body.
fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text} {output:?}");
    text
}

#[test]
fn nginx_answers_alike_with_and_without_the_proxy() {
    lull_testing::needs!(lull_testing::command("nginx"), lull_testing::command("curl"));
    let nginx = nginx();
    let text: String = (0..2000).map(|number| format!("line {number}\n")).collect();
    nginx.put("page.txt", &text);
    let proxy = common::proxy(nginx.address);
    let asks: [&[&str]; 7] = [
        &["/page.txt"],
        &["/page.txt", "--head"],
        &["/page.txt", "--range", "100-199"],
        &["/page.txt", "--range", "100-199,300-399"],
        &["/page.txt", "--compressed"],
        &["/nothing"],
        &["/page.txt", "--request", "OPTIONS"],
    ];
    for ask in asks {
        let get = |address: SocketAddr| {
            let url = format!("http://{address}{}", ask[0]);
            let shown = curl(&[&["--include", &url], &ask[1..]].concat());
            // The headers that differ between any two answers, or between any two connections; and the
            // boundary of parts, which nginx increments.
            let mut lines: Vec<_> = shown
                .lines()
                .filter(|line| {
                    let line = line.to_ascii_lowercase();
                    !["date:", "connection:", "--0", "content-type: multipart"]
                        .iter()
                        .any(|start| line.starts_with(start))
                })
                .map(|line| match line.split_once(": ") {
                    Some((name, value)) => format!("{}: {value}", name.to_ascii_lowercase()),
                    None => line.to_owned(),
                })
                .collect();
            let end = lines.iter().position(String::is_empty).unwrap_or(lines.len());
            lines[1..end].sort();
            lines
        };
        assert_eq!(get(proxy.address()), get(nginx.address), "{ask:?}");
    }
    let etag = curl(&["--include", &format!("http://{}/page.txt", nginx.address)]);
    let etag = common::header(&etag, "etag").unwrap().to_owned();
    let answer = proxy.exchange(format!(
        "GET /page.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: {etag}\r\nConnection: close\r\n\r\n"
    ));
    assert_eq!((answer.status(), answer.body.len()), (304, 0));
}

#[test]
fn upstream_that_closes_after_ten_requests_is_reconnected() {
    lull_testing::needs!(lull_testing::command("nginx"));
    let nginx = nginx();
    nginx.put("a", "a");
    let proxy = common::proxy(nginx.address);
    let mut client = proxy.connect();
    for _ in 0..35 {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().text(), "a");
    }
    assert_eq!(proxy.totals().upstream_connections, 4);
}

fn secure(upstream: SocketAddr, folder: &Path) -> Proxy {
    let files = certificate(folder);
    proxy_with(upstream, |config| config.sites[0].certificate = Some(files), None)
}

/// Sends a request to a secure proxy by curl, which trusts the certificate in `folder`.
fn ask(proxy: &Proxy, folder: &Path, path: &str, arguments: &[&str]) -> String {
    let port = proxy.address().port();
    let (url, ca) = (format!("https://localhost:{port}{path}"), folder.join("cert.pem"));
    let always = ["--resolve", &format!("localhost:{port}:127.0.0.1"), "--cacert"];
    curl(&[&always[..], &[ca.to_str().unwrap(), &url], arguments].concat())
}

#[test]
fn tls_clients_get_http2_or_their_own_version() {
    lull_testing::needs!(lull_testing::command("curl"));
    let folder = tempfile::tempdir().unwrap();
    let proxy = secure(mirror(), folder.path());
    for (option, version) in [("--http2", "2"), ("--http1.1", "1.1"), ("--http1.0", "1")] {
        for tls in ["1.2", "1.3"] {
            let said = ask(
                &proxy,
                folder.path(),
                "/path",
                &[option, "--tls-max", tls, "--write-out", "\n%{http_version}"],
            );
            assert!(said.starts_with("GET /path HTTP/1.1\r\n"), "{said}");
            assert!(said.ends_with(&format!("\n{version}")), "{said}");
            assert_eq!(common::header(&said, "x-forwarded-proto"), Some("https"));
            let host = format!("localhost:{}", proxy.address().port());
            assert_eq!(common::header(&said, "host"), Some(host.as_str()), "{said}");
        }
    }
}

#[test]
fn old_tls_is_rejected() {
    lull_testing::needs!(lull_testing::command("curl"));
    let folder = tempfile::tempdir().unwrap();
    let proxy = secure(mirror(), folder.path());
    let output = Command::new("curl")
        .args(["--silent", "--insecure", "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0"])
        .arg(format!("https://{}/", proxy.address()))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(35), "{output:?}");
}

#[test]
fn new_certificate_is_used_without_a_restart() {
    lull_testing::needs!(lull_testing::command("curl"));
    let folder = tempfile::tempdir().unwrap();
    let proxy = secure(mirror(), folder.path());
    ask(&proxy, folder.path(), "/", &[]);
    certificate(folder.path());
    proxy.server.reload();
    ask(&proxy, folder.path(), "/", &[]);
    assert_eq!(proxy.told(|event| matches!(event, Event::CertificateLoaded)), 1);
    // A broken one leaves the old one in use.
    let good = fs::read(folder.path().join("cert.pem")).unwrap();
    fs::write(folder.path().join("cert.pem"), "broken").unwrap();
    proxy.server.reload();
    assert_eq!(proxy.told(|event| matches!(event, Event::CertificateKept { .. })), 1);
    fs::write(folder.path().join("cert.pem"), good).unwrap();
    ask(&proxy, folder.path(), "/", &[]);
}

#[test]
fn new_certificate_is_seen_within_seconds() {
    lull_testing::needs!(lull_testing::command("curl"));
    let folder = tempfile::tempdir().unwrap();
    let proxy = secure(mirror(), folder.path());
    certificate(folder.path());
    let begun = Instant::now();
    while proxy.told(|event| matches!(event, Event::CertificateLoaded)) == 0 {
        assert!(begun.elapsed() < LIMIT, "the certificate is not loaded");
        thread::sleep(Duration::from_millis(100));
    }
    ask(&proxy, folder.path(), "/", &[]);
}

#[test]
fn http2_without_tls_is_served_with_prior_knowledge() {
    lull_testing::needs!(lull_testing::command("curl"));
    let proxy = common::proxy(mirror());
    let url = format!("http://{}/path", proxy.address());
    let said = curl(&["--http2-prior-knowledge", &url, "--write-out", "%{http_version}"]);
    assert!(said.starts_with("GET /path HTTP/1.1\r\n") && said.ends_with('2'), "{said}");
    // An upgrade request within HTTP/1.1 is answered in HTTP/1.1.
    let said = curl(&["--http2", &url, "--write-out", "%{http_version}"]);
    assert!(said.ends_with("1.1"), "{said}");
    assert_eq!(common::header(&said, "upgrade"), None);
    assert_eq!(common::header(&said, "http2-settings"), None);
}

#[test]
fn uploads_and_broken_answers_work_over_http2() {
    lull_testing::needs!(lull_testing::command("curl"));
    let proxy = common::proxy(upstream(|mut peer| {
        while let Some(head) = peer.head() {
            if head.contains("/broken") {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello");
                return;
            }
            let length = common::header(&head, "content-length").unwrap().parse().unwrap();
            assert!(peer.body(length).iter().all(|&byte| byte == b'x'));
            peer.ok("all of it");
        }
    }));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("big");
    fs::write(&file, vec![b'x'; 5 << 20]).unwrap();
    let url = format!("http://{}/", proxy.address());
    let said = curl(&["--http2-prior-knowledge", "--upload-file", file.to_str().unwrap(), &url]);
    assert_eq!(said, "all of it");
    let output = Command::new("curl")
        .args(["--silent", "--http2-prior-knowledge", &format!("{url}broken")])
        .output()
        .unwrap();
    // 92: the stream was reset, which may overtake earlier bytes.
    assert_eq!(output.status.code(), Some(92), "{output:?}");
    assert!(b"hello".starts_with(&output.stdout), "{output:?}");
}

#[test]
fn certificate_of_an_https_upstream_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let behind = secure(mirror(), folder.path());
    let url = format!("https://localhost:{}", behind.address().port());
    let roots = folder.path().join("cert.pem");
    let front = proxy_with(
        common::unused_address(),
        |config| {
            config.sites[0].upstream.servers[0] = url.parse().unwrap();
            config.sites[0].upstream.roots = Some(roots);
        },
        None,
    );
    let answer = front.get("/path");
    assert!(answer.text().starts_with("GET /path HTTP/1.1\r\n"), "{answer:?}");
    let doubting = proxy_with(
        common::unused_address(),
        |config| config.sites[0].upstream.servers[0] = url.parse().unwrap(),
        None,
    );
    assert_eq!(doubting.get("/path").status(), 502);
}
