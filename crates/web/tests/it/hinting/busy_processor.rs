//! A server that waits for its processor: nginx, one process, which compresses large answers for others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;

use lull_testing::{bound, needs};

use super::*;
use crate::common::nginx::Nginx;

/// Clients that repeatedly request a large page to be compressed. Each has one request at the server, so that
/// the next one waits for all of these.
const CLIENTS: usize = 16;

/// Sends requests until the end.
fn work(server: SocketAddr, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(server) else { continue };
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let request =
            "GET /large HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
        if stream.write_all(request.as_bytes()).is_ok() {
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
}

#[test]
fn busy_processor_pauses_prefetches() {
    needs!(lull_testing::command("nginx"));
    let nginx = Nginx::start(
        "default_type text/html;",
        "gzip on; gzip_comp_level 9; gzip_types *; gzip_min_length 100000;",
    );
    for name in ["a", "b", "probe"] {
        nginx.put(name, PAGE);
    }
    let words: Vec<String> =
        (0..60_000_u32).map(|word| (word * 7919 % 10_007).to_string()).collect();
    nginx.put("large", words.join(" "));
    let site = site_before(nginx.address, learning(), |settings, save| {
        Nps::new(settings, empty_model(), Some(save))
    });
    site.go(1..25, &["/a", "/b"]);
    site.list(99, "/a", &[]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Also where an assertion ends it.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _end = End(&is_over);
        for _ in 0..CLIENTS {
            scope.spawn(|| work(nginx.address, &is_over));
        }
        site.until_there_is_none();
    });
    // Other programs on a busy machine make the server late as well.
    if bound(false, true) {
        site.hints(98, "/a", &[]);
    }
}
