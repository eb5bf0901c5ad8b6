//! Symbolic links in URLs. A web server follows them, so a replica does, within the tree: no target leads to
//! the file system of the replica's machine. A link with an absolute target, or one outside of the tree, is
//! not followed.

use std::collections::VecDeque;
use std::time::Duration;

use lull_replication::path::Path;
use lull_replication::replica::{Entry, Outcome, ReadTarget, Request};
use lull_replication::types::{Kind, Sequence, Version};

use crate::daemon::{ReadError, ReplicaHandle};

/// Links that are followed for one URL, as in Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The target of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The file; none if the name leads to none.
    pub(super) path: Option<Path>,
    /// The state in which it does; none if no link was followed, so that it is the same in each state.
    pub(super) only_in: Option<Sequence>,
}

/// Follows the links of a name. None if the state changed meanwhile: then the caller has to try again.
pub(super) async fn resolve(
    replica: &ReplicaHandle,
    name: &Path,
    after: Sequence,
    patience: Option<Duration>,
) -> Result<Option<Resolved>, ReadError> {
    let mut walk = Walk { replica, after, patience, at: None };
    // A link has no entries below it, so a file with this name has no link above it.
    if matches!(walk.look_up(name).await?, Some(Entry::File(version)) if !is_link(&version)) {
        return Ok(Some(Resolved { path: Some(name.clone()), only_in: None }));
    }
    walk.at = None;
    let mut rest: VecDeque<Vec<u8>> = parts(name.as_bytes()).collect();
    let (mut folder, mut links) = (Vec::<Vec<u8>>::new(), 0);
    let path = loop {
        let Some(part) = rest.pop_front() else { break None };
        if part == b".." {
            if folder.pop().is_none() {
                break None;
            }
            continue;
        }
        folder.push(part);
        let Ok(path) = Path::from_bytes(&folder.join(&b"/"[..])) else { break None };
        match walk.look_up(&path).await? {
            Some(Entry::Folder(_)) => {}
            Some(Entry::File(version)) if is_link(&version) => {
                links += 1;
                folder.pop();
                match walk.target(&path, version).await? {
                    Some(target) if links <= MAX_LINKS && !target.starts_with(b"/") => {
                        parts(&target).rev().for_each(|part| rest.push_front(part));
                    }
                    _ => break None,
                }
            }
            Some(Entry::File(_)) if rest.is_empty() => break Some(path),
            Some(Entry::File(_)) | None => break None,
        }
        if walk.has_moved() {
            return Ok(None);
        }
    };
    let only_in = walk.at.map(|(at, _)| at).filter(|_| links > 0);
    Ok(Some(Resolved { path, only_in }))
}

/// The names of a path or of a target.
fn parts(bytes: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    let parts = bytes.split(|byte| *byte == b'/');
    parts.filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec)
}

fn is_link(version: &Version) -> bool {
    version.content.metadata.kind == Kind::Link
}

struct Walk<'a> {
    replica: &'a ReplicaHandle,
    after: Sequence,
    patience: Option<Duration>,
    /// The states of the first and of the last lookup.
    at: Option<(Sequence, Sequence)>,
}

impl Walk<'_> {
    async fn look_up(&mut self, path: &Path) -> Result<Option<Entry>, ReadError> {
        let request = Request { target: ReadTarget::Entry(path.clone()), after: self.after };
        let answer = self.replica.read(request, self.patience).await?;
        let first = self.at.map_or(answer.at, |(first, _)| first);
        self.at = Some((first, answer.at));
        Ok(match answer.outcome {
            Outcome::Entry(entry) => Some(entry),
            _ => None,
        })
    }

    fn has_moved(&self) -> bool {
        self.at.is_some_and(|(first, last)| first != last)
    }

    /// The body of a link; none if it is lost, or was overwritten long ago.
    async fn target(&self, path: &Path, version: Version) -> Result<Option<Vec<u8>>, ReadError> {
        let found = self.replica.version(path, version, self.patience).await?;
        let Some(found) = found else { return Ok(None) };
        Ok(found.piece(0).await?.map(|bytes| bytes.to_vec()))
    }
}
