//! An origin and replicas as processes.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Lines, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lull_emulator::Host;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Kept, LULL, finish, lull};

/// The longest answer by HTTP.
const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const TOKEN: &str = "a token that is hard to guess";

/// The events of a daemon since the listener began.
type Events = Arc<Mutex<Vec<Value>>>;

/// A running daemon, and its events.
pub(crate) struct Daemon {
    pub(crate) process: Kept,
    pub(crate) told: Lines<BufReader<ChildStderr>>,
}

impl Daemon {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Daemon::spawn(lull(arguments))
    }

    /// The same by a command that runs it in another place.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut process = Kept::spawn(command.arg("--json").stderr(Stdio::piped()));
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

    /// Its events from now on must be read, and are kept.
    fn run(self, told: Events) -> Kept {
        let events = self.told.map_while(Result::ok);
        let events = events.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        thread::spawn(move || events.for_each(|event| told.lock().unwrap().push(event)));
        self.process
    }
}

/// An origin and replicas in a folder.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    /// The address of the origin for replicas.
    pub(crate) listen: String,
    pub(crate) origin: Option<Kept>,
    pub(crate) replicas: BTreeMap<&'static str, Kept>,
    /// The HTTP addresses, by name.
    pub(crate) addresses: BTreeMap<&'static str, String>,
    /// Their machines; a daemon without one runs on this machine.
    hosts: BTreeMap<&'static str, Host>,
    told: BTreeMap<&'static str, Events>,
}

impl Site {
    pub(crate) fn new(replicas: &[&'static str], arguments: &[&str]) -> Self {
        Site::with(replicas, arguments, &[])
    }

    /// With an origin that gets these additional arguments.
    pub(crate) fn with(replicas: &[&'static str], arguments: &[&str], of_origin: &[&str]) -> Self {
        Site::among(BTreeMap::new(), replicas, arguments, of_origin)
    }

    /// On machines of an emulated network, by daemon.
    pub(crate) fn among(
        hosts: BTreeMap<&'static str, Host>,
        replicas: &[&'static str],
        arguments: &[&str],
        of_origin: &[&str],
    ) -> Self {
        let address = hosts.get("origin").map_or("127.0.0.1".to_owned(), |it| it.v4().to_string());
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("token"), TOKEN).unwrap();
        let mut site = Site {
            folder,
            listen: format!("{address}:0"),
            origin: None,
            replicas: BTreeMap::new(),
            addresses: BTreeMap::new(),
            hosts,
            told: BTreeMap::new(),
        };
        finish(&mut lull(&["origin", "init", &site.path("origin")])).ok();
        site.start_origin_with(of_origin);
        for name in replicas {
            site.add_replica(name, arguments);
        }
        site
    }

    /// A further replica joins, and is started.
    pub(crate) fn add_replica(&mut self, name: &'static str, arguments: &[&str]) {
        self.add(name, &[], arguments);
    }

    /// The same for a replica that may serve others.
    pub(crate) fn add_relay(&mut self, name: &'static str, arguments: &[&str]) {
        self.add(name, &["--relay"], arguments);
    }

    fn add(&mut self, name: &'static str, of_ticket: &[&str], arguments: &[&str]) {
        let origin = self.path("origin");
        let ticket = ["origin", "ticket", &origin, name];
        let ticket = finish(lull(&ticket).args(of_ticket)).ok();
        let join = ["replica", "join", ticket.trim(), &self.path(name)];
        finish(&mut self.lull(name, &join)).ok();
        self.start_replica(name, arguments);
    }

    /// With one replica, `paris`, which shows its files in a folder.
    pub(crate) fn mounted(arguments: &[&str]) -> (Self, MountPoint) {
        let mut site = Site::new(&["paris"], &[]);
        let place = MountPoint::new(&site, "mount");
        drop(site.replicas.remove("paris"));
        site.start_replica("paris", &[&["--mount", &place.0][..], arguments].concat());
        (site, place)
    }

    /// `lull` on the machine of a daemon.
    fn lull(&self, name: &str, arguments: &[&str]) -> Command {
        let Some(host) = self.hosts.get(name) else { return lull(arguments) };
        let mut command = host.command(LULL);
        command.args(arguments).stdin(Stdio::null());
        command
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
        let mut daemon = Daemon::spawn(self.lull("origin", &all));
        self.listen = daemon.wait_for("listening")["address"].as_str().unwrap().to_owned();
        let http = daemon.wait_for("http")["address"].as_str().unwrap().to_owned();
        self.addresses.insert("origin", http);
        self.origin = Some(daemon.run(self.listening("origin")));
    }

    pub(crate) fn start_replica(&mut self, name: &'static str, arguments: &[&str]) {
        let folder = self.path(name);
        let always = ["replica", "run", &folder, "--http", "127.0.0.1:0"];
        let all: Vec<&str> = always.iter().chain(arguments).copied().collect();
        let mut daemon = Daemon::spawn(self.lull(name, &all));
        let http = daemon.wait_for("http")["address"].as_str().unwrap().to_owned();
        self.addresses.insert(name, http);
        let kept = daemon.run(self.listening(name));
        self.replicas.insert(name, kept);
    }

    fn listening(&mut self, name: &'static str) -> Events {
        let told = Events::default();
        self.told.insert(name, Arc::clone(&told));
        told
    }

    /// The events of one kind since a daemon was last started.
    pub(crate) fn told(&self, name: &str, event: &str) -> Vec<String> {
        let told = self.told[name].lock().unwrap();
        let told = told.iter().filter(|one| one["event"] == event);
        told.map(|one| one["text"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn publish(&self, source: &Path, arguments: &[&str]) -> String {
        let origin = self.path("origin");
        let source = source.to_str().unwrap();
        finish(lull(&["publish", source, "--origin", &origin]).args(arguments)).ok()
    }

    pub(crate) fn get(&self, name: &str, path: &str) -> Response {
        self.ask(name, "GET", path, "", b"")
    }

    /// One request to a daemon, from its machine.
    pub(crate) fn ask(
        &self,
        name: &str,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Response {
        let ask = || request(&self.addresses[name], method, path, headers, body).unwrap();
        match self.hosts.get(name) {
            Some(host) => host.enter(ask).unwrap(),
            None => ask(),
        }
    }

    /// Writes one object, with the token.
    pub(crate) fn put(&self, path: &str, body: &[u8]) -> Response {
        self.ask("origin", "PUT", path, &format!("Authorization: Bearer {TOKEN}\r\n"), body)
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        let text = finish(&mut lull(&["status", &self.path(name), "--json"])).ok();
        serde_json::from_str(&text).unwrap()
    }
}

/// Whether a place has the same files as a folder; another process checks that, because it can be ended.
pub(crate) fn is_as(place: &str, folder: &Path) -> bool {
    finish(Command::new("diff").arg("-r").arg(folder).arg(place)).status.success()
}

/// A separate disk for the folder of a daemon, until the test ends in any way: to be dropped before the site.
pub(crate) struct SmallDisk(String);

impl SmallDisk {
    /// Moves the contents of the folder to a disk of this many megabytes. It must not be in use meanwhile.
    pub(crate) fn under(site: &Site, name: &str, megabytes: u32) -> Self {
        let (folder, before) = (site.path(name), site.path(&format!("{name}-before")));
        fs::rename(&folder, &before).unwrap();
        fs::create_dir(&folder).unwrap();
        let size = format!("size={megabytes}m");
        finish(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "lull-test", &folder])).ok();
        let disk = SmallDisk(folder);
        finish(Command::new("cp").args(["-a", &format!("{before}/."), &disk.0])).ok();
        disk
    }

    /// Fills the remaining space.
    pub(crate) fn fill(&self) {
        let mut file = fs::File::create(format!("{}/filler", self.0)).unwrap();
        let full = loop {
            if let Err(error) = file.write_all(&[0; 4_096]) {
                break error.kind();
            }
        };
        assert_eq!(full, ErrorKind::StorageFull);
    }

    /// From now on it has this many megabytes.
    pub(crate) fn grow(&self, megabytes: u32) {
        let size = format!("remount,size={megabytes}m");
        finish(Command::new("mount").args(["-o", &size, &self.0])).ok();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", &self.0]).output();
    }
}

/// A folder with a mount, until the test ends in any way.
pub(crate) struct MountPoint(pub(crate) String);

impl MountPoint {
    pub(crate) fn new(site: &Site, name: &str) -> Self {
        let place = site.path(name);
        fs::create_dir(&place).unwrap();
        MountPoint(place)
    }

    /// The number of mounts there, by the kernel's table: access to them might block.
    pub(crate) fn mounted(&self) -> usize {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let of = format!(" {} ", self.0);
        table.lines().filter(|line| line.contains(&of) && line.contains("fuse.lull")).count()
    }
}

impl Drop for MountPoint {
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
