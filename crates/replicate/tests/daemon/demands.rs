//! Files that are read before they are here, over a line that carries as much as the test lets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lull_replicate::daemon::{
    Clock, MachineClock, OriginDaemon, OriginOptions, ReplicaDaemon, ReplicaHandle, ReplicaOptions,
    create_origin, join,
};
use lull_replicate::origin::{Put, Strategy, Transaction};
use lull_replicate::replica::{Order, Request, What};
use lull_replicate::types::{Metadata, Sequence};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::site::{LIMIT, body, path, patient, runtime};

/// More than all buffers on the way take.
const LARGE: usize = 64 << 20;

/// A line to the origin.
#[derive(Clone, Default)]
struct Line {
    /// Bytes that each connection may carry from the origin, in all.
    allowed: Arc<AtomicU64>,
    /// What the one that has carried most has carried.
    most: Arc<AtomicU64>,
}

impl Line {
    fn allow(&self, bytes: u64) {
        self.allowed.store(bytes, Ordering::Relaxed);
    }

    /// Waits until as much has come through as may.
    async fn stands_still(&self) {
        patient("the line is full", || {
            self.most.load(Ordering::Relaxed) >= self.allowed.load(Ordering::Relaxed)
        })
        .await;
    }

    /// Opens one to the origin at that port; gives its own address.
    async fn open(&self, origin: std::net::SocketAddr) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let line = self.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(origin).await.expect("the origin");
                let ((mut said, mut told), (mut answers, mut asks)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut said, &mut asks).await });
                let line = line.clone();
                tokio::spawn(async move {
                    let (mut carried, mut buffer) = (0, vec![0; 16 * 1024]);
                    while let Ok(count @ 1..) = answers.read(&mut buffer).await {
                        while carried >= line.allowed.load(Ordering::Relaxed) {
                            tokio::time::sleep(Duration::from_millis(2)).await;
                        }
                        carried += count as u64;
                        line.most.fetch_max(carried, Ordering::Relaxed);
                        if told.write_all(&buffer[..count]).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        address
    }
}

fn request(name: &str) -> Request {
    Request { what: What::Object(path(name)), after: Sequence::ZERO }
}

async fn read(replica: &ReplicaHandle, name: &str) -> usize {
    let answer = replica.read(request(name), Some(LIMIT)).await.expect("an answer");
    answer.outcome.version().expect("it is there").content.size.0 as usize
}

#[test]
fn small_files_are_read_beside_a_large_one_which_is_given_up_with_its_reader() {
    runtime().block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let clock: Arc<dyn Clock> = Arc::new(MachineClock);
        create_origin(&folder.path().join("origin"), clock.read().wall).expect("a new origin");
        let mut options = OriginOptions::new(folder.path().join("origin"), "127.0.0.1:0");
        options.config.strategy = Strategy::DemandOnly;
        let daemon =
            OriginDaemon::start(options, Arc::clone(&clock), |_| {}).await.expect("it runs");
        let origin = daemon.handle();
        let line = Line::default();
        line.allow(u64::MAX);
        let address = line.open(daemon.address()).await;
        let ticket = origin.ticket("replica", &address, Duration::from_secs(60)).expect("a ticket");
        join(&folder.path().join("replica"), ticket, &clock).await.expect("it joins");
        let mut options = ReplicaOptions::new(folder.path().join("replica"));
        options.config.order = Order::Aggressive;
        options.config.linger = Duration::ZERO;
        options.config.ping = Duration::from_millis(20);
        let replica_daemon = ReplicaDaemon::start(options, Arc::clone(&clock), |_| {});
        let replica_daemon = replica_daemon.expect("it runs");
        let replica = replica_daemon.handle();

        let put = |seed: u8, size: usize| {
            let mut stager = origin.bodies().stage();
            stager.write(&body(seed, size)).expect("a disk").expect("room");
            Put::Body(stager.finish().expect("a disk").expect("room"), Metadata::default())
        };
        let files = [("large", LARGE), ("middle", 300_000), ("small", 1_000), ("tiny", 10)];
        let changes = (1..).zip(files).map(|(seed, (name, size))| (path(name), put(seed, size)));
        let written = origin.write(Transaction { changes: changes.collect() }).await;
        let written = written.expect("written");
        patient("it is told of", || replica.position() == written).await;

        line.allow(3 << 20);
        let mut large = replica.begin(request("large")).expect("it runs");
        line.stands_still().await;
        let reading: Vec<_> = ["middle", "small"]
            .map(|name| {
                let replica = replica.clone();
                tokio::spawn(async move { read(&replica, name).await })
            })
            .into();
        patient("all was asked for", || replica.status().demands == 3).await;
        // As much as may have been in buffers before that was known at the origin, and little more.
        line.allow(24 << 20);
        for (reading, size) in reading.into_iter().zip([300_000, 1_000]) {
            assert_eq!(reading.await.expect("no panic"), size);
        }
        line.stands_still().await;
        assert!(large.at_once().is_none(), "most of it is still to come");
        // The origin has heard what it answers.
        let told = || origin.status().replicas[0].control_bytes;
        drop(large);
        let before = told();
        patient("it has answered some pings", || told() > before + 1_000).await;
        let sent = origin.status().replicas[0].demand_bytes;
        assert!(sent < LARGE as u64, "{sent} were sent");
        line.allow(u64::MAX);
        assert_eq!(read(&replica, "tiny").await, 10);
        let given_up = origin.status().replicas[0].demand_bytes;
        assert!(given_up < sent + 1_000_000, "{} were sent for nobody", given_up - sent);
        // Who comes again gets it, and it begins anew.
        assert_eq!(read(&replica, "large").await, LARGE);
        let sent = origin.status().replicas[0].demand_bytes - given_up;
        assert!(sent > LARGE as u64 && sent < LARGE as u64 + 1_000_000, "{sent} were sent");
        assert_eq!(replica.status().demands, 5);
        replica_daemon.stop().await.expect("it was well");
        daemon.stop().await.expect("it was well");
    });
}
