//! Bodies as they arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lull_cc::Bytes;
use lull_replication::lane::Lane;
use lull_replication::message::{BodyHeader, Channel, Frame};
use lull_replication::path::Path;
use lull_replication::types::{Digest, DiskFull, Payload, Sequence};
use lull_replication::wire::{Assembly, BodyPart, Delivery, PIECE};
use tokio::io::AsyncRead;

use super::Shared;
use super::forward::Forwarded;
use crate::daemon::link::Incoming;
use crate::daemon::{LinkError, blocking};
use crate::store::{Body, Stager, StoreError};

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
        let is_broken_off = matches!(message, BodyPart::Broken { .. });
        let mut piece = 0;
        if let BodyPart::Piece { bytes, number, .. } = &message {
            received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            piece = *number;
        }
        let (lane, delivery) = assembly.handle(message)?;
        let header = assembly.header(lane).filter(|_| matches!(delivery, Delivery::Bytes(_)));
        let content = header.and_then(|header| header.version).map(|version| version.content);
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
                let digest = content.map(|content| content.digest).unwrap_or_default();
                if intake.is_new()
                    && let Some((path, sequence)) = header.and_then(named)
                {
                    shared.partials.begin(digest, path, sequence);
                }
                intake.write(&digest, piece, bytes).await?;
            }
            Delivery::Complete { header, last, intact } => {
                let whole = core::mem::replace(intake, Intake::new(shared));
                let is_here = header.version.is_some() && intact;
                let digest = header.version.map(|version| version.content.digest);
                let digest = digest.unwrap_or_default();
                let was_in_part = whole.has_file() || piece > 0;
                let (payload, forwarded) = if is_here {
                    shared.partials.forget(&digest);
                    whole.finish(&digest, piece, last).await?
                } else {
                    // Of a corrupt one nothing is kept.
                    whole.end(is_broken_off).await;
                    (None, None)
                };
                let partial = was_in_part.then(|| shared.bodies.partials());
                let frame = Frame { session, message: header };
                shared.with(|core, now| {
                    // First: a corrupt body begins again from zero.
                    partial.into_iter().for_each(|all| core.machine.set_partial(all));
                    match payload {
                        None if is_here => core.machine.handle_no_room(now, frame),
                        payload => core.machine.handle_body(now, frame, payload),
                    }
                });
                if let Some(forwarded) = forwarded {
                    forwarded.finish();
                }
            }
        }
    }
}

/// The object and the commit of a body.
fn named(header: &BodyHeader) -> Option<(&Path, Sequence)> {
    Some((&header.path, header.version?.sequence))
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

    /// Bytes of a body of several pieces: they may be written to the disk, so another thread takes them. `piece` is the
    /// number of the piece: the first one may have others before it, from an earlier transfer.
    async fn write(
        &mut self,
        digest: &Digest,
        piece: u32,
        bytes: Vec<u8>,
    ) -> Result<(), LinkError> {
        if self.full {
            return Ok(());
        }
        if piece > 0 && self.is_new() {
            // The children would lack what came in an earlier transfer.
            self.forwarded = None;
        }
        let stager = self.stager(digest, piece);
        let taker = self.forwarded.as_ref().map(Forwarded::taker);
        let write = move || {
            let is_passed_on = taker.is_none_or(|take| take(&bytes));
            let mut stager = stager()?;
            let outcome = stager.write(&bytes)?.map(|()| stager);
            Ok::<_, StoreError>((is_passed_on, outcome))
        };
        // There is no thread only when the runtime ends.
        let (is_passed_on, outcome) = blocking(write).await.ok_or(LinkError::GivenUp)??;
        match outcome {
            Ok(stager) => self.stager = Some(stager),
            Err(DiskFull) => self.full = true,
        }
        if self.full || !is_passed_on {
            self.forwarded = None;
        }
        Ok(())
    }

    /// Opens the stager, if that is not done: it may read the first pieces from the disk.
    fn stager(
        &mut self,
        digest: &Digest,
        piece: u32,
    ) -> impl FnOnce() -> Result<Stager, StoreError> + Send + use<> {
        let (stager, bodies, digest) = (self.stager.take(), self.shared.bodies.clone(), *digest);
        let begin = Bytes(u64::from(piece) * PIECE as u64);
        if stager.is_none() {
            self.arriving.add(begin.0 as usize);
        }
        move || stager.map_or_else(|| bodies.stage_from(&digest, begin), Ok)
    }

    /// Whether a part of it may be on the disk.
    fn has_file(&self) -> bool {
        self.stager.is_some()
    }

    /// Whether nothing of it has come.
    fn is_new(&self) -> bool {
        self.stager.is_none() && !self.full
    }

    /// The rest does not come.
    async fn end(self, is_kept: bool) {
        let end = move |stager: Stager| if is_kept { drop(stager) } else { stager.discard() };
        if let Some(stager) = self.stager {
            let _ = blocking(move || end(stager)).await;
        }
    }

    /// The last bytes; no payload if there is no room for the body.
    async fn finish(
        mut self,
        digest: &Digest,
        piece: u32,
        last: Vec<u8>,
    ) -> Result<(Option<Payload<Body>>, Option<Forwarded>), LinkError> {
        if self.full {
            return Ok((None, None));
        }
        let single = self.stager.is_none() && piece == 0;
        if piece > 0 && self.is_new() {
            self.forwarded = None;
        }
        let forwarded = self.forwarded.take();
        let taker = forwarded.as_ref().map(Forwarded::taker);
        let stager = self.stager(digest, piece);
        let finish = move || {
            let is_passed_on = taker.is_none_or(|take| take(&last));
            let mut stager = stager()?;
            let finished = match stager.write(&last)? {
                Ok(()) => stager.finish()?,
                Err(full) => Err(full),
            };
            Ok::<_, StoreError>((finished.ok(), is_passed_on))
        };
        // A single piece stays in memory.
        let finished =
            if single { finish()? } else { blocking(finish).await.ok_or(LinkError::GivenUp)?? };
        let (payload, is_passed_on) = finished;
        Ok((payload, forwarded.filter(|_| is_passed_on)))
    }
}
