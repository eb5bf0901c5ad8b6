//! The inodes that the kernel knows, and their meaning. Pure.
//!
//! Each version of an object has its own inode, so cached data of an inode never go stale: after a write the
//! name has another inode. A folder keeps one for as long as the kernel knows it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use lull_replication::path::{Path, PathError, RESERVED};
use lull_replication::types::{Mode, Sequence, Version};

/// The inode of the root.
pub(super) const ROOT: u64 = 1;

/// The path of a folder, or of a name in one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NodePath {
    /// In the present state; the root has no path.
    Now(Option<Path>),
    /// Lull's own folder, which has a folder for each available state.
    States,
    /// In the state of that number.
    Then(Sequence, Option<Path>),
}

impl NodePath {
    /// The path of a name in this folder.
    pub(super) fn child(&self, name: &[u8]) -> Result<NodePath, PathError> {
        let within = |path: &Option<Path>| {
            let mut whole = path.as_ref().map_or_else(Vec::new, Path::prefix);
            whole.extend_from_slice(name);
            Path::from_bytes(&whole).map(Some)
        };
        match self {
            // No object has this name.
            NodePath::Now(None) if name == RESERVED.as_bytes() => Ok(NodePath::States),
            NodePath::Now(path) => within(path).map(NodePath::Now),
            NodePath::Then(at, path) => within(path).map(|path| NodePath::Then(*at, path)),
            NodePath::States => {
                let digits = name.strip_prefix(b"@").and_then(|rest| str::from_utf8(rest).ok());
                let at = digits.and_then(|digits| digits.parse().ok()).map(Sequence);
                // One name per state: no plus sign, no leading zeros.
                let at = at.filter(|at| at.to_string().as_bytes() == name);
                at.map(|at| NodePath::Then(at, None)).ok_or(PathError::Reserved)
            }
        }
    }

    /// The full name below the mount.
    pub(super) fn name(&self) -> Cow<'_, [u8]> {
        match self {
            NodePath::Now(path) => path.as_ref().map_or(&b""[..], Path::as_bytes).into(),
            NodePath::States => RESERVED.as_bytes().into(),
            NodePath::Then(at, None) => format!("{RESERVED}/{at}").into_bytes().into(),
            NodePath::Then(at, Some(path)) => {
                [format!("{RESERVED}/{at}/").as_bytes(), path.as_bytes()].concat().into()
            }
        }
    }
}

/// The meaning of an inode. `B` is the known part of a file's body.
#[derive(Debug)]
pub(super) enum Node<B> {
    /// A folder, with its mode as last reported to the kernel.
    Folder(NodePath, Mode),
    /// One version of an object.
    File(Arc<File<B>>),
}

/// One version of an object.
#[derive(Debug)]
pub(super) struct File<B> {
    /// In the state of that number, or in the present one.
    pub(super) then: Option<Sequence>,
    pub(super) path: Path,
    pub(super) version: Version,
    pub(super) body: B,
}

/// A derived implementation would require `B: Clone`.
impl<B> Clone for Node<B> {
    fn clone(&self) -> Self {
        match self {
            Node::Folder(node_path, mode) => Node::Folder(node_path.clone(), *mode),
            Node::File(file) => Node::File(Arc::clone(file)),
        }
    }
}

/// The identity of an inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Folder(NodePath),
    File(Option<Sequence>, Path, Sequence),
}

impl<B: Default> Node<B> {
    /// A version of the object at a place; none if no object can be there.
    pub(super) fn file(node_path: NodePath, version: Version) -> Option<Self> {
        let (then, path) = match node_path {
            NodePath::Now(path) => (None, path?),
            NodePath::Then(at, path) => (Some(at), path?),
            NodePath::States => return None,
        };
        Some(Node::File(Arc::new(File { then, path, version, body: B::default() })))
    }
}

impl<B> Node<B> {
    fn key(&self) -> Key {
        match self {
            Node::Folder(node_path, _) => Key::Folder(node_path.clone()),
            Node::File(file) => Key::File(file.then, file.path.clone(), file.version.sequence),
        }
    }
}

/// `st_ino`: the same for a folder and for a version each time, also after a restart. Two may share one if 62
/// bits of their hashes are equal, which does no harm here.
pub(crate) fn number_of(path: &[u8], version: Option<Sequence>) -> u64 {
    if path.is_empty() {
        return ROOT;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&version.map_or(0, |version| version.0).to_le_bytes());
    hasher.update(path);
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    // Positive also as a signed number, and not that of the root.
    u64::from_le_bytes(first) >> 1 | 2
}

#[derive(Debug)]
struct KnownNode<B> {
    node: Node<B>,
    /// The number of lookups by the kernel that it has not forgotten.
    lookups: u64,
}

/// All inodes that the kernel knows.
#[derive(Debug)]
pub(super) struct Nodes<B> {
    known: BTreeMap<u64, KnownNode<B>>,
    numbers: BTreeMap<Key, u64>,
    last: u64,
}

impl<B> Nodes<B> {
    pub(super) fn new() -> Self {
        let root = KnownNode { node: Node::Folder(NodePath::Now(None), Mode::IMPLIED), lookups: 1 };
        Nodes { known: [(ROOT, root)].into(), numbers: BTreeMap::new(), last: ROOT }
    }

    pub(super) fn get(&self, number: u64) -> Option<Node<B>> {
        self.known.get(&number).map(|known| known.node.clone())
    }

    /// Counts a lookup of a folder or a version by the kernel.
    pub(super) fn remember(&mut self, node: Node<B>) -> u64 {
        let key = node.key();
        if let Some(number) = self.numbers.get(&key)
            && let Some(known) = self.known.get_mut(number)
        {
            known.lookups += 1;
            known.node = node;
            return *number;
        }
        self.last += 1;
        self.known.insert(self.last, KnownNode { node, lookups: 1 });
        self.numbers.insert(key, self.last);
        self.last
    }

    /// The kernel has forgotten this many lookups.
    pub(super) fn forget(&mut self, number: u64, lookups: u64) {
        let Some(known) = self.known.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 || number == ROOT {
            return;
        }
        if let Some(KnownNode { node, .. }) = self.known.remove(&number) {
            self.numbers.remove(&node.key());
        }
    }
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;

    use super::*;
    use lull_replication::types::{Content, Digest, Metadata};

    fn path(text: &str) -> Path {
        Path::new(text).unwrap()
    }

    fn version(sequence: u64) -> Version {
        let content =
            Content { digest: Digest::default(), size: Bytes(1), metadata: Metadata::default() };
        Version { sequence: Sequence(sequence), content }
    }

    fn file(text: &str, sequence: u64) -> Node<()> {
        Node::file(NodePath::Now(Some(path(text))), version(sequence)).unwrap()
    }

    #[test]
    fn each_version_has_its_own_inode() {
        let mut nodes = Nodes::new();
        let first = nodes.remember(file("a", 1));
        assert_eq!(nodes.remember(file("a", 1)), first);
        let second = nodes.remember(file("a", 2));
        assert_ne!(first, second);
        assert_ne!(
            number_of(b"a", Some(Sequence(1))),
            number_of(b"a", Some(Sequence(2))),
            "and a number that stat shows"
        );
        let Some(Node::File(file)) = nodes.get(first) else { panic!("it is a file") };
        assert_eq!((file.then, file.version), (None, version(1)));
    }

    #[test]
    fn inode_lives_until_the_kernel_has_forgotten_all_lookups() {
        let mut nodes = Nodes::<()>::new();
        let node_path = || Node::Folder(NodePath::Now(Some(path("a"))), Mode::IMPLIED);
        let folder = nodes.remember(node_path());
        nodes.remember(node_path());
        nodes.forget(folder, 1);
        assert!(nodes.get(folder).is_some());
        nodes.forget(folder, 1);
        assert!(nodes.get(folder).is_none());
        assert_ne!(nodes.remember(node_path()), folder, "numbers are not used again");
        nodes.forget(ROOT, 100);
        assert!(nodes.get(ROOT).is_some());
    }

    #[test]
    fn states_have_their_own_paths() {
        let child = |node_path: &NodePath, name: &str| node_path.child(name.as_bytes());
        let root = NodePath::Now(None);
        let states = child(&root, ".lull").unwrap();
        assert_eq!(states, NodePath::States);
        let state = child(&states, "@17").unwrap();
        assert_eq!(state, NodePath::Then(Sequence(17), None));
        let folder = child(&state, "a").unwrap();
        let within = child(&folder, "b").unwrap();
        assert_eq!(within, NodePath::Then(Sequence(17), Some(path("a/b"))));
        for (node_path, text) in [
            (&root, ""),
            (&states, ".lull"),
            (&state, ".lull/@17"),
            (&within, ".lull/@17/a/b"),
            (&child(&root, "a").unwrap(), "a"),
        ] {
            assert_eq!(*node_path.name(), *text.as_bytes());
        }
        for name in ["@", "@-1", "@+1", "@017", "@1x", "@99999999999999999999", "17", "a"] {
            assert!(child(&states, name).is_err(), "{name}");
        }
        assert_eq!(child(&state, ".lull"), Err(PathError::Reserved), "states are not in states");
        // Only at the root the name is reserved.
        let NodePath::Now(Some(own)) = child(&child(&root, "a").unwrap(), ".lull").unwrap() else {
            panic!("a file of the tree");
        };
        assert_eq!(own, path("a/.lull"));
    }
}
