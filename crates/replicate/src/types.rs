//! What origin and replicas speak about: positions in the log, versions, commits.

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

/// Which life of a process: each start has a higher one, on stable storage before the first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// A replica's number at its origin, from its certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u32);

/// A BLAKE3 hash: of a body, of a log up to a position, or of a part of a tree.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
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

/// The largest body: what a replica has to keep of one while it comes, 32 bytes a piece of it, is
/// bounded by that.
pub const LARGEST_BODY: Bytes = Bytes(16 << 30);

/// The permission bits of a file, `rwxrwxrwx`. The set-user-ID, set-group-ID and sticky bits are not part
/// of it: the owner is not replicated, so these bits would name another user at a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode(u16);

impl Mode {
    /// `rw-r--r--`: a file that no file system has told the mode of.
    pub const PLAIN: Mode = Mode(0o644);
    /// `rwxr-xr-x`: the same of a program.
    pub const EXECUTABLE: Mode = Mode(0o755);

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

/// What a file system tells of a file beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metadata {
    /// When its content was modified.
    pub modified: WallTime,
    /// Who may do what with it.
    pub mode: Mode,
}

impl Metadata {
    /// How hashes and the wire write the mode: one byte for the two modes that version 7 of the protocol
    /// had, otherwise 2 and the bits. Each mode has one way to be written.
    pub(crate) fn mode_code(&self) -> (u8, Option<u16>) {
        match self.mode {
            Mode::PLAIN => (0, None),
            Mode::EXECUTABLE => (1, None),
            Mode(bits) => (2, Some(bits)),
        }
    }

    /// What [`mode_code`](Metadata::mode_code) has written; none if it writes no such thing. `bits` is asked
    /// only for code 2.
    pub(crate) fn mode_of_code(code: u8, bits: Option<u16>) -> Option<Mode> {
        match (code, bits) {
            (0, _) => Some(Mode::PLAIN),
            (1, _) => Some(Mode::EXECUTABLE),
            (2, Some(bits)) => {
                let mode = Some(Mode(bits)).filter(|_| bits <= 0o777);
                mode.filter(|mode| ![Mode::PLAIN, Mode::EXECUTABLE].contains(mode))
            }
            _ => None,
        }
    }
}

/// What is told of a body before it is there (invalidations carry hash, size and metadata).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content {
    /// The hash of the body.
    pub digest: Digest,
    /// The length of the body.
    pub size: Bytes,
    /// Of the file.
    pub metadata: Metadata,
}

/// One version of an object: what the commit at `sequence` made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The commit that wrote it.
    pub sequence: Sequence,
    /// What it is.
    pub content: Content,
}

/// What a commit does to one object: a new content, or none: it is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// The object.
    pub path: Path,
    /// What it becomes.
    pub content: Option<Content>,
}

/// A transaction in the log: all of its changes become visible at once. A plain write is a commit
/// of one change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    /// Its position.
    pub sequence: Sequence,
    /// The origin's time; never before that of an earlier commit (SSR §6.2: "a sequence number and
    /// a real-time timestamp").
    pub stamp: WallTime,
    /// Shared, because every replica is told the same. Each object at most once.
    pub changes: Arc<[Change]>,
}

/// A position in a log, and the hash of everything up to it: two logs that agree in it agree in
/// all before.
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

/// Hashes what a path holds, so that no two contents give the same bytes.
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

/// Bytes under way, with what was worked out of them while they were received. The state machines
/// never look into `bytes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Payload<P> {
    /// The hash of the bytes.
    pub digest: Digest,
    /// Their number.
    pub size: Bytes,
    /// The bytes, or where they lie.
    pub bytes: P,
}

/// The disk has no room. Nothing of what was asked for has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the disk is full: make room, and it goes on by itself")]
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
    fn positions_differ_wherever_logs_differ() {
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

    /// A log of version 7, in which a file was executable or not, keeps its position: the values are from
    /// that release.
    #[test]
    fn position_of_a_version_7_log_is_unchanged() {
        let at = |mode| {
            let metadata = Metadata { modified: WallTime::from_nanos(5), mode };
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
