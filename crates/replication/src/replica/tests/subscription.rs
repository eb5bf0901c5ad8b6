//! A replica that takes some names only.

use super::*;
use crate::subscription::{Pattern, Subscription};

/// A replica for `docs/**`, connected to an origin without objects.
fn subscribed(patterns: &[&str], config: Config) -> Bench {
    let pattern = |text: &&str| Pattern::new(text.as_bytes()).expect("a pattern");
    let only = Subscription::new(patterns.iter().map(pattern).collect()).expect("a few");
    let mut bench = Bench::new(config);
    bench.replica.subscribe(only);
    bench
}

/// The objects and bytes that are left out.
fn left(bench: &Bench) -> (u64, u64) {
    let stock = bench.replica.stock();
    (stock.unsubscribed_objects, stock.unsubscribed_bytes.0)
}

#[test]
fn commit_does_not_wait_for_bodies_outside_the_subscription() {
    for step_slice in [1, 256] {
        let mut bench = subscribed(&["docs/**"], Config { step_slice, ..config() });
        let run_to_rest = |bench: &mut Bench| {
            for _ in 0..9 {
                bench.disk();
                bench.wait(0);
            }
        };
        bench.commit(1, "docs/a1 other/b8");
        run_to_rest(&mut bench);
        assert_eq!(bench.read("docs/a"), "-", "it waits for the body of its own file");
        bench.body(1, "docs/a1", false);
        run_to_rest(&mut bench);
        assert_eq!(bench.read("docs/a"), "1");
        assert_eq!(bench.state("other/b"), Some((1, false)));
        assert_eq!(left(&bench), (1, 30));
        bench.commit(2, "other/c2 other/d3");
        run_to_rest(&mut bench);
        assert_eq!(bench.state("other/c"), Some((2, false)), "it waits for nothing");
        assert_eq!(left(&bench), (3, 50));
        assert_eq!(bench.replica.buffered_bodies(), Default::default());
    }
}

#[test]
fn read_outside_the_subscription_fetches_the_body() {
    let mut bench = subscribed(&["docs/**"], config());
    bench.commit(1, "other/a8");
    bench.disk();
    bench.sent();
    assert_eq!(bench.read("other/a"), "Invalid");
    assert_eq!(bench.demanded(), ["other/a"]);
    bench.body(1, "other/a8", true);
    bench.disk();
    assert_eq!(bench.answers(), [(1, "8".to_owned())]);
    assert_eq!(left(&bench), (0, 0));
    // The next version is not awaited.
    bench.commit(2, "other/a1");
    bench.disk();
    assert_eq!((bench.state("other/a"), left(&bench)), (Some((2, false)), (1, 10)));
    bench.commit(3, "other/a-");
    bench.disk();
    assert_eq!(left(&bench), (0, 0));
}

#[test]
fn bodies_outside_the_subscription_are_not_reported_as_missing() {
    let mut bench = subscribed(&["docs/**"], config());
    bench.commit(1, "other/a1 docs/b2");
    bench.wait(10_000);
    bench.disk();
    bench.connect_to_another_life();
    let lacking = bench.sent().into_iter().find_map(|message| match message {
        ToOrigin::Lacking(paths) => Some(paths),
        _ => None,
    });
    assert_eq!(lacking, Some(vec![path("docs/b")]));
}

/// The patterns that were reported as without objects since the last call.
fn unmatched(bench: &mut Bench) -> Vec<String> {
    let events = core::iter::from_fn(|| bench.replica.poll_event());
    let pattern = |event| match event {
        Event::Unmatched(pattern) => Some(pattern.to_string()),
        _ => None,
    };
    events.filter_map(pattern).collect()
}

#[test]
fn pattern_without_objects_is_reported_once() {
    let mut bench = subscribed(&["docs/**", "*.html"], config());
    bench.commit(1, "docs/a1");
    bench.body(1, "docs/a1", false);
    bench.disk();
    let matching: Vec<_> = bench.replica.patterns().map(|(_, objects)| objects).collect();
    assert_eq!(matching, [1, 0]);
    assert_eq!(unmatched(&mut bench), [""; 0], "more commits may be on their way");
    for expected in [&["*.html"][..], &[]] {
        bench.connect(Start::Log);
        assert_eq!(unmatched(&mut bench), [""; 0]);
        bench.heartbeat(1);
        assert_eq!(unmatched(&mut bench), expected);
    }
}

/// The replica is connected before the first publication.
#[test]
fn unmatched_pattern_is_reported_with_the_first_files() {
    let mut bench = subscribed(&["docs/**", "*.html"], config());
    bench.heartbeat(0);
    bench.commit(1, "docs/ other/");
    // The bodies of folders do not arrive.
    bench.wait(10_000);
    bench.disk();
    assert!(bench.state("other").is_some());
    assert_eq!(unmatched(&mut bench), [""; 0], "there is no file so far");
    bench.commit(2, "docs/a1");
    bench.body(2, "docs/a1", false);
    bench.disk();
    assert_eq!(unmatched(&mut bench), ["*.html"]);
    bench.commit(3, "docs/a-");
    bench.disk();
    bench.commit(4, "other/a1");
    bench.disk();
    bench.connect(Start::Log);
    bench.heartbeat(4);
    assert_eq!(unmatched(&mut bench), [""; 0]);
}

/// A pattern may match objects that the state before an outage lacks.
#[test]
fn pattern_is_not_reported_before_the_state_is_complete() {
    let mut bench = subscribed(&["docs/**", "*.html"], config());
    bench.commit(1, "docs/a1");
    bench.body(1, "docs/a1", false);
    bench.disk();
    bench.connect(Start::Log);
    bench.commit(2, "b.html2");
    bench.heartbeat(2);
    assert_eq!(unmatched(&mut bench), [""; 0]);
    bench.body(2, "b.html2", false);
    bench.disk();
    assert_eq!(unmatched(&mut bench), [""; 0]);
}

/// The counts are of objects, like all counts of the stock.
#[test]
fn folder_outside_the_subscription_counts_as_left_out() {
    let mut bench = subscribed(&["docs/**"], config());
    bench.commit(1, "other/ other/a1 docs/");
    bench.wait(10_000);
    bench.disk();
    assert_eq!(left(&bench), (2, 10));
    let matching: Vec<_> = bench.replica.patterns().map(|(_, objects)| objects).collect();
    assert_eq!(matching, [1]);
}
