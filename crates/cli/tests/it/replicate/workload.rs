//! Writes and reads of a test that kills processes, as the checker takes them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lull_replication::checker::{self, Acknowledged, Body, Changes, Name, Observation};
use serde_json::Value;

use crate::site::{TOKEN, request};

/// The objects are named by numbers below this one.
pub(crate) const NAMES: u64 = 6;
/// The longest time until the next incarnation of the origin answers.
const RECOVERY: Duration = Duration::from_secs(60);

/// Pseudo-random numbers.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// The HTTP addresses, by daemon.
pub(crate) type Addresses = BTreeMap<&'static str, String>;

/// A run of writes to `origin` and reads from replicas, until it is ended.
pub(crate) struct Workload {
    addresses: Mutex<Addresses>,
    replicas: &'static [&'static str],
    /// The sizes of bodies.
    sizes: [usize; 4],
    /// Δ of a replica without a connection.
    bound: Duration,
    pub(crate) begun: Instant,
    has_ended: AtomicBool,
}

impl Workload {
    pub(crate) fn new(
        addresses: Addresses,
        replicas: &'static [&'static str],
        sizes: [usize; 4],
        bound: Duration,
    ) -> Self {
        let (addresses, begun) = (Mutex::new(addresses), Instant::now());
        Workload { addresses, replicas, sizes, bound, begun, has_ended: AtomicBool::new(false) }
    }

    /// Processes have other addresses from now on.
    pub(crate) fn set_addresses(&self, addresses: Addresses) {
        *self.addresses.lock().unwrap() = addresses;
    }

    fn address(&self, name: &str) -> String {
        self.addresses.lock().unwrap()[name].clone()
    }

    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// A body that contains its number, with a size that follows from it.
    pub(crate) fn bytes_of(&self, number: u64) -> Vec<u8> {
        let mut bytes = format!("{number}\n").into_bytes();
        bytes.resize(self.sizes[number as usize % 4], b'.');
        bytes
    }

    pub(crate) fn number_of(&self, bytes: &[u8]) -> u64 {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap();
        let number = std::str::from_utf8(line).unwrap().parse().unwrap();
        assert!(bytes == self.bytes_of(number), "all of {number}");
        number
    }

    /// What was seen between `began` and now.
    pub(crate) fn seen(
        &self,
        session: u64,
        replica: u64,
        began: Duration,
        seen: (u64, Observation),
    ) -> checker::Read {
        let (ended, bound) = (self.begun.elapsed(), Some(self.bound));
        let seen = vec![(Name(seen.0 as u32), seen.1)];
        checker::Read { session, replica, began, ended, bound, seen }
    }

    /// Writes one object after the other; returns the log and the acknowledged writes.
    pub(crate) fn write(&self) -> (Vec<Changes>, Vec<Acknowledged>) {
        let (mut commits, mut acknowledged) = (Vec::<Changes>::new(), Vec::new());
        let (mut dice, mut made) = (Dice(1), 0);
        let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
        while !self.has_ended() {
            made += 1;
            let name = dice.below(NAMES);
            let body = (dice.below(8) > 0).then_some(Body(made));
            let changes = Changes::from([(Name(name as u32), body)]);
            let (method, bytes) = match body {
                Some(_) => ("PUT", self.bytes_of(made)),
                None => ("DELETE", Vec::new()),
            };
            match request(&self.address("origin"), method, &format!("/{name}"), &bearer, &bytes) {
                Some(answer) => {
                    assert_eq!(answer.status, 200, "{answer:?}");
                    commits.push(changes.clone());
                    let position = answer.header("lull-sequence").unwrap().parse().unwrap();
                    assert_eq!(position, commits.len() as u64, "{answer:?}");
                    let at = self.begun.elapsed();
                    acknowledged.push(Acknowledged { position, changes, at });
                }
                None => {
                    // The next incarnation knows whether it was written.
                    let last = self.last_state(&bearer);
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

    /// The last state of the origin, once it answers.
    fn last_state(&self, bearer: &str) -> u64 {
        let begun = Instant::now();
        loop {
            thread::sleep(Duration::from_millis(20));
            let found = request(&self.address("origin"), "GET", "/.lull/status", bearer, b"");
            if let Some(answer) = found {
                let status: Value = serde_json::from_slice(&answer.body).unwrap();
                return status["sequence"].as_u64().unwrap();
            }
            assert!(begun.elapsed() < RECOVERY, "no origin answers");
        }
    }

    /// Reads as one session that changes replicas.
    pub(crate) fn read(&self, session: u64) -> Vec<checker::Read> {
        let (mut dice, mut token, mut reads) = (Dice(100 + session), String::new(), Vec::new());
        while !self.has_ended() {
            let replica = dice.below(self.replicas.len() as u64);
            let name = dice.below(NAMES);
            let address = self.address(self.replicas[replica as usize]);
            let began = self.begun.elapsed();
            let answer = request(&address, "GET", &format!("/{name}"), &token, b"");
            let Some(answer) = answer.filter(|answer| [200, 404].contains(&answer.status)) else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            token = format!("Lull-Session: {}\r\n", answer.header("lull-session").unwrap());
            let seen = match answer.status {
                200 => Observation::Body(Body(self.number_of(&answer.body))),
                _ => Observation::Absent,
            };
            reads.push(self.seen(session, replica, began, (name, seen)));
            thread::sleep(Duration::from_millis(dice.below(10)));
        }
        reads
    }
}

/// Ends a run, also if the test fails: otherwise its threads would not end.
pub(crate) struct EndOnDrop<'a>(pub(crate) &'a Workload);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
