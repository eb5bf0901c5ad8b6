//! Connections of a face, of which the kernel tells when the other side has gone without a word.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::daemon::{Observed, Way};

/// Who says nothing for so long, and is told nothing, is asked whether he is still there.
const IDLE: Duration = Duration::from_secs(60);
/// Between such questions. One that is answered is enough.
const INTERVAL: Duration = Duration::from_secs(15);
/// Without an answer to so many he is gone.
const PROBES: u32 = 4;
/// What that takes in all. The kernel goes by the user timeout instead of the number of questions, if it is set
/// (`tcp_keepalive_timer` of Linux), so that is as long.
const GONE: Duration = Duration::from_secs(IDLE.as_secs() + INTERVAL.as_secs() * PROBES as u64);

/// A connection whose other side may go without a word: its machine falls asleep, or out of the network. While it
/// is told something it has as long as who takes nothing, which is `untaken`; while it is waited for, or waits for
/// its answer, it is given up after two minutes.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn watched(
    tcp: TcpStream,
    untaken: Duration,
) -> io::Result<Observed<TcpStream, impl FnMut(&TcpStream, Way) + Unpin>> {
    let socket = SockRef::from(&tcp);
    let keepalive = TcpKeepalive::new();
    let keepalive = keepalive.with_time(IDLE).with_interval(INTERVAL).with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    let gone = GONE.min(untaken);
    socket.set_tcp_user_timeout(Some(gone))?;
    let mut last = Way::In;
    Ok(Observed::new(tcp, move |tcp, way| {
        if core::mem::replace(&mut last, way) != way {
            // Counted while nothing is acknowledged, and while the other side has no room for anything. A line
            // however slow is neither.
            let limit = match way {
                Way::In => gone,
                Way::Out => untaken,
            };
            // Of one that is closed there is nothing to be set.
            let _ = SockRef::from(tcp).set_tcp_user_timeout(Some(limit));
        }
    }))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const UNTAKEN: Duration = Duration::from_secs(600);

    /// The two sides of a connection.
    async fn connection() -> (Observed<TcpStream, impl FnMut(&TcpStream, Way) + Unpin>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        (watched(tcp, UNTAKEN).unwrap(), client)
    }

    #[tokio::test]
    async fn who_is_gone_is_asked_for_and_given_up_after_two_minutes() {
        let (watched, _client) = connection().await;
        let socket = SockRef::from(watched.stream());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), IDLE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
        assert_eq!(GONE, Duration::from_secs(120));
        // Or the kernel would ask for ten minutes.
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(GONE));
    }

    #[tokio::test]
    async fn who_is_told_something_may_take_nothing_for_longer_until_he_says_something() {
        let (mut watched, mut client) = connection().await;
        let limit = |tcp: &TcpStream| SockRef::from(tcp).tcp_user_timeout().unwrap();
        for _ in 0..2 {
            client.write_all(b"question").await.unwrap();
            let mut bytes = [0; 8];
            watched.read_exact(&mut bytes).await.unwrap();
            assert_eq!(limit(watched.stream()), Some(GONE));
            watched.write_all(b"answer").await.unwrap();
            assert_eq!(limit(watched.stream()), Some(UNTAKEN));
        }
    }
}
