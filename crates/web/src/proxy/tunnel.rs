//! The stream after an upgrade, such as WebSocket: bytes in both directions.

use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::sync::OwnedSemaphorePermit;

use super::connection::{Connection, CountGuard, RequestGuard};
use super::link::Link;

/// The guard of an HTTP/2 connection with a stream that is a tunnel.
pub(crate) struct AmongOthers {
    _ongoing: CountGuard,
    /// The client need not send or read anything.
    _waiting: CountGuard,
    _guard: Option<RequestGuard>,
}

impl AmongOthers {
    pub(crate) fn new(connection: &Arc<Connection>, guard: Option<RequestGuard>) -> Self {
        AmongOthers {
            _ongoing: CountGuard::ongoing(connection),
            _waiting: CountGuard::waiting_for_upstream(connection),
            _guard: guard,
        }
    }
}

/// Copies until both sides have ended, or one has failed. No timeout: a WebSocket may be silent for hours,
/// and TCP keep-alive detects a dead client.
pub(crate) async fn run(
    client: OnUpgrade,
    link: Box<Link>,
    _permit: OwnedSemaphorePermit,
    _among_others: Option<AmongOthers>,
) {
    // One after the other: each is ready soon, and neither needs the other for it.
    let Some((mut upstream, already)) = link.into_stream().await else { return };
    let Ok(client) = client.await else { return };
    let mut client = TokioIo::new(client);
    if client.write_all(&already).await.is_err() || client.flush().await.is_err() {
        return;
    }
    // The kind of end makes no difference: both are closed.
    let _ = copy_bidirectional(&mut client, &mut upstream).await;
}
