//! Bodies that arrive with other bytes than the origin has sent.

use core::time::Duration;
use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::AtomicUsize;

use lull_replication::Path;
use lull_replication::wire::{HEADER, PIECE, PREFACE};
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::daemon::clock::certificate_time;
use crate::identity::OriginIdentity;

/// More than is kept in memory during the transfer: most of it is in a file when the bad piece arrives.
const SIZE: usize = 40 * PIECE + 7;
const BAD: u32 = 36;
/// The kind in the frame of a piece (`docs/reference/replication-wire.md`).
const KIND: u8 = 0x63;

/// Forwards connections to an origin, and terminates TLS in between: unlike a stranger, it has the keys of
/// both sides. So its changes reach the replica as if the origin had sent them.
struct Forger {
    origin: SocketAddr,
    theirs: PathBuf,
    own: PathBuf,
    clock: Arc<dyn Clock>,
    /// How often the piece is still to be changed, and how often it was seen.
    left: AtomicUsize,
    came_by: AtomicUsize,
}

impl Forger {
    async fn open(self: Arc<Self>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&self).carry(near));
            }
        });
        address
    }

    /// Ends as soon as one side has gone.
    async fn carry(self: Arc<Self>, near: TcpStream) {
        let identity = OriginIdentity::open(&self.theirs, self.clock.read().wall).unwrap();
        let accept = TlsAcceptor::from(identity.accept(certificate_time(&self.clock)).unwrap());
        let Ok(near) = accept.accept(near).await else { return };
        let identity = crate::identity::ReplicaIdentity::open(&self.own).unwrap();
        let (config, name) = identity.connect(certificate_time(&self.clock)).unwrap();
        let Ok(far) = TcpStream::connect(self.origin).await else { return };
        let Ok(far) = TlsConnector::from(config).connect(name, far).await else { return };
        let ((mut said, told), (answers, mut asks)) = (split(near), split(far));
        tokio::select! {
            _ = copy(&mut said, &mut asks) => {}
            _ = self.forge(answers, told) => {}
        }
    }

    /// Forwards frames, and changes a byte of one piece.
    async fn forge(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        let mut preface = [0; PREFACE];
        from.read_exact(&mut preface).await?;
        to.write_all(&preface).await?;
        loop {
            to.flush().await?;
            let mut frame = vec![0; 4];
            from.read_exact(&mut frame).await?;
            let length = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
            frame.resize(4 + length, 0);
            from.read_exact(&mut frame[4..]).await?;
            // A lane, a number, and the bytes.
            if frame[4] == KIND && frame[HEADER + 1..HEADER + 5] == BAD.to_le_bytes() {
                self.came_by.fetch_add(1, Ordering::Relaxed);
                let one_less = |left: usize| left.checked_sub(1);
                let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
                if self.left.fetch_update(set, get, one_less).is_ok() {
                    frame[HEADER + 5 + 1_000] ^= 1;
                }
            }
            to.write_all(&frame).await?;
        }
    }
}

/// The files of bodies below a replica's folder, finished or not.
fn files(folder: &FilePath) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = vec![folder.join("bodies")];
    while let Some(next) = rest.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { rest.push(path) } else { found.push(path) }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn body_with_a_bad_piece_is_discarded_and_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let (own, theirs) = (folder.path().join("replica"), folder.path().join("origin"));
    create_origin(&theirs, clock.read().wall).unwrap();
    let options = OriginOptions::new(&theirs, "127.0.0.1:0");
    let origin = OriginDaemon::start(options, Arc::clone(&clock), |_| {}).await.unwrap();
    let (handle, address) = (origin.handle(), origin.address());
    let ticket = handle.ticket("replica", &address.to_string(), Duration::from_secs(60)).unwrap();
    join(&own, ticket, &clock).await.unwrap();
    let forger = Arc::new(Forger {
        origin: address,
        theirs,
        own: own.clone(),
        clock: Arc::clone(&clock),
        // The pushed one, and then one that a read waits for.
        left: AtomicUsize::new(2),
        came_by: AtomicUsize::new(0),
    });
    let mut options = ReplicaOptions::new(&own);
    options.origin = Some(Arc::clone(&forger).open().await.to_string());
    let daemon = ReplicaDaemon::start(options, Arc::clone(&clock), |_| {}).unwrap();
    let replica = daemon.handle();

    let bytes: Vec<u8> = (0..SIZE).map(|at| (at / 251) as u8 ^ at as u8).collect();
    let mut stager = handle.bodies().stage();
    stager.write(&bytes).unwrap().unwrap();
    let put = Put::Body(stager.finish().unwrap().unwrap(), Metadata::default());
    let path = Path::new("a").unwrap();
    let written = handle.write(Transaction { changes: [(path.clone(), put)].into() }).await;
    let written = written.unwrap();
    let begun = clock_now();
    let patient = async |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(clock_now().since(begun) < Duration::from_secs(120), "it takes too long");
            sleep(Duration::from_millis(2)).await;
        }
    };
    let pushed = || replica.status().speculative_bytes;
    patient(&|| pushed() == SIZE as u64).await;
    assert_eq!(forger.came_by.load(Ordering::Relaxed), 1);
    patient(&|| files(&own).is_empty()).await;
    assert_eq!(replica.status().valid_objects, 0, "nothing of it is shown");

    let limit = Some(Duration::from_secs(120));
    let (_, found) = replica.object(&path, written, limit).await.unwrap();
    let found = found.unwrap();
    let mut read = Vec::new();
    for number in 0..=40 {
        read.extend(found.piece(number).await.unwrap().unwrap());
    }
    assert!(read == bytes, "other bytes are shown than were written");
    assert_eq!(forger.came_by.load(Ordering::Relaxed), 3, "twice for the read");
    // The body is read before it is on disk.
    patient(&|| replica.status().valid_objects == 1).await;
    let status = replica.status();
    assert_eq!((status.demands, status.demand_bytes), (2, 2 * SIZE as u64));
    assert_eq!(status.missing, 0);
    assert_eq!(files(&own).len(), 1);
    daemon.stop().await.unwrap();
    origin.stop().await.unwrap();
}
