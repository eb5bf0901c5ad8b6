//! No promise is broken while origin and replicas are killed.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use lull_replication::checker::{self, Acknowledged, Body, Changes, Log, Name, Observation, check};
use lull_testing::{command, fuse, needs};
use serde_json::Value;

use super::site::{MountPoint, Site, TOKEN, request};
use super::support;

/// Δ of connected replicas and of others, in seconds.
const DELTAS: [&str; 4] = ["--delta", "1", "--delta-disconnected", "4"];
const BOUND: Duration = Duration::from_secs(4);
const NAMES: u64 = 6;
const LENGTH: Duration = Duration::from_secs(12);

/// A body that contains its number, with a size that follows from it.
fn bytes_of(number: u64) -> Vec<u8> {
    let mut bytes = format!("{number}\n").into_bytes();
    bytes.resize([40, 3_000, 30_000, 150_000][number as usize % 4], b'.');
    bytes
}

fn number_of(bytes: &[u8]) -> u64 {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap();
    let number = std::str::from_utf8(line).unwrap().parse().unwrap();
    assert!(bytes == bytes_of(number), "all of {number}");
    number
}

/// Pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

type Addresses = Mutex<BTreeMap<&'static str, String>>;

/// Writes one object after the other; returns the log and the acknowledged writes.
fn write(addresses: &Addresses, begun: Instant) -> (Vec<Changes>, Vec<Acknowledged>) {
    let (mut commits, mut acknowledged) = (Vec::<Changes>::new(), Vec::new());
    let (mut dice, mut made) = (Dice(1), 0);
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    while begun.elapsed() < LENGTH {
        made += 1;
        let name = dice.below(NAMES);
        let body = (dice.below(8) > 0).then_some(Body(made));
        let changes = Changes::from([(Name(name as u32), body)]);
        let origin = addresses.lock().unwrap()["origin"].clone();
        let (method, bytes) = match body {
            Some(_) => ("PUT", bytes_of(made)),
            None => ("DELETE", Vec::new()),
        };
        match request(&origin, method, &format!("/{name}"), &bearer, &bytes) {
            Some(answer) => {
                assert_eq!(answer.status, 200, "{answer:?}");
                commits.push(changes.clone());
                let position = answer.header("lull-sequence").unwrap().parse().unwrap();
                assert_eq!(position, commits.len() as u64, "{answer:?}");
                acknowledged.push(Acknowledged { position, changes, at: begun.elapsed() });
            }
            None => {
                // The next incarnation knows whether it was written.
                let last = loop {
                    thread::sleep(Duration::from_millis(20));
                    let now = addresses.lock().unwrap()["origin"].clone();
                    if let Some(answer) = request(&now, "GET", "/.lull/status", &bearer, b"") {
                        let status: Value = serde_json::from_slice(&answer.body).unwrap();
                        break status["sequence"].as_u64().unwrap();
                    }
                };
                if last == commits.len() as u64 + 1 {
                    commits.push(changes);
                }
                assert_eq!(last, commits.len() as u64, "nothing that was acknowledged is lost");
            }
        }
        thread::sleep(Duration::from_millis(dice.below(20)));
    }
    (commits, acknowledged)
}

/// Reads as one session that changes replicas.
fn read(addresses: &Addresses, begun: Instant, session: u64) -> Vec<checker::Read> {
    let (mut dice, mut token, mut reads) = (Dice(100 + session), String::new(), Vec::new());
    while begun.elapsed() < LENGTH {
        let replica = dice.below(2);
        let name = dice.below(NAMES);
        let address = addresses.lock().unwrap()[REPLICAS[replica as usize]].clone();
        let began = begun.elapsed();
        let answer = request(&address, "GET", &format!("/{name}"), &token, b"");
        let Some(answer) = answer.filter(|answer| [200, 404].contains(&answer.status)) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        token = format!("Lull-Session: {}\r\n", answer.header("lull-session").unwrap());
        let seen = match answer.status {
            200 => Observation::Body(Body(number_of(&answer.body))),
            _ => Observation::Absent,
        };
        let (ended, bound) = (begun.elapsed(), Some(BOUND));
        let seen = vec![(Name(name as u32), seen)];
        reads.push(checker::Read { session, replica, began, ended, bound, seen });
        thread::sleep(Duration::from_millis(dice.below(10)));
    }
    reads
}

/// Reads in a mount, as one session. A missing name is not counted: while its replica does not run, the
/// folder below the mount is visible.
fn read_mount(place: &str, begun: Instant, replica: u64, seed: u64) -> Vec<checker::Read> {
    let (mut dice, mut reads) = (Dice(1_000 + seed), Vec::new());
    while begun.elapsed() < LENGTH {
        let name = dice.below(NAMES);
        let began = begun.elapsed();
        let output = Command::new("cat").arg(format!("{place}/{name}")).output().unwrap();
        if output.status.success() {
            let seen =
                vec![(Name(name as u32), Observation::Body(Body(number_of(&output.stdout))))];
            let (session, ended, bound) = (100 + replica, begun.elapsed(), Some(BOUND));
            reads.push(checker::Read { session, replica, began, ended, bound, seen });
        }
        thread::sleep(Duration::from_millis(dice.below(10)));
    }
    reads
}

#[test]
fn promises_hold_while_each_process_is_killed() {
    judge(false);
}

#[test]
fn promises_hold_in_mounts_while_each_process_is_killed() {
    needs!(fuse(), command("cat"));
    judge(true);
}

const REPLICAS: [&str; 2] = ["paris", "london"];

fn judge(mounted: bool) {
    let common: Vec<&str> =
        DELTAS.iter().chain(&["--blocked", "error", "--patience", "0.3"]).copied().collect();
    let mut site = Site::new(&REPLICAS, &common);
    // Dropped before the site: nothing stays mounted in its folder.
    let names = REPLICAS.iter().filter(|_| mounted);
    let places: BTreeMap<&str, MountPoint> =
        names.map(|name| (*name, MountPoint::new(&site, &format!("{name}-files")))).collect();
    let arguments = |name: &str| -> Vec<&str> {
        let mount = places.get(name).map(|place| ["--mount", &*place.0]);
        common.iter().copied().chain(mount.into_iter().flatten()).collect()
    };
    for name in REPLICAS.iter().filter(|_| mounted) {
        site.replicas.remove(name);
        site.start_replica(name, &arguments(name));
    }
    let begun = Instant::now();
    let addresses = &Mutex::new(site.addresses.clone());
    let (commits, acknowledged, reads, kills) = thread::scope(|scope| {
        let writing = scope.spawn(move || write(addresses, begun));
        let reading: Vec<_> =
            (0..4).map(|session| scope.spawn(move || read(addresses, begun, session))).collect();
        let lookers = (0..4_u64).filter_map(|seed| {
            let replica = seed % 2;
            let place = &*places.get(REPLICAS[replica as usize])?.0;
            Some(scope.spawn(move || read_mount(place, begun, replica, seed)))
        });
        let looking: Vec<_> = lookers.collect();
        let (mut dice, mut kills) = (Dice(9), BTreeMap::new());
        while begun.elapsed() + Duration::from_secs(2) < LENGTH {
            thread::sleep(Duration::from_millis(200 + dice.below(600)));
            // A process is killed with -9 when it is dropped.
            let victim = ["paris", "london", "origin"][dice.below(3) as usize];
            *kills.entry(victim).or_insert(0) += 1;
            if victim == "origin" {
                site.origin = None;
                thread::sleep(Duration::from_millis(dice.below(200)));
                site.start_origin();
            } else {
                site.replicas.remove(victim);
                thread::sleep(Duration::from_millis(dice.below(200)));
                site.start_replica(victim, &arguments(victim));
            }
            *addresses.lock().unwrap() = site.addresses.clone();
        }
        let (commits, acknowledged) = writing.join().unwrap();
        let mut reads: Vec<_> = reading.into_iter().flat_map(|one| one.join().unwrap()).collect();
        let seen: Vec<_> = looking.into_iter().flat_map(|one| one.join().unwrap()).collect();
        assert!(!mounted || seen.len() > 50, "there was something to judge: {}", seen.len());
        println!("{} reads by HTTP, {} in mounts", reads.len(), seen.len());
        reads.extend(seen);
        (commits, acknowledged, reads, kills)
    });
    println!("{} writes, {} reads, kills {kills:?}", acknowledged.len(), reads.len());
    let violations = check(&Log::new(commits.clone()), &acknowledged, &reads);
    assert_eq!(violations, []);
    assert!(acknowledged.len() > 30 && reads.len() > 100, "there was something to judge");
    assert_eq!(kills.len(), 3, "each was killed: {kills:?}");
    // In the end all have everything.
    for name in ["paris", "london"] {
        support::eventually("all of it", || site.status(name)["sequence"] == commits.len() as u64);
    }
}
