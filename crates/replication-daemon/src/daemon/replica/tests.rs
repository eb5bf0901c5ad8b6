//! The results of a replica whose state machine fails, and of one at the end of a slow line.

mod forged;

use core::time::Duration;
use std::net::SocketAddr;

use lull_replication::Path;
use lull_replication::merkle::leaf_of;
use lull_replication::origin::{Put, Strategy, Transaction};
use lull_replication::path::MAX_PATH_BYTES;
use lull_replication::replica::{ReadTarget, Request};
use lull_replication::types::Metadata;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::*;
use crate::daemon::link::soon;
use crate::daemon::testing::origin_and_replica;
use crate::daemon::{MachineClock, OriginDaemon, OriginOptions, create_origin, join};

#[tokio::test(flavor = "multi_thread")]
async fn panicking_call_ends_the_replica_and_its_waiting_reads() {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let (origin, daemon) = origin_and_replica(folder.path(), "replica", &clock).await;
    let replica = daemon.handle();
    let path = Path::new("a").unwrap();
    // A state that does not arrive.
    let request = Request { target: ReadTarget::Object(path), after: Sequence(9) };
    let mut waits = replica.begin(request.clone()).unwrap();
    let shared = Arc::clone(&replica.0);
    let call = move || shared.with(|core, _| assert!(core.closed, "on purpose"));
    assert!(std::thread::spawn(call).join().is_err());
    let answer = soon(async { Ok(waits.answer().await) }).await.unwrap();
    assert_eq!(answer, Err(ReadError::Stopped));
    assert_eq!(replica.read(request, None).await, Err(ReadError::Stopped));
    soon(async {
        daemon.failed().await;
        Ok(())
    })
    .await
    .unwrap();
    let ended = daemon.stop().await;
    assert!(matches!(ended, Err(DaemonError::Panicked)), "{ended:?}");
    drop(waits);
    origin.stop().await.unwrap();
}

/// Forwards connections to the origin; answers on each come `at_once` bytes at a time, with a pause between.
async fn slow_line(origin: SocketAddr, at_once: usize, pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(origin).await else { continue };
            let (mut near_read, mut near_write) = near.into_split();
            let (mut far_read, mut far_write) = far.into_split();
            tokio::spawn(async move {
                let _ = copy(&mut near_read, &mut far_write).await;
            });
            tokio::spawn(async move {
                let mut bytes = vec![0; at_once];
                while let Ok(count @ 1..) = far_read.read(&mut bytes).await {
                    if near_write.write_all(&bytes[..count]).await.is_err() {
                        return;
                    }
                    sleep(pause).await;
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_message_does_not_count_as_silence() {
    const FILES: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let (own, theirs) = (folder.path().join("replica"), folder.path().join("origin"));
    create_origin(&theirs, clock.read().wall).unwrap();
    let mut options = OriginOptions::new(theirs, "127.0.0.1:0");
    // No other traffic is on the line.
    options.config.strategy = Strategy::DemandOnly;
    let origin = OriginDaemon::start(options, Arc::clone(&clock), |_| {}).await.unwrap();
    let (handle, address) = (origin.handle(), origin.address());
    let ticket = handle.ticket("replica", &address.to_string(), Duration::from_secs(60)).unwrap();
    join(&own, ticket, &clock).await.unwrap();
    // About 3 kB per second: the commit takes 9 s, and a record of TLS, which has 16 kB, takes 5.
    let line = slow_line(address, 300, Duration::from_millis(100)).await;
    let mut options = ReplicaOptions::new(own);
    options.origin = Some(line.to_string());
    options.config.silence = Duration::from_secs(3);
    let lost = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&lost);
    let on_event = move |event| {
        if let ReplicaEvent::Disconnected { .. } = event {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    };
    let daemon = ReplicaDaemon::start(options, Arc::clone(&clock), on_event).unwrap();
    let replica = daemon.handle();
    let until = |is_so: fn(&ReplicaStatus) -> bool| {
        let replica = replica.clone();
        async move {
            let begun = clock_now();
            while !is_so(&replica.status()) {
                assert!(clock_now().since(begun) < Duration::from_secs(60), "it takes too long");
                sleep(Duration::from_millis(20)).await;
            }
        }
    };
    until(|status| status.connected).await;
    let change = |number: usize| {
        let mut stager = handle.bodies().stage();
        stager.write(b"1").unwrap().unwrap();
        let put = Put::Body(stager.finish().unwrap().unwrap(), Metadata::default());
        (Path::new(&format!("{number:0100}")).unwrap(), put)
    };
    let changes = (0..FILES).map(change).collect();
    handle.write(Transaction { changes }).await.unwrap();
    until(|status| status.sequence == 1).await;
    assert_eq!(lost.load(Ordering::Relaxed), 0, "it has given the connection up");
    daemon.stop().await.unwrap();
    origin.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn new_replica_gets_a_leaf_longer_than_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let (own, theirs) = (folder.path().join("replica"), folder.path().join("origin"));
    create_origin(&theirs, clock.read().wall).unwrap();
    let options = OriginOptions::new(theirs, "127.0.0.1:0");
    let origin = OriginDaemon::start(options, Arc::clone(&clock), |_| {}).await.unwrap();
    let handle = origin.handle();
    let paths = paths_of_one_leaf(10, MAX_PATH_BYTES);
    let change = |path: &Path| {
        let mut stager = handle.bodies().stage();
        stager.write(path.as_bytes()).unwrap().unwrap();
        (path.clone(), Put::Body(stager.finish().unwrap().unwrap(), Metadata::default()))
    };
    let changes = paths.iter().map(change).collect();
    let at = handle.write(Transaction { changes }).await.unwrap();
    let address = origin.address().to_string();
    let ticket = handle.ticket("replica", &address, Duration::from_secs(60)).unwrap();
    join(&own, ticket, &clock).await.unwrap();
    let options = ReplicaOptions::new(own);
    let daemon = ReplicaDaemon::start(options, Arc::clone(&clock), |_| {}).unwrap();
    let names = ["replica".to_owned()];
    let has_it = timeout(Duration::from_secs(120), handle.wait_for(&names, at)).await;
    has_it.expect("it has them").unwrap();
    let status = daemon.handle().status();
    assert_eq!((status.sequence, status.objects), (at.0, 10));
    daemon.stop().await.unwrap();
    origin.stop().await.unwrap();
}

/// This many paths of this length in one leaf of the hash tree.
fn paths_of_one_leaf(count: usize, length: usize) -> Vec<Path> {
    const DIGITS: usize = 8;
    let name = |at: usize| if at % 200 == 199 { '/' } else { 'x' };
    let same: String = (0..length - DIGITS).map(name).collect();
    let path = |number: u32| Path::new(&format!("{same}{number:08}")).expect("a path");
    // The beginning is hashed once, because many numbers are tried.
    let mut hasher = blake3::Hasher::new();
    hasher.update(same.as_bytes());
    let leaf = |number: &u32| {
        let hash = hasher.clone().update(format!("{number:08}").as_bytes()).finalize();
        [hash.as_bytes()[0], hash.as_bytes()[1]]
    };
    let first = leaf(&0);
    let paths: Vec<_> =
        (0..).filter(|number| leaf(number) == first).take(count).map(path).collect();
    assert!(paths.iter().all(|path| leaf_of(path) == leaf_of(&paths[0])));
    paths
}

fn clock_now() -> LocalTime {
    MachineClock.read().local
}
