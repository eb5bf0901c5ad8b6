//! Behaviour of upstreams that visitors must not notice: naming their own port, and closing idle connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{header, mirror, proxy, proxy_with, upstream};

const POST: &str =
    "POST /form HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab";

#[test]
fn redirect_to_the_upstream_port_is_rewritten_to_the_site() {
    let address = upstream(|mut peer| {
        while let Some(head) = peer.head() {
            let port = peer.stream.get_ref().local_addr().unwrap().port();
            let host = header(&head, "host").unwrap();
            let host = host.split(':').next().unwrap();
            peer.send(format!(
                "HTTP/1.1 301 Moved\r\nLocation: http://{host}:{port}/folder/?a=b\r\n\
                 Content-Location: http://{host}:{port}/here\r\nContent-Length: 0\r\n\r\n"
            ));
        }
    });
    let believing = proxy_with(address, |config| config.trust_forwarded = true, None);
    let plain = proxy(address);
    for (proxy, fields, expected) in [
        (&plain, "Host: site.example\r\n", "http://site.example"),
        (&plain, "Host: site.example:81\r\nX-Forwarded-Proto: https\r\n", "http://site.example:81"),
        (
            &believing,
            "Host: 10.0.0.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: 10.0.0.1\r\n",
            "https://10.0.0.1",
        ),
    ] {
        let request = format!("GET /folder?a=b HTTP/1.1\r\n{fields}Connection: close\r\n\r\n");
        let answer = proxy.exchange(request);
        assert_eq!(answer.header("location"), Some(&*format!("{expected}/folder/?a=b")));
        assert_eq!(answer.header("content-location"), Some(&*format!("{expected}/here")));
    }
}

/// After a `POST` over a connection that is just being closed, it is unknown whether the upstream has acted
/// on it. So it is not repeated, and its client gets 502.
#[test]
fn post_is_not_lost_to_an_upstream_that_closes_connections() {
    let address = upstream(|mut peer| {
        if let Some(head) = peer.head() {
            let length = header(&head, "content-length").map_or(0, |text| text.parse().unwrap());
            peer.body(length);
            peer.ok("done");
            // It reads the next request, and closes.
            let _ = peer.head();
        }
    });
    let proxy = proxy(address);
    // The longer one connection was idle, the safer a younger one seems.
    assert_eq!(proxy.get("/").status(), 200);
    assert_eq!(proxy.exchange(POST).status(), 200);
    thread::sleep(Duration::from_millis(100));
    for round in 0..100 {
        assert_eq!(proxy.get("/").status(), 200);
        assert_eq!(proxy.exchange(POST).status(), 200, "{round}");
    }
}

#[test]
fn post_takes_a_kept_connection_once_these_are_proven() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let address = upstream(move |mut peer| {
        count.fetch_add(1, Ordering::Relaxed);
        while let Some(head) = peer.head() {
            let length = header(&head, "content-length").map_or(0, |text| text.parse().unwrap());
            peer.body(length);
            peer.ok("done");
        }
    });
    let proxy = proxy(address);
    for _ in 0..40 {
        // A POST needs an answer over a connection that was idle for twice as long.
        thread::sleep(Duration::from_millis(10));
        assert_eq!(proxy.get("/").status(), 200);
        assert_eq!(proxy.exchange(POST).status(), 200);
    }
    let connections = connections.load(Ordering::Relaxed);
    assert!(connections < 40, "{connections}");
}

#[test]
fn invalid_url_characters_are_escaped() {
    let proxy = proxy(mirror());
    let mut client = proxy.connect();
    for (target, expected) in [
        ("/a?b=\"c\"&d=<e>", "/a?b=%22c%22&d=%3Ce%3E"),
        ("/<a>/`b`", "/%3Ca%3E/%60b%60"),
        ("/plain?q=1", "/plain?q=1"),
        ("/<z>", "/%3Cz%3E"),
    ] {
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: site.example\r\nX-Quoted: \"<a>\"\r\n\r\n"
        ));
        let answer = client.answer();
        let head = answer.text();
        assert!(head.starts_with(&format!("GET {expected} HTTP/1.1\r\n")), "{head}");
        assert!(head.contains("x-quoted: \"<a>\"\r\n"), "{head}");
    }
}

/// If a body may follow, nothing is changed: it would become longer than its length says.
#[test]
fn request_bodies_that_look_like_heads_pass_unchanged() {
    let address = upstream(|mut peer| {
        while let Some(head) = peer.head() {
            let length = header(&head, "content-length").map_or(0, |text| text.parse().unwrap());
            let body = String::from_utf8(peer.body(length)).unwrap();
            peer.ok(&(head + &body));
        }
    });
    let proxy = proxy(address);
    let mut client = proxy.connect();
    let body = "GET /<a> HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(format!(
        "GET /first HTTP/1.1\r\nHost: a\r\n\r\nPOST /second HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    assert!(client.answer().text().starts_with("GET /first "));
    client.send(body);
    let answer = client.answer().text();
    assert!(answer.ends_with(body), "{answer}");
    // And the connection is in step.
    client.send("GET /third HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.answer().text().starts_with("GET /third "));
}
