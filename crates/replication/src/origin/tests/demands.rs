//! Demanded bodies: their turns, and demands without a waiting read.

use proptest::collection::vec;
use proptest::prelude::{
    Just, Strategy as Generates, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

use super::*;
use crate::lane::{Lane, Lanes};

/// Pieces have this many bytes here, so 10 bytes take the first lane, and 100 the second.
const LANES: Lanes = Lanes::of_pieces(Bytes(10));

impl Bench {
    /// An origin with a connected replica and these bodies, by name and size.
    fn with(strategy: Strategy, bodies: &[(&str, u64)]) -> Self {
        let mut bench = Bench::new(Config { strategy, lanes: LANES, ..Config::default() });
        bench.hello(Some(bench.origin.last()));
        for (name, size) in bodies {
            bench.put(name, *size);
        }
        bench.told();
        bench
    }

    /// Writes a body that is unlike all others.
    fn put(&mut self, name: &str, size: u64) {
        let body = u8::try_from(self.count + 1).expect("a few bodies");
        let put = Put::Body(payload(body, size), Metadata::default());
        self.submit(Transaction { changes: [(path(name), put)].into() });
        self.disk();
        assert!(matches!(self.events()[..], [Event::Acknowledged { .. }]));
    }

    fn ask(&mut self, name: &str) {
        self.say(ToOrigin::Demand(path(name)));
    }

    fn withdraw(&mut self, name: &str) {
        self.say(ToOrigin::Withdraw(path(name)));
    }

    /// The next of the bodies that take turns.
    fn next(&mut self) -> Option<Frame<BodyHeader>> {
        self.origin.poll_demand_in_turn(REPLICA)
    }

    fn wants(&self, body: &Frame<BodyHeader>) -> bool {
        self.origin.is_wanted(REPLICA, body)
    }

    /// Whether the rest of a pushed body is sent.
    fn goes_on(&mut self, body: &Frame<BodyHeader>) -> bool {
        self.origin.is_wanted(REPLICA, body) && !self.origin.hand_over(REPLICA, body)
    }

    /// The next pushed body.
    fn push(&mut self) -> Frame<BodyHeader> {
        self.origin.poll_speculative(REPLICA).expect("a body")
    }

    fn ends(&mut self, body: &Frame<BodyHeader>, whole: bool) {
        self.origin.handle_demand_sent(REPLICA, body, whole);
    }

    /// The objects whose withdrawal was confirmed since the last call.
    fn withdrawn(&mut self) -> Vec<String> {
        let path = |message| match message {
            ToReplica::Withdrawn(path) => Some(path.to_string()),
            _ => None,
        };
        self.told().into_iter().filter_map(path).collect()
    }
}

fn name(body: &Frame<BodyHeader>) -> &str {
    str::from_utf8(body.message.path.as_bytes()).unwrap()
}

#[test]
fn demand_withdrawn_before_sending_is_confirmed_and_not_sent() {
    let mut bench = Bench::with(Strategy::DemandOnly, &[("a", 10), ("b", 10)]);
    bench.withdraw("a");
    assert_eq!(bench.withdrawn(), [""; 0], "no read had asked");
    bench.ask("a");
    bench.ask("b");
    bench.withdraw("a");
    bench.withdraw("a");
    assert_eq!(bench.withdrawn(), ["a"], "once");
    let body = bench.next().expect("`b` is still waited for");
    assert_eq!(name(&body), "b");
    bench.ends(&body, true);
    assert_eq!(bench.next(), None);
    // It has no body that has ended.
    bench.say(ToOrigin::Fetched(1));
    assert_eq!(bench.events(), []);
    bench.ask("a");
    let body = bench.next().expect("a read waits for it again");
    assert_eq!((name(&body), bench.wants(&body)), ("a", true));
}

#[test]
fn withdrawn_body_returns_to_the_background() {
    for (strategy, left) in [(Strategy::Trip, vec![1]), (Strategy::DemandOnly, Vec::new())] {
        let mut bench = Bench::with(strategy, &[("a", 100)]);
        let at = bench.origin.last().sequence;
        bench.ask("a");
        let body = bench.next().expect("a body");
        assert!(bench.wants(&body));
        assert_eq!(bench.pushed(), [0; 0], "it goes to the read");
        bench.withdraw("a");
        assert_eq!((bench.wants(&body), bench.withdrawn()), (false, Vec::new()));
        bench.ends(&body, false);
        bench.say(ToOrigin::Ping { sent: LocalTime::default() });
        bench.say(ToOrigin::Fetched(1));
        assert_eq!(bench.arrived(at), usize::from(left.is_empty()), "{strategy}");
        assert_eq!(bench.pushed(), left, "{strategy}");
        let counters = bench.origin.take_counters();
        assert_eq!((counters.demands, counters.withdrawn, counters.broken_off), (1, 0, 1));
    }
}

#[test]
fn body_pushed_already_does_not_return_to_the_background() {
    let mut bench = Bench::with(Strategy::Trip, &[("a", 100)]);
    assert_eq!(bench.pushed(), [1]);
    bench.ask("a");
    let body = bench.next().expect("a body");
    bench.withdraw("a");
    bench.ends(&body, false);
    assert_eq!((bench.pushed(), bench.origin.waiting(REPLICA)), (Vec::new(), 0));
}

#[test]
fn push_ends_when_a_read_gets_the_whole_body() {
    let mut bench = Bench::with(Strategy::Trip, &[("a", 100), ("b", 100), ("c", 100)]);
    let (push, other) = (bench.push(), bench.push());
    assert_eq!((name(&push), name(&other)), ("a", "b"));
    bench.ask("c");
    let before = bench.next().expect("a body");
    bench.ask("a");
    assert_eq!(bench.next(), None, "its lane is taken");
    assert!(bench.goes_on(&push), "until the read is sent it");
    bench.ends(&before, true);
    let read = bench.next().expect("a body");
    assert_eq!((name(&read), bench.goes_on(&push), bench.goes_on(&other)), ("a", false, true));
    bench.ends(&read, true);
    assert_eq!((bench.pushed(), bench.origin.waiting(REPLICA)), (Vec::new(), 0));
    let counters = bench.origin.take_counters();
    assert_eq!((counters.pushed, counters.handed_over, counters.broken_off), (2, 1, 0));
}

#[test]
fn body_left_to_a_withdrawn_read_is_queued_again() {
    let mut bench = Bench::with(Strategy::Trip, &[("a", 100)]);
    let at = bench.origin.last().sequence;
    let push = bench.push();
    bench.ask("a");
    let read = bench.next().expect("a body");
    assert!(!bench.goes_on(&push));
    bench.say(ToOrigin::Taken(1));
    bench.say(ToOrigin::Lacking(vec![path("a")]));
    assert_eq!(bench.pushed(), [0; 0], "it goes to the read, and need not go twice");
    bench.withdraw("a");
    assert!(!bench.wants(&read));
    bench.ends(&read, false);
    bench.say(ToOrigin::Ping { sent: LocalTime::default() });
    bench.say(ToOrigin::Fetched(1));
    assert_eq!((bench.arrived(at), bench.pushed()), (0, vec![1]));
    bench.say(ToOrigin::Taken(2));
    assert_eq!(bench.arrived(at), 1);
}

#[test]
fn push_continues_beside_a_withdrawn_or_older_read() {
    let mut bench = Bench::with(Strategy::Trip, &[("a", 100)]);
    bench.ask("a");
    let old = bench.next().expect("a body");
    bench.put("a", 100);
    let push = bench.push();
    assert!(bench.goes_on(&push), "the read is sent what was there when it asked");
    bench.ends(&old, true);
    bench.ask("a");
    let read = bench.next().expect("a body");
    bench.withdraw("a");
    assert!(bench.goes_on(&push), "the other one is about to be broken off");
    bench.ends(&read, false);
    assert!(bench.goes_on(&push));
    // Belongs to an earlier connection.
    bench.hello(Some(bench.origin.last()));
    bench.told();
    bench.ask("a");
    assert!(bench.next().is_some());
    assert!(!bench.origin.hand_over(REPLICA, &push));
}

#[test]
fn ordered_push_is_not_left_to_a_read() {
    let mut bench = Bench::new(Config { lanes: LANES, ..Config::default() });
    bench.put("a", 100);
    let image = bench.origin.image().clone();
    let bodies = vec![(Digest([1; 32]), Bytes(100))];
    let config = Config { strategy: Strategy::PushAll, lanes: LANES, ..Config::default() };
    let mut bench = Bench::of(config, image, bodies);
    // It has received but not applied it.
    bench.connection += 1;
    let position = Some(bench.origin.last());
    let committed = Sequence::ZERO;
    bench.say(hello(position, committed));
    bench.told();
    let push = bench.push();
    bench.ask("a");
    let read = bench.next().expect("a body");
    assert_eq!(read.message.version, push.message.version);
    assert!(bench.goes_on(&push));
}

#[test]
fn demanded_body_in_flight_is_pending_after_a_disconnect() {
    let mut bench = Bench::with(Strategy::Trip, &[("a", 100)]);
    let at = bench.origin.last();
    bench.say(ToOrigin::Ping { sent: LocalTime::default() });
    bench.ask("a");
    let body = bench.next().expect("a body");
    assert_eq!(bench.arrived(at.sequence), 0);
    bench.hello(Some(at));
    assert!(!bench.wants(&body), "it is of an earlier connection");
    bench.ends(&body, true);
    bench.told();
    assert_eq!(bench.pushed(), [1]);
    bench.say(ToOrigin::Fetched(1));
    assert_eq!(bench.events(), [Event::Close(REPLICA)], "nothing has ended on this one");
}

#[test]
fn short_bodies_overtake_and_each_lane_keeps_its_order() {
    let bodies = [("long", 100), ("longer", 641), ("long too", 100), ("s", 10), ("t", 0)];
    let mut bench = Bench::with(Strategy::DemandOnly, &bodies);
    for (name, _) in bodies {
        bench.ask(name);
    }
    bench.ask("none");
    let first: Vec<_> = core::iter::from_fn(|| bench.next()).collect();
    assert_eq!(first.iter().map(name).collect::<Vec<_>>(), ["s", "long", "longer"]);
    bench.ends(&first[1], true);
    assert_eq!(bench.next().as_ref().map(name), Some("long too"));
    bench.ends(&first[0], true);
    let next = bench.next().expect("another short one");
    assert_eq!(name(&next), "t");
    bench.ends(&next, true);
    assert_eq!(bench.next().as_ref().map(name), Some("none"), "as short as a body of no bytes");
}

#[test]
fn rewritten_body_uses_the_lane_of_its_new_size() {
    let mut bench = Bench::with(Strategy::DemandOnly, &[("a", 10), ("b", 100), ("c", 10)]);
    for name in ["a", "b", "c"] {
        bench.ask(name);
    }
    bench.put("a", 100);
    bench.put("b", 10);
    let all: Vec<_> = core::iter::from_fn(|| bench.next()).collect();
    let lanes: Vec<_> =
        all.iter().map(|body| (name(body), LANES.of_body(&body.message).number())).collect();
    // As if they had had that length at the request.
    assert_eq!(lanes, [("c", 0), ("a", 1)]);
    bench.ends(&all[1], true);
    assert_eq!(bench.next(), None, "the lane of `b` is the other one now");
    bench.ends(&all[0], true);
    assert_eq!(bench.next().as_ref().map(name), Some("b"));
}

#[test]
fn unsplit_sender_gets_demands_in_request_order() {
    let bodies = [("a", 100), ("b", 10), ("c", 641), ("d", 10)];
    let mut bench = Bench::with(Strategy::DemandOnly, &bodies);
    bodies.iter().for_each(|(name, _)| bench.ask(name));
    bench.withdraw("b");
    let all = core::iter::from_fn(|| bench.origin.poll_demand(REPLICA));
    let all: Vec<_> = all.map(|body| body.message.path.to_string()).collect();
    assert_eq!(all, ["a", "c", "d"]);
}

#[test]
fn withdrawn_demands_count_until_confirmed() {
    let mut bench = Bench::new(Config { demands: 3, ..Config::default() });
    bench.hello(Some(bench.origin.last()));
    bench.told();
    for _ in 0..3 {
        bench.ask("a");
        bench.withdraw("a");
    }
    assert_eq!(bench.withdrawn(), ["a"; 3]);
    for _ in 0..4 {
        bench.ask("a");
        bench.withdraw("a");
    }
    assert_eq!(bench.events(), [Event::Close(REPLICA)], "it rejects all messages");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(usize),
    Withdraw(usize),
    Put(usize, u64),
    Next,
    /// The body of this lane ends: whole if it is still wanted.
    End(usize),
    /// The messages on the control channel arrive.
    Told,
    /// The replica reports how many have ended.
    Confirm,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn step() -> impl Generates<Value = Step> {
    prop_oneof![
        4 => (0..NAMES.len()).prop_map(Step::Ask),
        2 => (0..NAMES.len()).prop_map(Step::Withdraw),
        1 => (0..NAMES.len(), prop::sample::select(vec![0, 10, 100, 641, 50_000]))
            .prop_map(|(at, size)| Step::Put(at, size)),
        4 => Just(Step::Next),
        4 => (0..Lane::COUNT).prop_map(Step::End),
        1 => Just(Step::Told),
        1 => Just(Step::Confirm),
    ]
}

proptest! {
    #[test]
    fn each_demand_is_answered_once_with_any_withdrawals(steps in vec(step(), 0..120)) {
        let mut bench = Bench::with(Strategy::Trip, &[("a", 10), ("b", 100), ("c", 10_000)]);
        let mut open = [0_usize; NAMES.len()];
        let mut sending: [Option<Frame<BodyHeader>>; Lane::COUNT] = Default::default();
        let mut ended = 0;
        let at = |path: &Path| NAMES.iter().position(|name| name.as_bytes() == path.as_bytes()).unwrap();
        // At the end everything requested is taken.
        let rest = (0..steps.len()).flat_map(|_| {
            let lanes = (0..Lane::COUNT).map(Step::End);
            [Step::Told, Step::Next].into_iter().chain(lanes)
        });
        for step in steps.into_iter().chain(rest.collect::<Vec<_>>()) {
            match step {
                Step::Ask(at) => {
                    open[at] += 1;
                    bench.ask(NAMES[at]);
                }
                Step::Withdraw(at) => bench.withdraw(NAMES[at]),
                Step::Put(at, size) => bench.put(NAMES[at], size),
                Step::Next => {
                    if let Some(body) = bench.next() {
                        let place = &mut sending[LANES.of_body(&body.message).index()];
                        prop_assert!(place.is_none(), "two by one lane");
                        *place = Some(body);
                    }
                }
                Step::End(lane) => {
                    if let Some(body) = sending[lane].take() {
                        let wanted = bench.wants(&body);
                        bench.ends(&body, wanted);
                        open[at(&body.message.path)] -= 1;
                        ended += 1;
                    }
                }
                Step::Told => {
                    for message in bench.told() {
                        if let ToReplica::Withdrawn(path) = message {
                            open[at(&path)] -= 1;
                        }
                    }
                }
                Step::Confirm => bench.say(ToOrigin::Fetched(ended)),
            }
            prop_assert_eq!(bench.events(), []);
        }
        prop_assert_eq!(open, [0; NAMES.len()]);
    }
}
