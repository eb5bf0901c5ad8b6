//! Bodies as they arrive.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lull_replication::lane::Lane;
use lull_replication::message::{BodyHeader, Channel, Frame};
use lull_replication::origin::LONG;
use lull_replication::path::Path;
use lull_replication::types::{Sequence, Version};
use lull_replication::wire::{Assembly, BodyPart, Delivery, Outline};
use tokio::io::AsyncRead;

use super::Shared;
use super::forward::Forwarded;
use super::intake::{Asked, Finished, Intake};
use crate::daemon::LinkError;
use crate::daemon::link::Incoming;

/// Receives the bodies of a connection until it ends.
pub(super) async fn bodies(
    shared: &Arc<Shared>,
    mut incoming: Incoming<impl AsyncRead + Unpin, BodyPart>,
    channel: Channel,
) -> Result<(), LinkError> {
    let mut assembly = Assembly::default();
    let mut intakes = Lane::ALL.map(|_| Intake::new(shared));
    let mut long_bodies = 0;
    let received = &shared.received[usize::from(channel == Channel::Speculative)];
    loop {
        let Frame { session, message } = next(shared, &mut incoming, &mut intakes).await?;
        let is_broken_off = matches!(message, BodyPart::Broken { .. });
        let are_hashes = matches!(message, BodyPart::Hashes { .. });
        let mut piece = 0;
        if let BodyPart::Piece { bytes, number, .. } = &message {
            received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            piece = *number;
        }
        let is_long = matches!(&message, BodyPart::Header(header) if is_long(header));
        long_bodies += u64::from(is_long);
        let (lane, delivery) = assembly.handle(message)?;
        let header = assembly.header(lane).filter(|_| matches!(delivery, Delivery::Bytes(_)));
        let content = header.and_then(|header| header.version).map(|version| version.content);
        let intake = &mut intakes[lane.index()];
        if is_long {
            intake.number = long_bodies;
        }
        match delivery {
            Delivery::More => {
                let asked = if let Some((header, outline)) = assembly.begins(lane) {
                    begin(shared, intake, header, outline).await
                } else {
                    let is_corrupt = assembly.is_corrupt(lane);
                    let header = assembly.header(lane).filter(|_| is_corrupt && are_hashes);
                    intake.forwarded = intake.forwarded.take().filter(|_| !is_corrupt);
                    if is_corrupt {
                        intake.give_up_exchange();
                    }
                    // The sender waits for an answer, also to corrupt hashes.
                    header.map_or(Asked::Nothing, |header| intake.want_the_end(header))
                };
                asked.expect_in(&mut assembly, lane);
            }
            Delivery::Chunks(chunks, is_end) => {
                intake.take_chunks(chunks, is_end).await?.expect_in(&mut assembly, lane);
            }
            Delivery::Bytes(bytes) if intake.exchange().is_some() => {
                intake.take_piece(piece, bytes).await?;
                intake.turn().await?;
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
                let frame = Frame { session, message: header };
                let end = End { piece, last, intact, is_broken_off };
                complete(shared, whole, frame, end).await?;
            }
        }
    }
}

/// The next message. Meanwhile the exchange with neighbours goes on.
async fn next(
    shared: &Arc<Shared>,
    incoming: &mut Incoming<impl AsyncRead + Unpin, BodyPart>,
    intakes: &mut [Intake<'_>],
) -> Result<Frame<BodyPart>, LinkError> {
    loop {
        // A connection in the background has one body at a time.
        let Some(running) = intakes.iter().find_map(Intake::exchange).cloned() else {
            return incoming.next().await;
        };
        tokio::select! {
            frame = incoming.next() => return frame,
            () = running.wait(shared) => {
                for intake in &mut *intakes {
                    intake.turn().await?;
                }
            }
        }
    }
}

/// A long body begins. Returns which pieces are needed.
async fn begin(
    shared: &Arc<Shared>,
    intake: &mut Intake<'_>,
    header: &BodyHeader,
    outline: &Outline,
) -> Asked {
    intake.forwarded = Forwarded::begin(shared, header, outline).await;
    let asked = intake.select(header, outline).await;
    if intake.exchange().is_some()
        && let Some(Version { sequence, content }) = header.version
    {
        shared.partials.begin(content.digest, &header.path, sequence);
    }
    asked
}

/// The last part of a body.
struct End {
    /// The number of its piece.
    piece: u32,
    last: Vec<u8>,
    intact: bool,
    /// It is the notice that the rest does not come.
    is_broken_off: bool,
}

/// A body has come, or the rest of it does not come.
async fn complete(
    shared: &Arc<Shared>,
    whole: Intake<'_>,
    frame: Frame<BodyHeader>,
    end: End,
) -> Result<(), LinkError> {
    let End { piece, last, intact, is_broken_off } = end;
    let header = &frame.message;
    let mut is_here = header.version.is_some() && intact;
    let is_wrong = header.version.is_some() && !intact && !is_broken_off;
    let digest = header.version.map(|version| version.content.digest).unwrap_or_default();
    let was_in_part = whole.has_file() || piece > 0;
    let (payload, forwarded) = if is_here {
        shared.partials.forget(&digest);
        let Finished { payload, forwarded, is_broken } = whole.finish(&digest, piece, last).await?;
        shared.older.forget(&header.path);
        is_here = !is_broken;
        (payload, forwarded)
    } else {
        // Of a corrupt one nothing is kept.
        whole.end(is_broken_off).await;
        (None, None)
    };
    let partial = was_in_part.then(|| shared.bodies.partials());
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
    if is_wrong && shared.note_wrong_bytes() {
        return Err(LinkError::WrongBytes);
    }
    Ok(())
}

fn is_long(header: &BodyHeader) -> bool {
    header.version.is_some_and(|version| version.content.size > LONG && !header.lost)
}

/// The object and the commit of a body.
fn named(header: &BodyHeader) -> Option<(&Path, Sequence)> {
    Some((&header.path, header.version?.sequence))
}
