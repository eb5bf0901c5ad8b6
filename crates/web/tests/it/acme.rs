//! Certificates by ACME from pebble, Let's Encrypt's server for tests.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lull_testing::free_port;
use lull_web::proxy::{AcmeConfig, Config, Event, SiteConfig};
use serde_json::json;

use crate::common::{LIMIT, Proxy, answering, certificate, proxy_with, unused_address};

/// Ends with the test.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command) -> Kept {
    Kept(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// A certificate authority that asks the names' port `http`, all of which are this machine.
struct Authority {
    directory: String,
    _dns: Kept,
    _pebble: Kept,
}

impl Authority {
    fn start(folder: &Path, http: u16) -> Self {
        let (dns, management, port, unused) = (free_port(), free_port(), free_port(), free_port());
        let at = |port: u16| format!("127.0.0.1:{port}");
        let names = start(Command::new("pebble-challtestsrv").args([
            "-defaultIPv6",
            "",
            "-http01",
            "",
            "-https01",
            "",
            "-tlsalpn01",
            "",
            "-dns01",
            &at(dns),
            "-management",
            &at(management),
        ]));
        let files = certificate(folder);
        let config = json!({"pebble": {
            "listenAddress": at(port),
            "managementListenAddress": at(unused),
            "certificate": files.certificates,
            "privateKey": files.key,
            "httpPort": http,
            "tlsPort": 1,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
        }});
        let path = folder.join("pebble.json");
        fs::write(&path, config.to_string()).unwrap();
        let mut command = Command::new("pebble");
        command.args(["-config", path.to_str().unwrap(), "-dnsserver", &at(dns)]);
        let pebble =
            start(command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0"));
        let begun = Instant::now();
        while std::net::TcpStream::connect(at(port)).is_err() {
            assert!(begun.elapsed() < LIMIT, "pebble does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Authority {
            directory: format!("https://localhost:{port}/dir"),
            _dns: names,
            _pebble: pebble,
        }
    }
}

fn proxy(folder: &Path, authority: &Authority, http: u16) -> Proxy {
    let server = answering(|_| "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned());
    let with = |config: &mut Config| {
        let mut site = SiteConfig::new(format!("http://{server}").parse().unwrap());
        site.names = vec!["a.example.org".to_owned(), "www.a.example.org".to_owned()];
        site.acme = true;
        site.redirect_to_https = Some(443);
        config.sites = vec![site];
        config.acme = Some(AcmeConfig {
            directory: authority.directory.clone(),
            roots: Some(folder.join("cert.pem")),
            contact: Vec::new(),
            folder: folder.join("acme"),
        });
        config.listen = vec![
            "https://127.0.0.1:0".parse().unwrap(),
            format!("http://127.0.0.1:{http}").parse().unwrap(),
        ];
    };
    proxy_with(unused_address(), with, None)
}

/// Who has issued the certificate that clients get.
fn issuer(proxy: &Proxy) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--insecure", "--verbose", "--max-time", "20", "--resolve"])
        .arg(format!("a.example.org:{}:127.0.0.1", proxy.address().port()))
        .arg(format!("https://a.example.org:{}/", proxy.address().port()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = said.lines().find(|line| line.contains("issuer:"));
    line.unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[test]
fn certificate_is_issued_by_the_authority_and_kept() {
    lull_testing::needs!(
        lull_testing::command("pebble"),
        lull_testing::command("pebble-challtestsrv"),
        lull_testing::command("curl")
    );
    let folder = tempfile::tempdir().unwrap();
    let http = free_port();
    let authority = Authority::start(folder.path(), http);
    let proxy = self::proxy(folder.path(), &authority, http);
    assert!(!issuer(&proxy).contains("Pebble"), "there is a self-signed one at first");
    let begun = Instant::now();
    while proxy.told(|event| *event == Event::CertificateLoaded) == 0 {
        let told = proxy.events.lock().unwrap().clone();
        assert!(begun.elapsed() < 3 * LIMIT, "{told:?}");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(issuer(&proxy).contains("Pebble"), "{}", issuer(&proxy));
    let chain = fs::read(folder.path().join("acme/a.example.org.pem")).unwrap();
    drop(proxy);
    // A new process uses it, and asks for none.
    let proxy = self::proxy(folder.path(), &authority, http);
    assert!(issuer(&proxy).contains("Pebble"));
    assert_eq!(fs::read(folder.path().join("acme/a.example.org.pem")).unwrap(), chain);
}

#[test]
fn unreachable_authority_is_reported_and_the_site_served() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let http = free_port();
    let directory = format!("https://localhost:{}/dir", unused_address().port());
    let authority = Authority {
        directory,
        _dns: start(&mut Command::new("true")),
        _pebble: start(&mut Command::new("true")),
    };
    let proxy = self::proxy(folder.path(), &authority, http);
    let is_it = |event: &Event| matches!(event, Event::CertificateNotIssued { .. });
    let begun = Instant::now();
    while proxy.told(is_it) == 0 {
        let told = proxy.events.lock().unwrap().clone();
        assert!(begun.elapsed() < LIMIT, "{told:?}");
        thread::sleep(Duration::from_millis(20));
    }
    lull_testing::needs!(lull_testing::command("curl"));
    assert!(!issuer(&proxy).contains("Pebble"));
}
