//! Connections whose buffers were freed while their client was idle.

use std::thread;
use std::time::Duration;

use lull_web::proxy::Config;

use crate::common::{Client, LIMIT, Proxy, mirror, proxy_with};

/// Longer than it takes until an idle connection has no buffers: two checks, each a quarter of the shortest timeout.
const IDLE: Duration = Duration::from_millis(900);

fn proxy() -> Proxy {
    let change = |config: &mut Config| {
        config.timeouts.client_stalled = Duration::from_secs(1);
        config.timeouts.client_head = LIMIT;
        config.timeouts.client_idle = LIMIT;
    };
    proxy_with(mirror(), change, None)
}

fn ask(client: &mut Client, path: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
}

#[track_caller]
fn assert_answer(client: &mut Client, path: &str) {
    let answer = client.answer();
    assert!(answer.text().starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{}", answer.text());
}

#[test]
fn idle_connection_serves_further_requests() {
    let proxy = proxy();
    let mut client = proxy.connect();
    for path in ["/a", "/b", "/c"] {
        ask(&mut client, path);
        assert_answer(&mut client, path);
        thread::sleep(IDLE);
    }
    // Two at once.
    client.send("GET /d HTTP/1.1\r\nHost: a\r\n\r\nGET /e HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_answer(&mut client, "/d");
    assert_answer(&mut client, "/e");
    assert_eq!(proxy.totals().open_connections, 1);
}

#[test]
fn request_with_a_pause_in_its_head_is_served() {
    let proxy = proxy();
    let mut client = proxy.connect();
    ask(&mut client, "/a");
    assert_answer(&mut client, "/a");
    for part in ["GE", "T /b HTTP/1.1\r\nHo", "st: a\r\n\r\n"] {
        thread::sleep(IDLE);
        client.send(part);
    }
    assert_answer(&mut client, "/b");
    thread::sleep(IDLE);
    // Escaped once.
    ask(&mut client, "/%3C");
    assert_answer(&mut client, "/%3C");
}

#[test]
fn body_that_arrives_late_is_no_request() {
    let proxy = proxy();
    let mut client = proxy.connect();
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\n");
    thread::sleep(IDLE);
    client.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer();
    assert!(answer.text().starts_with("POST /a "), "{}", answer.text());
    thread::sleep(IDLE);
    assert_eq!(proxy.totals().requests, 1);
}

#[test]
fn idle_connection_ends_with_its_client_or_the_proxy() {
    let proxy = proxy();
    let (mut kept, mut closed) = (proxy.connect(), proxy.connect());
    for client in [&mut kept, &mut closed] {
        ask(client, "/a");
        assert_answer(client, "/a");
    }
    thread::sleep(IDLE);
    drop(closed);
    proxy.wait("the end of one", |totals| totals.open_connections == 1);
    proxy.server.drain();
    assert!(kept.is_closed_within(LIMIT));
    proxy.wait("the end of both", |totals| totals.open_connections == 0);
}
