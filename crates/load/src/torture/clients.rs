//! The writers and readers, each on a separate thread.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lull_sim::random::Random;
use serde_json::Value;

use super::daemon::Program;
use super::history::{
    FOLDER, Read, ReadContents, SINGLES, Skews, TOGETHER, UNKNOWN_BODY, Write, body, number_of,
    path_of,
};
use crate::http_client::{Answer, Client, PlannedRequest};
use crate::mounted::Root;
use lull_emulator::Host;

/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two reads of a reader, on average half of it: without it readers would keep the daemons from
/// running.
const BETWEEN_READS_US: u64 = 2_000;
/// Pause between two writes of a writer; half of it on average.
const BETWEEN_WRITES_MS: u64 = 120;
/// Between two publications.
const BETWEEN_PUBLICATIONS_MS: (u64, u64) = (200, 1_200);
/// Pause between two questions to a replica about its clock.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(500);
/// Longer than any publication that ends.
const PUBLICATION: Duration = Duration::from_secs(60);

/// The data that all share.
#[derive(Debug)]
pub(super) struct Shared {
    /// When the harness' clock began.
    pub(super) begun: Instant,
    pub(super) seed: u64,
    pub(super) stop: AtomicBool,
    /// The last number that was used for a body.
    pub(super) bodies: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) faults: AtomicU64,
}

impl Shared {
    pub(super) fn new(seed: u64) -> Self {
        Shared {
            begun: Instant::now(),
            seed,
            stop: AtomicBool::new(false),
            bodies: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// A number that no body has.
    fn number(&self) -> u64 {
        self.bodies.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn random(&self, client: u64) -> Random {
        // Machines have the lower numbers.
        Random::of_part(self.seed, 1_000 + client)
    }

    fn acknowledged(&self, writes: &mut Vec<Write>, write: Write) {
        writes.push(write);
        self.writes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes or deletes an object at the origin; none unless it was acknowledged.
pub(super) async fn write_one(
    shared: &Shared,
    origin: &mut Client,
    token: &str,
    object: u8,
    deleted: bool,
) -> Option<Write> {
    let number = (!deleted).then(|| shared.number());
    let bytes = number.map(body).unwrap_or_default();
    let path = format!("/{}", path_of(object));
    let method = if deleted { "DELETE" } else { "PUT" };
    let asked =
        PlannedRequest { method, path: &path, bearer: Some(token), session: None, body: &bytes };
    let answer = origin.ask(asked).await.filter(|answer| answer.status == 200)?;
    let (position, at) = (answer.sequence?, shared.now());
    Some(Write { position, changes: vec![(object, number)], at })
}

/// Writes objects one by one, by `PUT` and `DELETE`, at the origin that accepts that.
pub(super) async fn write(
    shared: &Shared,
    hosts: &[Host],
    port: u16,
    token: &str,
    client: u64,
) -> Vec<Write> {
    let mut random = shared.random(client);
    let mut origins: Vec<Client> = hosts.iter().map(|host| Client::new(host, port)).collect();
    let mut writes = Vec::new();
    while !shared.has_ended() {
        let object = random.below(u64::from(SINGLES)) as u8;
        let deleted = random.below(8) == 0;
        match write_one(shared, &mut origins[0], token, object, deleted).await {
            Some(write) => shared.acknowledged(&mut writes, write),
            None => {
                origins.rotate_left(1);
                tokio::time::sleep(PAUSE).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(random.below(BETWEEN_WRITES_MS))).await;
    }
    writes
}

/// Publishes a folder repeatedly, completely new each time, by `lull publish`.
pub(super) fn publish(
    shared: &Shared,
    program: &Program,
    origins: &[(Host, String)],
    folder: &Path,
    client: u64,
) -> io::Result<Vec<Write>> {
    let mut random = shared.random(client);
    let mut writes = Vec::new();
    let source = folder.to_string_lossy();
    let mut turns = origins.iter().cycle();
    let mut turn = turns.next();
    while let Some((host, origin)) = turn
        && !shared.has_ended()
    {
        let arguments = ["publish", &*source, "--origin", origin, "--into", FOLDER];
        let mut changes = Vec::new();
        for object in SINGLES..SINGLES + TOGETHER {
            let number = shared.number();
            let name = path_of(object);
            let name = name.rsplit('/').next().unwrap_or_default();
            fs::write(folder.join(name), body(number))?;
            changes.push((object, Some(number)));
        }
        let mut command = program.on(host, &arguments);
        let piped = std::process::Stdio::piped;
        let mut child = command.stdout(piped()).stderr(piped()).spawn()?;
        let begun = Instant::now();
        // It may wait for an origin that does not return while this ends.
        while child.try_wait()?.is_none() {
            if begun.elapsed() > PUBLICATION {
                child.kill()?;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let position = said.strip_prefix("state ").and_then(|said| said.split_once(':'));
        let position = position.and_then(|(position, _)| position.parse().ok());
        match position.filter(|_| output.status.success()) {
            Some(position) => {
                let at = shared.now();
                shared.acknowledged(&mut writes, Write { position, changes, at });
            }
            None => turn = turns.next(),
        }
        let (least, most) = BETWEEN_PUBLICATIONS_MS;
        thread::sleep(Duration::from_millis(least + random.below(most - least)));
    }
    Ok(writes)
}

fn seen(bytes: &[u8]) -> u64 {
    number_of(bytes).unwrap_or(UNKNOWN_BODY)
}

/// The observation in an answer; none if it has no information.
fn observation(answer: &Answer) -> Option<Option<u64>> {
    match answer.status {
        200 => Some(Some(seen(&answer.body))),
        404 => Some(None),
        _ => None,
    }
}

/// Reads by HTTP as a session that changes replicas.
pub(super) async fn read(shared: &Shared, hosts: &[Host], port: u16, session: u32) -> Vec<Read> {
    let mut random = shared.random(u64::from(session));
    let mut clients: Vec<Client> = hosts.iter().map(|host| Client::new(host, port)).collect();
    let mut token = None;
    let mut reads = Vec::new();
    let mut replica = random.below(clients.len() as u64) as usize;
    while !shared.has_ended() {
        if random.below(4) == 0 {
            replica = random.below(clients.len() as u64) as usize;
        }
        let object = random.below(u64::from(SINGLES + TOGETHER)) as u8;
        let pause = Duration::from_micros(random.below(BETWEEN_READS_US));
        let client = &mut clients[replica];
        match read_one(shared, client, session, replica as u8, object, &mut token).await {
            Some(read) => {
                reads.push(read);
                shared.reads.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(pause).await;
            }
            None => {
                // Like a user: another replica may answer.
                let others = clients.len() as u64 - 1;
                replica = (replica + 1 + random.below(others) as usize) % clients.len();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    reads
}

/// Reads an object, for a session that has seen the state in `token`; none if there is no answer.
pub(super) async fn read_one(
    shared: &Shared,
    client: &mut Client,
    session: u32,
    replica: u8,
    object: u8,
    token: &mut Option<String>,
) -> Option<Read> {
    let path = format!("/{}", path_of(object));
    let began = shared.now();
    let answer = client
        .ask(PlannedRequest { session: token.as_deref(), ..PlannedRequest::get(&path) })
        .await?;
    let ended = shared.now();
    let seen = ReadContents::One(object, observation(&answer)?);
    if answer.session.is_some() {
        *token = answer.session;
    }
    Some(Read { session, replica, began, ended, seen })
}

/// The status of a replica.
pub(super) async fn status(client: &mut Client) -> Option<Value> {
    let answer = client.ask(PlannedRequest::get("/.lull/status")).await?;
    serde_json::from_slice(&answer.body).ok()
}

/// Repeatedly asks replicas how far their wall clocks are from the origin's.
pub(super) async fn ask_for_skews(
    shared: &Shared,
    hosts: &[Host],
    port: u16,
    max_skew: Duration,
) -> Skews {
    let mut clients: Vec<Client> = hosts.iter().map(|host| Client::new(host, port)).collect();
    let mut skews = Skews::default();
    while !shared.has_ended() {
        for client in &mut clients {
            let Some(status) = status(client).await else { continue };
            let [least, most] = [0, 1].map(|at| status["skew_seconds"][at].as_f64());
            if let (Some(least), Some(most)) = (least, most) {
                skews.add(least, most, max_skew);
            }
        }
        tokio::time::sleep(BETWEEN_QUESTIONS).await;
    }
    skews
}

/// Torture's reads in a mount.
impl Root {
    /// The contents of a file; none if there is none.
    fn read(&self, name: &str) -> io::Result<Option<u64>> {
        match fs::read(self.path(name)) {
            Ok(bytes) => Ok(Some(seen(&bytes))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self) -> io::Result<ReadContents> {
        let mut there = 0;
        for entry in fs::read_dir(self.path(""))? {
            let name = entry?.file_name();
            there |= (0..SINGLES)
                .filter(|object| name.to_str() == Some(&*path_of(*object)))
                .fold(0_u32, |bits, object| bits | 1 << object);
        }
        Ok(ReadContents::Listing(there))
    }

    /// The files that are published together, in the last state that the mount lists.
    fn together(&self) -> io::Result<ReadContents> {
        let mut last = None;
        for entry in fs::read_dir(self.path(".lull"))? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix('@')?.parse::<u64>().ok());
            last = last.max(number);
        }
        let last = last.ok_or(ErrorKind::NotFound)?;
        let state = self.within(&format!(".lull/@{last}"))?;
        let mut bodies = [None; TOGETHER as usize];
        for (object, body) in (SINGLES..).zip(&mut bodies) {
            *body = state.read(&path_of(object))?;
        }
        Ok(ReadContents::Together(last, bodies))
    }
}

/// Reads an object in a mount.
pub(super) fn read_mount(
    shared: &Shared,
    folder: &Path,
    session: u32,
    replica: u8,
    object: u8,
) -> io::Result<Read> {
    let root = Root::open(folder)?;
    let began = shared.now();
    let seen = ReadContents::One(object, root.read(&path_of(object))?);
    Ok(Read { session, replica, began, ended: shared.now(), seen })
}

/// Reads in the mount of a replica: files, listings, and earlier states.
pub(super) fn read_mounts(
    shared: &Shared,
    folder: &Path,
    session: u32,
    replica: u8,
    client: u64,
) -> Vec<Read> {
    let mut random = shared.random(client);
    let mut root = None;
    let mut reads = Vec::new();
    while !shared.has_ended() {
        let (what, object) = (random.below(20), random.below(u64::from(SINGLES + TOGETHER)) as u8);
        let pause = Duration::from_micros(random.below(BETWEEN_READS_US));
        if root.is_none() {
            root = Root::open(folder).ok();
        }
        let Some(open) = &root else {
            thread::sleep(PAUSE);
            continue;
        };
        let began = shared.now();
        let seen = match what {
            0..=2 => open.list(),
            3 => open.together(),
            _ => open.read(&path_of(object)).map(|body| ReadContents::One(object, body)),
        };
        match seen {
            Ok(seen) => {
                let ended = shared.now();
                reads.push(Read { session, replica, began, ended, seen });
                shared.reads.fetch_add(1, Ordering::Relaxed);
                thread::sleep(pause);
            }
            Err(error) => {
                let lost = error.raw_os_error().map(nix::errno::Errno::from_raw);
                // The replica was killed: the next one has a new mount.
                if matches!(
                    lost,
                    Some(nix::errno::Errno::ENOTCONN | nix::errno::Errno::ECONNABORTED)
                ) {
                    root = None;
                }
                thread::sleep(PAUSE);
            }
        }
    }
    reads
}
