//! Answers that are read from the upstream before their client takes them.
//!
//! A prefetching client reads an answer slowly on purpose. It would hold a connection to the upstream, and
//! one of the allowed requests, for as long. So small answers are stored here.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::body::Body;
use super::error::Failure;
use super::upstream::UpstreamBody;

/// Bytes of one answer that are stored here, at most.
const MAX_BYTES: usize = 256 << 10;
/// Number of answers of one thread that are stored here. Others pass as they are taken.
pub(crate) const MAX_ANSWERS: usize = 128;

/// An answer that is still incomplete this long after its head occupies nothing at the upstream that could be
/// freed. From then on the scheduler neither counts nor stops it.
const HELD: Duration = lull_speculate::scheduler::BODY;

/// A result: a frame, a failure, or the end.
type Taken = Option<Result<Frame<Bytes>, Failure>>;

struct Spool {
    /// The results that were read already.
    held: VecDeque<Taken>,
    taken: UnboundedReceiver<Taken>,
    /// Bytes for which there is room.
    room: Arc<Semaphore>,
    /// Bytes still to come, if known.
    rest: Option<u64>,
    _place: OwnedSemaphorePermit,
}

/// The same, once all of it is here, or half of the capacity, or [`HELD`] has passed.
///
/// # Errors
/// If it was cut off by then.
pub(crate) async fn held(body: UpstreamBody, places: &Arc<Semaphore>) -> Result<Body, Failure> {
    let mut spool = match spool(body, places) {
        Ok(spool) => spool,
        Err(body) => return Ok(Body::upstream(body)),
    };
    let (mut bytes, until) = (0, Instant::now() + HELD);
    while bytes < MAX_BYTES / 2 {
        let Ok(taken) = timeout_at(until, spool.taken.recv()).await else { break };
        match taken.unwrap_or(Some(Err(Failure::Reset))) {
            Some(Err(failure)) => return Err(failure),
            Some(Ok(frame)) => {
                bytes += weight(&frame) as usize;
                spool.held.push_back(Some(Ok(frame)));
            }
            None => {
                spool.held.push_back(None);
                break;
            }
        }
    }
    Ok(Body::wrap(spool))
}

/// `body`, which a separate task reads from now on, if there is a place for it.
pub(crate) fn spooled(body: UpstreamBody, places: &Arc<Semaphore>) -> Body {
    spool(body, places).map_or_else(Body::upstream, Body::wrap)
}

/// Returns it if there is no slot, or nothing to read.
fn spool(body: UpstreamBody, places: &Arc<Semaphore>) -> Result<Spool, UpstreamBody> {
    if body.is_end_stream() {
        return Err(body);
    }
    let Ok(place) = Arc::clone(places).try_acquire_owned() else { return Err(body) };
    let (to, taken) = unbounded_channel();
    let room = Arc::new(Semaphore::new(MAX_BYTES));
    let rest = body.size_hint().exact();
    tokio::spawn(take(body, to, Arc::clone(&room)));
    Ok(Spool { held: VecDeque::new(), taken, room, rest, _place: place })
}

/// Reads an answer to its end, or until it is no longer wanted.
async fn take(mut body: UpstreamBody, to: UnboundedSender<Taken>, room: Arc<Semaphore>) {
    loop {
        let frame = tokio::select! {
            frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)) => frame,
            () = to.closed() => return,
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            end => {
                let _ = to.send(end);
                return;
            }
        };
        let (needs, is_last) = (weight(&frame), frame.is_trailers() || body.is_end_stream());
        if to.send(Some(Ok(frame))).is_err() {
            return;
        }
        if is_last {
            let _ = to.send(None);
            return;
        }
        tokio::select! {
            permit = room.acquire_many(needs) => match permit {
                Ok(permit) => permit.forget(),
                Err(_) => return,
            },
            () = to.closed() => return,
        }
    }
}

/// The space of a frame: never more than the capacity.
fn weight(frame: &Frame<Bytes>) -> u32 {
    frame.data_ref().map_or(0, |data| data.len().min(MAX_BYTES) as u32)
}

impl HttpBody for Spool {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.rest == Some(0) {
            return Poll::Ready(None);
        }
        // Without its end, the body is incomplete.
        let taken = match self.held.pop_front() {
            Some(held) => held,
            None => ready!(self.taken.poll_recv(cx)).unwrap_or(Some(Err(Failure::Reset))),
        };
        match &taken {
            Some(Ok(frame)) => {
                self.room.add_permits(weight(frame) as usize);
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.rest = self.rest.map(|rest| rest.saturating_sub(bytes));
            }
            Some(Err(_)) => {}
            None => self.rest = Some(0),
        }
        Poll::Ready(taken)
    }

    fn is_end_stream(&self) -> bool {
        self.rest == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.rest.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
