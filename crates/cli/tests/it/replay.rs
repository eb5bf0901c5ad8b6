//! `lull lab replay` and `documents` from a user's view, against real servers, and `learn`.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::{Kept, LULL, Said, eventually, finish, lull};
use lull_testing::{bound, command, free_port, needs};
use serde_json::Value;

const TOKEN: &str = "0123456789abcdef";

/// A folder with a log and its documents.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    /// Visitors who come one after the other, a second apart, and all take the same path: a page with an
    /// image each, this many seconds from one to the next.
    fn new(visitors: u64, pause: u64) -> Self {
        Bench::of(visitors, pause, ["/", "/a/", "/a/b.html", "/c"])
    }

    /// The same, with these pages.
    fn of(visitors: u64, pause: u64, pages: [&str; 4]) -> Self {
        let mut lines: Vec<(u64, String)> = Vec::new();
        for visitor in 0..visitors {
            for (step, page) in (0..).zip(pages) {
                let at = visitor + step * pause;
                for (target, bytes) in [(page, 3000 + step), ("/logo.gif", 700)] {
                    lines.push((at, line(at, &format!("192.0.2.{visitor}"), target, bytes)));
                }
            }
        }
        lines.sort_by_key(|(at, _)| *at);
        let folder = tempfile::tempdir().unwrap();
        let text: String = lines.into_iter().map(|(_, line)| line).collect();
        fs::write(folder.path().join("access.log"), text).unwrap();
        Bench { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn lab(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(LULL);
        let command = command.arg("lab").args(arguments).stdin(Stdio::null());
        finish(command.current_dir(self.folder.path()))
    }

    fn replay(&self, to: &str, arguments: &[&str]) -> Value {
        let all = [&["replay", "--json", "--to", to], arguments].concat();
        serde_json::from_str(&self.lab(&all).ok()).unwrap()
    }

    /// nginx with the log's documents.
    fn nginx(&self) -> (Kept, String) {
        self.lab(&["documents", "--into", "site", "access.log"]).ok();
        let folder = self.folder.path();
        // One process, so that nothing is left when it is killed.
        let (port, root) = (free_port(), folder.join("site"));
        let (folder, root) = (folder.display(), root.display());
        let text = format!(
            "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
            events {{ }}
            http {{
                access_log {folder}/seen.log; keepalive_requests 1000000;
                types {{ text/html html; image/gif bin; }}
                client_body_temp_path {folder}/1; proxy_temp_path {folder}/2;
                fastcgi_temp_path {folder}/3; uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
                server {{
                    listen 127.0.0.1:{port}; root {root};
                    location / {{ try_files $uri/=.html $uri/=.bin =404; }}
                }}
            }}"
        );
        fs::write(self.path("nginx.conf"), text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-e").arg(self.path("error.log")).arg("-c").arg(self.path("nginx.conf"));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let nginx = Kept::spawn(&mut command);
        // A proxy in front of it is up at once, and would answer the first visitor with a 502.
        eventually("nginx listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        (nginx, format!("http://127.0.0.1:{port}"))
    }
}

fn line(second: u64, client: &str, target: &str, bytes: u64) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "{client} - - [17/May/2015:10:{minute:02}:{second:02} +0000] \"GET {target} HTTP/1.1\" 200 \
         {bytes} \"-\" \"Mozilla/5.0 (X11)\"\n"
    )
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

#[test]
fn replayed_requests_are_answered_by_nginx_once() {
    needs!(command("nginx"));
    let bench = Bench::new(12, 3);
    let (_nginx, to) = bench.nginx();
    let report = bench.replay(&to, &["--speed", "10", "access.log"]);
    let demand = &report["demand"];
    // Twelve visitors, four pages, and the picture four times, three of them from the cache.
    assert_eq!(count(&demand["due"]), 12 * 8, "{report}");
    assert_eq!(count(&demand["answered"]), 12 * 8, "{report}");
    assert_eq!(count(&report["statuses"]["200"]), 12 * 5, "{report}");
    // One that asks before the first has its answer waits for it, and is not counted.
    assert!((1..=12 * 3).contains(&count(&demand["repeated"])), "{report}");
    // The last answers come after the last requests: they may be beyond the end of the section.
    let bytes = 12 * (4 * 3000 + 6 + 700);
    assert!((bytes - 3004..=bytes).contains(&count(&demand["bytes"])), "{report}");
    assert_eq!(count(&report["ahead"]["asked"]), 0, "{report}");
    assert!((2.0..3.0).contains(&report["seconds"].as_f64().unwrap()), "{report}");
    let mean = |key: &str| demand[key]["mean_ms"].as_f64().unwrap();
    assert!(mean("network") > 0.0 && mean("all") < mean("network"), "{report}");
}

#[test]
fn predicted_urls_are_prefetched_and_used() {
    needs!(command("nginx"));
    let bench = Bench::new(16, 3);
    let (_nginx, to) = bench.nginx();
    let learn = ["--learn", "whole", "access.log"];
    for prefetch in [
        &["--speed", "10", "--prefetch", "no-avoidance=10"][..],
        &["--speed", "10", "--prefetch", "ppm=1/1", "--threshold", "0.5"],
        // Its budget grows by one each half second: 36 requests in the first six seconds.
        &["--speed", "3", "--prefetch", "monitor=5s"],
    ] {
        let report = bench.replay(&to, &[prefetch, &learn].concat());
        let (demand, ahead) = (&report["demand"], &report["ahead"]);
        assert_eq!(count(&demand["answered"]), 16 * 8, "{report}");
        // All except the first page of each can arrive before they are wanted.
        let least = if prefetch.contains(&"monitor=5s") { 1 } else { 16 };
        assert!(count(&demand["hits"]) >= least, "{prefetch:?}: {report}");
        assert!(count(&demand["hits"]) <= count(&demand["reachable"]), "{prefetch:?}: {report}");
        assert!(count(&ahead["used_bytes"]) >= 3000 * count(&demand["hits"]) / 2, "{report}");
        let whole = count(&ahead["used_bytes"]) + count(&ahead["wasted_bytes"]);
        assert_eq!(whole, count(&ahead["bytes"]), "{report}");
    }
    // The part before the section is empty: so nothing is known.
    let report =
        bench.replay(&to, &["--speed", "10", "--prefetch", "no-avoidance=10", "access.log"]);
    assert_eq!(count(&report["ahead"]["fetched"]), 0, "{report}");
    assert_eq!(count(&report["demand"]["hits"]), 0, "{report}");
}

#[test]
fn monitor_allows_dummies_while_the_server_is_in_time() {
    needs!(command("nginx"));
    let bench = Bench::new(1, 1);
    let (_nginx, to) = bench.nginx();
    let of = |length: &'static str| {
        ["--rate", "40", "--length", length, "--get", "/c", "--clients", "20"]
    };
    let report = bench.replay(&to, &[&of("9s")[..], &["--prefetch", "monitor=1s"]].concat());
    assert_eq!(count(&report["demand"]["due"]), 360, "{report}");
    assert_eq!(count(&report["demand"]["answered"]), 360, "{report}");
    assert_eq!(count(&report["demand"]["repeated"]), 0, "each is asked of the server");
    assert!(count(&report["ahead"]["fetched"]) > 0, "{report}");
    assert!(report["monitor"]["budget_mean"].as_f64().unwrap() > 0.0, "{report}");
    // No server is this fast.
    let report = bench.replay(&to, &[&of("3s")[..], &["--prefetch", "monitor=1us"]].concat());
    assert_eq!(count(&report["ahead"]["fetched"]), 0, "{report}");
    assert!(count(&report["ahead"]["asked"]) > 0, "{report}");
    // By contrast, a fixed number always comes: five for each page, except for the last ones.
    let report = bench.replay(&to, &[&of("3s")[..], &["--prefetch", "no-avoidance=5"]].concat());
    let fetched = count(&report["ahead"]["fetched"]);
    assert!((bound(100, 500)..=600).contains(&fetched), "{report}");
}

#[test]
fn requests_before_the_replay_settles_do_not_count() {
    needs!(command("nginx"));
    let bench = Bench::new(1, 1);
    let (_nginx, to) = bench.nginx();
    let of = ["--rate", "40", "--length", "5s", "--settle", "3s", "--get", "/c", "--clients", "20"];
    let report = bench.replay(&to, &[&of[..], &["--prefetch", "no-avoidance=5"]].concat());
    assert_eq!(report["seconds"], 2.0, "{report}");
    let demand = &report["demand"];
    assert_eq!((count(&demand["due"]), count(&demand["answered"])), (80, 80), "{report}");
    let per_second = demand["per_second"].as_f64().unwrap();
    assert!((bound(5.0, 20.0)..=bound(200.0, 70.0)).contains(&per_second), "{report}");
    // Not the thousand of all five seconds. Requests due before and answered later count, and a busy machine
    // answers late.
    let fetched = count(&report["ahead"]["fetched"]);
    assert!((bound(50, 200)..=700).contains(&fetched), "{report}");
    assert!(count(&report["ahead"]["bytes"]) < 3003 * 750, "{report}");
    assert!(count(&report["statuses"]["200"]) <= fetched + 120, "{report}");
    // A growing budget: it exists by then.
    let report = bench.replay(&to, &[&of[..], &["--prefetch", "monitor=1s"]].concat());
    assert!(report["monitor"]["budget_mean"].as_f64().unwrap() >= bound(0.1, 5.0), "{report}");
}

#[test]
fn paper_list_may_name_the_future_of_one_client() {
    needs!(command("nginx"));
    let bench = Bench::new(16, 3);
    let (_nginx, to) = bench.nginx();
    let mut text = fs::read_to_string(bench.path("access.log")).unwrap();
    // The last visitor goes to common pages, too, but no other visitor goes on from there.
    for (second, page) in [(100, "/"), (101, "/c"), (102, "/a/")] {
        text += &line(second, "192.0.2.99", page, 3000);
    }
    fs::write(bench.path("access.log"), text).unwrap();
    let replay = |more: &[&str]| {
        let of = ["--begin", "100s", "--speed", "0.5", "--learn", "whole", "--prefetch", "ppm=2/1"];
        bench.replay(&to, &[&of[..], more, &["access.log"]].concat())
    };
    let [many, one] = [replay(&[]), replay(&["--least-clients", "1"])];
    let hits = |report: &Value| count(&report["demand"]["hits"]);
    assert!(hits(&one) > hits(&many), "{one} {many}");
}

/// The papers' scheduler: the same files from a server with a lower priority.
#[test]
fn prefetches_go_to_the_prefetch_server() {
    needs!(command("nginx"));
    let [demand, ahead] = [Bench::new(1, 1), Bench::new(1, 1)];
    let (_nginx, to) = demand.nginx();
    let (_other, ahead_to) = ahead.nginx();
    let report = demand.replay(
        &to,
        &[
            &["--rate", "40", "--length", "3s", "--get", "/c", "--clients", "20"][..],
            &["--prefetch", "no-avoidance=2", "--ahead-to", &ahead_to],
        ]
        .concat(),
    );
    let fetched = count(&report["ahead"]["fetched"]);
    assert!(fetched >= 200, "{report}");
    let seen = |bench: &Bench| {
        let log = fs::read_to_string(bench.path("seen.log")).unwrap();
        log.lines().filter(|line| line.contains("GET /c ")).count() as u64
    };
    assert_eq!(seen(&demand), 120, "{report}");
    // The last ones may have been in transfer at the end.
    assert!((fetched..=240).contains(&seen(&ahead)), "{} of {report}", seen(&ahead));
}

/// The result for twenty visitors of `lull web`, which has learned from them, and the port of its dashboard.
fn hinted(bench: &Bench) -> (Value, u16, [Kept; 2]) {
    let (nginx, upstream) = bench.nginx();
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let log = bench.path("access.log").display().to_string();
    let mut web = lull(&["web", "--upstream", &upstream, "--listen", &listen, "--log", &log]);
    web.args(["--trust-forwarded", "--control-group-share", "0", "--token-file"]);
    fs::write(bench.path("token"), TOKEN).unwrap();
    web.arg(bench.path("token"));
    let web = Kept::spawn(web.stdout(Stdio::null()).stderr(Stdio::null()));
    let report = bench
        .replay(&format!("http://{listen}"), &["--speed", "2", "--prefetch", "nps", "access.log"]);
    (report, port, [nginx, web])
}

#[test]
fn long_lists_come_compressed_and_are_followed() {
    needs!(command("nginx"));
    let long = |name: &str| format!("/{}/{name}", ["long"; 100].join("/"));
    let pages = ["a", "b", "c", "d"].map(long);
    // According to docs/reference/web-protocol.md a list is compressed from 500 bytes on: one of these is longer.
    assert!(pages[0].len() > 500);
    let bench = Bench::of(20, 9, pages.each_ref().map(String::as_str));
    let (report, _, _kept) = hinted(&bench);
    assert_eq!(count(&report["demand"]["failed"]), 0, "{report}");
    assert!(count(&report["ahead"]["lists"]) > 0, "{report}");
    assert!(count(&report["demand"]["hits"]) > 0, "{report}");
}

#[test]
fn replay_follows_hints_of_lull_web() {
    needs!(command("nginx"));
    let bench = Bench::new(20, 9);
    let (report, port, _kept) = hinted(&bench);
    assert_eq!(count(&report["demand"]["answered"]), 20 * 8, "{report}");
    assert_eq!(count(&report["demand"]["failed"]), 0, "{report}");
    assert!(count(&report["ahead"]["lists"]) > 0, "{report}");
    let hits = count(&report["demand"]["hits"]);
    assert!(hits > 0, "{report}");
    // As a page's script does, each of the twenty reports the three pages that it leaves, from any source.
    let figures = figures(port);
    let figure = |name: &str| -> u64 {
        let line = figures.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {figures}")).trim().parse().unwrap()
    };
    let [cached, not] = ["yes", "no"].map(|cached| {
        figure(&format!("lull_web_navigations_total{{prefetching=\"yes\",cached=\"{cached}\"}}"))
    });
    assert!((50..=60).contains(&(cached + not)), "{cached} + {not}: {report}");
    // The last page of each visitor is not left.
    assert!(cached <= hits && (cached > 0 || hits <= 20), "{cached}: {report}");
    assert_eq!(figure("lull_web_rejected_messages_total"), 0, "{figures}");
}

#[test]
fn click_on_a_page_being_prefetched_waits_and_reports() {
    const LIST: &str = r#"{"mark":"1","hints":[{"url":"/a","as":"document"}],"wait":null}"#;
    // It takes three seconds for the hinted page: longer than the section.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}", listener.local_addr().unwrap());
    let (said, heard) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let said = said.clone();
            thread::spawn(move || {
                while let Some(request) = request(&mut stream) {
                    let (status, body) = match request.split(' ').next() {
                        Some("GET") => ("200 OK", "page"),
                        Some("POST") if request.contains("/hints") => ("200 OK", LIST),
                        _ => ("204 No Content", ""),
                    };
                    if request.starts_with("GET /a ") {
                        thread::sleep(Duration::from_secs(3));
                    }
                    let _ = said.send(request);
                    let length = body.len();
                    let length = match status {
                        "200 OK" => format!("Content-Length: {length}\r\n"),
                        _ => String::new(),
                    };
                    let answer = format!("HTTP/1.1 {status}\r\nX-Lull: 1\r\n{length}\r\n{body}");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let bench = Bench::new(1, 1);
    let log = [line(0, "192.0.2.1", "/", 4), line(1, "192.0.2.1", "/a", 4)].concat();
    fs::write(bench.path("two.log"), log).unwrap();
    let report = bench.replay(&to, &["--prefetch", "nps", "two.log"]);
    let (demand, ahead) = (&report["demand"], &report["ahead"]);
    assert_eq!((count(&demand["answered"]), count(&demand["hits"])), (2, 1), "{report}");
    assert_eq!((count(&ahead["fetched"]), count(&ahead["stopped"])), (1, 0), "{report}");
    let waited = demand["all"]["max_ms"].as_f64().unwrap();
    assert!((1000.0..3000.0).contains(&waited), "{report}");
    let heard: Vec<String> = heard.try_iter().collect();
    let seen = |what: &str| heard.iter().filter(|request| request.starts_with(what)).count();
    assert_eq!(seen("HEAD / 0 "), 1, "{heard:?}");
    assert_eq!((seen("GET /a 1"), seen("GET /a")), (1, 1), "it is asked for once: {heard:?}");
    let beacon = r#"POST /.lull/beacon - {"v":1,"page":"/","#;
    assert_eq!(seen(&format!(r#"{beacon}"awaits":"/a"}}"#)), 1, "{heard:?}");
    assert_eq!(seen(&format!(r#"{beacon}"nav":{{"type":"navigate","cached":false"#)), 1);
}

/// Reads a request: method, path, the value of `X-Lull`, body. None at the end.
fn request(stream: &mut TcpStream) -> Option<String> {
    let text = head(stream)?;
    let header = |name: &str| header(&text, name);
    let mut body = vec![0; header("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    let mut words = text.split(' ');
    let (method, path) = (words.next().unwrap().to_uppercase(), words.next().unwrap());
    let mark = header("x-lull").unwrap_or_else(|| "-".to_owned());
    Some(format!("{method} {path} {mark} {}", String::from_utf8(body).unwrap()))
}

/// The status of `lull web`.
fn figures(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = "Host: 127.0.0.1\r\nConnection: close\r\n";
    write!(stream, "GET /.lull/metrics HTTP/1.1\r\n{head}Authorization: Bearer {TOKEN}\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn requests_behind_a_stall_count_from_their_due_time() {
    // A server with one connection that takes a second for its first answer, and no time for later ones.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}", listener.local_addr().unwrap());
    let stall = Duration::from_secs(1);
    thread::spawn(move || {
        // The first connection only checks for a listener.
        drop(listener.accept().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        let mut stalled = false;
        while head(&mut stream).is_some() {
            if !std::mem::replace(&mut stalled, true) {
                thread::sleep(stall);
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    });
    let bench = Bench::new(1, 1);
    let one = ["--rate", "100", "--length", "1s", "--clients", "1", "--connections", "1"];
    let report = bench.replay(&to, &one);
    assert_eq!(count(&report["demand"]["answered"]), 100, "{report}");
    let times = &report["demand"]["all"];
    // A client that sends one request after the other would have found one slow request among a hundred.
    let median = times["p50_ms"].as_f64().unwrap();
    assert!(median >= 400.0, "{report}");
    assert!(times["max_ms"].as_f64().unwrap() >= 1000.0, "{report}");
}

/// Reads the head of a request, in lower case; none at the end.
fn head(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        text.extend(byte);
    }
    Some(String::from_utf8(text).unwrap().to_lowercase())
}

/// The value of a field in such a head.
fn header(head: &str, name: &str) -> Option<String> {
    let found = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.map(str::to_owned)
}

#[test]
fn content_codings_of_clients_are_sent_to_the_server() {
    let bench = Bench::new(1, 1);
    let few = ["--rate", "20", "--length", "200ms", "--clients", "1", "--connections", "1"];
    let other = ["--accept-encoding", "gzip, br, zstd"];
    for (arguments, expected) in
        [(few.to_vec(), "gzip"), ([&few[..], &other].concat(), "gzip, br, zstd")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = format!("http://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            drop(listener.accept().unwrap());
            let (mut stream, _) = listener.accept().unwrap();
            let mut told = Vec::new();
            while let Some(head) = head(&mut stream) {
                told.push(header(&head, "accept-encoding").unwrap());
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            }
            told
        });
        bench.replay(&to, &arguments);
        assert_eq!(server.join().unwrap(), [expected; 4]);
    }
}

#[test]
fn unreplayable_log_is_reported_on_one_line() {
    let bench = Bench::new(1, 1);
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let replay = |arguments: &[&str]| bench.lab(&[&["replay"], arguments].concat());
    replay(&["--to", &nowhere, "access.log"]).fails(1, "accepts no connection");
    replay(&["--to", &nowhere, "--begin", "5000s", "access.log"]).fails(1, "another one");
    replay(&["--to", &nowhere, "nothing.log"]).fails(1, "nothing.log");
    replay(&["--to", "https://site.example", "access.log"]).fails(2, "http://");
    replay(&["--to", &nowhere]).fails(2, "LOG");
    replay(&["--to", &nowhere, "--rate", "9"]).fails(2, "--length");
    let constant = ["--to", &nowhere, "--rate", "9", "--length", "1s"];
    replay(&[&constant[..], &["--prefetch", "nps"]].concat()).fails(2, "nothing to predict");
    replay(&[&constant[..], &["--settle", "1s"]].concat()).fails(2, "shorter than --length");
    for prefetch in ["nps", "ppm=1/1"] {
        let dummy = ["--to", &nowhere, "--prefetch", prefetch, "--dummy", "/c", "access.log"];
        replay(&dummy).fails(2, "no-avoidance and monitor");
    }
    replay(&["--to", &nowhere, "--prefetch", "all", "access.log"]).fails(2, "ppm=N/W");
    bench.lab(&["documents", "--into", "access.log", "access.log"]).fails(1, "cannot be written");
}

#[test]
fn server_without_hints_differs_from_an_empty_list() {
    needs!(command("nginx"));
    let bench = Bench::new(1, 1);
    let (_nginx, to) = bench.nginx();
    let said = bench.lab(&["replay", "--to", &to, "--prefetch", "nps", "access.log"]);
    said.fails(1, "gives no hints");
    // And a missing path has no answer that counts, however fast.
    let absent = ["--rate", "20", "--length", "1s", "--get", "/absent", "--patience", "7s"];
    let report = bench.replay(&to, &absent);
    assert_eq!(count(&report["demand"]["failed"]), 20, "{report}");
    assert_eq!(count(&report["statuses"]["404"]), 20, "{report}");
    let fastest = report["demand"]["all"]["p50_ms"].as_f64().unwrap();
    assert!((6990.0..7100.0).contains(&fastest), "{report}");
}

#[test]
fn generated_log_is_learned_and_its_cost_reported() {
    let learn = |arguments: &[&str]| finish(&mut lull(&[&["lab", "learn"], arguments].concat()));
    let few = ["--lines", "20000", "--urls", "2000", "--predictor"];
    let report = |predictor, seed| -> Value {
        let arguments = [&few[..], &[predictor, "--json", "--seed", seed]].concat();
        serde_json::from_str(&learn(&arguments).ok()).unwrap()
    };
    let (papers, default) = (report("ppm=2/10", "1"), report("default", "1"));
    for report in [&papers, &default] {
        assert_eq!(count(&report["lines"]), 20_000, "{report}");
        assert!((1_000..=2_000).contains(&count(&report["urls"])), "{report}");
        assert!(count(&report["hints"]["listed"]) > 0, "{report}");
        // The process has more memory than the model.
        let most = count(&report["most_resident_bytes"]);
        assert!(most > count(&report["predictor_bytes"]) && most < 1 << 30, "{report}");
    }
    // Both have read the same log; another seed generates another one.
    assert_eq!(papers["urls"], default["urls"]);
    assert_ne!(papers["hints"]["listed"], report("ppm=2/10", "2")["hints"]["listed"]);
    learn(&[&few[..], &["markov"]].concat()).fails(2, "it is default or ppm=N/W");
}
