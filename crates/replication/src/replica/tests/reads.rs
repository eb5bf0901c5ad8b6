//! Reads, connections and retention times.

use nix::time::{ClockId, clock_gettime};

use super::*;

#[test]
fn reads_wait_after_delta_without_the_origin() {
    for (wait, connected, expected) in [
        (9_999, true, "-"),
        (10_000, true, "Stale"),
        (10_000, false, "-"),
        (59_999, false, "-"),
        (60_000, false, "Stale"),
    ] {
        let mut bench = Bench::new(config());
        if !connected {
            bench.replica.handle_disconnected(reading(0));
        }
        bench.wait(wait);
        assert_eq!(bench.read("a"), expected, "{wait} ms, connected {connected}");
    }
}

#[test]
fn blocked_read_resumes_with_the_next_heartbeat() {
    let mut bench = Bench::new(config());
    bench.wait(10_000);
    assert_eq!(bench.read("a"), "Stale");
    bench.heartbeat(0);
    assert_eq!(bench.answers(), [(1, "-".to_owned())]);
}

#[test]
fn larger_delta_counts_after_a_disconnect() {
    let mut bench = Bench::new(config());
    bench.wait(10_000);
    assert_eq!(bench.read("a"), "Stale");
    bench.replica.handle_disconnected(reading(bench.ms));
    assert_eq!(bench.answers(), [(1, "-".to_owned())]);
    assert_eq!(bench.replica.take_counters().masked, 1);
}

#[test]
fn overdue_invalidations_precede_reads_after_a_reconnection() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.replica.handle_disconnected(reading(0));
    bench.wait(20_000);
    bench.disk();
    assert_eq!(bench.read("a"), "-", "the buffer is frozen while there is no connection");
    bench.connect(Start::Log);
    assert_eq!(bench.read("a"), "Stale");
    bench.heartbeat(1);
    bench.disk();
    assert_eq!(bench.state("a"), Some((1, false)));
    assert_eq!(bench.replica.take_counters().overdue, 1);
    bench.body(1, "a1", true);
    bench.disk();
    assert_eq!(bench.answers(), [(2, "1".to_owned())]);
}

#[test]
fn repeated_invalidations_after_a_reconnection_are_ignored() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.replica.handle_disconnected(reading(0));
    bench.connect(Start::Log);
    bench.commit(1, "a1");
    bench.commit(2, "a-");
    assert_eq!(bench.replica.received(), Sequence(2));
    assert!(bench.replica.is_connected());
}

#[test]
fn invalid_message_ends_the_connection() {
    let heartbeat = |committed| ToReplica::Heartbeat {
        stamp: reading(0).wall,
        committed: Sequence(committed),
        echo: None,
    };
    let invalidation = |sequence| ToReplica::Invalidation {
        sequence: Sequence(sequence),
        stamp: reading(0).wall,
        changes: changes("a1"),
        more: false,
    };
    let branches = crate::message::Tree::Branches(Vec::new());
    for (message, what) in [
        (invalidation(2), "a gap"),
        (heartbeat(1), "a heartbeat that speaks of what was not told"),
        (ToReplica::Welcome { start: Start::Log, eager: false }, "a second welcome"),
        (ToReplica::Tree { of: Sequence(0), part: branches }, "no tree was requested"),
    ] {
        let mut bench = Bench::new(config());
        while bench.replica.poll_event().is_some() {}
        bench.say(message);
        assert!(!bench.replica.is_connected(), "{what}");
        assert_eq!(bench.replica.poll_event(), Some(Event::Close), "{what}");
    }
}

#[test]
fn messages_of_an_earlier_connection_are_dropped() {
    let mut bench = Bench::new(config());
    let old = bench.session();
    bench.replica.handle_disconnected(reading(0));
    bench.connect(Start::Log);
    let message = ToReplica::Invalidation {
        sequence: Sequence(1),
        stamp: reading(0).wall,
        changes: changes("a1"),
        more: false,
    };
    bench.replica.handle_control(reading(0), Frame { session: old, message });
    assert_eq!(bench.replica.received(), Sequence::ZERO);
    bench.body_in(old, 1, "a1", false);
    assert_eq!(bench.replica.poll_effect(), None, "nor is a body taken");
    assert_eq!(bench.replica.take_counters().stale_frames, 2);
}

#[test]
fn body_of_a_lost_history_is_replaced() {
    for told_first in [false, true] {
        let mut bench = Bench::new(config());
        bench.body(1, "a2", false);
        bench.disk();
        // The origin has lost that commit, and made another one with the same number.
        bench.connect_to_another_life();
        let stamp = reading(bench.ms).wall;
        let commit = |bench: &mut Bench| {
            let (sequence, changes) = (Sequence(1), changes("a3"));
            bench.in_another_life(ToReplica::Invalidation {
                sequence,
                stamp,
                changes,
                more: false,
            });
        };
        if told_first {
            commit(&mut bench);
        }
        let session = bench.another_life();
        bench.body_in(session, 1, "a3", false);
        bench.disk();
        if !told_first {
            commit(&mut bench);
        }
        bench.disk();
        assert_eq!(bench.state("a"), Some((1, true)), "told first: {told_first}");
        assert!(!bench.replica.has_body(&content(2).digest), "no read needs it");
        // Later messages are dropped as well.
        let commit = |sequence, text| ToReplica::Invalidation {
            sequence: Sequence(sequence),
            stamp,
            changes: changes(text),
            more: false,
        };
        bench.body_in(session, 2, "a4", false);
        bench.in_another_life(commit(2, "a4"));
        bench.in_another_life(commit(3, "a-"));
        bench.disk();
        for body in [3, 4] {
            assert!(!bench.replica.has_body(&content(body).digest), "{body}");
        }
    }
}

#[test]
fn only_aggressive_reads_overtake_a_waiting_read() {
    for (order, expected) in [(Order::Aggressive, "-"), (Order::Conservative, "Order")] {
        let mut bench = Bench::new(Config { order, ..config() });
        bench.commit(1, "a1");
        bench.wait(10_000);
        bench.heartbeat(1);
        bench.disk();
        assert_eq!(bench.read("a"), "Invalid");
        assert_eq!(bench.read("b"), expected, "{order:?}");
        bench.replica.cancel_read(reading(bench.ms), ReadId(1));
        let left: Vec<_> = bench.answers();
        assert_eq!(left.is_empty(), order == Order::Aggressive, "{order:?}: {left:?}");
    }
}

#[test]
fn read_after_a_newer_token_applies_it_or_waits() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.disk();
    assert_eq!(bench.read_after("b", 0), "-");
    assert_eq!(bench.read_after("b", 1), "Applying", "it is buffered here");
    bench.disk();
    assert_eq!(bench.answers(), [(2, "-".to_owned())]);
    assert_eq!(bench.state("a"), Some((1, false)));
    assert_eq!(bench.read_after("b", 2), "Behind", "it is not here yet");
    bench.commit(2, "c2");
    bench.disk();
    assert_eq!(bench.answers(), [(3, "-".to_owned())]);
}

#[test]
fn listing_is_one_read_of_all_names() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1 b2");
    bench.wait(10_000);
    bench.heartbeat(1);
    bench.disk();
    let request = Request { target: ReadTarget::Folder(None), after: Sequence::ZERO };
    assert_eq!(bench.replica.handle_read(reading(bench.ms), ReadId(1), request), None);
    assert_eq!(bench.answers(), [(1, "a b".to_owned())], "names need no bodies");
}

#[test]
fn folder_lists_its_own_level_in_order() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a.b1 a/b2 a/c/d3 a04 b/e5");
    bench.wait(10_000);
    bench.heartbeat(1);
    bench.disk();
    for (folder, expected) in [
        ("", "a:/ a.b:1 a0:1 b:/"),
        ("a", "b:1 c:/"),
        ("a/c", "d:1"),
        ("b", "e:1"),
        ("a/b", "-"),
        ("c", "-"),
    ] {
        assert_eq!(bench.ask(ReadTarget::Names(Path::new(folder).ok()), 0), expected, "{folder:?}");
    }
    for (name, expected) in [
        ("a", "/"),
        ("a/b", "1"),
        ("a/c", "/"),
        ("a.b", "1"),
        ("a.", "-"),
        ("a/c/d/e", "-"),
        ("b", "/"),
        ("c", "-"),
    ] {
        assert_eq!(bench.ask(ReadTarget::Entry(path(name)), 0), expected, "{name}");
    }
}

#[test]
fn folder_that_is_an_object_is_listed_once() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a.b1 a/ a/c/ a/c/d3 e/ f/x1");
    bench.wait(10_000);
    bench.heartbeat(1);
    bench.disk();
    for (folder, expected) in
        [("", "a:/0750 a.b:1 e:/0750 f:/"), ("a", "c:/0750"), ("e", ""), ("a.b", "-"), ("f", "x:1")]
    {
        assert_eq!(bench.ask(ReadTarget::Names(Path::new(folder).ok()), 0), expected, "{folder:?}");
    }
    assert_eq!(bench.ask(ReadTarget::Entry(path("a")), 0), "/0750");
}

#[test]
fn answer_holds_until_the_lease_ends_or_a_commit_is_due() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.body(1, "a1", false);
    bench.heartbeat(1);
    bench.disk();
    let holds_for = |bench: &mut Bench, target: ReadTarget| {
        let request = Request { target, after: Sequence::ZERO };
        assert_eq!(bench.replica.handle_read(reading(bench.ms), ReadId(9), request), None);
        bench.replica.poll_answer().expect("it is here").holds_for
    };
    let entry = || ReadTarget::Entry(path("a"));
    let second = Duration::from_secs(1);
    let first = holds_for(&mut bench, entry());
    assert!(first > second && first <= Duration::from_secs(10), "{first:?}");
    bench.wait(1_000);
    assert_eq!(holds_for(&mut bench, entry()), first - second);
    // A commit that waits for its body has a deadline that no later message changes.
    bench.commit(2, "b2");
    let waits = holds_for(&mut bench, entry());
    bench.wait(1_000);
    bench.heartbeat(2);
    assert_eq!(holds_for(&mut bench, entry()), waits - second);
    let version = bench.replica.image().objects[&path("a")].version;
    assert_eq!(holds_for(&mut bench, ReadTarget::Opened(path("a"), version)), Duration::ZERO);
}

#[test]
fn answer_is_not_cached_with_eager_invalidations() {
    let mut bench = Bench::new(Config { eager: Some(true), ..config() });
    bench.commit(1, "a-");
    bench.heartbeat(1);
    bench.disk();
    let request = Request { target: ReadTarget::Root, after: Sequence::ZERO };
    assert_eq!(bench.replica.handle_read(reading(bench.ms), ReadId(1), request), None);
    let answer = bench.replica.poll_answer().expect("it is here");
    assert_eq!((answer.at, answer.holds_for), (Sequence(1), Duration::ZERO));
}

#[test]
fn names_need_the_lease_and_the_order_like_bodies() {
    let mut bench = Bench::new(config());
    bench.wait(10_000);
    assert_eq!(bench.ask(ReadTarget::Entry(path("a")), 0), "Stale");
    assert_eq!(bench.ask(ReadTarget::Names(None), 0), "Order");
    bench.heartbeat(0);
    assert_eq!(bench.answers(), [(1, "-".to_owned()), (2, String::new())]);
}

#[test]
fn looked_up_version_is_readable_while_its_body_exists() {
    let mut bench = Bench::new(Config { grace: Duration::from_secs(20), ..config() });
    bench.commit(1, "a1");
    bench.body(1, "a1", false);
    bench.disk();
    let looked_up = bench.replica.image().objects[&path("a")].version;
    let open = || ReadTarget::Version(path("a"), looked_up);
    assert_eq!(bench.ask(open(), 0), "1");
    bench.commit(2, "a2");
    bench.body(2, "a2", false);
    bench.disk();
    assert_eq!(bench.read("a"), "2");
    assert_eq!(bench.ask(open(), 0), "1", "overwritten, and its body is still here");
    for _ in 0..5 {
        bench.wait(5_000);
        bench.heartbeat(2);
        bench.disk();
    }
    assert_eq!(bench.ask(open(), 0), "-", "gone");
    // It is not reported as gone before another lookup could find something.
    bench.replica.handle_missing(reading(bench.ms), &Digest([2; 32]));
    assert_eq!(bench.ask(open(), 0), "Invalid");
    bench.body(2, "a2", true);
    bench.disk();
    assert_eq!(bench.answers().pop().map(|answer| answer.1), Some("-".to_owned()));
}

#[test]
fn missing_body_makes_its_object_invalid_and_is_refetched() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.body(1, "a1", false);
    bench.disk();
    bench.sent();
    bench.replica.handle_missing(reading(0), &Digest([1; 32]));
    assert_eq!(bench.read("a"), "Invalid");
    assert_eq!(bench.sent(), [ToOrigin::Demand(path("a"))]);
    bench.body(1, "a1", true);
    bench.disk();
    assert_eq!(bench.answers(), [(1, "1".to_owned())]);
}

#[test]
fn body_stored_under_another_name_is_used_at_once() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.body(1, "a1", false);
    bench.disk();
    bench.commit(2, "b1");
    bench.commit(3, "a-");
    bench.disk();
    assert_eq!((bench.read("a"), bench.read("b")), ("-".to_owned(), "1".to_owned()));
    bench.commit(4, "b-");
    bench.disk();
    assert_eq!(bench.replica.bytes(), Bytes(0), "no read needs it any more");
}

#[test]
fn least_recently_read_object_is_evicted() {
    let mut bench = Bench::new(Config { quota: Some(Bytes(25)), ..config() });
    bench.commit(1, "a1");
    bench.body(1, "a1", false);
    bench.commit(2, "b2");
    bench.body(2, "b2", false);
    bench.disk();
    assert_eq!(bench.read("a"), "1");
    bench.commit(3, "c3");
    bench.body(3, "c3", false);
    bench.disk();
    assert_eq!(bench.replica.take_counters().refused, 1, "speculation does not evict");
    bench.wait(10_000);
    bench.heartbeat(3);
    bench.disk();
    assert_eq!(bench.read("c"), "Invalid");
    bench.body(3, "c3", true);
    bench.disk();
    assert_eq!(bench.answers(), [(2, "3".to_owned())]);
    assert_eq!(bench.state("b"), Some((2, false)), "the one that was not read");
    assert_eq!(bench.state("a"), Some((1, true)));
}

#[test]
fn overwritten_body_is_readable_during_the_grace_period() {
    let mut bench = Bench::new(Config { grace: Duration::from_secs(5), ..config() });
    bench.commit(1, "a1");
    bench.body(1, "a1", false);
    bench.disk();
    bench.commit(2, "a-");
    bench.disk();
    assert!(bench.replica.has_body(&Digest([1; 32])));
    bench.wait(5_000);
    bench.disk();
    assert!(!bench.replica.has_body(&Digest([1; 32])));
}

#[test]
fn restart_resumes_the_committed_state_without_a_lease() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.body(1, "a1", false);
    bench.commit(2, "b2");
    bench.disk();
    let mut image = bench.replica.image().clone();
    image.incarnation = Incarnation(1);
    for (bodies, valid) in [(vec![(Digest([1; 32]), Bytes(10))], true), (vec![], false)] {
        let mut replica = Replica::<()>::recover(reading(0), config(), image.clone(), bodies);
        assert_eq!(replica.position(), Sequence(1));
        assert_eq!(replica.received(), Sequence(1));
        assert_eq!(replica.image().objects[&path("a")].valid, valid);
        let request = Request { target: ReadTarget::Object(path("a")), after: Sequence::ZERO };
        assert_eq!(replica.handle_read(reading(0), ReadId(1), request), Some(WaitReason::Stale));
    }
}

#[test]
fn read_counts_are_reported() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.body(1, "a1", false);
    bench.disk();
    for _ in 0..3 {
        bench.read("a");
    }
    bench.sent();
    bench.wait(1_000);
    assert!(bench.sent().contains(&ToOrigin::Reads(vec![(path("a"), 3)])));
}

#[test]
fn demand_without_an_answer_is_repeated() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.wait(10_000);
    bench.disk();
    bench.heartbeat(1);
    bench.sent();
    assert_eq!(bench.read("a"), "Invalid");
    assert_eq!(bench.sent(), [ToOrigin::Demand(path("a"))]);
    let version = Version { sequence: Sequence(1), content: content(1) };
    let frame = bench.header("a", version, true);
    bench.replica.handle_body(reading(bench.ms), frame, None);
    let demands = |sent: Vec<ToOrigin>| {
        sent.into_iter().filter(|one| matches!(one, ToOrigin::Demand(_))).count()
    };
    bench.heartbeat(1);
    assert_eq!(demands(bench.sent()), 0, "not each round trip");
    bench.wait(1_000);
    assert_eq!(demands(bench.sent()), 1);
    bench.body(1, "a1", true);
    bench.disk();
    assert_eq!(bench.answers(), [(1, "1".to_owned())]);
}

#[test]
fn demanded_bytes_are_bounded() {
    let config = Config { order: Order::Aggressive, demand_bytes: Bytes(80), ..config() };
    let mut bench = Bench::new(config);
    bench.commit(1, "a1 b2 c3 d4");
    bench.wait(11_000);
    bench.disk();
    bench.heartbeat(1);
    bench.sent();
    for name in ["a", "b", "c", "d"] {
        assert_eq!(bench.read(name), "Invalid");
    }
    assert_eq!(bench.demanded(), ["a", "b"]);
    bench.body(1, "a1", true);
    assert_eq!(bench.demanded(), [""; 0], "it is in memory");
    bench.disk();
    assert_eq!(bench.demanded(), ["c"]);
    bench.body(1, "b2", true);
    bench.body(1, "c3", true);
    bench.disk();
    assert_eq!(bench.demanded(), ["d"]);
}

#[test]
fn large_body_is_not_starved_by_later_small_ones() {
    let config = Config { order: Order::Aggressive, demand_bytes: Bytes(80), ..config() };
    let mut bench = Bench::new(config);
    bench.commit(1, "a1 b9 c3 d4");
    bench.wait(11_000);
    bench.disk();
    bench.heartbeat(1);
    bench.sent();
    for name in ["a", "b", "c"] {
        assert_eq!(bench.read(name), "Invalid");
    }
    assert_eq!(bench.demanded(), ["a"], "`b` is too large beside it, and comes before `c`");
    bench.replica.cancel_read(reading(bench.ms), ReadId(2));
    assert_eq!(bench.demanded(), ["c"], "no read waits for `b` any more");
    assert_eq!(bench.read("b"), "Invalid");
    assert_eq!(bench.read("d"), "Invalid");
    bench.body(1, "a1", true);
    bench.disk();
    assert_eq!(bench.demanded(), [""; 0]);
    bench.body(1, "c3", true);
    bench.disk();
    assert_eq!(bench.demanded(), ["b"]);
    bench.body(1, "b9", true);
    bench.disk();
    assert_eq!(bench.demanded(), ["d"]);
}

#[test]
fn checking_many_waiting_reads_is_fast() {
    const FILES: u64 = 4_096;
    let name = |at: u64| format!("f{at}x");
    let config = Config { order: Order::Aggressive, ..config() };
    let mut bench = Bench::new(config);
    let all: Vec<String> = (0..FILES).map(|at| format!("{}1", name(at))).collect();
    bench.commit(1, &all.join(" "));
    bench.wait(11_000);
    bench.run_to_rest();
    bench.heartbeat(1);
    bench.sent();
    // The time of the processor: other processes do not affect it.
    let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let before = used();
    for at in 0..FILES {
        assert_eq!(bench.read(&name(at)), "Invalid");
    }
    for _ in 0..20 {
        bench.heartbeat(1);
    }
    // The product of waiting and requested objects took ten seconds.
    let used = used() - before;
    assert!(used < Duration::from_secs(2), "{used:?}");
    assert_eq!(bench.demanded().len(), 1_024);
}

#[test]
fn unreachable_token_blocks_no_other_read_and_forces_nothing() {
    for order in [Order::Conservative, Order::Aggressive] {
        let mut bench = Bench::new(Config { order, ..config() });
        bench.commit(1, "a1");
        bench.body(1, "a1", false);
        bench.disk();
        assert_eq!(bench.read_after("a", u64::MAX), "Behind");
        assert_eq!(bench.read("a"), "1", "{order:?}");
        bench.commit(2, "a2");
        bench.disk();
        assert_eq!(bench.read("a"), "1", "{order:?}: it waits for its body");
        assert_eq!(bench.read_after("a", 3), "Behind");
        // A commit that is really in flight is applied when it is here.
        bench.commit(3, "b3");
        bench.disk();
        assert_eq!(bench.state("a"), Some((2, false)), "{order:?}");
        bench.body(2, "a2", true);
        bench.disk();
        assert_eq!(bench.answers(), [(4, "2".to_owned())], "{order:?}");
    }
}

#[test]
fn nothing_is_sent_while_old_bodies_are_in_memory() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1 b2");
    bench.body(1, "a1", false);
    bench.body(1, "b2", true);
    bench.sent();
    bench.replica.handle_disconnected(reading(bench.ms));
    bench.connection += 1;
    bench.replica.handle_connected(reading(bench.ms));
    assert_eq!(bench.sent(), [], "it might send as many again");
    bench.replica.handle_stored(reading(0), &Digest([1; 32]), Ok(()));
    assert_eq!(bench.sent(), []);
    bench.replica.handle_stored(reading(0), &Digest([2; 32]), Err(DiskFull));
    let hello = bench.sent();
    assert!(matches!(hello[..], [ToOrigin::Hello { .. }]), "{hello:?}");
    bench.say(ToReplica::Welcome { start: Start::Log, eager: false });
    assert!(bench.replica.is_connected());
}

#[test]
fn commit_that_renews_the_lease_answers_waiting_reads() {
    let mut bench = Bench::new(config());
    bench.wait(10_000);
    assert_eq!(bench.read("a"), "Stale");
    // No heartbeat comes between commits in rapid succession, and this one waits for its body.
    bench.commit(1, "b1");
    assert_eq!(bench.answers(), [(1, "-".to_owned())]);
}
