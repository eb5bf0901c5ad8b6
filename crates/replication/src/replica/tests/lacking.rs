//! Missing bodies, and the messages about them.

use super::*;

const A: Digest = Digest([1; 32]);

impl Bench {
    /// The objects reported as missing their bodies since the last call.
    pub(super) fn lacking(&mut self) -> Vec<String> {
        let paths = |message| match message {
            ToOrigin::Lacking(paths) => paths,
            _ => Vec::new(),
        };
        self.sent().into_iter().flat_map(paths).map(|path| path.to_string()).collect()
    }

    /// How often a full disk was reported since the last call.
    fn full(&mut self) -> usize {
        let events = core::iter::from_fn(|| self.replica.poll_event());
        events.filter(|event| *event == Event::DiskFull).count()
    }

    /// The disk has no space for the body that it should store.
    fn no_room(&mut self, digest: &Digest) {
        while self.replica.poll_effect().is_some() {}
        self.replica.handle_stored(reading(self.ms), digest, Err(DiskFull));
    }

    /// The origin reports that it has lost a body of `a`.
    fn lost(&mut self, sequence: u64, body: u8) {
        let version = Version { sequence: Sequence(sequence), content: content(body) };
        let mut frame = self.header("a", version, true);
        frame.message.lost = true;
        self.replica.handle_body(reading(self.ms), frame, None);
    }
}

#[test]
fn pushed_body_is_taken_once_stored_or_discarded() {
    let mut bench = Bench::new(config());
    bench.sent();
    bench.body(1, "a1", false);
    bench.body(2, "b2", false);
    assert_eq!(bench.taken(), [0; 0], "both are in memory");
    // The disk may complete the second one first: they are counted in order.
    bench.replica.handle_stored(reading(0), &payload(2).digest, Ok(()));
    assert_eq!(bench.taken(), [0; 0]);
    bench.replica.handle_stored(reading(0), &payload(1).digest, Ok(()));
    assert_eq!(bench.taken(), [2]);
    bench.commit(1, "a1");
    bench.commit(2, "b2");
    bench.disk();
    bench.sent();
    bench.body(1, "a1", false);
    assert_eq!(bench.taken(), [3], "out of date");
    bench.body(3, "c3", false);
    bench.body(4, "d3", false);
    assert_eq!(bench.taken(), [0; 0]);
    bench.replica.handle_stored(reading(0), &payload(3).digest, Err(DiskFull));
    assert_eq!(bench.taken(), [5], "without room for them");
    bench.connect(Start::Log);
    bench.body(5, "e5", false);
    bench.disk();
    assert_eq!(bench.taken(), [1], "of this connection");
}

#[test]
fn demanded_body_is_fetched_once_stored_or_absent() {
    let mut bench = Bench::new(config());
    bench.sent();
    let fetched = |bench: &mut Bench| {
        let sent = bench.sent().into_iter();
        let count = |message| match message {
            ToOrigin::Fetched(count) => Some(count),
            _ => None,
        };
        sent.filter_map(count).collect::<Vec<_>>()
    };
    bench.body(1, "a1", true);
    assert_eq!(fetched(&mut bench), [0; 0], "it is in memory");
    bench.replica.handle_stored(reading(0), &payload(1).digest, Ok(()));
    assert_eq!(fetched(&mut bench), [1]);
    bench.body(1, "b-", true);
    assert_eq!(fetched(&mut bench), [2]);
    bench.connect(Start::Log);
    bench.body(1, "b-", true);
    assert_eq!(fetched(&mut bench), [1], "of this connection");
}

/// A replica that has applied a commit without its body.
fn without_body() -> Bench {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.wait(10_000);
    bench.disk();
    assert_eq!(bench.state("a"), Some((1, false)));
    bench
}

#[test]
fn lacking_list_is_sent_before_the_first_ping() {
    let mut bench = without_body();
    bench.connect_to_another_life();
    let sent = bench.sent();
    let at = |is_it: fn(&ToOrigin) -> bool| sent.iter().position(is_it).expect("it is said");
    let lacking = at(|message| matches!(message, ToOrigin::Lacking(_)));
    assert!(lacking < at(|message| matches!(message, ToOrigin::Ping { .. })), "{sent:?}");
}

#[test]
fn body_lost_during_a_step_is_invalid_in_the_step_too() {
    let mut bench = Bench::new(config());
    bench.commit(1, "q1");
    bench.body(1, "q1", false);
    bench.disk();
    // On its way to the disk: p has the same body.
    bench.commit(2, "p1");
    let digest = payload(1).digest;
    bench.replica.handle_missing(reading(0), &digest);
    assert_eq!(bench.read("q"), "Invalid");
    bench.body(1, "q1", true);
    // Stored again before the step is written.
    bench.replica.handle_stored(reading(0), &digest, Ok(()));
    bench.disk();
    assert_eq!(bench.answers(), [(1, "1".to_owned())]);
    bench.commit(3, "q2");
    bench.body(3, "q2", false);
    bench.disk();
    for (path, object) in &bench.replica.image.objects {
        let stored = bench.replica.bodies.references.is_stored(&object.version.content.digest);
        assert!(stored || !object.valid, "`{path}` is said to be here");
    }
    assert_eq!(bench.read("p"), "1", "it has the body that has come for q");
}

#[test]
fn body_rejected_by_a_full_disk_is_requested_again_later() {
    let mut bench = Bench::new(config());
    bench.full();
    bench.commit(1, "a1 b2");
    for text in ["a1", "b2"] {
        bench.body(1, text, false);
    }
    bench.no_room(&A);
    bench.no_room(&Digest([2; 32]));
    assert_eq!(bench.full(), 1, "told once");
    bench.wait(10_000);
    bench.disk();
    assert_eq!(bench.state("a"), Some((1, false)), "a step has found room");
    bench.wait(49_999);
    assert_eq!(bench.lacking(), [""; 0]);
    bench.wait(1);
    assert_eq!(bench.lacking(), ["a", "b"]);
    bench.body(1, "a1", false);
    bench.disk();
    bench.body(1, "b2", false);
    bench.no_room(&Digest([2; 32]));
    assert_eq!((bench.state("a"), bench.full()), (Some((1, true)), 1));
    // Overwritten meanwhile, it is not used.
    bench.commit(2, "b-");
    bench.wait(1_000);
    bench.disk();
    bench.wait(60_000);
    assert_eq!(bench.lacking(), [""; 0]);
}

#[test]
fn large_body_rejected_while_arriving_is_requested_again() {
    let mut bench = Bench::new(config());
    bench.full();
    bench.sent();
    bench.commit(1, "a1");
    let version = Version { sequence: Sequence(1), content: content(1) };
    let frame = bench.header("a", version, false);
    bench.replica.handle_no_room(reading(0), frame);
    assert_eq!((bench.taken(), bench.full()), (vec![1], 1));
    bench.wait(60_000);
    assert_eq!(bench.lacking(), ["a"]);
}

#[test]
fn retries_after_a_full_disk_grow_while_they_succeed() {
    let mut bench = Bench::new(config());
    // Each has a different body. Otherwise one would be that of all.
    let bodies = ('0'..='9').chain('a'..='z');
    let names = ('A'..='Z').chain('a'..='j');
    let all: Vec<String> = names.zip(bodies).map(|(name, body)| format!("{name}{body}")).collect();
    bench.commit(1, &all.join(" "));
    for text in &all {
        bench.body(1, text, false);
    }
    for body in 0..36 {
        bench.no_room(&Digest([body; 32]));
    }
    bench.wait(10_000);
    bench.disk();
    bench.wait(50_000);
    assert_eq!(bench.lacking().len(), 16);
    bench.body(1, "A0", false);
    bench.disk();
    assert_eq!(bench.lacking().len(), 20);
}

#[test]
fn truncated_demand_is_sent_again_without_a_waiting_read() {
    for came in [false, true] {
        let mut bench = Bench::new(config());
        bench.commit(1, "a1");
        bench.wait(10_000);
        bench.heartbeat(1);
        bench.disk();
        assert_eq!(bench.read("a"), "Invalid");
        bench.replica.cancel_read(reading(bench.ms), ReadId(1));
        if came {
            bench.body(1, "a1", true);
            bench.disk();
        }
        bench.sent();
        bench.replica.handle_disconnected(reading(bench.ms));
        bench.connect(Start::Log);
        assert_eq!(bench.lacking().len(), usize::from(!came));
    }
}

#[test]
fn read_of_a_lost_body_fails_and_blocks_no_other() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1 b2");
    bench.body(1, "b2", false);
    bench.wait(10_000);
    bench.heartbeat(1);
    bench.disk();
    while bench.replica.poll_event().is_some() {}
    assert_eq!((bench.read("a"), bench.read("b")), ("Invalid".to_owned(), "Order".to_owned()));
    assert_eq!(bench.demanded(), ["a"]);
    bench.lost(1, 1);
    assert_eq!(bench.answers(), [(1, "lost 1".to_owned()), (2, "2".to_owned())]);
    assert_eq!(bench.replica.poll_event(), Some(Event::Lost(path("a"))));
    assert_eq!((bench.read("a"), bench.read("b")), ("lost 1".to_owned(), "2".to_owned()));
    assert_eq!(bench.demanded(), [""; 0], "not each round trip");
    bench.wait(1_000);
    assert_eq!(bench.read("a"), "lost 1");
    assert_eq!(bench.demanded(), ["a"], "it may be back");
    bench.lost(1, 1);
    assert_eq!(bench.replica.poll_event(), None, "told once");
    bench.body(1, "a1", false);
    bench.disk();
    assert_eq!(bench.read("a"), "1");
    // Nothing is known of another version.
    bench.commit(2, "a3");
    bench.wait(10_000);
    bench.heartbeat(2);
    bench.disk();
    assert_eq!(bench.read("a"), "Invalid");
}

#[test]
fn lost_version_is_reported_only_once_applied() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.wait(10_000);
    bench.heartbeat(1);
    bench.disk();
    let looked_up = bench.replica.image().objects[&path("a")].version;
    assert_eq!(bench.read("a"), "Invalid");
    bench.lost(3, 3);
    assert_eq!(bench.answers(), [], "the invalidations come by the other channel");
    bench.commit(2, "b2");
    bench.commit(3, "a3");
    bench.disk();
    assert_eq!(bench.answers(), [(1, "lost 3".to_owned())]);
    assert_eq!(bench.state("b"), Some((2, false)), "what is before it is applied");
    // A program that fails to open a looked-up version looks the name up again.
    assert_eq!(bench.ask(ReadTarget::Version(path("a"), looked_up), 0), "-");
    let newer = bench.replica.image().objects[&path("a")].version;
    assert_eq!(bench.ask(ReadTarget::Version(path("a"), newer), 0), "lost 3");
}

#[test]
fn commit_waiting_for_its_body_makes_the_state_stale() {
    let mut bench = Bench::new(config());
    let stale = |bench: &Bench| bench.replica.staleness(reading(bench.ms).local);
    bench.wait(1_000);
    bench.commit(1, "a1");
    bench.wait(6_000);
    bench.heartbeat(1);
    // By the wall clock it was made at least half a second before it arrived.
    assert_eq!(stale(&bench), Some(Duration::from_millis(6_500)));
    bench.wait(2_000);
    let waiting = Some(Duration::from_millis(8_500));
    assert_eq!(stale(&bench), waiting);
    assert_eq!(
        bench.reflects(),
        Some(reading(1_000).wall),
        "the report has the time of the commit"
    );
    bench.body(1, "a1", false);
    assert_eq!(stale(&bench), waiting, "it is not on the disk");
    bench.disk();
    assert_eq!(stale(&bench), Some(Duration::from_secs(2)), "since the last heartbeat");
    bench.wait(2_000);
    assert_eq!(bench.reflects(), Some(reading(7_000).wall));
    bench.commit(2, "a-");
    bench.disk();
    bench.wait(2_000);
    assert_eq!(bench.reflects(), Some(reading(11_000).wall), "or since the last commit");
    // Another life of the origin may have another clock.
    bench.replica.handle_disconnected(reading(bench.ms));
    bench.connection += 1;
    bench.replica.handle_connected(reading(bench.ms));
    let session = Session { origin: Incarnation(2), ..bench.session() };
    let message = ToReplica::Welcome { start: Start::Log, eager: false };
    bench.replica.handle_control(reading(bench.ms), Frame { session, message });
    assert_eq!(bench.reflects(), None);
}

#[test]
fn corrupt_pushed_body_is_requested_once_more_per_connection() {
    let mut bench = Bench::new(config());
    let spoil = |bench: &mut Bench, payload| {
        let version = Version { sequence: Sequence(1), content: content(1) };
        let frame = bench.header("a", version, false);
        bench.replica.handle_body(reading(bench.ms), frame, payload);
        bench.lacking()
    };
    bench.commit(1, "a1");
    bench.sent();
    assert_eq!(spoil(&mut bench, None), [""; 0], "broken off: a newer one is to come");
    assert_eq!(spoil(&mut bench, Some(payload(9))), ["a"]);
    assert_eq!(
        spoil(&mut bench, Some(payload(9))),
        [""; 0],
        "it would be filled with that for ever"
    );
    // A read gets it all the same.
    bench.wait(10_000);
    bench.heartbeat(1);
    bench.disk();
    assert_eq!((bench.read("a"), bench.demanded()), ("Invalid".to_owned(), vec!["a".to_owned()]));
    bench.replica.cancel_read(reading(bench.ms), ReadId(1));
    bench.wait(10_000);
    bench.say(ToReplica::Withdrawn(path("a")));
    bench.connect(Start::Log);
    assert_eq!(bench.lacking(), ["a"], "the next line may be better");
    bench.body(1, "a1", false);
    bench.disk();
    assert_eq!(bench.state("a"), Some((1, true)));
    bench.connect(Start::Log);
    assert_eq!(bench.lacking(), [""; 0]);
}

#[test]
fn body_makes_all_objects_with_its_digest_valid() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1 b2");
    bench.commit(2, "c1");
    bench.wait(10_000);
    bench.heartbeat(2);
    bench.disk();
    assert_eq!((bench.state("a"), bench.state("c")), (Some((1, false)), Some((2, false))));
    bench.body(2, "c1", false);
    bench.disk();
    let states = ["a", "b", "c"].map(|name| bench.state(name));
    assert_eq!(states, [Some((1, true)), Some((1, false)), Some((2, true))]);
    assert_eq!(bench.replica.stock().valid_objects, 2);
    assert_eq!((bench.read("a"), bench.demanded()), ("1".to_owned(), vec![]));
    // Each of these names keeps the body, and no other name does.
    bench.commit(3, "c-");
    bench.disk();
    assert_eq!(bench.read("a"), "1");
    bench.commit(4, "a-");
    bench.disk();
    assert_eq!(bench.replica.bytes(), Bytes(0));
}

#[test]
fn body_that_arrives_during_a_step_is_found_after_it() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.wait(10_000);
    bench.heartbeat(1);
    let Some(Effect::Commit(_)) = bench.replica.poll_effect() else { panic!("a step") };
    bench.commit(2, "b1");
    bench.body(2, "b1", false);
    let digest = payload(1).digest;
    bench.replica.handle_stored(reading(bench.ms), &digest, Ok(()));
    while bench.replica.poll_effect().is_some() {}
    bench.replica.handle_committed(reading(bench.ms), Ok(()));
    bench.disk();
    assert_eq!((bench.state("a"), bench.state("b")), (Some((1, true)), Some((2, true))));
}

#[test]
fn read_of_an_evicted_object_finds_its_body_elsewhere() {
    let mut bench = Bench::new(Config { quota: Some(Bytes(20)), ..config() });
    bench.commit(1, "a1 c2");
    bench.body(1, "a1", false);
    bench.body(1, "c2", false);
    bench.disk();
    // The same body has come for a commit that is still to be announced.
    bench.body(5, "e1", false);
    bench.commit(2, "d3");
    bench.body(2, "d3", true);
    bench.disk();
    assert_eq!(bench.state("a"), Some((1, false)), "it was not read for longest");
    assert!(bench.replica.has_body(&payload(1).digest));
    bench.sent();
    assert_eq!((bench.read("a"), bench.demanded()), ("1".to_owned(), vec![]));
    bench.disk();
    assert_eq!(bench.state("a"), Some((1, true)), "it counts as valid");
}

#[test]
fn lacking_list_is_sent_on_each_connection_until_confirmed() {
    let mut bench = without_body();
    bench.connect_to_another_life();
    assert_eq!(bench.lacking(), ["a"], "an origin that has lost its queue");
    let again = |bench: &mut Bench| {
        bench.ms += 1;
        bench.connection += 1;
        bench.replica.handle_connected(reading(bench.ms));
        bench.sent();
        bench.in_another_life(ToReplica::Welcome { start: Start::Log, eager: false });
        bench.lacking()
    };
    assert_eq!(again(&mut bench), ["a"], "the connection may have broken before it was heard");
    let now = reading(bench.ms);
    let heartbeat = |echo| ToReplica::Heartbeat { stamp: now.wall, committed: Sequence(1), echo };
    bench.in_another_life(heartbeat(None));
    assert_eq!(again(&mut bench), ["a"], "that was no answer");
    bench.in_another_life(heartbeat(Some(reading(bench.ms).local)));
    assert_eq!(again(&mut bench), [""; 0]);
}

#[test]
fn comparison_result_is_sent_on_the_next_connection() {
    let mut bench = Bench::new(config());
    let version = Version { sequence: Sequence(6), content: content(6) };
    let tree = MerkleTree::new([(&path("a"), version)]);
    let position = Position { sequence: Sequence(6), chain: Digest([9; 32]) };
    bench.connect(Start::Resync { position, stamp: reading(0).wall, root: tree.root() });
    bench.compare(&tree);
    // Its outcome is being written.
    bench.replica.handle_disconnected(reading(0));
    bench.disk();
    bench.connect(Start::Log);
    assert_eq!(bench.lacking(), ["a"]);
}
