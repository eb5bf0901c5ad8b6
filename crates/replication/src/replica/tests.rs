mod buffer;
mod lacking;
mod leaves;
mod opened;
mod outage;
mod reads;
mod room;
mod share;
mod slices;
mod states;
mod subscription;
mod withdrawn;

use std::collections::BTreeMap;

use super::buffer::Buffer;
use super::*;
use crate::BodyEffect;
use crate::merkle::MerkleTree;
use crate::message::{BodyHeader, Start, ToReplica};
use crate::path::{Escaped, Path};
use crate::time::{Drift, WallTime};
use crate::types::{Change, Content, Incarnation, Metadata, Mode, Payload, Version};

const MS: i64 = 1_000_000;

fn path(text: &str) -> Path {
    Path::new(text).expect("a path")
}

/// The body with this number.
fn content(body: u8) -> Content {
    Content { digest: Digest([body; 32]), size: size(body), metadata: Metadata::default() }
}

/// All but two have the same size.
fn size(body: u8) -> Bytes {
    if matches!(body, 8 | 9) { Bytes(30) } else { Bytes(10) }
}

/// The body that `text` names by its last character, a digit or a letter; none for `-`.
fn body_of(text: &str) -> Option<u8> {
    u8::from_str_radix(text.get(text.len() - 1..)?, 36).ok()
}

fn payload(body: u8) -> Payload<()> {
    Payload { digest: Digest([body; 32]), size: size(body), bytes: () }
}

/// `"a1"` gives `a` the body 1, `"a-"` deletes it, `"a/"` makes it a folder.
fn changes(text: &str) -> Vec<Change> {
    let change = |text: &str| {
        let name = &text[..text.len() - 1];
        let folder = Content::folder(WallTime::default(), Mode::new(0o750));
        let content = if text.ends_with('/') { Some(folder) } else { body_of(text).map(content) };
        Change { path: path(name), content }
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

/// A replica, and a disk that runs jobs when the test says so.
struct Bench {
    replica: Replica<()>,
    ms: i64,
    connection: u32,
    reads: u64,
}

/// An entry: the commit of a file, or `/`.
fn told(entry: &Entry) -> String {
    match entry {
        Entry::File(version) => version.sequence.0.to_string(),
        Entry::Folder(None) => "/".to_owned(),
        Entry::Folder(Some(told)) => format!("/{:?}", told.mode),
    }
}

impl Bench {
    /// A replica connected to an origin without objects, at 0 ms.
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

    /// The origin's time of the state, in the last answer.
    fn reflects(&mut self) -> Option<WallTime> {
        let reports = self.sent().into_iter().filter_map(|message| match message {
            ToOrigin::Report(report) => Some(report.reflects),
            _ => None,
        });
        reports.last().expect("a report")
    }

    fn connect(&mut self, start: Start) {
        self.connection += 1;
        self.replica.handle_connected(reading(self.ms));
        let hello = self.sent();
        assert!(matches!(hello[..], [ToOrigin::Hello { .. }]), "{hello:?}");
        self.say(ToReplica::Welcome { start, eager: false });
    }

    /// The objects whose bodies were demanded since the last call.
    fn demanded(&mut self) -> Vec<String> {
        let path = |message| match message {
            ToOrigin::Demand(path) => Some(path.to_string()),
            _ => None,
        };
        self.sent().into_iter().filter_map(path).collect()
    }

    /// The counts of speculative bodies reported since the last call.
    fn taken(&mut self) -> Vec<u64> {
        let count = |message| if let ToOrigin::Taken(count) = message { Some(count) } else { None };
        self.sent().into_iter().filter_map(count).collect()
    }

    fn session(&self) -> Session {
        Session { origin: Incarnation(1), replica: Incarnation(0), connection: self.connection }
    }

    /// The origin has restarted, and continues the log that this replica knows.
    fn connect_to_another_life(&mut self) {
        self.connection += 1;
        self.replica.handle_connected(reading(self.ms));
        self.sent();
        self.in_another_life(ToReplica::Welcome { start: Start::Log, eager: false });
    }

    fn another_life(&self) -> Session {
        Session { origin: Incarnation(2), ..self.session() }
    }

    /// The origin sends this in that life.
    fn in_another_life(&mut self, message: ToReplica) {
        let session = self.another_life();
        self.replica.handle_control(reading(self.ms), Frame { session, message });
    }

    fn say(&mut self, message: ToReplica) {
        let frame = Frame { session: self.session(), message };
        self.replica.handle_control(reading(self.ms), frame);
    }

    /// A commit that is made and announced now.
    fn commit(&mut self, sequence: u64, text: &str) {
        self.part(sequence, text, false);
    }

    fn part(&mut self, sequence: u64, text: &str, more: bool) {
        let stamp = reading(self.ms).wall;
        let (sequence, changes) = (Sequence(sequence), changes(text));
        self.say(ToReplica::Invalidation { sequence, stamp, changes, more });
    }

    /// A heartbeat that was sent now and answers a ping of now.
    fn heartbeat(&mut self, committed: u64) {
        let now = reading(self.ms);
        let committed = Sequence(committed);
        self.say(ToReplica::Heartbeat { stamp: now.wall, committed, echo: Some(now.local) });
    }

    fn body(&mut self, sequence: u64, text: &str, demand: bool) {
        self.body_in(self.session(), sequence, text, demand);
    }

    fn body_in(&mut self, session: Session, sequence: u64, text: &str, demand: bool) {
        let change = changes(text).remove(0);
        let sequence = Sequence(sequence);
        let version = change.content.map(|content| Version { sequence, content });
        let payload = body_of(text).map(payload);
        let message = BodyHeader { path: change.path, version, at: sequence, demand, lost: false };
        let frame = Frame { session, message };
        self.replica.handle_body(reading(self.ms), frame, payload);
    }

    /// The header of a body of `name`.
    fn header(&self, name: &str, version: Version, demand: bool) -> Frame<BodyHeader> {
        let (path, at) = (path(name), version.sequence);
        let message = BodyHeader { path, version: Some(version), at, demand, lost: false };
        Frame { session: self.session(), message }
    }

    /// The disk completes all requests.
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

    /// The immediate result of a read of `name`: a body, `-`, or why it waits.
    fn read(&mut self, name: &str) -> String {
        self.read_after(name, 0)
    }

    fn read_after(&mut self, name: &str, after: u64) -> String {
        self.ask(ReadTarget::Object(path(name)), after)
    }

    fn ask(&mut self, target: ReadTarget, after: u64) -> String {
        self.reads += 1;
        let id = ReadId(self.reads);
        let request = Request { target, after: Sequence(after) };
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
                Outcome::Lost(version) => format!("lost {}", version.content.digest.0[0]),
                Outcome::Folder(entries) => {
                    entries.iter().map(|(path, _)| path.to_string()).collect::<Vec<_>>().join(" ")
                }
                Outcome::Entry(entry) => told(&entry),
                Outcome::Page(page) => format!("{:?}", page.items),
                Outcome::Names(names) => {
                    let told = names
                        .iter()
                        .map(|(name, entry)| format!("{}:{}", Escaped(name), told(entry)));
                    told.collect::<Vec<_>>().join(" ")
                }
            };
            answers.push((answer.id.0, text));
        }
        answers
    }

    /// The state's version of `name`, and whether it is valid.
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
fn invalidation_is_applied_with_its_body() {
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
fn invalidation_is_applied_at_its_deadline_without_its_body() {
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
fn eager_replica_applies_invalidations_while_connected() {
    for (eager, state, read) in [(true, (1, false), "Invalid"), (false, (0, false), "-")] {
        let mut bench = Bench::new(Config { eager: Some(eager), ..config() });
        bench.commit(1, "a1");
        bench.disk();
        assert_eq!(bench.state("a"), eager.then_some(state), "eager: {eager}");
        assert_eq!(bench.read("a"), read, "eager: {eager}");
    }
    // With its body here it is one step, as usual; and a commit from before a disconnect waits as usual.
    let mut bench = Bench::new(Config { eager: Some(true), ..config() });
    bench.body(1, "a1", false);
    bench.disk();
    bench.commit(1, "a1");
    bench.disk();
    assert_eq!(bench.read("a"), "1");
    assert_eq!(bench.replica.take_counters().with_bodies, 1);
    bench.commit(2, "a2");
    bench.replica.handle_disconnected(reading(bench.ms));
    assert_eq!(bench.read("a"), "1", "its step is not on the disk yet");
}

#[test]
fn own_eager_setting_overrides_that_of_the_origin() {
    for (told, own, expected) in [
        (true, None, true),
        (false, None, false),
        (true, Some(false), false),
        (false, Some(true), true),
    ] {
        let mut bench = Bench::new(Config { eager: own, ..config() });
        bench.replica.handle_disconnected(reading(0));
        bench.connection += 1;
        bench.replica.handle_connected(reading(0));
        bench.say(ToReplica::Welcome { start: Start::Log, eager: told });
        bench.commit(1, "a1");
        bench.disk();
        assert_eq!(bench.state("a").is_some(), expected, "{told}, {own:?}");
    }
}

#[test]
fn read_checks_deadlines_itself() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.ms += 9_000;
    bench.heartbeat(1);
    bench.disk();
    // The timer is not called.
    bench.ms += 1_000;
    assert_eq!(bench.read("a"), "Applying");
}

#[test]
fn demand_body_applies_all_invalidations_before_it() {
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
fn demand_answer_without_a_body_waits_for_the_deletion() {
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
fn newer_body_is_applied_with_the_versions_it_overwrites() {
    for (overtake, state, read) in [(true, Some((3, true)), "3"), (false, None, "-")] {
        let mut bench = Bench::new(Config { overtake, ..config() });
        bench.commit(1, "a1");
        bench.commit(2, "b2");
        bench.commit(3, "a3");
        bench.body(3, "a3", false);
        bench.disk();
        assert_eq!(bench.state("a"), None, "b has no body yet");
        bench.body(2, "b2", false);
        bench.disk();
        assert_eq!((bench.state("a"), bench.read("a").as_str()), (state, read));
        assert_eq!(bench.read("b"), if overtake { "2" } else { "-" });
        let counters = bench.replica.take_counters();
        let expected = if overtake { (1, 2) } else { (0, 0) };
        assert_eq!((counters.overtaken, counters.with_bodies), expected);
        // According to the paper, all had waited for this one.
        bench.body(1, "a1", false);
        bench.disk();
        assert_eq!(bench.replica.take_counters().stale, 1, "of no use any more");
        assert_eq!((bench.read("a").as_str(), bench.read("b").as_str()), ("3", "2"));
    }
}

#[test]
fn overtaking_body_makes_no_object_invalid() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1 b1");
    bench.body(1, "a1", false);
    bench.disk();
    bench.commit(2, "a2 b-");
    bench.commit(3, "b3 c3");
    bench.commit(4, "a- c4");
    bench.disk();
    assert_eq!(bench.replica.position(), Sequence(1), "b3 and c4 are current, and not here");
    bench.body(4, "c4", false);
    bench.disk();
    assert_eq!(bench.replica.position(), Sequence(1), "b3 is current, and not here");
    bench.commit(5, "d5");
    bench.body(3, "b3", false);
    bench.disk();
    assert_eq!(bench.replica.position(), Sequence(4));
    let names = ["a", "b", "c", "d"].map(|name| bench.read(name));
    assert_eq!(names, ["-", "3", "4", "-"]);
}

#[test]
fn complete_commits_are_applied_by_the_next_heartbeat() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    for sequence in 2..500 {
        bench.commit(sequence, "b2");
    }
    bench.body(499, "b2", false);
    bench.commit(500, "a3");
    bench.disk();
    bench.body(500, "a3", false);
    bench.disk();
    bench.heartbeat(500);
    bench.disk();
    assert_eq!(bench.replica.position(), Sequence(500));
    assert_eq!((bench.read("a").as_str(), bench.read("b").as_str()), ("3", "2"));
}

#[test]
fn body_waits_for_the_invalidations_before_it() {
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
fn body_of_an_older_version_is_discarded() {
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
fn body_that_differs_from_its_announcement_is_discarded() {
    let mut bench = Bench::new(config());
    bench.commit(1, "a1");
    bench.wait(10_000);
    bench.disk();
    // The header and the invalidation disagree; then the header and the bytes.
    bench.body(1, "a9", false);
    bench.disk();
    let version = Version { sequence: Sequence(1), content: content(1) };
    let frame = bench.header("a", version, false);
    bench.replica.handle_body(reading(bench.ms), frame, Some(payload(9)));
    bench.disk();
    assert_eq!(bench.state("a"), Some((1, false)));
    assert_eq!(bench.replica.take_counters().corrupt, 2);
}

#[test]
fn transaction_is_visible_completely_or_not_at_all() {
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
fn nothing_is_visible_before_it_is_durable() {
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
    assert_eq!(bench.replica.poll_event(), Some(Event::Connected { after: None }));
    assert_eq!(bench.replica.poll_event(), Some(Event::DiskFull));
    bench.wait(1_000);
    bench.disk();
    assert_eq!(bench.read("a"), "1", "it is tried again");
}

#[test]
fn replica_reports_its_state() {
    let mut bench = Bench::new(config());
    bench.sent();
    let report = |bench: &mut Bench| {
        let mut reports = bench.sent().into_iter().filter_map(|message| match message {
            ToOrigin::Report(report) => Some(report),
            _ => None,
        });
        (reports.next(), reports.next())
    };
    bench.commit(1, "a1");
    bench.body(1, "a1", false);
    bench.commit(2, "b2");
    bench.disk();
    bench.wait(1_999);
    assert_eq!(report(&mut bench), (None, None), "it is not the time");
    bench.wait(1);
    let stock = |objects, valid: u64| Stock {
        objects,
        valid_objects: valid,
        bytes: Bytes(10 * objects),
        valid_bytes: Bytes(10 * valid),
        ..Stock::default()
    };
    let (first, second) = report(&mut bench);
    let first = first.expect("every two seconds");
    assert_eq!((first.stock, second), (stock(1, 1), None));
    assert_eq!(first.reflects, Some(reading(0).wall));
    assert_eq!(first.lasts, Some(Duration::from_secs(58)));
    assert!(first.skew.is_some());
    // The deadline of the second commit comes, but not its body.
    bench.wait(9_000);
    bench.disk();
    bench.wait(2_000);
    assert_eq!(report(&mut bench).1.map(|last| last.stock), Some(stock(2, 1)));
    bench.replica.handle_missing(reading(13_000), &payload(1).digest);
    assert_eq!(bench.replica.stock(), stock(2, 0));
    bench.commit(3, "a-");
    bench.disk();
    assert_eq!(bench.replica.stock(), stock(1, 0));
    let image = bench.replica.image().clone();
    let restarted = Replica::<()>::recover(reading(0), config(), image, []);
    assert_eq!(restarted.stock(), stock(1, 0));
}
