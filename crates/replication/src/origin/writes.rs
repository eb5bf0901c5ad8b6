//! Writes as values: transactions, and why one is refused.

use std::collections::BTreeMap;
use std::collections::btree_map::IntoIter;

use lull_cc::Bytes;
use thiserror::Error;

use crate::path::Path;
use crate::types::{
    Content, Digest, DiskFull, MAX_BODY_BYTES, MAX_TARGET_BYTES, Metadata, Payload, Sequence,
};

/// A caller's name for a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u64);

/// The change of an object in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put<P> {
    /// Gives it this body.
    Body(Payload<P>, Metadata),
    /// Gives it a body that the store has.
    Stored(Content),
    /// Deletes it; fine if it does not exist.
    Delete,
}

impl<P> Put<P> {
    /// The new content of the object; none if it is deleted.
    pub fn content(&self) -> Option<Content> {
        match self {
            Put::Body(Payload { digest, size, .. }, metadata) => {
                Some(Content { digest: *digest, size: *size, metadata: *metadata })
            }
            Put::Stored(content) => Some(*content),
            Put::Delete => None,
        }
    }
}

/// The changes of a transaction that are still to be taken in.
pub(super) type Arriving<P> = IntoIter<Path, Put<P>>;

/// Changes that become visible together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction<P> {
    /// By object, so that none is changed twice.
    pub changes: BTreeMap<Path, Put<P>>,
}

/// The treatment of paths that differ only in case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaseClashes {
    /// They are two objects, as on Linux.
    #[default]
    Allow,
    /// The second one is rejected: replicas' file systems may regard both as the same.
    Refuse,
}

/// Why a transaction was rejected as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// It changes nothing.
    #[error("the transaction changes nothing: name a file")]
    Empty,
    /// No room for bodies or for the log.
    #[error(transparent)]
    Disk(#[from] DiskFull),
    /// A body was declared as stored, and is not.
    #[error("the body {0} is no longer in the store: send it with the transaction")]
    NotStored(Digest),
    /// An existing body was declared with a wrong size.
    #[error("the body {0} does not have the announced {1}: read its file again")]
    OtherSize(Digest, Bytes),
    /// A body exceeds the largest size.
    #[error("`{0}` is larger than {MAX_BODY_BYTES}: split it into several files")]
    Large(Path),
    /// A link without a target or with one that is too long, or a folder with bytes.
    #[error(
        "`{0}` is not a valid link or folder: a target has 1 to {MAX_TARGET_BYTES}, a folder no \
         bytes"
    )]
    Impossible(Path),
    /// An object would be below another one.
    #[error(
        "`{0}` is a file, and another path needs it as a folder: delete it in the same \
         transaction"
    )]
    FileAndFolder(Path),
    /// Two paths, of files or of their parent folders, differ only in case.
    #[error("`{0}` and `{1}` differ only in case: rename one")]
    Case(Path, Path),
    /// A condition of it is not met.
    #[error(
        "`{0}` has changed since this write read it: read it again, and repeat the write if it still applies"
    )]
    Condition(Path),
    /// Too many transactions wait for the disk.
    #[error("too many writes wait for the disk: send fewer at a time")]
    Busy,
    /// No rollback to the requested state is possible.
    #[error(transparent)]
    Rollback(#[from] RollbackError),
}

/// Why a rollback is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RollbackError {
    /// The log does not reach back.
    #[error("the log begins at {0}: choose a later state")]
    TooOld(Sequence),
    /// There is no such state so far.
    #[error("the last state is {0}: choose that or an earlier one")]
    NotYet(Sequence),
    /// The state is that one already.
    #[error("nothing was changed since {0}: there is nothing to roll back")]
    Nothing(Sequence),
    /// A body of it is lost.
    #[error("a body of {0} is lost: choose another state, or write that file first")]
    Lost(Sequence),
}
