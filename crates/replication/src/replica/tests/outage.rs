//! How long readers do not notice that there is no connection.

use super::*;

/// For how long, in milliseconds, as known at `ms`.
fn masked(bench: &Bench, ms: i64) -> u128 {
    bench.replica.masked(reading(ms).local).as_millis()
}

/// The report of an outage after its end: when it began, when it ended, and how long it was masked, in
/// milliseconds.
fn outage(bench: &mut Bench) -> Option<(i64, i64, u128)> {
    let events = core::iter::from_fn(|| bench.replica.poll_event());
    let connected = events.filter_map(|event| match event {
        Event::Connected { after } => Some(after),
        _ => None,
    });
    let Outage { began, ended, masked } = connected.last().expect("it was connected")?;
    Some((began.as_nanos() / MS, ended.as_nanos() / MS, masked.as_millis()))
}

#[test]
fn outage_is_masked_until_the_larger_bound_ends() {
    let mut bench = Bench::new(config());
    bench.wait(5_000);
    bench.replica.handle_disconnected(reading(5_000));
    assert_eq!(masked(&bench, 20_000), 20_000);
    // The last heartbeat was sent at 0.
    assert_eq!(masked(&bench, 100_000), 60_000);
    let restarted = Replica::<()>::recover(reading(0), config(), Image::default(), []);
    assert_eq!(restarted.masked(reading(9_000).local), Duration::ZERO);
    assert_eq!(restarted.away_since(), Some(reading(0).local));
}

#[test]
fn outage_is_masked_until_a_read_needs_the_connection() {
    for disconnected in [None, Some(Duration::from_secs(60))] {
        let mut config = config();
        config.staleness.disconnected = disconnected;
        let mut bench = Bench::new(config);
        bench.commit(1, "a1");
        bench.body(1, "a1", true);
        bench.disk();
        bench.commit(2, "b2");
        bench.wait(10_000);
        bench.heartbeat(2);
        bench.disk();
        bench.replica.handle_disconnected(reading(10_000));
        bench.wait(2_000);
        assert_eq!(bench.read("a"), "1");
        assert_eq!(masked(&bench, 12_000), 2_000);
        bench.wait(3_000);
        assert_eq!(bench.read("b"), "Invalid");
        // One that only waits for that.
        bench.wait(1_000);
        assert_eq!(bench.read("a"), "Order");
        assert_eq!(masked(&bench, 30_000), 5_000, "whatever Δ is: {disconnected:?}");
        // The next cut is another one.
        bench.connect(Start::Log);
        bench.heartbeat(2);
        bench.body(2, "b2", true);
        bench.disk();
        bench.replica.handle_disconnected(reading(bench.ms));
        assert_eq!(masked(&bench, bench.ms + 4_000), 4_000, "{disconnected:?}");
    }
}

#[test]
fn masked_time_is_known_when_the_outage_ends() {
    let mut bench = Bench::new(config());
    assert_eq!(outage(&mut bench), None, "what was before the first connection was no loss");
    bench.commit(1, "a1");
    bench.disk();
    bench.wait(1_000);
    bench.heartbeat(1);
    bench.replica.handle_disconnected(reading(1_000));
    bench.wait(3_000);
    assert_eq!(bench.read("none"), "-");
    bench.connect(Start::Log);
    assert_eq!(outage(&mut bench), Some((1_000, 4_000, 3_000)), "to its end");
    assert_eq!((bench.replica.away_since(), masked(&bench, 5_000)), (None, 0));
    bench.heartbeat(1);
    // The deadline of a version without its body comes, and it is read.
    bench.wait(10_000);
    bench.disk();
    bench.heartbeat(1);
    bench.replica.handle_disconnected(reading(14_000));
    bench.wait(3_000);
    assert_eq!(bench.read("a"), "Invalid");
    bench.wait(37_000);
    bench.connect(Start::Log);
    assert_eq!(outage(&mut bench), Some((14_000, 54_000, 3_000)), "until the first read failed");
}

/// A connection that silently carries nothing any more: the last message was sent at 0 ms, reads wait from 2
/// s on, and at 10 s the connection is dropped.
fn silent_line() -> Bench {
    let mut config = config();
    config.staleness.connected = Duration::from_secs(2);
    config.silence = Duration::from_secs(10);
    Bench::new(config)
}

/// The same, with an object without a body, from 2 s on.
fn without_body() -> Bench {
    let mut bench = silent_line();
    bench.commit(1, "a1");
    bench.wait(2_000);
    bench.heartbeat(1);
    bench.disk();
    bench
}

#[test]
fn read_waiting_on_a_silent_connection_ends_the_mask() {
    let mut bench = silent_line();
    bench.wait(3_000);
    assert_eq!(bench.read("none"), "Stale");
    bench.wait(7_000);
    assert_eq!(bench.answers(), [(1, "-".to_owned())], "by the larger Δ");
    assert_eq!(bench.replica.away_since(), Some(reading(0).local), "not when it was noticed");
    assert_eq!(masked(&bench, 20_000), 3_000);
}

#[test]
fn read_cancelled_on_a_silent_connection_ends_the_mask() {
    let mut bench = silent_line();
    bench.wait(3_000);
    assert_eq!(bench.read("none"), "Stale");
    bench.wait(1_000);
    assert_eq!(bench.read("none"), "Order");
    bench.replica.cancel_read(reading(4_000), ReadId(2));
    bench.replica.cancel_read(reading(4_000), ReadId(1));
    bench.wait(6_000);
    assert!(!bench.replica.is_connected());
    assert_eq!(masked(&bench, 20_000), 3_000);
}

#[test]
fn read_waiting_before_the_last_message_counts_from_there() {
    let mut bench = without_body();
    bench.wait(1_000);
    assert_eq!(bench.read("a"), "Invalid");
    bench.wait(1_000);
    bench.heartbeat(1);
    bench.wait(10_000);
    assert_eq!(bench.replica.away_since(), Some(reading(4_000).local));
    assert_eq!(masked(&bench, 20_000), 0);
}

#[test]
fn reads_that_a_connection_can_answer_keep_the_mask() {
    let mut bench = without_body();
    bench.wait(500);
    // One read is cancelled before the origin's last message, and one is answered after it.
    assert_eq!(bench.read("a"), "Invalid");
    bench.replica.cancel_read(reading(2_500), ReadId(1));
    bench.wait(500);
    bench.heartbeat(1);
    bench.wait(500);
    assert_eq!(bench.read("a"), "Invalid");
    bench.body(1, "a1", true);
    bench.disk();
    assert_eq!(bench.answers(), [(2, "1".to_owned())]);
    bench.wait(10_000);
    assert!(!bench.replica.is_connected());
    assert_eq!(bench.read("a"), "1");
    assert_eq!(masked(&bench, 20_000), 17_000);
}
