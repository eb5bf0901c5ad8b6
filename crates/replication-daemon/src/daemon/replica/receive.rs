//! Bodies as they arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lull_replication::lane::Lane;
use lull_replication::message::{Channel, Frame};
use lull_replication::types::{DiskFull, Payload};
use lull_replication::wire::{Assembly, BodyPart, Delivery};
use tokio::io::AsyncRead;

use super::Shared;
use super::forward::Forwarded;
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
            Delivery::More => {
                if let Some((header, outline)) = assembly.begins(lane) {
                    intake.forwarded = Forwarded::begin(shared, header, outline).await;
                } else if assembly.is_corrupt(lane) {
                    intake.forwarded = None;
                }
            }
            Delivery::Bytes(bytes) => {
                intake.arriving.add(bytes.len());
                intake.write(bytes).await?;
            }
            Delivery::Complete { header, last, intact } => {
                let whole = core::mem::replace(intake, Intake::new(shared));
                let is_here = header.version.is_some() && intact;
                let (payload, forwarded) =
                    if is_here { whole.finish(last).await? } else { (None, None) };
                let frame = Frame { session, message: header };
                shared.with(|core, now| match payload {
                    None if is_here => core.machine.handle_no_room(now, frame),
                    payload => core.machine.handle_body(now, frame, payload),
                });
                if let Some(forwarded) = forwarded {
                    forwarded.finish();
                }
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
    /// At a relay: children get it as it arrives.
    forwarded: Option<Forwarded>,
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
        Intake { shared, stager: None, full: false, arriving, forwarded: None }
    }

    /// Bytes of a body of several pieces: they may be written to the disk, so another thread takes them.
    async fn write(&mut self, bytes: Vec<u8>) -> Result<(), LinkError> {
        if self.full {
            return Ok(());
        }
        let mut stager = self.stager.take().unwrap_or_else(|| self.shared.bodies.stage());
        let taker = self.forwarded.as_ref().map(Forwarded::taker);
        let write = move || {
            let is_passed_on = taker.is_none_or(|take| take(&bytes));
            let outcome = stager.write(&bytes).map(|outcome| outcome.map(|()| stager));
            (is_passed_on, outcome)
        };
        // There is no thread only when the runtime ends.
        let (is_passed_on, outcome) = blocking(write).await.ok_or(LinkError::GivenUp)?;
        match outcome? {
            Ok(stager) => self.stager = Some(stager),
            Err(DiskFull) => self.full = true,
        }
        if self.full || !is_passed_on {
            self.forwarded = None;
        }
        Ok(())
    }

    /// The last bytes; no payload if there is no room for the body.
    async fn finish(
        self,
        last: Vec<u8>,
    ) -> Result<(Option<Payload<Body>>, Option<Forwarded>), LinkError> {
        if self.full {
            return Ok((None, None));
        }
        let forwarded = self.forwarded;
        let taker = forwarded.as_ref().map(Forwarded::taker);
        let single = self.stager.is_none();
        let mut stager = self.stager.unwrap_or_else(|| self.shared.bodies.stage());
        let finish = move || {
            let is_passed_on = taker.is_none_or(|take| take(&last));
            let finished = match stager.write(&last) {
                Ok(Ok(())) => stager.finish(),
                Ok(Err(full)) => Ok(Err(full)),
                Err(error) => Err(error),
            };
            finished.map(|finished| (finished.ok(), is_passed_on))
        };
        // A single piece stays in memory.
        let finished =
            if single { finish()? } else { blocking(finish).await.ok_or(LinkError::GivenUp)?? };
        let (payload, is_passed_on) = finished;
        Ok((payload, forwarded.filter(|_| is_passed_on)))
    }
}
