//! Gives pieces to neighbours.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lull_cc::Bytes;
use lull_replication::Pin;
use lull_replication::exchange::MOST_OWED;
use lull_replication::message::{Channel, Frame, Session};
use lull_replication::time::LocalTime;
use lull_replication::types::{Digest, ReplicaId};
use lull_replication::wire::{FromNeighbour, ToNeighbour};
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::Sharing;
use super::running::Running;
use crate::daemon::clock::certificate_time;
use crate::daemon::link::{Incoming, Outgoing, answer, prepare, soon};
use crate::daemon::priority::ConnectionPriority;
use crate::daemon::replica::{ReplicaEvent, Shared, lock};
use crate::daemon::unidentified::ConnectionSlot;
use crate::daemon::{LinkError, accept as accepting, blocking};
use crate::store::BodyReader;

/// How long a body is awaited that is not here: the asking neighbour may be ahead.
const HOLD: Duration = Duration::from_secs(5);
/// How often such bodies are looked for.
const PAUSE: Duration = Duration::from_millis(250);
/// How long a connection may ask for nothing.
const IDLE: Duration = Duration::from_secs(120);

/// Accepts connections of neighbours until the daemon ends, and then waits for the open ones to end.
pub(in crate::daemon::replica) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    if let Ok(address) = listener.local_addr() {
        (shared.on_event)(ReplicaEvent::Sharing(address));
    }
    accepting::accept(shared, listener, |shared, tcp, from, slot| async move {
        serve(&shared, tcp, from, slot).await
    })
    .await;
}

/// One connection. An error means that it was never established.
async fn serve(
    shared: &Arc<Shared>,
    tcp: TcpStream,
    _: SocketAddr,
    slot: ConnectionSlot,
) -> Result<(), LinkError> {
    prepare(&tcp)?;
    let sharing = shared.sharing.as_ref().ok_or(LinkError::GivenUp)?;
    let asked = Arc::downgrade(shared);
    let is_named = move |shown: &Digest| {
        let shared = asked.upgrade();
        let sharing = shared.as_ref().and_then(|shared| shared.sharing.as_ref());
        sharing.is_some_and(|sharing| sharing.find(shown).is_some())
    };
    let config = lock(&shared.identity)
        .accept_neighbours(certificate_time(&shared.clock), Arc::new(is_named))?;
    let mut stream = soon(async { Ok(TlsAcceptor::from(config).accept(tcp).await?) }).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
    let certificate = shown.map(|first| Digest::of(first)).ok_or(LinkError::Order)?;
    if soon(answer(&mut stream)).await? != Channel::Exchange {
        return Err(LinkError::Order);
    }
    let _priority = ConnectionPriority::background(&sharing.background, stream.get_ref().0)?;
    drop(slot);
    // Its ends are those of exchanges.
    let _ = Giving { shared, sharing, certificate, asks: Vec::new() }.run(stream).await;
    Ok(())
}

/// A question without an answer so far.
struct Question {
    digest: Digest,
    size: Bytes,
    number: u32,
    since: LocalTime,
    /// The exchange that knows it.
    known_by: Option<Weak<Running>>,
}

/// A connection of a neighbour.
struct Giving<'a> {
    shared: &'a Arc<Shared>,
    sharing: &'a Sharing,
    certificate: Digest,
    asks: Vec<Question>,
}

/// A body that is not deleted.
struct Pinned<'a>(&'a Shared, Pin);

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.0.try_with(|core, _| core.machine.unpin(self.1));
    }
}

impl Giving<'_> {
    async fn run(mut self, stream: impl AsyncRead + AsyncWrite) -> Result<(), LinkError> {
        let (read, write) = split(stream);
        let mut incoming = Incoming::<_, ToNeighbour>::new(read);
        let mut outgoing = Outgoing::new(write);
        let mut news = self.sharing.news.subscribe();
        loop {
            news.mark_unchanged();
            // The parent may name it no longer.
            let neighbour = self.sharing.find(&self.certificate).ok_or(LinkError::GivenUp)?;
            while let Some(message) = self.next(neighbour.replica).await? {
                let frame = Frame { session: Session::default(), message };
                outgoing.put(&frame)?;
                outgoing.flush().await?;
                if let FromNeighbour::Piece { bytes, .. } = &frame.message {
                    self.sharing.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                }
            }
            let is_idle = self.asks.is_empty();
            tokio::select! {
                frame = incoming.next() => self.handle(neighbour.replica, frame?.message),
                _ = news.changed() => {}
                () = tokio::time::sleep(PAUSE), if !is_idle => {}
                () = tokio::time::sleep(IDLE), if is_idle => return Err(LinkError::Silent),
            }
        }
    }

    fn handle(&mut self, from: ReplicaId, question: ToNeighbour) {
        let ToNeighbour::Ask { digest, size, number } = question;
        if self.asks.len() >= MOST_OWED {
            self.asks.remove(0);
        }
        let since = self.shared.clock.read().local;
        self.asks.push(Question { digest, size, number, since, known_by: None });
        self.ask(from);
    }

    /// Passes the questions on to the running exchanges, which may have begun since. If one has ended, the body may
    /// be on its way to the store.
    fn ask(&mut self, from: ReplicaId) {
        let now = self.shared.clock.read().local;
        let running = lock(&self.sharing.running);
        for one in &mut self.asks {
            let knows = |running: &Arc<Running>, known_by: &Weak<Running>| {
                core::ptr::eq(known_by.as_ptr(), Arc::as_ptr(running))
            };
            match (running.get(&one.digest), &one.known_by) {
                (Some(running), Some(known_by)) if knows(running, known_by) => {}
                (Some(running), _) => {
                    running.handle_asked(from, one.number);
                    one.known_by = Some(Arc::downgrade(running));
                }
                (None, Some(_)) => (one.known_by, one.since) = (None, now),
                (None, None) => {}
            }
        }
    }

    /// The next answer, if there is one.
    async fn next(&mut self, to: ReplicaId) -> Result<Option<FromNeighbour>, LinkError> {
        if self.asks.is_empty() {
            return Ok(None);
        }
        self.ask(to);
        for at in 0..self.asks.len() {
            let Question { digest, number, .. } = self.asks[at];
            let running = lock(&self.sharing.running).get(&digest).cloned();
            let found = match running {
                Some(running) => loop {
                    let Some(number) = running.poll_answer(to) else { break None };
                    let of = Arc::clone(&running);
                    let piece = blocking(move || of.piece(number)).await;
                    if let Some(bytes) = piece.ok_or(LinkError::GivenUp)?? {
                        break Some((number, bytes));
                    }
                    // It came in an earlier transfer, and is not readable so far: it is looked for again.
                    let of_it = self.asks.iter_mut().filter(|one| one.number == number);
                    of_it.for_each(|one| one.known_by = None);
                },
                None => self.stored(&self.asks[at]).await?.map(|bytes| (number, bytes)),
            };
            if let Some((number, bytes)) = found {
                self.asks.retain(|one| (one.digest, one.number) != (digest, number));
                return Ok(Some(FromNeighbour::Piece { number, bytes }));
            }
        }
        Ok(self.absent().then_some(FromNeighbour::Absent))
    }

    /// A piece of a body in the store.
    async fn stored(&self, question: &Question) -> Result<Option<Vec<u8>>, LinkError> {
        let Question { digest, size, number, .. } = *question;
        let pin = self.shared.with(|core, _| core.machine.pin(&digest));
        let Some(pin) = pin else { return Ok(None) };
        let _pinned = Pinned(self.shared, pin);
        let reader: BodyReader = self.shared.body_reader.clone();
        let read = blocking(move || reader.piece(&digest, size, number)).await;
        let piece = read.ok_or(LinkError::GivenUp)??;
        Ok(piece.map(|bytes| bytes.to_vec()))
    }

    /// Whether a body that was asked for is neither here nor on its way. Then it is asked for no longer.
    fn absent(&mut self) -> bool {
        let now = self.shared.clock.read().local;
        let running = lock(&self.sharing.running);
        let is_absent =
            |one: &Question| !running.contains_key(&one.digest) && now.since(one.since) >= HOLD;
        let before = self.asks.len();
        self.asks.retain(|one| !is_absent(one));
        self.asks.len() < before
    }
}
