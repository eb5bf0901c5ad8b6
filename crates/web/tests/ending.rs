//! The end of a proxy: nobody is cut off who need not be.

mod common;

use std::fs::File;
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{proxy, proxy_with, upstream};
use http::{Response, request};
use lull_web::proxy::{AccessLog, Body, Config, Connection, Decision, Event, Site};

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

/// A site that answers by itself.
struct Empty;

impl Site for Empty {
    fn request(&self, _: &mut request::Parts, _: &Arc<Connection>) -> Decision {
        Decision::Answer(Response::new(Body::empty()))
    }
}

#[test]
fn a_log_that_takes_nothing_holds_up_neither_a_reload_nor_the_end() {
    // More lines than the pipe holds, and then as many as may wait.
    const REQUESTS: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("access.log");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Who opens both ends waits for nobody; and it never reads.
    let reader = File::options().read(true).write(true).open(&pipe).unwrap();
    let log = AccessLog::File(pipe);
    let change = |config: &mut Config| config.access_log = Some(log);
    let proxy = proxy_with(common::nobody(), change, Some(Arc::new(Empty)));
    let mut client = proxy.connect();
    for _ in 0..REQUESTS / 100 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100));
        for _ in 0..100 {
            assert_eq!(client.answer().status(), 200);
        }
    }
    drop(client);
    proxy.wait("end", |totals| totals.open_connections == 0);
    let events = Arc::clone(&proxy.events);
    let (done, ended) = channel();
    thread::spawn(move || {
        proxy.server.reload();
        done.send(()).unwrap();
        proxy.server.drain();
        proxy.server.stop();
        done.send(()).unwrap();
    });
    for what in ["reload", "end"] {
        assert!(ended.recv_timeout(common::LIMIT).is_ok(), "it waits for the log: {what}");
    }
    let told = events.lock().unwrap();
    assert!(matches!(told[told.len() - 2], Event::LogLost { .. }), "{told:?}");
    assert_eq!(told.last(), Some(&Event::Stopped { cut: 0 }));
    drop(reader);
}

#[test]
fn an_idle_proxy_ends_at_once() {
    let proxy = proxy(common::nobody());
    proxy.server.drain();
    wait_until("it does not end", || proxy.server.is_drained());
}
