//! Demands without a waiting read.

use super::*;
use crate::lane::Lanes;

const LINGER: i64 = 2_000;

/// A replica that has `a`, `b` and `c` without their bodies, and has sent all its messages.
fn bench(order: Order) -> Bench {
    // The ninth body goes by another lane than the others.
    let lanes = Lanes::of_pieces(Bytes(10));
    let linger = Duration::from_millis(LINGER as u64);
    let demand_bytes = Bytes(40);
    let mut bench = Bench::new(Config { order, lanes, linger, demand_bytes, ..config() });
    bench.commit(1, "a1 b2 c9 d8");
    bench.wait(11_000);
    bench.disk();
    bench.heartbeat(1);
    bench.sent();
    bench
}

impl Bench {
    fn leaves(&mut self, read: u64) {
        self.replica.cancel_read(reading(self.ms), ReadId(read));
    }

    /// The demands and withdrawals since the last call.
    fn wanted(&mut self) -> Vec<String> {
        let text = |message| match message {
            ToOrigin::Demand(path) => Some(format!("+{path}")),
            ToOrigin::Withdraw(path) => Some(format!("-{path}")),
            _ => None,
        };
        self.sent().into_iter().filter_map(text).collect()
    }

    /// A requested body is cut off.
    fn breaks_off(&mut self, name: &str, body: u8) {
        let version = Version { sequence: Sequence(1), content: content(body) };
        let frame = self.header(name, version, true);
        self.replica.handle_body(reading(self.ms), frame, None);
    }
}

#[test]
fn demand_is_withdrawn_some_time_after_its_last_reader() {
    let mut bench = bench(Order::Aggressive);
    assert_eq!((bench.read("a"), bench.read("a")), ("Invalid".to_owned(), "Invalid".to_owned()));
    assert_eq!(bench.wanted(), ["+a"]);
    bench.leaves(1);
    bench.wait(LINGER);
    assert_eq!(bench.wanted(), [""; 0], "another read waits");
    bench.leaves(2);
    let due = reading(bench.ms + LINGER).local;
    assert!(bench.replica.poll_timeout().is_some_and(|at| at <= due));
    bench.wait(LINGER - 1);
    assert_eq!(bench.wanted(), [""; 0], "who has given up may ask again");
    bench.wait(1);
    assert_eq!(bench.wanted(), ["-a"]);
    bench.wait(10 * LINGER);
    bench.heartbeat(1);
    assert_eq!(bench.wanted(), [""; 0], "once");
    assert_eq!(bench.replica.take_counters().withdrawn, 1);
}

#[test]
fn returning_reader_waits_for_the_body_in_flight() {
    let mut bench = bench(Order::Conservative);
    assert_eq!(bench.read("a"), "Invalid");
    bench.leaves(1);
    bench.wait(LINGER - 1);
    assert_eq!(bench.read("a"), "Invalid");
    bench.wait(LINGER);
    bench.heartbeat(1);
    assert_eq!(bench.wanted(), ["+a"], "asked for once, and not withdrawn");
    bench.body(1, "a1", true);
    bench.disk();
    assert_eq!(bench.answers(), [(2, "1".to_owned())]);
}

#[test]
fn read_queued_behind_another_keeps_its_demand() {
    let mut bench = bench(Order::Conservative);
    assert_eq!(bench.read("a"), "Invalid");
    bench.leaves(1);
    assert_eq!((bench.read("c"), bench.read("a")), ("Invalid".to_owned(), "Order".to_owned()));
    bench.wait(2 * LINGER);
    assert_eq!(bench.wanted(), ["+a", "+c"]);
}

#[test]
fn reader_after_a_withdrawal_gets_a_new_demand() {
    for end in ["told", "broken off", "whole"] {
        let mut bench = bench(Order::Conservative);
        assert_eq!(bench.read("a"), "Invalid");
        bench.leaves(1);
        bench.wait(LINGER);
        assert_eq!(bench.wanted(), ["+a", "-a"]);
        assert_eq!(bench.read("a"), "Invalid");
        bench.heartbeat(1);
        assert_eq!(bench.wanted(), [""; 0], "its end is still to come");
        match end {
            "told" => bench.say(ToReplica::Withdrawn(path("a"))),
            "broken off" => bench.breaks_off("a", 1),
            _ => bench.body(1, "a1", true),
        }
        if end != "whole" {
            assert_eq!(bench.wanted(), ["+a"], "{end}: at once");
            bench.body(1, "a1", true);
        }
        bench.disk();
        assert_eq!(bench.wanted(), [""; 0], "{end}");
        assert_eq!(bench.answers(), [(2, "1".to_owned())], "{end}");
        let counters = bench.replica.take_counters();
        assert_eq!((counters.awaited_again, counters.corrupt), (1, 0), "{end}");
        assert_eq!(counters.withdrawn_late, u64::from(end == "whole"), "{end}");
    }
}

#[test]
fn confirmation_of_an_unknown_withdrawal_changes_nothing() {
    let mut bench = bench(Order::Conservative);
    assert_eq!(bench.read("a"), "Invalid");
    for name in ["a", "b", "none"] {
        bench.say(ToReplica::Withdrawn(path(name)));
    }
    assert_eq!(bench.wanted(), ["+a"]);
    bench.body(1, "a1", true);
    bench.disk();
    assert_eq!(bench.answers(), [(1, "1".to_owned())]);
}

#[test]
fn demand_is_withdrawn_after_a_pushed_body_arrives() {
    let mut bench = bench(Order::Conservative);
    assert_eq!(bench.read("a"), "Invalid");
    bench.body(1, "a1", false);
    bench.disk();
    assert_eq!(bench.answers(), [(1, "1".to_owned())]);
    bench.wait(LINGER);
    assert_eq!(bench.wanted(), ["+a", "-a"]);
    bench.body(1, "a1", true);
    bench.disk();
    assert_eq!(bench.replica.take_counters().stale, 1);
}

#[test]
fn disconnect_clears_all_demands() {
    let mut bench = bench(Order::Aggressive);
    assert_eq!((bench.read("a"), bench.read("b")), ("Invalid".to_owned(), "Invalid".to_owned()));
    bench.leaves(1);
    bench.sent();
    bench.replica.handle_disconnected(reading(bench.ms));
    bench.wait(2 * LINGER);
    bench.connect(Start::Log);
    bench.heartbeat(1);
    assert_eq!(bench.wanted(), ["+b"], "the one that a read waits for");
    bench.wait(2 * LINGER);
    assert_eq!(bench.wanted(), [""; 0]);
}

#[test]
fn withdrawn_long_body_frees_its_lane_when_it_has_ended() {
    for has_begun in [true, false] {
        let mut bench = bench(Order::Aggressive);
        for name in ["c", "d"] {
            assert_eq!(bench.read(name), "Invalid");
        }
        assert_eq!(bench.wanted(), ["+c"], "one of that lane, however large it is");
        bench.leaves(1);
        bench.wait(LINGER);
        assert_eq!(bench.wanted(), ["-c"], "a part of it may be on its way");
        if has_begun {
            bench.breaks_off("c", 9);
        } else {
            bench.say(ToReplica::Withdrawn(path("c")));
        }
        assert_eq!(bench.wanted(), ["+d"], "{has_begun}");
    }
}

#[test]
fn short_bodies_are_requested_beside_a_long_one() {
    for (names, expected) in
        [(["c", "a", "b", "d"], ["+c", "+a"]), (["a", "c", "b", "d"], ["+a", "+c"])]
    {
        let mut bench = bench(Order::Aggressive);
        for name in names {
            assert_eq!(bench.read(name), "Invalid");
        }
        assert_eq!(bench.wanted(), expected, "one of each lane has room");
        bench.body(1, "a1", true);
        bench.disk();
        assert_eq!(bench.wanted(), ["+b"]);
        bench.body(1, "c9", true);
        bench.disk();
        assert_eq!(bench.wanted(), ["+d"]);
    }
}
