//! The data that origin and replicas exchange: positions in the log, versions, commits.

use core::hash::Hash;
use std::fmt;
use std::sync::Arc;

use blake3::Hasher;
use lull_cc::Bytes;

use crate::path::Path;
use crate::time::WallTime;

/// The position of a commit in the origin's log, from 1; zero is before all commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Before all commits.
    pub const ZERO: Sequence = Sequence(0);

    /// The position of the next commit.
    #[must_use]
    pub const fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// The life of a process: each start has a higher one, which is durable before the first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// A replica's number at its origin, from its certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u32);

/// Bytes of a piece; the last one of a body may have fewer. At 5 Mbit/s it takes 0.1 s.
pub const PIECE: usize = 64 * 1024;

/// A BLAKE3 hash: of a body, of a log up to a position, or of a part of a tree.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The hash of no bytes.
    pub const EMPTY: Digest = Digest([
        0xaf, 0x13, 0x49, 0xb9, 0xf5, 0xf9, 0xa1, 0xa6, 0xa0, 0x40, 0x4d, 0xea, 0x36, 0xdc, 0xc9,
        0x49, 0x9b, 0xcb, 0x25, 0xc9, 0xad, 0xc1, 0x12, 0xb7, 0xcc, 0x9a, 0x93, 0xca, 0xe4, 0x1f,
        0x32, 0x62,
    ]);

    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Digest(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The largest body. It bounds the memory that a replica needs for an incoming body: 32 bytes per piece.
pub const MAX_BODY_BYTES: Bytes = Bytes(16 << 30);

/// The longest target of a symbolic link, in bytes: `PATH_MAX` of Linux without its zero.
pub const MAX_TARGET_BYTES: Bytes = Bytes(4_095);

/// The kind of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A file.
    #[default]
    File,
    /// A symbolic link. Its body is the target, which nothing here follows.
    Link,
    /// A folder. It has no bytes. A folder without its own object exists as long as something is below it.
    Folder,
}

/// The permission bits of a file or a folder, `rwxrwxrwx`. The set-user-ID, set-group-ID and sticky bits are
/// not included. The owner is not replicated, so the first two would name another user at a replica: usually
/// root. In a read-only mount, the sticky bit and the set-group-ID bit of a folder have no effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode(u16);

impl Mode {
    /// `rw-r--r--`: a file whose mode is unknown.
    pub const PLAIN: Mode = Mode(0o644);
    /// `rwxr-xr-x`: the same of a program.
    pub const EXECUTABLE: Mode = Mode(0o755);
    /// `rwxrwxrwx`: Linux shows no other mode of a symbolic link.
    pub const LINK: Mode = Mode(0o777);
    /// `r-xr-xr-x`: a folder without an object of its own.
    pub const IMPLIED: Mode = Mode(0o555);

    /// The permission bits of `mode`, as in `st_mode`.
    pub const fn new(mode: u32) -> Self {
        Mode((mode & 0o777) as u16)
    }

    /// The bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether any user may execute the file.
    pub const fn is_executable(self) -> bool {
        self.0 & 0o111 != 0
    }
}

impl Default for Mode {
    fn default() -> Self {
        Mode::PLAIN
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// The attributes of a file beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metadata {
    /// Its content.
    pub kind: Kind,
    /// When its content was modified.
    pub modified: WallTime,
    /// Its permissions.
    pub mode: Mode,
}

impl Metadata {
    /// The encoding of kind and mode in hashes and on the wire. Files have one byte for the two modes of
    /// version 7 of the protocol, otherwise 2 and the bits. A link is 3, a folder 4 and the bits. Each has
    /// exactly one encoding.
    pub(crate) fn mode_code(&self) -> (u8, Option<u16>) {
        match (self.kind, self.mode) {
            (Kind::File, Mode::PLAIN) => (0, None),
            (Kind::File, Mode::EXECUTABLE) => (1, None),
            (Kind::File, Mode(bits)) => (2, Some(bits)),
            (Kind::Link, _) => (3, None),
            (Kind::Folder, Mode(bits)) => (4, Some(bits)),
        }
    }

    /// Whether bits follow this code.
    pub(crate) fn has_bits(code: u8) -> bool {
        matches!(code, 2 | 4)
    }

    /// The inverse of [`mode_code`](Metadata::mode_code); none for a code that it never writes.
    pub(crate) fn of_mode_code(
        (code, bits): (u8, Option<u16>),
        modified: WallTime,
    ) -> Option<Metadata> {
        let bits = Mode(bits.unwrap_or_default());
        if bits.0 > 0o777 {
            return None;
        }
        let (kind, mode) = match code {
            0 => (Kind::File, Mode::PLAIN),
            1 => (Kind::File, Mode::EXECUTABLE),
            2 => (Kind::File, bits),
            3 => (Kind::Link, Mode::LINK),
            4 => (Kind::Folder, bits),
            _ => return None,
        };
        let metadata = Metadata { kind, modified, mode };
        let written = metadata.mode_code();
        (written.0 == code && written.1.unwrap_or_default() == bits.0).then_some(metadata)
    }
}

/// The announced properties of a body (invalidations carry hash, size and metadata).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content {
    /// The hash of the body.
    pub digest: Digest,
    /// The length of the body.
    pub size: Bytes,
    /// Of the file.
    pub metadata: Metadata,
}

impl Content {
    /// A folder with this metadata.
    pub const fn folder(modified: WallTime, mode: Mode) -> Self {
        let metadata = Metadata { kind: Kind::Folder, modified, mode };
        Content { digest: Digest::EMPTY, size: Bytes(0), metadata }
    }

    /// Whether such an object is possible: each kind allows only some sizes.
    pub fn is_possible(&self) -> bool {
        match self.metadata.kind {
            Kind::File => self.size <= MAX_BODY_BYTES,
            Kind::Link => {
                let is_target = (1..=MAX_TARGET_BYTES.0).contains(&self.size.0);
                is_target && self.metadata.mode == Mode::LINK
            }
            Kind::Folder => self.size.0 == 0 && self.digest == Digest::EMPTY,
        }
    }

    /// Whether other objects may be below it.
    pub fn is_folder(&self) -> bool {
        self.metadata.kind == Kind::Folder
    }
}

/// One version of an object, made by the commit at `sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The commit that wrote it.
    pub sequence: Sequence,
    /// Its header.
    pub content: Content,
}

/// The change of one object in a commit: a new content, or none if it is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// The object.
    pub path: Path,
    /// Its new content.
    pub content: Option<Content>,
}

/// A transaction in the log: all of its changes become visible together. A plain write is a commit of one
/// change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    /// Its position.
    pub sequence: Sequence,
    /// The origin's time; never before that of an earlier commit (SSR §6.2: "a sequence number and a
    /// real-time timestamp").
    pub stamp: WallTime,
    /// Shared, because all replicas get the same. Each object at most once.
    pub changes: Arc<[Change]>,
}

/// A position in a log, and the hash of everything up to it: two logs with the same position are the same up
/// to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The last commit.
    pub sequence: Sequence,
    /// The chain of hashes up to it.
    pub chain: Digest,
}

impl Position {
    /// The beginning of a log. Its identity is drawn at random when the log is made, so that no
    /// two logs share a position.
    pub const fn beginning(identity: [u8; 32]) -> Self {
        Position { sequence: Sequence::ZERO, chain: Digest(identity) }
    }

    /// The position after `commit`.
    #[must_use]
    pub fn after(self, commit: &Commit) -> Position {
        let mut next = NextPosition::new(self, commit.sequence, commit.stamp);
        next.extend(&commit.changes);
        next.finish()
    }
}

/// The position after a commit whose changes come in parts.
#[derive(Clone, Debug)]
pub(crate) struct NextPosition {
    sequence: Sequence,
    hasher: Hasher,
}

impl Commit {
    /// Which of its changes, in the order of their paths, is that of an object.
    pub(crate) fn position(&self, path: &Path) -> Option<usize> {
        self.changes.binary_search_by(|change| change.path.cmp(path)).ok()
    }
}

impl NextPosition {
    pub(crate) fn new(before: Position, sequence: Sequence, stamp: WallTime) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(&before.chain.0);
        hasher.update(&sequence.0.to_le_bytes());
        hasher.update(&stamp.as_nanos().to_le_bytes());
        NextPosition { sequence, hasher }
    }

    pub(crate) fn extend(&mut self, changes: &[Change]) {
        for change in changes {
            hash_entry(&mut self.hasher, &change.path, change.content.as_ref());
        }
    }

    pub(crate) fn finish(&self) -> Position {
        Position { sequence: self.sequence, chain: Digest(*self.hasher.finalize().as_bytes()) }
    }
}

impl PartialEq for NextPosition {
    fn eq(&self, other: &Self) -> bool {
        self.finish() == other.finish()
    }
}

impl Eq for NextPosition {}

impl Hash for NextPosition {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.finish().hash(state);
    }
}

/// Hashes the content of a path, so that no two contents give the same bytes.
pub(crate) fn hash_entry(hasher: &mut Hasher, path: &Path, content: Option<&Content>) {
    let text = path.as_bytes();
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text);
    match content {
        None => {
            hasher.update(&[0]);
        }
        Some(content) => {
            let mut fixed = [0; 1 + 32 + 8 + 8 + 1];
            fixed[0] = 1;
            fixed[1..33].copy_from_slice(&content.digest.0);
            fixed[33..41].copy_from_slice(&content.size.0.to_le_bytes());
            fixed[41..49].copy_from_slice(&content.metadata.modified.as_nanos().to_le_bytes());
            let (code, bits) = content.metadata.mode_code();
            fixed[49] = code;
            hasher.update(&fixed);
            if let Some(bits) = bits {
                hasher.update(&bits.to_le_bytes());
            }
        }
    }
}

/// Bytes in transfer, with the digest that was computed while they were received. The state machines never
/// look into `bytes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Payload<P> {
    /// The hash of the bytes.
    pub digest: Digest,
    /// Their number.
    pub size: Bytes,
    /// The bytes, or where they are stored.
    pub bytes: P,
}

/// The disk has no space. Nothing of the request was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the disk is full: free space, then it continues by itself")]
pub struct DiskFull;

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(sequence: u64, path: &str, content: Option<u8>) -> Commit {
        let content = content.map(|byte| Content {
            digest: Digest::of(&[byte]),
            size: Bytes(1),
            metadata: Metadata::default(),
        });
        Commit {
            sequence: Sequence(sequence),
            stamp: WallTime::default(),
            changes: [Change { path: Path::new(path).expect("a path"), content }].into(),
        }
    }

    #[test]
    fn positions_differ_if_logs_differ() {
        let begin = Position::beginning([1; 32]);
        let first = begin.after(&commit(1, "a", Some(1)));
        for other in [
            Position::beginning([2; 32]).after(&commit(1, "a", Some(1))),
            begin.after(&commit(1, "b", Some(1))),
            begin.after(&commit(1, "a", Some(2))),
            begin.after(&commit(1, "a", None)),
            begin.after(&commit(2, "a", Some(1))),
        ] {
            assert_ne!(first.chain, other.chain);
            assert_ne!(
                first.after(&commit(2, "c", None)).chain,
                other.after(&commit(2, "c", None)).chain
            );
        }
        assert_eq!(first, begin.after(&commit(1, "a", Some(1))));
    }

    #[test]
    fn each_kind_and_mode_has_one_code() {
        assert_eq!(Digest::of(b""), Digest::EMPTY);
        let modified = WallTime::from_nanos(1);
        let mut codes = std::collections::BTreeSet::new();
        for kind in [Kind::File, Kind::Folder] {
            for bits in 0..=0o777 {
                let metadata = Metadata { kind, modified, mode: Mode(bits) };
                let code = metadata.mode_code();
                assert!(codes.insert(code), "{metadata:?}");
                assert_eq!(code.1.is_some(), Metadata::has_bits(code.0));
                assert_eq!(Metadata::of_mode_code(code, modified), Some(metadata));
            }
        }
        let link = Metadata { kind: Kind::Link, modified, mode: Mode::LINK };
        assert_eq!(Metadata::of_mode_code(link.mode_code(), modified), Some(link));
        for code in [(2, Some(0o644)), (2, Some(0o755)), (2, Some(0o1000)), (4, Some(0o1755))] {
            assert_eq!(Metadata::of_mode_code(code, modified), None, "{code:?}");
        }
        assert_eq!(Metadata::of_mode_code((5, None), modified), None);
    }

    /// A log of version 7, in which a file was executable or not, keeps its position: the values are from
    /// that release.
    #[test]
    fn position_of_a_version_7_log_is_unchanged() {
        let at = |mode| {
            let modified = WallTime::from_nanos(5);
            let metadata = Metadata { modified, mode, ..Metadata::default() };
            let digest = Digest([7; 32]);
            let content = Content { digest, size: Bytes(3), metadata };
            let path = Path::new("a").expect("a path");
            let changes = [Change { path, content: Some(content) }].into();
            let stamp = WallTime::from_nanos(9);
            let commit = Commit { sequence: Sequence(1), stamp, changes };
            Position::beginning([1; 32]).after(&commit).chain.to_string()
        };
        let plain = "3a8d54f65b1df7aca1eadf5ec575fbc3c151cb44c96c91d1665000cdc4d1fdeb";
        let executable = "bca9dabc1fa5859d554a2b000df550cecd3972ccd35b8134426c040552403a84";
        assert_eq!(at(Mode::PLAIN), plain);
        assert_eq!(at(Mode::EXECUTABLE), executable);
        assert!(![plain, executable].contains(&&*at(Mode::new(0o600))));
    }
}
