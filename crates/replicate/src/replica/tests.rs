use super::*;
use crate::merkle::MerkleTree;
use crate::message::{BodyHeader, Start, ToReplica};
use crate::time::{Drift, WallTime};
use crate::types::{Content, Metadata, Payload};

const MS: i64 = 1_000_000;

fn path(text: &str) -> Path {
    Path::new(text).expect("a path")
}

/// The body with this number.
fn content(body: u8) -> Content {
    Content { digest: Digest([body; 32]), size: Bytes(10), metadata: Metadata::default() }
}

fn payload(body: u8) -> Payload<()> {
    Payload { digest: Digest([body; 32]), size: Bytes(10), bytes: () }
}

/// `"a1"` gives `a` the body 1, `"a-"` deletes it.
fn changes(text: &str) -> Vec<Change> {
    let change = |text: &str| Change {
        path: path(&text[..1]),
        content: text[1..].parse().ok().map(content),
    };
    text.split(' ').map(change).collect()
}

fn config() -> Config {
    Config {
        staleness: Staleness {
            connected: Duration::from_secs(10),
            disconnected: Some(Duration::from_secs(60)),
            max_skew: Duration::from_millis(500),
            drift: Drift(0),
            slew: Drift(0),
        },
        ping: Duration::from_secs(1),
        silence: Duration::from_secs(1_000),
        grace: Duration::ZERO,
        ..Config::default()
    }
}

/// A replica, and a disk that does what it is told when it is told to.
struct Bench {
    replica: Replica<()>,
    ms: i64,
    connection: u32,
    reads: u64,
}

impl Bench {
    /// A replica that is connected to an origin without objects, at 0 ms.
    fn new(config: Config) -> Self {
        let now = reading(0);
        let replica = Replica::recover(now, config, Image::default(), []);
        let mut bench = Bench { replica, ms: 0, connection: 0, reads: 0 };
        bench.connect(Start::Resync {
            position: Position::beginning([7; 32]),
            stamp: now.wall,
            root: MerkleTree::new([]).root(),
        });
        bench.disk();
        assert!(bench.sent().contains(&ToOrigin::Resynced(Sequence::ZERO)));
        bench.heartbeat(0);
        bench
    }

    fn connect(&mut self, start: Start) {
        self.connection += 1;
        self.replica.handle_connected(reading(self.ms));
        let hello = self.sent();
        assert!(matches!(hello[..], [ToOrigin::Hello { .. }]), "{hello:?}");
        self.say(ToReplica::Welcome(start));
    }

    fn session(&self) -> Session {
        Session {
            origin: Incarnation(1),
            replica: Incarnation(0),
            connection: self.connection,
        }
    }

    fn say(&mut self, message: ToReplica) {
        let frame = Frame { session: self.session(), message };
        self.replica.handle_control(reading(self.ms), frame);
    }

    /// A commit that is made and told of now.
    fn commit(&mut self, sequence: u64, text: &str) {
        self.part(sequence, text, false);
    }

    fn part(&mut self, sequence: u64, text: &str, more: bool) {
        let stamp = reading(self.ms).wall;
        let (sequence, changes) = (Sequence(sequence), changes(text));
        self.say(ToReplica::Invalidation { sequence, stamp, changes, more });
    }

    /// A heartbeat that was said now and answers a ping of now.
    fn heartbeat(&mut self, committed: u64) {
        let now = reading(self.ms);
        let committed = Sequence(committed);
        self.say(ToReplica::Heartbeat { stamp: now.wall, committed, echo: Some(now.local) });
    }

    fn body(&mut self, sequence: u64, text: &str, demand: bool) {
        let change = changes(text).remove(0);
        let sequence = Sequence(sequence);
        let version = change.content.map(|content| Version { sequence, content });
        let payload = text[1..].parse().ok().map(payload);
        let message = BodyHeader { path: change.path, version, at: sequence, demand };
        let frame = Frame { session: self.session(), message };
        self.replica.handle_body(reading(self.ms), frame, payload);
    }

    /// The disk does all that it was asked for.
    fn disk(&mut self) {
        let now = reading(self.ms);
        while let Some(effect) = self.replica.poll_effect() {
            match effect {
                Effect::Body(BodyEffect::Store(payload)) => {
                    self.replica.handle_stored(now, &payload.digest, Ok(()));
                }
                Effect::Body(BodyEffect::Drop(digest)) => self.replica.handle_dropped(&digest),
                Effect::Commit(_) => self.replica.handle_committed(now, Ok(())),
            }
        }
    }

    fn wait(&mut self, ms: i64) {
        self.ms += ms;
        self.replica.handle_timeout(reading(self.ms));
    }

    fn sent(&mut self) -> Vec<ToOrigin> {
        let mut sent = Vec::new();
        while let Some(frame) = self.replica.poll_send() {
            sent.push(frame.message);
        }
        sent
    }

    /// What a read of `name` gets at once: a body, `-`, or why it waits.
    fn read(&mut self, name: &str) -> String {
        self.read_after(name, 0)
    }

    fn read_after(&mut self, name: &str, after: u64) -> String {
        self.reads += 1;
        let id = ReadId(self.reads);
        let what = What::Object(path(name));
        let request = Request { what, after: Sequence(after) };
        match self.replica.handle_read(reading(self.ms), id, request) {
            Some(why) => format!("{why:?}"),
            None => self.answers().pop().expect("an answer").1,
        }
    }

    fn answers(&mut self) -> Vec<(u64, String)> {
        let mut answers = Vec::new();
        while let Some(answer) = self.replica.poll_answer() {
            let text = match answer.outcome {
                Outcome::Object(version) => version.content.digest.0[0].to_string(),
                Outcome::Absent => "-".to_owned(),
                Outcome::Folder(entries) => {
                    entries.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>().join(" ")
                }
            };
            answers.push((answer.id.0, text));
        }
        answers
    }

    /// What the state has for `name`, and whether it is valid.
    fn state(&self, name: &str) -> Option<(u64, bool)> {
        let object = self.replica.image().objects.get(&path(name))?;
        Some((object.version.sequence.0, object.valid))
    }
}

fn reading(ms: i64) -> Reading {
    Reading {
        local: LocalTime::from_nanos(ms * MS),
        wall: WallTime::from_nanos((1_000_000 + ms) * MS),
    }
}

#[test]
fn an_invalidation_is_applied_with_its_body() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.disk();
    assert_eq!(bench.read("a"), "-", "it waits for its body");
    bench.body(1, "a1", false);
    bench.disk();
    assert_eq!(bench.read("a"), "1");
    assert!(bench.sent().contains(&ToOrigin::Ack(Sequence(1))));
}

#[test]
fn an_invalidation_is_applied_at_its_deadline_without_its_body() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.wait(9_000);
    bench.heartbeat(1);
    bench.disk();
    assert_eq!((bench.state("a"), bench.read("a")), (None, "-".to_owned()));
    bench.wait(1_000);
    assert_eq!(bench.read("a"), "Applying", "overdue, and not on the disk yet");
    bench.disk();
    assert_eq!(bench.state("a"), Some((1, false)));
    assert!(bench.sent().contains(&ToOrigin::Demand(path("a"))));
    bench.body(1, "a1", true);
    bench.disk();
    assert_eq!(bench.answers(), [(2, "1".to_owned())]);
}

#[test]
fn a_read_looks_at_deadlines_itself() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.ms += 9_000;
    bench.heartbeat(1);
    bench.disk();
    // Nobody calls the timer.
    bench.ms += 1_000;
    assert_eq!(bench.read("a"), "Applying");
}

#[test]
fn a_demand_body_has_all_invalidations_before_it_applied() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.wait(10_000);
    bench.heartbeat(1);
    bench.disk();
    assert_eq!(bench.read("a"), "Invalid");
    // While the answer is on its way, other things are written, and `a` is written again.
    bench.commit(2, "b2");
    bench.commit(3, "a3");
    bench.commit(4, "c4");
    bench.disk();
    bench.body(3, "a3", true);
    bench.disk();
    assert_eq!(bench.answers(), [(1, "3".to_owned())]);
    assert_eq!(bench.state("b"), Some((2, false)), "applied for the demand body");
    assert_eq!(bench.state("c"), None, "this one waits for its own");
}

#[test]
fn a_demand_answer_without_a_body_waits_for_the_deletion() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.wait(10_000);
    bench.heartbeat(1);
    bench.disk();
    assert_eq!(bench.read("a"), "Invalid");
    bench.body(3, "a-", true);
    bench.disk();
    assert_eq!(bench.answers(), [], "the deletion is on its way by the other channel");
    bench.commit(2, "b2");
    bench.commit(3, "a-");
    bench.disk();
    assert_eq!(bench.answers(), [(1, "-".to_owned())]);
}

#[test]
fn a_body_waits_for_the_invalidations_before_it() {
    let mut bench = Bench::new(config());
    bench.body(2, "b2", false);
    bench.disk();
    assert_eq!(bench.read("b"), "-");
    bench.commit(1, "a1");
    bench.commit(2, "b2");
    bench.disk();
    assert_eq!(bench.read("b"), "-", "C1: 1 comes first, and waits for its body");
    bench.body(1, "a1", false);
    bench.disk();
    assert_eq!((bench.read("a"), bench.read("b")), ("1".to_owned(), "2".to_owned()));
}

#[test]
fn a_body_of_an_older_version_is_discarded() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.commit(2, "a2");
    bench.wait(10_000);
    bench.heartbeat(2);
    bench.disk();
    bench.body(1, "a1", false);
    bench.disk();
    assert_eq!(bench.state("a"), Some((2, false)));
    assert_eq!(bench.replica.take_counters().stale, 1);
    assert_eq!(bench.replica.bytes(), Bytes(0));
}

#[test]
fn a_body_that_is_not_what_was_announced_is_discarded() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.wait(10_000);
    bench.disk();
    // The header and the invalidation disagree; then the header and the bytes.
    bench.body(1, "a9", false);
    bench.disk();
    let version = Version { sequence: Sequence(1), content: content(1) };
    let message =
        BodyHeader { path: path("a"), version: Some(version), at: Sequence(1), demand: false };
    let frame = Frame { session: bench.session(), message };
    bench.replica.handle_body(reading(bench.ms), frame, Some(payload(9)));
    bench.disk();
    assert_eq!(bench.state("a"), Some((1, false)));
    assert_eq!(bench.replica.take_counters().corrupt, 2);
}

#[test]
fn a_transaction_is_visible_whole_or_not_at_all() {
    let mut bench = Bench::new(config());
    bench.part(1, "a1 b2", true);
    bench.part(1, "c3", false);
    for body in ["a1", "b2"] {
        bench.body(1, body, false);
        bench.disk();
        assert_eq!(bench.state("a"), None, "c is missing");
    }
    bench.body(1, "c3", false);
    assert_eq!(bench.state("a"), None, "nothing is on the disk");
    bench.disk();
    let names = ["a", "b", "c"];
    assert_eq!(names.map(|name| bench.read(name)), ["1", "2", "3"]);
}

#[test]
fn nothing_is_visible_before_it_is_on_the_disk() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.body(1, "a1", false);
    let Some(Effect::Body(BodyEffect::Store(body))) = bench.replica.poll_effect() else {
        panic!("the body comes first");
    };
    assert_eq!(bench.replica.poll_effect(), None, "the state would refer to a missing body");
    bench.replica.handle_stored(reading(0), &body.digest, Ok(()));
    let Some(Effect::Commit(_)) = bench.replica.poll_effect() else { panic!("then the state") };
    assert_eq!(bench.read("a"), "-");
    bench.replica.handle_committed(reading(0), Err(DiskFull));
    assert_eq!(bench.read("a"), "-", "nothing half-visible");
    assert_eq!(bench.replica.poll_event(), Some(Event::Connected));
    assert_eq!(bench.replica.poll_event(), Some(Event::DiskFull));
    bench.wait(1_000);
    bench.disk();
    assert_eq!(bench.read("a"), "1", "it is tried again");
}

#[test]
fn reads_wait_when_the_origin_was_not_heard_for_delta() {
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
fn a_blocked_read_goes_on_with_the_next_heartbeat() {
    let mut bench = Bench::new(config());
    bench.wait(10_000);
    assert_eq!(bench.read("a"), "Stale");
    bench.heartbeat(0);
    assert_eq!(bench.answers(), [(1, "-".to_owned())]);
}

#[test]
fn a_lost_connection_lets_the_larger_delta_count() {
    let mut bench = Bench::new(config());
    bench.wait(10_000);
    assert_eq!(bench.read("a"), "Stale");
    bench.replica.handle_disconnected(reading(bench.ms));
    assert_eq!(bench.answers(), [(1, "-".to_owned())]);
    assert_eq!(bench.replica.take_counters().masked, 1);
}

#[test]
fn overdue_invalidations_come_before_reads_when_the_connection_is_back() {
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
fn what_is_told_again_after_a_reconnection_is_known() {
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
fn nonsense_ends_the_connection() {
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
    for (message, what) in [
        (invalidation(2), "a gap"),
        (heartbeat(1), "a heartbeat that speaks of what was not told"),
        (ToReplica::Welcome(Start::Log), "a second welcome"),
        (ToReplica::Tree(crate::message::Tree::Branches(Vec::new())), "nobody has asked"),
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
    assert_eq!(bench.replica.take_counters().stale_frames, 1);
}

#[test]
fn an_aggressive_read_passes_one_that_waits_and_a_conservative_one_does_not() {
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
fn a_session_that_has_seen_more_elsewhere_has_it_applied_or_waits() {
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
fn a_listing_is_one_read_of_all_names() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1 b2");
    bench.wait(10_000);
    bench.heartbeat(1);
    bench.disk();
    let request = Request { what: What::Folder(String::new()), after: Sequence::ZERO };
    assert_eq!(bench.replica.handle_read(reading(bench.ms), ReadId(1), request), None);
    assert_eq!(bench.answers(), [(1, "a b".to_owned())], "names need no bodies");
}

#[test]
fn a_missing_body_makes_its_object_invalid_and_is_fetched_again() {
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
fn a_body_that_is_here_under_another_name_is_not_waited_for() {
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
    assert_eq!(bench.replica.bytes(), Bytes(0), "nobody needs it any more");
}

#[test]
fn what_was_not_read_for_longest_makes_room() {
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
fn an_overwritten_body_can_be_fetched_for_a_while() {
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
fn a_restart_begins_with_what_was_committed_and_knows_nothing_of_time() {
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
        let request = Request { what: What::Object(path("a")), after: Sequence::ZERO };
        assert_eq!(replica.handle_read(reading(0), ReadId(1), request), Some(Why::Stale));
    }
}

#[test]
fn counts_of_reads_are_reported() {
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
