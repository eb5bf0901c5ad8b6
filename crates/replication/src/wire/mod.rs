//! The protocol as bytes: `docs/replication-wire.md` has each field, width and limit.
//!
//! ```text
//!   control      preface │ frame frame …        messages in order
//!   demand       preface │ frame frame …        a header, then the body in pieces, by lanes that take turns
//!   speculative  preface │ frame frame …        one body after the other, in the background
//!   enrolment    preface │ frame                a certificate for a key
//!
//!   frame = length (4) │ kind (1) │ session (20) │ message
//! ```
//!
//! Nothing here reads or writes: bytes come in and go out as slices. Whatever the bytes, a decoder
//! gives a value or an error. It holds no more than the longest frame of its connection, and what it
//! makes of a frame takes at most [`EXPANSION`] times the frame's bytes.

mod body;
mod control;
pub mod cursor;
mod enrolment;
mod pieces;
#[cfg(test)]
mod tests;

use core::marker::PhantomData;

use thiserror::Error;

use crate::message::{Channel, Frame, PROTOCOL, Session};
use crate::path::PathError;
use crate::types::Incarnation;

pub use crate::types::PIECE;
pub use body::{Attach, BodyPart};
pub(crate) use control::{length_of, length_of_entry};
use cursor::{Reader, Writer};
pub use pieces::{Assembly, Delivery, Outline, Unexpected};

/// What each connection opens with, in either direction.
pub const MAGIC: [u8; 4] = *b"LULL";
/// Bytes of a preface, in all versions of the protocol.
pub const PREFACE: usize = 12;
/// The oldest version of the protocol that this code speaks; the newest is
/// [`PROTOCOL`].
pub const OLDEST: u16 = PROTOCOL;
/// Bytes of a frame before its message: length, kind, session.
pub const HEADER: usize = 4 + 1 + 20;
/// What was decoded from n bytes takes up to this many times n bytes of memory: a deletion of a
/// file with a name of one letter is 4 bytes on the wire.
pub const EXPANSION: usize = 32;

/// Why bytes are not what a peer that keeps to the protocol sends, or why something cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The connection does not open as one of ours.
    #[error("the peer does not speak Lull's protocol: check host and port")]
    Stranger,
    /// There is no version that both speak.
    #[error(
        "the peer speaks versions {oldest} to {newest} of the protocol, and this one {OLDEST} to \
         {PROTOCOL}: install the same release on both"
    )]
    Version {
        /// The oldest one that the peer speaks.
        oldest: u16,
        /// The newest.
        newest: u16,
    },
    /// The connection is for something else than was expected.
    #[error("the peer opened a connection for channel {0}, which is not the one expected")]
    Channel(u8),
    /// A frame is longer than any of its connection may be.
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
    /// A frame goes on behind its message.
    #[error("a frame has {0} bytes too many")]
    Rest(usize),
    /// No message of this direction and channel has this number.
    #[error("a frame of the unknown kind {0:#04x}")]
    Kind(u8),
    /// A field has a value that it cannot have.
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
    /// A name of an object is none.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// What both sides open each connection with. Its layout never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preface {
    /// The oldest version of the protocol that is spoken.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
    /// What the connection is for.
    pub channel: Channel,
}

impl Preface {
    /// What this code says.
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
        };
        bytes
    }

    /// What these bytes say. The last three are for later versions, and not looked at.
    ///
    /// # Errors
    /// If they are none of ours.
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
            other => return Err(WireError::Channel(other)),
        };
        let (oldest, newest) = (u16::from_le_bytes([o0, o1]), u16::from_le_bytes([n0, n1]));
        if oldest > newest {
            return Err(WireError::Version { oldest, newest });
        }
        Ok(Preface { oldest, newest, channel })
    }

    /// The version to speak with the peer that has said `theirs`: the newest that both know.
    ///
    /// # Errors
    /// If there is none.
    pub fn agree(self, theirs: Preface) -> Result<u16, WireError> {
        let newest = self.newest.min(theirs.newest);
        if newest < self.oldest.max(theirs.oldest) {
            return Err(WireError::Version { oldest: theirs.oldest, newest: theirs.newest });
        }
        Ok(newest)
    }
}

/// What goes in frames, one type for each direction of a channel.
pub trait Message: sealed::Coded {}

impl<M: sealed::Coded> Message for M {}

mod sealed {
    use super::{Reader, WireError, Writer};

    /// How a message is written and read.
    pub trait Coded: Sized {
        /// The longest frame of its connection, without the field of the length.
        const LONGEST: usize;

        /// Its kind.
        fn kind(&self) -> u8;

        /// Writes what stands behind the session.
        fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError>;

        /// Reads what stands behind the session.
        fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError>;
    }
}

/// Appends a frame to `to`.
///
/// # Errors
/// If it would be longer than the peer accepts, or has a value that the protocol has no room for:
/// then nothing is appended.
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
        Ok(short) if length <= M::LONGEST => {
            to[begin..begin + 4].copy_from_slice(&short.to_le_bytes());
            Ok(())
        }
        _ => Err(WireError::Long { length, limit: M::LONGEST }),
    }
}

/// What stands in a frame behind the field of its length.
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

/// Cuts what comes by a connection, behind the preface, into frames.
#[derive(Clone, Debug)]
pub struct Frames<M> {
    bytes: Vec<u8>,
    /// What of them was given out.
    read: usize,
    messages: PhantomData<M>,
}

impl<M> Default for Frames<M> {
    fn default() -> Self {
        Frames { bytes: Vec::new(), read: 0, messages: PhantomData }
    }
}

impl<M: Message> Frames<M> {
    /// Room that is kept between frames.
    const KEPT: usize = 128 * 1024;

    /// Bytes have come. Ask [`next`](Frames::next) until it gives none before the next ones: then no
    /// more is kept than the longest frame.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.read > 0 {
            self.bytes.drain(..self.read);
            self.read = 0;
            self.bytes.shrink_to(Self::KEPT);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, if all of it has come. After an error the connection is of no use any more.
    ///
    /// # Errors
    /// If the peer does not keep to the protocol; a length is refused before anything is kept of it.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end for good")]
    pub fn next(&mut self) -> Result<Option<Frame<M>>, WireError> {
        let rest = &self.bytes[self.read..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > M::LONGEST {
            return Err(WireError::Long { length, limit: M::LONGEST });
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let frame = decode(frame)?;
        self.read += 4 + length;
        Ok(Some(frame))
    }

    /// Bytes of a frame that has not come in full.
    pub fn pending(&self) -> usize {
        self.bytes.len() - self.read
    }
}
