//! File handles. Pure.
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | kind: folder or file, and whether the path or its hash follows |
//! | 8 | of a file: the sequence of its version |
//! | up to 63 | the path; or, of a long one, the first half of its BLAKE3 hash |
//!
//! So the handle of a short path is valid at each replica of an origin, and after a restart. That of a long one is
//! stale after a restart.

use std::collections::{BTreeMap, VecDeque};

use lull_replication::path::Path;
use lull_replication::types::Sequence;

/// The longest handle (RFC 1813 §2.4).
pub(super) const MAX_HANDLE_BYTES: usize = 64;
/// Long paths that are remembered.
const REMEMBERED: usize = 65_536;
/// Bytes of the hash of a long path.
const HASH: usize = 16;

const FOLDER: u8 = 1;
const FILE: u8 = 2;
/// The path is a hash.
const HASHED: u8 = 0x80;

/// The meaning of a handle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    /// A folder; none is the root.
    Folder(Option<Path>),
    /// A version of a file or link.
    File(Path, Sequence),
}

impl Node {
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Node::Folder(path) => path.as_ref(),
            Node::File(path, _) => Some(path),
        }
    }
}

/// Why a handle has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleError {
    /// It is none of this server.
    Bad,
    /// Its path is no longer known.
    Stale,
}

/// The long paths of handles.
#[derive(Debug, Default)]
pub(super) struct Handles {
    long: BTreeMap<[u8; HASH], Path>,
    /// The oldest first.
    order: VecDeque<[u8; HASH]>,
}

fn hash_of(path: &[u8]) -> [u8; HASH] {
    let mut hash = [0; HASH];
    hash.copy_from_slice(&blake3::hash(path).as_bytes()[..HASH]);
    hash
}

impl Handles {
    /// The handle of a node.
    pub(super) fn handle(&mut self, node: &Node) -> Vec<u8> {
        let mut handle = match node {
            Node::Folder(_) => vec![FOLDER],
            Node::File(_, sequence) => [&[FILE][..], &sequence.0.to_be_bytes()].concat(),
        };
        let Some(path) = node.path() else { return handle };
        if handle.len() + path.as_bytes().len() <= MAX_HANDLE_BYTES {
            handle.extend_from_slice(path.as_bytes());
            return handle;
        }
        let hash = hash_of(path.as_bytes());
        handle[0] |= HASHED;
        handle.extend_from_slice(&hash);
        if self.long.insert(hash, path.clone()).is_none() {
            self.order.push_back(hash);
            if self.order.len() > REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.long.remove(&oldest);
            }
        }
        handle
    }

    /// The meaning of a handle.
    pub(super) fn node(&self, handle: &[u8]) -> Result<Node, HandleError> {
        let (kind, rest) = handle.split_first().ok_or(HandleError::Bad)?;
        let (sequence, rest) = match kind & !HASHED {
            FOLDER => (None, rest),
            FILE => {
                let (sequence, rest) = rest.split_first_chunk::<8>().ok_or(HandleError::Bad)?;
                (Some(Sequence(u64::from_be_bytes(*sequence))), rest)
            }
            _ => return Err(HandleError::Bad),
        };
        let path = if kind & HASHED != 0 {
            let hash = rest.try_into().map_err(|_| HandleError::Bad)?;
            Some(self.long.get::<[u8; HASH]>(hash).ok_or(HandleError::Stale)?.clone())
        } else if rest.is_empty() {
            None
        } else {
            Some(Path::from_bytes(rest).map_err(|_| HandleError::Bad)?)
        };
        match (sequence, path) {
            (None, path) => Ok(Node::Folder(path)),
            (Some(sequence), Some(path)) => Ok(Node::File(path, sequence)),
            (Some(_), None) => Err(HandleError::Bad),
        }
    }
}
