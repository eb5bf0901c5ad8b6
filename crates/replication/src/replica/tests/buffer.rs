//! How much may wait to be applied.

use proptest::prelude::*;

use super::*;

/// Room for a few commits of one file.
const ROOM: Bytes = Bytes(4_000);

fn bench() -> Bench {
    Bench::new(Config { buffer: ROOM, ..config() })
}

impl Bench {
    /// Commits `text` repeatedly until the connection is dropped; returns the commit without space. Meanwhile
    /// the disk has no space if it is `full`; otherwise it is not read.
    fn overfill(&mut self, text: &str, full: bool) -> u64 {
        while self.replica.poll_event().is_some() {}
        let mut sequence = self.replica.received().0;
        while self.replica.is_connected() {
            sequence += 1;
            assert!(sequence < 1_000, "it takes in more and more");
            self.commit(sequence, text);
            if full {
                while self.replica.poll_effect().is_some() {}
                self.replica.handle_committed(reading(self.ms), Err(DiskFull));
                self.wait(100);
            }
        }
        let events: Vec<Event> = core::iter::from_fn(|| self.replica.poll_event()).collect();
        assert!(events.contains(&Event::Close), "{events:?}");
        assert_eq!(self.replica.received(), Sequence(sequence - 1), "no more is kept");
        assert_eq!(self.replica.take_counters().overfull, 1);
        sequence
    }

    /// Opens a new connection; returns whether hello is sent.
    fn greets(&mut self) -> bool {
        self.connection += 1;
        self.replica.handle_connected(reading(self.ms));
        matches!(self.sent()[..], [ToOrigin::Hello { .. }])
    }
}

#[test]
fn blocked_replica_bounds_its_buffer_and_loses_nothing() {
    for full in [false, true] {
        let mut bench = bench();
        let refused = bench.overfill("a-", full);
        let bytes = bench.replica.apply.buffer.bytes();
        assert!(bytes >= ROOM && bytes.0 < ROOM.0 + 500, "{bytes:?}");
        assert!(!bench.greets(), "it would be told of what it has no room for");
        bench.wait(900);
        assert_eq!(bench.sent(), []);
        bench.disk();
        if full {
            bench.wait(1_000);
            bench.disk();
        }
        let hello = bench.sent();
        let [ToOrigin::Hello { position, committed, .. }] = &hello[..] else { panic!("{hello:?}") };
        let last = Sequence(refused - 1);
        assert_eq!(position.map(|position| position.sequence), Some(last));
        assert!(*committed > Sequence(0));
        bench.say(ToReplica::Welcome { start: Start::Log, eager: false });
        bench.commit(refused, "a-");
        bench.heartbeat(refused);
        bench.disk();
        assert_eq!(bench.replica.position(), Sequence(refused));
        assert_eq!(bench.replica.apply.buffer.bytes(), Bytes(0));
        assert_eq!(bench.read("a"), "-");
    }
}

#[test]
fn refused_message_renews_no_lease() {
    let mut bench = bench();
    bench.commit(1, "a-");
    bench.overfill("a-", false);
    bench.disk();
    let before = bench.replica.staleness(reading(bench.ms).local);
    assert!(bench.greets());
    bench.say(ToReplica::Welcome { start: Start::Log, eager: false });
    assert_eq!(bench.replica.staleness(reading(bench.ms).local), before);
}

#[test]
fn commits_over_half_of_the_buffer_are_applied_without_bodies() {
    let mut bench = bench();
    for sequence in 1..100 {
        bench.commit(sequence, "a1");
        bench.disk();
        let bytes = bench.replica.apply.buffer.bytes().0;
        assert!(bytes <= ROOM.0 / 2, "{bytes} bytes wait");
    }
    assert!(bench.replica.is_connected());
    let waiting = bench.replica.apply.buffer.len();
    assert!(waiting > 5, "{waiting}: what there is room for waits for its bodies");
    assert_eq!(bench.replica.take_counters().at_once, 99 - waiting as u64);
}

#[test]
fn commit_larger_than_the_buffer_is_accepted() {
    let mut bench = bench();
    let many: Vec<String> = (0..100).map(|number| format!("a{number}-")).collect();
    bench.part(1, &many[..50].join(" "), true);
    bench.part(1, &many[50..].join(" "), false);
    assert!(bench.replica.apply.buffer.bytes() > ROOM);
    bench.disk();
    assert_eq!(bench.replica.position(), Sequence(1));
    assert!(bench.replica.is_connected());
}

/// An action on a buffer.
#[derive(Clone, Debug)]
enum Act {
    /// A part of a commit arrives, which may be the last.
    Part(Vec<(u8, Option<u8>)>, bool),
    /// A body is in the store, or no longer.
    Turn(u8),
    /// Commits, of this number, are in the state.
    Apply(usize),
    /// The rest of the commit does not arrive.
    Forget,
    Clear,
    /// Removes some places of applied changes.
    Sweep,
}

fn act() -> impl Strategy<Value = Act> {
    let change = (0..4_u8, prop::option::of(0..4_u8));
    prop_oneof![
        4 => (prop::collection::vec(change, 1..4), any::<bool>())
            .prop_map(|(changes, last)| Act::Part(changes, last)),
        4 => (0..4_u8).prop_map(Act::Turn),
        2 => (0..3_usize).prop_map(Act::Apply),
        1 => Just(Act::Forget),
        1 => Just(Act::Clear),
        2 => Just(Act::Sweep),
    ]
}

proptest! {
    #[test]
    fn waiting_bodies_are_counted(
        acts in prop::collection::vec(act(), 1..60),
        slice in prop_oneof![Just(1_usize), Just(2), Just(256)],
    ) {
        let mut buffer = Buffer::default();
        let mut garbage = Vec::new();
        let mut stored = std::collections::BTreeSet::new();
        // The complete commits, and the open one.
        let (mut commits, mut open) = (Vec::<Vec<Content>>::new(), Vec::<Content>::new());
        for act in acts {
            let is_stored = |digest: &Digest| stored.contains(digest);
            match act {
                Act::Part(parts, last) => {
                    let mut changes = BTreeMap::new();
                    for (name, body) in parts {
                        changes.insert(path(&format!("{name}-{}", open.len())), body.map(content));
                    }
                    open.extend(changes.values().flatten());
                    let changes = changes.into_iter().map(|(path, content)| Change { path, content });
                    buffer.extend(Sequence(1), changes.collect(), is_stored);
                    if last {
                        let (position, stamp) = (Position::beginning([0; 32]), WallTime::default());
                        buffer.push(CommitSummary { position, sequence: Sequence(1), stamp, said: None });
                        commits.push(core::mem::take(&mut open));
                    }
                }
                Act::Turn(body) => {
                    let digest = content(body).digest;
                    let is_new = stored.insert(digest);
                    if !is_new {
                        stored.remove(&digest);
                    }
                    buffer.turn(&digest, is_new);
                }
                Act::Apply(count) => {
                    let count = count.min(commits.len());
                    buffer.take_first(count, slice, &mut garbage);
                    commits.drain(..count);
                }
                Act::Forget => {
                    buffer.forget_parts(is_stored);
                    open.clear();
                }
                Act::Sweep => buffer.sweep(slice, &mut garbage),
                Act::Clear => {
                    buffer.clear();
                    (commits, open) = Default::default();
                }
            }
            let all = || commits.iter().flatten().chain(&open);
            let lacking = || all().filter(|content| !stored.contains(&content.digest));
            let (counted, missing) = buffer.bodies();
            let bytes = |all: &mut dyn Iterator<Item = &Content>| all.map(|one| one.size.0).sum::<u64>();
            prop_assert_eq!(counted.bodies, all().count() as u64);
            prop_assert_eq!(counted.bytes.0, bytes(&mut all()));
            prop_assert_eq!(missing.bodies, lacking().count() as u64);
            prop_assert_eq!(missing.bytes.0, bytes(&mut lacking()));
        }
    }
}
