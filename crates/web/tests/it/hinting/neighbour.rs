//! Another program that takes the server's processor, beside the default scheduler.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use lull_testing::needs;
use lull_web::nps::Access;

use super::*;

/// Each page is work of some fifty milliseconds for a processor. Linux lets a short piece of work go first, whatever
/// else runs.
const SERVER: &str = r#"
import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        hashlib.pbkdf2_hmac("sha256", b"", b"", 100000)
        status = 404 if self.path == "/robots.txt" else 200
        body = b"<!doctype html><title>a</title>"
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
print(server.server_port, flush=True)
server.serve_forever()
"#;
/// Programs beside it. On a machine that is busy already, a few make little difference.
const NEIGHBOURS: usize = 6;

/// A process that is killed in the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first processor of this process.
fn processor() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().split(['-', ',']).next().unwrap().to_owned()
}

/// A program on one processor.
fn on(processor: &str, program: &[&str]) -> Killed {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", processor]).args(program);
    Killed(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
}

/// Visitors come one after the other until the scheduler sees, or no longer sees, a neighbour.
#[track_caller]
fn until_seen(site: &Site, expected: bool) {
    let begun = Instant::now();
    loop {
        (0..5).for_each(|visitor| drop(site.visit(visitor + 1, "/a")));
        let status = site.get(1, "/.lull/status", "Authorization: Bearer secret\r\n");
        let status: Value = serde_json::from_slice(&status.body).unwrap();
        if status["scheduler"]["neighbour"] == expected {
            return;
        }
        assert!(begun.elapsed() < 2 * LIMIT, "{}", status["scheduler"]);
    }
}

#[test]
fn program_beside_the_server_is_noticed_until_it_ends() {
    needs!(lull_testing::command("taskset"), lull_testing::command("python3"));
    let processor = processor();
    let mut server = on(&processor, &["python3", "-c", SERVER]);
    let mut port = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut port).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()));
    let access = Access::Token("secret".into());
    let settings = Settings { access, ..Settings::default() };
    let site = site_before(address, settings, |settings, save| {
        Nps::new(settings, empty_model(), Some(save))
    });
    // The usual time of the page.
    (0..40).for_each(|visitor| drop(site.visit(visitor + 1, "/a")));
    let neighbours: Vec<Killed> =
        (0..NEIGHBOURS).map(|_| on(&processor, &["sh", "-c", "while :; do :; done"])).collect();
    until_seen(&site, true);
    drop(neighbours);
    until_seen(&site, false);
}
