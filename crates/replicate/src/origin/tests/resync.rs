//! Comparisons of trees that the log does not wait for.

use super::*;

/// An origin whose log has passed the tree of the first commit, which the replica compares with, and of
/// that it was told.
fn passed() -> Bench {
    let mut bench = Bench::new(Config { log: 2, ..Config::default() });
    bench.committed("a1");
    bench.hello(None);
    bench.told();
    bench.say(ToOrigin::Ask { of: Sequence(1), part: Ask::Branches });
    for text in ["b2", "c3", "d4"] {
        bench.committed(text);
    }
    let told = bench.told();
    assert!(is_resync(&told), "{told:?}");
    bench
}

#[test]
fn a_resync_that_the_log_passes_begins_anew() {
    let mut bench = passed();
    bench.say(ToOrigin::Resynced(Sequence(1)));
    assert_eq!(sequences(&bench.told()), [0_u64; 0], "that was the old one");
    bench.say(ToOrigin::Resynced(Sequence(4)));
    assert!(matches!(bench.told()[..], [ToReplica::Heartbeat { .. }]));
}

#[test]
fn a_question_about_a_tree_that_was_replaced_is_not_answered_by_the_new_one() {
    let mut bench = passed();
    // Asked before the replica has heard of it.
    bench.say(ToOrigin::Ask { of: Sequence(1), part: Ask::Leaves(vec![7]) });
    assert_eq!((bench.told(), bench.events()), (Vec::new(), Vec::new()));
    bench.say(ToOrigin::Ask { of: Sequence(4), part: Ask::Branches });
    let told = bench.told();
    let [ToReplica::Tree { of: Sequence(4), part: Tree::Branches(branches) }] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(!branches.is_empty());
}
