//! Two `lull origin run --log …` processes share a log in a NATS server: one takes over when the other is killed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lull_replication::checker::{Changes, Log, check};
use lull_testing::nats::NatsServers;
use lull_testing::{bound, command, free_port, needs};
use serde_json::Value;
use tempfile::TempDir;

use crate::replicate::workload::{Addresses, EndOnDrop, Workload};
use crate::site::{Daemon, Response, TOKEN, request};
use crate::support::{Kept, eventually_within, finish, lull};

/// Δ of connected replicas and of others, in seconds.
const DELTAS: [&str; 4] = ["--delta", "1", "--delta-disconnected", "4"];
const BOUND: Duration = Duration::from_secs(4);
/// Without a bucket, origins share only bodies up to 16 kB.
const SIZES: [usize; 4] = [40, 700, 3_000, 16_000];
/// Until a process has started.
const START: Duration = Duration::from_secs(60);
const REPLICAS: [&str; 1] = ["paris"];

/// An origin that runs, stands by, or was killed.
struct Origin {
    folder: String,
    listen: String,
    http: String,
    process: Option<Kept>,
    told: Arc<Mutex<Vec<Value>>>,
}

/// Two origins, their server and a replica.
struct Pair {
    folder: TempDir,
    servers: NatsServers,
    /// The environment of the origins.
    environment: Vec<(&'static str, String)>,
    origins: [Origin; 2],
    replica: Option<(Kept, String)>,
}

/// A NATS server with TLS and a user, and the environment in which a client is accepted.
fn protected_server(folder: &TempDir) -> (NatsServers, Vec<(&'static str, String)>) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let [certificate, key] = ["nats.pem", "nats.key"].map(|name| folder.path().join(name));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let lines = format!(
        "authorization {{ user: u, password: p }}\ntls {{ cert_file: \"{}\", key_file: \"{}\" }}",
        certificate.display(),
        key.display()
    );
    let environment = vec![
        ("NATS_USER", "u".to_owned()),
        ("NATS_PASSWORD", "p".to_owned()),
        ("NATS_CA", certificate.display().to_string()),
    ];
    (NatsServers::single_with(&lines), environment)
}

impl Pair {
    /// The first origin writes, the second stands by, and a replica knows both.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (servers, environment) = protected_server(&folder);
        fs::write(folder.path().join("token"), TOKEN).unwrap();
        let origins = ["one", "two"].map(|name| Origin {
            folder: folder.path().join(name).to_str().unwrap().to_owned(),
            listen: format!("127.0.0.1:{}", free_port()),
            http: format!("127.0.0.1:{}", free_port()),
            process: None,
            told: Arc::default(),
        });
        let mut pair = Pair { folder, servers, environment, origins, replica: None };
        finish(&mut lull(&["origin", "init", &pair.origins[0].folder])).ok();
        pair.run(0);
        pair.until_told(0, "http");
        let name = |at: usize| format!("{}/identity.json", pair.origins[at].folder);
        fs::create_dir(&pair.origins[1].folder).unwrap();
        fs::copy(name(0), name(1)).unwrap();
        pair.run(1);
        pair.until_told(1, "standby");
        pair.start_replica();
        pair
    }

    fn run(&mut self, at: usize) {
        let log = self.servers.url().replace("nats://", "tls://") + "/pages";
        let token = self.folder.path().join("token");
        let origin = &mut self.origins[at];
        let arguments = ["origin", "run", &origin.folder, "--listen", &origin.listen, "--json"];
        let mut command = lull(&arguments);
        command.args(["--http", &origin.http, "--log", &log, "--token-file"]).arg(token);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut process = Kept::spawn(command.stderr(Stdio::piped()));
        origin.told = Arc::default();
        let told = Arc::clone(&origin.told);
        let lines = BufReader::new(process.0.stderr.take().unwrap()).lines();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                told.lock().unwrap().push(event);
            }
        });
        origin.process = Some(process);
    }

    /// Waits until an origin has reported an event since its start.
    #[track_caller]
    fn until_told(&self, at: usize, event: &str) {
        let told = &self.origins[at].told;
        let begun = Instant::now();
        while !told.lock().unwrap().iter().any(|one| one["event"] == event) {
            assert!(begun.elapsed() < START, "no {event} of {at}: {:?}", told.lock().unwrap());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn start_replica(&mut self) {
        let [one, two] = &self.origins;
        let both = format!("{},{}", one.listen, two.listen);
        let ticket = ["origin", "ticket", &one.folder, "paris", "--address", &both];
        let ticket = finish(&mut lull(&ticket)).ok();
        let folder = self.replica_folder();
        finish(&mut lull(&["replica", "join", ticket.trim(), &folder])).ok();
        let always = ["replica", "run", &folder, "--http", "127.0.0.1:0", "--blocked", "error"];
        let arguments = [&always[..], &["--patience", "0.3"], &DELTAS].concat();
        let mut daemon = Daemon::start(&arguments);
        let address = daemon.wait_for("http")["address"].as_str().unwrap().to_owned();
        let Daemon { process, told } = daemon;
        // Otherwise it waits for a reader of its events.
        thread::spawn(move || told.map_while(Result::ok).for_each(drop));
        self.replica = Some((process, address));
    }

    fn replica_folder(&self) -> String {
        self.folder.path().join("paris").to_str().unwrap().to_owned()
    }

    /// Where to write if this origin does, and where to read.
    fn addresses(&self, writer: usize) -> Addresses {
        let (_, replica) = self.replica.as_ref().unwrap();
        BTreeMap::from([("origin", self.origins[writer].http.clone()), ("paris", replica.clone())])
    }

    /// The answer of the replica for a session, once it is connected.
    fn read(&self, name: u64, session: &str) -> Response {
        let (_, address) = self.replica.as_ref().unwrap();
        let begun = Instant::now();
        loop {
            let answer = request(address, "GET", &format!("/{name}"), session, b"").unwrap();
            if answer.status != 503 {
                return answer;
            }
            assert!(begun.elapsed() < START, "{answer:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn status(folder: &str) -> Value {
        let text = finish(&mut lull(&["status", folder, "--json"])).ok();
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until a killed writer would be replaced: it knows the standby, and the standby knows that.
    fn until_replaceable(&self, writer: usize) {
        let standby = &self.origins[1 - writer].listen;
        let log = || Self::status(&self.origins[writer].folder)["log"].clone();
        eventually_within(START, "the writer knows the standby", || {
            log()["standbys"].as_array().unwrap().iter().any(|one| one == standby.as_str())
        });
        let known = log()["last"].as_u64().unwrap();
        eventually_within(START, "a later message", || log()["last"].as_u64() > Some(known));
    }

    /// Kills the writer, waits until the other one has taken over, and returns how long that took.
    fn fail_over(&mut self, writer: usize, workload: &Workload) -> Duration {
        self.until_replaceable(writer);
        let token = self.session();
        let before = Self::status(&self.replica_folder())["sequence"].as_u64().unwrap();
        let begun = Instant::now();
        // With SIGKILL, while a request is probably written.
        self.origins[writer].process = None;
        workload.set_addresses(self.addresses(1 - writer));
        self.until_told(1 - writer, "http");
        let took = begun.elapsed();
        eventually_within(START, "the replica has followed", || {
            Self::status(&self.replica_folder())["sequence"].as_u64() > Some(before + 3)
        });
        let answer = self.read(0, &token);
        assert!([200, 404].contains(&answer.status), "the token is still valid: {answer:?}");
        self.run(writer);
        self.until_told(writer, "standby");
        took
    }

    /// The header of a session that has read at the replica.
    fn session(&self) -> String {
        let answer = self.read(0, "");
        format!("Lull-Session: {}\r\n", answer.header("lull-session").unwrap())
    }
}

/// No acknowledged write is lost, no session goes back, and no read is staler than Δ.
#[test]
fn promises_hold_while_each_writer_of_a_log_is_killed() {
    needs!(command("nats-server"));
    let mut pair = Pair::start();
    let workload = &Workload::new(pair.addresses(0), &REPLICAS, SIZES, BOUND);
    let (commits, acknowledged, reads, took) = thread::scope(|scope| {
        let ends = EndOnDrop(workload);
        let writing = scope.spawn(|| workload.write());
        let reading = [0, 1].map(|session| scope.spawn(move || workload.read(session)));
        let took = [0, 1].map(|writer| pair.fail_over(writer, workload));
        drop(ends);
        let (commits, acknowledged) = writing.join().unwrap();
        let reads: Vec<_> = reading.into_iter().flat_map(|one| one.join().unwrap()).collect();
        (commits, acknowledged, reads, took)
    });
    println!("{} writes, {} reads, takeovers {took:.1?}", acknowledged.len(), reads.len());
    let violations = check(&Log::new(commits.clone()), &acknowledged, &reads);
    assert_eq!(violations, []);
    assert!(acknowledged.len() > 30 && reads.len() > 100, "there was something to judge");
    let longest = bound(Duration::from_secs(30), Duration::from_secs(10));
    assert!(took.iter().all(|took| *took < longest), "{took:?}");
    // In the end the replica has everything.
    let last = commits.len() as u64;
    eventually_within(START, "all of it", || {
        Pair::status(&pair.replica_folder())["sequence"] == last
    });
    let mut files = BTreeMap::new();
    commits.into_iter().for_each(|one: Changes| files.extend(one));
    for (name, body) in files {
        let answer = pair.read(u64::from(name.0), "");
        let found = match answer.status {
            200 => Some(workload.number_of(&answer.body)),
            _ => None,
        };
        assert_eq!(found, body.map(|body| body.0), "{name:?}: {answer:?}");
    }
}

/// The client for NATS logs each attempt; the operator gets one line.
#[test]
fn rejected_user_of_a_log_ends_the_origin_with_one_line() {
    needs!(command("nats-server"));
    let folder = tempfile::tempdir().unwrap();
    let servers = NatsServers::single_with("authorization { user: u, password: p }");
    let origin = folder.path().join("origin").to_str().unwrap().to_owned();
    finish(&mut lull(&["origin", "init", &origin])).ok();
    let log = servers.url() + "/pages";
    let mut command = lull(&["origin", "run", &origin, "--listen", "127.0.0.1:0", "--log", &log]);
    command.env("NATS_USER", "u").env("NATS_PASSWORD", "wrong");
    finish(&mut command).fails(1, "the servers reject the user: set NATS_USER and NATS_PASSWORD");
}
