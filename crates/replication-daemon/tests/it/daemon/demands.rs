//! Files that are read before they have arrived, over a line with a rate set by the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lull_replication::origin::{Put, Strategy, Transaction};
use lull_replication::replica::{Order, ReadTarget, Request};
use lull_replication::types::{Metadata, Sequence};
use lull_replication_daemon::daemon::{
    Clock, MachineClock, OriginDaemon, OriginOptions, ReplicaDaemon, ReplicaHandle, ReplicaOptions,
    create_origin, join,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::site::{LIMIT, body, path, patient, runtime};

/// More than all buffers on the way hold.
const LARGE: usize = 64 << 20;

/// A line to the origin.
#[derive(Clone, Default)]
struct Line {
    /// Bytes that each connection may carry from the origin, in total.
    allowed: Arc<AtomicU64>,
    /// The bytes of the connection that has carried the most.
    most: Arc<AtomicU64>,
}

impl Line {
    fn allow(&self, bytes: u64) {
        self.allowed.store(bytes, Ordering::Relaxed);
    }

    /// Waits until all permitted bytes have passed.
    async fn stands_still(&self) {
        patient("the line is full", || {
            self.most.load(Ordering::Relaxed) >= self.allowed.load(Ordering::Relaxed)
        })
        .await;
    }

    /// Opens one to the origin at that port; returns its own address.
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
    Request { target: ReadTarget::Object(path(name)), after: Sequence::ZERO }
}

async fn read(replica: &ReplicaHandle, name: &str) -> usize {
    let answer = replica.read(request(name), Some(LIMIT)).await.expect("an answer");
    answer.outcome.version().expect("it is there").content.size.0 as usize
}

/// An origin with these files, and a replica behind a line, which knows them.
struct Pair {
    _folder: tempfile::TempDir,
    origin: OriginDaemon,
    replica: ReplicaDaemon,
    line: Line,
}

impl Pair {
    /// Each connection of the line carries this many bytes, counted from when they are written.
    async fn new(strategy: Strategy, allowed: u64, files: &[(&str, usize)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock: Arc<dyn Clock> = Arc::new(MachineClock);
        create_origin(&folder.path().join("origin"), clock.read().wall).expect("a new origin");
        let mut options = OriginOptions::new(folder.path().join("origin"), "127.0.0.1:0");
        options.config.strategy = strategy;
        let origin =
            OriginDaemon::start(options, Arc::clone(&clock), |_| {}).await.expect("it runs");
        let handle = origin.handle();
        let line = Line::default();
        line.allow(u64::MAX);
        let address = line.open(origin.address()).await;
        let ticket = handle.ticket("replica", &address, Duration::from_secs(60)).expect("a ticket");
        join(&folder.path().join("replica"), ticket, &clock).await.expect("it joins");
        let mut options = ReplicaOptions::new(folder.path().join("replica"));
        options.config.order = Order::Aggressive;
        options.config.linger = Duration::ZERO;
        options.config.ping = Duration::from_millis(20);
        // Otherwise it would have no announcement before the bodies are there.
        options.config.eager = Some(true);
        let replica = ReplicaDaemon::start(options, Arc::clone(&clock), |_| {}).expect("it runs");
        let told = replica.handle();
        patient("it is connected", || told.status().connected).await;
        line.allow(allowed);
        let put = |seed: u8, size: usize| {
            let mut stager = handle.bodies().stage();
            stager.write(&body(seed, size)).expect("a disk").expect("room");
            Put::Body(stager.finish().expect("a disk").expect("room"), Metadata::default())
        };
        let changes = (1..).zip(files).map(|(seed, (name, size))| (path(name), put(seed, *size)));
        let written = handle.write(Transaction { changes: changes.collect() }).await;
        let written = written.expect("written");
        patient("its invalidation", || told.position() == written).await;
        Pair { _folder: folder, origin, replica, line }
    }

    async fn stop(self) {
        self.replica.stop().await.expect("it was well");
        self.origin.stop().await.expect("it was well");
    }
}

#[test]
fn file_read_during_its_push_is_sent_only_to_the_reader() {
    const PUSHED: u64 = 8 << 20;
    runtime().block_on(async {
        let pair = Pair::new(Strategy::Trip, PUSHED, &[("large", LARGE)]).await;
        let (origin, replica) = (pair.origin.handle(), pair.replica.handle());
        let sent = || {
            let one = &origin.status().replicas[0];
            (one.speculative_bytes, one.demand_bytes)
        };
        // A slow line, on which a part of it has arrived; and the origin has filled all buffers.
        pair.line.stands_still().await;
        let mut pushed = 0;
        while pushed < sent().0 {
            pushed = sent().0;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        assert!(pushed < LARGE as u64 / 2 && sent().1 == 0, "{pushed} were pushed");
        let reading = replica.clone();
        let reading = tokio::spawn(async move { read(&reading, "large").await });
        patient("the read is sent it", || sent().1 > 0).await;
        let pushed = sent().0;
        pair.line.allow(u64::MAX);
        assert_eq!(reading.await.expect("no panic"), LARGE);
        // It is not pushed after its arrival, either.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (then, demanded) = sent();
        let size = LARGE as u64;
        // Pieces that the push has delivered are not sent again.
        let least = size - pushed;
        assert!((least..size + 1_000_000).contains(&demanded), "{demanded} to the read");
        assert!(then < pushed + 1_000_000, "{} were pushed beside it", then - pushed);
        assert_eq!(origin.status().replicas[0].queue, Some(0));
        patient("it is stored", || replica.status().valid_objects == 1).await;
        assert_eq!(replica.status().demands, 1);
        pair.stop().await;
    });
}

#[test]
fn small_files_overtake_a_large_one_cancelled_with_its_reader() {
    runtime().block_on(async {
        let files = [("large", LARGE), ("middle", 300_000), ("small", 1_000), ("tiny", 10)];
        let pair = Pair::new(Strategy::DemandOnly, u64::MAX, &files).await;
        let (origin, replica, line) = (pair.origin.handle(), pair.replica.handle(), &pair.line);

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
        // As much as the buffers may have held before the origin knew that, and little more.
        line.allow(24 << 20);
        for (reading, size) in reading.into_iter().zip([300_000, 1_000]) {
            assert_eq!(reading.await.expect("no panic"), size);
        }
        line.stands_still().await;
        assert!(large.at_once().is_none(), "most of it is still to come");
        // The origin has received the demand when it answers.
        let told = || origin.status().replicas[0].control_bytes;
        drop(large);
        let before = told();
        patient("it has answered some pings", || told() > before + 1_000).await;
        let sent = origin.status().replicas[0].demand_bytes;
        assert!(sent < LARGE as u64, "{sent} were sent");
        line.allow(u64::MAX);
        assert_eq!(read(&replica, "tiny").await, 10);
        let given_up = origin.status().replicas[0].demand_bytes;
        assert!(given_up < sent + 1_000_000, "{} were sent without a reader", given_up - sent);
        // A returning reader gets it, and the transfer continues behind the pieces on the disk.
        assert_eq!(read(&replica, "large").await, LARGE);
        let sent = origin.status().replicas[0].demand_bytes - given_up;
        assert!(sent < LARGE as u64, "{sent} were sent");
        assert_eq!(replica.status().demands, 5);
        pair.stop().await;
    });
}
