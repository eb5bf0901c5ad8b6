//! Replicas that say which pieces of a long body they want.

use super::*;
use crate::message::{BodyHeader, WITH_NEIGHBOURS, WITH_RANGES, Wanted};
use crate::origin::LONG;
use crate::types::PIECE;

/// An origin with a long body, whose replica speaks a version; and the transfer of that body.
fn bench_of(protocol: u16, size: Bytes) -> (Bench, Frame<BodyHeader>, Digest) {
    let mut bench = Bench::new(Config::default());
    let body = Payload { size, ..payload(1, 10) };
    let digest = body.digest;
    bench.submit(Transaction {
        changes: [(path("a"), Put::Body(body, Metadata::default()))].into(),
    });
    bench.disk();
    bench.events();
    let (position, committed) = (Some(bench.origin.last()), Sequence::ZERO);
    let only = Subscription::default();
    bench.say(ToOrigin::Hello { protocol, replica: REPLICA, position, committed, only });
    bench.told();
    bench.say(ToOrigin::Lacking(vec![path("a")]));
    let frame = bench.origin.poll_speculative(REPLICA).expect("the body");
    (bench, frame, digest)
}

#[test]
fn only_replicas_that_know_ranges_are_waited_for() {
    let long = Bytes(LONG.0 + 1);
    for (protocol, size, expected) in
        [(12, long, false), (WITH_RANGES, LONG, false), (WITH_RANGES, long, true)]
    {
        let (bench, frame, _) = bench_of(protocol, size);
        assert_eq!(bench.origin.is_answered(REPLICA, &frame), expected, "{protocol} {size:?}");
    }
}

#[test]
fn wanted_ranges_are_within_the_body_and_have_its_end() {
    let pieces = 70;
    let (mut bench, frame, digest) = bench_of(WITH_RANGES, Bytes(pieces * PIECE as u64));
    assert_eq!(bench.origin.take_wanted(REPLICA, &frame, 2), None, "not said so far");
    for (said, taken) in [
        (vec![], vec![]),
        (vec![(0, 70)], vec![(0, 70)]),
        (vec![(3, 2), (9, 1)], vec![(3, 2), (9, 1), (69, 1)]),
        (vec![(60, 100)], vec![(60, 10)]),
        (vec![(1, 1), (80, 9)], vec![(1, 1), (69, 1)]),
    ] {
        for (demand, number, whose) in [(true, 2, "another channel"), (false, 1, "an earlier one")]
        {
            let ranges = said.clone();
            let more = false;
            bench.say(ToOrigin::Wanted(Wanted { digest, demand, number, ranges, more }));
            assert_eq!(bench.origin.take_wanted(REPLICA, &frame, 2), None, "of {whose}");
        }
        let wanted = Wanted { digest, demand: false, number: 2, ranges: said, more: false };
        bench.say(ToOrigin::Wanted(wanted));
        assert_eq!(bench.origin.take_wanted(REPLICA, &frame, 2), Some((taken, false)));
    }
}

#[test]
fn ranges_out_of_order_end_the_connection() {
    for ranges in [vec![(0, 0)], vec![(5, 1), (4, 1)], vec![(0, 4), (3, 1)], vec![(9, u32::MAX)]] {
        let (mut bench, _, digest) = bench_of(WITH_RANGES, Bytes(2 * LONG.0));
        bench.say(ToOrigin::Wanted(Wanted {
            digest,
            demand: false,
            number: 1,
            ranges: ranges.clone(),
            more: false,
        }));
        let events = bench.events();
        assert!(events.iter().any(|event| matches!(event, Event::Close(_))), "{ranges:?}");
    }
}

/// The last piece ends a transfer, so it comes with the last answer.
#[test]
fn answers_that_are_not_the_last_leave_out_the_end() {
    let (mut bench, frame, digest) = bench_of(WITH_NEIGHBOURS, Bytes(70 * PIECE as u64));
    let wanted =
        |ranges, more| ToOrigin::Wanted(Wanted { digest, demand: false, number: 1, ranges, more });
    for (said, taken) in [
        (vec![(3, 2)], vec![(3, 2)]),
        (vec![(1, 1), (60, 100)], vec![(1, 1), (60, 9)]),
        (vec![(69, 1)], vec![]),
    ] {
        bench.say(wanted(said, true));
        assert_eq!(bench.origin.take_wanted(REPLICA, &frame, 1), Some((taken, true)));
    }
    bench.say(wanted(vec![(69, 1)], false));
    assert_eq!(bench.origin.take_wanted(REPLICA, &frame, 1), Some((vec![(69, 1)], false)));
}

#[test]
fn exchanges_need_the_version_that_has_them() {
    for (protocol, ranges, is_fine) in [
        (WITH_NEIGHBOURS, vec![(1, 1)], true),
        (WITH_NEIGHBOURS, vec![], false),
        (WITH_NEIGHBOURS - 1, vec![(1, 1)], false),
    ] {
        let (mut bench, _, digest) = bench_of(protocol, Bytes(2 * LONG.0));
        let (demand, number, more) = (false, 1, true);
        bench.say(ToOrigin::Wanted(Wanted { digest, demand, number, ranges, more }));
        let closes = bench.events().iter().any(|event| matches!(event, Event::Close(_)));
        assert_eq!(closes, !is_fine, "{protocol}");
    }
    for (protocol, is_fine) in [(WITH_NEIGHBOURS, true), (WITH_NEIGHBOURS - 1, false)] {
        let (mut bench, ..) = bench_of(protocol, Bytes(2 * LONG.0));
        bench.say(ToOrigin::Share("192.0.2.1:7000".parse().expect("an address")));
        let closes = bench.events().iter().any(|event| matches!(event, Event::Close(_)));
        assert_eq!(closes, !is_fine, "{protocol}");
    }
}
