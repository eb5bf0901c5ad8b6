//! Trees of hashes over a state. Two states are compared by their root, and differ where the hashes of
//! branches and leaves differ.
//!
//! A path's leaf is given by the first two bytes of its hash, its branch by the first of them: 256 branches
//! of 256 leaves. With a million objects a leaf has 15, so three round trips find the differences of any two
//! states, with little other data. Names may be chosen so that many fall into one leaf, which only makes that
//! leaf slower.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use blake3::Hasher;

use crate::path::Path;
use crate::types::{Digest, Version, hash_entry};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leaf {
    digest: Digest,
    entries: Vec<(Path, Version)>,
}

/// The tree of one state; it does not change with the state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MerkleTree {
    leaves: BTreeMap<u16, Leaf>,
    branches: BTreeMap<u8, Digest>,
    root: Digest,
}

/// The leaf of a path.
pub fn leaf_of(path: &Path) -> u16 {
    let hash = blake3::hash(path.as_bytes());
    u16::from_be_bytes([hash.as_bytes()[0], hash.as_bytes()[1]])
}

/// The hash of a leaf with these entries, in the order of the paths.
pub(crate) fn digest_of(entries: &[(Path, Version)]) -> Digest {
    let mut hasher = Hasher::new();
    for (path, version) in entries {
        hasher.update(&version.sequence.0.to_le_bytes());
        hash_entry(&mut hasher, path, Some(&version.content));
    }
    Digest(*hasher.finalize().as_bytes())
}

/// The hashes of the branches over leaves of these hashes.
fn branches_over(leaves: impl IntoIterator<Item = (u16, Digest)>) -> BTreeMap<u8, Digest> {
    let mut hashers: BTreeMap<u8, Hasher> = BTreeMap::new();
    for (leaf, digest) in leaves {
        let hasher = hashers.entry(branch_of(leaf)).or_default();
        hasher.update(&leaf.to_le_bytes());
        hasher.update(&digest.0);
    }
    let digest = |hasher: Hasher| Digest(*hasher.finalize().as_bytes());
    hashers.into_iter().map(|(branch, hasher)| (branch, digest(hasher))).collect()
}

fn root_over(branches: &BTreeMap<u8, Digest>) -> Digest {
    let mut hasher = Hasher::new();
    for (branch, digest) in branches {
        hasher.update(&[*branch]);
        hasher.update(&digest.0);
    }
    Digest(*hasher.finalize().as_bytes())
}

const fn branch_of(leaf: u16) -> u8 {
    leaf.to_be_bytes()[0]
}

impl MerkleTree {
    /// The tree of `state`, which is given in the order of the paths.
    pub fn new<'a>(state: impl IntoIterator<Item = (&'a Path, Version)>) -> Self {
        let mut builder = MerkleBuilder::default();
        for (path, version) in state {
            builder.add(path, version);
        }
        builder.hash_some(usize::MAX);
        builder.finish()
    }

    /// The root if these leaves had these hashes, or were empty.
    pub(crate) fn root_with(&self, others: &BTreeMap<u16, Option<Digest>>) -> Digest {
        let digests = self.leaves.iter().map(|(leaf, Leaf { digest, .. })| (*leaf, *digest));
        let mut digests: BTreeMap<u16, Digest> = digests.collect();
        for (leaf, digest) in others {
            match digest {
                Some(digest) => digests.insert(*leaf, *digest),
                None => digests.remove(leaf),
            };
        }
        root_over(&branches_over(digests))
    }

    /// The hash of the whole tree.
    pub fn root(&self) -> Digest {
        self.root
    }

    /// The branches that are not empty.
    pub fn branches(&self) -> Vec<(u8, Digest)> {
        self.branches.iter().map(|(branch, digest)| (*branch, *digest)).collect()
    }

    /// The leaves of `branch` that are not empty.
    pub fn leaves(&self, branch: u8) -> Vec<(u16, Digest)> {
        let range = u16::from_be_bytes([branch, 0])..=u16::from_be_bytes([branch, u8::MAX]);
        self.leaves.range(range).map(|(leaf, Leaf { digest, .. })| (*leaf, *digest)).collect()
    }

    /// The entries of `leaf`, in the order of the paths.
    pub fn entries(&self, leaf: u16) -> &[(Path, Version)] {
        self.leaves.get(&leaf).map_or(&[], |leaf| &leaf.entries)
    }

    /// The branches in which the other tree differs.
    pub fn differing_branches(&self, others: &[(u8, Digest)]) -> Vec<u8> {
        differing(&self.branches(), others)
    }

    /// The leaves of `branch` in which the other tree differs.
    pub fn differing_leaves(&self, branch: u8, others: &[(u16, Digest)]) -> Vec<u16> {
        differing(&self.leaves(branch), others)
    }
}

/// A tree that is made in slices, while its state may change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MerkleBuilder {
    leaves: BTreeMap<u16, Leaf>,
    /// The last leaf that is hashed.
    hashed: Option<u16>,
}

impl MerkleBuilder {
    /// The next object, in the order of the paths.
    pub(crate) fn add(&mut self, path: &Path, version: Version) {
        let empty = || Leaf { digest: Digest::default(), entries: Vec::new() };
        let leaf = self.leaves.entry(leaf_of(path)).or_insert_with(empty);
        leaf.entries.push((path.clone(), version));
    }

    /// An added object has another version now, or does not exist any more; or a new one precedes the last added
    /// one. Only before the first leaf is hashed.
    pub(crate) fn change(&mut self, path: &Path, version: Option<Version>) {
        let empty = || Leaf { digest: Digest::default(), entries: Vec::new() };
        let number = leaf_of(path);
        let leaf = self.leaves.entry(number).or_insert_with(empty);
        match (leaf.entries.binary_search_by(|(other, _)| other.cmp(path)), version) {
            (Ok(at), Some(version)) => leaf.entries[at].1 = version,
            (Ok(at), None) => {
                leaf.entries.remove(at);
            }
            (Err(at), Some(version)) => leaf.entries.insert(at, (path.clone(), version)),
            (Err(_), None) => {}
        }
        if leaf.entries.is_empty() {
            self.leaves.remove(&number);
        }
    }

    /// Hashes leaves of about this many objects; returns whether all are hashed.
    pub(crate) fn hash_some(&mut self, most: usize) -> bool {
        let from = self.hashed.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = most;
        for (number, leaf) in self.leaves.range_mut((from, Bound::Unbounded)) {
            if left == 0 {
                return false;
            }
            leaf.digest = digest_of(&leaf.entries);
            left = left.saturating_sub(leaf.entries.len());
            self.hashed = Some(*number);
        }
        true
    }

    /// The tree, when all leaves are hashed.
    pub(crate) fn finish(self) -> MerkleTree {
        let leaves = self.leaves;
        let digests = leaves.iter().map(|(leaf, Leaf { digest, .. })| (*leaf, *digest));
        let branches = branches_over(digests);
        let root = root_over(&branches);
        MerkleTree { leaves, branches, root }
    }
}

/// Keys that are in one list only, or have another hash.
fn differing<K: Copy + Ord>(ours: &[(K, Digest)], theirs: &[(K, Digest)]) -> Vec<K> {
    let ours: BTreeSet<_> = ours.iter().collect();
    let theirs: BTreeSet<_> = theirs.iter().collect();
    let keys: BTreeSet<K> = ours.symmetric_difference(&theirs).map(|(key, _)| *key).collect();
    keys.into_iter().collect()
}

/// This many paths of this length, all in one leaf, in order.
#[cfg(test)]
pub(crate) fn paths_of_one_leaf(count: usize, length: usize) -> Vec<Path> {
    const DIGITS: usize = 8;
    let name = |at: usize| if at % 200 == 199 { '/' } else { 'x' };
    let same: String = (0..length - DIGITS).map(name).collect();
    // The common prefix is hashed once.
    let mut hasher = Hasher::new();
    hasher.update(same.as_bytes());
    let leaf = |number: &String| {
        let hash = hasher.clone().update(number.as_bytes()).finalize();
        [hash.as_bytes()[0], hash.as_bytes()[1]]
    };
    let numbers = (0_u32..).map(|number| format!("{number:08}"));
    let mut numbers = numbers.map(|number| (leaf(&number), number)).peekable();
    let wanted = numbers.peek().map(|(leaf, _)| *leaf);
    let found = numbers.filter(|(leaf, _)| Some(*leaf) == wanted).take(count);
    found.map(|(_, number)| Path::new(&(same.clone() + &number)).expect("a path")).collect()
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::types::{Content, Metadata, Sequence};

    fn state(versions: &BTreeMap<u16, u64>) -> BTreeMap<Path, Version> {
        let entry = |(name, sequence): (&u16, &u64)| {
            let content =
                Content { digest: Digest([7; 32]), size: Bytes(1), metadata: Metadata::default() };
            let path = Path::new(&format!("f{name}")).expect("a path");
            (path, Version { sequence: Sequence(*sequence), content })
        };
        versions.iter().map(entry).collect()
    }

    fn tree(state: &BTreeMap<Path, Version>) -> MerkleTree {
        MerkleTree::new(state.iter().map(|(path, version)| (path, *version)))
    }

    proptest! {
        #[test]
        fn difference_is_found_and_makes_the_states_equal(
            ours in proptest::collection::btree_map(0..400_u16, 0..3_u64, 0..200),
            theirs in proptest::collection::btree_map(0..400_u16, 0..3_u64, 0..200),
        ) {
            let (mut ours, theirs) = (state(&ours), state(&theirs));
            let (old, new) = (tree(&ours), tree(&theirs));
            let mut leaves = Vec::new();
            for branch in old.differing_branches(&new.branches()) {
                leaves.extend(old.differing_leaves(branch, &new.leaves(branch)));
            }
            prop_assert_eq!(leaves.is_empty(), ours == theirs);
            prop_assert_eq!(old.root() == new.root(), ours == theirs);
            let hash = |leaf: &u16| Some(new.entries(*leaf)).filter(|all| !all.is_empty()).map(digest_of);
            let others = leaves.iter().map(|leaf| (*leaf, hash(leaf))).collect();
            prop_assert_eq!(old.root_with(&others), new.root());
            for leaf in leaves {
                prop_assert_ne!(old.entries(leaf), new.entries(leaf), "told for nothing");
                for (path, _) in old.entries(leaf) {
                    ours.remove(path);
                }
                ours.extend(new.entries(leaf).iter().cloned());
            }
            prop_assert_eq!(ours, theirs);
        }
    }

    proptest! {
        #[test]
        fn tree_made_in_slices_equals_that_of_the_last_state(
            before in proptest::collection::btree_map(0..400_u16, 0..3_u64, 0..200),
            changes in proptest::collection::vec((0..400_u16, proptest::option::of(0..3_u64)), 0..60),
            taken in 0..200_usize,
            slice in 1..50_usize,
        ) {
            let mut state = state(&before);
            let mut builder = MerkleBuilder::default();
            let mut last = None;
            for (path, version) in state.iter().take(taken) {
                builder.add(path, *version);
                last = Some(path.clone());
            }
            for (name, sequence) in changes {
                let path = Path::new(&format!("f{name}")).expect("a path");
                let version = sequence.map(|at| {
                    let mut version = self::state(&[(name, at)].into()).remove(&path);
                    version.take().expect("it is the only one")
                });
                match version {
                    Some(version) => state.insert(path.clone(), version),
                    None => state.remove(&path),
                };
                if last.as_ref().is_some_and(|last| path <= *last) {
                    builder.change(&path, version);
                }
            }
            let from = last.map_or(Bound::Unbounded, Bound::Excluded);
            for (path, version) in state.range::<Path, _>((from, Bound::Unbounded)) {
                builder.add(path, *version);
            }
            while !builder.hash_some(slice) {}
            prop_assert_eq!(builder.finish(), tree(&state));
        }
    }
}
