//! Tree comparisons during which the log advances.

use std::sync::Arc;

use super::*;

/// An origin whose log has passed the tree of the first commit, while a replica compares with it. The replica
/// was informed.
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
fn resync_passed_by_the_log_restarts() {
    let mut bench = passed();
    bench.say(ToOrigin::Resynced(Sequence(1)));
    assert_eq!(sequences(&bench.told()), [0_u64; 0], "that was the old one");
    bench.say(ToOrigin::Resynced(Sequence(4)));
    assert!(matches!(bench.told()[..], [ToReplica::Heartbeat { .. }]));
}

#[test]
fn query_about_a_replaced_tree_is_not_answered() {
    let mut bench = passed();
    // Requested before the replica has received it.
    bench.say(ToOrigin::Ask { of: Sequence(1), part: Ask::Leaves(vec![7]) });
    assert_eq!((bench.told(), bench.events()), (Vec::new(), Vec::new()));
    bench.say(ToOrigin::Ask { of: Sequence(4), part: Ask::Branches });
    let told = bench.told();
    let [ToReplica::Tree { of: Sequence(4), part: Tree::Branches(branches) }] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(!branches.is_empty());
}

#[test]
fn stalled_resyncs_share_one_tree() {
    let mut bench = passed();
    let old = Arc::downgrade(bench.origin.preparation.snapshot.as_ref().expect("a tree"));
    for text in ["e5", "f6", "g7"] {
        bench.committed(text);
    }
    // The first one no longer reads its messages; another one comes.
    let other = ReplicaId(REPLICA.0 + 1);
    let hello = ToOrigin::Hello {
        protocol: PROTOCOL,
        replica: other,
        position: None,
        committed: Sequence::ZERO,
        only: Subscription::default(),
    };
    let session = Session { connection: 1, ..bench.session() };
    bench.origin.handle_frame(reading(0), other, Frame { session, message: hello });
    assert!(old.upgrade().is_none(), "the old tree is kept");
    let told = bench.told();
    let [ToReplica::Welcome { start: Start::Resync { position, .. }, .. }] = told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(position, bench.origin.last(), "and it goes on with the new one");
    bench.say(ToOrigin::Resynced(position.sequence));
    assert!(matches!(bench.told()[..], [ToReplica::Heartbeat { .. }]));
}

#[test]
fn bodies_are_pushed_once_and_only_after_the_comparison() {
    let mut bench = passed();
    assert_eq!(bench.pushed(), [0; 0]);
    // It had the first of them.
    bench.say(ToOrigin::Lacking(["b", "c", "d"].map(path).to_vec()));
    assert_eq!(bench.pushed(), [0; 0]);
    bench.say(ToOrigin::Resynced(Sequence(4)));
    let mut pushed = bench.pushed();
    pushed.sort_unstable();
    assert_eq!(pushed, [1, 2, 3, 4], "and the first one, as this origin knew of no body there");
    bench.say(ToOrigin::Taken(4));
    assert_eq!(bench.pushed(), [0; 0]);
}

#[test]
fn new_replica_gets_writes_made_during_its_comparison() {
    for strategy in [Strategy::Trip, Strategy::PushAll] {
        let mut bench = Bench::new(Config { log: 2, strategy, ..Config::default() });
        bench.committed("a1");
        bench.hello(None);
        bench.told();
        for text in ["b2", "c3", "d4"] {
            bench.committed(text);
        }
        assert!(is_resync(&bench.told()), "{strategy}: the log has passed the tree");
        // It was empty, so it does not report missing bodies.
        bench.say(ToOrigin::Resynced(Sequence(4)));
        let mut pushed = bench.pushed();
        pushed.sort_unstable();
        assert_eq!(pushed, [1, 2, 3, 4], "{strategy}");
    }
}
