//! The inodes that the kernel knows, and what they stand for. Pure.
//!
//! A version of an object is an inode of its own, so what the kernel has read of an inode never goes
//! out of date: the name has another inode when the object is written. A folder has one for as long as
//! the kernel knows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::path::Path;
use crate::types::{Sequence, Version};

/// The inode of the root.
pub(super) const ROOT: u64 = 1;

/// What an inode stands for. `B` is what is known of the body of a file.
#[derive(Debug)]
pub(super) enum Node<B> {
    /// The folder of this path; the root has none.
    Folder(Option<Path>),
    /// One version of an object.
    File(Arc<File<B>>),
}

/// One version of an object.
#[derive(Debug)]
pub(super) struct File<B> {
    pub(super) path: Path,
    pub(super) version: Version,
    pub(super) body: B,
}

/// By derive it would need `B: Clone`.
impl<B> Clone for Node<B> {
    fn clone(&self) -> Self {
        match self {
            Node::Folder(path) => Node::Folder(path.clone()),
            Node::File(file) => Node::File(Arc::clone(file)),
        }
    }
}

/// `st_ino`: the same for a folder and for a version each time, also after a new start. Two may have
/// the same one as soon as they have the same 62 bits of a hash, which does no harm here.
pub(super) fn number_of(path: &str, version: Option<Sequence>) -> u64 {
    if path.is_empty() {
        return ROOT;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&version.map_or(0, |version| version.0).to_le_bytes());
    hasher.update(path.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    // Positive also where it is taken for a signed number, and not that of the root.
    u64::from_le_bytes(first) >> 1 | 2
}

/// A name for what an inode stands for: a folder, or a version.
type Key = (Path, Option<Sequence>);

#[derive(Debug)]
struct Known<B> {
    node: Node<B>,
    /// How often the kernel was told of it, and has not forgotten it.
    lookups: u64,
}

/// All that the kernel knows.
#[derive(Debug)]
pub(super) struct Nodes<B> {
    known: BTreeMap<u64, Known<B>>,
    numbers: BTreeMap<Key, u64>,
    last: u64,
}

impl<B: Default> Nodes<B> {
    pub(super) fn new() -> Self {
        let root = Known { node: Node::Folder(None), lookups: 1 };
        Nodes { known: [(ROOT, root)].into(), numbers: BTreeMap::new(), last: ROOT }
    }

    pub(super) fn get(&self, number: u64) -> Option<Node<B>> {
        self.known.get(&number).map(|known| known.node.clone())
    }

    /// The kernel is told of a folder, or of a version.
    pub(super) fn tell(&mut self, path: Path, version: Option<Version>) -> u64 {
        let key = (path, version.map(|version| version.sequence));
        if let Some(number) = self.numbers.get(&key)
            && let Some(known) = self.known.get_mut(number)
        {
            known.lookups += 1;
            return *number;
        }
        self.last += 1;
        let path = key.0.clone();
        let node = match version {
            None => Node::Folder(Some(path)),
            Some(version) => Node::File(Arc::new(File { path, version, body: B::default() })),
        };
        self.known.insert(self.last, Known { node, lookups: 1 });
        self.numbers.insert(key, self.last);
        self.last
    }

    /// The kernel has forgotten so many times that it was told.
    pub(super) fn forget(&mut self, number: u64, lookups: u64) {
        let Some(known) = self.known.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 || number == ROOT {
            return;
        }
        if let Some(Known { node, .. }) = self.known.remove(&number) {
            let key = match node {
                Node::Folder(None) => return,
                Node::Folder(Some(path)) => (path, None),
                Node::File(file) => (file.path.clone(), Some(file.version.sequence)),
            };
            self.numbers.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;

    use super::*;
    use crate::types::{Content, Digest, Metadata};

    fn path(text: &str) -> Path {
        Path::new(text).unwrap()
    }

    fn version(sequence: u64) -> Version {
        let content =
            Content { digest: Digest::default(), size: Bytes(1), metadata: Metadata::default() };
        Version { sequence: Sequence(sequence), content }
    }

    #[test]
    fn each_version_has_an_inode_of_its_own() {
        let mut nodes = Nodes::<()>::new();
        let first = nodes.tell(path("a"), Some(version(1)));
        assert_eq!(nodes.tell(path("a"), Some(version(1))), first);
        let second = nodes.tell(path("a"), Some(version(2)));
        assert_ne!(first, second);
        assert_ne!(
            number_of("a", Some(Sequence(1))),
            number_of("a", Some(Sequence(2))),
            "and a number that stat shows"
        );
        let Some(Node::File(file)) = nodes.get(first) else { panic!("it is a file") };
        assert_eq!(file.version, version(1));
    }

    #[test]
    fn an_inode_is_there_until_the_kernel_has_forgotten_all_lookups() {
        let mut nodes = Nodes::<()>::new();
        let folder = nodes.tell(path("a"), None);
        nodes.tell(path("a"), None);
        nodes.forget(folder, 1);
        assert!(nodes.get(folder).is_some());
        nodes.forget(folder, 1);
        assert!(nodes.get(folder).is_none());
        assert_ne!(nodes.tell(path("a"), None), folder, "numbers are not used again");
        nodes.forget(ROOT, 100);
        assert!(nodes.get(ROOT).is_some());
    }
}
