//! The effects of a quota.

use super::*;

fn bounded(quota: u64) -> Config {
    Config { quota: Some(Bytes(quota)), ..config() }
}

/// A replica that has the bodies of `a` and `b`, of ten bytes each.
fn with_two(config: Config) -> Bench {
    let mut bench = Bench::new(config);
    bench.commit(1, "a1 b2");
    for text in ["a1", "b2"] {
        bench.body(1, text, false);
    }
    bench.disk();
    bench
}

#[test]
fn new_body_takes_the_space_of_the_one_that_it_replaces() {
    for (body_first, grace) in [(false, 0), (true, 0), (false, 20), (true, 20)] {
        let grace = Duration::from_secs(grace);
        let mut bench = with_two(Config { grace, ..bounded(25) });
        if body_first {
            bench.body(2, "a3", false);
            bench.disk();
            assert_eq!(bench.read("a"), "1", "not before its invalidation");
            bench.commit(2, "a3");
        } else {
            bench.commit(2, "a3");
            bench.body(2, "a3", false);
        }
        bench.disk();
        let both = (bench.state("a"), bench.state("b"));
        assert_eq!(both, (Some((2, true)), Some((1, true))), "{body_first}, {grace:?}");
        let counters = bench.replica.take_counters();
        assert_eq!((counters.refused, counters.evicted, counters.at_once), (0, 0, 0));
        assert_eq!(bench.replica.bytes(), Bytes(20), "{body_first}, {grace:?}");
    }
}

#[test]
fn body_shared_with_another_object_frees_no_space() {
    let mut bench = with_two(bounded(25));
    bench.commit(2, "c1");
    bench.disk();
    bench.commit(3, "a3");
    bench.body(3, "a3", false);
    assert_eq!(bench.replica.take_counters().refused, 1);
}

#[test]
fn body_over_the_quota_is_not_awaited() {
    for body_first in [false, true] {
        let mut bench = with_two(bounded(25));
        if body_first {
            bench.body(2, "c9", false);
            bench.commit(2, "c9");
        } else {
            bench.commit(2, "c9");
            bench.disk();
            assert_eq!(bench.state("c"), None, "its body may be small");
            bench.body(2, "c9", false);
        }
        bench.disk();
        assert_eq!(bench.state("c"), Some((2, false)), "{body_first}");
        let counters = bench.replica.take_counters();
        assert_eq!((counters.refused, counters.at_once), (1, 1), "{body_first}");
    }
}

#[test]
fn body_within_the_quota_is_awaited() {
    let mut bench = with_two(bounded(35));
    bench.body(2, "c9", false);
    bench.commit(2, "c9 d4");
    bench.disk();
    assert_eq!(bench.state("c"), None, "d is to come");
    bench.body(2, "d4", false);
    bench.disk();
    assert_eq!((bench.state("c"), bench.state("d")), (Some((2, false)), Some((2, true))));
    // None of the next one was refused.
    bench.commit(3, "a5");
    bench.disk();
    assert_eq!(bench.state("a"), Some((1, true)));
}

#[test]
fn lacking_list_for_a_new_origin_respects_the_quota() {
    for (quota, expected) in [(None, vec!["c"]), (Some(25), vec![]), (Some(30), vec!["c"])] {
        let mut bench = with_two(Config { quota: quota.map(Bytes), ..config() });
        bench.commit(2, "c3");
        bench.wait(10_000);
        bench.disk();
        assert_eq!(bench.state("c"), Some((2, false)));
        bench.replica.handle_disconnected(reading(bench.ms));
        bench.connect_to_another_life();
        assert_eq!(bench.lacking(), expected, "{quota:?}");
    }
}

#[test]
fn oldest_overwritten_bodies_are_evicted_first() {
    let grace = Duration::from_secs(20);
    let mut bench = with_two(Config { grace, ..bounded(45) });
    for (sequence, text) in [(2, "a3"), (3, "b4")] {
        bench.commit(sequence, text);
        bench.body(sequence, text, false);
        bench.disk();
    }
    let here = |bench: &Bench| [1, 2, 3, 4].map(|body| bench.replica.has_body(&Digest([body; 32])));
    assert_eq!(here(&bench), [true; 4], "there is room for all of it");
    bench.commit(4, "c5");
    bench.body(4, "c5", true);
    bench.disk();
    assert_eq!(here(&bench), [false, true, true, true], "one body too many");
    assert_eq!(bench.read("c"), "5");
    assert_eq!((bench.replica.bytes(), bench.replica.take_counters().evicted), (Bytes(40), 0));
}

#[test]
fn body_overwritten_twice_is_dropped_with_both() {
    let grace = Duration::from_secs(20);
    let mut bench = with_two(Config { grace, ..bounded(55) });
    for (sequence, text) in [(2, "a3"), (3, "a1"), (4, "a4")] {
        bench.commit(sequence, text);
        bench.body(sequence, text, false);
        bench.disk();
    }
    // 1, 3 and 1 again were overwritten.
    bench.commit(5, "c9");
    bench.body(5, "c9", true);
    bench.disk();
    let here = [1, 2, 3, 4, 9].map(|body| bench.replica.has_body(&Digest([body; 32])));
    assert_eq!(here, [false, true, false, true, true]);
    assert_eq!((bench.replica.bytes(), bench.replica.take_counters().evicted), (Bytes(50), 0));
}
