//! Reads while everything crashes, judged by the checker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lull_replication::checker::{Acknowledged, Body, Changes, Log, Name, Observation, Read, check};
use lull_replication::origin::{Put, Transaction};
use lull_replication::replica::Staleness;
use lull_replication::types::{Metadata, Sequence};
use lull_replication_daemon::daemon::{OriginHandle, ReplicaHandle, WriteError};

use super::site::{Site, path, runtime};

const NAMES: u32 = 6;
const SESSIONS: u64 = 4;
/// Δ, of connected replicas and of others; the larger one is guaranteed.
const CONNECTED: Duration = Duration::from_millis(500);
const DISCONNECTED: Duration = Duration::from_millis(2_500);
const LENGTH: Duration = Duration::from_secs(8);

/// A body that contains its number, with a size that follows from it: in the log, in a file, in pieces.
fn bytes_of(body: Body) -> Vec<u8> {
    let mut bytes = format!("{}\n", body.0).into_bytes();
    bytes.resize([40, 3_000, 30_000, 150_000][body.0 as usize % 4], b'.');
    bytes
}

fn body_of(bytes: &[u8]) -> Body {
    let line = bytes.split(|byte| *byte == b'\n').next().expect("a line");
    let body = Body(std::str::from_utf8(line).expect("digits").parse().expect("a number"));
    assert_eq!(bytes, bytes_of(body), "all of it");
    body
}

/// Pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// The present handles: other ones after each crash.
struct Here {
    origin: OriginHandle,
    replicas: Vec<ReplicaHandle>,
}

type Shared = Arc<Mutex<Here>>;

/// Writes one transaction after the other; returns the log and the acknowledged writes.
async fn write(here: Shared, begun: Instant) -> (Vec<Changes>, Vec<Acknowledged>) {
    let (mut commits, mut acknowledged) = (Vec::<Changes>::new(), Vec::new());
    let (mut dice, mut made) = (Dice(1), 0);
    while begun.elapsed() < LENGTH {
        let mut changes = Changes::new();
        for _ in 0..=dice.below(2) {
            made += 1;
            let body = (dice.below(8) > 0).then_some(Body(made));
            changes.insert(Name(dice.below(u64::from(NAMES)) as u32), body);
        }
        let origin = here.lock().expect("no panic").origin.clone();
        let put = |body: &Option<Body>| match body {
            None => Put::Delete,
            Some(body) => {
                let mut stager = origin.bodies().stage();
                stager.write(&bytes_of(*body)).expect("a disk").expect("room");
                Put::Body(stager.finish().expect("a disk").expect("room"), Metadata::default())
            }
        };
        let named = changes.iter().map(|(name, body)| (path(&name.0.to_string()), put(body)));
        match origin.write(Transaction { changes: named.collect() }).await {
            Ok(sequence) => {
                commits.push(changes.clone());
                assert_eq!(sequence.0, commits.len() as u64);
                let at = begun.elapsed();
                acknowledged.push(Acknowledged { position: sequence.0, changes, at });
            }
            Err(WriteError::Stopped) => {
                // The next incarnation knows whether it was written.
                let last = loop {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    let now = here.lock().expect("no panic").origin.clone();
                    if !now.is_stopped() {
                        break now.last();
                    }
                };
                if last.0 == commits.len() as u64 + 1 {
                    commits.push(changes);
                }
                assert_eq!(last.0, commits.len() as u64);
            }
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(dice.below(8))).await;
    }
    (commits, acknowledged)
}

/// Reads as one session that changes replicas.
async fn read(here: Shared, begun: Instant, session: u64) -> Vec<Read> {
    let (mut dice, mut after, mut reads) = (Dice(100 + session), Sequence::ZERO, Vec::new());
    'reads: while begun.elapsed() < LENGTH {
        let replica = dice.below(2);
        let name = Name(dice.below(u64::from(NAMES)) as u32);
        let handle = here.lock().expect("no panic").replicas[replica as usize].clone();
        let began = begun.elapsed();
        let patience = Some(Duration::from_millis(100));
        let answer = handle.object(&path(&name.0.to_string()), after, patience).await;
        let Ok((at, found)) = answer else {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        };
        let seen = match found {
            None => Observation::Absent,
            Some(found) => {
                let mut bytes = Vec::new();
                while bytes.len() < found.version.content.size.0 as usize {
                    let number = bytes.len().div_ceil(lull_replication::wire::PIECE) as u32;
                    // The replica may have crashed since its answer.
                    let Ok(piece) = found.piece(number).await else { continue 'reads };
                    bytes.extend(piece.expect("within the time of grace"));
                }
                Observation::Body(body_of(&bytes))
            }
        };
        after = after.max(at);
        reads.push(Read {
            session,
            replica,
            began,
            ended: begun.elapsed(),
            bound: Some(DISCONNECTED),
            seen: vec![(name, seen)],
        });
        tokio::time::sleep(Duration::from_millis(dice.below(4))).await;
    }
    reads
}

#[test]
fn guarantees_hold_while_origin_and_replicas_crash() {
    runtime().block_on(async {
        let staleness = Staleness {
            connected: CONNECTED,
            disconnected: Some(DISCONNECTED),
            ..Staleness::default()
        };
        let mut site = Site::with(2, |config| {
            config.staleness = staleness;
            config.ping = Duration::from_millis(100);
        })
        .await;
        let begun = Instant::now();
        let replicas = (0..2).map(|number| site.replica(number).clone()).collect();
        let here = Arc::new(Mutex::new(Here { origin: site.origin().clone(), replicas }));
        let writing = tokio::spawn(write(Arc::clone(&here), begun));
        let reading: Vec<_> = (0..SESSIONS)
            .map(|session| tokio::spawn(read(Arc::clone(&here), begun, session)))
            .collect();
        let (mut dice, mut crashes) = (Dice(9), BTreeMap::new());
        while begun.elapsed() + Duration::from_millis(800) < LENGTH {
            tokio::time::sleep(Duration::from_millis(100 + dice.below(300))).await;
            let victim = dice.below(3) as usize;
            *crashes.entry(victim).or_insert(0) += 1;
            match victim {
                2 => {
                    site.crash_origin();
                    tokio::time::sleep(Duration::from_millis(dice.below(150))).await;
                    site.start_origin().await;
                    here.lock().expect("no panic").origin = site.origin().clone();
                }
                number => {
                    site.crash_replica(number);
                    tokio::time::sleep(Duration::from_millis(dice.below(150))).await;
                    site.start_replica(number).await;
                    here.lock().expect("no panic").replicas[number] = site.replica(number).clone();
                }
            }
        }
        let (commits, acknowledged) = writing.await.expect("no panic");
        let mut reads = Vec::new();
        for session in reading {
            reads.extend(session.await.expect("no panic"));
        }
        // In the end all have everything.
        site.reach(Sequence(commits.len() as u64)).await;
        let violations = check(&Log::new(commits.clone()), &acknowledged, &reads);
        assert_eq!(violations, []);
        println!("{} writes, {} reads, crashes {crashes:?}", commits.len(), reads.len());
        assert!(acknowledged.len() > 50 && reads.len() > 200, "there was something to judge");
        site.stop().await;
    });
}
