//! A replica that was away for longer than the log reaches: it compares trees of hashes.

use std::sync::Arc;
use std::time::Duration;

use lull_replication::types::Sequence;
use lull_replication_daemon::daemon::{ReplicaEvent, ReplicaHandle};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::site::{LIMIT, Site, body, path, patient, runtime};

/// Commits that the log keeps.
const LOG: usize = 4;
/// Commits while the replica is away.
const AWAY: u8 = 20;
/// Files of each kind.
const LARGE: usize = 20;
const SMALL: usize = 300;
const SIZE: usize = 100_000;

/// A connection to the origin that can be cut.
struct Gate {
    address: String,
    open: Arc<watch::Sender<bool>>,
}

impl Gate {
    async fn to(origin: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let open = Arc::new(watch::Sender::new(true));
        let (told, origin) = (Arc::clone(&open), origin.to_owned());
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut open = told.subscribe();
                if !*open.borrow() {
                    continue;
                }
                let Ok(mut far) = TcpStream::connect(&origin).await else { continue };
                tokio::spawn(async move {
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = open.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Gate { address, open }
    }
}

/// One session, which reads two files in turn until it is stopped; returns the numbers that it has seen in
/// them.
fn session(replica: ReplicaHandle, end: watch::Receiver<bool>) -> JoinHandle<Vec<u8>> {
    tokio::spawn(async move {
        let mut seen = Vec::new();
        while !*end.borrow() {
            for name in ["first", "second"].map(path) {
                let reading = replica.object(&name, Sequence::ZERO, Some(LIMIT));
                let (_, found) = reading.await.expect("an answer");
                let piece = found.expect("it is there").piece(0).await.expect("a disk");
                // It may have been overwritten since, twice.
                seen.extend(piece.map(|bytes| bytes[0]));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        seen
    })
}

#[test]
fn replica_behind_the_log_gets_differences_and_never_regresses() {
    runtime().block_on(async {
        let mut site = Site::with_log(LOG).await;
        let gate = Gate::to(site.address()).await;
        site.add_replica_by(&gate.address).await;
        let large = |number: usize| (format!("large/{number}"), body(number as u8, SIZE));
        let small = |number: usize| (format!("small/{number}"), number.to_string().into_bytes());
        let mut files: Vec<(String, Vec<u8>)> = (0..LARGE).map(large).collect();
        files.extend((0..SMALL).map(small));
        files.extend(["first", "second"].map(|name| (name.to_owned(), vec![0])));
        let all: Vec<(&str, Option<&[u8]>)> =
            files.iter().map(|(name, bytes)| (&**name, Some(&**bytes))).collect();
        let begun = site.write(&all).await;
        site.reach(begun).await;
        let count = all.len() as u64;
        patient("the bodies", || site.replica(0).status().valid_objects == count).await;

        let (end, ends) = watch::channel(false);
        let reading = session(site.replica(0).clone(), ends);
        gate.open.send_replace(false);
        site.told(0, |event| matches!(event, ReplicaEvent::Disconnected { .. })).await;
        let changed: Vec<_> = (0..3).map(|number| body(100 + number, SIZE)).collect();
        let mut last = begun;
        for number in 1..=AWAY {
            let count = [number];
            let mut files = vec![("first", Some(&count[..])), ("second", Some(&count[..]))];
            match number {
                2 => files.push(("small/7", None)),
                3..6 => {
                    let name = ["large/3", "large/4", "large/5"][usize::from(number) - 3];
                    files.push((name, Some(&changed[usize::from(number) - 3])));
                }
                6 => files.push(("new", Some(b"new"))),
                _ => {}
            }
            last = site.write(&files).await;
        }
        let gone = site.origin().rollback(begun).await;
        assert!(gone.is_err(), "the log still knows what the replica had: {gone:?}");
        assert_eq!(site.read(0, "first").await, Some(vec![0]), "it is away");

        let received = || {
            let status = site.replica(0).status();
            status.demand_bytes + status.speculative_bytes
        };
        let told = || site.origin().status().replicas[0].control_bytes;
        let before = (received(), told());
        gate.open.send_replace(true);
        site.reach(last).await;
        // Bodies that are read before they are pushed come both ways.
        let valid = || site.replica(0).status().valid_objects;
        patient("the new bodies", || valid() == count).await;
        for (number, bytes) in changed.iter().enumerate() {
            let name = format!("large/{}", number + 3);
            assert_eq!(site.read(0, &name).await.as_ref(), Some(bytes), "{name}");
        }
        assert_eq!(site.read(0, "small/7").await, None);
        assert_eq!(site.read(0, "new").await.as_deref(), Some(&b"new"[..]));
        assert_eq!(site.read(0, "first").await, Some(vec![AWAY]));
        for (name, bytes) in &files {
            let is_same =
                !["first", "second", "small/7", "large/3", "large/4", "large/5"].contains(&&**name);
            if is_same {
                assert_eq!(site.read(0, name).await.as_ref(), Some(bytes), "{name}");
            }
        }
        // Three files have another body, and the other new ones have a few bytes.
        let bodies = received() - before.0;
        let differences = 3 * SIZE as u64;
        let range = differences..differences + 1_000;
        assert!(range.contains(&bodies), "{bodies} bytes of bodies, of {}", LARGE * SIZE);
        // A message with all files takes 20 kB at least; one with the leaves that differ, far less.
        let hashes = told() - before.1;
        assert!(hashes < 60_000, "{hashes} bytes of hashes and names");

        end.send_replace(true);
        let seen = reading.await.expect("no panic");
        assert!(seen.is_sorted(), "it went back: {seen:?}");
        assert_eq!((seen.first(), seen.last()), (Some(&0), Some(&AWAY)));
        // A tree has only the last state.
        assert!(seen.iter().all(|number| [0, AWAY].contains(number)), "{seen:?}");
        site.stop().await;
    });
}
