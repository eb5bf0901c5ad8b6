//! The messages between two replicas of one parent that exchange the pieces of a body.

use lull_cc::Bytes;

use super::cursor::{Reader, Writer};
use super::sealed::Coded;
use super::{HEADER, WireError};
use crate::types::{Digest, MAX_BODY_BYTES, PIECE};

/// The question of a neighbour. It may have several without an answer, all about one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToNeighbour {
    /// A piece of a body.
    Ask {
        /// The hash of the body.
        digest: Digest,
        /// Its size.
        size: Bytes,
        /// The number of the piece.
        number: u32,
    },
}

/// The answers, in any order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FromNeighbour {
    /// A piece.
    Piece {
        /// Its number.
        number: u32,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The body is not here, and is not expected: no piece comes.
    Absent,
}

const ASK: u8 = 0x28;
const PIECE_OF_BODY: u8 = 0x6a;
const ABSENT: u8 = 0x6b;

impl Coded for ToNeighbour {
    const MAX_FRAME_BYTES: usize = HEADER - 4 + 32 + 8 + 4;

    fn kind(&self) -> u8 {
        ASK
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        let ToNeighbour::Ask { digest, size, number } = self;
        to.digest(digest);
        to.u64(size.0);
        to.u32(*number);
        Ok(())
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        if kind != ASK {
            return Err(WireError::Kind(kind));
        }
        let (digest, size) = (from.digest("hash")?, Bytes(from.u64("size")?));
        if size > MAX_BODY_BYTES {
            return Err(WireError::Value("size"));
        }
        Ok(ToNeighbour::Ask { digest, size, number: from.u32("number")? })
    }
}

impl Coded for FromNeighbour {
    const MAX_FRAME_BYTES: usize = HEADER - 4 + 4 + PIECE;

    fn kind(&self) -> u8 {
        match self {
            FromNeighbour::Piece { .. } => PIECE_OF_BODY,
            FromNeighbour::Absent => ABSENT,
        }
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        if let FromNeighbour::Piece { number, bytes } = self {
            to.u32(*number);
            to.bytes(bytes);
        }
        Ok(())
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            PIECE_OF_BODY => {
                FromNeighbour::Piece { number: from.u32("number")?, bytes: from.rest().to_vec() }
            }
            ABSENT => FromNeighbour::Absent,
            other => return Err(WireError::Kind(other)),
        })
    }
}
