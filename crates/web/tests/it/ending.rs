//! The end of a proxy: no client is cut off unnecessarily.

use crate::common;
mod protocols;

use std::fs::File;
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{proxy, proxy_with, upstream};
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
fn drain_finishes_requests_in_flight_and_accepts_no_new_ones() {
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
fn request_beyond_the_drain_timeout_is_cut() {
    let proxy = proxy(upstream(|mut peer| while peer.head().is_some() {}));
    let mut busy = proxy.connect();
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    proxy.wait("request", |totals| totals.upstream_connections == 1);
    proxy.server.drain();
    proxy.server.stop();
    assert!(busy.is_closed_within(common::LIMIT));
    assert_eq!(proxy.events.lock().unwrap().last(), Some(&Event::Stopped { cut: 1 }));
}

/// A site that answers itself, without an upstream.
struct Empty;

impl Site for Empty {
    fn request(&self, _: &mut request::Parts, _: &Arc<Connection>) -> Decision {
        Decision::Answer(Response::new(Body::empty()))
    }
}

#[test]
fn stalled_access_log_blocks_neither_reload_nor_shutdown() {
    // More lines than the pipe holds, and then as many as may wait.
    const REQUESTS: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("access.log");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Opening both ends does not block; and it never reads.
    let reader = File::options().read(true).write(true).open(&pipe).unwrap();
    let log = AccessLog::File(pipe);
    let change = |config: &mut Config| config.access_log = Some(log);
    let proxy = proxy_with(common::unused_address(), change, Some(Arc::new(Empty)));
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

/// The same, but it delays the thread that carries the traffic.
struct Busy {
    begun: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl Site for Busy {
    fn request(&self, head: &mut request::Parts, connection: &Arc<Connection>) -> Decision {
        if head.uri.path() == "/busy" {
            self.begun.lock().unwrap().send(()).unwrap();
            self.go_on.lock().unwrap().recv_timeout(common::LIMIT).unwrap();
        }
        Empty.request(head, connection)
    }
}

#[test]
fn request_received_before_the_drain_is_answered() {
    let ((begun, has_begun), (go_on, wait)) = (channel(), channel());
    let site = Busy { begun: Mutex::new(begun), go_on: Mutex::new(wait) };
    let proxy = proxy_with(common::unused_address(), |_| {}, Some(Arc::new(site)));
    let mut used = proxy.connect();
    used.send("GET /before HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(used.answer().status(), 200);
    let mut known = proxy.connect();
    proxy.wait("connections", |totals| totals.open_connections == 2);
    let mut busy = proxy.connect();
    busy.send("GET /busy HTTP/1.1\r\nHost: a\r\n\r\n");
    has_begun.recv_timeout(common::LIMIT).unwrap();
    // Later requests are not read.
    let mut fresh = proxy.connect();
    let mut silent = proxy.connect();
    for client in [&mut used, &mut known, &mut fresh] {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    proxy.wait("connections", |totals| totals.open_connections == 5);
    proxy.server.drain();
    go_on.send(()).unwrap();
    for client in [&mut busy, &mut used, &mut known, &mut fresh] {
        assert_eq!(client.answer().status(), 200);
        assert!(client.is_closed_within(common::LIMIT));
    }
    // A silent client is not waited for.
    assert!(silent.is_closed_within(common::LIMIT));
    wait_until("it does not end", || proxy.server.is_drained());
}

#[test]
fn request_in_flight_when_the_drain_begins_is_answered() {
    let started = Instant::now();
    let (proxy, mut clients) = loop {
        let proxy = proxy_with(common::unused_address(), |_| {}, Some(Arc::new(Empty)));
        let mut clients: Vec<_> = (0..8).map(|_| proxy.connect()).collect();
        proxy.wait("connections", |totals| totals.open_connections == 8);
        let begun = Instant::now();
        proxy.server.drain();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        // It waits for 100 ms: the request of a delayed client was not in flight.
        if begun.elapsed() < Duration::from_millis(50) {
            break (proxy, clients);
        }
        assert!(started.elapsed() < common::LIMIT, "this machine is too busy to tell");
    };
    for client in &mut clients {
        assert_eq!(client.answer().status(), 200);
        assert!(client.is_closed_within(common::LIMIT));
    }
    wait_until("it does not end", || proxy.server.is_drained());
}

#[test]
fn idle_proxy_drains_at_once() {
    let proxy = proxy(common::unused_address());
    proxy.server.drain();
    wait_until("it does not end", || proxy.server.is_drained());
}
