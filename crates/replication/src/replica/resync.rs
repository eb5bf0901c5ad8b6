//! A replica that was away for longer than the log: it compares its tree with the origin's, and takes over
//! the differences in one step.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use super::{Image, Object};
use crate::merkle::{MerkleBuilder, MerkleTree, digest_of, leaf_of};
use crate::message::{Ask, Tree};
use crate::path::Path;
use crate::time::LocalTime;
use crate::types::{Digest, Position, Version};

/// ```text
///   Waiting ──▶ Branches ──▶ Leaves ──▶ Entries ──▶ Complete ──▶ (applied as one step)
///   (a step is       │                                  ▲
///    being written)  └──────────────────────────────────┘ the roots are equal
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The state to be compared is about to change.
    Waiting,
    /// Compares branches.
    Branches,
    /// Compares the leaves of these branches; these leaves differ so far.
    Leaves(BTreeSet<u8>, BTreeMap<u16, LeafHash>),
    /// Waits for these leaves. A part of one may have come, whose rest comes next.
    Entries(BTreeMap<u16, LeafHash>, Option<(u16, Entries)>),
    /// Knows all differences.
    Complete,
}

/// The hash of a leaf at the origin; none if the leaf is empty.
type LeafHash = Option<Digest>;

/// Whether the entries of a leaf may follow `before`.
fn goes_on(leaf: u16, before: &[(Path, Version)], entries: &[(Path, Version)]) -> bool {
    before.last().into_iter().chain(entries).is_sorted_by(|(before, _), (path, _)| before < path)
        && entries.iter().all(|(path, _)| leaf_of(path) == leaf)
}

/// Whether these entries have the hash of the leaf.
fn has_leaf_hash(entries: &[(Path, Version)], told: LeafHash) -> bool {
    digest_of(entries) == told.unwrap_or_else(|| digest_of(&[]))
}

/// The comparison of the state with the origin's, and what the origin knows of missing bodies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Comparison {
    pub(super) resync: Option<Resync>,
    /// Leaves that came before the connection of a comparison broke.
    pub(super) known: Leaves,
    /// The origin may not know which bodies are missing here; and when that was last reported.
    pub(super) untold: bool,
    pub(super) told_at: LocalTime,
}

impl Comparison {
    pub(super) fn new(now: LocalTime) -> Self {
        Comparison { resync: None, known: Leaves::new(), untold: false, told_at: now }
    }
}

/// A running comparison.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Resync {
    /// The position of the resulting state.
    pub(super) position: Position,
    root: Digest,
    state: State,
    own: Option<MerkleTree>,
    /// The state's tree while it is made, and the last object in it.
    making: (MerkleBuilder, Option<Path>),
    fetched: Leaves,
    /// The hashes of those.
    hashes: BTreeMap<u16, LeafHash>,
    /// Leaves of previous trees, which it may still have.
    known: Leaves,
}

/// The entries of a leaf, in the order of the paths.
type Entries = Vec<(Path, Version)>;

/// The entries of leaves.
pub(super) type Leaves = BTreeMap<u16, Entries>;

impl Resync {
    pub(super) fn new(position: Position, root: Digest, known: Leaves) -> Self {
        let state = State::Waiting;
        let (making, fetched, hashes) = Default::default();
        Resync { position, root, state, own: None, making, fetched, hashes, known }
    }

    /// The entries received for this tree and those before it, for its successor.
    pub(super) fn into_known(mut self) -> Leaves {
        self.known.append(&mut self.fetched);
        self.known
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    pub(super) fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// The state does not change now: compares it, and returns the first question. In slices of this many objects;
    /// none if there are more.
    pub(super) fn build_tree(&mut self, image: &Image, slice: usize) -> Option<Option<Ask>> {
        let (builder, last) = &mut self.making;
        let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = image.objects.range::<Path, _>((from, Bound::Unbounded));
        let mut to = None;
        for (path, object) in rest.by_ref().take(slice) {
            builder.add(path, object.version);
            to = Some(path);
        }
        let is_complete = rest.next().is_none();
        *last = to.cloned().or(last.take());
        if !is_complete || !builder.hash_some(slice) {
            return None;
        }
        let tree = core::mem::take(builder).finish();
        let equal = tree.root() == self.root;
        self.own = Some(tree);
        self.state = if equal { State::Complete } else { State::Branches };
        Some((!equal).then_some(Ask::Branches))
    }

    /// An answer has come; returns the next query, or nothing while answers are missing. An unexpected answer
    /// is an error, and so is one that contradicts an earlier one.
    pub(super) fn handle(&mut self, told: Tree) -> Result<Option<Ask>, ()> {
        let own = self.own.as_ref().ok_or(())?;
        match (&mut self.state, told) {
            (State::Branches, Tree::Branches(theirs)) => {
                let differ = own.differing_branches(&theirs);
                if differ.is_empty() {
                    // Two trees with the same root have the same branches.
                    return Err(());
                }
                self.state = State::Leaves(differ.iter().copied().collect(), BTreeMap::new());
                Ok(Some(Ask::Leaves(differ)))
            }
            (State::Leaves(missing, differ), Tree::Leaves(branch, theirs)) => {
                if !missing.remove(&branch) {
                    return Err(());
                }
                let others = own.differing_leaves(branch, &theirs);
                let theirs: BTreeMap<u16, Digest> = theirs.into_iter().collect();
                for leaf in others {
                    let told = theirs.get(&leaf).copied();
                    match self.known.remove(&leaf) {
                        // Their leaf and their order were checked when they came.
                        Some(entries) if has_leaf_hash(&entries, told) => {
                            self.fetched.insert(leaf, entries);
                            self.hashes.insert(leaf, told);
                        }
                        _ => {
                            differ.insert(leaf, told);
                        }
                    }
                }
                if !missing.is_empty() {
                    return Ok(None);
                }
                let differ = core::mem::take(differ);
                if differ.is_empty() {
                    // All differences were received before; or there are none, though branches differ.
                    return self.complete();
                }
                let ask = differ.keys().copied().collect();
                self.state = State::Entries(differ, None);
                Ok(Some(Ask::Entries(ask)))
            }
            (State::Entries(missing, begun), Tree::Entries { leaf, entries, more }) => {
                let told = *missing.get(&leaf).ok_or(())?;
                let mut all = match begun.take() {
                    Some((of, _)) if of != leaf => return Err(()),
                    begun => begun.map_or_else(Vec::new, |(_, before)| before),
                };
                // Each part brings new objects of that leaf. So the entries kept until the leaf's hash is
                // compared take no more memory than the state would.
                if !goes_on(leaf, &all, &entries) || (more && entries.is_empty()) {
                    return Err(());
                }
                all.extend(entries);
                if more {
                    *begun = Some((leaf, all));
                    return Ok(None);
                }
                if !has_leaf_hash(&all, told) {
                    return Err(());
                }
                missing.remove(&leaf);
                self.fetched.insert(leaf, all);
                self.hashes.insert(leaf, told);
                if missing.is_empty() { self.complete() } else { Ok(None) }
            }
            _ => Err(()),
        }
    }

    /// All differences were received. The result is the state of that root, or it is never shown.
    fn complete(&mut self) -> Result<Option<Ask>, ()> {
        let root = self.own.as_ref().map(|own| own.root_with(&self.hashes));
        if root != Some(self.root) {
            return Err(());
        }
        self.state = State::Complete;
        Ok(None)
    }

    /// Adds the changes of the state by the next leaf that differs to those of a step; `stored` says which bodies
    /// are here. Returns how many objects were compared; none if there are no more leaves.
    pub(super) fn change_some(
        &self,
        after: &mut Option<u16>,
        changes: &mut BTreeMap<Path, Option<Object>>,
        mut stored: impl FnMut(&Digest) -> bool,
    ) -> Option<usize> {
        let own = self.own.as_ref()?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (leaf, entries) = self.fetched.range((from, Bound::Unbounded)).next()?;
        *after = Some(*leaf);
        let before = own.entries(*leaf);
        for (path, _) in before {
            changes.insert(path.clone(), None);
        }
        for (path, version) in entries {
            // The entries are sorted: a linear search for each entry of a very large leaf would take
            // minutes.
            let at = before.binary_search_by(|(other, _)| other.cmp(path));
            if at.is_ok_and(|at| before[at].1 == *version) {
                changes.remove(path);
            } else {
                let valid = stored(&version.content.digest);
                changes.insert(path.clone(), Some(Object { version: *version, valid }));
            }
        }
        Some(before.len() + entries.len())
    }
}
