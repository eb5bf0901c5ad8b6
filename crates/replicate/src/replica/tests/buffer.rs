//! How much may wait to be applied.

use super::*;

/// Room for some commits of one file.
const ROOM: Bytes = Bytes(4_000);

fn bench() -> Bench {
    Bench::new(Config { buffer: ROOM, ..config() })
}

impl Bench {
    /// Commits `text` again and again until the connection is given up; gives the commit for which there was no
    /// room. In between the disk has no room if it is `full`, else it takes nothing.
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

    /// A new connection stands; whether hello is said.
    fn greets(&mut self) -> bool {
        self.connection += 1;
        self.replica.handle_connected(reading(self.ms));
        matches!(self.sent()[..], [ToOrigin::Hello { .. }])
    }
}

#[test]
fn a_replica_that_cannot_apply_keeps_no_more_than_there_is_room_for_and_loses_nothing() {
    for full in [false, true] {
        let mut bench = bench();
        let refused = bench.overfill("a-", full);
        let bytes = bench.replica.buffer.bytes();
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
        assert_eq!(bench.replica.buffer.bytes(), Bytes(0));
        assert_eq!(bench.read("a"), "-");
    }
}

#[test]
fn what_was_not_taken_in_renews_no_lease() {
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
fn commits_that_take_half_of_the_room_are_applied_without_their_bodies() {
    let mut bench = bench();
    for sequence in 1..100 {
        bench.commit(sequence, "a1");
        bench.disk();
        let bytes = bench.replica.buffer.bytes().0;
        assert!(bytes <= ROOM.0 / 2, "{bytes} bytes wait");
    }
    assert!(bench.replica.is_connected());
    let waiting = bench.replica.buffer.len();
    assert!(waiting > 5, "{waiting}: what there is room for waits for its bodies");
    assert_eq!(bench.replica.take_counters().at_once, 99 - waiting as u64);
}

#[test]
fn a_commit_that_is_larger_than_the_room_is_taken_in() {
    let mut bench = bench();
    let many: Vec<String> = (0..100).map(|number| format!("a{number}-")).collect();
    bench.part(1, &many[..50].join(" "), true);
    bench.part(1, &many[50..].join(" "), false);
    assert!(bench.replica.buffer.bytes() > ROOM);
    bench.disk();
    assert_eq!(bench.replica.position(), Sequence(1));
    assert!(bench.replica.is_connected());
}
