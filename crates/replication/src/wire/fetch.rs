//! The messages between a one-off receiver and the origin or relay that it fetches from.

use super::body::BodyPart;
use super::cursor::{Reader, Writer};
use super::sealed::Coded;
use super::{HEADER, WireError};
use crate::message::{MAX_FOUND, MAX_NEAR};
use crate::path::{MAX_PATH_BYTES, Path};
use crate::types::{Digest, Version};

/// Objects and names in one message, at most.
const FOUND: (&str, usize) = ("objects", MAX_FOUND);
const NEAR: (&str, usize) = ("names", MAX_NEAR);
/// The fewest bytes of a name, and of an object.
const NAME: usize = 2 + 1;
const OBJECT: usize = NAME + 57;

/// The questions of a receiver, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToSource {
    /// Which objects have this name, or are below it? All, without a name.
    Find(Option<Path>),
    /// The body of an object, if it has this hash, behind so many pieces; all of the body, if it has another one.
    Get {
        /// The object.
        path: Path,
        /// The hash of the body.
        digest: Digest,
        /// How many of its pieces are there.
        pieces: u32,
    },
}

/// The answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FromSource {
    /// Objects, in the order of their names.
    Found {
        /// Some of them.
        objects: Vec<(Path, Version)>,
        /// Whether more follow.
        more: bool,
    },
    /// There is no object of this name or below it. These names are like it.
    Unknown(Vec<Path>),
    /// A part of a body.
    Part(BodyPart),
}

const FIND: u8 = 0x25;
const FIND_ALL: u8 = 0x26;
const GET: u8 = 0x27;
const OBJECTS: u8 = 0x68;
const UNKNOWN: u8 = 0x69;

impl Coded for ToSource {
    const MAX_FRAME_BYTES: usize = HEADER - 4 + 2 + MAX_PATH_BYTES + 32 + 4;

    fn kind(&self) -> u8 {
        match self {
            ToSource::Find(Some(_)) => FIND,
            ToSource::Find(None) => FIND_ALL,
            ToSource::Get { .. } => GET,
        }
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            ToSource::Find(None) => {}
            ToSource::Find(Some(path)) => to.path(path),
            ToSource::Get { path, digest, pieces } => {
                to.path(path);
                to.digest(digest);
                to.u32(*pieces);
            }
        }
        Ok(())
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            FIND => ToSource::Find(Some(from.path()?)),
            FIND_ALL => ToSource::Find(None),
            GET => ToSource::Get {
                path: from.path()?,
                digest: from.digest("hash")?,
                pieces: from.u32("pieces")?,
            },
            other => return Err(WireError::Kind(other)),
        })
    }
}

impl Coded for FromSource {
    /// [`MAX_FOUND`] objects with the longest names are 4.2 MB.
    const MAX_FRAME_BYTES: usize = 5 << 20;

    fn kind(&self) -> u8 {
        match self {
            FromSource::Found { .. } => OBJECTS,
            FromSource::Unknown(_) => UNKNOWN,
            FromSource::Part(part) => part.kind(),
        }
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            FromSource::Found { objects, more } => {
                to.flag(*more);
                to.list(FOUND, objects, |to, (path, version)| {
                    to.path(path);
                    to.version(version)
                })
            }
            FromSource::Unknown(near) => to.list(NEAR, near, |to, path| {
                to.path(path);
                Ok(())
            }),
            FromSource::Part(part) => part.write(to),
        }
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            OBJECTS => {
                let more = from.flag("more")?;
                let object = |from: &mut Reader<'_>| Ok((from.path()?, from.version()?));
                FromSource::Found { objects: from.list(FOUND, OBJECT, object)?, more }
            }
            UNKNOWN => FromSource::Unknown(from.list(NEAR, NAME, Reader::path)?),
            other => FromSource::Part(BodyPart::read(other, from)?),
        })
    }
}
