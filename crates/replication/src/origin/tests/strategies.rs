//! The order of pushes, and the waits of invalidations.

use super::*;

fn bench(strategy: Strategy) -> Bench {
    let mut bench = Bench::new(Config {
        strategy,
        under_way: 3,
        under_way_bytes: Bytes(0),
        ..Config::default()
    });
    bench.committed("old0");
    bench.hello(Some(bench.origin.last()));
    bench.told();
    bench
}

fn heartbeats(told: &[ToReplica]) -> Vec<(i64, u64, bool)> {
    let heartbeat = |message: &ToReplica| match message {
        ToReplica::Heartbeat { stamp, committed, echo } => {
            Some((stamp.as_nanos(), committed.0, echo.is_some()))
        }
        _ => None,
    };
    told.iter().filter_map(heartbeat).collect()
}

#[test]
fn welcome_says_whether_to_apply_invalidations_eagerly() {
    use Strategy::{DemandOnly, PushAll, Threshold, Trip};
    for (strategy, expected) in
        [(Trip, false), (DemandOnly, true), (PushAll, true), (Threshold(0.5), true)]
    {
        let mut bench = Bench::new(Config { strategy, log: 1, ..Config::default() });
        let first = bench.origin.last();
        for text in ["a1", "b2"] {
            bench.committed(text);
        }
        // By the log, and by a tree.
        for position in [bench.origin.last(), first] {
            bench.hello(Some(position));
            let told = bench.told();
            let Some(ToReplica::Welcome { eager, .. }) = told.first() else { panic!("{told:?}") };
            assert_eq!(*eager, expected, "{strategy}");
        }
    }
}

#[test]
fn demand_only_pushes_nothing_and_invalidates_at_once() {
    let mut bench = bench(Strategy::DemandOnly);
    bench.committed("a1");
    bench.committed("b2");
    assert_eq!(sequences(&bench.told()), [2, 3]);
    assert!(bench.pushed().is_empty());
    bench.say(ToOrigin::Lacking(vec![path("a")]));
    assert!(bench.pushed().is_empty());
    bench.hello(None);
    bench.told();
    assert!(bench.pushed().is_empty(), "not to a new replica either");
    bench.say(ToOrigin::Demand(path("a")));
    let body = bench.origin.poll_demand(REPLICA).expect("what is asked for comes").message;
    assert_eq!(body.version.map(|version| version.content.digest), Some(Digest([1; 32])));
}

#[test]
fn push_all_sends_each_invalidation_after_its_bodies() {
    let mut bench = bench(Strategy::PushAll);
    for text in ["a1", "a2 b3", "b-", "c4"] {
        bench.committed(text);
    }
    assert!(sequences(&bench.told()).is_empty());
    assert_eq!(bench.pushed(), [1, 2, 3], "an overwritten one too; three are under way at most");
    assert!(sequences(&bench.told()).is_empty());
    for (taken, told) in [(1, vec![2]), (2, vec![]), (3, vec![3, 4])] {
        bench.say(ToOrigin::Taken(taken));
        assert_eq!(sequences(&bench.told()), told, "{taken} taken");
    }
    assert_eq!(bench.pushed(), [4]);
    assert!(sequences(&bench.told()).is_empty());
    bench.say(ToOrigin::Taken(4));
    assert_eq!(sequences(&bench.told()), [5]);
    assert!(bench.pushed().is_empty());
}

#[test]
fn heartbeats_wait_behind_a_delayed_invalidation() {
    let mut bench = bench(Strategy::PushAll);
    bench.say(ToOrigin::Ping { sent: reading(0).local });
    bench.ms = 5_000;
    bench.committed("a1");
    bench.ms = 9_000;
    bench.committed("b2");
    let before = reading(5_000).wall.as_nanos() - 1;
    assert_eq!(heartbeats(&bench.told()), [(before, 1, false)]);
    assert!(heartbeats(&bench.told()).is_empty(), "not again at once");
    bench.ms = 10_000;
    assert_eq!(heartbeats(&bench.told()), [(before, 1, false)]);
    bench.pushed();
    bench.say(ToOrigin::Taken(2));
    bench.ms = 11_000;
    let told = bench.told();
    assert_eq!(sequences(&told), [2, 3]);
    assert_eq!(heartbeats(&told), [(reading(11_000).wall.as_nanos(), 3, true)]);
}

#[test]
fn threshold_pushes_likely_reads_in_order() {
    let mut bench = bench(Strategy::Threshold(0.5));
    for text in ["a1", "b2"] {
        bench.committed(text);
    }
    assert_eq!(sequences(&bench.told()), [2, 3], "no replica has read anything");
    bench.say(ToOrigin::Reads(vec![(path("a"), 3), (path("b"), 1)]));
    for text in ["b3", "a4", "b5"] {
        bench.committed(text);
    }
    // Of b there are now three writes and one read.
    assert_eq!(sequences(&bench.told()), [4]);
    assert_eq!(bench.pushed(), [4]);
    assert!(sequences(&bench.told()).is_empty());
    bench.say(ToOrigin::Taken(1));
    assert_eq!(sequences(&bench.told()), [5, 6]);
}

#[test]
fn first_write_of_an_object_is_counted() {
    let mut bench = bench(Strategy::Threshold(0.6));
    bench.committed("a1");
    bench.say(ToOrigin::Reads(vec![(path("a"), 1)]));
    bench.committed("a2");
    assert_eq!(sequences(&bench.told()), [2, 3], "one read of two writes is less than that");
    assert!(bench.pushed().is_empty());
}

#[test]
fn delayed_replica_gets_the_announced_version() {
    let mut bench = bench(Strategy::Threshold(0.5));
    bench.committed("a1");
    assert_eq!(sequences(&bench.told()), [2]);
    bench.say(ToOrigin::Reads(vec![(path("c"), 9)]));
    bench.committed("c2");
    bench.committed("c3");
    bench.committed("a4");
    assert_eq!(sequences(&bench.told()), [3, 4, 5], "c was not there to be read");
    bench.say(ToOrigin::Reads(vec![(path("c"), 9)]));
    bench.committed("c5");
    bench.told();
    bench.committed("a6");
    assert!(sequences(&bench.told()).is_empty(), "it waits for the body of c");
    bench.say(ToOrigin::Demand(path("a")));
    let told = bench.origin.poll_demand(REPLICA).expect("an answer").message;
    let last_told = bench.origin.last().sequence.0 - 2;
    assert_eq!(told.at.0, last_told);
    assert_eq!(told.version.map(|version| version.content.digest), Some(Digest([4; 32])));
}

#[test]
fn bodies_of_buffered_invalidations_are_pushed_again() {
    let mut bench = bench(Strategy::PushAll);
    let applied = bench.origin.last();
    bench.committed("a1");
    let received = bench.origin.last();
    bench.committed("b2");
    assert_eq!(bench.pushed(), [1, 2]);
    bench.connection += 1;
    let hello = ToOrigin::Hello {
        protocol: PROTOCOL,
        replica: REPLICA,
        position: Some(received),
        committed: applied.sequence,
        only: Subscription::default(),
    };
    bench.say(hello);
    bench.told();
    assert_eq!(bench.pushed()[..2], [1, 2]);
}

#[test]
fn log_too_short_for_a_slow_replica_ends_in_a_resync() {
    let strategy = Strategy::PushAll;
    let mut bench = Bench::new(Config {
        strategy,
        under_way: 1,
        under_way_bytes: Bytes(0),
        log: 3,
        ..Config::default()
    });
    bench.committed("old0");
    bench.hello(Some(bench.origin.last()));
    bench.told();
    for text in ["a1", "b2", "c3", "d4", "e5"] {
        bench.committed(text);
    }
    let told = bench.told();
    assert!(is_resync(&told), "{told:?}");
}

#[test]
fn ordered_push_of_an_overwritten_body_is_finished() {
    for (strategy, wanted) in [(Strategy::PushAll, true), (Strategy::Trip, false)] {
        let mut bench = bench(strategy);
        bench.committed("a1");
        let body = bench.origin.poll_speculative(REPLICA).expect("a body");
        assert!(bench.origin.is_wanted(REPLICA, &body));
        bench.say(ToOrigin::Demand(path("a")));
        let asked = bench.origin.poll_demand_in_turn(REPLICA).expect("a body");
        bench.committed("a2");
        assert_eq!(bench.origin.is_wanted(REPLICA, &body), wanted, "{strategy}");
        assert!(bench.origin.is_wanted(REPLICA, &asked), "{strategy}: a read waits for it");
    }
}
