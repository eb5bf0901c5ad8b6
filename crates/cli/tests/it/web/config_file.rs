//! `lull web` with a configuration file.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::{Web, upstream};
use crate::support::{Kept, finish, lull};

/// A file with these lines in a folder.
fn file(folder: &Path, text: &str) -> String {
    let path = folder.join("web.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A proxy of this file.
fn start(path: &str) -> Web {
    let mut command = lull(&["web", "--json", "--config", path]);
    let mut process = Kept::spawn(command.stderr(Stdio::piped()));
    let told = BufReader::new(process.0.stderr.take().unwrap()).lines();
    let mut web = Web { process, told, earlier: Vec::new(), port: 0 };
    web.port = web.wait_for("listening")["port"].as_u64().unwrap().try_into().unwrap();
    web
}

fn get(web: &Web, host: &str, path: &str) -> String {
    let mut stream = web.connect();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn hang_up_reloads_sites_without_an_end_of_connections() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("token"), "the-token-of-site-a\n").unwrap();
    let (a, b) = (upstream(Duration::ZERO), upstream(Duration::ZERO));
    let first = format!(
        "listen = [\"127.0.0.1:0\"]\n\
         [[site]]\nnames = [\"a.example\"]\nupstream = \"{a}\"\ntoken-file = \"token\"\n"
    );
    let second = format!(
        "[[site]]\nnames = [\"b.example\"]\nupstream = \"{b}\"\n\
         response-headers = {{ X-Site = \"b\" }}\n"
    );
    let path = file(folder.path(), &first);
    let mut web = start(&path);
    let mut kept = BufReader::new(web.connect());
    let mut ask = |host: &str| {
        write!(kept.get_mut(), "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let (mut head, mut body) = (String::new(), [0; 2]);
        while !head.ends_with("\r\n\r\n") {
            assert!(kept.read_line(&mut head).unwrap() > 0, "the connection has ended");
        }
        let length = if head.starts_with("HTTP/1.1 200") { 2 } else { 0 };
        kept.read_exact(&mut body[..length]).unwrap();
        head
    };
    assert!(ask("a.example").starts_with("HTTP/1.1 200 "));

    fs::write(&path, first.clone() + &second).unwrap();
    web.signal("-HUP");
    assert_eq!(web.wait_for("sites-replaced")["sites"], 2);
    assert!(ask("b.example").to_lowercase().contains("x-site: b"));
    // The unchanged site goes on counting.
    let status = get(&web, "a.example", "/.lull/metrics?token=the-token-of-site-a");
    assert!(status.contains("\nlull_web_requests_total 1\n"), "{status}");

    for (text, words) in [
        (first.clone() + &second.replace("upstream", "upsteam"), "did you mean 'upstream'"),
        (first.replace("127.0.0.1:0", "127.0.0.1:1") + &second, "restart"),
    ] {
        fs::write(&path, text).unwrap();
        web.signal("-HUP");
        let why = web.wait_for("config-kept")["why"].as_str().unwrap().to_owned();
        assert!(why.contains(words), "{why}");
        assert!(ask("b.example").starts_with("HTTP/1.1 200 "));
    }
    web.signal("-TERM");
    web.wait_for("stopped");
}

#[test]
fn check_reports_errors_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let good = "listen = \"127.0.0.1:0\"\n[[site]]\nupstream = \"http://127.0.0.1:1\"\n";
    let said = finish(&mut lull(&["web", "--check", &file(folder.path(), good)]));
    assert!(said.status.success(), "{}", said.err);
    assert!(said.out.ends_with("web.toml: good, 1 site\n"), "{}", said.out);
    for (text, words) in [
        (
            good.replace("listen", "lisen"),
            "web.toml:1: there is no key 'lisen': did you mean 'listen'?",
        ),
        (good.replace("upstream", "deny"), "web.toml:3: "),
        (good.to_owned() + "token-file = \"none\"\n", "none"),
    ] {
        let said = finish(&mut lull(&["web", "--check", &file(folder.path(), &text)]));
        assert!(!said.status.success());
        assert!(said.err.contains(words), "{}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        // A start says the same.
        let started = finish(&mut lull(&["web", "--config", &file(folder.path(), &text)]));
        assert!(!started.status.success() && started.err.contains(words), "{}", started.err);
    }
}

#[test]
fn options_of_a_site_conflict_with_a_file() {
    let said =
        finish(&mut lull(&["web", "--config", "a.toml", "--upstream", "http://127.0.0.1:1"]));
    assert_eq!(said.status.code(), Some(2));
    let said = finish(&mut lull(&["web"]));
    assert_eq!(said.status.code(), Some(2));
    assert!(said.err.contains("--config FILE"), "{}", said.err);
}

#[test]
fn each_site_of_a_file_is_served_with_its_own_dashboard() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::write(folder.path().join(name), format!("the-token-of-site-{name}\n")).unwrap();
    }
    let (a, b) = (upstream(Duration::ZERO), upstream(Duration::ZERO));
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n\
         [[site]]\nnames = [\"a.example\"]\nupstream = \"{a}\"\ntoken-file = \"a\"\n\
         model = \"a.model\"\n\
         [[site]]\nnames = [\"b.example\"]\nupstream = \"{b}\"\ntoken-file = \"b\"\n"
    );
    let path = file(folder.path(), &text);
    let mut web = start(&path);
    for (host, path, status) in [
        ("a.example", "/", 200),
        ("b.example:8080", "/", 200),
        ("c.example", "/", 421),
        ("a.example", "/.lull/status?token=the-token-of-site-a", 200),
        ("b.example", "/.lull/status?token=the-token-of-site-b", 200),
        ("b.example", "/.lull/status?token=the-token-of-site-a", 401),
    ] {
        let answer = get(&web, host, path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host} {path}: {answer}");
    }
    web.signal("-TERM");
    assert_eq!(web.wait_for("stopped")["cut"], 0);
    assert!(web.process.0.wait().unwrap().success());
    assert!(folder.path().join("a.model").exists());
}
