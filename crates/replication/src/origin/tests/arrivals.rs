//! The known arrivals of bodies at a replica.

use super::*;

impl Bench {
    /// The number of changes of a commit before the first with a pending body.
    pub(super) fn arrived(&self, at: Sequence) -> usize {
        let entry = self.origin.image().entry(at).expect("it is in the log");
        let paths = entry.commit.changes.iter().map(|change| &change.path);
        paths.take_while(|path| self.origin.has_arrived(REPLICA, path, at)).count()
    }

    fn ping(&mut self) {
        self.say(ToOrigin::Ping { sent: LocalTime::default() });
    }

    /// A replica that has everything, and has reported it.
    fn with_all(config: Config) -> Self {
        let mut bench = Bench::new(config);
        bench.hello(Some(bench.origin.last()));
        bench.told();
        bench.ping();
        bench
    }
}

#[test]
fn pushed_body_counts_as_arrived_when_taken() {
    let mut bench =
        Bench::with_all(Config { under_way: 1, under_way_bytes: Bytes(0), ..Config::default() });
    let at = bench.committed("a1 b2 c-");
    bench.say(ToOrigin::Ack(at));
    assert_eq!(bench.arrived(at), 0, "it shows the state, and has no body");
    bench.pushed();
    assert_eq!(bench.arrived(at), 0, "it is on its way");
    bench.say(ToOrigin::Taken(1));
    assert_eq!(
        bench.origin.poll_event(),
        Some(Event::Progress { replica: REPLICA, committed: at })
    );
    bench.pushed();
    bench.say(ToOrigin::Taken(2));
    assert_eq!(bench.arrived(at), 3);
    let events: Vec<_> = core::iter::from_fn(|| bench.origin.poll_event()).collect();
    assert_eq!(events, [Event::Arrived(REPLICA), Event::Arrived(REPLICA)]);
}

#[test]
fn demanded_body_counts_as_arrived_when_fetched() {
    let mut bench = Bench::with_all(Config::default());
    let at = bench.committed("a1");
    bench.say(ToOrigin::Demand(path("none")));
    bench.say(ToOrigin::Demand(path("a")));
    while bench.origin.poll_demand(REPLICA).is_some() {}
    assert_eq!((bench.pushed().len(), bench.arrived(at)), (0, 0), "it is on its way");
    bench.say(ToOrigin::Fetched(1));
    assert_eq!(bench.arrived(at), 0, "that was the other one");
    bench.say(ToOrigin::Fetched(2));
    assert_eq!(bench.arrived(at), 1);
}

#[test]
fn body_in_flight_at_a_disconnect_is_still_pending() {
    let mut bench = Bench::with_all(Config::default());
    let position = bench.origin.last();
    let at = bench.committed("a1 b2");
    bench.say(ToOrigin::Demand(path("a")));
    assert!(bench.origin.poll_demand(REPLICA).is_some());
    assert_eq!(bench.pushed(), [2]);
    bench.say(ToOrigin::Taken(1));
    bench.origin.handle_disconnected(REPLICA, bench.session());
    assert_eq!((bench.arrived(at), bench.origin.waiting(REPLICA)), (0, 1));
    bench.hello(Some(position));
    bench.told();
    bench.ping();
    assert_eq!((bench.arrived(at), bench.pushed()), (0, vec![1]));
    bench.say(ToOrigin::Taken(1));
    assert_eq!(bench.arrived(at), 2);
    bench.origin.handle_disconnected(REPLICA, bench.session());
    assert_eq!(bench.arrived(at), 2, "and what has come is there while it is away");
}

#[test]
fn overwritten_deleted_or_lost_body_is_not_pending() {
    let mut bench =
        Bench::with_all(Config { under_way: 0, under_way_bytes: Bytes(0), ..Config::default() });
    let at = bench.committed("a1 b2 c3");
    for (text, arrived) in [("a4", 1), ("b-", 2)] {
        bench.committed(text);
        assert_eq!(bench.arrived(at), arrived, "{text}");
    }
    bench.origin.handle_missing(reading(0), &Digest([3; 32]));
    assert_eq!(bench.arrived(at), 3);
}

#[test]
fn body_that_is_not_pushed_is_not_pending() {
    for (strategy, arrived) in
        [(Strategy::DemandOnly, 1), (Strategy::Threshold(0.5), 1), (Strategy::Trip, 0)]
    {
        let mut bench = Bench::new(Config { strategy, ..Config::default() });
        let at = bench.committed("a1");
        bench.hello(None);
        bench.told();
        assert_eq!(bench.arrived(at), arrived, "{strategy}");
    }
}

#[test]
fn nothing_counts_as_arrived_before_the_lacking_list() {
    let mut bench = Bench::new(Config::default());
    let at = bench.committed("a1");
    bench.hello(Some(bench.origin.last()));
    bench.told();
    assert_eq!(bench.arrived(at), 0, "the origin may have lost its queue");
    bench.say(ToOrigin::Lacking(vec![path("a")]));
    bench.ping();
    assert_eq!((bench.arrived(at), bench.pushed()), (0, vec![1]));
    bench.say(ToOrigin::Taken(1));
    assert_eq!(bench.arrived(at), 1);
}

#[test]
fn early_bodies_are_pushed_again_after_a_replica_restart() {
    let mut bench = Bench::with_all(Config::default());
    let applied = bench.origin.last();
    let at = bench.committed("a1");
    bench.told();
    assert_eq!(bench.pushed(), [1]);
    bench.say(ToOrigin::Taken(1));
    let session = Session { replica: Incarnation(2), connection: 1, ..Session::default() };
    let (protocol, committed) = (PROTOCOL, applied.sequence);
    let position = Some(applied);
    let message = ToOrigin::Hello {
        protocol,
        replica: REPLICA,
        position,
        committed,
        only: Subscription::default(),
    };
    bench.origin.handle_frame(reading(0), REPLICA, Frame { session, message });
    bench.told();
    assert_eq!((bench.pushed(), bench.arrived(at)), (vec![1], 0));
}

#[test]
fn demand_limit_holds_without_confirmations() {
    let mut bench = Bench::with_all(Config { demands: 3, ..Config::default() });
    bench.committed("a1");
    for asked in 1..=4 {
        bench.say(ToOrigin::Demand(path("a")));
        let _ = bench.origin.poll_demand(REPLICA);
        let closed = (asked == 4).then_some(Event::Close(REPLICA));
        assert_eq!(bench.events(), Vec::from_iter(closed), "{asked}");
    }
}
