//! Replicas that take some names only.

use super::*;

fn only(patterns: &[&str]) -> Subscription {
    let pattern = |text: &&str| Pattern::new(text.as_bytes()).expect("a pattern");
    Subscription::new(patterns.iter().map(pattern).collect()).expect("a few")
}

impl Bench {
    fn hello_for(&mut self, position: Option<Position>, only: Subscription) {
        self.connection += 1;
        let committed = position.map_or(Sequence::ZERO, |position| position.sequence);
        let (protocol, replica) = (PROTOCOL, REPLICA);
        self.say(ToOrigin::Hello { protocol, replica, position, committed, only });
        while self.origin.has_more() {
            self.origin.go_on(reading(self.ms));
        }
    }

    /// A replica without a state has got one.
    fn joined(&mut self, only: Subscription) {
        self.hello_for(None, only);
        self.told();
        self.say(ToOrigin::Resynced(self.origin.last().sequence));
    }
}

#[test]
fn only_bodies_of_subscribed_names_are_pushed() {
    for slice in [1, 256] {
        for strategy in [Strategy::Trip, Strategy::PushAll] {
            let mut bench = Bench::new(Config { slice, strategy, ..Config::default() });
            let finish = |bench: &mut Bench| {
                bench.disk();
                while bench.origin.has_more() {
                    bench.origin.go_on(reading(0));
                    bench.disk();
                }
            };
            bench.write("docs/a1 docs/b2 other/c3");
            finish(&mut bench);
            bench.joined(only(&["docs/**"]));
            let mut pushed = bench.pushed();
            pushed.sort_unstable();
            assert_eq!(pushed, [1, 2], "{strategy}");
            bench.say(ToOrigin::Taken(2));
            bench.write("docs/d4 other/e5");
            finish(&mut bench);
            assert_eq!(bench.pushed(), [4], "{strategy}");
            bench.say(ToOrigin::Taken(3));
            let told = sequences(&bench.told());
            assert!(told.iter().all(|sequence| *sequence == 2) && !told.is_empty(), "{told:?}");
            assert_eq!(bench.origin.waiting(REPLICA), 0);
        }
    }
}

#[test]
fn body_outside_the_subscription_is_sent_on_demand() {
    let mut bench = Bench::new(Config::default());
    let at = bench.committed("docs/a1 other/b2");
    bench.joined(only(&["docs/**"]));
    bench.say(ToOrigin::Ping { sent: LocalTime::default() });
    assert!(bench.origin.has_arrived(REPLICA, &path("other/b"), at));
    assert!(!bench.origin.has_arrived(REPLICA, &path("docs/a"), at));
    bench.say(ToOrigin::Demand(path("other/b")));
    let told = bench.origin.poll_demand(REPLICA).expect("an answer").message;
    assert_eq!(told.version.map(|version| version.content.digest), Some(Digest([2; 32])));
    // A body that it reports as missing is not pushed either.
    bench.say(ToOrigin::Lacking(vec![path("other/b")]));
    assert_eq!(bench.pushed(), [1]);
}

#[test]
fn replica_with_another_subscription_gets_the_missing_bodies() {
    let mut bench = Bench::new(Config::default());
    bench.committed("docs/a1 other/b2");
    bench.joined(only(&["docs/**"]));
    assert_eq!(bench.pushed(), [1]);
    bench.say(ToOrigin::Taken(1));
    bench.hello_for(Some(bench.origin.last()), Subscription::default());
    bench.told();
    bench.say(ToOrigin::Lacking(vec![path("other/b")]));
    assert_eq!(bench.pushed(), [2]);
    bench.hello_for(Some(bench.origin.last()), only(&["none"]));
    bench.told();
    bench.committed("docs/a3");
    assert_eq!(bench.pushed(), [0; 0]);
}

#[test]
fn body_below_the_price_of_the_link_is_only_sent_on_demand() {
    for strategy in [Strategy::Trip, Strategy::PushAll] {
        let mut bench = Bench::new(Config { strategy, ..Config::default() });
        // Bodies have 10 bytes.
        let at = bench.committed("a1 b2");
        bench.joined(Subscription::default());
        bench.say(ToOrigin::Price(Bytes(10)));
        bench.say(ToOrigin::Ping { sent: LocalTime::default() });
        assert_eq!(bench.origin.bytes_per_read(REPLICA), Some(Bytes(10)));
        assert_eq!(bench.pushed(), [0; 0], "{strategy}: there are no readers");
        assert!(bench.origin.has_arrived(REPLICA, &path("a"), at), "it is not waited for");
        bench.say(ToOrigin::Demand(path("a")));
        let told = bench.origin.poll_demand(REPLICA).expect("an answer").message;
        assert_eq!(told.version.map(|version| version.content.digest), Some(Digest([1; 32])));
        // As many reads as writes from now on: it is certain to be read.
        bench.say(ToOrigin::Fetched(1));
        bench.say(ToOrigin::Reads(vec![(path("a"), 5)]));
        bench.committed("a3 b4");
        bench.told();
        assert_eq!(bench.pushed(), [3], "{strategy}");
        // The price is that of the connection.
        bench.say(ToOrigin::Taken(1));
        bench.hello_for(Some(bench.origin.last()), Subscription::default());
        bench.told();
        bench.say(ToOrigin::Lacking(vec![path("b")]));
        assert_eq!(bench.origin.bytes_per_read(REPLICA), None);
        if strategy == Strategy::Trip {
            assert_eq!(bench.pushed(), [4]);
        }
    }
}
