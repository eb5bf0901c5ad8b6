//! Leaves that are sent in parts.

use super::states::answer;
use super::*;
use crate::merkle::{leaf_of, paths_of_one_leaf};
use crate::message::{Ask, Tree};
use crate::types::Version;

/// A replica that waits for all of these objects, which are in one leaf; that leaf; the question's tree.
fn waiting(paths: &[Path]) -> (Bench, Vec<(Path, Version)>, Start) {
    let mut bench = Bench::new(config());
    bench.replica.handle_disconnected(reading(0));
    let version = Version { sequence: Sequence(6), content: content(6) };
    let entries: Vec<_> = paths.iter().map(|path| (path.clone(), version)).collect();
    let tree = MerkleTree::new(entries.iter().map(|(path, version)| (path, *version)));
    let position = Position { sequence: Sequence(6), chain: Digest([9; 32]) };
    let start = Start::Resync { position, stamp: reading(0).wall, root: tree.root() };
    bench.connect(start.clone());
    bench.until_leaf(&tree);
    (bench, entries, start)
}

impl Bench {
    /// Answers queries about the tree until the replica asks for the entries of its one leaf.
    fn until_leaf(&mut self, tree: &MerkleTree) {
        loop {
            let (of, ask) = self.asked().expect("a question");
            if let Ask::Entries(leaves) = ask {
                return assert_eq!(leaves.len(), 1);
            }
            for part in answer(tree, ask) {
                self.say(ToReplica::Tree { of, part });
            }
        }
    }

    fn leaf(&mut self, leaf: u16, entries: &[(Path, Version)], more: bool) {
        let part = Tree::Entries { leaf, entries: entries.to_vec(), more };
        self.say(ToReplica::Tree { of: Sequence(6), part });
    }

    /// Objects of the durable state.
    fn objects(&mut self) -> usize {
        self.disk();
        self.replica.image().objects.len()
    }
}

#[test]
fn leaf_in_parts_is_applied_after_its_last_part() {
    let paths = paths_of_one_leaf(10, 20);
    let (mut bench, entries, _) = waiting(&paths);
    let leaf = leaf_of(&paths[0]);
    for part in entries.chunks(3) {
        assert_eq!(bench.objects(), 0, "nothing of it is shown yet");
        bench.leaf(leaf, part, part.len() == 3);
        assert!(bench.replica.is_connected());
    }
    assert_eq!((bench.objects(), bench.replica.position()), (10, Sequence(6)));
}

#[test]
fn invalid_parts_end_the_connection_and_the_leaf_restarts() {
    type Parts<'a> = Vec<(&'a [(Path, Version)], bool)>;
    let paths = paths_of_one_leaf(6, 20);
    let leaf = leaf_of(&paths[0]);
    let (_, all, _) = waiting(&paths);
    let other = all[0].1;
    let elsewhere = ["z0", "z1"].map(path).into_iter().find(|path| leaf_of(path) != leaf);
    let elsewhere = [(elsewhere.expect("of two one is in another leaf"), other)];
    let of = |at: core::ops::Range<usize>| &all[at];
    let wrong: [(&str, Parts<'_>); 7] = [
        ("the same again", vec![(of(0..3), true), (of(2..5), true)]),
        ("back", vec![(of(3..6), true), (of(0..2), true)]),
        ("of another leaf", vec![(of(0..6), true), (&elsewhere, true)]),
        ("without end", vec![(of(0..6), true), (&[], true)]),
        ("without beginning", vec![(&[], true)]),
        ("one is missing", vec![(of(0..3), true), (of(4..6), false)]),
        ("after its end", vec![(of(0..6), false), (of(0..6), false)]),
    ];
    for (what, parts) in wrong {
        let (mut bench, entries, start) = waiting(&paths);
        for (entries, more) in parts {
            assert!(bench.replica.is_connected(), "{what}");
            bench.leaf(leaf, entries, more);
        }
        assert!(!bench.replica.is_connected(), "{what}");
        if what == "after its end" {
            continue;
        }
        assert_eq!(bench.objects(), 0, "{what}");
        bench.connect(start);
        bench.until_leaf(&MerkleTree::new(entries.iter().map(|(path, one)| (path, *one))));
        bench.leaf(leaf, &entries, false);
        assert_eq!(bench.objects(), 6, "{what}");
    }
}

#[test]
fn partial_leaf_restarts_on_the_next_connection() {
    let paths = paths_of_one_leaf(6, 20);
    let (mut bench, entries, start) = waiting(&paths);
    let leaf = leaf_of(&paths[0]);
    bench.leaf(leaf, &entries[..4], true);
    bench.replica.handle_disconnected(reading(0));
    bench.connect(start);
    bench.until_leaf(&MerkleTree::new(entries.iter().map(|(path, one)| (path, *one))));
    bench.leaf(leaf, &entries[..2], true);
    bench.leaf(leaf, &entries[2..], false);
    assert_eq!((bench.objects(), bench.replica.position()), (6, Sequence(6)));
}

#[test]
fn parts_of_two_leaves_are_not_mixed() {
    let mut bench = Bench::new(config());
    bench.replica.handle_disconnected(reading(0));
    let version = Version { sequence: Sequence(6), content: content(6) };
    let [a, b] = ["a", "b"].map(|name| (path(name), version));
    let tree = MerkleTree::new([&a, &b].map(|(path, version)| (path, *version)));
    let position = Position { sequence: Sequence(6), chain: Digest([9; 32]) };
    bench.connect(Start::Resync { position, stamp: reading(0).wall, root: tree.root() });
    while let Some((of, ask)) = bench.asked() {
        if let Ask::Entries(leaves) = &ask {
            assert_eq!(leaves.len(), 2);
            break;
        }
        for part in answer(&tree, ask) {
            bench.say(ToReplica::Tree { of, part });
        }
    }
    bench.leaf(leaf_of(&a.0), core::slice::from_ref(&a), true);
    assert!(bench.replica.is_connected());
    bench.leaf(leaf_of(&b.0), &[b], false);
    assert!(!bench.replica.is_connected());
}
