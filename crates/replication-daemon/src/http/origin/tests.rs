//! Bodies of requests that are cut off.

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::*;
use crate::daemon::{Clock, MachineClock, OriginDaemon, OriginOptions, create_origin};

const LIMIT: Duration = Duration::from_secs(30);

async fn origin() -> (TempDir, OriginDaemon) {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let own = folder.path().join("origin");
    create_origin(&own, clock.read().wall).unwrap();
    let daemon = OriginDaemon::start(OriginOptions::new(own, "127.0.0.1:0"), clock, |_| {});
    (folder, daemon.await.unwrap())
}

/// The number of files of bodies without a final name.
fn staged(folder: &TempDir) -> usize {
    let staged = folder.path().join("origin/bodies/staged");
    fs::read_dir(staged).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_upload_is_cancelled_without_traces() {
    const STALLED: Duration = Duration::from_secs(4);
    let (folder, daemon) = origin().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let token = Some(blake3::hash(b"secret"));
    let stalled = Some(STALLED);
    let service = OriginHttp { origin: daemon.handle(), address: None, token, stalled };
    let serving = Serving::open(Listener::tcp(listener), Arc::new(service));
    let begin = async |path: &str| {
        let mut client = TcpStream::connect(at).await.unwrap();
        let head = format!(
            "PUT /{path} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer secret\r\n\
             content-length: 8000000\r\n\r\n"
        );
        client.write_all(head.as_bytes()).await.unwrap();
        // More than is kept in memory.
        client.write_all(&[7; 4_000_000]).await.unwrap();
        client
    };
    let mut stopped = begin("stopped").await;
    let mut slow = begin("slow").await;
    timeout(LIMIT, async {
        while staged(&folder) < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("both come to the disk");
    // This one continues in small steps, for longer than one pause may last.
    let slowly = tokio::spawn(async move {
        for _ in 0..8 {
            slow.write_all(&[7; 500_000]).await.unwrap();
            sleep(STALLED / 5).await;
        }
        let mut answer = vec![0; 1_000];
        let count = slow.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    });
    let mut answer = vec![0; 1_000];
    let count = timeout(LIMIT, stopped.read(&mut answer)).await.expect("it ends").unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(staged(&folder), 1, "the other one is still coming");
    let answer = timeout(LIMIT, slowly).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!((staged(&folder), daemon.handle().last()), (0, Sequence(1)));
    serving.close().await;
    daemon.stop().await.unwrap();
}
