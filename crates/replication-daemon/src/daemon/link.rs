//! One connection: TCP, prefaces, then frames.

use core::time::Duration;
use std::io;

use lull_replication::message::{Channel, Frame};
use lull_replication::wire::{Frames, Message, PREFACE, Preface, Unexpected, WireError, encode};
use socket2::SockRef;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::identity::{IdentityError, NotAdmitted};
use crate::store::StoreError;

/// The limit of the other side for a handshake, a preface or a first message.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// A connection ends when data stays unacknowledged for this long. A background connection may send a packet
/// only every few seconds, but each is acknowledged.
const DEAD: Duration = Duration::from_secs(120);
/// Bytes that are read at a time.
const CHUNK: usize = 64 * 1024;

/// Why a connection has ended, or could not be made.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The other side has closed it.
    #[error("the peer closed the connection")]
    Closed,
    /// The other side was silent for too long.
    #[error("the peer is silent")]
    Silent,
    /// A newer connection has replaced it, or the daemon closes it.
    #[error("the connection was abandoned")]
    GivenUp,
    /// Bodies from there do not have their hashes.
    #[error("the peer sends wrong bytes")]
    WrongBytes,
    /// A relay is back that comes before the present one.
    #[error("an earlier relay is back")]
    Returns,
    /// The network failed, or TLS did.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// The bytes violate the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A part of a body came out of order.
    #[error(transparent)]
    Part(#[from] Unexpected),
    /// It has too many connections that have not named their channel.
    #[error("this address has too many connections that have sent nothing")]
    SlotsExhausted,
    /// The first message of the connection has the wrong kind.
    #[error("the peer began with an unexpected message: install the same release on both")]
    Order,
    /// The number of its life, or of the connection, is not above the previous one.
    #[error(
        "an earlier start of this replica had a higher number: its folder may be restored from a \
         backup, or its clock was ahead. Let it join again with a new ticket"
    )]
    Earlier,
    /// The connecting side is not admitted.
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    /// The identity cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The connection cannot be put in the background.
    #[error(transparent)]
    Background(#[from] lull_transport::Error),
    /// The store has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Bytes that the system buffers beyond those that it may send now. They can no longer be overtaken or
/// cancelled.
const UNSENT: u32 = 128 * 1024;

/// Sets the common options of all connections.
pub(super) fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let socket = SockRef::from(tcp);
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_user_timeout(Some(DEAD))
}

/// Waits for something that should come soon.
pub(super) async fn soon<T>(
    future: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, LinkError> {
    timeout(TIMEOUT, future).await.unwrap_or(Err(LinkError::Silent))
}

/// The prefaces, from the side that has connected: returns the version to speak.
pub(super) async fn ask<S>(stream: &mut S, channel: Channel) -> Result<u16, LinkError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ours = Preface::ours(channel);
    stream.write_all(&ours.encode()).await?;
    stream.flush().await?;
    let theirs = read_preface(stream).await?;
    let version = ours.agree(theirs)?;
    if theirs.channel == channel { Ok(version) } else { Err(LinkError::Order) }
}

/// The prefaces, from the answering side: returns the channel.
pub(super) async fn answer<S>(stream: &mut S) -> Result<Channel, LinkError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let theirs = read_preface(stream).await?;
    let ours = Preface::ours(theirs.channel);
    // Sent in any case, so that the other side can report which versions are supported here.
    stream.write_all(&ours.encode()).await?;
    stream.flush().await?;
    ours.agree(theirs)?;
    Ok(theirs.channel)
}

async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> Result<Preface, LinkError> {
    let mut bytes = [0; PREFACE];
    match stream.read_exact(&mut bytes).await {
        Ok(_) => Ok(Preface::decode(bytes)?),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(LinkError::Closed),
        Err(error) => Err(error.into()),
    }
}

/// The receiving side of a connection.
#[derive(Debug)]
pub(crate) struct Incoming<S, M> {
    stream: S,
    frames: Frames<M>,
    chunk: Vec<u8>,
}

impl<S: AsyncRead + Unpin, M: Message> Incoming<S, M> {
    pub(crate) fn new(stream: S) -> Self {
        Incoming { stream, frames: Frames::default(), chunk: vec![0; CHUNK] }
    }

    /// The next message. The future may be dropped and made again: nothing is lost in between.
    pub(crate) async fn next(&mut self) -> Result<Frame<M>, LinkError> {
        loop {
            if let Some(frame) = self.here()? {
                return Ok(frame);
            }
            self.more().await?;
        }
    }

    /// The next message, if all of it has arrived.
    pub(super) fn here(&mut self) -> Result<Option<Frame<M>>, LinkError> {
        Ok(self.frames.next()?)
    }

    /// Waits for more bytes; must only be called when no whole message is left.
    pub(super) async fn more(&mut self) -> Result<(), LinkError> {
        let count = match self.stream.read(&mut self.chunk).await {
            // A killed peer ends TLS without a closing message.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            other => other?,
        };
        if count == 0 {
            return Err(LinkError::Closed);
        }
        self.frames.extend(&self.chunk[..count]);
        Ok(())
    }
}

/// The sending side of a connection.
#[derive(Debug)]
pub(crate) struct Outgoing<S> {
    stream: S,
    bytes: Vec<u8>,
}

impl<S: AsyncWrite + Unpin> Outgoing<S> {
    pub(crate) fn new(stream: S) -> Self {
        Outgoing { stream, bytes: Vec::new() }
    }

    /// Bytes that were not sent so far.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// Queues a message, which [`flush`](Outgoing::flush) sends.
    pub(crate) fn put<M: Message>(&mut self, frame: &Frame<M>) -> Result<(), WireError> {
        encode(frame, &mut self.bytes)
    }

    /// Sends the buffered bytes; returns their number.
    pub(crate) async fn flush(&mut self) -> Result<u64, LinkError> {
        self.stream.write_all(&self.bytes).await?;
        self.stream.flush().await?;
        let sent = self.bytes.len() as u64;
        self.bytes.clear();
        // After a large message: the buffer kept for the next one is small.
        self.bytes.shrink_to(2 * CHUNK);
        Ok(sent)
    }

    /// Says goodbye.
    pub(crate) async fn close(mut self) {
        let _ = timeout(TIMEOUT, self.stream.shutdown()).await;
    }
}
