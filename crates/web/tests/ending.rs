//! The end of a proxy: nobody is cut off who need not be.

mod common;

use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::{proxy, upstream};
use lull_web::proxy::Event;

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < common::LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_under_way_ends_and_nothing_new_begins() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let proxy = proxy(upstream(move |mut peer| {
        peer.head().unwrap();
        wait.lock().unwrap().recv().unwrap();
        peer.ok("in the end");
    }));
    let address = proxy.address();
    let mut idle = proxy.connect();
    let mut busy = proxy.connect();
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    proxy.wait("request", |totals| totals.upstream_connections == 1);
    proxy.wait("connections", |totals| totals.open_connections == 2);
    proxy.server.drain();
    assert!(idle.is_closed_within(common::LIMIT));
    wait_until("it still accepts", || TcpStream::connect(address).is_err());
    assert!(!proxy.server.is_drained());
    go.send(()).unwrap();
    let answer = busy.answer();
    assert_eq!(answer.text(), "in the end");
    assert_eq!(answer.header("connection"), Some("close"));
    wait_until("it does not end", || proxy.server.is_drained());
    proxy.server.stop();
    assert_eq!(proxy.events.lock().unwrap().last(), Some(&Event::Stopped { cut: 0 }));
}

#[test]
fn what_does_not_end_is_cut() {
    let proxy = proxy(upstream(|mut peer| while peer.head().is_some() {}));
    let mut busy = proxy.connect();
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    proxy.wait("request", |totals| totals.upstream_connections == 1);
    proxy.server.drain();
    proxy.server.stop();
    assert!(busy.is_closed_within(common::LIMIT));
    assert_eq!(proxy.events.lock().unwrap().last(), Some(&Event::Stopped { cut: 1 }));
}

#[test]
fn an_idle_proxy_ends_at_once() {
    let proxy = proxy(common::nobody());
    proxy.server.drain();
    wait_until("it does not end", || proxy.server.is_drained());
}
