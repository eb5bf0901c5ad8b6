//! Asks a neighbour for pieces.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lull_replication::exchange::Taken;
use lull_replication::message::{Channel, Frame, Neighbour, Session};
use lull_replication::wire::{FromNeighbour, ToNeighbour};
use thiserror::Error;
use tokio::io::split;
use tokio::sync::mpsc::UnboundedReceiver;

use super::running::Running;
use crate::daemon::clock::certificate_time;
use crate::daemon::enrol::dial;
use crate::daemon::link::{Incoming, Outgoing};
use crate::daemon::replica::{ReplicaEvent, Shared, lock};
use crate::daemon::{LinkError, blocking};

/// Why a neighbour is not asked any more.
#[derive(Debug, Error)]
pub(super) enum AskError {
    /// It does not have the body, and does not expect it.
    #[error("it does not have that file")]
    Absent,
    #[error("it has sent a wrong piece")]
    Wrong,
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Asks a neighbour for pieces with these numbers, until it is dropped.
pub(super) async fn ask(
    shared: &Shared,
    running: &Arc<Running>,
    neighbour: &Neighbour,
    mut numbers: UnboundedReceiver<u32>,
) -> Result<(), AskError> {
    let certificate = neighbour.certificate;
    let how = lock(&shared.identity).connect_to_neighbour(
        certificate_time(&shared.clock),
        Arc::new(move |shown| *shown == certificate),
    );
    let how = how.map_err(LinkError::from)?;
    let stream = dial(&neighbour.address.to_string(), how, Channel::Exchange).await?;
    let (read, write) = split(stream);
    let (mut incoming, mut outgoing) =
        (Incoming::<_, FromNeighbour>::new(read), Outgoing::new(write));
    let (digest, size) = (running.body().digest, lull_cc::Bytes(running.body().size));
    loop {
        tokio::select! {
            number = numbers.recv() => {
                let Some(first) = number else { return Ok(()) };
                let more = core::iter::from_fn(|| numbers.try_recv().ok());
                for number in core::iter::once(first).chain(more) {
                    let message = ToNeighbour::Ask { digest, size, number };
                    outgoing.put(&Frame { session: Session::default(), message }).map_err(LinkError::from)?;
                }
                outgoing.flush().await?;
            }
            frame = incoming.next() => match frame?.message {
                FromNeighbour::Absent => return Err(AskError::Absent),
                FromNeighbour::Piece { number, bytes } => {
                    take(shared, running, neighbour, (number, bytes)).await?;
                }
            },
        }
    }
}

async fn take(
    shared: &Shared,
    running: &Arc<Running>,
    neighbour: &Neighbour,
    (number, bytes): (u32, Vec<u8>),
) -> Result<(), AskError> {
    let (count, now) = (bytes.len() as u64, shared.clock.read().local);
    let (storing, from) = (Arc::clone(running), neighbour.replica);
    let take = move || storing.take_from_neighbour(now, from, (number, &bytes));
    let taken = blocking(take).await.ok_or(LinkError::GivenUp)?;
    let Some(sharing) = &shared.sharing else { return Ok(()) };
    match taken {
        Taken::New => drop(sharing.received.fetch_add(count, Ordering::Relaxed)),
        Taken::Ignored => {}
        Taken::Wrong => {
            sharing.ban(neighbour);
            let Neighbour { replica, address, .. } = *neighbour;
            let path = running.body().path.clone();
            (shared.on_event)(ReplicaEvent::WrongPiece { neighbour: replica, address, path });
            return Err(AskError::Wrong);
        }
    }
    Ok(())
}
