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

/// What a file system tells of a file beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metadata {
    /// When its content was modified.
    pub modified: WallTime,
    /// Whether it may be run.
    pub executable: bool,
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
    let text = path.as_str().as_bytes();
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
            fixed[49] = u8::from(content.metadata.executable);
            hasher.update(&fixed);
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
}
