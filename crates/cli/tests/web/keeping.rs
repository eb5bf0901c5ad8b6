//! What visitors teach is kept.

use super::*;

/// What is learned is kept each minute, and may have to wait for a busy machine.
const A_MINUTE: Duration = Duration::from_secs(90);

#[test]
fn what_visitors_taught_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.model");
    let model = path.to_str().unwrap();
    let upstream = upstream(Duration::ZERO);
    let mut web = Web::start(&upstream, &["--model", model, "--trust-forwarded"]);
    support::eventually("an empty model", || path.exists());
    let before = fs::read(&path).unwrap();
    for visitor in 1..25 {
        for page in ["/a", "/b"] {
            visit(&web, visitor, page);
        }
    }
    support::eventually_within(A_MINUTE, "the model of a minute later", || {
        fs::read(&path).unwrap() != before
    });
    web.process.0.kill().unwrap();
    web.process.0.wait().unwrap();

    let mut web = Web::start(&upstream, &["--model", model, "--hold-back", "0"]);
    until_hinted(&web, "/a", "/b");
    web.signal("-TERM");
    assert!(web.rest().iter().all(|event| event["event"] != "model-aside"));
}

/// A page on its way to one of many visitors behind another proxy.
fn visit(web: &Web, visitor: u32, page: &str) {
    let mut stream = web.connect();
    write!(
        stream,
        "GET {page} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept: text/html\r\n\
         User-Agent: Mozilla/5.0 Chrome/156.0.0.0\r\nX-Forwarded-For: 192.0.2.{visitor}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
