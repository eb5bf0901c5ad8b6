//! Bodies on their way to a replica, in pieces.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lull_replication::Pin;
use lull_replication::lane::{Lane, Lanes};
use lull_replication::message::{BodyHeader, Channel, Frame};
use lull_replication::types::Content;
use lull_replication::wire::{BodyPart, Outline, PIECE};
use tokio::io::AsyncWrite;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::AbortHandle;

use super::Shared;
use super::core::{Core, Link};
use crate::daemon::link::Outgoing;
use crate::daemon::{LinkError, read_with_retries};
use crate::store::{BodyReader, StoreError};

/// The hashes of a body's pieces; none if it is missing or corrupt.
type Found = Result<Option<Arc<Outline>>, StoreError>;

/// Sends the bodies of a channel, as fast as the connection accepts them. The background connection accepts
/// as much as there is spare capacity, at which rate the queue drains (SSR §6.2).
pub(super) async fn send(
    shared: &Arc<Shared>,
    link: &Arc<Link>,
    channel: Channel,
    outgoing: Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    match channel {
        Channel::Demand => demanded(shared, link, outgoing).await,
        _ => pushed(shared, link, outgoing).await,
    }
}

/// Pushed bodies: one after the other, in the order of their worth. Small ones are read and sent together, as
/// many as fit into a piece of a large one.
async fn pushed(
    shared: &Arc<Shared>,
    link: &Arc<Link>,
    mut to: Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    loop {
        let (small, large) = shared.with(|core, _| next_pushed(core, link))?;
        if small.is_empty() && large.is_none() {
            link.speculative.notified().await;
            continue;
        }
        if !small.is_empty() {
            put_small(shared, small, &mut to).await?;
            flush(link, 2, &mut to).await?;
        }
        let Some(frame) = large else { continue };
        let mut body = Sending::new(shared, link, frame);
        loop {
            match body.part(&mut to).await? {
                SendState::Waits => link.speculative.notified().await,
                SendState::Goes => flush(link, 2, &mut to).await?,
                SendState::Ends => break flush(link, 2, &mut to).await?,
            }
        }
    }
}

/// The next bodies to be pushed: small ones of about a piece in total, and one larger body after them.
#[expect(clippy::type_complexity, reason = "both are frames of the same kind")]
fn next_pushed(
    core: &mut Core,
    link: &Arc<Link>,
) -> Result<(Vec<Frame<BodyHeader>>, Option<Frame<BodyHeader>>), LinkError> {
    /// The approximate cost of one beside its bytes.
    const EACH: u64 = 256;
    if !core.is_current(link) {
        return Err(LinkError::GivenUp);
    }
    let (mut small, mut bytes) = (Vec::new(), 0);
    while bytes < PIECE as u64
        && let Some(frame) = core.machine.poll_speculative(link.replica)
    {
        let size = content(&frame.message).map_or(0, |content| content.size.0);
        if size > PIECE as u64 {
            return Ok((small, Some(frame)));
        }
        bytes += EACH + size;
        small.push(frame);
    }
    Ok((small, None))
}

/// Queues bodies of one piece each.
async fn put_small(
    shared: &Shared,
    frames: Vec<Frame<BodyHeader>>,
    to: &mut Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    let contents: Vec<_> = frames.iter().map(|frame| content(&frame.message)).collect();
    let wanted = contents.clone();
    let read = move |body_reader: &BodyReader| {
        let read = |content: Content| body_reader.read(&content.digest);
        wanted.iter().map(|content| content.map_or(Ok(None), read)).collect()
    };
    let found: Vec<_> = read_with_retries(&shared.body_reader, None, read).await?;
    for ((frame, content), bytes) in frames.into_iter().zip(contents).zip(found) {
        let (session, lane) = (frame.session, Lanes::default().of_body(&frame.message));
        let mut put = |message| to.put(&Frame { session, message });
        put(BodyPart::Header(frame.message))?;
        let Some(content) = content else { continue };
        match bytes {
            Some(bytes) => put(BodyPart::Piece { lane, number: 0, bytes: bytes.to_vec() })?,
            None => {
                put(BodyPart::Broken { lane })?;
                check_again(shared, &content).await?;
            }
        }
    }
    Ok(())
}

/// Demanded bodies: one of each lane at a time, in turns. So a short one never waits for more than a piece of
/// each longer one.
async fn demanded(
    shared: &Arc<Shared>,
    link: &Arc<Link>,
    mut to: Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    let mut bodies: [Option<Sending<'_>>; Lane::COUNT] = Default::default();
    loop {
        let mut idle = true;
        fill(shared, link, &mut bodies)?;
        for lane in Lane::ALL {
            // The same share of each, so that many short ones take no more than a long one.
            while to.waiting() < PIECE {
                let Some(body) = &mut bodies[lane.index()] else { break };
                match body.part(&mut to).await? {
                    SendState::Waits => break,
                    SendState::Goes => {}
                    SendState::Ends => {
                        bodies[lane.index()] = None;
                        fill(shared, link, &mut bodies)?;
                    }
                }
            }
            if to.waiting() > 0 {
                idle = false;
                flush(link, 1, &mut to).await?;
            }
        }
        if idle {
            link.demand.notified().await;
        }
    }
}

/// Takes waiting bodies for free lanes.
fn fill<'a>(
    shared: &'a Arc<Shared>,
    link: &'a Arc<Link>,
    bodies: &mut [Option<Sending<'a>>; Lane::COUNT],
) -> Result<(), LinkError> {
    loop {
        let next = shared.with(|core, _| {
            if core.is_current(link) {
                Ok(core.machine.poll_demand_in_turn(link.replica))
            } else {
                Err(LinkError::GivenUp)
            }
        })?;
        let Some(frame) = next else { return Ok(()) };
        let body = Sending::new(shared, link, frame);
        let place = &mut bodies[body.lane.index()];
        *place = Some(body);
    }
}

async fn flush(
    link: &Link,
    channel: usize,
    to: &mut Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    let sent = to.flush().await?;
    link.sent[channel].fetch_add(sent, Ordering::Relaxed);
    Ok(())
}

/// The result of a step of sending a body.
enum SendState {
    /// Nothing can be sent of it so far.
    Waits,
    /// A part of it is ready to be sent, and there are more.
    Goes,
    /// The body ends with this part.
    Ends,
}

/// A body that is being sent.
struct Sending<'a> {
    shared: &'a Arc<Shared>,
    link: &'a Arc<Link>,
    frame: Frame<BodyHeader>,
    lane: Lane,
    next: Next,
}

/// The next part of a body.
enum Next {
    /// The whole body at once.
    All,
    /// Its first part, once the hashes of its pieces are known.
    Beginning(Coming),
    /// The hashes, from this message of them on.
    Hashes(Arc<Outline>, usize),
    /// The pieces from this one on.
    Pieces(Arc<Outline>, u32),
}

/// The hashes of a body's pieces, while they are awaited. Otherwise a replica that demands and withdraws
/// bodies repeatedly would leave a task behind each time.
struct Coming {
    found: oneshot::Receiver<Found>,
    waiting: AbortHandle,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

impl<'a> Sending<'a> {
    fn new(shared: &'a Arc<Shared>, link: &'a Arc<Link>, frame: Frame<BodyHeader>) -> Self {
        let lane = Lanes::default().of_body(&frame.message);
        let next = match content(&frame.message) {
            Some(content) if content.size.0 > PIECE as u64 => {
                let (outlines, body_reader) = (shared.outlines.clone(), shared.body_reader.clone());
                let (link, demand) = (Arc::clone(link), frame.message.demand);
                let (sender, found) = oneshot::channel();
                // This may have to read the whole body; other bodies continue meanwhile.
                let waiting = tokio::spawn(async move {
                    let _ = sender.send(outlines.get_or_read(&body_reader, &content, None).await);
                    let wakes = if demand { &link.demand } else { &link.speculative };
                    wakes.notify_one();
                });
                Next::Beginning(Coming { found, waiting: waiting.abort_handle() })
            }
            _ => Next::All,
        };
        Sending { shared, link, frame, lane, next }
    }

    /// Queues the next part.
    async fn part(
        &mut self,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
    ) -> Result<SendState, LinkError> {
        let Some(content) = content(&self.frame.message) else {
            self.ends(true);
            self.header(to)?;
            return Ok(SendState::Ends);
        };
        match &mut self.next {
            Next::All => self.all(content, to).await,
            Next::Beginning(coming) => {
                let found = coming.found.try_recv();
                self.beginning(content, found, to).await
            }
            Next::Hashes(outline, number) => {
                let (outline, number) = (Arc::clone(outline), *number);
                self.hashes(outline, number, to)
            }
            Next::Pieces(outline, number) => {
                let (outline, number) = (Arc::clone(outline), *number);
                self.piece(content, outline, number, to).await
            }
        }
    }

    /// The whole of a body that fits into one piece.
    async fn all(
        &self,
        content: Content,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
    ) -> Result<SendState, LinkError> {
        let (lane, digest) = (self.lane, content.digest);
        let bytes = self.ask_store(&content, move |body_reader| body_reader.read(&digest)).await?;
        self.ends(bytes.is_some());
        self.header(to)?;
        let part = match bytes {
            Some(bytes) => BodyPart::Piece { lane, number: 0, bytes: bytes.to_vec() },
            None => BodyPart::Broken { lane },
        };
        self.put(to, part)?;
        Ok(SendState::Ends)
    }

    /// The header, once the hashes of the pieces are `found`.
    async fn beginning(
        &mut self,
        content: Content,
        found: Result<Found, TryRecvError>,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
    ) -> Result<SendState, LinkError> {
        let outline = match found {
            Ok(found) => {
                let outline = found?;
                if outline.is_none() {
                    check_again(self.shared, &content).await?;
                }
                outline
            }
            Err(TryRecvError::Empty) if self.is_wanted() => return Ok(SendState::Waits),
            Err(TryRecvError::Empty) => None,
            // Only when the runtime ends.
            Err(TryRecvError::Closed) => return Err(LinkError::GivenUp),
        };
        self.header(to)?;
        let Some(outline) = outline else { return self.broken(to) };
        self.next = Next::Hashes(outline, 0);
        Ok(SendState::Goes)
    }

    /// The message of hashes with this number, if there are so many.
    fn hashes(
        &mut self,
        outline: Arc<Outline>,
        number: usize,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
    ) -> Result<SendState, LinkError> {
        // The hashes of a long body take as long as some pieces.
        if !self.is_wanted() {
            return self.broken(to);
        }
        match outline.part(self.lane, number) {
            Some(part) => {
                self.put(to, part)?;
                self.next = Next::Hashes(outline, number + 1);
            }
            None => self.next = Next::Pieces(outline, 0),
        }
        Ok(SendState::Goes)
    }

    /// The piece with this number.
    async fn piece(
        &mut self,
        content: Content,
        outline: Arc<Outline>,
        number: u32,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
    ) -> Result<SendState, LinkError> {
        if !self.is_wanted() {
            return self.broken(to);
        }
        let Content { digest, size, .. } = content;
        let piece = move |body_reader: &BodyReader| body_reader.piece(&digest, size, number);
        let Some(bytes) = self.ask_store(&content, piece).await? else { return self.broken(to) };
        if !outline.has(number, &bytes) {
            check_again(self.shared, &content).await?;
            return self.broken(to);
        }
        let is_last = u64::from(number) + 1 == size.0.div_ceil(PIECE as u64);
        if is_last {
            self.ends(true);
        }
        let lane = self.lane;
        self.put(to, BodyPart::Piece { lane, number, bytes: bytes.to_vec() })?;
        self.next = Next::Pieces(outline, number + 1);
        Ok(if is_last { SendState::Ends } else { SendState::Goes })
    }

    fn header(&self, to: &mut Outgoing<impl AsyncWrite + Unpin>) -> Result<(), LinkError> {
        self.put(to, BodyPart::Header(self.frame.message.clone()))
    }

    fn broken(&self, to: &mut Outgoing<impl AsyncWrite + Unpin>) -> Result<SendState, LinkError> {
        self.ends(false);
        self.put(to, BodyPart::Broken { lane: self.lane })?;
        Ok(SendState::Ends)
    }

    /// The machine learns of the end before that leaves, because the replica may confirm it at once.
    fn ends(&self, whole: bool) {
        if !self.frame.message.demand {
            return;
        }
        self.shared.with(|core, _| {
            core.machine.handle_demand_sent(self.link.replica, &self.frame, whole);
        });
        if !whole {
            // It may have to be pushed now.
            self.link.speculative.notify_one();
        }
    }

    fn is_wanted(&self) -> bool {
        let replica = self.link.replica;
        self.shared.with(|core, _| {
            let machine = &mut core.machine;
            machine.is_wanted(replica, &self.frame) && !machine.hand_over(replica, &self.frame)
        })
    }

    /// Asks the store. A missing body may be lost.
    async fn ask_store<T: Send + 'static>(
        &self,
        content: &Content,
        ask: impl Fn(&BodyReader) -> Result<Option<T>, StoreError> + Clone + Send + 'static,
    ) -> Result<Option<T>, LinkError> {
        let found = read_with_retries(&self.shared.body_reader, None, ask).await?;
        if found.is_none() {
            check_again(self.shared, content).await?;
        }
        Ok(found)
    }

    fn put(
        &self,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
        message: BodyPart,
    ) -> Result<(), LinkError> {
        Ok(to.put(&Frame { session: self.frame.session, message })?)
    }
}

/// The content that follows a header, if any.
fn content(header: &BodyHeader) -> Option<Content> {
    let content = header.version.filter(|_| !header.lost)?.content;
    (content.size.0 > 0).then_some(content)
}

/// A pinned body, which is not deleted.
struct Pinned<'a> {
    shared: &'a Shared,
    pin: Pin,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.shared.try_with(|core, _| core.machine.unpin(self.pin));
    }
}

/// A body was missing or corrupt. It is lost only if a second look fails after it can no longer be deleted:
/// it may have been dropped before the first look, and stored again since.
pub(super) async fn check_again(shared: &Shared, content: &Content) -> Result<(), StoreError> {
    let Content { digest, size, .. } = *content;
    let Some(pin) = shared.with(|core, _| core.machine.pin(&digest)) else { return Ok(()) };
    let _pinned = Pinned { shared, pin };
    let found = read_with_retries(&shared.body_reader, None, move |body_reader| {
        body_reader.outline(&digest, size)
    })
    .await?;
    if found.is_none() {
        shared.with(|core, now| core.machine.handle_missing(now, &digest));
    }
    Ok(())
}
