//! The protocol as bytes: `docs/reference/replication-wire.md` has each field, width and limit.
//!
//! ```text
//!   control      preface │ frame frame …        messages in order
//!   demand       preface │ frame frame …        a header, then the body in pieces, by lanes that take turns
//!   speculative  preface │ frame frame …        one body after the other, in the background
//!   enrolment    preface │ frame                a certificate for a key
//!   fetch        preface │ frame frame …        questions of a one-off receiver, and the bodies that it wants
//!   exchange     preface │ frame frame …        pieces that a neighbour asks for
//!
//!   frame = length (4) │ kind (1) │ session (20) │ message
//! ```
//!
//! Nothing here reads or writes: bytes come in and go out as slices. For any bytes, a decoder returns a value
//! or an error. It holds at most the longest frame of its connection. The decoded value takes at most
//! [`EXPANSION`] times the frame's bytes.

mod body;
mod control;
pub mod cursor;
mod enrolment;
mod exchange;
mod fetch;
mod pieces;
mod reports;
#[cfg(test)]
mod tests;

use core::marker::PhantomData;

use thiserror::Error;

use crate::message::{Channel, Frame, PROTOCOL, Session};
use crate::path::PathError;
use crate::types::Incarnation;

pub use crate::types::PIECE;
pub use body::{Attach, BodyPart, Chunk, MIN_CHUNK_BYTES};
pub(crate) use control::{length_of, length_of_entry};
use cursor::{Reader, Writer};
pub use exchange::{FromNeighbour, ToNeighbour};
pub use fetch::{FromSource, ToSource};
pub use pieces::{Assembly, Delivery, Outline, Unexpected};

/// The first bytes of each connection, in either direction.
pub const MAGIC: [u8; 4] = *b"LULL";
/// Bytes of a preface, in all versions of the protocol.
pub const PREFACE: usize = 12;
/// The oldest version of the protocol that this code speaks; the newest is
/// [`PROTOCOL`]. Only bodies are sent in another way there.
pub const OLDEST: u16 = 12;
/// Bytes of a frame before its message: length, kind, session.
pub const HEADER: usize = 4 + 1 + 20;
/// Decoding n bytes takes up to this many times n bytes of memory: a deletion of a file with a name of one
/// letter is 4 bytes on the wire.
pub const EXPANSION: usize = 32;

/// Why bytes violate the protocol, or why a message cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The connection does not begin with Lull's preface.
    #[error("the peer does not speak Lull's protocol: check host and port")]
    Stranger,
    /// There is no common version.
    #[error(
        "the peer speaks versions {oldest} to {newest} of the protocol, and this one {OLDEST} to \
         {PROTOCOL}: install the same release on both"
    )]
    Version {
        /// The oldest version that the peer speaks.
        oldest: u16,
        /// The newest.
        newest: u16,
    },
    /// The channel is another one than expected.
    #[error("the peer opened a connection for channel {0}, which is not the one expected")]
    Channel(u8),
    /// A frame is longer than permitted on its connection.
    #[error("a frame of {length} bytes: at most {limit} are allowed here")]
    Long {
        /// Its length, without the field of the length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// A frame ends before its message does.
    #[error("a frame ends within `{0}`")]
    Short(&'static str),
    /// A frame continues after its message.
    #[error("a frame has {0} bytes too many")]
    Rest(usize),
    /// No message of this direction and channel has this number.
    #[error("a frame of the unknown kind {0:#04x}")]
    Kind(u8),
    /// A field has an invalid value.
    #[error("`{0}` has a value that it cannot have")]
    Value(&'static str),
    /// A list is longer than it may be.
    #[error("`{what}` has {count} items: at most {limit} are allowed")]
    Count {
        /// The list.
        what: &'static str,
        /// Its length.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// A name of an object is invalid.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// The first bytes of both sides on each connection. Its layout never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preface {
    /// The oldest version of the protocol that is spoken.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
    /// The channel of the connection.
    pub channel: Channel,
}

impl Preface {
    /// The preface of this code.
    pub const fn ours(channel: Channel) -> Self {
        Preface { oldest: OLDEST, newest: PROTOCOL, channel }
    }

    /// As bytes.
    pub fn encode(self) -> [u8; PREFACE] {
        let mut bytes = [0; PREFACE];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.oldest.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.newest.to_le_bytes());
        bytes[8] = match self.channel {
            Channel::Control => 0,
            Channel::Demand => 1,
            Channel::Speculative => 2,
            Channel::Enrolment => 3,
            Channel::Fetch => 4,
            Channel::Exchange => 5,
        };
        bytes
    }

    /// Decodes these bytes. The last three are reserved for later versions, and ignored.
    ///
    /// # Errors
    /// If they are not a preface of Lull.
    pub fn decode(bytes: [u8; PREFACE]) -> Result<Self, WireError> {
        let [m0, m1, m2, m3, o0, o1, n0, n1, channel, ..] = bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(WireError::Stranger);
        }
        let channel = match channel {
            0 => Channel::Control,
            1 => Channel::Demand,
            2 => Channel::Speculative,
            3 => Channel::Enrolment,
            4 => Channel::Fetch,
            5 => Channel::Exchange,
            other => return Err(WireError::Channel(other)),
        };
        let (oldest, newest) = (u16::from_le_bytes([o0, o1]), u16::from_le_bytes([n0, n1]));
        if oldest > newest {
            return Err(WireError::Version { oldest, newest });
        }
        Ok(Preface { oldest, newest, channel })
    }

    /// The version to use with a peer that has sent `theirs`: the newest that both know.
    ///
    /// # Errors
    /// If there is no common version.
    pub fn agree(self, theirs: Preface) -> Result<u16, WireError> {
        let newest = self.newest.min(theirs.newest);
        if newest < self.oldest.max(theirs.oldest) {
            return Err(WireError::Version { oldest: theirs.oldest, newest: theirs.newest });
        }
        Ok(newest)
    }
}

/// A message in frames, one type for each direction of a channel.
pub trait Message: sealed::Coded {}

impl<M: sealed::Coded> Message for M {}

mod sealed {
    use super::{Reader, WireError, Writer};

    /// How a message is written and read.
    pub trait Coded: Sized {
        /// The longest frame of its connection, without the field of the length.
        const MAX_FRAME_BYTES: usize;

        /// Its kind.
        fn kind(&self) -> u8;

        /// Writes the fields after the session.
        fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError>;

        /// Reads the fields after the session.
        fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError>;
    }
}

/// Appends a frame to `to`.
///
/// # Errors
/// If it would be longer than the peer accepts, or has a value that the protocol cannot represent: then
/// nothing is appended.
pub fn encode<M: Message>(frame: &Frame<M>, to: &mut Vec<u8>) -> Result<(), WireError> {
    let begin = to.len();
    let written = encode_at(frame, begin, to);
    if written.is_err() {
        to.truncate(begin);
    }
    written
}

fn encode_at<M: Message>(
    frame: &Frame<M>,
    begin: usize,
    to: &mut Vec<u8>,
) -> Result<(), WireError> {
    let mut writer = Writer::new(to);
    writer.u32(0);
    writer.u8(frame.message.kind());
    writer.u64(frame.session.origin.0);
    writer.u64(frame.session.replica.0);
    writer.u32(frame.session.connection);
    frame.message.write(&mut writer)?;
    let length = to.len() - begin - 4;
    match u32::try_from(length) {
        Ok(short) if length <= M::MAX_FRAME_BYTES => {
            to[begin..begin + 4].copy_from_slice(&short.to_le_bytes());
            Ok(())
        }
        _ => Err(WireError::Long { length, limit: M::MAX_FRAME_BYTES }),
    }
}

/// The contents of a frame after its length field.
fn decode<M: Message>(bytes: &[u8]) -> Result<Frame<M>, WireError> {
    let mut reader = Reader::new(bytes);
    let kind = reader.u8("kind")?;
    let session = Session {
        origin: Incarnation(reader.u64("session")?),
        replica: Incarnation(reader.u64("session")?),
        connection: reader.u32("session")?,
    };
    let message = M::read(kind, &mut reader)?;
    reader.end()?;
    Ok(Frame { session, message })
}

/// Splits the bytes of a connection, after the preface, into frames.
#[derive(Clone, Debug)]
pub struct Frames<M> {
    bytes: Vec<u8>,
    /// The part of them that was returned.
    read: usize,
    messages: PhantomData<M>,
}

impl<M> Default for Frames<M> {
    fn default() -> Self {
        Frames { bytes: Vec::new(), read: 0, messages: PhantomData }
    }
}

impl<M: Message> Frames<M> {
    /// Memory that is kept between frames.
    const KEPT: usize = 128 * 1024;

    /// Bytes have arrived. Call [`next`](Frames::next) until it returns none before the next call: then at
    /// most the longest frame is kept.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.read > 0 {
            self.bytes.drain(..self.read);
            self.read = 0;
            self.bytes.shrink_to(Self::KEPT);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, if all of it has arrived. After an error the connection is unusable.
    ///
    /// # Errors
    /// If the peer violates the protocol; an invalid length is rejected before any memory is allocated for
    /// it.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end for good")]
    pub fn next(&mut self) -> Result<Option<Frame<M>>, WireError> {
        let rest = &self.bytes[self.read..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > M::MAX_FRAME_BYTES {
            return Err(WireError::Long { length, limit: M::MAX_FRAME_BYTES });
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let frame = decode(frame)?;
        self.read += 4 + length;
        Ok(Some(frame))
    }

    /// Bytes of an incomplete frame.
    pub fn pending(&self) -> usize {
        self.bytes.len() - self.read
    }
}
