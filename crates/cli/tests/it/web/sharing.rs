//! Two processes of one site share what they learn, also after a time without the NATS server.

use std::ops::Range;
use std::path::Path;

use lull_testing::nats::NatsServers;
use lull_testing::needs;

use super::*;

/// A proxy with its own model, and with the key of the site.
fn start(nats: &NatsServers, upstream: &str, folder: &Path, name: &str) -> Web {
    let path = |file: &str| folder.join(file).to_str().unwrap().to_owned();
    let (model, key, url) = (path(&format!("{name}.model")), path("key"), nats.url());
    let files = ["--model", &model, "--model-key", &key, "--share", &url];
    let more = ["--site", "a", "--trust-forwarded", "--control-group-share", "0"];
    Web::start(upstream, &[&files[..], &more].concat())
}

/// A request of one of many visitors behind another proxy.
fn send(web: &Web, visitor: u32, request: &str, body: &str) -> String {
    let mut stream = web.connect();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept: text/html\r\n\
         User-Agent: Mozilla/5.0 Chrome/156.0.0.0\r\nX-Forwarded-For: 192.0.2.{visitor}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer
}

/// Visitors go from one page to the next.
fn walk(web: &Web, visitors: Range<u32>, pages: [&str; 2]) {
    for visitor in visitors {
        for page in pages {
            send(web, visitor, &format!("GET {page}"), "");
        }
    }
}

/// Waits until a visitor of `on` gets a hint for `page`.
#[track_caller]
fn until_known(web: &Web, on: &str, page: &str) {
    let (started, hint) = (Instant::now(), format!(r#""url":"{page}""#));
    let ask = format!(r#"{{"v":1,"page":"{on}","first":true,"cached":false}}"#);
    for visitor in (100..250).cycle() {
        if send(web, visitor, "POST /.lull/hints", &ask).contains(&hint) {
            return;
        }
        assert!(started.elapsed() < 2 * LIMIT, "there is never a hint for {page}");
        thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn proxy_restarted_without_nats_shares_what_it_learned() {
    needs!(lull_testing::command("nats-server"));
    let (folder, upstream) = (tempfile::tempdir().unwrap(), upstream(Duration::ZERO));
    let mut nats = NatsServers::single();
    let mut one = start(&nats, &upstream, folder.path(), "one");
    let other = start(&nats, &upstream, folder.path(), "other");
    walk(&one, 1..25, ["/a", "/b"]);
    until_known(&other, "/a", "/b");

    // Both go on serving and learning.
    nats.kill(0);
    walk(&one, 30..55, ["/c", "/d"]);
    walk(&other, 60..85, ["/e", "/f"]);
    until_known(&one, "/c", "/d");
    until_known(&other, "/e", "/f");
    one.signal("-TERM");
    one.wait_for("stopped");
    assert!(one.process.0.wait().unwrap().success());
    let unsent = fs::read(folder.path().join("one.model.unsent")).unwrap();
    assert!(unsent.len() > 100, "{unsent:?}");
    let one = start(&nats, &upstream, folder.path(), "one");
    until_known(&one, "/c", "/d");

    nats.restart(0);
    nats.wait_until_ready(0);
    until_known(&other, "/c", "/d");
    until_known(&one, "/e", "/f");
}
