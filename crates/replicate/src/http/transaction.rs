//! A transaction as a stream: for each change a head in JSON behind its length (4 bytes, little-endian),
//! and the bytes of the body where it brings one; at the end a length of zero. What is cut off on its
//! way is not one, whatever the connection says.

use std::collections::BTreeMap;
use std::io;

use lull_cc::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::task::spawn_blocking;

use crate::origin::{Put, Transaction};
use crate::path::{Path, PathError};
use crate::store::{Bodies, Body, Stager, StoreError};
use crate::time::WallTime;
use crate::types::{Content, Digest, DiskFull, LARGEST_BODY, Metadata, Payload};

/// The longest head: a path of 4095 bytes, each of them escaped, and some numbers.
const LONGEST_HEAD: usize = 32 * 1024;

/// What is done to an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) path: String,
    pub(super) put: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// The body follows.
    Body(File),
    /// The origin has the body.
    Stored(File),
    Delete,
}

/// A file, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct File {
    /// BLAKE3, in hex.
    pub(super) digest: String,
    pub(super) size: u64,
    /// Nanoseconds since the beginning of 1970.
    pub(super) modified: i64,
    pub(super) executable: bool,
}

impl File {
    pub(super) fn of(content: &Content) -> Self {
        File {
            digest: content.digest.to_string(),
            size: content.size.0,
            modified: content.metadata.modified.as_nanos(),
            executable: content.metadata.executable,
        }
    }

    pub(super) fn content(&self) -> Option<Content> {
        let digest = Digest(*blake3::Hash::from_hex(&self.digest).ok()?.as_bytes());
        Some(Content { digest, size: Bytes(self.size), metadata: self.metadata() })
    }

    fn metadata(&self) -> Metadata {
        Metadata { modified: WallTime::from_nanos(self.modified), executable: self.executable }
    }
}

/// Why a stream is no transaction.
#[derive(Debug, Error)]
pub(super) enum Malformed {
    #[error("the stream is not a transaction: install the same release on both sides")]
    Stream,
    #[error("the stream ends before the transaction does: send it again")]
    Cut,
    #[error("`{0}`: {1}")]
    Path(String, PathError),
    #[error("`{0}` is changed twice: name it once")]
    Twice(Path),
    #[error("`{0}` has over {LARGEST_BODY}: cut it into several files")]
    Large(String),
    #[error("`{0}` was changed while it was sent: publish again")]
    Changed(Path),
    #[error(transparent)]
    Full(#[from] DiskFull),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the connection was lost")]
    Lost(#[from] io::Error),
}

/// Adds a head to a stream.
pub(super) fn put_head(to: &mut Vec<u8>, head: &Head) -> io::Result<()> {
    let json = serde_json::to_vec(head)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    to.extend(length.to_le_bytes());
    to.extend(json);
    Ok(())
}

/// Ends a stream.
pub(super) const END: [u8; 4] = [0; 4];

/// Takes in one body.
pub(super) struct Intake(Stager);

impl Intake {
    pub(super) fn new(bodies: &Bodies) -> Self {
        Intake(bodies.stage())
    }

    /// Bytes may go to the disk, so another thread writes them.
    pub(super) async fn write(self, bytes: Vec<u8>) -> Result<Self, Malformed> {
        let mut stager = self.0;
        let write = move || stager.write(&bytes).map(|outcome| outcome.map(|()| stager));
        let written = spawn_blocking(write).await.map_err(io::Error::other)?;
        Ok(Intake(written??))
    }

    pub(super) async fn finish(self) -> Result<Payload<Body>, Malformed> {
        let finished = spawn_blocking(move || self.0.finish()).await.map_err(io::Error::other)?;
        Ok(finished??)
    }
}

/// Makes a transaction of a stream.
pub(super) struct Parser {
    bodies: Bodies,
    bytes: Vec<u8>,
    changes: BTreeMap<Path, Put<Body>>,
    /// The body that is under way, and how much of it is to come.
    body: Option<(Path, File, Intake, u64)>,
    ended: bool,
}

impl Parser {
    pub(super) fn new(bodies: Bodies) -> Self {
        Parser { bodies, bytes: Vec::new(), changes: BTreeMap::new(), body: None, ended: false }
    }

    pub(super) async fn take(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            if let Some((path, file, intake, left)) = self.body.take() {
                let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let (now, rest) = bytes.split_at(count);
                let intake = intake.write(now.to_vec()).await?;
                bytes = rest;
                self.body(path, file, intake, left - count as u64).await?;
                continue;
            }
            if self.ended {
                return Err(Malformed::Stream);
            }
            // As much as the head needs, and not a byte of what is behind it.
            let need = match self.bytes.first_chunk::<4>() {
                None => 4,
                Some(length) => 4 + u32::from_le_bytes(*length) as usize,
            };
            if need > 4 + LONGEST_HEAD {
                return Err(Malformed::Stream);
            }
            let (now, rest) = bytes.split_at(bytes.len().min(need - self.bytes.len()));
            self.bytes.extend(now);
            bytes = rest;
            if self.bytes.len() < need {
                continue;
            }
            if self.bytes == END {
                self.ended = true;
            } else if need > 4 {
                let head = serde_json::from_slice(&self.bytes[4..]);
                self.bytes.clear();
                self.head(head.map_err(|_| Malformed::Stream)?).await?;
            }
        }
        Ok(())
    }

    async fn head(&mut self, head: Head) -> Result<(), Malformed> {
        let path = Path::new(&head.path).map_err(|error| Malformed::Path(head.path, error))?;
        if self.changes.contains_key(&path) {
            return Err(Malformed::Twice(path));
        }
        let put = match head.put {
            What::Delete => Put::Delete,
            What::Stored(file) => Put::Stored(file.content().ok_or(Malformed::Stream)?),
            What::Body(file) if file.size > LARGEST_BODY.0 => {
                return Err(Malformed::Large(path.to_string()));
            }
            What::Body(file) => {
                let (intake, left) = (Intake::new(&self.bodies), file.size);
                return self.body(path, file, intake, left).await;
            }
        };
        self.changes.insert(path, put);
        Ok(())
    }

    async fn body(
        &mut self,
        path: Path,
        file: File,
        intake: Intake,
        left: u64,
    ) -> Result<(), Malformed> {
        if left > 0 {
            self.body = Some((path, file, intake, left));
            return Ok(());
        }
        let payload = intake.finish().await?;
        if payload.digest.to_string() != file.digest {
            return Err(Malformed::Changed(path));
        }
        self.changes.insert(path, Put::Body(payload, file.metadata()));
        Ok(())
    }

    /// The stream has ended.
    pub(super) fn finish(self) -> Result<Transaction<Body>, Malformed> {
        if self.ended { Ok(Transaction { changes: self.changes }) } else { Err(Malformed::Cut) }
    }
}
