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

/// What the other side may take for a handshake, a preface or a first message.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Unacknowledged data ends a connection after so long. A background connection may send a packet
/// every few seconds only, but each is acknowledged.
const DEAD: Duration = Duration::from_secs(120);
/// Bytes that are read at a time.
const CHUNK: usize = 64 * 1024;

/// Why a connection has ended, or never came about.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The other side has closed it.
    #[error("the other side closed the connection")]
    Closed,
    /// The other side has said nothing for too long.
    #[error("the other side says nothing")]
    Silent,
    /// A newer connection has taken its place, or the daemon gives it up.
    #[error("the connection was given up")]
    GivenUp,
    /// The network failed, or TLS did.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// What came is not the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A part of a body came out of order.
    #[error(transparent)]
    Part(#[from] Unexpected),
    /// It has too many connections that have not said what they are for.
    #[error("it opens connections and says nothing by them")]
    Crowd,
    /// The first message of the connection was another one.
    #[error("the other side began with another message: install the same release on both")]
    Order,
    /// The number of its life, or of the connection, is not above that of the one before.
    #[error(
        "an earlier life of it was here with a higher number: was its folder restored from a backup, or \
         its clock ahead? Let it join again with a new ticket"
    )]
    Earlier,
    /// Whoever connects may not.
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

/// Bytes that the system takes in beyond what it may send now. What is there nothing overtakes any more, and
/// nothing of it can be broken off.
const UNSENT: u32 = 128 * 1024;

/// Sets what all connections have in common.
pub(super) fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let socket = SockRef::from(tcp);
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_user_timeout(Some(DEAD))
}

/// What is to come soon.
pub(super) async fn soon<T>(
    future: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, LinkError> {
    timeout(PATIENCE, future).await.unwrap_or(Err(LinkError::Silent))
}

/// The prefaces, from the side that has connected.
pub(super) async fn ask<S>(stream: &mut S, channel: Channel) -> Result<(), LinkError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ours = Preface::ours(channel);
    stream.write_all(&ours.encode()).await?;
    stream.flush().await?;
    let theirs = read_preface(stream).await?;
    ours.agree(theirs)?;
    if theirs.channel == channel { Ok(()) } else { Err(LinkError::Order) }
}

/// The prefaces, from the other side: what the connection is for.
pub(super) async fn answer<S>(stream: &mut S) -> Result<Channel, LinkError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let theirs = read_preface(stream).await?;
    let ours = Preface::ours(theirs.channel);
    // Said in any case, so that the other side can tell which versions are spoken here.
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

/// What comes in by a connection.
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

    /// The next message. May be given up and asked for again: nothing is lost between.
    pub(crate) async fn next(&mut self) -> Result<Frame<M>, LinkError> {
        loop {
            if let Some(frame) = self.here()? {
                return Ok(frame);
            }
            self.more().await?;
        }
    }

    /// The next message, if all of it has come.
    pub(super) fn here(&mut self) -> Result<Option<Frame<M>>, LinkError> {
        Ok(self.frames.next()?)
    }

    /// Waits for more bytes; to be called when no whole message is left.
    pub(super) async fn more(&mut self) -> Result<(), LinkError> {
        let count = match self.stream.read(&mut self.chunk).await {
            // Whoever is killed says no goodbye to TLS.
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

/// What goes out by a connection.
#[derive(Debug)]
pub(crate) struct Outgoing<S> {
    stream: S,
    bytes: Vec<u8>,
}

impl<S: AsyncWrite + Unpin> Outgoing<S> {
    pub(crate) fn new(stream: S) -> Self {
        Outgoing { stream, bytes: Vec::new() }
    }

    /// Bytes that were not sent yet.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// Takes in a message, to be sent by [`flush`](Outgoing::flush).
    pub(crate) fn put<M: Message>(&mut self, frame: &Frame<M>) -> Result<(), WireError> {
        encode(frame, &mut self.bytes)
    }

    /// Sends what was taken in; gives how many bytes that were.
    pub(crate) async fn flush(&mut self) -> Result<u64, LinkError> {
        self.stream.write_all(&self.bytes).await?;
        self.stream.flush().await?;
        let sent = self.bytes.len() as u64;
        self.bytes.clear();
        // After a large message: what is kept for the next one is small.
        self.bytes.shrink_to(2 * CHUNK);
        Ok(sent)
    }

    /// Says goodbye.
    pub(crate) async fn close(mut self) {
        let _ = timeout(PATIENCE, self.stream.shutdown()).await;
    }
}
