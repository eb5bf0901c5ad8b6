//! Connections of a service for which the kernel detects a peer that disappeared silently.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::daemon::{ObservedStream, Way};

/// An idle connection is probed after this time.
const IDLE: Duration = Duration::from_secs(60);
/// Pause between these probes. One that is answered is enough.
const INTERVAL: Duration = Duration::from_secs(15);
/// The number of unanswered probes after which the peer is dropped.
const PROBES: u32 = 4;
/// The total time of that. If the user timeout is set, the kernel uses it instead of the number of probes
/// (`tcp_keepalive_timer` of Linux), so it has this value.
const GONE: Duration = Duration::from_secs(IDLE.as_secs() + INTERVAL.as_secs() * PROBES as u64);

/// A connection whose peer may disappear silently: its machine is suspended, or leaves the network. While it
/// is being written to, the limit is that of a client that reads nothing, `untaken`. While it waits for a
/// request or an answer, it is dropped after two minutes.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn watched(
    tcp: TcpStream,
    untaken: Duration,
) -> io::Result<ObservedStream<TcpStream, impl FnMut(&TcpStream, Way) + Unpin>> {
    let socket = SockRef::from(&tcp);
    let keepalive = TcpKeepalive::new();
    let keepalive = keepalive.with_time(IDLE).with_interval(INTERVAL).with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    let gone = GONE.min(untaken);
    socket.set_tcp_user_timeout(Some(gone))?;
    let mut last = Way::In;
    Ok(ObservedStream::new(tcp, move |tcp, way| {
        if core::mem::replace(&mut last, way) != way {
            // Counted while nothing is acknowledged, and while the other side has no room. Neither is the
            // case on a slow line.
            let limit = match way {
                Way::In => gone,
                Way::Out => untaken,
            };
            // A closed one has no options to set.
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
    async fn connection()
    -> (ObservedStream<TcpStream, impl FnMut(&TcpStream, Way) + Unpin>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        (watched(tcp, UNTAKEN).unwrap(), client)
    }

    #[tokio::test]
    async fn dead_peer_is_probed_and_dropped_after_two_minutes() {
        let (watched, _client) = connection().await;
        let socket = SockRef::from(watched.stream());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), IDLE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
        assert_eq!(GONE, Duration::from_secs(120));
        // Otherwise the kernel would probe for ten minutes.
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(GONE));
    }

    #[tokio::test]
    async fn write_extends_the_timeout_until_the_peer_answers() {
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
