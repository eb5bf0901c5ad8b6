//! The messages of the two channels that carry bodies.

use super::WireError;
use super::cursor::{Reader, Writer};
use super::sealed::Coded;
use crate::lane::{Lane, Lanes};
use crate::message::BodyHeader;
use crate::types::{Digest, PIECE};

/// Hashes of pieces in one frame, at most: as many bytes as a piece.
pub(super) const MAX_HASHES: usize = PIECE / 32;
const HASHES: (&str, usize) = ("hashes", MAX_HASHES);

/// Chunks in one frame, at most.
const CHUNKS: (&str, usize) = ("chunks", PIECE / 36);
/// Bytes of a chunk, at least, except for the last one of a body.
pub const MIN_CHUNK_BYTES: u32 = 8 * 1024;

/// A part of a body whose boundaries depend on its bytes. So most chunks of a new version are those of the old one, also
/// behind inserted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// The hash of its bytes.
    pub digest: Digest,
    /// How many bytes it has.
    pub length: u32,
}

impl Chunk {
    /// The message of this number with some of these chunks, from zero, for the receiver of the body on this lane. One
    /// without chunks says that they are unknown.
    pub fn part(lane: Lane, chunks: &[Chunk], number: usize) -> Option<BodyPart> {
        let mut parts = chunks.chunks(CHUNKS.1).map(<[Chunk]>::to_vec);
        let part = if chunks.is_empty() { (number == 0).then(Vec::new) } else { parts.nth(number) };
        Some(BodyPart::Chunks { lane, chunks: part? })
    }
}

/// A replica's only message on a channel of bodies: its session says which connection this belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attach;

/// The origin's messages there. A body is a header; then, if it has more than one piece, the hashes of all
/// its pieces; then the pieces in order. It may be cancelled before the last of them. Nothing follows the
/// header of a lost body. Parts of bodies in other lanes may come in between.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BodyPart {
    /// A body begins; or the object has none, or no longer has one.
    Header(BodyHeader),
    /// Hashes of the next pieces, up to 2048.
    Hashes {
        /// The body: the one of this lane.
        lane: Lane,
        /// The hashes.
        hashes: Vec<Digest>,
    },
    /// The next chunks of the body, behind its hashes, if the replica has asked for them. Together they are the body; none
    /// if the sender does not know them.
    Chunks {
        /// The body: the one of this lane.
        lane: Lane,
        /// The chunks.
        chunks: Vec<Chunk>,
    },
    /// The next piece: [`PIECE`] bytes, or the rest.
    Piece {
        /// The body: the one of this lane.
        lane: Lane,
        /// Counts the pieces of the body, from zero.
        number: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The rest of the body does not come: it was overwritten meanwhile, no read waits for it any more, a
    /// read gets all of it, or the origin has lost it.
    Broken {
        /// The body: the one of this lane.
        lane: Lane,
    },
}

impl BodyPart {
    /// The lane that it goes by.
    pub fn lane(&self) -> Lane {
        match self {
            BodyPart::Header(header) => Lanes::default().of_body(header),
            BodyPart::Hashes { lane, .. }
            | BodyPart::Chunks { lane, .. }
            | BodyPart::Piece { lane, .. }
            | BodyPart::Broken { lane } => *lane,
        }
    }
}

const ATTACH: u8 = 0x21;
const HEADER: u8 = 0x61;
const OUTLINE: u8 = 0x62;
const BYTES: u8 = 0x63;
const BROKEN: u8 = 0x64;
const CHUNK_LIST: u8 = 0x65;

impl Coded for Attach {
    const MAX_FRAME_BYTES: usize = super::HEADER - 4;

    fn kind(&self) -> u8 {
        ATTACH
    }

    fn write(&self, _: &mut Writer<'_>) -> Result<(), WireError> {
        Ok(())
    }

    fn read(kind: u8, _: &mut Reader<'_>) -> Result<Self, WireError> {
        if kind == ATTACH { Ok(Attach) } else { Err(WireError::Kind(kind)) }
    }
}

impl Coded for BodyPart {
    const MAX_FRAME_BYTES: usize = super::HEADER - 4 + 1 + 4 + PIECE;

    fn kind(&self) -> u8 {
        match self {
            BodyPart::Header(_) => HEADER,
            BodyPart::Hashes { .. } => OUTLINE,
            BodyPart::Piece { .. } => BYTES,
            BodyPart::Broken { .. } => BROKEN,
            BodyPart::Chunks { .. } => CHUNK_LIST,
        }
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            BodyPart::Header(BodyHeader { path, version, at, demand, lost }) => {
                if *lost && version.is_none() {
                    return Err(WireError::Value("lost"));
                }
                to.path(path);
                to.sequence(*at);
                to.flag(*demand);
                to.flag(*lost);
                to.option(version.as_ref(), Writer::version)
            }
            BodyPart::Hashes { lane, hashes } => {
                to.u8(lane.number());
                to.list(HASHES, hashes, |to, hash| {
                    to.digest(hash);
                    Ok(())
                })
            }
            BodyPart::Chunks { lane, chunks } => {
                to.u8(lane.number());
                to.list(CHUNKS, chunks, |to, chunk| {
                    to.digest(&chunk.digest);
                    to.u32(chunk.length);
                    Ok(())
                })
            }
            BodyPart::Piece { lane, number, bytes } => {
                to.u8(lane.number());
                to.u32(*number);
                to.bytes(bytes);
                Ok(())
            }
            BodyPart::Broken { lane } => {
                to.u8(lane.number());
                Ok(())
            }
        }
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            HEADER => {
                let (path, at) = (from.path()?, from.sequence("at")?);
                let (demand, lost) = (from.flag("demand")?, from.flag("lost")?);
                let version = from.option("version", Reader::version)?;
                if lost && version.is_none() {
                    return Err(WireError::Value("lost"));
                }
                BodyPart::Header(BodyHeader { path, version, at, demand, lost })
            }
            OUTLINE => BodyPart::Hashes {
                lane: lane(from)?,
                hashes: from.list(HASHES, 32, |from| from.digest("hash"))?,
            },
            BYTES => BodyPart::Piece {
                lane: lane(from)?,
                number: from.u32("number")?,
                bytes: from.rest().to_vec(),
            },
            CHUNK_LIST => {
                let lane = lane(from)?;
                let chunk = |from: &mut Reader<'_>| {
                    Ok(Chunk { digest: from.digest("hash")?, length: from.u32("length")? })
                };
                BodyPart::Chunks { lane, chunks: from.list(CHUNKS, 36, chunk)? }
            }
            BROKEN => BodyPart::Broken { lane: lane(from)? },
            other => return Err(WireError::Kind(other)),
        })
    }
}

fn lane(from: &mut Reader<'_>) -> Result<Lane, WireError> {
    Lane::new(from.u8("lane")?).ok_or(WireError::Value("lane"))
}
