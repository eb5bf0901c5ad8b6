//! Bodies on their way to a replica, in pieces.

mod ranges;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lull_cc::Bytes;
use lull_replication::Pin;
use lull_replication::lane::{Lane, Lanes};
use lull_replication::message::{BodyHeader, Channel, Frame};
use lull_replication::origin::{LONG, Origin};
use lull_replication::path::Path;
use lull_replication::types::{Content, Digest};
use lull_replication::wire::{BodyPart, Outline, PIECE};
use tokio::io::AsyncWrite;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::AbortHandle;

use super::child::Link;
use super::chunk_lists::{ChunkLists, Chunks};
use super::link::Outgoing;
use super::outlines::Outlines;
use super::spool::{Spool, SpooledPiece};
use super::{LinkError, blocking, read_with_retries};
use crate::store::{Body, BodyReader, StoreError};

/// The hashes of a body's pieces; none if it is missing or corrupt.
type Found = Result<Option<Arc<Outline>>, StoreError>;

/// A daemon that serves replicas.
pub(super) trait Serves: Send + Sync + 'static {
    /// A call of the machine that the replicas see, and its effects.
    fn with_machine<T>(&self, call: impl FnOnce(&mut Origin<Body>) -> T) -> T;

    /// The same, if the link is still that of its replica.
    fn with_link<T>(
        &self,
        link: &Arc<Link>,
        call: impl FnOnce(&mut Origin<Body>) -> T,
    ) -> Result<T, LinkError>;

    /// Keeps a body in the store.
    fn pin(&self, digest: &Digest) -> Option<Pin>;

    /// Keeps it no longer, also after a panic.
    fn unpin(&self, pin: Pin);

    /// The store does not have a body.
    fn handle_missing(&self, digest: &Digest);

    /// Reads the store.
    fn body_reader(&self) -> &BodyReader;

    /// The outlines of its bodies.
    fn outlines(&self) -> &Outlines;

    /// Their chunks.
    fn chunk_lists(&self) -> &ChunkLists;

    /// Gets the body of an object that is not here, if that is possible. It may be deleted again.
    fn bring(self: &Arc<Self>, _path: &Path) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// A body that still arrives here, and can be passed on.
    fn spool(&self, _digest: &Digest) -> Option<Arc<Spool>> {
        None
    }
}

/// Sends the bodies of a channel, as fast as the connection accepts them. The background connection accepts
/// as much as there is spare capacity, at which rate the queue drains (SSR §6.2).
pub(super) async fn send<S: Serves>(
    shared: &Arc<S>,
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
async fn pushed<S: Serves>(
    shared: &Arc<S>,
    link: &Arc<Link>,
    mut to: Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    loop {
        let next = |machine: &mut Origin<Body>| {
            link.set_urgent(machine.is_urgent(link.replica));
            next_pushed(machine, link)
        };
        let (small, large) = shared.with_link(link, next)?;
        if small.is_empty() && large.is_none() {
            link.speculative.notified().await;
            continue;
        }
        if !small.is_empty() {
            put_small(&**shared, small, &mut to).await?;
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
fn next_pushed(
    machine: &mut Origin<Body>,
    link: &Link,
) -> (Vec<Frame<BodyHeader>>, Option<Frame<BodyHeader>>) {
    /// The approximate cost of one beside its bytes.
    const EACH: u64 = 256;
    let (mut small, mut bytes) = (Vec::new(), 0);
    while bytes < PIECE as u64
        && let Some(frame) = machine.poll_speculative(link.replica)
    {
        let size = content(&frame.message).map_or(0, |content| content.size.0);
        if size > PIECE as u64 {
            return (small, Some(frame));
        }
        bytes += EACH + size;
        small.push(frame);
    }
    (small, None)
}

/// Queues bodies of one piece each.
async fn put_small<S: Serves>(
    shared: &S,
    frames: Vec<Frame<BodyHeader>>,
    to: &mut Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    let contents: Vec<_> = frames.iter().map(|frame| content(&frame.message)).collect();
    let wanted = contents.clone();
    let read = move |body_reader: &BodyReader| {
        let read = |content: Content| body_reader.read(&content.digest);
        wanted.iter().map(|content| content.map_or(Ok(None), read)).collect()
    };
    let found: Vec<_> = read_with_retries(shared.body_reader(), None, read).await?;
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
async fn demanded<S: Serves>(
    shared: &Arc<S>,
    link: &Arc<Link>,
    mut to: Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    let mut bodies: [Option<Sending<'_, S>>; Lane::COUNT] = Default::default();
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
fn fill<'a, S: Serves>(
    shared: &'a Arc<S>,
    link: &'a Arc<Link>,
    bodies: &mut [Option<Sending<'a, S>>; Lane::COUNT],
) -> Result<(), LinkError> {
    loop {
        let next = shared.with_link(link, |machine| machine.poll_demand_in_turn(link.replica))?;
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
    if channel == 2 && link.is_urgent() {
        link.sent[3].fetch_add(sent, Ordering::Relaxed);
    }
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
struct Sending<'a, S> {
    shared: &'a Arc<S>,
    link: &'a Arc<Link>,
    frame: Frame<BodyHeader>,
    lane: Lane,
    next: Next,
    /// Where its pieces come from, if it still arrives here.
    spool: Option<Arc<Spool>>,
    /// The pieces that the replica wants, if it has said that.
    ranges: Vec<(u32, u32)>,
    /// It wants others later.
    has_more: bool,
    /// Its number on the channel, if it is long.
    number: u64,
}

/// The next part of a body.
enum Next {
    /// The whole body at once.
    All,
    /// Its first part, once the hashes of its pieces are known.
    Beginning(Coming<Found>),
    /// Its first part, with these hashes.
    Header(Arc<Outline>),
    /// The hashes, from this message of them on.
    Hashes(Arc<Outline>, usize),
    /// Waits for the pieces that the replica selects by these hashes.
    Answer(Arc<Outline>),
    /// The chunks, once they are known.
    Chunking(Arc<Outline>, Coming<Result<Chunks, StoreError>>),
    /// The chunks, from this message of them on.
    Chunks(Arc<Outline>, Chunks, usize),
    /// The pieces from this one on.
    Pieces(Arc<Outline>, u32),
}

/// The hashes of a body's pieces or chunks, while they are awaited. Otherwise a replica that demands and withdraws
/// bodies repeatedly would leave a task behind each time.
struct Coming<T> {
    found: oneshot::Receiver<T>,
    waiting: AbortHandle,
}

impl<T> Drop for Coming<T> {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

impl<'a, S: Serves> Sending<'a, S> {
    fn new(shared: &'a Arc<S>, link: &'a Arc<Link>, frame: Frame<BodyHeader>) -> Self {
        let lane = Lanes::default().of_body(&frame.message);
        let spool = content(&frame.message).and_then(|content| shared.spool(&content.digest));
        if let Some(spool) = spool {
            spool.watch(link);
            let (next, ranges) = (Next::Header(Arc::clone(spool.outline())), Vec::new());
            let (spool, has_more, number) = (Some(spool), false, 0);
            return Sending { shared, link, frame, lane, next, spool, ranges, has_more, number };
        }
        let next = match content(&frame.message) {
            Some(content) if content.size.0 > PIECE as u64 => {
                let (outlines, body_reader) =
                    (shared.outlines().clone(), shared.body_reader().clone());
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
        let (spool, ranges, has_more, number) = (None, Vec::new(), false, 0);
        Sending { shared, link, frame, lane, next, spool, ranges, has_more, number }
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
            Next::Header(outline) => {
                let outline = Arc::clone(outline);
                self.header(to)?;
                self.next = Next::Hashes(outline, 0);
                Ok(SendState::Goes)
            }
            Next::Hashes(outline, number) => {
                let (outline, number) = (Arc::clone(outline), *number);
                self.hashes(outline, number, to)
            }
            Next::Answer(outline) => {
                let outline = Arc::clone(outline);
                self.answer(content, outline, to)
            }
            Next::Chunking(outline, coming) => {
                let (outline, found) = (Arc::clone(outline), coming.found.try_recv());
                self.chunking(outline, found, to)
            }
            Next::Chunks(outline, chunks, number) => {
                let (outline, chunks, number) = (Arc::clone(outline), Arc::clone(chunks), *number);
                self.chunks(outline, chunks, number, to)
            }
            Next::Pieces(outline, number) => {
                let (outline, number) = (Arc::clone(outline), *number);
                self.piece(content, outline, number, to).await
            }
        }
    }

    /// The whole of a body that fits into one piece.
    async fn all(
        &mut self,
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
                    check_again(&**self.shared, &content).await?;
                }
                outline
            }
            Err(TryRecvError::Empty) if self.is_wanted(0) => return Ok(SendState::Waits),
            Err(TryRecvError::Empty) => None,
            // Only when the runtime ends.
            Err(TryRecvError::Closed) => return Err(LinkError::GivenUp),
        };
        self.header(to)?;
        let Some(outline) = outline else { return self.cut_off(to) };
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
        if !self.is_wanted(0) {
            return self.broken(to);
        }
        match outline.part(self.lane, number) {
            Some(part) => {
                self.put(to, part)?;
                self.next = Next::Hashes(outline, number + 1);
            }
            None => {
                let replica = self.link.replica;
                let (first, is_answered) = self.shared.with_machine(|machine| {
                    let first = machine.first_piece(replica, &self.frame);
                    (first, machine.is_answered(replica, &self.frame))
                });
                self.next = match is_answered {
                    true => Next::Answer(outline),
                    false => Next::Pieces(outline, first),
                };
            }
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
        if !self.is_wanted(number) {
            return self.broken(to);
        }
        let Content { digest, size, .. } = content;
        let bytes = if let Some(spool) = self.spool.clone() {
            match blocking(move || spool.piece(number)).await.ok_or(LinkError::GivenUp)?? {
                SpooledPiece::Here(bytes) => bytes,
                SpooledPiece::Waits => return Ok(SendState::Waits),
                SpooledPiece::Cut => return self.cut_off(to),
            }
        } else {
            let piece = move |body_reader: &BodyReader| body_reader.piece(&digest, size, number);
            match self.ask_store(&content, piece).await? {
                Some(bytes) => bytes.to_vec(),
                None => return self.cut_off(to),
            }
        };
        if !outline.has(number, &bytes) {
            if self.spool.is_some() {
                return self.cut_off(to);
            }
            check_again(&**self.shared, &content).await?;
            return self.broken(to);
        }
        let is_last = u64::from(number) + 1 == size.0.div_ceil(PIECE as u64);
        if is_last {
            self.ends(true);
        }
        let lane = self.lane;
        self.put(to, BodyPart::Piece { lane, number, bytes })?;
        self.next = match ranges::is_behind(&self.ranges, number) && self.has_more {
            true => Next::Answer(outline),
            false => Next::Pieces(outline, ranges::after(&self.ranges, number)),
        };
        Ok(if is_last { SendState::Ends } else { SendState::Goes })
    }

    fn header(&mut self, to: &mut Outgoing<impl AsyncWrite + Unpin>) -> Result<(), LinkError> {
        if content(&self.frame.message).is_some_and(|content| content.size > LONG) {
            self.number = self.link.begin_long(self.frame.message.demand);
        }
        self.put(to, BodyPart::Header(self.frame.message.clone()))
    }

    fn broken(&self, to: &mut Outgoing<impl AsyncWrite + Unpin>) -> Result<SendState, LinkError> {
        self.ends(false);
        self.put(to, BodyPart::Broken { lane: self.lane })?;
        Ok(SendState::Ends)
    }

    /// The rest is not here. At a relay it may come later.
    fn cut_off(&self, to: &mut Outgoing<impl AsyncWrite + Unpin>) -> Result<SendState, LinkError> {
        let replica = self.link.replica;
        self.shared.with_machine(|machine| machine.handle_cut_off(replica, &self.frame));
        self.broken(to)
    }

    /// The machine learns of the end before that leaves, because the replica may confirm it at once.
    fn ends(&self, whole: bool) {
        let is_demanded = self.frame.message.demand;
        if !is_demanded && whole {
            return;
        }
        self.shared.with_machine(|machine| {
            if is_demanded {
                machine.handle_demand_sent(self.link.replica, &self.frame, whole);
            } else {
                machine.handle_push_cut_off(self.link.replica, &self.frame);
            }
        });
        if !whole {
            // It may have to be pushed now.
            self.link.speculative.notify_one();
        }
    }

    /// Whether the rest is of use, after this many pieces.
    fn is_wanted(&self, sent: u32) -> bool {
        let replica = self.link.replica;
        self.shared.with_machine(|machine| {
            if !self.frame.message.demand {
                let sent = Bytes(u64::from(sent) * PIECE as u64);
                machine.handle_part_sent(replica, &self.frame, sent);
                self.link.set_urgent(machine.is_urgent(replica));
            }
            machine.is_wanted(replica, &self.frame) && !machine.hand_over(replica, &self.frame)
        })
    }

    /// Asks the store. A missing body may be lost.
    async fn ask_store<T: Send + 'static>(
        &self,
        content: &Content,
        ask: impl Fn(&BodyReader) -> Result<Option<T>, StoreError> + Clone + Send + 'static,
    ) -> Result<Option<T>, LinkError> {
        let found = read_with_retries(self.shared.body_reader(), None, ask).await?;
        if found.is_none() {
            check_again(&**self.shared, content).await?;
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
struct Pinned<'a, S: Serves> {
    shared: &'a S,
    pin: Pin,
}

impl<S: Serves> Drop for Pinned<'_, S> {
    fn drop(&mut self) {
        self.shared.unpin(self.pin);
    }
}

/// A body was missing or corrupt. It is lost only if a second look fails after it can no longer be deleted:
/// it may have been dropped before the first look, and stored again since.
pub(super) async fn check_again<S: Serves>(
    shared: &S,
    content: &Content,
) -> Result<(), StoreError> {
    let Content { digest, size, .. } = *content;
    let Some(pin) = shared.pin(&digest) else { return Ok(()) };
    let _pinned = Pinned { shared, pin };
    let found = read_with_retries(shared.body_reader(), None, move |body_reader| {
        body_reader.outline(&digest, size)
    })
    .await?;
    if found.is_none() {
        shared.handle_missing(&digest);
    }
    Ok(())
}
