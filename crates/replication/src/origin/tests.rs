use super::*;
use crate::BodyEffect;
use crate::message::{Ask, BodyHeader, Start, Tree};
use crate::subscription::{Pattern, Subscription};
use crate::time::WallTime;
use crate::types::{Content, DiskFull, Incarnation, Kind, Metadata, Mode, Payload};

mod arrivals;
mod case;
mod conditions;
mod demands;
mod history;
mod holds;
mod lost;
mod moves;
mod parts;
mod ranges;
mod reports;
mod resync;
mod rollback;
mod slices;
mod strategies;
mod subscribers;

const REPLICA: ReplicaId = ReplicaId(3);

fn path(text: &str) -> Path {
    Path::new(text).expect("a path")
}

fn reading(ms: i64) -> Reading {
    let nanos = ms * 1_000_000;
    Reading { local: LocalTime::from_nanos(nanos), wall: WallTime::from_nanos(nanos + 1_000) }
}

fn payload(body: u8, size: u64) -> Payload<()> {
    Payload { digest: Digest([body; 32]), size: Bytes(size), bytes: () }
}

/// `"a1"` gives `a` a small body, `"a-"` deletes it, `"a>"` makes it a link, `"a/"` a folder. The name is all
/// but the last character.
fn transaction(text: &str) -> Transaction<()> {
    let change = |text: &str| {
        let (name, body) = text.split_at(text.len() - 1);
        let link = Metadata { kind: Kind::Link, mode: Mode::LINK, ..Metadata::default() };
        let folder = Content::folder(WallTime::default(), Mode::new(0o750));
        let empty = Payload { digest: Digest::EMPTY, size: Bytes(0), bytes: () };
        let put = match body {
            "-" => Put::Delete,
            ">" => Put::Body(payload(9, 10), link),
            "/" => Put::Body(empty, folder.metadata),
            body => Put::Body(payload(body.parse().expect("a body"), 10), Metadata::default()),
        };
        (path(name), put)
    };
    Transaction { changes: text.split(' ').map(change).collect() }
}

struct Bench {
    origin: Origin<()>,
    ms: i64,
    count: u64,
    connection: u32,
}

fn hello(position: Option<Position>, committed: Sequence) -> ToOrigin {
    let only = Subscription::default();
    ToOrigin::Hello { protocol: PROTOCOL, replica: REPLICA, position, committed, only }
}

impl Bench {
    fn new(config: Config) -> Self {
        Bench::of(config, Image::empty([7; 32]), Vec::new())
    }

    fn of(config: Config, mut image: Image, bodies: Vec<(Digest, Bytes)>) -> Self {
        image.incarnation = Incarnation(image.incarnation.0 + 1);
        let policy = Box::new(ReadsPerWriteAndByte);
        let origin = Origin::recover(reading(0), config, policy, image, bodies);
        Bench { origin, ms: 0, count: 0, connection: 0 }
    }

    fn write(&mut self, text: &str) -> TransactionId {
        self.submit(transaction(text))
    }

    fn submit(&mut self, transaction: Transaction<()>) -> TransactionId {
        self.count += 1;
        let id = TransactionId(self.count);
        self.origin.handle_transaction(reading(self.ms), id, transaction);
        id
    }

    fn roll_back(&mut self, to: u64) -> TransactionId {
        self.count += 1;
        let id = TransactionId(self.count);
        self.origin.handle_rollback(reading(self.ms), id, Sequence(to));
        id
    }

    fn no_way_back(&mut self, to: u64) -> RollbackError {
        self.roll_back(to);
        match &self.events()[..] {
            [Event::Refused { why: Refused::Rollback(why), .. }] => *why,
            other => panic!("{to}: {other:?}"),
        }
    }

    fn disk(&mut self) {
        let now = reading(self.ms);
        while let Some(effect) = self.origin.poll_effect() {
            match effect {
                Effect::Body(BodyEffect::Store(payload)) => {
                    self.origin.handle_stored(now, &payload.digest, Ok(()));
                }
                Effect::Body(BodyEffect::Drop(digest)) => {
                    self.origin.handle_dropped(now, &digest);
                }
                Effect::Append(_) => self.origin.handle_appended(now, Ok(())),
            }
        }
    }

    /// All events, except for those about arrived bodies.
    fn events(&mut self) -> Vec<Event> {
        let all = core::iter::from_fn(|| self.origin.poll_event());
        all.filter(|event| !matches!(event, Event::Arrived(_))).collect()
    }

    /// Writes, and completes the durable step.
    fn committed(&mut self, text: &str) -> Sequence {
        self.write(text);
        self.disk();
        match self.events()[..] {
            [Event::Acknowledged { sequence, .. }] => sequence,
            ref other => panic!("{text}: {other:?}"),
        }
    }

    fn refused(&mut self, text: &str) -> Refused {
        self.write(text);
        self.disk();
        match &self.events()[..] {
            [Event::Refused { why, .. }] => why.clone(),
            other => panic!("{text}: {other:?}"),
        }
    }

    fn session(&self) -> Session {
        Session {
            origin: self.origin.image().incarnation,
            replica: Incarnation(1),
            connection: self.connection,
        }
    }

    fn say(&mut self, message: ToOrigin) {
        let frame = Frame { session: self.session(), message };
        self.origin.handle_frame(reading(self.ms), REPLICA, frame);
    }

    fn hello(&mut self, position: Option<Position>) {
        self.connection += 1;
        let committed = position.map_or(Sequence::ZERO, |position| position.sequence);
        self.say(hello(position, committed));
    }

    fn told(&mut self) -> Vec<ToReplica> {
        let now = reading(self.ms);
        let poll = || self.origin.poll_control(now, REPLICA).map(|frame| frame.message);
        core::iter::from_fn(poll).collect()
    }

    /// The numbers of the pushed bodies that can be handed out.
    fn pushed(&mut self) -> Vec<u8> {
        let poll = || self.origin.poll_speculative(REPLICA);
        let bodies = core::iter::from_fn(poll);
        bodies.map(|frame| frame.message.version.expect("a body").content.digest.0[0]).collect()
    }
}

fn sequences(told: &[ToReplica]) -> Vec<u64> {
    let sequence = |message: &ToReplica| match message {
        ToReplica::Invalidation { sequence, .. } => Some(sequence.0),
        _ => None,
    };
    told.iter().filter_map(sequence).collect()
}

fn is_resync(told: &[ToReplica]) -> bool {
    matches!(told, [ToReplica::Welcome { start: Start::Resync { .. }, .. }])
}

#[test]
fn only_folders_have_objects_below_them() {
    let both = |name| Refused::FileAndFolder(path(name));
    let mut bench = Bench::new(Config::default());
    bench.committed("a/ a/b/ a/b/c1 l> e/");
    for (text, expected) in [
        ("l/x1", both("l")),
        ("a/b/c/x1", both("a/b/c")),
        ("a1", both("a")),
        ("a/b>", both("a/b")),
        ("l/x/", both("l")),
    ] {
        assert_eq!(bench.refused(text), expected, "{text}");
    }
    // Each becomes another kind, together with its contents.
    bench.committed("e1");
    bench.committed("e/");
    bench.committed("l- l/x1");
    bench.committed("a/b/c- a/b- a>");
    bench.committed("a/ a/x>");
    let impossible = Metadata { kind: Kind::Folder, ..Metadata::default() };
    let changes = [(path("f"), Put::Body(payload(1, 10), impossible))].into();
    bench.submit(Transaction { changes });
    let events = format!("{:?}", bench.events());
    assert!(events.contains("Impossible"), "{events}");
}

#[test]
fn write_is_announced_after_body_and_log_are_durable() {
    let mut bench = Bench::new(Config { inline: Bytes(0), ..Config::default() });
    bench.hello(Some(Position::beginning([7; 32])));
    bench.told();
    let id = bench.write("a1");
    let Some(Effect::Body(BodyEffect::Store(body))) = bench.origin.poll_effect() else {
        panic!("the body comes first");
    };
    assert_eq!(bench.origin.poll_effect(), None, "the log waits for the body");
    bench.origin.handle_stored(reading(0), &body.digest, Ok(()));
    let Some(Effect::Append(append)) = bench.origin.poll_effect() else {
        panic!("then the log");
    };
    assert_eq!(append.commits.len(), 1);
    assert_eq!((bench.events(), bench.told(), bench.pushed()), (vec![], vec![], vec![]));
    bench.origin.handle_appended(reading(0), Ok(()));
    let sequence = Sequence(1);
    assert_eq!(bench.events(), [Event::Acknowledged { transaction: id, sequence }]);
    assert_eq!(sequences(&bench.told()), [1]);
    assert_eq!(bench.pushed(), [1]);
}

#[test]
fn small_bodies_are_stored_in_the_log() {
    let mut bench = Bench::new(Config { inline: Bytes(10), ..Config::default() });
    bench.write("a1");
    let Some(Effect::Append(append)) = bench.origin.poll_effect() else { panic!("one step") };
    assert_eq!(append.inline, [payload(1, 10)]);
}

#[test]
fn full_disk_refuses_whole_transactions() {
    let mut bench = Bench::new(Config { inline: Bytes(0), ..Config::default() });
    let both = bench.write("a1 b2");
    let other = bench.write("c3");
    bench.origin.handle_stored(reading(0), &Digest([1; 32]), Ok(()));
    bench.origin.handle_stored(reading(0), &Digest([2; 32]), Err(DiskFull));
    bench.origin.handle_stored(reading(0), &Digest([3; 32]), Ok(()));
    while bench.origin.poll_effect().is_some() {}
    let why = Refused::Disk(DiskFull);
    assert_eq!(bench.events(), [Event::Refused { transaction: both, why: why.clone() }]);
    bench.origin.handle_appended(reading(0), Err(DiskFull));
    assert_eq!(bench.events(), [Event::Refused { transaction: other, why }]);
    assert_eq!(bench.origin.last().sequence, Sequence::ZERO);
    assert!(bench.origin.image().objects.is_empty());
    assert_eq!(bench.committed("c3"), Sequence(1));
}

#[test]
fn transactions_are_committed_in_order_and_together() {
    let mut bench = Bench::new(Config { inline: Bytes(0), ..Config::default() });
    bench.write("a1");
    bench.write("b-");
    bench.write("c-");
    assert!(matches!(bench.origin.poll_effect(), Some(Effect::Body(_))));
    assert_eq!(bench.origin.poll_effect(), None, "b waits behind a");
    bench.origin.handle_stored(reading(0), &Digest([1; 32]), Ok(()));
    let Some(Effect::Append(append)) = bench.origin.poll_effect() else { panic!("one step") };
    let sequences: Vec<_> = append.commits.iter().map(|commit| commit.sequence.0).collect();
    assert_eq!(sequences, [1, 2, 3], "one durable step for all that is ready");
}

#[test]
fn file_and_folder_cannot_share_a_path() {
    for (before, transaction, expected) in [
        ("a/b1", "a2", Some(Refused::FileAndFolder(path("a")))),
        ("a1", "a/b2", Some(Refused::FileAndFolder(path("a")))),
        ("a1", "a/b/c2", Some(Refused::FileAndFolder(path("a")))),
        ("a1", "a- a/b2", None),
        ("a/b1", "a/b- a2", None),
        ("x1", "a1 a/b2", Some(Refused::FileAndFolder(path("a")))),
        ("a/b1", "ab2", None),
        ("a.b1", "a2", None),
    ] {
        let mut bench = Bench::new(Config::default());
        bench.committed(before);
        match expected {
            Some(why) => assert_eq!(bench.refused(transaction), why, "{before}, {transaction}"),
            None => {
                assert_eq!(bench.committed(transaction), Sequence(2), "{before}, {transaction}")
            }
        }
    }
}

#[test]
fn file_and_folder_cannot_share_a_path_within_one_step() {
    let mut bench = Bench::new(Config::default());
    let config = bench.write("x1");
    for text in ["a1", "a/b2", "a-", "a/b3"] {
        bench.write(text);
    }
    bench.disk();
    let refused: Vec<_> = bench
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Refused { transaction, .. } => Some(transaction.0 - config.0),
            _ => None,
        })
        .collect();
    assert_eq!(refused, [2]);
}

#[test]
fn stamps_never_go_back() {
    let mut bench = Bench::new(Config::default());
    bench.ms = 5_000;
    bench.committed("a1");
    let first = bench.origin.image().stamp;
    // Started again, with a clock that was set back.
    let image = bench.origin.image().clone();
    let bodies = vec![(Digest([1; 32]), Bytes(10))];
    let mut bench = Bench::of(Config::default(), image, bodies);
    bench.committed("b2");
    assert!(bench.origin.image().stamp >= first);
}

#[test]
fn replica_resumes_from_its_position() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1");
    let position = bench.origin.last();
    bench.committed("b2");
    bench.committed("c3");
    bench.hello(Some(position));
    let told = bench.told();
    assert_eq!(told[0], ToReplica::Welcome { start: Start::Log, eager: false });
    assert_eq!(sequences(&told), [2, 3]);
    let Some(ToReplica::Heartbeat { committed, echo, .. }) = told.last() else {
        panic!("a heartbeat behind the invalidations: {told:?}");
    };
    assert_eq!((*committed, *echo), (Sequence(3), None));
    let sent = LocalTime::from_nanos(17);
    bench.say(ToOrigin::Ping { sent });
    bench.ms += 10;
    let told = bench.told();
    assert!(matches!(told[..], [ToReplica::Heartbeat { echo: Some(echo), .. }] if echo == sent));
    bench.ms += 980;
    assert!(bench.told().is_empty(), "nothing has happened since");
}

#[test]
fn other_history_is_rejected_at_any_length() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1");
    let backup = bench.origin.image().clone();
    bench.committed("b2");
    let position = bench.origin.last();
    let bodies = vec![(Digest([1; 32]), Bytes(10))];
    for (later, expected) in [
        (&[][..], Refusal::Ahead(Sequence(1))),
        (&["c3"][..], Refusal::Diverged),
        (&["c3", "d4"][..], Refusal::Diverged),
    ] {
        let mut bench = Bench::of(Config::default(), backup.clone(), bodies.clone());
        for text in later {
            bench.committed(text);
        }
        bench.hello(Some(position));
        assert_eq!(bench.told(), [ToReplica::Refused(expected)], "{later:?}");
        assert_eq!(bench.events(), [Event::Turned { replica: REPLICA, why: expected }]);
    }
    let other = Position::beginning([8; 32]);
    bench.hello(Some(other));
    assert_eq!(bench.told(), [ToReplica::Refused(Refusal::Diverged)]);
}

#[test]
fn replica_behind_the_log_compares_trees() {
    let mut bench = Bench::new(Config { log: 2, chain: 4, ..Config::default() });
    let begin = bench.origin.last();
    bench.committed("a1");
    let first = bench.origin.last();
    for text in ["b2", "c3", "d4"] {
        bench.committed(text);
    }
    bench.hello(Some(first));
    let [ToReplica::Welcome { start: Start::Resync { position, .. }, .. }] = bench.told()[..]
    else {
        panic!("a re-sync");
    };
    assert_eq!(position, bench.origin.last());
    bench.say(ToOrigin::Ask { of: position.sequence, part: Ask::Branches });
    assert!(matches!(bench.told()[..], [ToReplica::Tree { part: Tree::Branches(_), .. }]));
    bench.say(ToOrigin::Resynced(position.sequence));
    bench.committed("e5");
    assert_eq!(sequences(&bench.told()), [5]);
    bench.hello(Some(begin));
    assert_eq!(bench.told(), [ToReplica::Refused(Refusal::Forgotten(Sequence(1)))]);
}

#[test]
fn rewrites_are_merged_and_the_newest_version_is_pushed() {
    let mut bench =
        Bench::new(Config { under_way: 1, under_way_bytes: Bytes(0), ..Config::default() });
    bench.hello(Some(bench.origin.last()));
    bench.told();
    for text in ["a1", "b2", "a3", "a4"] {
        bench.committed(text);
    }
    let mut bodies = bench.pushed();
    assert_eq!(bodies.len(), 1, "one at a time");
    bench.say(ToOrigin::Taken(1));
    bodies.extend(bench.pushed());
    bodies.sort_unstable();
    assert_eq!(bodies, [2, 4]);
    bench.say(ToOrigin::Taken(2));
    assert_eq!(bench.pushed(), [0_u8; 0]);
    assert_eq!(bench.origin.take_counters().absorbed, 2);
}

#[test]
fn bodies_in_flight_at_a_disconnect_are_pushed_again() {
    let mut bench = Bench::new(Config::default());
    let position = bench.origin.last();
    bench.hello(Some(position));
    bench.told();
    bench.committed("a1");
    bench.committed("b2");
    assert_eq!(bench.pushed().len(), 2);
    bench.say(ToOrigin::Taken(1));
    bench.origin.handle_disconnected(REPLICA, bench.session());
    assert_eq!(bench.origin.waiting(REPLICA), 1);
    bench.hello(Some(position));
    bench.told();
    assert_eq!(bench.pushed().len(), 1);
}

#[test]
fn demand_gets_the_current_version_and_the_last_sequence() {
    let mut bench = Bench::new(Config::default());
    bench.hello(Some(bench.origin.last()));
    bench.told();
    for text in ["a1", "a2", "b3"] {
        bench.committed(text);
    }
    bench.say(ToOrigin::Demand(path("a")));
    bench.say(ToOrigin::Demand(path("x")));
    let headers = [(); 2].map(|()| bench.origin.poll_demand(REPLICA).expect("an answer").message);
    let version = headers[0].version.expect("a version");
    assert_eq!((version.sequence, version.content.digest), (Sequence(2), Digest([2; 32])));
    assert_eq!(
        (headers[0].at, headers[1].at, headers[1].version),
        (Sequence(3), Sequence(3), None)
    );
    assert_eq!(bench.pushed(), [3], "a is there by now");
}

#[test]
fn silent_replica_costs_nothing_and_a_greedy_one_is_closed() {
    let mut bench = Bench::new(Config { demands: 3, log: 5, ..Config::default() });
    bench.hello(Some(bench.origin.last()));
    bench.told();
    for _ in 0..20 {
        bench.committed("a1 b2");
    }
    assert_eq!(bench.origin.image().log.len(), 5);
    let told = bench.told();
    assert!(is_resync(&told), "{told:?}");
    for _ in 0..4 {
        bench.say(ToOrigin::Demand(path("a")));
    }
    assert_eq!(bench.events(), [Event::Close(REPLICA)]);
}

#[test]
fn invalid_message_ends_the_connection() {
    for (message, what) in [
        (ToOrigin::Ack(Sequence(9)), "more than there is"),
        (ToOrigin::Taken(7), "more than was sent"),
        (ToOrigin::Fetched(7), "more than was asked for"),
        (ToOrigin::Resynced(Sequence(0)), "no replica compares trees"),
        (ToOrigin::Ask { of: Sequence(0), part: Ask::Branches }, "no replica compares trees"),
    ] {
        let mut bench = Bench::new(Config::default());
        bench.hello(Some(bench.origin.last()));
        bench.told();
        bench.say(message);
        assert_eq!(bench.events(), [Event::Close(REPLICA)], "{what}");
    }
}

#[test]
fn late_hello_does_not_end_its_successor() {
    let mut bench = Bench::new(Config::default());
    let position = bench.origin.last();
    bench.hello(Some(position));
    bench.hello(Some(position));
    bench.told();
    bench.connection -= 1;
    bench.say(hello(Some(position), Sequence::ZERO));
    bench.connection += 1;
    bench.committed("a1");
    assert_eq!(sequences(&bench.told()), [1]);
}

#[test]
fn overwritten_bodies_are_kept_while_in_the_log() {
    let mut bench = Bench::new(Config { log: 1, ..Config::default() });
    bench.committed("a1");
    bench.committed("a2");
    assert!(bench.origin.bodies.references.is_stored(&Digest([1; 32])));
    bench.committed("b3");
    assert!(!bench.origin.bodies.references.is_stored(&Digest([1; 32])));
    let gone = Content { digest: Digest([1; 32]), size: Bytes(10), metadata: Metadata::default() };
    let changes = [(path("a"), Put::Stored(gone))].into();
    bench.submit(Transaction { changes });
    let why = Refused::NotStored(Digest([1; 32]));
    let transaction = TransactionId(bench.count);
    assert_eq!(bench.events(), [Event::Refused { transaction, why }]);
}

#[test]
fn stored_body_is_accepted_only_with_its_size() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1");
    for (size, refused) in [(9, true), (11, true), (10, false)] {
        let size = Bytes(size);
        let content = Content { digest: Digest([1; 32]), size, metadata: Metadata::default() };
        let changes = [(path("b"), Put::Stored(content))].into();
        let transaction = bench.submit(Transaction { changes });
        bench.disk();
        let why = Refused::OtherSize(Digest([1; 32]), size);
        let expected = match refused {
            true => Event::Refused { transaction, why },
            false => Event::Acknowledged { transaction, sequence: Sequence(2) },
        };
        assert_eq!(bench.events(), [expected], "{size}");
    }
}

#[test]
fn reads_raise_the_push_priority() {
    let mut bench =
        Bench::new(Config { under_way: 1, under_way_bytes: Bytes(0), ..Config::default() });
    bench.hello(Some(bench.origin.last()));
    bench.told();
    bench.committed("a1");
    bench.committed("b2");
    bench.say(ToOrigin::Reads(vec![(path("b"), 100)]));
    assert_eq!(bench.pushed(), [2]);
}

#[test]
fn writes_before_a_reconnection_are_pushed() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1");
    let known = bench.origin.last();
    bench.committed("b2");
    let bodies = vec![(Digest([1; 32]), Bytes(10)), (Digest([2; 32]), Bytes(10))];
    let mut bench = Bench::of(Config::default(), bench.origin.image().clone(), bodies);
    bench.committed("c3");
    bench.hello(Some(known));
    bench.told();
    let mut pushed = bench.pushed();
    pushed.sort_unstable();
    assert_eq!(pushed, [2, 3]);
}

#[test]
fn unapplied_writes_beyond_the_log_are_pushed() {
    let mut bench = Bench::new(Config::default());
    bench.committed("a1");
    let applied = bench.origin.last().sequence;
    bench.committed("b2");
    let position = Some(bench.origin.last());
    let bodies = vec![(Digest([1; 32]), Bytes(10)), (Digest([2; 32]), Bytes(10))];
    let config = Config { log: 1, ..Config::default() };
    let mut bench = Bench::of(config, bench.origin.image().clone(), bodies);
    bench.committed("c3");
    assert!(bench.origin.image().log_after() > applied);
    bench.connection += 1;
    bench.say(hello(position, applied));
    bench.told();
    let mut pushed = bench.pushed();
    pushed.sort_unstable();
    assert_eq!(pushed, [2, 3]);
}
