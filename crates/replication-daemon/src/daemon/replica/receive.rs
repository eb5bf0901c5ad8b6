//! Bodies as they arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lull_replication::lane::Lane;
use lull_replication::message::{Channel, Frame};
use lull_replication::types::{DiskFull, Payload};
use lull_replication::wire::{Assembly, BodyPart, Delivery};
use tokio::io::AsyncRead;

use super::Shared;
use crate::daemon::link::Incoming;
use crate::daemon::{LinkError, blocking};
use crate::store::{Body, Stager};

/// Receives the bodies of a connection until it ends.
pub(super) async fn bodies(
    shared: &Arc<Shared>,
    mut incoming: Incoming<impl AsyncRead + Unpin, BodyPart>,
    channel: Channel,
) -> Result<(), LinkError> {
    let mut assembly = Assembly::default();
    let mut intakes = Lane::ALL.map(|_| Intake::new(shared));
    let received = &shared.received[usize::from(channel == Channel::Speculative)];
    loop {
        let Frame { session, message } = incoming.next().await?;
        if let BodyPart::Piece { bytes, .. } = &message {
            received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        let (lane, delivery) = assembly.handle(message)?;
        let intake = &mut intakes[lane.index()];
        match delivery {
            Delivery::More => {}
            Delivery::Bytes(bytes) => {
                intake.arriving.add(bytes.len());
                intake.write(bytes).await?;
            }
            Delivery::Complete { header, last, intact } => {
                let whole = core::mem::replace(intake, Intake::new(shared));
                let is_here = header.version.is_some() && intact;
                let payload = if is_here { whole.finish(last).await? } else { None };
                let frame = Frame { session, message: header };
                shared.with(|core, now| match payload {
                    None if is_here => core.machine.handle_no_room(now, frame),
                    payload => core.machine.handle_body(now, frame, payload),
                });
            }
        }
    }
}

/// One body on its way to the store.
struct Intake<'a> {
    shared: &'a Arc<Shared>,
    /// None if the body was discarded because the disk is full, and before its first byte.
    stager: Option<Stager>,
    full: bool,
    arriving: Arriving<'a>,
}

/// Counts the bytes of one body until it is whole, or is discarded.
struct Arriving<'a> {
    all: &'a AtomicU64,
    own: u64,
}

impl Arriving<'_> {
    fn add(&mut self, bytes: usize) {
        self.own += bytes as u64;
        self.all.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

impl<'a> Intake<'a> {
    fn new(shared: &'a Arc<Shared>) -> Self {
        let arriving = Arriving { all: &shared.arriving, own: 0 };
        Intake { shared, stager: None, full: false, arriving }
    }

    /// Bytes of a body of several pieces: they may be written to the disk, so another thread takes them.
    async fn write(&mut self, bytes: Vec<u8>) -> Result<(), LinkError> {
        if self.full {
            return Ok(());
        }
        let mut stager = self.stager.take().unwrap_or_else(|| self.shared.bodies.stage());
        let write = move || stager.write(&bytes).map(|outcome| outcome.map(|()| stager));
        // There is no thread only when the runtime ends.
        match blocking(write).await.ok_or(LinkError::GivenUp)?? {
            Ok(stager) => self.stager = Some(stager),
            Err(DiskFull) => self.full = true,
        }
        Ok(())
    }

    /// The last bytes; none if there is no room for the body.
    async fn finish(self, last: Vec<u8>) -> Result<Option<Payload<Body>>, LinkError> {
        if self.full {
            return Ok(None);
        }
        let single = self.stager.is_none();
        let mut stager = self.stager.unwrap_or_else(|| self.shared.bodies.stage());
        let finish = move || match stager.write(&last)? {
            Ok(()) => stager.finish(),
            Err(full) => Ok(Err(full)),
        };
        // A single piece stays in memory.
        let finished =
            if single { finish()? } else { blocking(finish).await.ok_or(LinkError::GivenUp)?? };
        Ok(finished.ok())
    }
}
