//! The reports of replicas.

use core::time::Duration;

use super::*;
use crate::message::Report;
use crate::time::Drift;

#[test]
fn staleness_does_not_depend_on_report_delay() {
    for delay in [0, 5_000] {
        let mut bench = Bench::new(Config::default());
        bench.hello(None);
        assert_eq!(bench.origin.staleness(reading(0), REPLICA), None, "it has not said");
        let report = Report { reflects: Some(reading(1_000).wall), ..Report::default() };
        bench.ms = 1_000 + delay;
        bench.say(ToOrigin::Report(report));
        let stale = |bench: &Bench| bench.origin.staleness(reading(bench.ms), REPLICA);
        assert_eq!(stale(&bench), Some(Duration::from_millis(delay.cast_unsigned())));
        bench.ms += 3_000;
        let later = Some(Duration::from_millis(3_000 + delay.cast_unsigned()));
        assert_eq!(stale(&bench), later);
        let session = bench.session();
        bench.origin.handle_disconnected(REPLICA, session);
        assert_eq!(stale(&bench), later, "it may go on answering");
        bench.origin.handle_joined(reading(bench.ms), REPLICA);
        assert_eq!(stale(&bench), None);
    }
}

/// Its announced commits that it does not show, and for how long it was not heard, in milliseconds.
fn lag_and_away(bench: &Bench) -> (u64, Option<u128>) {
    let away = bench.origin.away(reading(bench.ms), REPLICA);
    (bench.origin.lag(REPLICA), away.map(|time| time.as_millis()))
}

#[test]
fn lower_bound_is_shown_for_replicas_unseen_since_start() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1");
    // Another life continues the log.
    let bodies = vec![(Digest([1; 32]), Bytes(10))];
    let mut bench = Bench::of(Config::default(), bench.origin.image().clone(), bodies);
    let least = |bench: &Bench| {
        let least = bench.origin.stale_at_least(reading(bench.ms), REPLICA);
        (lag_and_away(bench), least.as_millis())
    };
    bench.ms = 40_000;
    assert_eq!(least(&bench), ((0, Some(40_000)), 40_000), "it may have all of it");
    bench.committed("b2");
    bench.committed("c3");
    bench.ms = 50_000;
    assert_eq!(least(&bench), ((2, Some(50_000)), 50_000), "these it cannot have");
    // A rejected replica was not admitted.
    let elsewhere = Position { sequence: Sequence(1), chain: Digest([9; 32]) };
    bench.hello(Some(elsewhere));
    assert!(matches!(bench.told()[..], [ToReplica::Refused(Refusal::Diverged)]));
    let why = Refusal::Diverged;
    assert_eq!(bench.events(), [Event::Turned { replica: REPLICA, why }]);
    assert_eq!(bench.origin.progress(REPLICA), None);
    assert_eq!(least(&bench), ((2, Some(50_000)), 50_000));
    // A replica that has just joined was not away before, and has none of the later commits.
    bench.origin.handle_joined(reading(bench.ms), REPLICA);
    bench.committed("d4");
    bench.ms = 51_000;
    assert_eq!(least(&bench), ((1, Some(1_000)), 1_000));
}

#[test]
fn seen_replica_is_away_since_its_last_message() {
    let mut bench = Bench::new(Config::default());
    let begin = bench.origin.last();
    bench.committed("a1");
    bench.ms = 10_000;
    bench.hello(Some(begin));
    assert_eq!(lag_and_away(&bench), (1, None), "it is here");
    bench.ms = 12_000;
    bench.say(ToOrigin::Ping { sent: reading(12_000).local });
    let session = bench.session();
    bench.ms = 15_000;
    bench.origin.handle_disconnected(REPLICA, session);
    assert_eq!(lag_and_away(&bench), (1, Some(3_000)));
    bench.origin.handle_disconnected(REPLICA, session);
    bench.ms = 16_000;
    assert_eq!(lag_and_away(&bench), (1, Some(4_000)));
}

#[test]
fn report_without_staleness_keeps_the_last_value() {
    let mut bench = Bench::new(Config::default());
    bench.hello(None);
    let reflects = Some(reading(1_000).wall);
    bench.ms = 1_000;
    bench.say(ToOrigin::Report(Report { reflects, ..Report::default() }));
    bench.ms = 4_000;
    // It compares its state with the origin.
    bench.say(ToOrigin::Report(Report::default()));
    let stale = bench.origin.staleness(reading(5_000), REPLICA);
    assert_eq!(stale, Some(Duration::from_secs(4)));
}

#[test]
fn skew_interval_widens_with_silence() {
    let config = Config { drift: Drift(500), ..Config::default() };
    let mut bench = Bench::new(config);
    bench.hello(None);
    let skew = Some((-2_000_000, 3_000_000));
    bench.say(ToOrigin::Report(Report { skew, ..Report::default() }));
    let known = |ms| bench.origin.skew(reading(ms), REPLICA);
    assert_eq!(known(0), skew);
    // Both clocks may drift by half a millisecond per second.
    assert_eq!(known(4_000), Some((-6_000_000, 7_000_000)));
    assert_eq!(known(3_600_000), Some((-3_602_000_000, 3_603_000_000)));
}
