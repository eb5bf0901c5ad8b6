//! An origin and replicas as processes.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Kept, finish, lull};

/// No answer of HTTP takes longer.
const LIMIT: Duration = Duration::from_secs(30);
pub(crate) const TOKEN: &str = "a token that nobody guesses";

/// A daemon that runs, and what it tells.
pub(crate) struct Daemon {
    pub(crate) process: Kept,
    pub(crate) told: Lines<BufReader<ChildStderr>>,
}

impl Daemon {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut process = Kept::spawn(lull(arguments).arg("--json").stderr(Stdio::piped()));
        let told = BufReader::new(process.0.stderr.take().unwrap()).lines();
        Daemon { process, told }
    }

    /// The next event of that name.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, name: &str) -> Value {
        let mut all = Vec::new();
        for line in &mut self.told {
            let line = line.unwrap();
            match serde_json::from_str::<Value>(&line) {
                Ok(event) if event["event"] == name => return event,
                _ => all.push(line),
            }
        }
        panic!("it ended and never told of '{name}': {all:?}");
    }

    /// What it tells from now on is of no interest, but has to be taken.
    pub(crate) fn run(self) -> Kept {
        let told = self.told;
        thread::spawn(move || told.for_each(drop));
        self.process
    }
}

/// An origin and replicas in a folder.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    /// Where replicas find the origin.
    pub(crate) listen: String,
    pub(crate) origin: Option<Kept>,
    pub(crate) replicas: BTreeMap<&'static str, Kept>,
    /// Where HTTP is spoken, by name.
    pub(crate) addresses: BTreeMap<&'static str, String>,
}

impl Site {
    pub(crate) fn new(replicas: &[&'static str], arguments: &[&str]) -> Self {
        Site::with(replicas, arguments, &[])
    }

    /// With an origin that is started with more arguments as well.
    pub(crate) fn with(replicas: &[&'static str], arguments: &[&str], of_origin: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("token"), TOKEN).unwrap();
        let mut site = Site {
            folder,
            listen: "127.0.0.1:0".to_owned(),
            origin: None,
            replicas: BTreeMap::new(),
            addresses: BTreeMap::new(),
        };
        finish(&mut lull(&["origin", "init", &site.path("origin")])).ok();
        site.start_origin_with(of_origin);
        for name in replicas {
            let ticket = finish(&mut lull(&["origin", "ticket", &site.path("origin"), name])).ok();
            finish(&mut lull(&["replica", "join", ticket.trim(), &site.path(name)])).ok();
            site.start_replica(name, arguments);
        }
        site
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn start_origin(&mut self) {
        self.start_origin_with(&[]);
    }

    pub(crate) fn start_origin_with(&mut self, arguments: &[&str]) {
        let (folder, token) = (self.path("origin"), self.path("token"));
        let always = [
            "origin",
            "run",
            &folder,
            "--listen",
            &self.listen,
            "--http",
            "127.0.0.1:0",
            "--token-file",
            &token,
        ];
        let all: Vec<&str> = always.iter().chain(arguments).copied().collect();
        let mut daemon = Daemon::start(&all);
        self.listen = daemon.wait_for("listening")["address"].as_str().unwrap().to_owned();
        let http = daemon.wait_for("http")["address"].as_str().unwrap().to_owned();
        self.addresses.insert("origin", http);
        self.origin = Some(daemon.run());
    }

    pub(crate) fn start_replica(&mut self, name: &'static str, arguments: &[&str]) {
        let folder = self.path(name);
        let always = ["replica", "run", &folder, "--http", "127.0.0.1:0"];
        let all: Vec<&str> = always.iter().chain(arguments).copied().collect();
        let mut daemon = Daemon::start(&all);
        let http = daemon.wait_for("http")["address"].as_str().unwrap().to_owned();
        self.addresses.insert(name, http);
        self.replicas.insert(name, daemon.run());
    }

    pub(crate) fn publish(&self, source: &Path, arguments: &[&str]) -> String {
        let origin = self.path("origin");
        let source = source.to_str().unwrap();
        finish(lull(&["publish", source, "--origin", &origin]).args(arguments)).ok()
    }

    pub(crate) fn get(&self, name: &str, path: &str) -> Response {
        request(&self.addresses[name], "GET", path, "", b"").unwrap()
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        let text = finish(&mut lull(&["status", &self.path(name), "--json"])).ok();
        serde_json::from_str(&text).unwrap()
    }
}

/// A folder in which something is mounted, until the end of the test whatever its end.
pub(crate) struct Place(pub(crate) String);

impl Place {
    pub(crate) fn new(site: &Site, name: &str) -> Self {
        let place = site.path(name);
        fs::create_dir(&place).unwrap();
        Place(place)
    }

    /// What is mounted there, as the kernel's table says it: looking there might wait.
    pub(crate) fn mounted(&self) -> usize {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let of = format!(" {} ", self.0);
        table.lines().filter(|line| line.contains(&of) && line.contains("fuse.lull")).count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted() > 0 {
            let _ = Command::new("umount").args(["--lazy", &self.0]).output();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// One request; none if the connection fails before the answer is complete.
pub(crate) fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Option<Response> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: lull\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8(answer[..end].to_vec()).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let response = Response { status, head, body: answer[end + 4..].to_vec() };
    let length = response.header("content-length").and_then(|length| length.parse().ok());
    let whole =
        method == "HEAD" || length.is_none_or(|length: usize| length == response.body.len());
    whole.then_some(response)
}
