//! Commits and leaves that are sent in parts.

use super::*;
use crate::merkle::{leaf_of, paths_of_one_leaf};
use crate::path::MAX_PATH_BYTES;

impl Bench {
    /// The number of changes in each part of the sent commits, and whether more follow.
    fn parts(&mut self) -> Vec<(usize, bool)> {
        let part = |message| match message {
            ToReplica::Invalidation { changes, more, .. } => Some((changes.len(), more)),
            _ => None,
        };
        self.told().into_iter().filter_map(part).collect()
    }
}

#[test]
fn large_commits_are_split() {
    let mut bench = Bench::new(Config { part: 2, ..Config::default() });
    bench.hello(Some(bench.origin.last()));
    bench.told();
    bench.committed("a1 b2 c3 d4 e5");
    assert_eq!(bench.parts(), [(2, true), (2, true), (1, false)]);
}

#[test]
fn parts_of_a_commit_are_short_enough_for_a_slow_line() {
    let mut bench = Bench::new(Config { slice: 1_000, ..Config::default() });
    bench.hello(Some(bench.origin.last()));
    bench.told();
    let name = |number: usize| format!("{number:060}1");
    let names: Vec<String> = (0..512).map(name).collect();
    bench.committed(&names.join(" "));
    let told = bench.told();
    let changes = told.iter().filter_map(|message| match message {
        ToReplica::Invalidation { changes, .. } => Some(changes.len()),
        _ => None,
    });
    assert_eq!(changes.sum::<usize>(), 512, "all of them are sent");
    for message in told {
        let mut frame = Vec::new();
        let message = Frame { session: bench.session(), message };
        crate::wire::encode(&message, &mut frame).expect("within the limits");
        assert!(frame.len() < 17 * 1024, "{} bytes", frame.len());
    }
    // A longer one goes alone.
    let mut bench = Bench::new(Config { part_bytes: Bytes(100), ..Config::default() });
    bench.hello(Some(bench.origin.last()));
    bench.told();
    bench.committed(&format!("a1 {}1 b2", "long".repeat(30)));
    assert_eq!(bench.parts(), [(1, true), (1, true), (1, false)]);
}

/// An origin with these objects, whose replica has asked for the entries of these leaves of their tree.
fn asked_of(config: Config, paths: &[Path], leaves: Vec<u16>) -> Bench {
    let mut bench = Bench::new(config);
    let put = || Put::Body(payload(1, 10), Metadata::default());
    bench.submit(Transaction { changes: paths.iter().map(|path| (path.clone(), put())).collect() });
    bench.disk();
    bench.events();
    bench.hello(None);
    assert!(is_resync(&bench.told()));
    bench.say(ToOrigin::Ask { of: Sequence(1), part: Ask::Entries(leaves) });
    bench
}

/// The leaf of a part, its entries, and whether more follow.
fn part_of(message: ToReplica) -> (u16, Vec<Path>, bool) {
    let ToReplica::Tree { part: Tree::Entries { leaf, entries, more }, .. } = message else {
        panic!("{message:?}");
    };
    (leaf, entries.into_iter().map(|(path, _)| path).collect(), more)
}

#[test]
fn full_leaves_are_split_and_sent_in_order() {
    let mut paths = paths_of_one_leaf(7, 20);
    let full = leaf_of(&paths[0]);
    let single = ["y", "z"].map(path).into_iter().find(|path| leaf_of(path) != full);
    paths.extend(single);
    let other = leaf_of(&paths[7]);
    let config = Config { part: 3, ..Config::default() };
    let empty = (0..).find(|leaf| ![full, other].contains(leaf)).expect("it is empty");
    let mut bench = asked_of(config, &paths, vec![full, empty, other]);
    let parts: Vec<_> = bench.told().into_iter().map(part_of).collect();
    let part = |at: core::ops::Range<usize>| paths[at].to_vec();
    let expected = [
        (full, part(0..3), true),
        (full, part(3..6), true),
        (full, part(6..7), false),
        (empty, Vec::new(), false),
        (other, part(7..8), false),
    ];
    assert_eq!(parts, expected);
}

#[test]
fn parts_of_a_leaf_are_short_for_any_names() {
    let paths = paths_of_one_leaf(8, MAX_PATH_BYTES);
    let leaf = leaf_of(&paths[0]);
    let mut bench = asked_of(Config::default(), &paths, vec![leaf]);
    let told = bench.told();
    for message in &told {
        let mut frame = Vec::new();
        let message = Frame { session: bench.session(), message: message.clone() };
        crate::wire::encode(&message, &mut frame).expect("within the limits");
        assert!(frame.len() < 17 * 1024, "{} bytes", frame.len());
    }
    let all: Vec<Path> = told.into_iter().flat_map(|message| part_of(message).1).collect();
    assert_eq!(all, paths);
}
