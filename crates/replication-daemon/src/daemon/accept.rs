//! The loop of a daemon that accepts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::unidentified::{ConnectionSlot, SlotsExhausted, UnidentifiedConnections};
use super::{Clock, LinkError};

/// A daemon that replicas and receivers connect to.
pub(super) trait Accepts: Send + Sync + 'static {
    /// Its clock.
    fn clock(&self) -> &Arc<dyn Clock>;

    /// Waits until it has to end.
    fn stopped(&self) -> impl Future<Output = ()> + Send;

    /// Too many connections are without a name or a purpose.
    fn handle_crowd(&self, _crowd: SlotsExhausted) {}

    /// A connection was never established.
    fn handle_rejected(&self, from: SocketAddr, why: &LinkError);
}

/// Accepts connections until the daemon ends, and then waits for the open ones to end. `serve` runs one connection, from
/// its first packet to its end.
pub(super) async fn accept<A: Accepts, F>(
    shared: Arc<A>,
    listener: TcpListener,
    serve: impl Fn(Arc<A>, TcpStream, SocketAddr, ConnectionSlot) -> F,
) where
    F: Future<Output = Result<(), LinkError>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let mut unidentified = UnidentifiedConnections::default();
    loop {
        tokio::select! {
            () = shared.stopped() => break,
            _ = tasks.join_next(), if !tasks.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((tcp, from)) => {
                    let now = shared.clock().read().local;
                    let (slot, notice, crowd) = unidentified.admit(from.ip(), now);
                    crowd.into_iter().for_each(|crowd| shared.handle_crowd(crowd));
                    let serving = serve(Arc::clone(&shared), tcp, from, slot);
                    let shared = Arc::clone(&shared);
                    tasks.spawn(async move {
                        let served = tokio::select! {
                            served = serving => served,
                            () = notice.given() => Ok(()),
                            () = shared.stopped() => Ok(()),
                        };
                        if let Err(why) = served {
                            shared.handle_rejected(from, &why);
                        }
                    });
                }
                // No descriptors, most likely: some will be closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}
