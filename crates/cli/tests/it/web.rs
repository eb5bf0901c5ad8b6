//! `lull web` as a process: it reports when it is ready, reloads, and ends on request.

use crate::support;
mod bodies;
mod config_file;
mod dashboards;
mod full_disk;
mod keeping;
mod sharing;
mod stalled;

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Kept, LULL, finish, lull};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// A listening proxy, and its events.
struct Web {
    process: Kept,
    told: Lines<BufReader<ChildStderr>>,
    /// Events that were read before they were awaited.
    earlier: Vec<Value>,
    port: u16,
}

impl Web {
    fn start(upstream: &str, arguments: &[&str]) -> Self {
        Web::by(&mut lull(&[]), upstream, arguments)
    }

    /// By a command that is `lull`, or runs it in another place.
    fn by(command: &mut Command, upstream: &str, arguments: &[&str]) -> Self {
        Web::on(command, upstream, &[&["--listen", "127.0.0.1:0"], arguments].concat())
    }

    /// The same with addresses in the arguments.
    fn on(command: &mut Command, upstream: &str, arguments: &[&str]) -> Self {
        command.args(["web", "--json", "--upstream", upstream]);
        let mut process = Kept::spawn(command.args(arguments).stderr(Stdio::piped()));
        let told = BufReader::new(process.0.stderr.take().unwrap()).lines();
        let mut web = Web { process, told, earlier: Vec::new(), port: 0 };
        let port = web.wait_for("listening")["port"].as_u64().unwrap();
        web.port = port.try_into().unwrap();
        web
    }

    /// The next event of that name.
    #[track_caller]
    fn wait_for(&mut self, name: &str) -> Value {
        if let Some(place) = self.earlier.iter().position(|event| event["event"] == name) {
            return self.earlier.remove(place);
        }
        for line in &mut self.told {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if event["event"] == name {
                return event;
            }
            self.earlier.push(event);
        }
        panic!("it ended and never told of '{name}'");
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    fn get(&self, path: &str) -> String {
        let mut stream = self.connect();
        ask(&mut stream, path);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Unawaited events until its end.
    fn rest(&mut self) -> Vec<Value> {
        let told = self.told.by_ref().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        self.earlier.extend(told);
        std::mem::take(&mut self.earlier)
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.process.pid()]).status().unwrap();
        assert!(status.success());
    }
}

fn ask(stream: &mut TcpStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
}

/// An upstream that answers `ok` after `pause`.
fn upstream(pause: Duration) -> String {
    upstream_that_tells(pause).0
}

/// The same, and it reports each request for `/`.
fn upstream_that_tells(pause: Duration) -> (String, Receiver<()>) {
    let (asked, tells) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let asked = asked.clone();
            thread::spawn(move || {
                let (mut line, mut is_visit) = (String::new(), false);
                while stream.read_line(&mut line).is_ok_and(|count| count > 0) {
                    // The proxy's own requests are no visits.
                    is_visit |= line.starts_with("GET / ");
                    if line == "\r\n" {
                        if std::mem::take(&mut is_visit) {
                            // The receiver may have gone.
                            let _ = asked.send(());
                        }
                        thread::sleep(pause);
                        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        let _ = stream.get_mut().write_all(ok);
                    }
                    line.clear();
                }
            });
        }
    });
    (format!("http://{address}"), tells)
}

#[test]
fn server_runs_until_it_is_asked_to_end() {
    let mut web = Web::start(&upstream(Duration::ZERO), &[]);
    let answer = web.get("/");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("ok"), "{answer}");
    web.signal("-TERM");
    assert_eq!(web.wait_for("stopped")["cut"], 0);
    assert!(web.process.0.wait().unwrap().success());
}

#[test]
fn open_requests_end_first_unless_a_second_signal_comes() {
    let (to, asked) = upstream_that_tells(Duration::from_millis(500));
    let mut web = Web::start(&to, &[]);
    let mut stream = web.connect();
    ask(&mut stream, "/");
    asked.recv_timeout(LIMIT).unwrap();
    web.signal("-INT");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("ok"), "{answer}");
    assert_eq!(web.wait_for("stopped")["cut"], 0);
    assert!(web.process.0.wait().unwrap().success());

    let (to, asked) = upstream_that_tells(LIMIT);
    let mut web = Web::start(&to, &[]);
    let mut stream = web.connect();
    ask(&mut stream, "/");
    asked.recv_timeout(LIMIT).unwrap();
    web.signal("-TERM");
    web.wait_for("draining");
    web.signal("-TERM");
    assert_eq!(web.wait_for("stopped")["cut"], 1);
    assert!(web.process.0.wait().unwrap().success());
}

#[test]
fn shutdown_wait_is_bounded() {
    let (to, asked) = upstream_that_tells(LIMIT);
    let mut web = Web::start(&to, &["--drain-timeout", "0.2"]);
    let mut stream = web.connect();
    ask(&mut stream, "/");
    asked.recv_timeout(LIMIT).unwrap();
    web.signal("-TERM");
    assert_eq!(web.wait_for("stopped")["cut"], 1);
    assert!(web.process.0.wait().unwrap().success());
}

#[test]
fn websocket_lasts_until_the_shutdown_bound() {
    const DRAIN: Duration = Duration::from_secs(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            stream.read_line(&mut head).unwrap();
        }
        let switches = b"HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
        stream.get_mut().write_all(switches).unwrap();
        let mut heard = [0; 5];
        while stream.read_exact(&mut heard).is_ok() {
            stream.get_mut().write_all(&heard).unwrap();
        }
    });
    let seconds = DRAIN.as_secs().to_string();
    // Its own requests would take the one connection.
    let arguments = ["--plain", "--drain-timeout", &seconds];
    let mut web = Web::start(&format!("http://{address}"), &arguments);
    let mut stream = BufReader::new(web.connect());
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.get_mut().write_all(upgrade.as_bytes()).unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let begun = Instant::now();
    web.signal("-TERM");
    web.wait_for("draining");
    stream.get_mut().write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    assert_eq!(stream.read(&mut heard).unwrap_or(0), 0);
    assert!(begun.elapsed() >= DRAIN, "it was cut after {:?}", begun.elapsed());
    assert_eq!(web.wait_for("stopped")["cut"], 1);
    assert!(web.process.0.wait().unwrap().success());
}

/// `lull`, started with a socket like by systemd.
fn with_socket(socket: &TcpListener) -> Command {
    let mut command = Command::new("sh");
    let script = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 0</dev/null";
    command.args(["-c", script, "sh", LULL]);
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(socket.try_clone().unwrap())));
    command
}

#[test]
fn passed_socket_accepts_across_a_restart() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let upstream = upstream(Duration::ZERO);
    // It opens no other socket, which the kernel would refuse.
    let listen = ["--listen", &address];
    let start = || Web::on(&mut with_socket(&socket), &upstream, &listen);
    let mut first = start();
    assert!(first.get("/one").contains("200 OK"));
    first.signal("-TERM");
    first.wait_for("stopped");
    // No process listens now.
    let mut waiting = first.connect();
    write!(waiting, "GET /two HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let _second = start();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn socket_without_a_listener_is_reported() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = with_socket(&socket);
    command.args(["web", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0"]);
    let address = socket.local_addr().unwrap().to_string();
    finish(&mut command).fails(1, &format!("name it by --listen {address}"));
}

#[test]
fn rotated_log_is_reopened_on_either_signal() {
    // The second is the signal for nginx.
    for signal in ["-HUP", "-USR1"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = ["--access-log", path.to_str().unwrap()];
        let mut web = Web::start(&upstream(Duration::ZERO), &log);
        web.get("/one");
        let rotated = folder.path().join("access.log.1");
        fs::rename(&path, &rotated).unwrap();
        web.signal(signal);
        support::eventually("the new file", || path.exists());
        web.get("/two");
        web.signal("-TERM");
        web.wait_for("stopped");
        let has = |path, line| fs::read_to_string(path).unwrap().contains(line);
        assert!(has(&rotated, "\"GET /one HTTP/1.1\" 200 2 "), "{signal}");
        assert!(has(&path, "\"GET /two HTTP/1.1\" 200 2 "), "{signal}");
    }
}

/// Clients that all went from one page to another, as a Common log.
fn log() -> String {
    log_of(6, ["/a", "/b"])
}

/// The same for other pages, at another hour.
fn log_of(hour: u32, pages: [&str; 2]) -> String {
    let line = |client: u32, second: u32, path: &str| {
        format!(
            "192.0.2.{client} - - [01/Aug/2026:{hour:02}:{client:02}:{second:02} +0000] \
             \"GET {path} HTTP/1.1\" 200 2\n"
        )
    };
    (1..40).map(|client| line(client, 0, pages[0]) + &line(client, 9, pages[1])).collect()
}

/// Requests hints like the script.
fn hints(web: &Web, page: &str) -> String {
    let message = format!(r#"{{"v":1,"page":"{page}","first":true,"cached":false}}"#);
    let mut stream = web.connect();
    write!(
        stream,
        "POST /.lull/hints HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         User-Agent: Mozilla/5.0 Chrome/156.0.0.0\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{message}",
        message.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until a page is hinted on another one, once the monitor knows the server's usual times.
#[track_caller]
fn until_hinted(web: &Web, on: &str, page: &str) {
    let (started, hint) = (Instant::now(), format!(r#""url":"{page}""#));
    while !hints(web, on).contains(&hint) {
        assert!(started.elapsed() < LIMIT, "there is never a hint");
        thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn learned_model_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("access.log"), log()).unwrap();
    let upstream = upstream(Duration::ZERO);
    let model = path("site.model");
    let arguments = ["--log", &path("access.log"), "--model", &model];
    let mut web = Web::start(&upstream, &arguments);
    support::eventually("a model", || fs::metadata(&model).is_ok());
    web.process.0.kill().unwrap();
    web.process.0.wait().unwrap();

    let again = [&arguments[..], &["--control-group-share", "0"]].concat();
    let mut web = Web::start(&upstream, &again);
    // The model has the whole log.
    assert_eq!(web.wait_for("learned")["requests"], 0);
    until_hinted(&web, "/a", "/b");
}

#[test]
fn custom_log_format_is_read_as_options_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let line = |visitor: u32, second: u32, page: &str| {
        let time = format!("[01/Aug/2026:06:{visitor:02}:{second:02} +0000]");
        format!("200 {time} seen=10.0.0.{visitor} \"GET {page} HTTP/1.1\"\n")
    };
    let visits = |visitor| line(visitor, 1, "/a") + &line(visitor, 9, "/b");
    fs::write(&path, (1..25).map(visits).collect::<String>()).unwrap();
    let format = "$status [$time_local] seen=$remote_addr \"$request\"";
    let arguments =
        ["--log", path.to_str().unwrap(), "--format", format, "--control-group-share", "0"];
    let mut web = Web::start(&upstream(Duration::ZERO), &arguments);
    assert_eq!(web.wait_for("learned")["requests"], 48);
    until_hinted(&web, "/a", "/b");
}

#[test]
fn site_is_served_while_the_log_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("log");
    // A read blocks until there is a writer.
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let upstream = upstream(Duration::ZERO);
    let arguments = ["--log", pipe.to_str().unwrap(), "--control-group-share", "0"];
    let mut web = Web::start(&upstream, &arguments);
    assert!(web.get("/").ends_with("ok"));
    assert!(hints(&web, "/a").contains(r#""hints":[],"wait":30.0"#));
    fs::write(&pipe, log()).unwrap();
    assert_eq!(web.wait_for("learned")["requests"], 78);
    until_hinted(&web, "/a", "/b");

    // The end comes also without a writer.
    let mut web = Web::start(&upstream, &arguments);
    web.signal("-TERM");
    web.wait_for("stopped");
    assert!(web.process.0.wait().unwrap().success());
}

#[test]
fn unreadable_model_is_set_aside_and_the_site_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("access.log"), log()).unwrap();
    let damaged = b"\x89LULLPPM\x02\0 and then nothing of use";
    fs::write(path("site.model"), damaged).unwrap();
    let arguments = ["--log", &path("access.log"), "--model", &path("site.model")];
    let mut web = Web::start(&upstream(Duration::ZERO), &arguments);
    assert!(web.get("/").ends_with("ok"));
    let why = web.wait_for("model-aside")["why"].as_str().unwrap().to_owned();
    assert!(why.contains("site.model.aside"), "{why}");
    assert_eq!(fs::read(path("site.model.aside")).unwrap(), damaged);
    web.wait_for("learned");
    support::eventually("a new model", || fs::metadata(path("site.model")).is_ok());

    // An invalid log is reported, too.
    fs::write(path("access.log"), "nothing\nof use\n").unwrap();
    let mut web = Web::start(&upstream(Duration::ZERO), &arguments[..2]);
    let told = web.wait_for("not-learned");
    assert!(told["why"].as_str().unwrap().contains("access.log"), "{told}");
    assert!(web.get("/").ends_with("ok"));
}

/// After a downgrade. The later version finds its model again.
#[test]
fn model_of_a_newer_version_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.model");
    let newer = b"\x89LULLPPM\xff\x7f and what a later version writes";
    fs::write(&path, newer).unwrap();
    let mut web = Web::start(&upstream(Duration::ZERO), &["--model", path.to_str().unwrap()]);
    assert!(web.get("/").ends_with("ok"));
    let why = web.wait_for("model-aside")["why"].as_str().unwrap().to_owned();
    assert!(why.contains("version 32767") && why.contains("site.model.aside"), "{why}");
    support::eventually("a new model", || fs::read(&path).is_ok_and(|new| new != newer));
    assert!(web.get("/").ends_with("ok"));
    assert_eq!(fs::read(folder.path().join("site.model.aside")).unwrap(), newer);
}

#[test]
fn dashboard_url_is_printed_with_a_generated_token() {
    let mut web = Web::start(&upstream(Duration::ZERO), &[]);
    let url = web.wait_for("figures")["url"].as_str().unwrap().to_owned();
    let path = url.strip_prefix(&format!("http://127.0.0.1:{}", web.port)).unwrap();
    assert!(path.starts_with("/.lull/?token="), "{url}");
    assert!(web.get(path).starts_with("HTTP/1.1 200 "));
    assert!(web.get("/.lull/").starts_with("HTTP/1.1 401 "));
    let other = Web::start(&upstream(Duration::ZERO), &[]);
    assert!(other.get(path).starts_with("HTTP/1.1 401 "));
}

#[test]
fn dashboard_on_public_address_needs_a_token() {
    let public = ["--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0"];
    let mut web = Web::on(&mut lull(&[]), &upstream(Duration::ZERO), &public);
    let told = web.wait_for("figures-off");
    assert!(told["address"].as_str().unwrap().starts_with("0.0.0.0:"), "{told}");
    assert!(told["text"].as_str().unwrap().contains("--token-file"), "{told}");
    for path in ["/.lull/", "/.lull/status", "/.lull/metrics", "/.lull/?token="] {
        assert!(web.get(path).starts_with("HTTP/1.1 404 "), "{path}");
    }
    web.signal("-TERM");
    assert!(web.rest().iter().all(|event| event["event"] != "figures"));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "0123456789abcdef").unwrap();
    let arguments = [&public[..], &["--token-file", file.to_str().unwrap()]].concat();
    let web = Web::on(&mut lull(&[]), &upstream(Duration::ZERO), &arguments);
    assert!(web.get("/.lull/").starts_with("HTTP/1.1 401 "));
    assert!(web.get("/.lull/?token=0123456789abcdef").starts_with("HTTP/1.1 200 "));
}

#[test]
fn plain_proxy_answers_no_request_itself() {
    let web = Web::start(&upstream(Duration::ZERO), &["--plain"]);
    assert!(web.get("/.lull/hints").ends_with("ok"));
    let web = Web::start(&upstream(Duration::ZERO), &[]);
    assert!(web.get("/.lull/hints").starts_with("HTTP/1.1 405 "));
}

#[test]
fn impossible_web_set_up_is_reported_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let there = "http://127.0.0.1:1";
    for (arguments, code, words) in [
        (&["--upstream", there][..], 2, "--listen"),
        (&["--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0"], 2, "http://HOST:PORT"),
        (&["--upstream", there, "--listen", &taken], 1, "cannot listen on"),
        (&["--upstream", there, "--listen", "https://127.0.0.1:0"], 1, "give --cert FILE"),
        (
            &["--upstream", there, "--listen", "127.0.0.1:0", "--cert", "/none", "--key", "/none"],
            1,
            "cannot read /none",
        ),
        (
            &["--upstream", there, "--listen", "127.0.0.1:0", "--plain", "--model", "x"],
            2,
            "--plain",
        ),
        (&["--upstream", there, "--listen", "127.0.0.1:0", "--probe", "a"], 2, "begin it with /"),
        (&["--upstream", there, "--listen", "127.0.0.1:0", "--model", "/dev/null"], 1, "/dev/null"),
        (&["--upstream", there, "--listen", "127.0.0.1:0", "--log", "/none"], 1, "/none"),
        (&["--upstream", there, "--listen", "127.0.0.1:0", "--token-file", "/none"], 1, "/none"),
        (
            &["--upstream", there, "--listen", "127.0.0.1:0", "--client-field", "client"],
            2,
            "--log LOG",
        ),
        (
            &["--upstream", there, "--listen", "127.0.0.1:0", "--control-group-share", "5"],
            2,
            "0.05",
        ),
        (
            &["--upstream", there, "--listen", "127.0.0.1:0", "--site", "https://a.example"],
            2,
            "HOST:PORT",
        ),
    ] {
        finish(lull(&["web"]).args(arguments)).fails(code, words);
    }
}
