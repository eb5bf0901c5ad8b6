//! What replicas say of themselves.

use super::*;

#[test]
fn how_stale_a_replica_is_does_not_depend_on_how_long_its_report_was_under_way() {
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
        bench.origin.handle_joined(REPLICA);
        assert_eq!(stale(&bench), None);
    }
}
