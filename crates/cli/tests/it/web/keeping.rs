//! Knowledge from visitors is saved.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Learned data are saved each minute, and may be delayed by a busy machine.
const A_MINUTE: Duration = Duration::from_secs(90);

#[test]
fn learned_visits_survive_a_kill() {
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

    let mut web = Web::start(&upstream, &["--model", model, "--control-group-share", "0"]);
    until_hinted(&web, "/a", "/b");
    web.signal("-TERM");
    assert!(web.rest().iter().all(|event| event["event"] != "model-aside"));
}

/// A proxy that monitors one page, and visitors who each want a hint.
struct Watched {
    web: Web,
    token: String,
}

impl Watched {
    fn start(upstream: &str, folder: &Path) -> Self {
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let token = "0123456789abcdef".to_owned();
        fs::write(path("token"), &token).unwrap();
        fs::write(path("access.log"), log()).unwrap();
        let (log, model, file) = (path("access.log"), path("site.model"), path("token"));
        let arguments = ["--log", &log, "--model", &model, "--token-file", &file];
        let more = ["--control-group-share", "0", "--probe", "/a"];
        let mut web = Web::start(upstream, &[&arguments[..], &more].concat());
        web.wait_for("learned");
        Watched { web, token }
    }

    /// From when on answers are late, in milliseconds, once that is known and nothing more is being learned.
    #[track_caller]
    fn late_from(&self, is_so: impl Fn(f64) -> bool) -> f64 {
        let started = Instant::now();
        loop {
            hints(&self.web, "/a");
            self.web.get("/a");
            let answer = self.web.get(&format!("/.lull/status?token={}", self.token));
            let (_, status) = answer.split_once("\r\n\r\n").unwrap();
            let status: Value = serde_json::from_str(status).unwrap();
            let threshold = status["objects"][0]["threshold"].as_f64().filter(|one| is_so(*one));
            if let Some(threshold) = threshold.filter(|_| status["paused"] == false) {
                return threshold;
            }
            assert!(started.elapsed() < 2 * LIMIT, "{status}");
        }
    }
}

#[test]
fn server_baseline_survives_a_kill_until_reset() {
    let folder = tempfile::tempdir().unwrap();
    let times = folder.path().join("site.model.times");
    let delay: Arc<AtomicU64> = Arc::default();
    let upstream = delaying(&delay);
    let mut watched = Watched::start(&upstream, folder.path());
    let usual = watched.late_from(|_| true);
    support::eventually_within(A_MINUTE, "the times of a minute later", || {
        fs::read_to_string(&times).is_ok_and(|kept| kept.ends_with(" /a\n"))
    });
    watched.web.process.0.kill().unwrap();
    watched.web.process.0.wait().unwrap();

    // The next one starts under a load, which lasts while its log is rotated.
    delay.store(150, Ordering::Relaxed);
    let watched = Watched::start(&upstream, folder.path());
    let under_load = watched.late_from(|_| true);
    watched.web.signal("-HUP");
    thread::sleep(Duration::from_secs(1));
    let rotated = watched.late_from(|_| true);
    assert!(under_load <= usual && rotated <= usual, "{usual}, {under_load}, {rotated}");
    watched.web.signal("-USR2");
    watched.late_from(|threshold| threshold > 300.0);
}

/// An upstream that answers after this many milliseconds.
fn delaying(delay: &Arc<AtomicU64>) -> String {
    let (listener, delay) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::clone(delay));
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, delay) = (BufReader::new(stream.unwrap()), Arc::clone(&delay));
            thread::spawn(move || {
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|count| count > 0) {
                    if line == "\r\n" {
                        thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
                        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        let _ = stream.get_mut().write_all(ok);
                    }
                    line.clear();
                }
            });
        }
    });
    format!("http://{address}")
}

#[test]
fn blocked_urls_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.model");
    let bars = folder.path().join("site.model.bars");
    let upstream = leading_elsewhere();
    let arguments = ["--model", path.to_str().unwrap()];
    let mut lengths = Vec::new();
    for page in ["/a", "/b", "/b"] {
        let mut web = Web::start(&upstream, &arguments);
        assert!(web.get(page).starts_with("HTTP/1.1 302 "));
        web.signal("-TERM");
        web.wait_for("stopped");
        assert!(web.process.0.wait().unwrap().success());
        lengths.push(fs::metadata(&bars).unwrap().len());
    }
    assert!(lengths[0] < lengths[1] && lengths[1] == lengths[2], "{lengths:?}");

    fs::write(&bars, "a shopping list").unwrap();
    let mut command = lull(&["web", "--listen", "127.0.0.1:0", "--upstream", &upstream]);
    let output = command.args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("site.model.bars"), "{said}");
}

/// An upstream whose pages all redirect.
fn leading_elsewhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|count| count > 0) && line != "\r\n" {
                line.clear();
            }
            let found = "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nConnection: close\r\n\
                         Content-Length: 0\r\n\r\n";
            let _ = stream.get_mut().write_all(found.as_bytes());
        }
    });
    format!("http://{address}")
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
