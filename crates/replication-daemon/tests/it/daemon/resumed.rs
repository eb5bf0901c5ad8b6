//! Transfers that continue behind the bytes that are on the disk.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lull_cc::Bytes;
use lull_replication::replica::Config;
use lull_replication::types::{Digest, Sequence};
use lull_replication::wire::PIECE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::site::{LIMIT, Site, body, path, patient, runtime};

/// More than a replica keeps in memory of a body in transit.
const SIZE: usize = 6_000_000;

/// Forwards connections, and ends all of them when so many bytes have come from the origin.
#[derive(Default)]
struct Cutter {
    left: AtomicU64,
}

impl Cutter {
    async fn open(self: Arc<Self>, origin: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("a port").to_string();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&self).carry(near, origin.clone()));
            }
        });
        address
    }

    async fn carry(self: Arc<Self>, near: TcpStream, origin: String) {
        let Ok(far) = TcpStream::connect(origin).await else { return };
        let ((mut said, mut told), (mut answers, mut asks)) = (near.into_split(), far.into_split());
        let answer = async {
            let mut bytes = vec![0; 16 * 1024];
            loop {
                let count = answers.read(&mut bytes).await.unwrap_or(0);
                let less = |left: u64| left.checked_sub(count as u64);
                let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
                if count > 0 && self.left.fetch_update(set, get, less).is_err() {
                    // Until the test permits more.
                    self.left.store(0, Ordering::Relaxed);
                    return;
                }
                if count == 0 {
                    return;
                }
                if told.write_all(&bytes[..count]).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            _ = tokio::io::copy(&mut said, &mut asks) => {}
            () = answer => {}
        }
    }
}

/// Bytes in the files of bodies that have arrived in part, at the first replica.
fn partial_bytes(site: &Site) -> u64 {
    let entries = fs::read_dir(site.folder().join("0/bodies/partial")).expect("a folder");
    entries.map(|entry| entry.and_then(|entry| entry.metadata()).map_or(0, |of| of.len())).sum()
}

/// A replica behind a cutter, which lets nothing pass.
async fn behind(cutter: &Arc<Cutter>, change: impl Fn(&mut Config)) -> Site {
    let mut site = Site::with(0, change).await;
    let address = Arc::clone(cutter).open(site.address().to_owned()).await;
    cutter.left.store(u64::MAX / 2, Ordering::Relaxed);
    // It joins without the cutter, and finds the origin through it.
    site.add_replica_by(&address).await;
    site.reach(Sequence::ZERO).await;
    site
}

/// The bytes of bodies that the origin has sent in the background.
fn sent(site: &Site) -> u64 {
    site.origin().status().replicas[0].speculative_bytes
}

#[test]
fn pushed_body_continues_after_lost_connections_and_kills() {
    runtime().block_on(async {
        let cutter = Arc::new(Cutter::default());
        let mut site = behind(&cutter, |_| {}).await;
        let large = body(1, SIZE);
        cutter.left.store(2_500_000, Ordering::Relaxed);
        site.write(&[("large", Some(&large))]).await;
        patient("a part is here", || {
            cutter.left.load(Ordering::Relaxed) == 0 && partial_bytes(&site) > 1_000_000
        })
        .await;
        // The next part, and then the process is killed.
        let before = partial_bytes(&site);
        cutter.left.store(2_000_000, Ordering::Relaxed);
        patient("more is here", || {
            cutter.left.load(Ordering::Relaxed) == 0 && partial_bytes(&site) > before + 500_000
        })
        .await;
        site.crash_replica(0);
        let kept = partial_bytes(&site);
        let sent_before = sent(&site);
        cutter.left.store(u64::MAX / 2, Ordering::Relaxed);
        site.start_replica(0).await;
        patient("all is here", || site.replica(0).status().valid_objects == 1).await;
        assert_eq!(site.read(0, "large").await.as_ref(), Some(&large));
        // Of the pieces on the disk none came again.
        let again = sent(&site) - sent_before;
        let rest = SIZE as u64 - kept / PIECE as u64 * PIECE as u64;
        assert!((rest..rest + 100_000).contains(&again), "{again} bytes for {rest}");
        assert_eq!(partial_bytes(&site), 0);
        site.stop().await;
    });
}

#[test]
fn demanded_body_continues_after_a_lost_connection() {
    runtime().block_on(async {
        let cutter = Arc::new(Cutter::default());
        // Nothing is worth being pushed.
        let change = |config: &mut Config| {
            (config.bytes_per_read, config.eager) = (Some(Bytes(0)), Some(true));
        };
        let mut site = behind(&cutter, change).await;
        let large = body(2, SIZE);
        let at = site.write(&[("large", Some(&large))]).await;
        site.reach(at).await;
        cutter.left.store(3_000_000, Ordering::Relaxed);
        let replica = site.replica(0).clone();
        let name = path("large");
        let reading = tokio::spawn(async move { replica.object(&name, at, Some(LIMIT)).await });
        patient("a part is here", || {
            cutter.left.load(Ordering::Relaxed) == 0 && partial_bytes(&site) > 1_000_000
        })
        .await;
        cutter.left.store(u64::MAX / 2, Ordering::Relaxed);
        let read = reading.await.expect("no panic").expect("an answer");
        assert!(read.1.is_some());
        assert_eq!(site.read(0, "large").await, Some(large));
        let status = site.replica(0).status();
        assert_eq!(status.speculative_bytes, 0);
        assert!(status.demand_bytes < SIZE as u64 + 300_000, "{status:?}");
        site.stop().await;
    });
}

#[test]
fn part_with_wrong_bytes_begins_again_from_zero_once() {
    runtime().block_on(async {
        let cutter = Arc::new(Cutter::default());
        let mut site = behind(&cutter, |_| {}).await;
        let large = body(3, SIZE);
        cutter.left.store(3_000_000, Ordering::Relaxed);
        site.write(&[("large", Some(&large))]).await;
        patient("a part is here", || {
            cutter.left.load(Ordering::Relaxed) == 0 && partial_bytes(&site) > 1_000_000
        })
        .await;
        site.crash_replica(0);
        let name = format!("0/bodies/partial/{}.part", Digest::of(&large));
        let file = site.folder().join(name);
        let mut part = fs::read(&file).expect("a part");
        let pieces = part.len() / PIECE;
        part[100] ^= 1;
        fs::write(&file, part).expect("a part");
        let before = sent(&site);
        cutter.left.store(u64::MAX / 2, Ordering::Relaxed);
        site.start_replica(0).await;
        patient("all is here", || site.replica(0).status().valid_objects == 1).await;
        assert_eq!(site.read(0, "large").await.as_ref(), Some(&large));
        let again = sent(&site) - before;
        let rest = (2 * SIZE - pieces * PIECE) as u64;
        assert!((rest..rest + 200_000).contains(&again), "{again} bytes for {rest}");
        site.stop().await;
    });
}

#[test]
fn overwritten_part_is_deleted() {
    runtime().block_on(async {
        let cutter = Arc::new(Cutter::default());
        let mut site = behind(&cutter, |_| {}).await;
        cutter.left.store(3_000_000, Ordering::Relaxed);
        site.write(&[("large", Some(&body(4, SIZE)))]).await;
        patient("a part is here", || {
            cutter.left.load(Ordering::Relaxed) == 0 && partial_bytes(&site) > 1_000_000
        })
        .await;
        let at = site.write(&[("large", Some(b"small"))]).await;
        cutter.left.store(u64::MAX / 2, Ordering::Relaxed);
        site.reach(at).await;
        patient("it is gone", || partial_bytes(&site) == 0).await;
        assert_eq!(site.read(0, "large").await.as_deref(), Some(&b"small"[..]));
        site.stop().await;
    });
}
