//! A transaction as a stream. Each change is a head in JSON after its length (4 bytes, little-endian), and
//! the bytes of the body if it brings one; the end is a length of zero. A truncated stream is never a
//! transaction, even if the connection was closed cleanly.

use std::collections::BTreeMap;
use std::io;

use lull_cc::Bytes;
use lull_replication::origin::{Put, Transaction};
use lull_replication::path::{Path, PathError};
use lull_replication::time::WallTime;
use lull_replication::types::{
    Content, Digest, DiskFull, Kind, MAX_BODY_BYTES, Metadata, Mode, Payload,
};
use lull_replication::wire::PIECE;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::daemon::{HeldBodies, HeldBody, OriginHandle, WriteError, blocking};
use crate::store::{Bodies, Body, Stager, StoreError};

/// Bytes of new bodies that a transaction keeps in memory, at most; as many more may be on their way to the
/// disk. Large ones go there as they arrive.
const MAX_IN_MEMORY: u64 = 16 << 20;
/// The longest head: a path of 4095 escaped bytes, and some numbers.
const MAX_HEAD_BYTES: usize = 32 * 1024;

/// The change of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) path: String,
    pub(super) put: PutContent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PutContent {
    /// The body follows.
    Body(File),
    /// The origin has the body.
    Stored(File),
    Delete,
}

/// The kind of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ObjectKind {
    #[default]
    File,
    Link,
    Folder,
}

/// An object, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct File {
    /// Its kind; without it, as in an earlier release, a file.
    #[serde(default)]
    pub(super) kind: ObjectKind,
    /// BLAKE3, in hex.
    pub(super) digest: String,
    pub(super) size: u64,
    /// Nanoseconds since the beginning of 1970.
    pub(super) modified: i64,
    pub(super) executable: bool,
    /// The permission bits; if they are missing, as in an earlier release, 0755 or 0644.
    #[serde(default)]
    pub(super) mode: Option<u16>,
}

impl File {
    pub(super) fn from_content(content: &Content) -> Self {
        let kind = match content.metadata.kind {
            Kind::File => ObjectKind::File,
            Kind::Link => ObjectKind::Link,
            Kind::Folder => ObjectKind::Folder,
        };
        File {
            kind,
            digest: content.digest.to_string(),
            size: content.size.0,
            modified: content.metadata.modified.as_nanos(),
            executable: content.metadata.mode.is_executable(),
            mode: Some(content.metadata.mode.bits()),
        }
    }

    pub(super) fn content(&self) -> Option<Content> {
        let digest = Digest(*blake3::Hash::from_hex(&self.digest).ok()?.as_bytes());
        Some(Content { digest, size: Bytes(self.size), metadata: self.metadata() })
    }

    fn metadata(&self) -> Metadata {
        let plain = if self.executable { Mode::EXECUTABLE } else { Mode::PLAIN };
        let mode = self.mode.map_or(plain, |bits| Mode::new(bits.into()));
        let kind = match self.kind {
            ObjectKind::File => Kind::File,
            ObjectKind::Link => Kind::Link,
            ObjectKind::Folder => Kind::Folder,
        };
        Metadata { kind, modified: WallTime::from_nanos(self.modified), mode }
    }
}

/// Why a stream is not a valid transaction.
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
    #[error("`{0}` is larger than {MAX_BODY_BYTES}: split it into several files")]
    Large(String),
    #[error("`{0}` was changed while it was sent: publish again")]
    Changed(Path),
    #[error(transparent)]
    Full(#[from] DiskFull),
    #[error(transparent)]
    Held(#[from] WriteError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the body made no progress for too long: send it again")]
    Stalled,
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

/// Receives one body.
pub(super) struct Intake(Stager);

impl Intake {
    pub(super) fn new(bodies: &Bodies) -> Self {
        Intake(bodies.stage())
    }

    /// Bytes may go to the disk, so another thread writes them.
    pub(super) async fn write(self, bytes: Vec<u8>) -> Result<Self, Malformed> {
        let mut stager = self.0;
        let write = move || stager.write(&bytes).map(|outcome| outcome.map(|()| stager));
        let written = blocking(write).await.unwrap_or(Err(StoreError::Stopped));
        Ok(Intake(written??))
    }

    /// A whole body of one piece: it mostly stays in memory, so no other thread is needed.
    fn all_at_once(mut self, bytes: &[u8]) -> Result<Payload<Body>, Malformed> {
        self.0.write(bytes)??;
        Ok(self.0.finish()??)
    }

    pub(super) async fn finish(self) -> Result<Payload<Body>, Malformed> {
        let finished = blocking(move || self.0.finish()).await.unwrap_or(Err(StoreError::Stopped));
        Ok(finished??)
    }
}

/// Builds a transaction from a stream. Bodies that do not fit in memory are stored in the origin before the
/// transaction, and held for it.
pub(super) struct Parser {
    origin: OriginHandle,
    /// All bodies are held, so that they are stored for another attempt.
    holds_all: bool,
    bytes: Vec<u8>,
    changes: BTreeMap<Path, Put<Body>>,
    /// Bytes of the bodies in `changes` that are in memory.
    in_memory: u64,
    held: HeldBodies,
    /// The current body, and how many bytes of it are missing.
    body: Option<(Path, File, Intake, u64)>,
    ended: bool,
}

impl Parser {
    pub(super) fn new(origin: OriginHandle) -> Self {
        Parser {
            held: HeldBodies::new(origin.clone()),
            origin,
            holds_all: false,
            bytes: Vec::new(),
            changes: BTreeMap::new(),
            in_memory: 0,
            body: None,
            ended: false,
        }
    }

    /// For a transaction that may only be rejected to be repeated.
    pub(super) fn holding(origin: OriginHandle) -> Self {
        Parser { holds_all: true, ..Self::new(origin) }
    }

    pub(super) async fn take(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            if let Some((path, file, intake, left)) = self.body.take() {
                let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let (now, rest) = bytes.split_at(count);
                bytes = rest;
                if now.len() as u64 == file.size && now.len() <= PIECE {
                    let payload = intake.all_at_once(now)?;
                    self.complete(path, file, payload).await?;
                    continue;
                }
                let intake = intake.write(now.to_vec()).await?;
                self.body(path, file, intake, left - count as u64).await?;
                continue;
            }
            if self.ended {
                return Err(Malformed::Stream);
            }
            // As much as the head needs, and not a byte of the rest.
            let need = match self.bytes.first_chunk::<4>() {
                None => 4,
                Some(length) => 4 + u32::from_le_bytes(*length) as usize,
            };
            if need > 4 + MAX_HEAD_BYTES {
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
        let path = Path::parse(&head.path).map_err(|error| Malformed::Path(head.path, error))?;
        if self.changes.contains_key(&path) {
            return Err(Malformed::Twice(path));
        }
        let put = match head.put {
            PutContent::Delete => Put::Delete,
            PutContent::Stored(file) => Put::Stored(file.content().ok_or(Malformed::Stream)?),
            PutContent::Body(file) if file.size > MAX_BODY_BYTES.0 => {
                return Err(Malformed::Large(path.to_string()));
            }
            PutContent::Body(file) => {
                let (intake, left) = (Intake::new(self.origin.bodies()), file.size);
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
        self.complete(path, file, payload).await
    }

    /// A whole body has arrived.
    async fn complete(
        &mut self,
        path: Path,
        file: File,
        payload: Payload<Body>,
    ) -> Result<(), Malformed> {
        if payload.digest.to_string() != file.digest {
            return Err(Malformed::Changed(path));
        }
        let metadata = file.metadata();
        let put = match payload.bytes {
            _ if self.holds_all => self.hold(payload, metadata).await?,
            Body::Memory(_) if self.in_memory + payload.size.0 > MAX_IN_MEMORY => {
                self.hold(payload, metadata).await?
            }
            Body::Memory(_) => {
                self.in_memory += payload.size.0;
                Put::Body(payload, metadata)
            }
            Body::Staged(_) => Put::Body(payload, metadata),
        };
        self.changes.insert(path, put);
        Ok(())
    }

    async fn hold(
        &mut self,
        payload: Payload<Body>,
        metadata: Metadata,
    ) -> Result<Put<Body>, Malformed> {
        let Payload { digest, size, .. } = payload;
        self.held.take(payload).await?;
        Ok(Put::Stored(Content { digest, size, metadata }))
    }

    /// The stream has ended. Returns the transaction, and the bodies to be held until it is written.
    pub(super) async fn finish(mut self) -> Result<(Transaction<Body>, Vec<HeldBody>), Malformed> {
        if !self.ended {
            return Err(Malformed::Cut);
        }
        self.held.stored().await?;
        Ok((Transaction { changes: self.changes }, self.held.into_stored()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::daemon::{Clock, MachineClock, OriginDaemon, OriginOptions, create_origin};

    async fn origin() -> (TempDir, OriginDaemon) {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("origin");
        create_origin(&own, MachineClock.read().wall).unwrap();
        let options = OriginOptions::new(own, "127.0.0.1:0");
        let daemon = OriginDaemon::start(options, Arc::new(MachineClock), |_| {}).await.unwrap();
        (folder, daemon)
    }

    /// The contents of a file: small ones and larger ones, none of which is written to the disk as it
    /// arrives.
    fn body(number: u64) -> Vec<u8> {
        let size = if number.is_multiple_of(2) { 15_000 } else { 700_000 };
        let mut bytes = vec![0; size];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn digest(number: u64) -> Digest {
        Digest::of(&body(number))
    }

    fn stream(number: u64) -> Vec<u8> {
        let bytes = body(number);
        let file = File {
            kind: ObjectKind::File,
            digest: digest(number).to_string(),
            size: bytes.len() as u64,
            modified: 0,
            executable: false,
            mode: None,
        };
        let mut stream = Vec::new();
        let head = Head { path: format!("file-{number}"), put: PutContent::Body(file) };
        put_head(&mut stream, &head).unwrap();
        stream.extend(bytes);
        stream
    }

    fn in_memory(parser: &Parser) -> u64 {
        let of = |put: &Put<Body>| match put {
            Put::Body(Payload { bytes: Body::Memory(bytes), .. }, _) => bytes.len() as u64,
            _ => 0,
        };
        parser.changes.values().map(of).sum()
    }

    const FILES: u64 = 120;

    #[tokio::test(flavor = "multi_thread")]
    async fn large_transaction_is_atomic_without_being_in_memory() {
        let (_folder, daemon) = origin().await;
        let origin = daemon.handle();
        let mut parser = Parser::new(origin.clone());
        for number in 0..FILES {
            parser.take(&stream(number)).await.unwrap();
            assert!(in_memory(&parser) <= MAX_IN_MEMORY, "at file {number}");
            assert!(parser.held.coming().1 <= MAX_IN_MEMORY, "at file {number}");
        }
        assert!(origin.tree().objects.is_empty(), "nothing is visible before its end");
        parser.take(&END).await.unwrap();
        let (changes, held) = parser.finish().await.unwrap();
        assert!(held.len() > 20, "{}", held.len());
        assert_eq!(origin.write(changes).await.unwrap().0, 1);
        drop(held);
        let tree = origin.tree();
        assert_eq!((tree.objects.len() as u64, tree.lost.len()), (FILES, 0));
        for (path, version) in tree.objects {
            assert!(origin.has_body(&version.content.digest), "{path}");
        }
        daemon.stop().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn repeatable_transaction_has_all_bodies_in_the_store() {
        let (_folder, daemon) = origin().await;
        let origin = daemon.handle();
        let mut parser = Parser::holding(origin.clone());
        for number in 0..4 {
            parser.take(&stream(number)).await.unwrap();
        }
        parser.take(&END).await.unwrap();
        let (changes, held) = parser.finish().await.unwrap();
        let is_named = |put: &Put<Body>| matches!(put, Put::Stored(_));
        assert!(changes.changes.values().all(is_named) && held.len() == 4);
        // It is rejected, and another one names them.
        drop(changes);
        assert!((0..4).all(|number| origin.has_body(&digest(number))));
        daemon.stop().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn number_of_pending_small_bodies_is_limited() {
        let (_folder, daemon) = origin().await;
        let mut parser = Parser::new(daemon.handle());
        // From here on bodies are held.
        parser.in_memory = MAX_IN_MEMORY;
        let small = |number: u64| Payload {
            digest: Digest::of(&number.to_le_bytes()),
            size: Bytes(8),
            bytes: Body::Memory(number.to_le_bytes().to_vec().into()),
        };
        for number in 0..6_000 {
            parser.hold(small(number), Metadata::default()).await.unwrap();
            assert!(parser.held.coming().0 <= 4_096, "at file {number}");
        }
        daemon.stop().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn truncated_stream_leaves_nothing_in_the_store() {
        let (_folder, daemon) = origin().await;
        let origin = daemon.handle();
        let mut parser = Parser::new(origin.clone());
        for number in 0..FILES {
            parser.take(&stream(number)).await.unwrap();
        }
        let kept = || (0..FILES).filter(|number| origin.has_body(&digest(*number))).count();
        assert!(kept() > 0);
        assert!(matches!(parser.finish().await, Err(Malformed::Cut)));
        let mut left = kept();
        for _ in 0..5_000 {
            if left == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            left = kept();
        }
        assert_eq!(left, 0);
        daemon.stop().await.unwrap();
    }
}
